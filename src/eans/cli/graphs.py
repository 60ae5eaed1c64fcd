"""Graphs by name or folder, for a command: a bar while one is downloaded or built, warnings on standard error."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from eans.cli.options import (
    ColumnsOption,
    LabelsOption,
    LiteralsOption,
    QueryOption,
    SplitOption,
    StrictOption,
)
from eans.progress import Display

if TYPE_CHECKING:
    from eans.data import Finding
    from eans.graph import KnowledgeGraph
    from eans.splitting import Splitting


@dataclass(frozen=True)
class Reading:
    """What the options of a command say about files of triples; see `with_reading`."""

    strict: StrictOption = False
    split: SplitOption = None
    columns: ColumnsOption = None
    query: QueryOption = None
    literals: LiteralsOption = False
    labels: LabelsOption = None

    @property
    def of_files(self) -> dict[str, Any]:
        """The options that say what is in a file, by name."""
        return {"columns": self.columns, "query": self.query, "literals": self.literals}


def with_reading(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """For a command with an argument `reading`: it has the options that a `Reading` is made of, or those named."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(Reading, include_extras=True)
        options = [
            inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
            for one in fields(Reading)
            if not names or one.name in names
        ]
        signature = inspect.signature(command, eval_str=True)
        own = [parameter for parameter in signature.parameters.values() if parameter.name != "reading"]

        @functools.wraps(command)
        def called(**given: Any) -> None:
            reading = Reading(**{option.name: given.pop(option.name) for option in options})
            command(**given, reading=reading)

        called.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        return called

    return decorate


def load_graph(name: str, reading: Reading) -> KnowledgeGraph:
    """The graph behind a dataset name, file or folder (the bundled one for an empty name), with a bar if it is fetched.

    What is probably wrong with the files is told on standard error; `strict` makes it an error. It is split as
    `splitting_of` says.
    """
    from eans import data
    from eans.splitting import split_graph

    chosen = splitting_of(name, reading.split)  # a slip is told before anything is read
    with download_bar() as report:
        options = {**reading.of_files, "labels": reading.labels, "strict": reading.strict}
        graph = data.load(name or data.bundled_name(), progress=report, report=warn, **options)
    if chosen is None:
        return graph
    if reading.split is None:
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
def download_bar(then: str = "reading the graph") -> Iterator[Any]:
    """On a terminal, a bar per file that is downloaded or built, and what is done `then`; nothing in a pipe."""
    with doing(then) as display:

        def report(file: str, done: int, total: int) -> None:
            if display is not None:
                display.phase("")
                display.advance(f"fetching {file}", done, total or done + 1)
                if done >= total:
                    display.phase(then)

        yield report


@contextlib.contextmanager
def doing(what: str) -> Iterator[Display | None]:
    """Say on a terminal what is being done."""
    if not sys.stderr.isatty():
        yield None
        return
    with Display() as display:
        display.phase(what)
        yield display


def load_pytorch() -> None:
    """Import what takes longest to import, and say so."""
    with doing("loading PyTorch"):
        import torch  # noqa: F401
