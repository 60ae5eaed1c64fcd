"""``python -m paper report``: tables on a terminal, as Markdown or JSON, files, and the page. Loads no PyTorch."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from eans.errors import UsageError, did_you_mean
from eans.experiments import Experiment, Record, RecordStore, Table
from eans.files import atomic_write, make_folder
from paper import figures, labels, page
from paper.captions import caption
from paper.cells import Cell
from paper.figure_data import find, shown
from paper.layouts import LAYOUTS, remarks, to_markdown, wrapped
from paper.published import PAPER
from paper.report import Outcome, by_table, judge, summaries
from paper.schema import read_records
from paper.selection import Selection, read_cells, select
from paper.tables import TABLES

FORMATS = ("table", "markdown", "json")


def report(
    names: Sequence[str], only: str, records: Path, cells: Path, format_: str, out: Path | None, page_file: Path | None
) -> None:
    """Show the chosen tables, or write them."""
    if format_ not in FORMATS:
        raise UsageError(f"--format '{format_}' is not one of {', '.join(FORMATS)}{did_you_mean(format_, FORMATS)}")
    if page_file is not None:
        if names or only or out is not None or format_ != "table":
            raise UsageError("--page is about everything: no TABLE, --only, --format or --out beside it")
        if cells != PAPER:
            raise UsageError("--page has notes on the paper's cells: no --cells beside it; --out DIR takes others")
        if not page_file.parent.is_dir() or page_file.is_dir():
            raise UsageError(f"cannot write {page_file}: it is a folder, or has none; choose another --page")
    known = read_cells(cells)
    selection = select(known, names, only)
    if not records.exists():
        raise UsageError(f"there is no folder {records}; name one of run records with --records")
    found = read_records(RecordStore(records))
    outcomes = judge(selection.cells, found)
    for reason in selection.empty:
        print(f"paper: note: {reason}", file=sys.stderr)
    if format_ != "table" and not outcomes and out is None:
        raise UsageError(f"--format {format_} is about tables; figures ({', '.join(selection.figures)}) need --out DIR")
    if page_file is not None:
        make_folder(page_file.parent / "figures", "choose another --page")
        page.write(page_file, known, found, records)
        print(f"wrote {page_file}, and its figures to {page_file.parent / 'figures'}", file=sys.stderr)
        return
    if out is not None:
        write_files(out, selection, outcomes, found)
    if format_ == "table":
        show_report(outcomes)
        if selection.figures and out is None:
            print(f"figures ({', '.join(selection.figures)}): draw them with --out DIR")
    elif outcomes:
        print(render(outcomes, format_))


# --- on a terminal ----------------------------------------------------------------------------------------------------


def show_report(outcomes: Sequence[Outcome]) -> None:
    """The tables, how many cells pass, by which rule, and notes."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    tables, notes, narrow = by_table(outcomes), list[str](), False
    for name, rows in tables.items():
        texts = LAYOUTS[name](rows)
        for title, text in texts.items():
            fitted = fitting(text.table, width)
            narrow = narrow or fitted is not text.table
            print(f"{TABLES[name].title} ({name}){title and f': {title}'}\n{fitted}\n")
        notes += remarks(texts)
    notes += ["A wider screen, or a pipe, shows more columns."] if narrow else []
    for line in dict.fromkeys([*summaries(outcomes), *remarks({}, tables), *notes]):
        print(line)


def fitting(table: Table, width: int | None) -> Table:
    """As many columns from the left as a terminal has room for, but at least those that say what was run."""
    while width is not None and len(table.header) > table.labels + 1 and table_width(table) > width:
        table = Table(table.header[:-1], [row[:-1] for row in table.rows], table.labels)
    return table


def table_width(table: Table) -> int:
    """The columns of a terminal that it takes."""
    return max(map(len, str(table).splitlines()))


# --- as text ----------------------------------------------------------------------------------------------------------


def render(outcomes: Sequence[Outcome], format_: str) -> str:
    """The whole report in one of the formats for programs and pages."""
    if format_ == "json":
        return to_json(outcomes)
    return "\n\n".join(f"## {TABLES[name].title}\n\n{to_markdown(rows)}" for name, rows in by_table(outcomes).items())


def to_json(outcomes: Sequence[Outcome]) -> str:
    """A list of cells: their fields, then measured, difference, pass, records, and how these came about."""
    return json.dumps([outcome.to_dict() for outcome in outcomes], indent=2)


# --- files ------------------------------------------------------------------------------------------------------------


def write_files(
    folder: Path, selection: Selection, outcomes: Sequence[Outcome], records: Mapping[Experiment, Record]
) -> None:
    """All tables, if any were chosen; then the figures, for which a library may be missing."""
    make_folder(folder)
    for name, rows in by_table(outcomes).items():
        atomic_write(folder / f"{name}.md", f"{to_markdown(rows)}\n".encode())
    if outcomes:
        atomic_write(folder / "report.json", f"{to_json(outcomes)}\n".encode())
        print(f"wrote the tables and report.json to {folder}", file=sys.stderr)
    for name, cells in selection.drawn.items():
        done = figures.draw(name, cells, records, folder, ("svg", "png", "pdf"))
        if done:
            words = wrapped(caption(name, find(name, cells, records), cells, records))
            atomic_write(folder / f"{figures.file_name(name)}.txt", f"{words}\n".encode())
        what = "drawn" if done else "no records to draw it from" if cells else "it shows none of the chosen cells"
        print(f"figure {name}: {what}{left_out(name, cells)}", file=sys.stderr)


def left_out(name: str, cells: Sequence[Cell]) -> str:
    """A remark on a figure that has no room for all graphs and models of its cells; nothing where it has."""
    drawn = dict.fromkeys(map(labels.place, shown(name, cells)))
    others = set(map(labels.place, cells)) - drawn.keys()
    return f" ({', '.join(drawn)} alone; --only chooses others)" if drawn and others else ""
