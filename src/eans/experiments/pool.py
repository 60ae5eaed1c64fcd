"""Several experiments at a time, each in a process of its own; what happens in them comes back as events.

A process runs one experiment after the other. One that fails, or is killed, takes no other with it: the next one gets
a new process. Ctrl-C, SIGTERM and SIGHUP, which may go to all processes, are handled by the parent alone.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import wait
from types import ModuleType
from typing import Any

from eans import data
from eans.devices import choose_device
from eans.errors import Interrupted, UsageError
from eans.experiments.extras import Extra
from eans.experiments.planning import graph_name, plan
from eans.experiments.records import Experiment, Record, RecordStore
from eans.experiments.worker import BETWEEN_REPORTS, Event, Settings, work
from eans.signals import SIGNALS, StopRequests


def run(
    experiments: Sequence[Experiment],
    store: RecordStore,
    *,
    device: str = "auto",
    workers: int = 1,
    test: bool = True,
    extra: Extra | None = None,
    on_event: Callable[[Event], None] = lambda _: None,
    stop: StopRequests | None = None,
) -> dict[Experiment, Record]:
    """Run what has no record yet, and return the records of all.

    The first Ctrl-C, SIGTERM or SIGHUP saves the state of all runs; the same call later continues them. Several
    processes may share a store: what another one is making is left to it. An experiment that fails has no record;
    `on_event` gets the reason.

    Args:
        experiments: in the order to run them.
        store: where records go.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        workers: how many at a time.
        test: rank test; False makes records with valid metrics alone.
        extra: adds fields to the records.
        on_event: called with every `Event`.
        stop: requests to stop that the caller collects; None handles Ctrl-C, SIGTERM and SIGHUP here.

    Raises:
        Interrupted: after a request to stop, once what was running has saved its state; at once after a second one.
    """
    if workers < 1:
        raise UsageError(f"workers must be at least 1, got {workers}")
    if extra is not None and type(extra).__module__ == "__main__":
        raise UsageError(f"{type(extra).__name__} is sent to other processes: define it in a module of its own")
    choose_device(device)
    todo = [planned.experiment for planned in plan(experiments, store, test=test, extra=extra) if not planned.record]
    for name in filter(data.is_registered, dict.fromkeys(map(graph_name, todo))):
        data.get(name)  # a graph that cannot be had should not cost an hour first
    if todo:
        store.make_folders()  # once, not at the end of every run
    requests, finished = stop or StopRequests(), 0
    said = "{} with {} of {} runs done; the same call continues from here"

    def asked() -> bool:
        if requests.insisted:
            raise Interrupted(said.format("stopped at once", finished, len(todo)))
        return requests.asked

    settings = Settings(store, device, test, extra, min(workers, max(1, len(todo))))
    signals = _signals(requests) if stop is None else contextlib.nullcontext()
    with signals, contextlib.closing(events_of(todo, settings, asked)) as events:
        for event in events:
            finished += event.kind == "finished"
            on_event(event)
    if requests.asked:
        raise Interrupted(said.format("stopped", finished, len(todo)))
    return store.read(experiments)


@contextlib.contextmanager
def _signals(requests: StopRequests) -> Iterator[None]:
    """`SIGNALS` are requests to stop meanwhile, where signals can be handled; afterwards what they were."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        with requests.caught():
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def events_of(todo: Sequence[Experiment], settings: Settings, stop: Callable[[], bool]) -> Generator[Event]:
    """Run experiments in their order.

    Once `stop` says True none begins, and those that train save their state and stop. Closing the iterator ends them at
    once; they continue from their last checkpoint another time.
    """
    halted = get_context("spawn").RawValue("b", 0)  # reading it takes no lock, as every step does
    waiting, workers = list(todo), list[Worker]()
    try:
        while waiting or any(worker.experiment is not None for worker in workers):
            if stop():
                halted.value = 1
                waiting.clear()
            busy = [worker for worker in workers if worker.experiment is not None]
            while waiting and len(busy) < settings.workers:
                idle = [worker for worker in workers if worker.experiment is None and worker.process.is_alive()]
                if not idle:
                    with signals_blocked():
                        idle = [Worker(settings, halted)]
                        workers += idle
                idle[0].begin(waiting.pop(0))
                busy.append(idle[0])
            ready = wait([worker.connection for worker in busy], BETWEEN_REPORTS)
            for worker in busy:
                if worker.connection in ready:
                    yield worker.read()
            workers = [worker for worker in workers if not worker.retired]
    finally:
        for worker in workers:
            worker.end()


class Worker:
    """A process, the connection to it, and the experiment it is running. To be made with signals blocked."""

    def __init__(self, settings: Settings, halted: Any) -> None:
        context = get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, settings, halted), daemon=True)
        with nothing_to_import():
            self.process.start()
        other.close()  # the process has its own; with this one open, its end would not be noticed
        self.experiment: Experiment | None = None
        self.retired = False

    def begin(self, experiment: Experiment) -> None:
        """Give it an experiment."""
        self.experiment = experiment
        with contextlib.suppress(OSError):  # it has ended already, which `read` will find
            self.connection.send(experiment)

    def read(self) -> Event:
        """What it has to say, or that it is no more. After a failure it gets no other experiment."""
        assert self.experiment is not None
        try:
            event: Event = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            event = Event(self.experiment, "failed", reason=how_it_ended(self.process.exitcode))
        if event.kind != "step":
            self.experiment = None
        if event.kind == "failed":
            self.retired = True
            self.end()
        return event

    def end(self) -> None:
        """Make sure that the process is gone."""
        self.connection.close()
        if self.experiment is None:
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
