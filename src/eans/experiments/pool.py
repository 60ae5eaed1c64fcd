"""Several experiments at a time, each in a process of its own; what happens in them comes back as events."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing import get_context

from eans import data
from eans.devices import choose_device
from eans.errors import Interrupted, UsageError
from eans.experiments.extras import Extra
from eans.experiments.planning import graph_name, plan
from eans.experiments.processes import Processes
from eans.experiments.records import Experiment, Record, RecordStore
from eans.experiments.worker import Event, Settings, work
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
    waiting = list(todo)
    processes: Processes[Experiment, Event] = Processes(work, settings, halted, _lost)
    with processes:
        while waiting or processes.jobs:
            if stop():
                halted.value = 1
                waiting.clear()
            while waiting and len(processes.jobs) < settings.workers:
                processes.begin(waiting.pop(0))
            for _, event in processes.read():
                yield event


def _lost(experiment: Experiment, reason: str) -> Event:
    return Event(experiment, "failed", reason=reason)
