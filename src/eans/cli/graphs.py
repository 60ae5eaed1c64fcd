"""Graphs by name or folder, for a command: a bar while one is downloaded or built, warnings on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import TaskID

    from eans.data import Finding
    from eans.graph import KnowledgeGraph
    from eans.splitting import Splitting


@dataclass(frozen=True)
class Reading:
    """What the options of a command say about files of triples."""

    columns: str | None = None
    query: str | None = None
    literals: bool = False

    @property
    def given(self) -> bool:
        """Whether they say anything."""
        return self != Reading()


def load_graph(
    name: str, strict: bool = False, split: str | None = None, reading: Reading | None = None
) -> KnowledgeGraph:
    """The graph behind a dataset name, file or folder (the bundled one for an empty name), with a bar if it is fetched.

    What is probably wrong with the files is told on standard error; `strict` makes it an error. It is split as
    `splitting_of` says.
    """
    from eans import data
    from eans.splitting import split_graph

    chosen = splitting_of(name, split)  # a slip is told before anything is read
    with download_bar() as report:
        options = asdict(reading or Reading())
        graph = data.load(name or data.bundled_name(), strict=strict, progress=report, report=warn, **options)
    if chosen is None:
        return graph
    if split is None:
        print(
            f"eans: {name} is one file: split 80/10/10 into train, valid, test (--split none: train)", file=sys.stderr
        )
    return split_graph(graph, chosen, warn)


def splitting_of(name: str, split: str | None) -> Splitting | None:
    """What --split says; without it a single file is split, and what has splits is not."""
    from eans.data import is_file, is_registered
    from eans.splitting import Splitting

    if split is None:
        return Splitting() if name and not is_registered(name) and is_file(Path(name)) else None
    return None if split.strip() == "none" else Splitting.parse(split)


@contextlib.contextmanager
def split_kept(graph: KnowledgeGraph, source: str, split: str | None, run: Path) -> Iterator[None]:
    """In the end, write the splits of a graph into a run folder that has come to be, unless they were there before."""
    from eans.runs import RunFolder
    from eans.splitting import save_split

    chosen = splitting_of(source, split)
    try:
        yield
    finally:
        if chosen is not None and RunFolder(run).graph_file.is_file():
            save_split(graph, run / "split", {"source": source, **chosen.to_dict()})


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
