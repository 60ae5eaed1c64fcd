"""Where the jobs of a search are done: one after the other in this process, or several at a time in others."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterable, Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import torch

from eans.errors import Interrupted
from eans.experiments.processes import BETWEEN_REPORTS, Processes
from eans.files import atomic_write, make_folder
from eans.graph import KnowledgeGraph
from eans.listener import Listener
from eans.tensor_files import graph_to_bytes
from eans.tuning.jobs import Ended, Job, do
from eans.tuning.worker import GRAPH, Said, Settings, lost, work

FOLDER = "processes"  # of the graph and of runs on their way to the parent


class Watcher:
    """Is told of the jobs that are under way."""

    def stepped(self, job: Job, share: float) -> None:
        """A trial has done this share of its steps."""

    def prune(self, job: Job, mrr: float, number: int) -> bool:
        """Is a trial to end after this validation?"""
        del job, mrr, number
        return False


class Place(Protocol):
    """Where jobs are done.

    Attributes:
        slots: how many at a time.
        jobs: those that are under way.
    """

    slots: int

    @property
    def jobs(self) -> list[Job]: ...

    def begin(self, job: Job) -> None:
        """Begin a job; there must be room."""

    def read(self, watcher: Watcher) -> Iterator[tuple[Job, Ended]]:
        """The jobs that have ended after a while, of which there may be none.

        Raises:
            Interrupted: somebody asked to stop.
        """

    def best_is(self, mrr: float) -> None:
        """Runs up to this valid MRR are of no interest any more."""


class Here:
    """In this process, one after the other; see `do` for the arguments."""

    slots = 1

    def __init__(self, graph: KnowledgeGraph, device: torch.device, seed: int, listener: Listener) -> None:
        self.graph, self.device, self.seed, self.listener = graph, device, seed, listener
        self.jobs: list[Job] = []

    def begin(self, job: Job) -> None:
        """It is done by `read`."""
        self.jobs.append(job)

    def read(self, watcher: Watcher) -> Iterator[tuple[Job, Ended]]:
        """Do the job."""
        _go_on(self.listener)
        for job in self.jobs:
            shown = _stepping(self.listener, watcher, job)
            ended = do(job, self.graph, self.device, self.seed, shown, partial(watcher.prune, job))
            self.jobs = []
            yield job, ended

    def best_is(self, mrr: float) -> None:
        """Outcomes are judged when they are there."""


class Elsewhere:
    """In processes of their own, of which the first ones start when there is something to do.

    Args:
        slots: how many at a time.
        graph, device, seed: see `do`.
        listener: asked when to stop; runs in other processes cannot call the rest.
        folder: for the graph, and for runs on their way to the parent.
    """

    def __init__(
        self, slots: int, graph: KnowledgeGraph, device: torch.device, seed: int, listener: Listener, folder: Path
    ) -> None:
        self.slots, self.listener = slots, listener
        atomic_write(folder / GRAPH, graph_to_bytes(graph))
        self._best = get_context("spawn").RawValue("d", -1.0)
        settings = Settings(folder, device, seed, slots)
        self._processes: Processes[Job, Said] = Processes(work, settings, self._best, lost)

    def __enter__(self) -> Elsewhere:
        return self

    def __exit__(self, *error: Any) -> None:
        self._processes.__exit__(*error)

    @property
    def jobs(self) -> list[Job]:
        """Those that are under way."""
        return self._processes.jobs

    def begin(self, job: Job) -> None:
        """Give it to a process."""
        self._processes.begin(job)

    def read(self, watcher: Watcher) -> Iterator[tuple[Job, Ended]]:
        """What the processes say, for a short time."""
        _go_on(self.listener)
        for job, said in self._processes.read():
            if said.ended is not None:
                yield job, said.ended
            elif said.kind == "validated":
                self._processes.answer(job, watcher.prune(job, said.mrr, said.number))
            else:
                watcher.stepped(job, said.share)

    def best_is(self, mrr: float) -> None:
        """The processes do not send runs up to this valid MRR."""
        self._best.value = mrr


def _go_on(listener: Listener) -> None:
    if listener.stop():
        raise Interrupted("stopped before a trial has ended; the same call begins anew")


def _stepping(listener: Listener, watcher: Watcher, job: Job) -> Listener:
    """The listener, with a watcher that is told now and then how far a trial is."""
    total, told = 1, 0.0

    def start(*parts: Any) -> None:
        nonlocal total
        listener.start(*parts)
        total = parts[-1].schedule.steps

    def tick(step: int) -> None:
        nonlocal told
        listener.tick(step)
        now = time.monotonic()
        if now - told > BETWEEN_REPORTS:
            told = now
            watcher.stepped(job, step / total)

    return Listener(start, listener.log, tick, listener.ranking, listener.stop, listener.phase)


@contextlib.contextmanager
def place_for(
    workers: int, graph: KnowledgeGraph, device: torch.device, seed: int, listener: Listener, folder: Path
) -> Iterator[Place]:
    """A place for so many jobs at a time. Processes end with the context, and what they keep in the folder goes."""
    if workers == 1:
        yield Here(graph, device, seed, listener)
        return
    own = folder / FOLDER
    shutil.rmtree(own, ignore_errors=True)  # of a search that was killed
    make_folder(own)
    try:
        with Elsewhere(workers, graph, device, seed, listener, own) as place:
            yield place
    finally:
        shutil.rmtree(own, ignore_errors=True)


def done(place: Place, jobs: Iterable[Job | None], watcher: Watcher) -> Iterator[tuple[Job, Ended]]:
    """Do jobs, as many at a time as there is room for, and say how they ended.

    Each is asked for when there is room for it, so that it can depend on what has ended by then. None stands for a job
    that depends on those that are under way: it is asked for again when one of them has said something.
    """
    todo, more = iter(jobs), True
    while True:
        while more and len(place.jobs) < place.slots:
            try:
                job = next(todo)
            except StopIteration:
                more = False
                break
            if job is None:
                break
            place.begin(job)
        if not place.jobs:
            return
        yield from place.read(watcher)
