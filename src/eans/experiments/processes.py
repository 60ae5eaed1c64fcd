"""Several processes that do one job after the other, and what they say meanwhile.

A process that fails, or is killed, takes no other with it: the next job gets a new one. Ctrl-C, SIGTERM and SIGHUP,
which may go to all processes, are handled by the parent alone.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from types import ModuleType, TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from eans.signals import SIGNALS

BETWEEN_REPORTS = 0.2  # seconds
_Job = TypeVar("_Job")


class Said(Protocol):
    """What a process says about its job."""

    @property
    def ends(self) -> bool:
        """The job is over; otherwise it goes on."""

    @property
    def failed(self) -> bool:
        """It is over because of an error, after which the process gets no other job."""


_Said = TypeVar("_Said", bound=Said)
Work = Callable[[Connection, Any, Any], None]


class Processes(Generic[_Job, _Said]):
    """Processes for jobs; a context, which ends them all when it is left, whatever they are doing.

    Args:
        work: called in each process with its end of a connection, `settings` and `shared`. It receives a job, sends
            what it has to say about it, and goes on like that until the connection is closed.
        settings: what all jobs have in common.
        shared: a ``RawValue``, which the parent changes and the processes read: neither takes a lock.
        lost: what stands for the last word of a process that ended without one: called with the job and a reason.
    """

    def __init__(self, work: Work, settings: Any, shared: Any, lost: Callable[[_Job, str], _Said]) -> None:
        self._arguments, self._lost = (work, settings, shared), lost
        self._workers: list[Worker[_Job]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.end()

    @property
    def jobs(self) -> list[_Job]:
        """Those that are under way."""
        return [worker.job for worker in self._workers if worker.job is not None]

    def begin(self, job: _Job) -> None:
        """Give a job to a process that has none, which is a new one if need be."""
        idle = [worker for worker in self._workers if worker.job is None and worker.process.is_alive()]
        if not idle:
            with signals_blocked():
                idle = [Worker(*self._arguments)]
                self._workers += idle
        idle[0].begin(job)

    def answer(self, job: _Job, message: object) -> None:
        """Send something to the process that does a job, and waits for it."""
        for worker in self._workers:
            if worker.job is job:
                worker.send(message)

    def read(self) -> Iterator[tuple[_Job, _Said]]:
        """What there is to read within a short time, with the job that it is about."""
        busy = [worker for worker in self._workers if worker.job is not None]
        ready = wait([worker.connection for worker in busy], BETWEEN_REPORTS)
        for worker in busy:
            if worker.connection in ready:
                job = worker.job
                assert job is not None
                yield job, self._read(worker, job)
        self._workers = [worker for worker in self._workers if not worker.retired]

    def _read(self, worker: Worker[_Job], job: _Job) -> _Said:
        try:
            said: _Said = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join()
            said = self._lost(job, how_it_ended(worker.process.exitcode))
        if said.ends:
            worker.job = None
        if said.failed:
            worker.retired = True
            worker.end()
        return said


class Worker(Generic[_Job]):
    """A process, the connection to it, and the job that it does. To be made with signals blocked."""

    def __init__(self, work: Work, settings: Any, shared: Any) -> None:
        context = get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, settings, shared), daemon=True)
        with nothing_to_import():
            self.process.start()
        other.close()  # the process has its own; with this one open, its end would not be noticed
        self.job: _Job | None = None
        self.retired = False

    def begin(self, job: _Job) -> None:
        """Give it a job."""
        self.job = job
        self.send(job)

    def send(self, message: object) -> None:
        """Send it something."""
        with contextlib.suppress(OSError):  # it has ended already, which reading will find
            self.connection.send(message)

    def end(self) -> None:
        """Make sure that the process is gone."""
        self.connection.close()
        if self.job is None:
            self.process.join(10)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@contextlib.contextmanager
def nothing_to_import() -> Iterator[None]:
    """A process that is started meanwhile does not import the program's main script, which would run it again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Signals for the parent come afterwards; a process that is started meanwhile never gets them."""
    resource_tracker.ensure_running()  # starting it would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
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
