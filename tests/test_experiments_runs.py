"""Real runs on the bundled graph: records, interruption, failures, several at a time, several processes."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import eans as library
from eans import signals
from eans.errors import Interrupted, RunError, UsageError
from eans.experiments import (
    Event,
    Experiment,
    Extra,
    Record,
    RecordStore,
    Watch,
    outdated,
    plan,
    prepare,
    recipe_hash,
    run,
    run_experiment,
    running,
)
from eans.experiments.display import RunsDisplay
from eans.experiments.processes import how_it_ended
from eans.experiments.running import error_file, locked
from eans.experiments.worker import Settings, reason, run_one
from eans.files import FolderInUse
from eans.listener import Listener
from eans.run import Run
from eans.runs import RunFolder
from eans.signals import StopRequests
from helpers_paper import TINY, keep
from helpers_runs import environment, ring_graph, workers_of, write_graph

EANS = Experiment("wordnet-core/transe/eans", TINY)
FIELDS = {
    *("recipe", "overrides", "seed", "recipe_hash", "commit", "versions", "hardware", "device", "date", "steps"),
    *("seconds", "runs_at_a_time", "valid", "test", "protocol", "curve", "losses"),
}


def uniform(*overrides: str, seed: int = 0) -> Experiment:
    return Experiment("wordnet-core/transe/uniform", (*TINY, *overrides), seed)


def endless(seed: int = 0) -> Experiment:
    return Experiment("wordnet-core/transe/uniform", (*TINY[1:], "train.steps=1000000"), seed)


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(tmp_path / "records")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The record of a run that nothing interrupted."""
    store = RecordStore(tmp_path_factory.mktemp("plain") / "records")
    record = run_experiment(EANS, store, device="cpu")
    assert list(store.working.iterdir()) == []  # deleted
    (read,) = store.read().values()
    assert read == record
    return dict(record.content)


# --- one run --------------------------------------------------------------------------------------------------------


def test_a_record_says_all_there_is_to_know(plain: dict[str, Any]) -> None:
    assert plain.keys() == FIELDS
    assert (plain["recipe"], plain["overrides"], plain["seed"]) == (EANS.recipe, list(TINY), 0)
    assert plain["versions"] == {
        "eans": library.__version__,
        "torch": torch.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }
    assert plain["valid"].keys() == plain["test"].keys() == {"both", "head", "tail"}
    assert (plain["steps"], plain["device"], plain["runs_at_a_time"]) == (20, "cpu", 1)
    assert re.fullmatch(r"[0-9a-f]{40}(\+changes)?", plain["commit"])
    assert len(plain["losses"]) == 2
    assert plain["seconds"] > 0
    assert plain["protocol"]["ties"] == "realistic"


def test_the_hash_is_that_of_the_recipe_without_seed_and_name(plain: dict[str, Any]) -> None:
    assert plain["recipe_hash"] == recipe_hash(*prepare(Experiment(EANS.recipe, TINY, 7)))
    assert plain["recipe_hash"] != recipe_hash(*prepare(Experiment(EANS.recipe, (*TINY, "train.lr=0.1"))))


def test_records_of_recipes_that_have_changed_are_found(plain: dict[str, Any]) -> None:
    same = Record("same.json", plain)
    older = Record("older.json", {**plain, "seed": 1, "recipe_hash": "0" * 16})
    unknown = Record("unknown.json", {key: value for key, value in plain.items() if key != "recipe_hash"})
    assert outdated([same, older, unknown]) == [older]


@pytest.fixture
def ranked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The splits that are ranked, as they come."""
    from eans import lifecycle

    splits: list[str] = []

    def evaluate(model: Any, graph: Any, chosen: tuple[str, ...], **options: Any) -> dict[str, Any]:
        splits.extend(chosen)
        return original(model, graph, chosen, **options)

    original = lifecycle.evaluate
    monkeypatch.setattr(lifecycle, "evaluate", evaluate)
    return splits


def test_test_triples_are_left_alone(plain: dict[str, Any], store: RecordStore, ranked: list[str]) -> None:
    record = run_experiment(EANS, store, device="cpu", test=False)
    assert ranked == ["valid"]
    assert record.content.keys() == FIELDS - {"test"}
    assert record["valid"] == plain["valid"]
    (one,) = plan([EANS], store)
    assert (one.record, one.reason) == (None, "its record has no test metrics")
    assert run_experiment(EANS, store, device="cpu")["test"] == plain["test"]
    assert ranked == ["valid", "valid", "test"]


@pytest.mark.parametrize("test", [False, True])
def test_a_process_that_ended_before_its_record_was_written(
    test: bool, plain: dict[str, Any], store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is complete then; what is ranked of it is what the second call says."""

    def full(*_: object) -> None:
        raise RunError("disk full")

    monkeypatch.setattr(RecordStore, "write", full)
    with pytest.raises(RunError, match="disk full"):
        run_experiment(EANS, store, device="cpu", test=not test)
    monkeypatch.undo()
    record = run_experiment(EANS, store, device="cpu", test=test)
    assert (record.get("test"), record["valid"]) == (plain["test"] if test else None, plain["valid"])


def stop_after(step: int) -> Listener:
    steps: list[int] = []
    return Listener(tick=steps.append, stop=lambda: bool(steps) and steps[-1] >= step)


def test_an_interrupted_run_continues(plain: dict[str, Any], store: RecordStore) -> None:
    with pytest.raises(Interrupted):
        run_experiment(EANS, store, device="cpu", listener=stop_after(7))
    assert store.read() == {}
    (one,) = plan([EANS], store)
    assert one.saved == 7
    first: list[int] = []
    record = run_experiment(EANS, store, device="cpu", listener=Listener(tick=first.append))
    assert first[0] == 8
    assert (record["test"], record["losses"]) == (plain["test"], plain["losses"])
    assert not (store.working / EANS.name).exists()


def test_a_run_of_another_recipe_is_not_continued(plain: dict[str, Any], store: RecordStore) -> None:
    other = Experiment(EANS.recipe, (*TINY, "train.lr=0.1"))
    with pytest.raises(Interrupted):
        run_experiment(other, store, device="cpu", listener=stop_after(3))
    (store.working / other.name).rename(store.working / EANS.name)
    assert plan([EANS], store)[0].saved == 0
    assert run_experiment(EANS, store, device="cpu")["test"] == plain["test"]


def test_a_traceback_of_the_past_goes_when_the_run_succeeds(store: RecordStore) -> None:
    store.make_folders()
    for experiment in (EANS, Experiment("other")):
        error_file(experiment, store).touch()
    run_experiment(EANS, store, device="cpu")
    assert [path.name for path in store.working.iterdir()] == ["other--seed0.error.txt"]


class Counting(Extra):
    """Keeps how many steps it saw, and wants records that know it."""

    def lacks(self, experiment: Experiment, record: Record) -> str:
        return "" if record.get("seen") else f"no steps of seed {experiment.seed}"

    def watch(self, experiment: Experiment, folder: Path) -> Watch:
        return Seen(experiment, folder)


class Seen(Watch):
    def __init__(self, experiment: Experiment, folder: Path) -> None:
        super().__init__(Listener(tick=self._tick))
        self.where, self.steps = f"{experiment.seed} {folder.name}", 0

    def _tick(self, step: int) -> None:
        self.steps = step

    @property
    def seconds(self) -> float:
        return 0.001

    def fields(self, run: Run) -> dict[str, Any]:
        assert run.metrics["training"]["steps"] == self.steps
        return {"seen": self.steps, "where": self.where}


def test_a_study_may_keep_more(plain: dict[str, Any], store: RecordStore) -> None:
    keep(store.folder, EANS)
    (one,) = plan([EANS], store, extra=Counting())
    assert (one.record, one.reason) == (None, "no steps of seed 0")
    record = run([EANS], store, device="cpu", extra=Counting())[EANS]
    assert (record["seen"], record["where"], record["test"]) == (20, f"0 {EANS.name}", plain["test"])
    assert plan([EANS], store, extra=Counting())[0].record == record


def test_what_cannot_be_sent_to_a_process_is_one_line(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counting, "__module__", "__main__")
    with pytest.raises(UsageError, match="Counting is sent to other processes: define it in a module of its own"):
        run([EANS], store, extra=Counting())


# --- several processes ----------------------------------------------------------------------------------------------


def do_here(experiment: Experiment, store: RecordStore) -> Event:
    """What a process of the pool does, in this one."""
    here, there = multiprocessing.Pipe()
    with here, there:
        return run_one(experiment, Settings(store, "cpu"), there, lambda: False)


def test_one_process_at_a_time_makes_a_run(store: RecordStore) -> None:
    with locked(EANS, store):
        with (
            pytest.raises(FolderInUse, match=f"^another process is making {re.escape(EANS.key)}$"),
            locked(EANS, store),
        ):
            pass
        with locked(Experiment(EANS.recipe, seed=1), store):  # another run is nobody's business
            pass
    with locked(EANS, store):
        pass


@pytest.mark.parametrize("place", ["describe", "current_commit"])
def test_nobody_comes_between_evaluation_and_record(
    place: str, store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training is over then, and the folder of the run is about to go."""
    kinds: list[str] = []
    original = getattr(running, place)

    def slowly(*arguments: Any) -> Any:
        run([uniform()], store, device="cpu", on_event=lambda event: kinds.append(event.kind))
        return original(*arguments)

    monkeypatch.setattr(running, place, slowly)
    assert do_here(uniform(), store).kind == "finished"
    assert kinds == ["elsewhere"]
    assert len(store.read()) == 1


def test_a_record_that_came_while_a_process_started_is_taken(store: RecordStore) -> None:
    keep(store.folder, uniform(), 0.5)
    event = do_here(uniform(), store)
    assert (event.kind, event.reason) == ("finished", "its record was made meanwhile")
    assert event.record is not None
    assert event.record.get("test.both.mrr") == 0.5


def test_what_another_process_is_making_is_left_to_it(store: RecordStore) -> None:
    experiments, ends = [uniform(seed=0), uniform(seed=1)], list[tuple[int, str]]()
    with locked(experiments[0], store):
        found = run(
            experiments,
            store,
            device="cpu",
            on_event=lambda event: ends.append((event.experiment.seed, event.kind)) if event.kind != "step" else None,
        )
    assert ends == [(0, "elsewhere"), (1, "finished")]
    assert list(found) == experiments[1:]


def test_several_at_a_time_and_one_that_fails(store: RecordStore) -> None:
    diverges = Experiment("wordnet-core/distmult/uniform", (*TINY, "train.lr=1e30"))
    events: list[Event] = []
    experiments = [diverges, uniform(), uniform(seed=1), uniform()]
    found = run(experiments, store, device="cpu", workers=2, on_event=events.append)
    assert set(found) == {uniform(), uniform(seed=1)}
    assert {record["runs_at_a_time"] for record in found.values()} == {2}
    ends = {event.experiment: event for event in events if event.kind != "step"}
    assert len(ends) == len([event for event in events if event.kind != "step"]) == 3
    assert "the loss is not finite" in ends[diverges].reason
    assert found[uniform()]["test"] == run_experiment(uniform(), RecordStore(store.folder / "x"), device="cpu")["test"]
    assert multiprocessing.active_children() == []


def test_a_killed_process_fails_its_run_alone(store: RecordStore) -> None:
    ends: dict[Experiment, Event] = {}

    def on_event(event: Event) -> None:
        if event.kind == "step" and event.experiment == endless():
            for child in multiprocessing.active_children():
                os.kill(child.pid or 0, signal.SIGKILL)
        ends[event.experiment] = event

    run([endless(), uniform()], store, device="cpu", on_event=on_event)
    assert ends[endless()].reason == "its process was ended by SIGKILL (not enough memory?)"
    assert ends[uniform()].kind == "finished"
    assert list(store.read()) == [uniform()]


def test_what_the_caller_raises_ends_the_processes(store: RecordStore) -> None:
    def on_event(event: Event) -> None:
        raise ZeroDivisionError(event.kind)

    with pytest.raises(ZeroDivisionError, match="step"):
        run([endless()], store, device="cpu", on_event=on_event)
    assert multiprocessing.active_children() == []


def test_a_graph_of_ones_own(store: RecordStore, tmp_path: Path) -> None:
    graph = write_graph(ring_graph(30), tmp_path / "graph")
    experiment = Experiment("default/transe/eans", (*TINY, f"data.name={graph}"))
    record = run([experiment], store, device="cpu")[experiment]
    assert record["protocol"]["candidates"] == "all 30 entities"


@pytest.mark.parametrize(
    ("options", "message"),
    [({"workers": 0}, "workers must be at least 1, got 0"), ({"device": "tpu"}, "unknown device 'tpu'")],
)
def test_mistakes_come_first(options: dict[str, Any], message: str, store: RecordStore) -> None:
    with pytest.raises(UsageError, match=message):
        run([EANS], store, **options)
    assert not store.folder.exists()


def test_records_that_have_no_place_are_one_error_for_all_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot create folder .*; choose another folder of records"):
        run([EANS], RecordStore(tmp_path / "file" / "records"), device="cpu")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RunError("disk full"), "disk full"),
        (MemoryError(), "not enough memory; try fewer workers"),
        (RuntimeError("CUDA out of memory. Tried to allocate"), "not enough memory; try fewer workers"),
        (ValueError("first\nsecond"), "ValueError: first (traceback in "),
    ],
)
def test_reasons_are_one_line(error: Exception, line: str, tmp_path: Path) -> None:
    found = reason(error, tmp_path / "error.txt")
    assert found.startswith(line)
    assert "\n" not in found
    assert (tmp_path / "error.txt").is_file() == isinstance(error, ValueError)


def test_how_processes_end() -> None:
    assert how_it_ended(-signal.SIGSEGV) == "its process was ended by SIGSEGV"
    assert how_it_ended(3) == "its process ended with status 3"


# --- interruptions --------------------------------------------------------------------------------------------------

STUDY = """
import sys
from eans.experiments import Experiment, RecordStore, run_with_display
from eans.errors import Interrupted
*overrides, seeds, workers = sys.argv[1:]
experiments = [Experiment("wordnet-core/transe/uniform", tuple(overrides), seed) for seed in range(int(seeds))]
try:
    run_with_display(experiments, RecordStore("records"), device="cpu", workers=int(workers))
except Interrupted as error:
    print(error, file=sys.stderr)
    sys.exit(130)
"""


@contextlib.contextmanager
def study(folder: Path, *overrides: str, seeds: int = 1, workers: int = 1) -> Iterator[subprocess.Popen[str]]:
    """A script that runs experiments, as the leader of a process group."""
    (folder / "study.py").write_text(STUDY, "utf-8")
    command = [sys.executable, "study.py", *overrides, str(seeds), str(workers)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=folder, env=environment(), text=True, start_new_session=True, **pipes)
    try:
        yield process
    finally:
        for left in [*workers_of(process.pid), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def wait_for(process: subprocess.Popen[str], there: Any) -> None:
    deadline = time.monotonic() + 60
    while not there():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_interrupting_loses_nothing(tmp_path: Path) -> None:
    overrides = [*TINY[1:], "train.steps=600", "train.checkpoint_every=20"]
    experiment = Experiment("wordnet-core/transe/uniform", tuple(overrides))
    store = RecordStore(tmp_path / "records")
    with study(tmp_path, *overrides) as process:
        wait_for(process, (store.working / experiment.name / "checkpoint.safetensors").is_file)
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does: all processes get it
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "stopped with 0 of 1 runs done; the same call continues from here" in err
    (step,) = re.findall(r": stopped at step (\d+) of 600, its state is saved", out)
    (one,) = plan([experiment], store)
    assert one.saved == int(step)
    with study(tmp_path, *overrides) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert re.match(r"\[1/1\] wordnet-core/.* seed=0: valid MRR 0\.\d+, test MRR 0\.\d+, trained ", out)
    undisturbed = run_experiment(experiment, RecordStore(tmp_path / "other"), device="cpu")
    (record,) = store.read().values()
    assert (record["test"], record["losses"]) == (undisturbed["test"], undisturbed["losses"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize("when", ["at once", "later"])
def test_signals_to_all_processes_stop_in_good_order(number: signal.Signals, when: str, tmp_path: Path) -> None:
    overrides = [*endless().overrides, "train.checkpoint_every=0"]
    experiment = Experiment(endless().recipe, tuple(overrides))
    folder = RecordStore(tmp_path / "records").working / experiment.name
    with study(tmp_path, *overrides) as process:
        wait_for(process, lambda: workers_of(process.pid) if when == "at once" else (folder / "log.jsonl").is_file())
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=60)
        assert workers_of(process.pid) == []
    assert process.returncode == 130
    assert "its state is saved" in out
    assert err.splitlines() == [
        "eans: stopping; once more to stop at once",
        "stopped with 0 of 1 runs done; the same call continues from here",
    ]
    assert (folder / "checkpoint.safetensors").is_file()


def test_ctrl_c_again_and_again_ends_at_once(tmp_path: Path) -> None:
    """The processes of the runs stand still: they will never save their state, as the first Ctrl-C asks for."""
    with study(tmp_path, *endless().overrides, seeds=2, workers=2) as process:
        wait_for(process, lambda: len(workers_of(process.pid)) == 2)
        for worker in workers_of(process.pid):
            os.kill(worker, signal.SIGSTOP)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.readline() == "eans: stopping; once more to stop at once\n"
        assert process.poll() is None
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.01)
        assert process.poll() == 130
        assert workers_of(process.pid) == []
        stopped = "stopped at once with 0 of 2 runs done; the same call continues from here"
        assert process.stderr.read().splitlines() == [stopped]


def test_a_library_call_leaves_signals_as_they_were(store: RecordStore) -> None:
    # One signal, at the first event: a second one that comes a second later or more would stop the run at once.
    kills = (os.kill(os.getpid(), number) for number in (signal.SIGINT,))
    before = [signal.getsignal(number) for number in signals.SIGNALS]
    with pytest.raises(Interrupted, match="stopped with 0 of 1 runs done"):
        run([endless()], store, device="cpu", on_event=lambda _: next(kills, None))
    assert [signal.getsignal(number) for number in signals.SIGNALS] == before
    assert RunFolder(store.working / endless().name).saved_step() > 0


def test_runs_in_a_thread(store: RecordStore) -> None:
    """Where signals cannot be handled."""
    found: list[dict[Experiment, Record]] = []
    thread = threading.Thread(target=lambda: found.append(run([uniform()], store, device="cpu")))
    thread.start()
    thread.join(60)
    assert [list(records) for records in found] == [[uniform()]]


def test_requests_of_the_caller(store: RecordStore) -> None:
    stop = StopRequests()
    stop.count = 2
    with pytest.raises(Interrupted, match="stopped at once with 0 of 1 runs done"):
        run([endless()], store, device="cpu", stop=stop)


# --- the display ----------------------------------------------------------------------------------------------------


def test_lines_in_a_pipe(plain: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    record = Record("x.json", {**plain, "seconds": 12.0})
    trial = Record("x.json", {key: value for key, value in record.content.items() if key != "test"})
    with RunsDisplay([EANS, uniform(), uniform(seed=1), uniform(seed=2)]) as display:
        for event in (
            Event(EANS, "step", 5, 20),
            Event(EANS, "finished", record=record),
            Event(uniform(), "finished", record=trial, reason="its record was made meanwhile"),
            Event(uniform(seed=1), "elsewhere"),
            Event(uniform(seed=2), "failed", reason="disk full"),
        ):
            display(event)
    valid, test = plain["valid"]["both"]["mrr"], plain["test"]["both"]["mrr"]
    assert capsys.readouterr().out.splitlines() == [
        f"[1/4] {EANS.key}: valid MRR {valid:.4f}, test MRR {test:.4f}, trained 12 s",
        f"[2/4] {uniform().key}: valid MRR {valid:.4f}, trained 12 s (its record was made meanwhile)",
        f"[3/4] {uniform(seed=1).key}: another process is making it",
        f"[4/4] {uniform(seed=2).key}: failed: disk full",
    ]
    assert display.failed == [(uniform(seed=2), "disk full")]


def test_bars_have_the_names_that_tell_runs_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eans.experiments.display.plain_console", lambda: Console(width=80, file=io.StringIO()))
    runs = [Experiment(recipe, (*TINY, f"sampler.negatives={n}")) for recipe in ("a/b/c", "a/b/d") for n in (4, 8)]
    display = RunsDisplay(runs)
    assert [display._name(one) for one in runs] == [f"a/b/{m} negatives={n}" for m in "cd" for n in (4, 8)]
    assert RunsDisplay(runs[:1])._name(runs[0]) == "a/b/c"
    long = [Experiment("wordnet-core/transe/uniform", (f"data.name=/some/folder/{n}/of/mine",)) for n in (10, 11)]
    assert RunsDisplay(long)._name(long[1]) == "name=/some/folder/11/of/mine"
    longer = [Experiment("a/b/c", (f"data.name={'/folder' * 9}/{n}",)) for n in (10, 11)]
    assert RunsDisplay(longer)._name(longer[1]) == "…" + f"{'/folder' * 9}/11"[-43:]


def test_json_of_a_record_has_a_line_per_field(plain: dict[str, Any], store: RecordStore) -> None:
    record = store.write(EANS, plain)
    lines = (store.folder / record.file).read_text("utf-8").splitlines()
    assert len(lines) == len(plain) + 2
    assert json.loads("\n".join(lines)) == plain
