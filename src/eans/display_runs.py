"""What `eans reproduce` shows of runs while they train, how they end, and what becomes of Ctrl-C."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Sequence

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from eans.errors import Interrupted
from eans.reproduction.forecast import Forecast
from eans.reproduction.plan import PlannedRun
from eans.reproduction.pool import Event, Settings, run_all
from eans.reproduction.records import RunSpec
from eans.screen import console
from eans.stopping import WORDS, StopRequests
from eans.wording import duration

BAR, SHORTEST_BAR, SHORTEST_NAME = 20, 10, 12  # columns
BESIDES = 28  # columns of steps and time, and the spaces between all parts
EVALUATION = "evaluation"  # instead of a time: how long it takes is not known before


class RunsDisplay:
    """Bars for all runs and for each one that trains on a terminal; a line for each that ends in a pipe."""

    def __init__(self, runs: Sequence[PlannedRun], forecast: Forecast) -> None:
        self.runs, self.forecast = runs, forecast
        self.console = console()
        self.live = sys.stdout.isatty() and bool(runs)
        room = self.console.width - BESIDES
        self.names = bar_names([run.spec for run in runs], max(room - SHORTEST_BAR, SHORTEST_NAME))
        longest = max(map(len, self.names.values()), default=0)
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(min(BAR, max(room - longest, SHORTEST_BAR))),
            TextColumn("{task.fields[count]}"),
            TextColumn("{task.fields[left]}", style="progress.remaining"),
            console=self.console,
            disable=not self.live,
        )
        self.tasks: dict[RunSpec, TaskID] = {}
        self.stop = StopRequests()
        self.warned = False
        self.finished = 0
        self.failed: list[tuple[PlannedRun, str]] = []
        self.elsewhere = 0

    @property
    def ended(self) -> int:
        """How many runs have come to an end, good or bad."""
        return self.finished + len(self.failed) + self.elsewhere

    def follow(self, settings: Settings) -> None:
        """Do the runs and show them.

        Raises:
            Interrupted: after Ctrl-C or SIGTERM, once what was running has saved its state, or at once if asked twice.
        """
        with self.stop.caught(), self.bar:
            all_runs = self.bar.add_task("all runs", total=None, count="", left="")
            self._show_all(all_runs)
            with contextlib.closing(run_all(self.runs, settings, self._must_stop)) as events:
                for event in events:
                    self._show(event)
                    self._show_all(all_runs)
        if self.stop.asked:
            raise Interrupted(f"stopped with {self._counts()}; the same command goes on from here")

    def show_failures(self) -> None:
        """The runs that failed, with the reason, on standard error."""
        for run, reason in self.failed:
            print(f"eans: failed: {run.spec.key}: {reason}", file=sys.stderr)

    def _counts(self) -> str:
        """How many runs are done, how many failed, and how many are left."""
        counts = [f"{self.finished} of {len(self.runs)} runs done", f"{len(self.runs) - self.ended} to go"]
        if self.failed:
            counts.insert(1, f"{len(self.failed)} failed")
        return ", ".join(counts)

    def _show_all(self, task: TaskID) -> None:
        forecast = self.forecast
        trained = forecast.done >= forecast.total and self.ended < len(self.runs)
        self.bar.update(
            task,
            completed=forecast.done,
            total=forecast.total,
            count=f"{self.ended}/{len(self.runs)} runs",
            left=EVALUATION if trained else duration(forecast.seconds_left()),
        )

    def _show(self, event: Event) -> None:
        spec = event.run.spec
        if event.kind == "step":
            self._show_step(event)
            return
        if spec in self.tasks:
            self.bar.remove_task(self.tasks.pop(spec))
        if event.record is not None:
            self.finished += 1
            (self.forecast.drop if event.reason else self.forecast.finish)(spec)
            test, seconds = event.record.test, event.record["seconds"]
            outcome = (
                f"MRR {test['mrr']:.4f}, Hits@10 {test['hits10']:.4f}, MR {test['mr']:.0f},"
                f" trained {duration(seconds)}{f' ({event.reason})' if event.reason else ''}"
            )
        elif event.kind == "failed":
            self.failed.append((event.run, event.reason))
            self.forecast.drop(spec)
            outcome = f"failed: {event.reason}"
        elif event.kind == "elsewhere":
            self.elsewhere += 1
            self.forecast.drop(spec)
            outcome = "another process is still making it; its record will come from there"
        elif event.kind == "skipped":
            self._print(f"{spec.key}: another process is making it; left for the end")
            return
        else:
            self._print(f"{spec.key}: stopped at step {event.done:,} of {event.total:,}, its state is saved")
            return
        self._print(f"[{self.ended}/{len(self.runs)}] {spec.key}: {outcome}{self._left()}")

    def _show_step(self, event: Event) -> None:
        spec = event.run.spec
        self.forecast.advance(spec, event.done, event.total)
        if spec not in self.tasks:
            self.tasks[spec] = self.bar.add_task(self.names[spec], total=event.total, count="", left="")
        self.bar.update(
            self.tasks[spec],
            completed=event.done,
            count=f"{event.done:,}/{event.total:,}",
            left=EVALUATION if event.done == event.total else duration(self.forecast.seconds_left_of(spec)),
        )

    def _left(self) -> str:
        """For those who read lines: how long the rest takes."""
        seconds = self.forecast.seconds_left()
        return f"; about {duration(seconds)} left" if seconds and not self.live and self.ended < len(self.runs) else ""

    def _print(self, line: str) -> None:
        self.console.print(line, soft_wrap=True)

    def _must_stop(self) -> bool:
        """Was Ctrl-C pressed? Asked several times a second; ends the runs at once if it was pressed again."""
        if self.stop.insisted:
            raise Interrupted(f"stopped at once with {self._counts()}; the same command goes on from here")
        if self.stop.asked and not self.warned:
            self.warned = True
            print(WORDS, file=sys.stderr, flush=True)
        return self.stop.asked


def bar_names(specs: Sequence[RunSpec], width: int) -> dict[RunSpec, str]:
    """Names that leave room for a bar beside them, and are different as far as the width allows.

    Overrides do without their section. Where that is too long, those that all runs share are left out. Where it still
    is, a name loses as much of its middle as it must, and at a place where no other name could be meant.
    """
    names: dict[RunSpec, str] = {}
    shared = set(specs[0].overrides).intersection(*(spec.overrides for spec in specs)) if specs else set[str]()
    for left_out in (set[str](), shared):
        for spec in specs:
            settings = [override.partition(".")[2] for override in spec.overrides if override not in left_out]
            names[spec] = " ".join([spec.recipe, *settings, f"seed={spec.seed}"])
        if all(len(name) <= width for name in names.values()):
            return names
    choices = {spec: cuts(name, width) for spec, name in names.items()}
    uses = Counter(cut for found in choices.values() for cut in found)
    return {
        spec: name if len(name) <= width else next((cut for cut in choices[spec] if uses[cut] == 1), choices[spec][0])
        for spec, name in names.items()
    }


def cuts(name: str, width: int) -> list[str]:
    """A name without some of its middle: its last word stays, then more and more whole words and parts of paths."""
    ends = [name[place:] for place, letter in enumerate(name) if letter in " /" and len(name) - place < width]
    return [f"{name[: width - len(end) - 1]}…{end}" for end in reversed(ends)] or [name[:width]]
