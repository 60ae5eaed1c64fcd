"""Several runs at a time, each in a process of its own; what happens in them comes back as events.

A process does one run after the other. One that fails, or is killed, takes no other run with it: the next run gets a
new process. Ctrl-C and SIGTERM, which may go to all processes, mean something to the parent alone.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from eans.api import Listener
from eans.errors import EansError
from eans.files import atomic_write
from eans.fitting import Interrupted
from eans.reproduction.plan import PlannedRun
from eans.reproduction.records import Record, find_record
from eans.reproduction.running import run_spec

BETWEEN_REPORTS = 0.2  # seconds
FOR_THE_PARENT = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Settings:
    """What all runs have in common; see `run_spec`."""

    records: Path
    working: Path
    device: str = "auto"
    workers: int = 1


@dataclass(frozen=True)
class Event:
    """Something happened to a run.

    Attributes:
        run: which.
        kind: ``step`` (training has come this far), ``finished``, ``failed``, or ``stopped`` with its state saved.
        done, total: steps, for ``step``.
        record: for ``finished``.
        reason: one line, for ``failed``, and for ``finished`` without having been begun here.
    """

    run: PlannedRun
    kind: Literal["step", "finished", "failed", "stopped"]
    done: int = 0
    total: int = 0
    record: Record | None = None
    reason: str = ""


class Shared:
    """What the parent tells all its processes. Reading a number takes no lock: every step may do it."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self._halt, self._busy = context.RawValue("b", 0), context.RawValue("i", 1)

    def halt(self) -> None:
        """From now on, save and stop."""
        self._halt.value = 1

    def halted(self) -> bool:
        """Should a run save its state and stop?"""
        return bool(self._halt.value)

    @property
    def busy(self) -> int:
        """How many runs are being done."""
        return int(self._busy.value)

    @busy.setter
    def busy(self, runs: int) -> None:
        self._busy.value = runs


def run_all(runs: Sequence[PlannedRun], settings: Settings, stop: Callable[[], bool]) -> Generator[Event]:
    """Do the runs in their order, as many at a time as there are workers.

    Once `stop` says True no run begins, and those that train save their state and stop. Closing the iterator ends them
    at once; they go on from their last checkpoint another time. A run whose record somebody else has made meanwhile is
    not begun.
    """
    shared = Shared()
    waiting = list(runs)
    at_a_time = max(1, min(settings.workers, len(waiting)))
    workers: list[Worker] = []
    try:
        while waiting or any(worker.run is not None for worker in workers):
            if stop():
                shared.halt()
                waiting.clear()
            workers = [worker for worker in workers if not worker.retired]
            idle = [worker for worker in workers if worker.run is None]
            while waiting and (idle or len(workers) < at_a_time):
                run = waiting.pop(0)
                if (event := made_meanwhile(run, settings.records)) is not None:
                    yield event
                    continue
                if not idle:
                    with signals_blocked():
                        workers.append(Worker(settings, at_a_time, shared))
                    idle.append(workers[-1])
                idle.pop().begin(run)
            busy = [worker for worker in workers if worker.run is not None]
            shared.busy = len(busy)
            ready = wait([worker.connection for worker in busy], BETWEEN_REPORTS)
            for worker in busy:
                if worker.connection in ready:
                    yield worker.read()
    finally:
        for worker in workers:
            worker.end()


def made_meanwhile(run: PlannedRun, records: Path) -> Event | None:
    """A run that somebody else has done since it was planned; not one that is there to replace a record."""
    try:
        record = None if run.reason else find_record(records, run.spec)
    except EansError as error:
        return Event(run, "failed", reason=str(error))
    return Event(run, "finished", record=record, reason="its record was made meanwhile") if record else None


class Worker:
    """A process, the connection to it, and the run it is doing. To be made with signals blocked."""

    def __init__(self, settings: Settings, at_a_time: int, shared: Shared) -> None:
        context = get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, settings, at_a_time, shared), daemon=True)
        self.process.start()
        other.close()  # the process has its own; with this one open, its end would not be noticed
        self.run: PlannedRun | None = None
        self.retired = False

    def begin(self, run: PlannedRun) -> None:
        """Give it a run."""
        self.run = run
        with contextlib.suppress(OSError):  # it has ended already, which `read` will find
            self.connection.send(run)

    def read(self) -> Event:
        """What it has to say, or that it is no more. After a failure it gets no other run."""
        assert self.run is not None
        try:
            event: Event = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            event = Event(self.run, "failed", reason=how_it_ended(self.process.exitcode))
        if event.kind != "step":
            self.run = None
        if event.kind == "failed":
            self.retired = True
            self.end()
        return event

    def end(self) -> None:
        """Make sure that the process is gone."""
        self.connection.close()
        if self.run is None:
            self.process.join(10)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Signals for the parent come afterwards; a process that is started meanwhile never gets them."""
    resource_tracker.ensure_running()  # starting it would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FOR_THE_PARENT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def how_it_ended(status: int | None) -> str:
    """Words for a process that ended without a word."""
    if status is not None and status < 0:
        name = signal.Signals(-status).name
        return f"its process was ended by {name}" + (" (not enough memory?)" if name == "SIGKILL" else "")
    return f"its process ended with status {status}"


# --- inside the process ---------------------------------------------------------------------------------------------


def work(connection: Connection[Any, Any], settings: Settings, at_a_time: int, shared: Shared) -> None:
    """Do the runs that come through the connection until it is closed."""
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() // at_a_time))
    with contextlib.suppress(EOFError, OSError):  # the parent closed the connection, or is gone
        while True:
            run: PlannedRun = connection.recv()
            connection.send(_do(run, settings, connection, shared))
            gc.collect()
            torch.cuda.empty_cache()  # other processes may want it; does nothing without a GPU


def _do(run: PlannedRun, settings: Settings, connection: Connection[Any, Any], shared: Shared) -> Event:
    """One run from start to end, and how it ended."""
    reporter = Reporter(run, connection, shared)
    try:
        record = run_spec(
            run.spec,
            settings.records,
            settings.working,
            device=settings.device,
            analyse=run.analyse,
            runs_at_a_time=reporter.runs_at_a_time,
            listener=reporter.listener(),
        )
    except Interrupted:
        return Event(run, "stopped")
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        return Event(run, "failed", reason=reason(error, settings.working / f"{run.spec.name}.error.txt"))
    return Event(run, "finished", record=record)


def reason(error: Exception, file: Path) -> str:
    """One line for a run that failed; what nobody foresaw leaves its traceback in a file."""
    if isinstance(error, EansError):
        return str(error)
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return "not enough memory; try fewer --workers"
    what = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    with contextlib.suppress(EansError, OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, "".join(traceback.format_exception(error)).encode())
        what += f" (traceback in {file})"
    return what


class Reporter:
    """Tells the parent now and then how far a run is, and hears whether to stop and how many runs there are."""

    def __init__(self, run: PlannedRun, connection: Connection[Any, Any], shared: Shared) -> None:
        self.run, self.connection, self.shared = run, connection, shared
        self.total = 0
        self.told = 0.0
        self.busy: list[int] = []

    def listener(self) -> Listener:
        """What to give to `run_spec`."""
        return Listener(start=self._start, tick=self._tick, stop=self.shared.halted)

    def runs_at_a_time(self) -> float:
        """How many runs were being done, this one included, on average over the reports."""
        return round(fmean(self.busy), 1) if self.busy else 1.0

    def _start(self, *parts: Any) -> None:
        trainer = parts[-1]
        self.total = trainer.schedule.steps
        self._tick(trainer.completed)

    def _tick(self, step: int) -> None:
        now = time.monotonic()
        if now - self.told > BETWEEN_REPORTS or step == self.total:
            self.told = now
            self.busy.append(max(1, self.shared.busy))
            self.connection.send(Event(self.run, "step", step, self.total))
