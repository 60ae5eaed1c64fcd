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
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

from eans.api import Listener
from eans.errors import EansError, Interrupted
from eans.files import atomic_write
from eans.reproduction.plan import PlannedRun, lacks
from eans.reproduction.records import Record, RunSpec, find_record
from eans.reproduction.running import error_file, making, run_spec
from eans.runs import FolderInUse

BETWEEN_REPORTS = 0.2  # seconds
FOR_THE_PARENT = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Settings:
    """What all runs have in common; see `run_spec`."""

    records: Path
    working: Path
    device: str = "auto"


@dataclass(frozen=True)
class Event:
    """Something happened to a run.

    Attributes:
        run: which.
        kind: ``step`` (training has come this far), ``finished``, ``failed``, ``stopped`` with its state saved,
            ``skipped`` because another process is making it, to be looked at again in the end, or ``elsewhere`` if that
            one is still at it then.
        done, total: steps, for ``step`` and ``stopped``.
        record: for ``finished``.
        reason: one line, for ``failed``, and for ``finished`` without having been begun here.
    """

    run: PlannedRun
    kind: Literal["step", "finished", "failed", "stopped", "skipped", "elsewhere"]
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
    """Do the runs in their order, as many at a time as each of them allows.

    Once `stop` says True no run begins, and those that train save their state and stop. Closing the iterator ends them
    at once; they go on from their last checkpoint another time. A run whose record somebody else has made meanwhile is
    not begun. One that somebody else is making is left for the end.
    """
    shared = Shared()
    waiting, skipped, tried = list(runs), list[PlannedRun](), set[RunSpec]()
    workers: list[Worker] = []
    try:
        while waiting or skipped or any(worker.run is not None for worker in workers):
            if stop():
                shared.halt()
                waiting.clear()
                skipped.clear()
            busy = [worker for worker in workers if worker.run is not None]
            if not waiting and not busy:
                waiting, skipped = skipped, []
            while waiting and has_room(waiting[0], [worker.run for worker in busy if worker.run]):
                run = waiting.pop(0)
                if (event := made_meanwhile(run, settings.records)) is not None:
                    yield event
                    continue
                idle = [worker for worker in workers if worker.run is None and worker.process.is_alive()]
                if not idle:
                    with signals_blocked():
                        idle = [Worker(settings, shared)]
                        workers += idle
                idle[0].begin(run)
                busy.append(idle[0])
            shared.busy = len(busy)
            ready = wait([worker.connection for worker in busy], BETWEEN_REPORTS)
            for worker in busy:
                if worker.connection in ready:
                    event = worker.read()
                    if event.kind == "skipped" and event.run.spec in tried:
                        event = Event(event.run, "elsewhere")
                    elif event.kind == "skipped":
                        skipped.append(event.run)
                        tried.add(event.run.spec)
                    yield event
            workers = [worker for worker in workers if not worker.retired]
    finally:
        for worker in workers:
            worker.end()


def has_room(run: PlannedRun, beside: Sequence[PlannedRun]) -> bool:
    """May a run begin beside those that are being done?"""
    return len(beside) < min(other.at_a_time for other in [run, *beside])


def made_meanwhile(run: PlannedRun, records: Path) -> Event | None:
    """A run that somebody else has done since it was planned, and whose record serves."""
    try:
        record = find_record(records, run.spec)
    except EansError as error:
        return Event(run, "failed", reason=str(error))
    if record is None or lacks(record, run.uses, run.looks):
        return None
    return Event(run, "finished", record=record, reason="its record was made meanwhile")


class Worker:
    """A process, the connection to it, and the run it is doing. To be made with signals blocked."""

    def __init__(self, settings: Settings, shared: Shared) -> None:
        context = get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, settings, shared), daemon=True)
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


def work(connection: Connection[Any, Any], settings: Settings, shared: Shared) -> None:
    """Do the runs that come through the connection until it is closed."""
    import torch

    threads = torch.get_num_threads()
    with contextlib.suppress(EOFError, OSError):  # the parent closed the connection, or is gone
        while True:
            run: PlannedRun = connection.recv()
            torch.set_num_threads(max(1, threads // run.at_a_time))
            connection.send(_do(run, settings, connection, shared))
            gc.collect()
            torch.cuda.empty_cache()  # other processes may want it; does nothing without a GPU


def _do(run: PlannedRun, settings: Settings, connection: Connection[Any, Any], shared: Shared) -> Event:
    """One run from start to end, and how it ended."""
    reporter = Reporter(run, connection, shared)
    try:
        with making(run.spec, settings.working):
            if (event := made_meanwhile(run, settings.records)) is not None:
                return event
            record = run_spec(
                run.spec,
                settings.records,
                settings.working,
                device=settings.device,
                looks=run.looks,
                company=lambda: reporter.company,
                listener=reporter.listener(),
            )
    except Interrupted:
        return Event(run, "stopped", reporter.step, reporter.total)
    except FolderInUse:
        return Event(run, "skipped")
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        return Event(run, "failed", reason=reason(error, error_file(run.spec, settings.working)))
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
    """Tells the parent now and then how far a run is, and hears whether to stop and how many runs there are.

    Attributes:
        company: how many runs there were, this one included, by how many reports.
    """

    def __init__(self, run: PlannedRun, connection: Connection[Any, Any], shared: Shared) -> None:
        self.run, self.connection, self.shared = run, connection, shared
        self.step = self.total = 0
        self.told = 0.0
        self.company: Counter[int] = Counter()

    def listener(self) -> Listener:
        """What to give to `run_spec`."""
        return Listener(start=self._start, tick=self._tick, stop=self.shared.halted)

    def _start(self, *parts: Any) -> None:
        trainer = parts[-1]
        self.total = trainer.schedule.steps
        self._tick(trainer.completed)

    def _tick(self, step: int) -> None:
        self.step = step
        now = time.monotonic()
        if now - self.told > BETWEEN_REPORTS or step == self.total:
            self.told = now
            self.company[max(1, self.shared.busy)] += 1
            self.connection.send(Event(self.run, "step", step, self.total))
