"""What checks of a graph's files share: a `Finding`, the triples with the places they were read from, and wording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eans.data.formats.source import FileSource
from eans.graph import HEAD, RELATION, SPLITS, TAIL, KnowledgeGraph, Split
from eans.labelled import PART_NAMES

Ints = NDArray[np.int64]

# Names of columns. A first line of which two fields are among them, and none occurs in another line, is a header.
HEADER = set().union(*PART_NAMES.values())


@dataclass(frozen=True)
class Finding:
    """Something in a graph's files that is probably a mistake.

    Attributes:
        code: which check found it, such as ``"leakage"``.
        count: how many triples, labels or files are concerned.
        example: where the first one is, ``file:line``; the folder for what is on no line.
        message: the whole line, `example` included.
    """

    code: str
    count: int
    example: str
    message: str


class Rows:
    """The triples as NumPy arrays ``[n, 3]``, and words for their places.

    Args:
        graph: what was read.
        folder: where from; or a single file.
        files: what each split was read from; of a path alone, one triple a line.
    """

    def __init__(self, graph: KnowledgeGraph, folder: Path, files: Mapping[Split, Path | FileSource]) -> None:
        self.graph, self.folder = graph, folder
        sources = {split: found if isinstance(found, FileSource) else _text(found) for split, found in files.items()}
        self.sources: dict[Split, FileSource] = sources
        self.files = {split: source.path for split, source in sources.items()}
        self.triples: dict[Split, Ints] = {split: graph.split(split).numpy() for split in SPLITS}
        self.read: list[Split] = [split for split in SPLITS if split in files and len(self.triples[split])]
        self.headers = headers(self)

    @cached_property
    def numbers(self) -> dict[Split, Ints]:
        """For each split a number for each triple ``[n]``, the same for equal ones, whatever the size of the graph."""
        numbers = np.unique(np.concatenate(list(self.triples.values())), axis=0, return_inverse=True)[1].reshape(-1)
        ends = np.cumsum([len(part) for part in self.triples.values()])
        return dict(zip(self.triples, np.split(numbers, ends[:-1]), strict=True))

    def place(self, split: Split, row: int) -> str:
        """``file:line``; the split alone where it was not read from a file."""
        return self.sources[split].place(row) if split in self.sources else split

    def near(self, split: Split, row: int, split_of_file: Split) -> str:
        """A second place in the same sentence: the line alone, in the same file."""
        if split not in self.files:
            return split
        source = self.sources[split]
        return source.near(row) if split == split_of_file else source.place(row).removeprefix(f"{source.path.parent}/")

    def shown(self, split: Split, row: int) -> str:
        """A triple by its labels."""
        head, relation, tail = self.triples[split][row].tolist()
        entities, relations = self.graph.entities, self.graph.relations
        return f"({brief(entities[head])}, {brief(relations[relation])}, {brief(entities[tail])})"

    def first(self, columns: list[int], index: int) -> tuple[Split, int] | None:
        """The first triple with this id in one of the columns."""
        for split in self.read:
            hits = np.flatnonzero((self.triples[split][:, columns] == index).any(axis=1))
            if len(hits):
                return split, int(hits[0])
        return None


def _text(path: Path) -> FileSource:
    return FileSource(path, line_of=lambda row: row + 1)


def headers(rows: Rows) -> list[Split]:
    """The splits whose first line names the columns. Files may share a header: its labels may be in each first line."""
    found: list[Split] = []
    entities, relations = rows.graph.entities, rows.graph.relations
    for split in rows.read:
        head, relation, tail = rows.triples[split][0].tolist()
        words = {label.strip().lower() for label in (entities[head], relations[relation], entities[tail])}
        if len(words) == 3 and len(words & HEADER) >= 2:
            below = [rows.triples[other][1:] for other in rows.read]
            elsewhere = any((part[:, RELATION] == relation).any() for part in below) or any(
                np.isin(part[:, [HEAD, TAIL]], (head, tail)).any() for part in below
            )
            found += [] if elsewhere else [split]
    return found


def brief(label: str, limit: int = 60) -> str:
    """A label in quotes on one line, cut short."""
    return repr(label if len(label) <= limit else label[: limit - 1] + "…")


def such(count: int, kind: str, label: str) -> str:
    """``relation 'a'``, or ``3 relations such as 'a'``."""
    plural = "entities" if kind == "entity" else f"{kind}s"
    return f"{kind} {brief(label)}" if count == 1 else f"{count:,} {plural} such as {brief(label)}"


def many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def be(count: int) -> str:
    return "is" if count == 1 else "are"


def listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
