"""What `eans reproduce` shows: the plan, the runs while they train, and the report in the end."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from eans import data
from eans.api import choose_device, hardware_name
from eans.display import download_bar
from eans.display_report import show_report
from eans.errors import UsageError
from eans.fitting import Interrupted
from eans.recipes import load
from eans.reproduction.plan import PlannedRun, estimate, make_plan, missing, working_folder
from eans.reproduction.pool import Event, Settings, run_all
from eans.reproduction.records import Record, RunSpec, read_records
from eans.reproduction.report import judge
from eans.reproduction.running import outdated
from eans.reproduction.selection import read_cells, select
from eans.screen import console
from eans.wording import duration

FEW_NEGATIVES = 16  # with so many, or fewer, a training step does not fill a large GPU


def reproduce_with_display(
    names: Sequence[str],
    only: str,
    seeds: int,
    device: str,
    records: Path,
    cells: Path | None,
    workers: int,
    dry_run: bool,
) -> bool:
    """`eans reproduce`; says whether every run that was begun came to its end."""
    for option, value in (("--seeds", seeds), ("--workers", workers)):
        if value < 1:
            raise UsageError(f"{option} must be at least 1, got {value}")
    known = read_cells(cells)
    selection = select(known, names, only)
    found = read_records(records)
    plan = make_plan(selection, known, seeds, found)
    todo = missing(plan)
    chosen = choose_device(device)
    hardware = hardware_name(chosen)
    show_plan(plan, found, hardware)
    if chosen.type == "cuda" and workers == 1 and (hint := sharing_hint(todo)):
        console().print(hint, soft_wrap=True)
    for record in outdated(run.record for run in plan if run.record is not None):
        old = f"{records / record.file}: its recipe has changed since; delete it to have the run made again"
        print(f"eans: note: {old}", file=sys.stderr)
    if dry_run:
        return True
    # A slip in the last recipe, or a graph that cannot be had, should not cost an hour first.
    graphs = {load(run.spec.recipe, run.spec.overrides).data.name for run in todo}
    with download_bar() as report:
        for name in sorted(graphs):
            data.get(name or data.bundled_name(), progress=report)
    display = RunsDisplay(todo)
    try:
        display.follow(Settings(records, working_folder(records), device, workers))
    except Interrupted:
        display.show_failures()
        raise
    show_report(judge(selection.cells, read_records(records)))
    if selection.figures:
        hint = f"draw them with eans report --records {records} --out DIR"
        console().print(f"figures ({', '.join(selection.figures)}): {hint}", soft_wrap=True)
    display.show_failures()
    return not display.failed


def show_plan(plan: Sequence[PlannedRun], records: dict[RunSpec, Record], hardware: str) -> None:
    """What is there, what is to be run, and about how long that takes."""
    screen = console()
    todo = missing(plan)
    settings: dict[str, list[PlannedRun]] = {}
    for run in plan:
        settings.setdefault(run.spec.settings, []).append(run)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("run", "for", "seeds to run", "with a record", "estimated time"):
        table.add_column(heading, overflow="fold")
    for name, runs in settings.items():
        guess = estimate(runs[0].spec, records, hardware)
        lacking = [run for run in runs if run.record is None]
        time = "unknown" if guess is None else f"{'~ ' if guess.similar else ''}{duration(guess.seconds)} each"
        shown = [f"{run.spec.seed}{f' ({run.reason})' if run.reason else ''}" for run in lacking]
        table.add_row(
            name,
            ", ".join(runs[0].uses),
            ", ".join(shown) or "-",
            ", ".join(str(run.spec.seed) for run in runs if run.record is not None) or "-",
            time if lacking else "",
        )
    screen.print(table)
    guesses = [estimate(run.spec, records, hardware) for run in todo]
    known = [guess.seconds for guess in guesses if guess is not None]
    parts = [f"{len(todo)} of {len(plan)} runs to do on {hardware}"]
    if known:
        parts.append(f"about {duration(sum(known))} for {len(known)} of them, one at a time")
    if len(known) < len(todo):
        parts.append(f"time unknown for {len(todo) - len(known)}: no record of that model and graph on this hardware")
    screen.print("; ".join(parts), soft_wrap=True)
    if any(guess is not None and guess.similar for guess in guesses):
        screen.print("'~' is the time of the same model and graph with another method or other settings")


def sharing_hint(todo: Sequence[PlannedRun]) -> str:
    """Advice for runs whose steps are too small to fill a GPU; nothing where there are none, or one."""
    small = [run for run in todo if load(run.spec.recipe, run.spec.overrides).sampler.negatives <= FEW_NEGATIVES]
    if len(small) < 2:
        return ""
    return (
        f"{len(small)} of them have at most {FEW_NEGATIVES} negatives: after `nvidia-cuda-mps-control -d` they end "
        "sooner with --workers 4"
    )


class RunsDisplay:
    """Bars for all runs and for each one that trains on a terminal; a line for each that ends in a pipe."""

    def __init__(self, runs: Sequence[PlannedRun]) -> None:
        self.runs = runs
        self.console = console()
        self.live = sys.stdout.isatty()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.live,
        )
        self.tasks: dict[RunSpec, TaskID] = {}
        self.stopping = False
        self.finished = 0
        self.failed: list[tuple[PlannedRun, str]] = []

    @property
    def ended(self) -> int:
        """How many runs have come to an end, good or bad."""
        return self.finished + len(self.failed)

    def follow(self, settings: Settings) -> None:
        """Do the runs and show them.

        Raises:
            Interrupted: after Ctrl-C or SIGTERM, once what was running has saved its state.
        """
        with self._signals(), self.bar, contextlib.closing(run_all(self.runs, settings, lambda: self.stopping)) as runs:
            all_runs = self.bar.add_task("runs", total=len(self.runs))
            for event in runs:
                self._show(event)
                self.bar.update(all_runs, completed=self.ended)
        if self.stopping:
            counts = [f"{self.finished} of {len(self.runs)} runs done", f"{len(self.runs) - self.ended} to go"]
            if self.failed:
                counts.insert(1, f"{len(self.failed)} failed")
            raise Interrupted(f"stopped with {', '.join(counts)}; the same command goes on from here")

    def show_failures(self) -> None:
        """The runs that failed, with the reason, on standard error."""
        for run, reason in self.failed:
            print(f"eans: failed: {run.spec.key}: {reason}", file=sys.stderr)

    def _show(self, event: Event) -> None:
        spec = event.run.spec
        if event.kind == "step":
            if spec not in self.tasks:
                self.tasks[spec] = self.bar.add_task(spec.key, total=event.total)
            self.bar.update(self.tasks[spec], completed=event.done)
            return
        if spec in self.tasks:
            self.bar.remove_task(self.tasks.pop(spec))
        if event.kind == "stopped":
            self.console.print(f"{spec.key}: stopped, its state is saved", soft_wrap=True)
            return
        if event.record is not None:
            self.finished += 1
        else:
            self.failed.append((event.run, event.reason))
        place = f"[{self.ended}/{len(self.runs)}] {spec.key}"
        if event.record is not None:
            test, seconds = event.record.test, event.record["seconds"]
            self.console.print(
                f"{place}: MRR {test['mrr']:.4f}, Hits@10 {test['hits10']:.4f}, MR {test['mr']:.0f},"
                f" trained {duration(seconds)}{f' ({event.reason})' if event.reason else ''}",
                soft_wrap=True,
            )
        else:
            self.console.print(f"{place}: failed: {event.reason}", soft_wrap=True)

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
