"""A description as text: tables as wide as the terminal, or as their content where there is none."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

from eans.description.sections import Section
from eans.progress import plain_console, plain_table

if TYPE_CHECKING:
    from rich.console import Console

MOST_RELATIONS = 20


def show(found: Iterable[Section], console: Console) -> None:
    """Print tables with their titles and notes; of the relations, the most frequent ones."""
    for place, section in enumerate(found):
        title = f"{section.title}: {section.about}" if section.about else section.title
        console.print(("\n" if place else "") + title, style="bold", soft_wrap=True)
        rows = section.rows
        left_out = len(rows) - MOST_RELATIONS if section.key == "relations" else 0
        if rows:
            table = plain_table(*section.columns, right=section.columns[section.names :])
            for row in rows[:MOST_RELATIONS] if left_out > 0 else rows:
                table.add_row(*row)
            console.print(table)
        if left_out > 0:
            console.print(f"and {left_out:,} relations more: --html and --json have them all", soft_wrap=True)
        for note in section.notes:
            console.print(note, soft_wrap=True)


def written(found: Iterable[Section]) -> str:
    """What `show` prints where there is no terminal."""
    content = io.StringIO()
    show(found, plain_console(content))
    return content.getvalue().rstrip("\n")
