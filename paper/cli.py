"""``python -m paper reproduce|freeze|report``: parse, make one call."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eans.commands import execute
from eans.streams import outlive_readers
from paper.published import PAPER
from paper.selection import FIGURES, KEYS
from paper.tables import TABLES

RECORDS = Path("paper/records")
PUBLISHED = Path("paper/published.toml")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The paper's tables and figures: run them, report them.",
)
Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TABLE|FIGURE",
        help=f"Tables: {', '.join(TABLES)}; figures: {', '.join(FIGURES)}. Default: the paper's, and order.",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE,...",
        help="Only cells with these values, for example model=rotate; repeatable, and a key given twice allows either"
        f" value. Keys: {', '.join(KEYS)}.",
    ),
]
Records = Annotated[Path, typer.Option(help="Folder of run records.")]
Cells = Annotated[Path, typer.Option(help="TOML file of cells in the place of the paper's.")]


@app.command()
def reproduce(
    names: Names = None,
    only: Only = None,
    seeds: Annotated[int, typer.Option(help="Run seeds 0 up to this number.")] = 3,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    records: Records = RECORDS,
    cells: Cells = PUBLISHED,
    workers: Annotated[int, typer.Option(help="Runs at a time.")] = 1,
    no_test: Annotated[bool, typer.Option("--no-test", help="Rank valid alone: records have no test metrics.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
) -> None:
    """Run what tables and figures need and has no record yet, then report. Ctrl-C loses nothing."""
    from paper.reproducing import reproduce as run

    outlive_readers()
    file = PAPER if cells == PUBLISHED else cells
    if not run(names or [], ",".join(only or []), seeds, device, records, file, workers, not no_test, dry_run):
        raise typer.Exit(1)


@app.command()
def freeze(
    names: Names = None,
    only: Only = None,
    seeds: Annotated[int, typer.Option(help="Seeds 0 up to this number.")] = 3,
    records: Records = RECORDS,
    cells: Cells = PUBLISHED,
    why: Annotated[str, typer.Option(help="By what the recipes were chosen, in a line.")] = "",
) -> None:
    """Enter recipes and seeds into the ledger, before their test triples are ranked."""
    from paper.freezing import freeze as run

    run(names or [], ",".join(only or []), seeds, records, PAPER if cells == PUBLISHED else cells, why)


@app.command()
def report(
    names: Names = None,
    only: Only = None,
    records: Records = RECORDS,
    cells: Cells = PUBLISHED,
    format: Annotated[str, typer.Option(help="table, markdown or json.")] = "table",
    out: Annotated[Path | None, typer.Option(help="Folder for the tables and the figures.")] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="Write docs/results/reproduction.md, or another file, and its figures beside it."),
    ] = None,
) -> None:
    """Published and measured side by side, from run records."""
    from paper.reporting import report as show

    show(names or [], ",".join(only or []), records, PAPER if cells == PUBLISHED else cells, format, out, page)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    execute(app, "python -m paper", arguments)
