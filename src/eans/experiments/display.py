"""What a terminal shows while experiments run: a bar for each and one for all; in a pipe, a line for each that ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from eans.experiments.pool import run
from eans.experiments.records import Experiment, RecordStore
from eans.experiments.worker import Event
from eans.progress import duration, plain_console
from eans.signals import WORDS, StopRequests

BAR, BESIDES = 10, 36  # columns of a bar; of a bar, steps and time


def run_with_display(
    experiments: Sequence[Experiment], store: RecordStore, **settings: Any
) -> list[tuple[Experiment, str]]:
    """`run` for a command, which shows what happens and ends after Ctrl-C; `settings` are those of `run`.

    Returns:
        The experiments that failed, each with the reason, which standard error has too.
    """
    stop, display = StopRequests(_announce), RunsDisplay(experiments)
    try:
        with stop.caught(), display:  # once asked to stop, the process ignores signals until it ends
            run(experiments, store, on_event=display, stop=stop, **settings)
    finally:
        for experiment, reason in display.failed:
            print(f"eans: failed: {experiment.key}: {reason}", file=sys.stderr)
    return display.failed


def _announce(count: int) -> None:
    """Called in a signal handler, where `print` may be in the middle of another line."""
    if count == 1:
        os.write(2, f"{WORDS}\n".encode())


class RunsDisplay:
    """Give it to `run` as ``on_event``, inside of a ``with`` statement.

    Attributes:
        failed: the experiments that failed, with the reason.
    """

    def __init__(self, experiments: Sequence[Experiment]) -> None:
        self.experiments = experiments
        self.failed: list[tuple[Experiment, str]] = []
        self._ended = 0
        self._console = plain_console()
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(BAR),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not sys.stdout.isatty() or not experiments,
        )
        self._tasks: dict[Experiment, TaskID] = {}

    def __enter__(self) -> RunsDisplay:
        self._bar.start()
        self._all = self._bar.add_task("all runs", total=len(self.experiments))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        experiment = event.experiment
        if event.kind == "step":
            if experiment not in self._tasks:
                self._tasks[experiment] = self._bar.add_task(self._name(experiment), total=event.total)
            self._bar.update(self._tasks[experiment], completed=event.done)
            return
        if experiment in self._tasks:
            self._bar.remove_task(self._tasks.pop(experiment))
        if event.kind == "stopped":
            self._print(f"{experiment.key}: stopped at step {event.done:,} of {event.total:,}, its state is saved")
            return
        self._ended += 1
        self._bar.update(self._all, completed=self._ended)
        if event.kind == "failed":
            self.failed.append((experiment, event.reason))
        self._print(f"[{self._ended}/{len(self.experiments)}] {experiment.key}: {outcome(event)}")

    def _name(self, experiment: Experiment) -> str:
        """What tells it from the others, as much of it as there is room for."""
        shared = set.intersection(*(set(parts_of(other)) for other in self.experiments))
        name = " ".join(part for part in parts_of(experiment) if part not in shared) or experiment.recipe
        room = max(12, self._console.width - BESIDES)
        return name if len(name) <= room else f"…{name[1 - room :]}"

    def _print(self, line: str) -> None:
        self._console.print(line, soft_wrap=True)


def parts_of(experiment: Experiment) -> list[str]:
    """Recipe, overrides without their sections, and seed."""
    return [experiment.recipe, *(text.partition(".")[2] for text in experiment.overrides), f"seed={experiment.seed}"]


def outcome(event: Event) -> str:
    """What came of an experiment, in words."""
    if event.record is None:
        return f"failed: {event.reason}" if event.kind == "failed" else "another process is making it"
    record = event.record
    splits = [(split, record.get(f"{split}.both.mrr")) for split in ("valid", "test")]
    metrics = [f"{split} MRR {mrr:.4f}" for split, mrr in splits if mrr is not None]
    known = f" ({event.reason})" if event.reason else ""
    return f"{', '.join(metrics)}, trained {duration(record['seconds'])}{known}"
