"""What `eans inspect` shows: a table of the last looks, CSV, JSON, files and figures; the report on a run."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from eans import recipes
from eans.display import load_graph
from eans.errors import UsageError
from eans.figures import require_matplotlib
from eans.files import atomic_write
from eans.graph import SPLITS, Split
from eans.inspection import Inspection, inspect_run, inspect_training, save, to_csv, to_json
from eans.inspection.figure import draw
from eans.inspection.looking import Progress as Report
from eans.inspection.page import render
from eans.inspection.records import short_names
from eans.inspection.report import report_run
from eans.recipes.build import resolve
from eans.runs import RunFolder
from eans.screen import choose, console, ranking_bars

FORMATS = ("table", "csv", "json")
# The number of a look, the heading of its column, and how it is written.
COLUMNS = (
    ("step", "step", "count"),
    ("gap", "score\ngap", "score"),
    ("above", "above\npositive", "share"),
    ("idle", "idle", "share"),
    ("masked", "masked", "share"),
    ("known", "false:\ntrain", "share"),
    ("held_out", "false:\nheld out", "share"),
    ("entities", "entities\ndrawn", "share"),
    ("effective", "entities\neffective", "share"),
    ("repeats", "repeats\nin row", "share"),
    ("sampling_ms", "ms\nsampling", "score"),
    ("step_ms", "ms\nstep", "score"),
    ("memory", "MB", "bytes"),
)
MEGABYTE = 1e6


def inspect_with_display(
    names: list[str],
    dataset: str | None,
    limit: int | None,
    every: int | None,
    probe: int,
    out: Path | None,
    format_: str,
    device: str,
    overrides: list[str],
) -> None:
    """`eans inspect sampler`."""
    choose("--format", format_, FORMATS)
    if out is not None:
        require_matplotlib()  # before an hour of training, not after
    for option, value in (("--steps", limit), ("--every", every), ("--probe", probe)):
        if value is not None and value < 1:
            raise UsageError(f"{option} must be at least 1, got {value}")
    runs = {name for name in names if RunFolder(Path(name)).recipe_file.is_file()}
    if runs == set(names) and (dataset is not None or limit is not None or every is not None or overrides):
        raise UsageError("a run folder is looked at as it is: give no --data, --steps, --every, --seed or --set")
    # All recipes are read before the first one is trained: a slip in the last name should not cost an hour.
    chosen = {name: recipes.load(name, overrides, dataset) for name in names if name not in runs}
    inspections = []
    for name in names:
        with training_bar(name) as report:
            if name in runs:
                found = inspect_run(name, probe=probe, device=device)
            else:
                graph = load_graph(chosen[name].data.name)
                recipe = resolve(chosen[name], graph)
                found = inspect_training(
                    recipe, graph, limit=limit, every=every, probe=probe, device=device, progress=report
                )
        inspections.append(found)
    if out is not None:
        save(inspections, out)
        draw(inspections, out)
    if format_ == "csv":
        print(to_csv(inspections), end="")
    elif format_ == "json":
        print(to_json(inspections))
    else:
        show_inspections(inspections)


def show_inspections(inspections: list[Inspection], screen: Console | None = None) -> None:
    """The last look of each: one row each or, where the screen is too narrow for that, one column each.

    Where so many columns do not fit either, there are several tables, of as many columns as do.
    """
    screen = screen or console()
    names = short_names([inspection.name for inspection in inspections])
    looks = [inspection.looks[-1] for inspection in inspections]
    rows = [[written(getattr(look, number), kind) for number, _, kind in COLUMNS] for look in looks]
    headings = [heading for _, heading, _ in COLUMNS]
    table = _table("negatives", headings, names, rows)
    if _fits(table, screen):
        screen.print(table)
    else:
        flat = [heading.replace("\n", " ") for heading in headings]
        for count in range(len(names), 0, -1):
            parts = [slice(start, start + count) for start in range(0, len(names), count)]
            tables = [_table("", names[part], flat, list(map(list, zip(*rows[part], strict=True)))) for part in parts]
            if count == 1 or all(_fits(table, screen) for table in tables):
                screen.print(*tables, sep="\n")
                break
    graphs, devices = (
        " and ".join(dict.fromkeys(getattr(inspection, name) for inspection in inspections))
        for name in ("graph", "device")
    )
    probes = sorted({inspection.probe for inspection in inspections})
    screen.print(
        f"last look, {graphs}, {' and '.join(f'{probe:,}' for probe in probes)} training triples on both sides,"
        f" {devices}; docs/inspecting.md says what each number means",
        soft_wrap=True,
    )


def _fits(table: Table, screen: Console) -> bool:
    """Is the screen wide enough for a table without folded cells?"""
    return screen.measure(table, options=screen.options.update(max_width=10_000)).maximum <= screen.width


def _table(corner: str, headings: list[str], names: list[str], rows: list[list[str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(corner, vertical="bottom", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", vertical="bottom", overflow="fold")
    for name, row in zip(names, rows, strict=True):
        table.add_row(name, *row)
    return table


def written(value: float | None, kind: str) -> str:
    """A number as the table shows it."""
    if value is None:
        return "-"
    if kind == "share":
        return f"{100.0 * value:.2f}%"
    if kind == "bytes":
        return f"{value / MEGABYTE:.2f}"
    return f"{value:,}" if kind == "count" else f"{value:.2f}"


@contextlib.contextmanager
def training_bar(name: str) -> Iterator[Report]:
    """A progress bar on standard error, so that the result can be piped."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        disable=not sys.stderr.isatty(),
        console=Console(stderr=True, markup=False, emoji=False),
        transient=True,
    )
    task = bar.add_task(name, total=None)
    with bar:
        yield lambda done, total: bar.update(task, completed=done, total=total)


def report_with_display(path: Path, out: Path | None, format_: str, split: str, device: str) -> None:
    """`eans inspect run`."""
    choose("--format", format_, ("html", "json"))
    choose("--split", split, SPLITS)
    if format_ == "html":
        require_matplotlib()  # before the ranking, not after
    RunFolder.open(path)
    target = out or path / "report.html"
    if target.is_dir() or not target.parent.is_dir():
        reason = "it is a folder" if target.is_dir() else f"there is no folder {target.parent}"
        raise UsageError(f"cannot write {target}: {reason}; name a file with --out")
    with ranking_bars() as progress:
        report = report_run(path, split=cast(Split, split), device=device, progress=progress)
    if format_ == "json" and out is None:
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    text = render(report) if format_ == "html" else json.dumps(report, indent=2, ensure_ascii=False) + "\n"
    atomic_write(target, text.encode())
    console().print(f"report: {target}", soft_wrap=True)
