"""Real runs on the bundled graph: records, analysis on the way, interruption, failures, several at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import eans as library
from eans import display_runs, stopping
from eans.api import Listener
from eans.errors import Interrupted, RunError
from eans.graph import KnowledgeGraph
from eans.inspection.analysis import Analyst
from eans.recipes import Recipe, load
from eans.recipes.build import build_trainer, resolve
from eans.recipes.schema import TrainSection
from eans.reproduction import Record, RunSpec, pool, read_cells, read_records, running, watching
from eans.reproduction.forecast import Forecast
from eans.reproduction.order import describe_order, principal_axes, similarity
from eans.reproduction.plan import PlannedRun
from eans.reproduction.pool import Event, Reporter, Settings, Shared, has_room, how_it_ended, reason, run_all
from eans.reproduction.running import error_file, making, outdated, prepare, recipe_hash, run_spec
from eans.runs import FolderInUse, RunFolder
from eans.training import Trainer
from helpers_reproduction import TINY, call, keep, tiny_cell, write_cells
from helpers_runs import COMMAND, environment, one_line, ring_graph, write_graph

SPEC = RunSpec("wordnet-core/transe/eans", TINY)
LOOKS = (5, 10)
FIELDS = {
    *("recipe", "overrides", "seed", "recipe_hash", "commit", "versions", "hardware", "device", "date", "steps"),
    *("seconds", "total_seconds", "runs_at_a_time", "valid", "test", "protocol", "curve", "losses"),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The record of a run that nobody looked at or interrupted."""
    folder = tmp_path_factory.mktemp("plain")
    record = run_spec(SPEC, folder / "records", folder / "working", device="cpu")
    assert list((folder / "working").iterdir()) == []  # cleared away
    (read,) = read_records(folder / "records").values()
    assert read == record
    return dict(record.content)


@pytest.fixture
def analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks early enough for a run of twenty steps, with glances on the way."""
    for name, value in (("SPAN", 4), ("EVERY", 2), ("BATCHES", 3)):
        monkeypatch.setattr(watching, name, value)


def test_a_record_says_all_there_is_to_know(plain: dict[str, Any]) -> None:
    assert plain.keys() == FIELDS
    assert (plain["recipe"], plain["overrides"], plain["seed"]) == (SPEC.recipe, list(TINY), 0)
    assert plain["versions"] == {
        "eans": library.__version__,
        "torch": torch.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }
    assert plain["test"].keys() == {"both", "head", "tail"}
    assert (plain["steps"], plain["device"], plain["runs_at_a_time"]) == (20, "cpu", 1)
    assert re.fullmatch(r"[0-9a-f]{40}(\+changes)?", plain["commit"])
    assert len(plain["losses"]) == 2
    assert 0 < plain["seconds"] <= plain["total_seconds"]
    assert plain["protocol"]["ties"] == "realistic"


def test_the_hash_is_that_of_the_recipe_without_seed_and_name(plain: dict[str, Any]) -> None:
    assert plain["recipe_hash"] == recipe_hash(prepare(RunSpec(SPEC.recipe, TINY, 7))[0])
    assert plain["recipe_hash"] != recipe_hash(prepare(RunSpec(SPEC.recipe, (*TINY, "train.lr=0.1")))[0])


def test_hashes_of_the_past_stay_valid() -> None:
    """Records carry them. A recipe that is changed on purpose has another; a new key at its default must not."""
    warm = "sampler.warm_start=true"
    recipe = resolve(load("fb15k-237/transe/eans", [warm]), ring_graph(120))
    assert recipe_hash(recipe) == "7776fe380cc489ba"
    other = resolve(load("fb15k-237/transe/eans", [warm, "train.seed=3"]), ring_graph(120))
    assert recipe_hash(recipe) == recipe_hash(other)
    assert recipe_hash(Recipe()) == recipe_hash(Recipe(name="other", train=TrainSection(seed=5)))


def test_records_of_recipes_that_have_changed_are_found(plain: dict[str, Any]) -> None:
    same = Record("same.json", plain)
    older = Record("older.json", {**plain, "seed": 1, "recipe_hash": "0" * 16})
    unknown = Record("unknown.json", {key: value for key, value in plain.items() if key != "recipe_hash"})
    assert outdated([same, older, unknown]) == [older]


def test_the_records_are_of_the_recipes_as_they_are() -> None:
    """Those of whole runs and of short trials, as far as graphs are on this machine: a hash needs the graph."""
    folder = Path(__file__).parents[1] / "records"
    records = list(read_records(folder / "paper").values())
    for name in ("best-trials", "choice-trials", "sans-pools"):
        lines = (folder / f"{name}.jsonl").read_text("utf-8").splitlines()
        records += [Record(f"{name}.jsonl:{place}", json.loads(line)) for place, line in enumerate(lines, 1)]
        assert "recipe_hash" in records[-1].content
    assert [(record.file, record.spec.settings) for record in outdated(records)] == []


@pytest.mark.usefixtures("analysis")
def test_looking_leaves_the_run_as_it_was(plain: dict[str, Any], tmp_path: Path) -> None:
    record = run_spec(SPEC, tmp_path / "records", tmp_path / "working", device="cpu", looks=LOOKS)
    assert record["test"] == plain["test"]
    assert record["losses"] == plain["losses"]
    assert [look["step"] for look in record["analysis"]] == [5, 10, 20]
    first, *_, last = record["analysis"]
    assert len(first["cdf"]) == 2  # negatives
    assert first["positive_score"] == float(f"{first['positive_score']:.6g}") < 0
    assert last["substitution"].keys() >= {"edges", "true", "train", "held_out"}
    assert record.is_analysed
    assert record["order"]["entities"] == 6481
    (read,) = read_records(tmp_path / "records").values()
    assert read.content == record.content


@pytest.mark.usefixtures("analysis")
def test_scores_are_means_over_the_steps_before(tmp_path: Path) -> None:
    seen: dict[int, dict[str, float | None]] = {}
    analysts: list[Analyst] = []

    def start(_: object, graph: KnowledgeGraph, trainer: Trainer) -> None:
        analysts.append(Analyst(trainer, graph, 1))
        tick(0)

    def tick(step: int) -> None:
        seen[step] = analysts[0].look_ahead(3)

    listener = Listener(start, tick=tick)
    record = run_spec(SPEC, tmp_path / "records", tmp_path / "working", device="cpu", looks=LOOKS, listener=listener)
    # Before step 5 from 1 on, before step 10 from 6 on, before step 20 from 16 on; what is at an end counts half.
    counted = [{2: 1, 4: 1}, {6: 1, 8: 2, 10: 1}, {16: 1, 18: 2, 20: 1}]
    for look, times in zip(record["analysis"], counted, strict=True):
        for name in ("positive_score", "negative_score"):
            total = sum((seen[step][name] or 0.0) * count for step, count in times.items())
            assert look["logged"][name] == pytest.approx(total / sum(times.values()), rel=1e-5)


def stop_after(step: int) -> Listener:
    steps: list[int] = []
    return Listener(tick=steps.append, stop=lambda: bool(steps) and steps[-1] >= step)


def untimed(looks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in look.items() if key != "seconds"} for look in looks]


@pytest.mark.usefixtures("analysis")
def test_means_of_scores_need_all_their_glances(tmp_path: Path) -> None:
    folders = (tmp_path / "records", tmp_path / "working")
    with pytest.raises(Interrupted):
        run_spec(SPEC, *folders, device="cpu", looks=LOOKS, listener=stop_after(7))
    notes = folders[1] / SPEC.name / "notes.json"
    content = json.loads(notes.read_text("utf-8"))
    lost = [glance for glance in content["ahead"] if glance["step"] != 6]
    assert len(lost) == len(content["ahead"]) - 1
    notes.write_text(json.dumps({**content, "ahead": lost}), "utf-8")
    record = run_spec(SPEC, *folders, device="cpu", looks=LOOKS)
    assert [look["logged"] is None for look in record["analysis"]] == [False, True, False]


@pytest.mark.usefixtures("analysis")
def test_an_interrupted_run_goes_on_and_keeps_what_it_saw(plain: dict[str, Any], tmp_path: Path) -> None:
    folders = (tmp_path / "records", tmp_path / "working")
    with pytest.raises(Interrupted):  # between two glances of the second look
        run_spec(SPEC, *folders, device="cpu", looks=LOOKS, listener=stop_after(7))
    assert read_records(folders[0]) == {}
    assert (folders[1] / SPEC.name / "checkpoint.safetensors").is_file()
    notes = folders[1] / SPEC.name / "notes.json"
    content = json.loads(notes.read_text("utf-8"))
    assert [glance["step"] for glance in content["ahead"]] == [0, 2, 4, 6]
    assert 0 < content["earlier"] < 100
    # What a process left that was killed later, but whose last checkpoint is of step 7:
    content["ahead"].append({**content["ahead"][0], "step": 8, "seconds": 50.0})
    content["looks"].append({**content["looks"][0], "step": 10, "seconds": 50.0})
    notes.write_text(json.dumps({**content, "earlier": 1000.0}), "utf-8")
    first: list[int] = []
    record = run_spec(SPEC, *folders, device="cpu", looks=LOOKS, listener=Listener(tick=first.append))
    assert first[0] == 8
    undisturbed = run_spec(SPEC, tmp_path / "other", tmp_path / "elsewhere", device="cpu", looks=LOOKS)
    assert untimed(record["analysis"]) == untimed(undisturbed["analysis"])
    assert record["order"] == undisturbed["order"]
    assert record["test"] == plain["test"]
    assert record["losses"] == plain["losses"]
    assert 1000 < record["total_seconds"] < 1100  # of both sessions
    assert 0 < record["seconds"] < 100  # of training, without what was forgotten
    assert not (folders[1] / SPEC.name).exists()


def test_a_run_of_another_recipe_is_not_continued(plain: dict[str, Any], tmp_path: Path) -> None:
    working = tmp_path / "working"
    other = RunSpec(SPEC.recipe, (*TINY, "train.lr=0.1"))
    with pytest.raises(Interrupted):
        run_spec(other, tmp_path / "records", working, device="cpu", listener=stop_after(3))
    (working / other.name).rename(working / SPEC.name)
    assert run_spec(SPEC, tmp_path / "records", working, device="cpu")["test"] == plain["test"]


def test_one_process_at_a_time_makes_a_run(tmp_path: Path) -> None:
    with making(SPEC, tmp_path):
        with (
            pytest.raises(FolderInUse, match=f"^another process is making {re.escape(SPEC.key)}$"),
            making(SPEC, tmp_path),
        ):
            pass
        with making(RunSpec(SPEC.recipe, seed=1), tmp_path):  # another run is nobody's business
            pass
    with making(SPEC, tmp_path):
        pass


@pytest.mark.parametrize("place", ["describe", "write_record"])
def test_nobody_comes_between_evaluation_and_record(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training is over then, and the folder of the run is about to go."""
    settings, run = Settings(tmp_path / "records", tmp_path / "working", "cpu"), planned()
    others: list[Event] = []
    original = getattr(running, place)

    def slowly(*arguments: Any) -> Any:
        others.extend(Event(run, event.kind) for event in run_all([run], settings, lambda: False))
        return original(*arguments)

    monkeypatch.setattr(running, place, slowly)
    assert do_here(run, settings).kind == "finished"
    assert [event.kind for event in others] == ["skipped", "elsewhere"]
    assert len(read_records(settings.records)) == 1
    monkeypatch.undo()
    (event,) = run_all([run], settings, lambda: False)
    assert (event.kind, event.reason) == ("finished", "its record was made meanwhile")


def test_a_record_that_came_while_a_process_started_is_taken(tmp_path: Path) -> None:
    settings, run = Settings(tmp_path / "records", tmp_path / "working", "cpu"), planned()
    keep(settings.records, run.spec, 0.5)
    event = do_here(run, settings)
    assert (event.kind, event.reason) == ("finished", "its record was made meanwhile")
    assert event.record is not None
    assert event.record.test["mrr"] == 0.5


def test_time_of_a_process_that_was_killed_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "BETWEEN_SAVES", 0.0)
    folders = (tmp_path / "records", tmp_path / "working")
    notes = folders[1] / SPEC.name / "notes.json"
    kept: list[bytes] = []

    def tick(step: int) -> None:
        if step == 10:
            kept.append(notes.read_bytes())

    record = run_spec(SPEC, *folders, device="cpu", company=lambda: {3: 7}, listener=Listener(tick=tick))
    content = json.loads(kept[0])
    assert 0 < content["earlier"] < record["total_seconds"] + 0.1
    assert content["company"] == {"3": 7}
    assert record["runs_at_a_time"] == 3.0


def test_the_total_is_never_less_than_training(tmp_path: Path) -> None:
    folders = (tmp_path / "records", tmp_path / "working")
    with pytest.raises(Interrupted):
        run_spec(SPEC, *folders, device="cpu", listener=stop_after(10))
    (folders[1] / SPEC.name / "notes.json").unlink()  # killed before it was written
    checkpoint = folders[1] / SPEC.name / "checkpoint.safetensors"
    content = checkpoint.read_bytes()
    seconds = re.findall(rb'seconds\\": ([0-9.]+)', content)[0]
    checkpoint.write_bytes(
        content.replace(seconds, b"9" * (seconds.index(b".") + 2) + seconds[seconds.index(b".") + 2 :])
    )
    record = run_spec(SPEC, *folders, device="cpu")
    assert record["total_seconds"] >= record["seconds"] > 1000


def test_a_traceback_of_the_past_goes_when_the_run_succeeds(tmp_path: Path) -> None:
    (tmp_path / "working").mkdir()
    for spec in (SPEC, RunSpec("other")):
        error_file(spec, tmp_path / "working").touch()
    run_spec(SPEC, tmp_path / "records", tmp_path / "working", device="cpu")
    assert [path.name for path in (tmp_path / "working").iterdir()] == ["other--seed0.error.txt"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot create folder .*; choose another --records"):
        run_spec(SPEC, tmp_path / "records", tmp_path / "file" / "working", device="cpu")


def test_records_that_have_no_place_are_one_error_for_all_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    cells = write_cells(tmp_path / "cells.toml", tiny_cell())
    options = ["--cells", cells, "--records", tmp_path / "file" / "records", "--device", "cpu"]
    done = call(capsys, "reproduce", "main", *options)
    assert done.status == 1
    assert re.fullmatch(r"eans: error: cannot create folder .*; choose another --records", one_line(done.err))
    assert "3 of 3 runs to do" in done.out


# --- the pool -------------------------------------------------------------------------------------------------------


def do_here(run: PlannedRun, settings: Settings) -> Event:
    """What a process of the pool does, in this one."""
    here, there = multiprocessing.Pipe()
    with here, there:
        return pool._do(run, settings, there, Shared())


def planned(*overrides: str, seed: int = 0) -> PlannedRun:
    return PlannedRun(RunSpec("wordnet-core/transe/uniform", (*TINY, *overrides), seed), ("main",), (), None)


def test_a_killed_process_fails_its_run_alone(tmp_path: Path) -> None:
    runs = [planned("train.steps=1000000"), planned()]
    events: list[Event] = []
    for event in run_all(runs, Settings(tmp_path / "records", tmp_path / "working", "cpu"), lambda: False):
        if event.run is runs[0] or event.run == runs[0]:
            for child in multiprocessing.active_children():
                os.kill(child.pid or 0, signal.SIGKILL)
        events.append(event)
    ends = {event.run.spec: event for event in events if event.kind != "step"}
    assert ends[runs[0].spec].kind == "failed"
    assert ends[runs[0].spec].reason == "its process was ended by SIGKILL (not enough memory?)"
    assert ends[runs[1].spec].kind == "finished"
    assert list(read_records(tmp_path / "records")) == [runs[1].spec]
    assert multiprocessing.active_children() == []


def test_closing_ends_the_processes(tmp_path: Path) -> None:
    events = run_all([planned("train.steps=1000000")], Settings(tmp_path / "r", tmp_path / "w", "cpu"), lambda: False)
    with contextlib.closing(events):
        assert next(events).kind == "step"
    assert multiprocessing.active_children() == []


def test_records_made_meanwhile_are_taken(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "records", tmp_path / "working", "cpu")
    runs = [
        planned(),
        planned("model.dim=8"),
        dataclasses.replace(planned(seed=1), uses=("score-gap",), reason="its record has no analysis"),
    ]
    for run in runs:
        keep(settings.records, run.spec, 0.9)
    (settings.records / f"{runs[1].spec.name}.json").write_text("{}", "utf-8")
    first, second, *others = run_all(runs, settings, lambda: False)
    assert (first.run, first.kind, first.reason) == (runs[0], "finished", "its record was made meanwhile")
    assert first.record is not None
    assert first.record.test["mrr"] == 0.9
    assert (second.run, second.kind) == (runs[1], "failed")
    assert "is not a run record" in second.reason
    assert (others[-1].run, others[-1].kind, others[-1].reason) == (runs[2], "finished", "")
    assert others[-1].record is not None
    assert others[-1].record.test["mrr"] != 0.9


def test_what_another_process_is_making_comes_last(tmp_path: Path) -> None:
    """One of two such runs gets its record while a third is made here; the other one is still locked in the end."""
    settings = Settings(tmp_path / "records", tmp_path / "working", "cpu")
    runs = [planned(seed=0), planned(seed=1), planned(seed=2)]
    folders = [RunFolder(settings.working / run.spec.name) for run in runs[:2]]
    for folder in folders:
        folder.path.mkdir(parents=True)
    ends: list[tuple[int, str]] = []
    with folders[0].lock(), folders[1].lock():
        for event in run_all(runs, settings, lambda: False):
            if event.kind == "finished" and event.run is not runs[0]:
                keep(settings.records, runs[0].spec, 0.9)
            if event.kind != "step":
                ends.append((event.run.spec.seed, event.kind))
    assert ends == [(0, "skipped"), (1, "skipped"), (2, "finished"), (0, "finished"), (1, "elsewhere")]
    assert folders[1].path.exists()


def test_runs_with_room_for_others() -> None:
    one, four = planned(), dataclasses.replace(planned(), at_a_time=4)
    assert has_room(one, [])
    assert has_room(four, [four] * 3)
    assert not has_room(four, [four] * 4)
    assert not has_room(one, [four])
    assert not has_room(four, [one])


def test_the_record_says_how_many_ran_beside(tmp_path: Path) -> None:
    shared = Shared()
    reporter = Reporter(planned(), Mute(), shared)
    assert watching.Notes(tmp_path, 0.0, lambda: reporter.company).runs_at_a_time == 1.0
    for busy in (1, 2, 2):
        shared.busy, reporter.told = busy, 0.0
        reporter._tick(1)
    notes = watching.Notes(tmp_path, 0.0, lambda: reporter.company)
    assert notes.runs_at_a_time == 1.7
    notes.save()
    notes.save()  # a session counts once
    assert watching.Notes(tmp_path, 0.0).runs_at_a_time == 1.7
    assert watching.Notes(tmp_path, 0.0, lambda: {1: 5}).runs_at_a_time == 1.2  # (1 + 2 + 2 + 5) / 8


class Mute:
    """A connection to nobody."""

    def send(self, event: Event) -> None:
        del event


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RunError("disk full"), "disk full"),
        (MemoryError(), "not enough memory; try fewer --workers"),
        (RuntimeError("CUDA out of memory. Tried to allocate"), "not enough memory; try fewer --workers"),
        (ValueError("first\nsecond"), "ValueError: first (traceback in "),
    ],
)
def test_reasons_are_one_line(error: Exception, line: str, tmp_path: Path) -> None:
    found = reason(error, tmp_path / "folder" / "error.txt")
    assert found.startswith(line)
    assert "\n" not in found
    assert (tmp_path / "folder" / "error.txt").is_file() == isinstance(error, ValueError)


def test_how_processes_end() -> None:
    assert how_it_ended(-signal.SIGSEGV) == "its process was ended by SIGSEGV"
    assert how_it_ended(3) == "its process ended with status 3"


# --- the command ----------------------------------------------------------------------------------------------------

DIVERGES = [*TINY, "train.lr=1e30"]


def test_reproduce_runs_what_is_missing_and_reports_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # away from the records of this repository, which tell how long runs take
    cells = write_cells(
        tmp_path / "cells.toml",
        tiny_cell(),
        tiny_cell(table="variance"),  # the same run
        tiny_cell(mrr=0.99, hits10=0.99, sampler="eans"),
        tiny_cell(model="distmult", overrides=DIVERGES),
    )
    options = ["--cells", cells, "--records", tmp_path / "records", "--device", "cpu"]
    plan = call(capsys, "reproduce", *options, "--seeds", "1", "--dry-run")
    assert plan.status == 0, plan.err
    assert "3 of 3 runs to do" in plan.out
    assert "one at a time; time unknown for 3" in plan.out
    assert not (tmp_path / "records").exists()
    done = call(capsys, "reproduce", *options, "--seeds", "1", "--workers", "2")
    assert done.status == 1
    assert "the loss is not finite" in one_line(done.err)
    assert one_line(done.err).startswith("eans: failed: wordnet-core/distmult/uniform ")
    assert "2 of 4 cells pass, 1 fail, 1 not run" in done.out
    records = read_records(tmp_path / "records")
    assert {spec.recipe for spec in records} == {"wordnet-core/transe/uniform", "wordnet-core/transe/eans"}
    assert all(1 <= record["runs_at_a_time"] <= 2 for record in records.values())
    again = call(capsys, "reproduce", "--only", "model=transe", *options, "--seeds", "1")
    assert again.status == 0
    assert "0 of 2 runs to do" in again.out
    (first, *_) = (tmp_path / "records").glob("*.json")
    first.write_text(re.sub(r'"recipe_hash": "\w+"', '"recipe_hash": "older"', first.read_text("utf-8")), "utf-8")
    more = call(capsys, "reproduce", *options, "--seeds", "2", "--dry-run")
    note = "its recipe has changed since; delete it to have the run made again"
    assert one_line(more.err) == f"eans: note: {first}: {note}"
    assert "4 of 6 runs to do" in more.out
    assert re.search(r"one at a time; about [\d.]+ s\n'~' is reckoned", more.out)


def test_cells_about_a_graph_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With times of runs in the folder of records that stands for everybody's."""
    monkeypatch.chdir(tmp_path)
    graph = write_graph(ring_graph(30), tmp_path / "graph")
    cell = tiny_cell(dataset="default", overrides=[*TINY, f"data.name={graph}"])
    keep(tmp_path / "records" / "paper", cell.run(7), total_seconds=600.0, steps=5)
    cells = write_cells(tmp_path / "cells.toml", cell)
    options = ["--cells", cells, "--records", tmp_path / "mine", "--seeds", "1", "--device", "cpu"]
    plan = call(capsys, "reproduce", *options, "--dry-run")
    assert plan.status == 0, plan.err
    assert "1 of 1 runs to do" in plan.out
    assert "on Abacus; no record says how fast this machine is" in plan.out
    done = call(capsys, "reproduce", *options)
    assert done.status == 0, done.err
    assert "1 of 1 cells pass" in done.out
    assert "0 of 1 runs to do" in call(capsys, "reproduce", *options).out
    for fields, message in (
        ({"model": "transx"}, f"wordnet-core/transx/uniform {' '.join(TINY)}: unknown model 'transx'"),
        ({"overrides": ["data.name=gone"]}, "wordnet-core/transe/uniform data.name=gone: unknown dataset 'gone'"),
    ):
        wrong = write_cells(tmp_path / "wrong.toml", tiny_cell(**fields))
        done = call(capsys, "reproduce", "--cells", wrong, "--dry-run")
        assert one_line(done.err).startswith(f"eans: error: {wrong}: {message}")
    (tmp_path / "records" / "paper" / "damaged.json").write_text("{", "utf-8")
    done = call(capsys, "reproduce", *options, "--dry-run")
    assert done.status == 0
    assert one_line(done.err).startswith("eans: note: no times from records/paper: records/paper/damaged.json is not a")


def test_interrupting_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = [*TINY[1:], "train.steps=600", "train.checkpoint_every=20"]
    cells = write_cells(tmp_path / "cells.toml", tiny_cell(), tiny_cell(overrides=long))
    records = tmp_path / "records" / "paper"
    command = [COMMAND, "reproduce", "--cells", cells, "--records", records, "--seeds", "1", "--device", "cpu"]
    process = subprocess.Popen(
        list(map(str, command)),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    folder = tmp_path / "records" / ".running" / "paper" / tiny_cell(overrides=long).run().name
    deadline = time.monotonic() + 60
    while not (folder / "checkpoint.safetensors").is_file() and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does: all processes get it
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "stopped with 1 of 2 runs done, 1 to go; the same command goes on from here" in err
    assert [spec.overrides for spec in read_records(records)] == [TINY]
    (step,) = re.findall(r": stopped at step (\d+) of 600, its state is saved", out)
    done = call(capsys, *command[1:])
    assert (done.status, done.err) == (0, "")
    assert "1 of 2 runs to do" in done.out
    assert f" 0 (continues at step {step})" in done.out
    spec = tiny_cell(overrides=long).run()
    undisturbed = run_spec(spec, tmp_path / "other", tmp_path / "working", device="cpu")
    assert read_records(records)[spec]["test"] == undisturbed["test"]
    assert json.loads((records / f"{spec.name}.json").read_text())["losses"] == undisturbed["losses"]


def workers_of(group: int) -> list[int]:
    """The processes of a process group that `multiprocessing` started for runs."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            if b"spawn_main" in command and os.getpgid(int(folder.name)) == group:
                found.append(int(folder.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("when", ["at once", "later"])
def test_signals_to_all_processes_stop_in_good_order(number: signal.Signals, when: str, tmp_path: Path) -> None:
    endless = tiny_cell(overrides=[*TINY[1:], "train.steps=1000000", "train.checkpoint_every=0"])
    options = ["--records", tmp_path / "records" / "paper", "--seeds", "1", "--device", "cpu"]
    command = [COMMAND, "reproduce", "--cells", write_cells(tmp_path / "cells.toml", endless), *options]
    process = subprocess.Popen(
        list(map(str, command)),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    folder = tmp_path / "records" / ".running" / "paper" / endless.run().name
    deadline = time.monotonic() + 60
    while not (workers_of(process.pid) if when == "at once" else (folder / "log.jsonl").is_file()):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "its state is saved" in out
    assert err.splitlines() == [
        "eans: stopping; once more to stop at once",
        "eans: error: stopped with 0 of 1 runs done, 1 to go; the same command goes on from here",
    ]
    assert (folder / "checkpoint.safetensors").is_file()
    assert workers_of(process.pid) == []


def test_ctrl_c_again_and_again_ends_at_once(tmp_path: Path) -> None:
    """The processes of the runs stand still: they will never save their state, as the first Ctrl-C asks for."""
    endless = [tiny_cell(overrides=[*TINY[1:], f"train.steps={steps}"]) for steps in (10**6, 10**6 + 1)]
    options = ["--records", tmp_path / "records", "--seeds", "1", "--device", "cpu", "--workers", "2"]
    command = [COMMAND, "reproduce", "--cells", write_cells(tmp_path / "cells.toml", *endless), *options]
    said = tmp_path / "said"
    with said.open("w") as file:
        process = subprocess.Popen(list(map(str, command)), env=environment(), stderr=file, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while len(workers_of(process.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.002)
        for worker in workers_of(process.pid):
            os.kill(worker, signal.SIGSTOP)
        os.killpg(process.pid, signal.SIGINT)
        while not said.read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert said.read_text() == "eans: stopping; once more to stop at once\n"
        assert process.poll() is None
        while process.poll() is None and time.monotonic() < deadline:
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.01)
        assert process.poll() == 130
        assert workers_of(process.pid) == []
    finally:
        for left in workers_of(process.pid):
            os.kill(left, signal.SIGKILL)
        process.kill()
        process.wait()
    stopped = "stopped at once with 0 of 2 runs done, 2 to go; the same command goes on from here"
    assert said.read_text("utf-8").splitlines()[1:] == [f"eans: error: {stopped}"]


@pytest.fixture
def handlers() -> Iterator[None]:
    """After a stop a process ignores signals, as it is about to end; this one is not."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_signals_interrupt_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """They may come while a line is being written: it is for the loop to print, and to give up."""
    said: list[str] = []
    monkeypatch.setattr(stopping, "TOGETHER", 0.0)

    def run_all(_: object, __: object, stop: Callable[[], bool]) -> Iterator[Event]:
        for _number in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            said.append(capsys.readouterr().err)
            assert stop()
            assert stop()
        yield Event(planned(), "stopped", 5, 20)

    monkeypatch.setattr(display_runs, "run_all", run_all)
    display = display_runs.RunsDisplay([planned()], Forecast({planned().spec: 10.0}, 0.0))
    with pytest.raises(Interrupted, match="stopped at once with 0 of 1 runs done, 1 to go"):
        display.follow(Settings(Path("records"), Path("working")))
    assert said == ["", "eans: stopping; once more to stop at once\n"]
    assert capsys.readouterr().err == ""
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.usefixtures("handlers")
def test_failures_do_not_count_as_done(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [planned(), planned(seed=1)]

    def run_all(*_: object) -> Iterator[Event]:
        yield Event(runs[0], "failed", reason="disk full")
        os.kill(os.getpid(), signal.SIGTERM)
        yield Event(runs[1], "stopped", 5, 20)

    monkeypatch.setattr(display_runs, "run_all", run_all)
    display = display_runs.RunsDisplay(runs, Forecast({run.spec: 10.0 for run in runs}, 0.0))
    with pytest.raises(Interrupted, match="stopped with 0 of 2 runs done, 1 failed, 1 to go"):
        display.follow(Settings(Path("records"), Path("working")))
    display.show_failures()
    assert capsys.readouterr().err.endswith(f"eans: failed: {runs[0].spec.key}: disk full\n")


def test_somebody_else_is_no_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [planned(), planned(seed=1)]
    events = [Event(runs[0], "skipped"), Event(runs[1], "skipped"), *(Event(run, "elsewhere") for run in runs)]
    monkeypatch.setattr(display_runs, "run_all", lambda *_: (event for event in events))
    display = display_runs.RunsDisplay(runs, Forecast({run.spec: 10.0 for run in runs}, 0.0))
    display.follow(Settings(Path("records"), Path("working")))
    display.show_failures()
    assert (display.failed, display.ended) == ([], 2)
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[-1].endswith("seed=1: another process is still making it; its record will come from there")
    assert out.splitlines()[0].endswith("seed=0: another process is making it; left for the end")


def test_names_beside_bars_are_different() -> None:
    """At 80 columns, all runs of the table whose runs go four at a time; and a name cannot be taken for another's."""
    small = [RunSpec(cell.run().recipe, cell.run().overrides, 1) for cell in read_cells() if cell.table == "small-n"]
    display = display_runs.RunsDisplay([PlannedRun(spec, (), False, None) for spec in small], Forecast({}, 0.0))
    assert set(display.names.values()) == {spec.key.replace("sampler.", "") for spec in small}  # in a pipe
    room = 80 - display_runs.BESIDES - display_runs.SHORTEST_BAR
    for width in (room, room - 8):
        names = display_runs.bar_names(small, width)
        assert len(set(names.values())) == len(set(small)) > 30
        assert max(map(len, names.values())) <= width
        for spec, name in names.items():
            assert name.endswith(f"{spec.overrides[0].removeprefix('sampler.')} seed=1")


def test_what_all_runs_share_is_left_out_of_long_names() -> None:
    shared = ("train.batch_size=64", "model.dim=16")
    specs = [
        RunSpec(f"wordnet-core/{model}/eans", (f"train.steps={steps}", *shared, f"sampler.negatives={n}"))
        for model, steps, n in itertools.product(("transe", "rotate"), (600, 900), (2, 4))
    ]
    assert display_runs.bar_names(specs, 80)[specs[0]] == (
        "wordnet-core/transe/eans steps=600 batch_size=64 dim=16 negatives=2 seed=0"
    )
    assert display_runs.bar_names(specs, 60)[specs[0]] == "wordnet-core/transe/eans steps=600 negatives=2 seed=0"
    short = display_runs.bar_names(specs, 42)
    assert short[specs[0]] == "…/transe/eans steps=600 negatives=2 seed=0"
    assert len(set(short.values())) == 8
    assert display_runs.bar_names(specs[:2], 42)[specs[0]] == "wordnet-core/transe/ea… negatives=2 seed=0"
    assert display_runs.bar_names(specs[:1], 42)[specs[0]] == "wordnet-core/transe/eans seed=0"
    assert display_runs.bar_names([], 42) == {}


def test_bars_say_what_is_known_of_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("eans.reproduction.forecast.time.monotonic", lambda: now)
    runs = [planned(), planned(seed=1)]
    display = display_runs.RunsDisplay(runs, Forecast({run.spec: None for run in runs}, 0.0))
    seen: list[list[str]] = []

    def run_all(*_: object) -> Iterator[Event]:
        nonlocal now
        for run in runs:
            for step, seconds in ((0, 9.0), (10, 1.0), (310, 150.0), (600, 145.0)):
                now += seconds
                yield Event(run, "step", step, 600)
                seen.append([task.fields["left"] for task in display.bar.tasks])
            yield Event(run, "elsewhere")

    monkeypatch.setattr(display_runs, "run_all", run_all)
    display.follow(Settings(Path("records"), Path("working")))
    assert seen == [
        *(["-", "-"], ["-", "-"], ["7 min", "145 s"], ["5 min", "evaluation"]),
        *(["5 min", "-"], ["5 min", "-"], ["147 s", "145 s"], ["evaluation", "evaluation"]),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--workers", "0"], "--workers must be at least 1, got 0"),
        (["--only", "modle=rotate"], "unknown key 'modle'; did you mean 'model'?"),
        (["--device", "tpu"], "unknown device 'tpu'"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = call(capsys, "reproduce", "--dry-run", *arguments)
    assert done.status == 2
    assert message in one_line(done.err)


# --- the order ------------------------------------------------------------------------------------------------------


def test_a_graph_that_cannot_be_had_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("EANS_DATA", raising=False)
    monkeypatch.setenv("EANS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EANS_MIRROR", "http://127.0.0.1:9/none")
    only = "dataset=wn18rr,model=transe,method=eans"
    done = call(capsys, "reproduce", "main", "--only", only, "--seeds", "1", "--records", str(tmp_path / "mine"))
    assert done.status == 1
    assert "set EANS_DATA to a folder and put the files into wn18rr/ there" in done.err
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == []


def test_the_order_of_a_trainer() -> None:
    graph = ring_graph(200)
    trainer = build_trainer(resolve(load("default/transe/eans", ["model.dim=8"], data=graph.name), graph), graph)
    for _ in range(3):
        trainer.step()
    before = torch.get_rng_state()
    found = describe_order(trainer, points=50, parts=10)
    assert torch.equal(before, torch.get_rng_state())
    assert found is not None
    assert (found["step"], found["entities"]) == (3, 200)
    positions = [point[0] for point in found["points"]]
    assert (positions[0], positions[-1], len(set(positions))) == (0, 199, 50)
    alike = torch.tensor(found["similarity"])
    assert alike.shape == (10, 10)
    assert torch.equal(alike, alike.T)
    off = ~torch.eye(10, dtype=torch.bool)
    assert alike.diagonal().mean() > alike[off].mean()  # neighbours are alike
    assert 0 < found["explained"][1] <= found["explained"][0] <= 1
    json.dumps(found)
    uniform = build_trainer(resolve(load("default/transe/uniform", data=graph.name), graph), graph)
    assert describe_order(uniform) is None


def test_similarity_by_hand() -> None:
    features = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [-1.0, 0.0]])
    # cosines: (1, 2) 0; (3, 4) -1; across: 1, -1, 0, 0
    torch.testing.assert_close(similarity(features, 2), torch.tensor([[0.0, 0.0], [0.0, -1.0]]))


def test_principal_axes_by_hand() -> None:
    points = torch.tensor([[0.0, 3.0, 0.0], [0.0, -3.0, 0.0], [1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]], dtype=torch.float64)
    axes, shares = principal_axes(points)
    assert axes.T.tolist() == [pytest.approx([0.0, 1.0, 0.0]), pytest.approx([1.0, 0.0, 0.0])]
    assert shares == pytest.approx([0.9, 0.1])
