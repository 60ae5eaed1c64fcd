"""What `eans report` shows: tables on a terminal, text for pages and programs, files. Loads no PyTorch."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from eans.errors import UsageError
from eans.files import atomic_write, make_folder
from eans.reproduction import figures, labels, page
from eans.reproduction.captions import caption
from eans.reproduction.cells import Cell
from eans.reproduction.columns import Text
from eans.reproduction.figure_data import find, shown
from eans.reproduction.formats import FORMATS, render, to_csv, to_json, to_latex, to_markdown, wrapped
from eans.reproduction.layouts import BRIEF, FULL, LAYOUTS, PRINTED
from eans.reproduction.records import Record, RunSpec, read_records
from eans.reproduction.report import Outcome, by_table, judge, summaries
from eans.reproduction.selection import Selection, read_cells, select
from eans.reproduction.tables import TABLES, rules_in_words
from eans.screen import choose, console

FORMS = ((FULL, 2), (PRINTED, 1), (BRIEF, 1))  # the widest that fits, and the spaces between its columns


def report_cells_with_display(
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
    if page_file is not None:
        if names or only or out is not None or format_ != "table":
            raise UsageError("--page is about everything: no TABLE, --only, --format or --out beside it")
        if cells is not None:
            raise UsageError("--page has notes on the paper's cells: no --cells beside it; --out DIR takes others")
        require_place(page_file)
    known = read_cells(cells)
    selection = select(known, names, only)
    if not records.exists():
        raise UsageError(f"there is no folder {records}; name one of run records with --records")
    found = read_records(records)
    outcomes = judge(selection.cells, found)
    for reason in selection.empty:
        print(f"eans: note: {reason}", file=sys.stderr)
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
            console().print(f"figures ({', '.join(selection.figures)}): draw them with --out DIR", soft_wrap=True)
    elif outcomes:
        print(render(outcomes, format_))


def require_place(page_file: Path) -> None:
    """Raise unless the page can be written, and figures beside it: before anything is drawn."""
    folder = page_file.parent
    reasons = {
        "it is a folder": page_file.is_dir(),
        f"there is no folder {folder}": not folder.is_dir(),
        f"{folder} is read-only": not os.access(folder, os.W_OK),
        f"{folder / 'figures'} is not a folder": (folder / "figures").exists() and not (folder / "figures").is_dir(),
    }
    for reason, applies in reasons.items():
        if applies:
            raise UsageError(f"cannot write {page_file}: {reason}; choose another --page")


def show_report(outcomes: Sequence[Outcome]) -> None:
    """The tables, how many cells pass, by which rule, and notes."""
    screen = console()
    tables = by_table(outcomes)
    notes: list[str] = []
    narrow = False
    for name, rows in tables.items():
        for style, gap in FORMS:
            texts = LAYOUTS[name](style, rows)
            if all(width(rich_table(text, gap), screen) <= screen.width for text in texts.values()):
                break
        narrow = narrow or style is not FULL
        for title, text in texts.items():
            heading = f"{TABLES[name].title} ({name}){title and f': {title}'}"
            if len(heading) > screen.width:
                heading = heading.replace(": ", ":\n", 1)
            screen.print(heading, style="bold")
            screen.print(rich_table(text, gap))
            screen.print()
            notes += text.notes
    notes += ["A wider screen, or a pipe, shows more columns."] if narrow else []
    for line in dict.fromkeys([*summaries(outcomes), *rules_in_words(tuple(tables)), *notes]):
        screen.print(line, soft_wrap=True)


def width(table: Table, screen: Console) -> int:
    """The columns that a table takes where nothing is folded."""
    return screen.measure(table, options=screen.options.update(max_width=10_000)).maximum


def rich_table(text: Text, gap: int) -> Table:
    """A table for the console, with so many spaces between two columns."""
    table = Table(box=None, pad_edge=False, padding=(0, 0, 0, gap), header_style="bold")
    for place, heading in enumerate(text.headings):
        justify: Literal["left", "right"] = "left" if text.is_left(place) else "right"
        table.add_column(heading.replace(" ", "\n"), justify=justify, vertical="bottom", overflow="fold")
    for row in text.rows:
        table.add_row(*row)
    return table


def left_out(name: str, cells: Sequence[Cell]) -> str:
    """A remark on a figure that has no room for all graphs and models of its cells; nothing where it has."""
    drawn = dict.fromkeys(map(labels.place, shown(name, cells)))
    others = set(map(labels.place, cells)) - drawn.keys()
    return f" ({', '.join(drawn)} alone; --only chooses others)" if drawn and others else ""


def write_files(
    folder: Path, selection: Selection, outcomes: Sequence[Outcome], records: dict[RunSpec, Record]
) -> None:
    """All tables, if any were asked for, in all formats; then the figures, for which a library may be missing."""
    make_folder(folder)
    for name, rows in by_table(outcomes).items():
        for ending, text in (("md", to_markdown(rows)), ("tex", to_latex(rows)), ("csv", to_csv(rows).rstrip("\n"))):
            atomic_write(folder / f"{name}.{ending}", f"{text}\n".encode())
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
