"""What `eans reproduce` shows of runs while they train, how they end, and what becomes of Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from types import FrameType

from rich.progress import BarColumn, Progress, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from eans.errors import Interrupted
from eans.reproduction.forecast import Forecast
from eans.reproduction.plan import PlannedRun
from eans.reproduction.pool import Event, Settings, run_all
from eans.reproduction.records import RunSpec
from eans.screen import console
from eans.wording import duration

BAR, BESIDES = 20, 26  # columns of a bar, and of steps, time and the spaces between all parts
SHORTEST_NAME = 12


class TimeLeft(TimeRemainingColumn):
    """What the task says itself, or the guess of the bar by its latest speed."""

    def render(self, task: Task) -> Text:
        """The time left."""
        if "left" in task.fields:
            return Text(duration(task.fields["left"]), style="progress.remaining")
        return super().render(task)


class RunsDisplay:
    """Bars for all runs and for each one that trains on a terminal; a line for each that ends in a pipe."""

    def __init__(self, runs: Sequence[PlannedRun], forecast: Forecast) -> None:
        self.runs, self.forecast = runs, forecast
        self.console = console()
        self.live = sys.stdout.isatty() and bool(runs)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(BAR),
            TextColumn("{task.fields[count]}"),
            TimeLeft(),
            console=self.console,
            disable=not self.live,
        )
        self.tasks: dict[RunSpec, TaskID] = {}
        self.stopping = False
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
        try:
            with self._signals(), self.bar:
                all_runs = self.bar.add_task("all runs", total=None, count="")
                self._show_all(all_runs)
                with contextlib.closing(run_all(self.runs, settings, lambda: self.stopping)) as events:
                    for event in events:
                        self._show(event)
                        self._show_all(all_runs)
        except KeyboardInterrupt:
            raise Interrupted(f"stopped at once with {self._counts()}; the same command goes on from here") from None
        if self.stopping:
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
        self.bar.update(
            task,
            completed=forecast.done,
            total=forecast.total,
            count=f"{self.ended}/{len(self.runs)} runs",
            left=forecast.seconds_left(),
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
            name = shortened(spec.key, self.console.width - BAR - BESIDES)
            self.tasks[spec] = self.bar.add_task(name, total=event.total, count="")
        self.bar.update(self.tasks[spec], completed=event.done, count=f"{event.done:,}/{event.total:,}")

    def _left(self) -> str:
        """For those who read lines: how long the rest takes."""
        seconds = self.forecast.seconds_left()
        return f"; about {duration(seconds)} left" if seconds and not self.live and self.ended < len(self.runs) else ""

    def _print(self, line: str) -> None:
        self.console.print(line, soft_wrap=True)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.stopping:  # asked twice: end the processes now, and let nothing come between
            for other in (signal.SIGINT, signal.SIGTERM):
                signal.signal(other, signal.SIG_IGN)
            raise KeyboardInterrupt
        self.stopping = True
        print("eans: stopping; once more to stop at once", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM become an orderly stop."""
        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def shortened(name: str, width: int) -> str:
    """A name that leaves room for the bar beside it: what is too long loses its middle, not its seed."""
    width = max(width, SHORTEST_NAME)
    if len(name) <= width:
        return name
    end = min(len(name.rpartition(" ")[2]) + 1, width // 2)
    return f"{name[: width - end - 1]}…{name[-end:]}"
