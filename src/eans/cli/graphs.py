"""Graphs by name or folder, for a command: a bar while one is downloaded or built, warnings on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import TaskID

    from eans.data import Finding
    from eans.graph import KnowledgeGraph


def load_graph(name: str, strict: bool = False) -> KnowledgeGraph:
    """The graph behind a dataset name or folder (the bundled one for an empty name), with a bar if it is fetched.

    What is probably wrong with a folder's files is told on standard error; `strict` makes it an error.
    """
    from eans import data

    with download_bar() as report:
        return data.load(name or data.bundled_name(), strict=strict, progress=report, report=warn)


def warn(finding: Finding) -> None:
    """One line on standard error."""
    print(f"eans: warning: {finding.message}", file=sys.stderr)


@contextlib.contextmanager
def download_bar() -> Iterator[Any]:
    """A progress bar per file on a terminal; nothing in a pipe."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    bar = Progress(
        TextColumn("fetching {task.description}"),
        BarColumn(),
        disable=not sys.stderr.isatty(),
        console=Console(stderr=True),
    )
    tasks: dict[str, TaskID] = {}

    def report(file: str, done: int, total: int) -> None:
        if file not in tasks:
            tasks[file] = bar.add_task(file, total=total or None)
        bar.update(tasks[file], completed=done)

    with bar:
        yield report
