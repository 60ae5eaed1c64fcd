"""``eans inspect``: the negatives of samplers; a table of the last measurements, CSV, JSON, files and figures."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eans.cli.graphs import Reading, load_graph, with_reading
from eans.cli.options import (
    DataOption,
    DeviceOption,
    SeedOption,
    SetOption,
    choose,
    overrides_of,
    require_given,
)
from eans.cli.report import report
from eans.cli.tables import plain_table
from eans.errors import UsageError
from eans.progress import plain_console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from eans.inspection import Inspection

app = typer.Typer(no_args_is_help=True, help="Measure the negatives of samplers.")
app.command("run", hidden=True)(report)

FORMATS = ("table", "csv", "json")
# The number of a measurement, the heading of its column, and how it is written.
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


@app.command("sampler")
@with_reading("columns", "query", "literals")
def inspect_sampler(
    what: Annotated[list[str], typer.Argument(metavar="RECIPE|RUN", help="Recipes to train, or run folders.")],
    data: DataOption = None,
    steps: Annotated[int | None, typer.Option(help="Stop after so many steps. Default: the recipe's.")] = None,
    every: Annotated[int | None, typer.Option(help="Steps between two measurements. Default: ten of them.")] = None,
    probe: Annotated[int, typer.Option(help="How many training triples to draw negatives for.")] = 2048,
    out: Annotated[Path | None, typer.Option(help="Folder for the numbers and a figure over the steps.")] = None,
    format: Annotated[str, typer.Option(help="table, csv or json.")] = "table",
    seed: SeedOption = None,
    device: DeviceOption = "auto",
    set_: SetOption = None,
    *,
    reading: Reading,
) -> None:
    """How hard, how wrong, how varied and how expensive negatives are; several samplers side by side."""
    from eans.figures import require_matplotlib
    from eans.inspection import save, to_csv, to_json
    from eans.inspection.figure import draw

    choose("--format", format, FORMATS)
    require_given("--data", data)
    if out is not None:
        require_matplotlib()  # before an hour of training, not after
    for option, value in (("--steps", steps), ("--every", every), ("--probe", probe)):
        if value is not None and value < 1:
            raise UsageError(f"{option} must be at least 1, got {value}")
    found = _inspected(what, data, steps, every, probe, device, overrides_of(set_, seed), reading)
    if out is not None:
        save(found, out)
        draw(found, out)
    if format == "csv":
        print(to_csv(found), end="")
    elif format == "json":
        print(to_json(found))
    else:
        show_inspections(found)


def _inspected(
    names: list[str],
    data: str | None,
    limit: int | None,
    every: int | None,
    probe: int,
    device: str,
    overrides: list[str],
    reading: Reading,
) -> list[Inspection]:
    """An inspection of each recipe, which is trained for it, and of each run folder."""
    from eans import recipes
    from eans.files import as_path
    from eans.inspection import inspect_run, inspect_training
    from eans.recipes.build import resolve
    from eans.runs import RunFolder

    runs = {name for name in names if RunFolder(as_path(name, "run folder")).recipe_file.is_file()}
    if runs == set(names) and (data is not None or limit is not None or every is not None or overrides):
        raise UsageError("a run folder is measured as it is: give no --data, --steps, --every, --seed or --set")
    # All recipes are read before the first one is trained: a slip in the last name should not cost an hour.
    chosen = {name: recipes.load(name, overrides, data) for name in names if name not in runs}
    found = []
    graph_of = cache(partial(load_graph, reading=reading))  # read once, and what is wrong with it told once
    for name in names:
        if name in runs:
            found.append(inspect_run(name, probe=probe, device=device))
            continue
        graph = graph_of(chosen[name].data.name)
        recipe = resolve(chosen[name], graph)
        found.append(inspect_training(recipe, graph, limit=limit, every=every, probe=probe, device=device))
    return found


def show_inspections(inspections: list[Inspection], console: Console | None = None) -> None:
    """The last measurement of each: one row each or, where the console is too narrow for that, one column each.

    Where so many columns do not fit either, there are several tables, of as many columns as do.
    """
    from eans.inspection.records import short_names

    console = console or plain_console()
    names = short_names([inspection.name for inspection in inspections])
    last = [inspection.measurements[-1] for inspection in inspections]
    rows = [[written(getattr(found, number), kind) for number, _, kind in COLUMNS] for found in last]
    headings = [heading for _, heading, _ in COLUMNS]
    table = _table("negatives", headings, names, rows)
    if _fits(table, console):
        console.print(table)
    else:
        flat = [heading.replace("\n", " ") for heading in headings]
        for count in range(len(names), 0, -1):
            parts = [slice(start, start + count) for start in range(0, len(names), count)]
            tables = [_table("", names[part], flat, list(map(list, zip(*rows[part], strict=True)))) for part in parts]
            if count == 1 or all(_fits(table, console) for table in tables):
                console.print(*tables, sep="\n")
                break
    graphs, devices = (
        " and ".join(dict.fromkeys(getattr(inspection, name) for inspection in inspections))
        for name in ("graph", "device")
    )
    probes = sorted({inspection.probe for inspection in inspections})
    console.print(
        f"last measurement, {graphs}, {' and '.join(f'{probe:,}' for probe in probes)} training triples on both sides,"
        f" {devices}; docs/how-to/inspect.md says what each number means",
        soft_wrap=True,
    )


def _fits(table: Table, console: Console) -> bool:
    """Is the console wide enough for a table without folded cells?"""
    return console.measure(table, options=console.options.update(max_width=10_000)).maximum <= console.width


def _table(corner: str, headings: list[str], names: list[str], rows: list[list[str]]) -> Table:
    table = plain_table()
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
