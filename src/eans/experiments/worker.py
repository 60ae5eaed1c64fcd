"""Inside a process of the pool: run the experiments that the parent sends, and tell it what happens to them."""

from __future__ import annotations

import contextlib
import gc
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import torch

from eans.errors import EansError, Interrupted
from eans.experiments.extras import Extra
from eans.experiments.planning import lacks
from eans.experiments.processes import BETWEEN_REPORTS
from eans.experiments.records import Experiment, Record, RecordStore
from eans.experiments.running import error_file, locked, run_experiment
from eans.files import FolderInUse, atomic_write
from eans.listener import Listener


@dataclass(frozen=True)
class Event:
    """Something happened to an experiment.

    Attributes:
        experiment: which.
        kind: ``step`` (training has come this far), ``finished``, ``failed``, ``stopped`` with its state saved, or
            ``elsewhere`` because another process is making it.
        done, total: steps, for ``step`` and ``stopped``.
        record: for ``finished``.
        reason: one line, for ``failed``, and for ``finished`` where another process made the record meanwhile.
    """

    experiment: Experiment
    kind: Literal["step", "finished", "failed", "stopped", "elsewhere"]
    done: int = 0
    total: int = 0
    record: Record | None = None
    reason: str = ""

    @property
    def ends(self) -> bool:
        """Is the experiment over, as far as this process goes?"""
        return self.kind != "step"

    @property
    def failed(self) -> bool:
        """Did it end by an error?"""
        return self.kind == "failed"


@dataclass(frozen=True)
class Settings:
    """What all runs of a pool have in common; see `eans.experiments.run`."""

    store: RecordStore
    device: str = "auto"
    test: bool = True
    extra: Extra | None = None
    workers: int = 1


def work(connection: Connection[Any, Any], settings: Settings, halted: Any) -> None:
    """Run the experiments that come through the connection until it is closed; `halted.value` says when to stop."""
    torch.set_num_threads(max(1, torch.get_num_threads() // settings.workers))
    with contextlib.suppress(EOFError, OSError):  # the parent closed the connection, or is gone
        while True:
            connection.send(run_one(connection.recv(), settings, connection, lambda: bool(halted.value)))
            gc.collect()
            torch.cuda.empty_cache()  # other processes may want it; does nothing without a GPU


def run_one(
    experiment: Experiment, settings: Settings, connection: Connection[Any, Any], halted: Callable[[], bool]
) -> Event:
    """One experiment from start to end, and how it ended."""
    store, test, extra = settings.store, settings.test, settings.extra
    reporter = Reporter(experiment, connection)
    try:
        with locked(experiment, store):
            record = store.find(experiment)
            if record is not None and not lacks(record, experiment, test, extra):
                return Event(experiment, "finished", record=record, reason="its record was made meanwhile")
            record = run_experiment(
                experiment,
                store,
                device=settings.device,
                test=test,
                extra=extra,
                listener=Listener(start=reporter.start, tick=reporter.tick, stop=halted),
                runs_at_a_time=settings.workers,
            )
    except Interrupted:
        return Event(experiment, "stopped", reporter.step, reporter.total)
    except FolderInUse:
        return Event(experiment, "elsewhere")
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        return Event(experiment, "failed", reason=reason(error, error_file(experiment, store)))
    return Event(experiment, "finished", record=record)


def reason(error: Exception, file: Path) -> str:
    """One line for a run that failed; what nobody foresaw leaves its traceback in a file."""
    if isinstance(error, EansError):
        return str(error)
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return "not enough memory; try fewer workers"
    what = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    with contextlib.suppress(EansError):
        atomic_write(file, "".join(traceback.format_exception(error)).encode())
        what += f" (traceback in {file})"
    return what


class Reporter:
    """Tells the parent now and then how far a run is."""

    def __init__(self, experiment: Experiment, connection: Connection[Any, Any]) -> None:
        self.experiment, self.connection = experiment, connection
        self.step, self.total, self.told = 0, 0, 0.0

    def start(self, *parts: Any) -> None:
        """Training begins, or continues."""
        trainer = parts[-1]
        self.total = trainer.schedule.steps
        self.tick(trainer.completed)

    def tick(self, step: int) -> None:
        """A step is done."""
        self.step = step
        now = time.monotonic()
        if now - self.told > BETWEEN_REPORTS or step == self.total:
            self.told = now
            self.connection.send(Event(self.experiment, "step", step, self.total))
