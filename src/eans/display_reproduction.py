"""What `eans reproduce` shows: the plan, the runs while they train, and the report in the end."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from rich.table import Table

from eans import data
from eans.api import choose_device, hardware_name
from eans.display import download_bar
from eans.display_report import show_report
from eans.display_runs import RunsDisplay
from eans.errors import EansError, Interrupted, UsageError
from eans.files import make_folder
from eans.recipes import load
from eans.reproduction.estimates import Estimate, estimate, units_left
from eans.reproduction.forecast import Forecast
from eans.reproduction.plan import PlannedRun, make_plan, missing, working_folder
from eans.reproduction.pool import Settings
from eans.reproduction.records import Record, RunSpec, read_records
from eans.reproduction.report import judge
from eans.reproduction.running import outdated, saved_step
from eans.reproduction.selection import read_cells, select
from eans.reproduction.sharing import FEW_NEGATIVES, gain, has_few_negatives, in_words, mps_is_running, with_workers
from eans.screen import console
from eans.wording import duration

BELIEF = 30.0  # seconds of watching after which estimates from this hardware count half
GAP = 2  # columns between those of the plan

Estimates = Mapping[RunSpec, Estimate | None]


def reproduce_with_display(
    names: Sequence[str],
    only: str,
    seeds: int,
    device: str,
    records: Path,
    cells: Path | None,
    workers: str,
    dry_run: bool,
    timed_by: Path,
) -> bool:
    """`eans reproduce`; says whether every run that was begun came to its end.

    `timed_by` is a folder of records, if it exists, that tell for how long runs take, as those in `records` do.
    """
    at_a_time = parse_workers(workers)
    if seeds < 1:
        raise UsageError(f"--seeds must be at least 1, got {seeds}")
    known = read_cells(cells)
    selection = select(known, names, only)
    found = read_records(records)
    timed = found if timed_by.resolve() == records.resolve() else times_of(timed_by) | found
    working = working_folder(records)
    on_gpu, hardware = where_to_run(device, timed.values() if dry_run else ())
    sharing = on_gpu and mps_is_running()
    for reason in selection.empty:
        print(f"eans: note: {reason}", file=sys.stderr)
    plan = make_plan(selection, known, seeds, found)
    graphs = graphs_of(plan, cells)
    plan = [begun_before(run, working) for run in plan]
    todo = with_workers(missing(plan), at_a_time, sharing)
    estimates = {run.spec: estimate(run.spec, timed, hardware, run.saved) for run in todo}
    needed = {
        run.spec: guess and guess.seconds / gain(run, sharing) for run in todo for guess in (estimates[run.spec],)
    }
    show_plan(plan, estimates)
    show_totals(todo, len(plan), hardware, estimates, needed)
    if on_gpu and not sharing and at_a_time is None and (hint := sharing_hint(todo)):
        console().print(hint, soft_wrap=True)
    for record in outdated(run.record for run in plan if run.record is not None):
        old = f"{records / record.file}: its recipe has changed since; delete it to have the run made again"
        print(f"eans: note: {old}", file=sys.stderr)
    if dry_run:
        return True
    with download_bar() as report:  # a graph that cannot be had should not cost an hour first
        for name in sorted(filter(data.is_registered, {graphs[run.spec] for run in todo})):
            data.get(name, progress=report)
    for folder in (records, working) if todo else ():  # once, not at the end of every run
        make_folder(folder, "choose another --records")
    from_here = all(guess is not None and guess.hardware == hardware for guess in estimates.values())
    work = needed if any(needed.values()) else {run.spec: units_left(run.spec, run.saved) or None for run in todo}
    display = RunsDisplay(todo, Forecast(work, BELIEF if from_here else 0.0))
    try:
        display.follow(Settings(records, working, device))
    except Interrupted:
        display.show_failures()
        raise
    show_report(judge(selection.cells, read_records(records)))
    if selection.figures:
        hint = report_command(names, only, records, cells)
        console().print(f"figures ({', '.join(selection.figures)}): draw them with {hint}", soft_wrap=True)
    display.show_failures()
    return not display.failed


def times_of(folder: Path) -> dict[RunSpec, Record]:
    """Records that are wanted for their times alone: where they cannot be read, there are none."""
    try:
        return read_records(folder)
    except EansError as error:
        print(f"eans: note: no times from {folder}: {error}", file=sys.stderr)
        return {}


def where_to_run(device: str, elsewhere: Iterable[Record]) -> tuple[bool, str]:
    """Is it a GPU, and what is it called? Without one here, it is the GPU of most records, to plan runs there."""
    gpus = Counter(record["hardware"] for record in elsewhere if str(record.get("device")).startswith("cuda"))
    if device == "cuda" and gpus and not torch.cuda.is_available():
        return True, gpus.most_common(1)[0][0]
    chosen = choose_device(device)
    return chosen.type == "cuda", hardware_name(chosen)


def parse_workers(text: str) -> int | None:
    """How many runs at a time; None for ``auto``."""
    if text == "auto":
        return None
    try:
        workers = int(text)
    except ValueError:
        raise UsageError(f"--workers must be auto or a number of runs, got '{text}'") from None
    if workers < 1:
        raise UsageError(f"--workers must be at least 1, got {workers}")
    return workers


def graphs_of(plan: Sequence[PlannedRun], file: Path | None) -> dict[RunSpec, str]:
    """The graph of each run; a slip in any recipe, or in the name of a graph, is an error before anything is done.

    The error names the run, and the file of cells that it comes from.
    """
    graphs: dict[RunSpec, str] = {}
    for run in plan:
        try:
            name = load(run.spec.recipe, run.spec.overrides).data.name or data.bundled_name()
            if name not in graphs.values():
                data.sizes(name)
        except UsageError as error:
            where = "" if file is None else f"{file}: "
            raise UsageError(f"{where}{run.spec.settings}: {error}") from error
        graphs[run.spec] = name
    return graphs


def begun_before(run: PlannedRun, working: Path) -> PlannedRun:
    """A run that has to be made, with the step from which it goes on."""
    return run if run.record is not None else dataclasses.replace(run, saved=saved_step(run.spec, working))


def report_command(names: Sequence[str], only: str, records: Path, cells: Path | None) -> str:
    """What to type to have the figures of the same selection drawn."""
    options = [("--only", only), ("--records", records), ("--cells", cells)]
    given = [text for option, value in options if value for text in (option, str(value))]
    return shlex.join(["eans", "report", *names, *given, "--out", "DIR"])


def place_of(estimates: Estimates, hardware: str) -> str:
    """``" on NVIDIA H200"`` where estimates come from records of other hardware; nothing where all are from here."""
    machines = dict.fromkeys(guess.hardware for guess in estimates.values() if guess is not None)
    return f" on {', '.join(machines)}" if any(machine != hardware for machine in machines) else ""


def show_plan(plan: Sequence[PlannedRun], estimates: Estimates) -> None:
    """What is there, what is to be run, and about how long each takes."""
    settings: dict[str, list[PlannedRun]] = {}
    for run in plan:
        settings.setdefault(run.spec.settings, []).append(run)
    headings = ("run", "for", "seeds to run", "with a record", "estimated time each")
    rows = []
    for name, runs in settings.items():
        lacking = [run for run in runs if run.record is None]
        rows.append(
            (
                name,
                ", ".join(dict.fromkeys(use for run in runs for use in run.purposes)),
                ", ".join(map(seed_in_words, lacking)) or "-",
                ", ".join(str(run.spec.seed) for run in runs if run.record is not None) or "-",
                time_in_words([estimates[run.spec] for run in lacking]),
            )
        )
    screen = console()
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for heading, width in zip(headings, column_widths(headings, rows, screen.width), strict=True):
        table.add_column(heading, width=width, overflow="fold")
    for row in rows:
        table.add_row(*row)
    screen.print(table)


def column_widths(headings: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Wide enough for words and for headings in two lines, then for whole texts and headings if there is room."""
    columns = list(zip(*rows, strict=True)) or [()] * len(headings)
    texts_fit = [max(map(len, texts), default=0) for texts in columns]
    words_fit = [max((len(word) for text in texts for word in text.split()), default=0) for texts in columns]
    widths = list(map(max, words_fit, map(in_two_lines, headings)))
    spare = max(0, room - sum(widths) - GAP * (len(widths) - 1))
    for wanted in (texts_fit, list(map(len, headings))):
        for place in sorted(
            range(len(widths)), key=lambda place: wanted[place] - widths[place]
        ):  # the nearly wide first
            more = min(max(0, wanted[place] - widths[place]), spare)
            widths[place] += more
            spare -= more
    return widths


def in_two_lines(heading: str) -> int:
    """How wide a heading is that is broken at one of its spaces."""
    spaces = [place for place, letter in enumerate(heading) if letter == " "]
    return min((max(place, len(heading) - place - 1) for place in spaces), default=len(heading))


def seed_in_words(run: PlannedRun) -> str:
    """A seed to run, why it is run again, and where it goes on."""
    remarks = [run.reason, f"continues at step {run.saved:,}" if run.saved else ""]
    return f"{run.spec.seed}{''.join(f' ({remark})' for remark in remarks if remark)}"


def time_in_words(guesses: Sequence[Estimate | None]) -> str:
    """What runs with the same settings take: ``~ 12 min``, or each by itself where some are half done."""
    times = [
        "unknown" if guess is None else f"{'~ ' if guess.similar else ''}{duration(guess.seconds)}" for guess in guesses
    ]
    return times[0] if len(set(times)) == 1 else ", ".join(times)


def show_totals(
    todo: Sequence[PlannedRun],
    planned: int,
    hardware: str,
    estimates: Estimates,
    needed: Mapping[RunSpec, float | None],
) -> None:
    """How many runs, how many at a time, about how long that takes, and how that is known."""
    screen = console()
    parts = [f"{len(todo)} of {planned} runs to do on {hardware}"]
    if todo:
        parts[0] += f", {in_words(todo)}"
    known = [seconds for seconds in needed.values() if seconds is not None]
    if known:
        elsewhere = place_of(estimates, hardware)
        some = f" for {len(known)} of them" if len(known) < len(todo) else ""
        parts.append(f"about {duration(sum(known))}{some}{elsewhere}")
        if elsewhere:
            parts.append("no record says how fast this machine is")
    if len(known) < len(todo):
        parts.append(f"time unknown for {len(todo) - len(known)}")
    screen.print("; ".join(parts), soft_wrap=True)
    if any(guess is not None and guess.similar for guess in estimates.values()):
        screen.print("'~' is reckoned from runs with other settings", soft_wrap=True)


def sharing_hint(todo: Sequence[PlannedRun]) -> str:
    """Advice for runs whose steps are too small to fill a GPU; nothing where there are none, or one."""
    small = [run for run in todo if has_few_negatives(run.spec)]
    if len(small) < 2:
        return ""
    return (
        f"{len(small)} of them have at most {FEW_NEGATIVES} negatives: after `nvidia-cuda-mps-control -d` they go "
        "several at a time, and end sooner"
    )
