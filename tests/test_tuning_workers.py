"""Several trials of a search at a time: processes, pruning, what is repeated, and what is left when they are ended."""

from __future__ import annotations

import contextlib
import csv
import math
import multiprocessing
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
import torch

from eans.errors import Interrupted, UsageError
from eans.listener import Listener
from eans.models import MODELS
from eans.models.transe import TransE
from eans.run import Run
from eans.tuning import Space, tune
from eans.tuning.jobs import Ended, Job, Measuring, Trial
from eans.tuning.places import FOLDER, Place, Watcher, done, place_for
from eans.tuning.plan import Plan
from eans.tuning.search import BEST, Search
from eans.tuning.study import JOURNAL, Study
from eans.tuning.trial import LATE, PRUNED, Outcome
from eans.tuning.workers import MOST, SHORT, SMALL_ON_CPU, workers_for
from helpers_graphs import random_graph
from helpers_runs import COMMAND, eans, environment, one_line, ring_graph, workers_of, write_graph

SMALL = """
[methods."transe/adv"]
"model.dim" = { choices = [4, 8], first = 8 }
"train.lr" = { low = 1e-3, high = 1e-1, log = true, first = 0.05 }
"train.batch_size" = 32
"sampler.negatives" = { low = 2, high = 6 }

[methods."distmult/all"]
"model.dim" = 8
"train.batch_size" = 16
"train.lr" = { low = 1e-3, high = 1e-1, log = true }
"""
CPU = torch.device("cpu")


@pytest.fixture
def space(tmp_path: Path) -> Path:
    """A file with a space of two methods."""
    path = tmp_path / "space.toml"
    path.write_text(SMALL)
    return path


def ended_in(study: Path) -> int:
    """How many trials the journal has that ended."""
    journal = study / JOURNAL
    return journal.read_text().count('"took"') if journal.is_file() else 0


# Processes


class Pruning(Watcher):
    """Ends the trials with these numbers at their second validation; keeps what it is told."""

    def __init__(self, *numbers: int) -> None:
        self.numbers, self.validations = numbers, list[tuple[int, int]]()

    def prune(self, job: Job, mrr: float, number: int) -> bool:
        assert isinstance(job, Trial)
        assert 0 < mrr <= 1
        self.validations.append((job.number, number))
        return job.number in self.numbers and number == 2


def test_processes_do_jobs(tmp_path: Path) -> None:
    """Two processes: costs, outcomes, runs that come back, pruning, time that is over, one that is killed, a stop."""
    candidate = Space.parse(SMALL, "small").first("transe/adv")
    watcher, graph, stopping = Pruning(2), ring_graph(), [False]
    listener = Listener(stop=lambda: stopping[0])

    def outcomes(place: Place, *trials: Trial) -> dict[int, Ended]:
        return {job.number: ended for job, ended in done(place, trials, watcher) if isinstance(job, Trial)}

    with place_for(2, graph, CPU, 5, listener, tmp_path) as place:
        ((_, measured),) = done(place, [Measuring(candidate, 1.0)], watcher)
        assert measured.cost is not None
        assert measured.cost.batch_size == 32
        found = outcomes(place, *(Trial(number, candidate, 0, 1.0) for number in (1, 2)))
        assert found[2] == Ended(reason=PRUNED)
        assert [number for trial, number in watcher.validations if trial == 2] == [1, 2]
        assert len([trial for trial, _ in watcher.validations if trial == 1]) > 2
        outcome = found[1].outcome
        assert outcome is not None
        run = outcome.better_than(-1.0)
        assert run is not None
        assert run.recipe.train.seed == 5
        assert run.metrics["valid"]["both"]["mrr"] == pytest.approx(outcome.mrr)
        assert run.graph.train.equal(graph.train)
        assert list(run.graph.entities) == list(graph.entities)

        place.best_is(1.0)  # no run is of interest any more
        found = outcomes(
            place, Trial(3, candidate, 1, 1.0, until=time.monotonic() - 1), Trial(4, candidate, 1, 1.0, known=(8, 1e-3))
        )
        assert found[3] == Ended(reason=LATE)
        beaten = found[4].outcome
        assert beaten is not None
        assert beaten.finish is None
        assert beaten.better_than(-1.0) is None

        place.begin(Trial(5, candidate, 1, 1e6, known=(8, 1.0)))
        for child in multiprocessing.active_children():
            os.kill(child.pid or 0, signal.SIGKILL)
        ((_, killed),) = done(place, [], watcher)
        assert killed.reason == "its process was ended by SIGKILL (not enough memory?)"
        assert outcomes(place, Trial(6, candidate, 1, 0.1))[6].outcome is not None

        place.begin(Trial(7, candidate, 1, 1e6, known=(8, 1.0)))
        stopping[0] = True
        with pytest.raises(Interrupted):
            list(done(place, [], watcher))
    assert multiprocessing.active_children() == []
    assert not (tmp_path / FOLDER).exists()


# What is tried


class Slots:
    """Two trials under way, of which the first ends each time that it is asked; the MRR is by the learning rate."""

    slots = 2

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.begun: list[Trial] = []
        self.graph = ring_graph()

    def begin(self, job: Job) -> None:
        assert isinstance(job, Trial)
        self.jobs.append(job)
        self.begun.append(job)

    def read(self, watcher: Watcher) -> Iterator[tuple[Job, Ended]]:
        time.sleep(0.02)
        watcher.stepped(self.jobs[0], 1.0)
        assert len(self.jobs) <= self.slots
        trial = self.jobs.pop(0)
        assert isinstance(trial, Trial)
        mrr = 0.5 - abs(float(trial.candidate.values["train.lr"]) - 0.02) + 0.01 * trial.rung
        recipe = trial.candidate.recipe("ring")
        run = Run(recipe, self.graph, None, {"valid": {"both": {"mrr": mrr}}}, [])  # type: ignore[arg-type]
        yield trial, Ended(Outcome(mrr, 10, 0.02, 0.02, 8, lambda: run))

    def best_is(self, mrr: float) -> None:
        pass


def test_no_candidate_is_repeated_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "save", lambda self, _: self)
    space, place = Space.parse(SMALL, "small"), Slots()
    plan = Plan("", "", 0, (0.04, 0.06, 0.1), dict.fromkeys(space.methods, 1e-3))
    study, began = Study(tmp_path, space, 0), time.monotonic()
    best = Search(place, study, plan, 3.0, 1, "cpu", tmp_path, None, began).run()
    assert best.metrics["valid"]["both"]["mrr"] == max(entry.mrr or 0 for entry in study.entries())
    by_rung = [[trial.number for trial in place.begun if trial.rung == rung] for rung in (0, 1, 2)]
    assert len(by_rung[0]) > len(by_rung[1]) >= len(by_rung[2]) >= 1
    for numbers in by_rung:
        assert len(set(numbers)) == len(numbers)
    assert set(by_rung[2]) <= set(by_rung[1]) <= set(by_rung[0])
    assert len(study.entries()) == len(place.begun)
    # A trial may take no longer than the search, but for the first, which may be the only one.
    assert place.begun[0].until == math.inf
    assert all(trial.until <= began + 3.0 for trial in place.begun[1:])
    # The time of trials side by side counts once.
    assert study.used < time.monotonic() - began
    assert study.used < sum(entry.took for entry in study.entries())


# The whole


def test_several_at_a_time(tmp_path: Path, space: Path) -> None:
    out = tmp_path / "out"
    asked = [0]

    def stop() -> bool:
        asked[0] += 1
        return ended_in(out / "study") >= 4

    run = tune(
        ring_graph(), 600.0, out=out, space=space, workers=2, listener=Listener(stop=stop), progress=False, device="cpu"
    )
    assert multiprocessing.active_children() == []
    assert "test" in run.metrics
    assert eans("verify", out).returncode == 0
    assert "4 trials, 2 at a time, in " in (out / "study" / "study.md").read_text()
    left = {path.name for path in (out / "study").iterdir()}
    assert not left & {FOLDER, BEST}

    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(out / "study" / JOURNAL)))
    trials = optuna.load_study(study_name="rung-0", storage=storage).trials
    first, second = trials[:2]
    assert first.datetime_start is not None
    assert second.datetime_start is not None
    assert second.datetime_start < (first.datetime_complete or second.datetime_start)  # side by side
    values = [trial.value for trial in trials if trial.state.name == "COMPLETE"]
    assert run.metrics["valid"]["both"]["mrr"] == pytest.approx(max(value for value in values if value is not None))
    assert any(trial.intermediate_values for trial in trials)


@contextlib.contextmanager
def searching(data: Path, out: Path, space: Path, workers: int) -> Iterator[subprocess.Popen[str]]:
    """The command, as the leader of a process group."""
    arguments = ["--budget", "600s", "--data", data, "--out", out, "--space", space, "--workers", workers]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(
        [COMMAND, "tune", *map(str, arguments)], env=environment(), start_new_session=True, **pipes
    )
    try:
        yield process
    finally:
        for left in [*workers_of(process.pid), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
        process.communicate()


def wait_until(there: Any) -> None:
    until = time.monotonic() + 90
    while not there():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_and_continued_and_stopped(tmp_path: Path, space: Path, workers: int) -> None:
    data, out = write_graph(ring_graph(), tmp_path / "data"), tmp_path / "out"
    study = out / "study"
    with searching(data, out, space, workers) as process:
        wait_until(lambda: ended_in(study) >= 3)
        assert len(workers_of(process.pid)) == (2 if workers == 2 else 0)
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_until(lambda: workers_of(process.pid) == [])  # nobody trains for nobody
    assert not (out / "metrics.json").exists()
    before = ended_in(study)
    with searching(data, out, space, workers) as process:
        wait_until(lambda: ended_in(study) > before)
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does: all processes get it
        output, errors = process.communicate(timeout=90)
        assert workers_of(process.pid) == []
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert f"going on after {before} trials" in output
    assert "stopped: the best run so far is kept" in output
    assert (out / "metrics.json").exists()
    assert not (study / FOLDER).exists()
    rows = list(csv.DictReader((study / "trials.csv").read_text().splitlines()))
    assert len({row["trial"] for row in rows if row["rung"] == "0"}) >= before  # those that were under way are lost
    assert eans("predict", out, "--head", "e1", "--relation", "plus1").returncode == 0


# How many


def test_numbers_of_workers() -> None:
    graph = ring_graph()
    assert workers_for(1, graph, CPU, 600) == workers_for("1", graph, CPU, 600) == 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    assert workers_for(cores, graph, CPU, 1) == cores
    for wrong, says in (
        (0, "workers must be at least 1, got 0"),
        ("0", "workers must be at least 1, got 0"),
        (-1, "workers must be at least 1, got -1"),
        ("-1", "workers must be at least 1, got -1"),
        ("1.5", "workers must be a whole number or auto, got '1.5'"),
        (1.5, "workers must be a whole number, got 1.5"),
        (True, "workers must be a whole number, got True"),
        ("two", "workers must be a whole number or auto, got 'two'"),
        ("", "workers must be a whole number or auto, got ''"),
        (cores + 1, f"workers is {cores + 1}, but there are {cores} cores for them; give at most {cores}"),
    ):
        with pytest.raises(UsageError) as caught:
            workers_for(wrong, graph, CPU, 600)  # type: ignore[arg-type]
        assert str(caught.value) == says


def test_automatic_numbers_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = ring_graph()
    for threads in (1, 2, 64):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64), raising=False)
        assert workers_for("auto", graph, CPU, SHORT) == min(threads, MOST)
        assert workers_for("auto", graph, CPU, SHORT - 1) == 1
    assert workers_for("auto", random_graph(SMALL_ON_CPU + 1), CPU, 600) == 1
    assert workers_for("auto", graph, CPU, 600) == MOST
    monkeypatch.setitem(MODELS, "mine", type("Mine", (TransE,), {"__module__": "my_models"}))
    assert workers_for("auto", graph, CPU, 600) == 1  # other processes do not have it


def test_mistakes(tmp_path: Path) -> None:
    data = write_graph(ring_graph(), tmp_path / "data")
    result = eans("tune", "--data", data, "--budget", "1s", "--out", tmp_path / "out", "--workers", "0")
    assert result.returncode == 2
    assert "workers must be at least 1, got 0" in one_line(result.stderr)
    assert not (tmp_path / "out").exists()
