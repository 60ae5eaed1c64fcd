"""What is shown while work takes long: lines often enough, phases by name, bars on a terminal, nothing if so wanted."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eans
from eans.errors import Interrupted
from eans.evaluation import evaluate
from eans.graph import KnowledgeGraph
from eans.lifecycle import start
from eans.listener import Listener
from eans.phases import phase, told_to
from eans.progress import INTERVAL, Display, duration, shown
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.run_progress import TrainingDisplay, headline, plan, summary
from helpers_runs import environment, ring_graph

SMALL: dict[str, Any] = {"dim": 8, "batch_size": 32, "negatives": 4}
QUICK = 0.15  # seconds between two lines


def lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.perf_counter() + 20
    while not condition():
        assert time.perf_counter() < end, "it does not come"
        time.sleep(0.001)


def held_up(stream: io.StringIO, at: int, pattern: str) -> Listener:
    """A listener that holds training up at one step until a line matches."""

    def tick(step: int) -> None:
        if step == at:
            wait_for(lambda: any(re.fullmatch(pattern, line) for line in lines(stream)))
        time.sleep(0.002)

    return Listener(tick=tick)


# --- the display ----------------------------------------------------------------------------------------------------


def test_lines_come_while_nothing_advances() -> None:
    stream = io.StringIO()
    with Display(stream, QUICK) as display:
        display.advance("ranking valid", 40, 100)
        began = time.perf_counter()
        wait_for(lambda: len(lines(stream)) >= 4)
        seconds = time.perf_counter() - began
    assert lines(stream)[:4] == ["ranking valid 40 %"] * 4
    assert seconds < 4 * QUICK, "the first line comes early, the others after an interval each"
    assert not [thread for thread in threading.enumerate() if thread.name == "eans-progress"]


def test_half_a_minute_is_the_interval() -> None:
    assert Display(io.StringIO()).interval == INTERVAL == 30.0


def test_what_is_over_soon_leaves_no_line() -> None:
    stream = io.StringIO()
    with Display(stream) as display:
        for done in range(1, 101):
            display.advance("ranking valid", done, 100)
        display.phase("clustering")
        display.phase("")
    assert lines(stream) == []


def test_a_line_says_how_long_the_rest_takes() -> None:
    stream = io.StringIO()
    with Display(stream, QUICK) as display:
        display.advance("ranking test", 0, 4)
        display.advance("ranking test", 2, 4)
        wait_for(lambda: len(lines(stream)) >= 2)
        display.advance("ranking test", 4, 4)
        found = len(lines(stream))
        time.sleep(2 * QUICK)
        assert len(lines(stream)) == found, "nothing is under way"
    assert all(re.fullmatch(r"ranking test 50 %  \d\.\d s left", line) for line in lines(stream))


def test_a_task_whose_end_nobody_knows_counts() -> None:
    stream = io.StringIO()
    with Display(stream, interval=60) as display:
        display.advance("predicting", 1200, None, "300 queries/s")
        assert display.status() == "predicting 1,200  300 queries/s"
        display.advance("predicting", 1300, 1300)
        assert display.status() == ""


def test_a_phase_inside_a_task_is_named() -> None:
    stream = io.StringIO()
    with Display(stream, QUICK) as display, told_to(display.phase):
        display.advance("training", 7, 1000, "loss 0.5000", steps=True)
        with phase("clustering"):
            wait_for(lambda: len(lines(stream)) >= 2)
        assert display.status() == "step 7/1,000  loss 0.5000"
    assert all(re.fullmatch(r"step 7/1,000  loss 0\.5000  clustering, \d\.\d s so far", line) for line in lines(stream))


def test_many_short_phases_count_as_one() -> None:
    """Kernels are compiled one by one, each in less time than it takes to be named."""
    stream = io.StringIO()
    with Display(stream, 0.6) as display, told_to(display.phase):
        end = time.perf_counter() + 0.3
        while time.perf_counter() < end and not lines(stream):
            with phase("compiling kernels"):
                time.sleep(0.012)
    assert len(lines(stream)) == 1
    assert lines(stream)[0].startswith("compiling kernels")


class Failing(io.StringIO):
    """A stream on which writing fails."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def write(self, _text: str) -> int:
        raise self.error


@pytest.mark.parametrize("error", [BrokenPipeError(), ValueError("I/O operation on closed file")], ids=repr)
def test_work_goes_on_when_the_reader_leaves(error: Exception) -> None:
    with Display(Failing(error), QUICK) as display:
        display.say("a line")
        display.say("another")
        assert display.stream is None


def test_a_full_disk_is_an_error_where_the_work_is_done() -> None:
    def work() -> None:
        with Display(Failing(OSError(28, "No space left on device")), QUICK) as display:
            end = time.perf_counter() + 20
            while time.perf_counter() < end:
                display.advance("training", 1, 10)

    with pytest.raises(OSError, match="No space left"):
        work()


def test_a_stream_that_knows_no_more_than_ascii() -> None:
    raw = io.BytesIO()
    with Display(io.TextIOWrapper(raw, encoding="ascii")) as display:
        display.say("Zürich")
    assert raw.getvalue() == b"Z\\xfcrich\n"


def test_phases_nest_and_nobody_need_listen() -> None:
    heard: list[str] = []
    with phase("alone"):
        pass
    with told_to(heard.append), phase("outer"), phase("inner"):
        pass
    with phase("after"):
        pass
    assert heard == ["outer", "inner", "outer", ""]


# --- a run ----------------------------------------------------------------------------------------------------------


def test_lines_of_a_run_whose_next_record_is_far_away() -> None:
    """The loss is the mean of the steps so far, though nothing is logged before the last."""
    stream = io.StringIO()
    sums: list[float] = []
    trainers: list[Any] = []

    def tick(step: int) -> None:
        sums.append(float(trainers[0].loss_since_record()))
        if step == 150:
            wait_for(lambda: len(lines(stream)) >= 8)
        time.sleep(0.002)

    inner = Listener(start=lambda _recipe, _graph, trainer: trainers.append(trainer), tick=tick)
    settings = {"train.steps": 200, "train.log_every": 1000, "train.valid_every": 0, **full()}
    with TrainingDisplay(inner, stream, QUICK) as display:
        recipe = resolve(load("default/transe/eans", settings), ring_graph())
        start(recipe, ring_graph(), listener=display.listener())
    pattern = r"step (\d+)/200  loss (\d+\.\d{4})  [\d,]+ triples/s  \S+ s left"
    found = [match for line in lines(stream) if (match := re.fullmatch(pattern, line))]
    assert len(found) >= 3
    for match in found:
        step = int(match[1])
        assert float(match[2]) == pytest.approx(sums[step - 1] / step, abs=1e-3)


def test_the_speed_does_not_count_what_precedes_the_second_step() -> None:
    """Such as compiling and the first order of the entities: the time left is that of steps like the last ones."""
    stream = io.StringIO()
    times = [0.0]

    def tick(step: int) -> None:
        times.append(time.monotonic())
        if step == 150:
            wait_for(lambda: len(re.findall(r"triples/s  \S+ s left", stream.getvalue())) >= 2)
        time.sleep(0.002)

    inner = Listener(start=lambda *_: time.sleep(1.0), tick=tick)
    settings = {"train.steps": 200, "train.log_every": 1000, "train.valid_every": 0, **full()}
    with TrainingDisplay(inner, stream, QUICK) as display:
        recipe = resolve(load("default/transe/eans", settings), ring_graph())
        start(recipe, ring_graph(), listener=display.listener())
    found = re.findall(r"step (\d+)/200  loss \S+  ([\d,]+) triples/s  \S+ s left", stream.getvalue())
    assert len(found) >= 2
    for step, speed in found:
        assert int(speed.replace(",", "")) == pytest.approx(
            (int(step) - 1) * 32 / (times[int(step)] - times[1]), rel=0.2
        )


def full() -> dict[str, Any]:
    return {"model.dim": 8, "train.batch_size": 32, "sampler.negatives": 4}


def test_a_run_says_its_plan_its_speed_and_its_end() -> None:
    stream = io.StringIO()
    so_far = r"loss \d\.\d{4}  valid MRR 0\.\d{4}  [\d,]+ triples/s"
    with TrainingDisplay(held_up(stream, 120, rf"step 1[012]\d/200  {so_far}  \S+ s left"), stream, QUICK) as display:
        recipe = resolve(load("default/transe/eans+adv", {"train.steps": 200, **full()}), ring_graph())
        run = start(recipe, ring_graph(), listener=display.listener())
        display.display.say(summary(run.recipe, run.metrics["training"]))
    assert lines(stream)[:4] == [
        "KnowledgeGraph('ring', 60 entities, 3 relations, train 157, valid 12, test 11)",
        "transe d=8 (512 parameters), eans + self-adversarial negatives n=4, substitution loss, b=32, seed 0, cpu",
        "200 steps of 32 triples (20 passes over train per side)",
        "validation every 100 steps on 12 triples, best weights kept, stops early after 5 without a better MRR",
    ]
    for pattern in (
        r"about \S+ s to go, at [\d,]+ triples/s",
        r"step 100: valid MRR 0\.\d{4}, Hits@10 0\.\d{4}",
        rf"step 200/200  {so_far}",
        r"trained 200 steps in \d+\.\d s on cpu(; weights of step 100, the best valid MRR)?",
    ):
        assert sum(bool(re.fullmatch(pattern, line)) for line in lines(stream)) == 1, pattern


def test_a_validation_that_takes_long_has_lines() -> None:
    stream = io.StringIO()
    held: list[int] = []

    def ranking(_split: str, done: int, _total: int) -> None:
        if not held:
            held.append(done)
            wait_for(lambda: "ranking valid" in stream.getvalue())

    with TrainingDisplay(Listener(ranking=ranking), stream, QUICK) as display:
        settings = {"train.steps": 20, "train.valid_every": 10, "evaluation.memory_mb": 1, **full()}
        recipe = resolve(load("default/transe/eans", settings), ring_graph())
        start(recipe, ring_graph(), listener=display.listener())
    assert re.search(r"^step \d+/20  .*ranking valid 50 %", stream.getvalue(), re.MULTILINE)


def test_what_a_cap_means_is_said() -> None:
    graph = ring_graph()
    many = KnowledgeGraph(
        "many", graph.entities, graph.relations, graph.train.repeat(10_000, 1), graph.valid, graph.test
    )
    (line, _) = plan(resolve(load("default"), many), many)
    assert line == (
        "100,000 steps of 1,024 triples (33 passes over train per side; auto is capped there, 100 passes would take"
        " 306,800 steps: set train.steps for more)"
    )
    (line, _) = plan(resolve(load("default", {"train.steps": 3_000, "train.batch_size": 512}), many), many)
    assert line == "3,000 steps of 512 triples (0.49 passes over train per side)"
    (line,) = plan(resolve(load("default", {"train.valid_every": 0}), graph), graph)
    assert line == "2,000 steps of 39 triples (200 passes over train per side)"


def test_both_caps_are_said() -> None:
    """Three hundred million triples, all of them views of one."""
    graph = ring_graph()
    huge = KnowledgeGraph("huge", graph.entities, graph.relations, graph.train, graph.valid, graph.test)
    object.__setattr__(huge, "train", graph.train[:1].expand(300_000_000, 3))
    (line, _) = plan(resolve(load("default"), huge), huge)
    assert line == (
        "100,000 steps of 16,384 triples (2.7 passes over train per side; auto is capped there and at batches of"
        " 16,384, 100 passes would take 3,662,200 steps: set train.steps or train.batch_size for more)"
    )


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("rotate/eans", "eans negatives n=4, substitution loss"),
        ("rotate/eans+adv", "eans + self-adversarial negatives n=4, substitution loss"),
        ("rotate/adv", "uniform + self-adversarial negatives n=4, logsigmoid loss"),
        ("rotate/softmax", "uniform negatives n=4, softmax loss"),
    ],
)
def test_methods_have_headlines_of_their_own(recipe: str, words: str) -> None:
    chosen = resolve(load(f"default/{recipe}", full()), ring_graph())
    assert words in headline(chosen, build_trainer(chosen, ring_graph()))


def test_a_run_that_stops_early_says_so() -> None:
    settings = SMALL | {"lr": 0.5, "lr_drop": 1.0, "valid_every": 10, "patience": 2, "patience_from": 0.0}
    run = eans.train(ring_graph(), "transe", "eans", steps=2000, progress=False, **settings)
    facts = run.metrics["training"]
    assert facts["steps"] == facts["best_valid_step"] + 20 < 2000
    assert summary(run.recipe, facts) == (
        f"trained {facts['steps']:,} of 2,000 steps in {facts['seconds']:,.1f} s on cpu; stopped early: 2 validations"
        f" without a better MRR; weights of step {facts['best_valid_step']:,}, the best valid MRR"
    )


def test_the_default_does_not_stop_before_the_rate_drops() -> None:
    """Though validation is as bad as can be from the start."""
    graph = ring_graph()
    settings = SMALL | {"lr": 0.5, "lr_drop": 0.9, "valid_every": 5, "steps": 200}
    run = eans.train(graph, "transe", "eans", progress=False, **settings)
    assert run.recipe.train.patience == 5
    best = run.metrics["training"]["best_valid_step"]
    assert run.metrics["training"]["steps"] == max(best, 100) + 25


def test_listeners_are_told_of_phases() -> None:
    heard: list[str] = []
    eans.train(ring_graph(), "transe", "eans", steps=5, listener=Listener(phase=heard.append), **SMALL)
    named = [name for name in heard if name and name != "compiling kernels"]
    assert named == ["preparing sampler", "clustering"]
    assert heard[-1] == ""


# --- from Python ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("progress", [True, False])
def test_training_from_python_shows_itself_unless_told_not_to(
    progress: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    more: dict[str, Any] = {} if progress else {"progress": False}  # True is the default
    stopped: list[int] = []
    listener = Listener(tick=stopped.append, stop=lambda: len(stopped) == 3)
    with pytest.raises(Interrupted):
        eans.train(ring_graph(), "transe", "eans", out=tmp_path / "run", steps=6, listener=listener, **SMALL, **more)
    assert ("6 steps of 32 triples (0.6 passes over train per side)\n" in capsys.readouterr().err) == progress
    eans.resume(tmp_path / "run", listener=listener, **more)
    printed = capsys.readouterr()
    assert ("resuming at step 3\n" in printed.err) == ("trained 6 steps in " in printed.err) == progress
    assert bool(printed.err) == progress
    assert printed.out == ""
    assert stopped == [1, 2, 3, 4, 5, 6], "whoever else listens is told all the same"


def test_evaluating_from_python(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run = eans.train(ring_graph(), "transe", "eans", steps=3, progress=False, **SMALL)
    heard: list[tuple[int, int]] = []
    assert run.evaluate(progress=lambda *counts: heard.append(counts)) == run.evaluate(progress=False) == run.evaluate()
    assert heard == [(11, 22), (22, 22)]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("eans.progress.Display.status", lambda display: f"status {sorted(display.tasks)}")
    monkeypatch.setattr("eans.progress.FIRST", 1e-9)
    monkeypatch.setattr("eans.progress.LOOK", 1e-5)
    slow = eans.rank

    def ranked(*arguments: Any, **options: Any) -> Any:
        options["progress"](1, 22)
        time.sleep(0.1)
        return slow(*arguments, **options)

    monkeypatch.setattr("eans.evaluation.rank", ranked)
    evaluate(run.model, run.graph, ("test",))
    assert "status ['ranking test']\n" in capsys.readouterr().err
    evaluate(run.model, run.graph, ("test",), progress=lambda *_: None)
    assert capsys.readouterr().err == ""


def test_progress_of_a_function() -> None:
    heard: list[Any] = []
    with shown(False) as report:
        assert report is None
    with shown(lambda *counts: heard.append(counts)) as report:
        assert report is not None
        report("ranking test", 1, 2)
    assert heard == [("ranking test", 1, 2)]


PROGRAM = """
import eans
from helpers_runs import ring_graph
run = eans.train(ring_graph(), "transe", "eans", dim=8, steps=300, batch_size=32, negatives=4)
run.evaluate()
print("done")
"""


def test_bars_on_a_terminal_lines_in_a_pipe() -> None:
    """From Python; the bar of training stays, those of rankings go."""
    options: dict[str, Any] = {"env": environment(PYTHONPATH=os.pathsep.join(sys.path), TERM="xterm", COLUMNS="120")}
    command = [sys.executable, "-c", PROGRAM]
    piped = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, **options)
    assert piped.stdout == "done\n"
    assert "\x1b" not in piped.stderr
    assert "step 300/300  loss" in piped.stderr
    master, slave = pty.openpty()
    process = subprocess.Popen(command, stdin=slave, stdout=subprocess.PIPE, stderr=slave, **options)
    os.close(slave)
    shown_bytes = b""
    while True:
        try:
            shown_bytes += os.read(master, 65536)
        except OSError:  # the other side has closed
            break
    os.close(master)
    assert process.communicate(timeout=60)[0] == b"done\n"
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown_bytes.decode())
    assert "300 steps of 32 triples (30 passes over train per side)" in plain
    assert re.search(r"training .*━.* 300/300 .*loss \d+\.\d+ +valid MRR 0\.\d+ +[\d,]+ triples/s", plain)


def test_compiling_is_named_where_there_is_something_to_compile(tmp_path: Path) -> None:
    """With a cold cache; with a warm one there is nothing to say."""
    program = """
import eans
from helpers_runs import ring_graph
heard = []
eans.train(ring_graph(), "transe", "eans", dim=8, steps=2, batch_size=32, negatives=4, progress=False,
           listener=eans.Listener(phase=heard.append))
print(heard.count("compiling kernels") > 3, heard.count("clustering") > 0)
"""
    env = environment(PYTHONPATH=os.pathsep.join(sys.path), NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    command = [sys.executable, "-c", program]
    run = [subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=env) for _ in range(2)]
    assert [done.stdout for done in run] == ["True True\n", "False True\n"]


def test_inspections_show_themselves(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("eans.progress.FIRST", 1e-9)
    monkeypatch.setattr("eans.progress.LOOK", 1e-5)
    graph, path = ring_graph(), tmp_path / "run"
    settings = SMALL | {"batch_size": 128, "negatives": 64}
    eans.train(graph, "transe", "eans", out=path, steps=30, progress=False, **settings)
    works: dict[str, Callable[[bool], Any]] = {
        "default/transe/eans": lambda progress: eans.inspect_sampler(
            graph, "transe", "eans", limit=30, progress=progress, **settings
        ),
        "inspecting": lambda progress: eans.inspect_run(path, progress=progress),
        "analysing scores": lambda progress: eans.report(path, progress=progress),
    }
    for name, work in works.items():
        work(False)
        assert capsys.readouterr().err == ""
        work(True)
        assert name in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (3.14, "3.1 s"),
        (99.4, "99 s"),
        (179.4, "179 s"),
        (180, "3 min"),
        (7140, "119 min"),
        (7300, "2 h 02 min"),
        (4e6, "1,111 h 07 min"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
