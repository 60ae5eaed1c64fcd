"""Inside a process of a search: do the jobs that the parent sends, and tell it how far they are."""

from __future__ import annotations

import contextlib
import gc
import shutil
import time
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import torch

from eans.experiments.processes import BETWEEN_REPORTS
from eans.experiments.worker import reason
from eans.listener import Listener
from eans.run import Run
from eans.tensor_files import graph_from_bytes
from eans.tuning.jobs import Ended, Job, Measuring, do
from eans.tuning.trial import Outcome

GRAPH = "graph.safetensors"  # in the folder of the processes


@dataclass(frozen=True)
class Settings:
    """What all jobs have in common: a folder with the graph, where runs go, too; the device; the seed of runs; and how
    many processes share the machine.
    """

    folder: Path
    device: torch.device
    seed: int
    workers: int


@dataclass(frozen=True)
class Said:
    """What a process says about its job.

    Attributes:
        kind: ``step`` (training has come this far), ``validated``, which waits for an answer (is the trial pruned?), or
            ``ended``.
        share: of the steps of a trial, for ``step``.
        mrr, number: of a validation.
        ended: what came of the job.
        failed: the process is not to be used any more.
    """

    kind: Literal["step", "validated", "ended"]
    share: float = 0.0
    mrr: float = 0.0
    number: int = 0
    ended: Ended | None = None
    failed: bool = False

    @property
    def ends(self) -> bool:
        """Is the job over?"""
        return self.kind == "ended"


def lost(job: Job, why: str) -> Said:
    """What stands for the last word of a process that is gone."""
    del job
    return Said("ended", ended=Ended(reason=why), failed=True)


def work(connection: Connection[Any, Any], settings: Settings, best: Any) -> None:
    """Do the jobs that come through the connection until it is closed; `best.value` is the best valid MRR so far.

    When the parent is gone, the next word to it ends the process.
    """
    torch.set_num_threads(max(1, torch.get_num_threads() // settings.workers))
    file = settings.folder / GRAPH
    graph = graph_from_bytes(file.read_bytes(), file)  # once, for all jobs
    with contextlib.suppress(EOFError, OSError):
        while True:
            job: Job = connection.recv()
            name = "measuring" if isinstance(job, Measuring) else f"trial-{job.rung}-{job.number}"
            reporter, failed = Reporter(connection), False
            try:
                ended = do(job, graph, settings.device, settings.seed, reporter.listener(), reporter.prune)
                if ended.outcome is not None:
                    ended = Ended(handed_over(ended.outcome, settings, name, best))
            except (EOFError, BrokenPipeError, ConnectionResetError):
                raise
            except Exception as error:
                ended, failed = Ended(reason=reason(error, settings.folder.parent / f"{name}.error.txt")), True
            connection.send(Said("ended", ended=ended, failed=failed))
            gc.collect()
            torch.cuda.empty_cache()  # other processes may want it; does nothing without a GPU


def handed_over(outcome: Outcome, settings: Settings, name: str, best: Any) -> Outcome:
    """The outcome as it can be sent: a run that is the best so far is in a folder."""
    run = outcome.better_than(best.value)
    if run is None:
        return replace(outcome, finish=None)
    folder = settings.folder / name
    shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
    run.save(folder)
    return replace(outcome, finish=partial(Run.load, folder, str(settings.device)))


class Reporter:
    """Tells the parent now and then how far a trial is, and asks it whether to go on."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.connection = connection
        self.step, self.total, self.told = 0, 1, 0.0

    def listener(self) -> Listener:
        """What the trial calls."""
        return Listener(start=self.start, tick=self.tick, ranking=lambda *_: self.tick(self.step))

    def start(self, *parts: Any) -> None:
        """Training begins."""
        self.total = parts[-1].schedule.steps
        self.tick(0)

    def tick(self, step: int) -> None:
        """A step is done, or a part of a ranking."""
        self.step = step
        now = time.monotonic()
        if now - self.told > BETWEEN_REPORTS:
            self.told = now
            self.connection.send(Said("step", step / self.total))

    def prune(self, mrr: float, number: int) -> bool:
        """What the parent says to a validation."""
        self.connection.send(Said("validated", mrr=mrr, number=number))
        answer: bool = self.connection.recv()
        return answer
