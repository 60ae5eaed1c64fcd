"""What `eans report` shows: tables on a terminal, text for pages and programs, files. Loads no PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from eans.errors import RunError
from eans.files import atomic_write
from eans.reproduction import figures, page
from eans.reproduction.published import Selection, read_cells, select
from eans.reproduction.records import Record, RunSpec, read_records
from eans.reproduction.report import RULE, Outcome, judge, summary
from eans.reproduction.tables import (
    FORMATS,
    TITLES,
    Text,
    by_table,
    render,
    text_table,
    to_csv,
    to_json,
    to_latex,
    to_markdown,
)
from eans.screen import choose, console


def report_with_display(
    names: Sequence[str],
    only: str,
    records: Path,
    cells: Path | None,
    format_: str,
    out: Path | None,
    page_file: Path | None,
) -> None:
    """`eans report`."""
    choose("--format", format_, FORMATS)
    published = read_cells(cells)
    selection = select(published, names, only)
    found = read_records(records)
    outcomes = judge(selection.cells, found)
    if page_file is not None:
        page.write(page_file, published, found, records)
        print(f"wrote {page_file}", file=sys.stderr)
        return
    if out is not None:
        write_files(out, selection, outcomes, found)
    if format_ == "table":
        show_report(outcomes)
        if selection.figures and out is None:
            console().print(f"figures ({', '.join(selection.figures)}): draw them with --out DIR", soft_wrap=True)
    else:
        print(render(outcomes, format_))


def show_report(outcomes: Sequence[Outcome]) -> None:
    """The tables, the rule, and how many cells pass."""
    screen = console()
    for name, rows in by_table(outcomes).items():
        table = rich_table(text_table(rows))
        if screen.measure(table, options=screen.options.update(max_width=10_000)).maximum > screen.width:
            table = rich_table(text_table(rows, brief=True))
        screen.print(f"{TITLES[name]} ({name})", style="bold")
        screen.print(table)
        screen.print()
    if outcomes:
        screen.print(summary(outcomes), soft_wrap=True)
        screen.print(RULE, soft_wrap=True)
    if not all(outcome.cell["own"] for outcome in outcomes):
        screen.print("'quoted' marks numbers that the paper takes from earlier work", soft_wrap=True)


def rich_table(text: Text) -> Table:
    """A table for the console."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, heading in enumerate(text.header):
        left = place < text.labels or heading == "hardware"
        table.add_column(
            heading.replace(" published", "\npublished"), justify="left" if left else "right", vertical="bottom"
        )
    for row in text.rows:
        table.add_row(*row)
    return table


def write_files(
    folder: Path, selection: Selection, outcomes: Sequence[Outcome], records: dict[RunSpec, Record]
) -> None:
    """All tables in all formats, and the figures that there are records for."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot create folder {folder}: {error.strerror}; choose another --out") from error
    for name, rows in by_table(outcomes).items():
        for ending, text in (("md", to_markdown(rows)), ("tex", to_latex(rows)), ("csv", to_csv(rows).rstrip("\n"))):
            atomic_write(folder / f"{name}.{ending}", f"{text}\n".encode())
    atomic_write(folder / "report.json", f"{to_json(outcomes)}\n".encode())
    drawn = {name: figures.draw(name, selection.drawn[name], records, folder) for name in selection.figures}
    print(f"wrote the tables and report.json to {folder}", file=sys.stderr)
    for name, done in drawn.items():
        print(f"figure {name}: {'drawn' if done else 'no records to draw it from'}", file=sys.stderr)
