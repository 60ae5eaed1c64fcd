"""Queries by name: rows of head, relation and tail of which one is empty, from a file or from memory, as ids."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from eans.arguments import shown
from eans.errors import DataError, EansError, UsageError
from eans.graph import KnowledgeGraph
from eans.labelled import PARTS, Triples, partly_labelled
from eans.table_files import ROWS, TEXT, TableReader

# A path of a file, or rows of labels in any form that `KnowledgeGraph.from_labels` takes, with one of three missing.
QueryTable = str | Path | Triples
ADVICE = "leave the one to predict empty, and fill in the other two"
EMPTY = {0: "none of head, relation and tail is", 2: "two of head, relation and tail are", 3: "all three are"}


class Block(NamedTuple):
    """Some queries.

    Attributes:
        numbers: the row of each, counted from 0, int64 ``[n]``.
        triples: ids, int64 ``[n, 3]``; -1 for what is asked for.
    """

    numbers: Tensor
    triples: Tensor


class Queries:
    """The queries of a table, a block at a time.

    Args:
        table: where they are.
        graph: whose labels they use.
        skip_unknown: leave out those with a label that the graph does not have, and count them; otherwise an error.

    Attributes:
        total: how many rows there are, None if that is not known before.
        read: how many rows were read so far.
        skipped: how many of these were left out.
        first_skipped: the first of them, and why, in words.
    """

    def __init__(self, table: QueryTable, graph: KnowledgeGraph, skip_unknown: bool = False) -> None:
        self.graph, self.skip_unknown = graph, skip_unknown
        self.file = TableReader(table, PARTS) if isinstance(table, (str, Path)) else None
        self.table = table
        self.total = self.file.total if self.file else _length(table)
        self.read, self.skipped, self.first_skipped = 0, 0, ""
        self._blank: int | None = None  # where empty rows began, which nothing but the end of a file may follow

    def blocks(self, most: int) -> Iterator[Block]:
        """The queries in their order, at most so many rows at a time."""
        for columns in self.file or _columns(self.table):
            for start in range(0, len(columns[0]), most):
                yield self._block([column.slice(start, most) for column in columns])

    def _block(self, columns: list[pa.Array]) -> Block:
        first, self.read = self.read, self.read + len(columns[0])
        graph = self.graph
        vocabularies = (graph.entities, graph.relations, graph.entities)
        ids = torch.stack([known.ids_of(column) for known, column in zip(vocabularies, columns, strict=True)], 1)
        empty = torch.stack([_empty(column) for column in columns], 1)
        unknown = ((ids < 0) & ~empty).any(1)
        asked = empty.sum(1)
        wrong = asked != 1
        if self.file is not None and self.file.format != "parquet":
            self._check_blanks(asked == 3, first)
            wrong &= asked != 3
        refused = wrong if self.skip_unknown else wrong | unknown
        for row in torch.nonzero(refused).flatten()[:1].tolist():
            if wrong[row]:
                raise self._error(first + row, f"{EMPTY[int(asked[row])]} empty; {ADVICE}")
            reason = self._unknown(columns, ids[row], row)
            raise self._error(first + row, f"{reason} (--skip-unknown, or skip_unknown=True, leaves such rows out)")
        for row in torch.nonzero(unknown).flatten()[:1].tolist():
            self.first_skipped = self.first_skipped or (
                f"{self._place(first + row)}: {self._unknown(columns, ids[row], row)}"
            )
        self.skipped += int(unknown.sum())
        rows = torch.nonzero((asked == 1) & ~unknown).flatten()
        return Block(first + rows, ids[rows])

    def _check_blanks(self, blank: Tensor, first: int) -> None:
        """Empty rows at the end of a file of text are no queries; elsewhere they are a mistake."""
        filled = torch.nonzero(~blank).flatten()
        last = int(filled[-1]) + 1 if len(filled) else 0
        inside = (torch.nonzero(blank[:last]).flatten() + first).tolist()
        if last and self._blank is not None:
            inside.insert(0, self._blank)
        if inside:
            raise self._error(inside[0], f"the row is empty; {ADVICE}, or delete the row")
        if last < len(blank) and self._blank is None:
            self._blank = first + last

    def _unknown(self, columns: list[pa.Array], ids: Tensor, row: int) -> str:
        """What is wrong with the first label that the graph does not have."""
        for column, place, kind in zip(columns, ids.tolist(), ("entities", "relations", "entities"), strict=True):
            label, known = column[row].as_py(), getattr(self.graph, kind)
            if label and place < 0:
                return f"unknown {known.kind} {shown(label)}{known.nearest(label)}"
        return ""

    def _place(self, row: int) -> str:
        return self.file.place(row) if self.file else f"queries, row {row}"

    def _error(self, row: int, reason: str) -> EansError:
        return (DataError if self.file else UsageError)(f"{self._place(row)}: {reason}")


def _columns(table: Any) -> Iterator[list[pa.Array]]:
    queries = partly_labelled(table, "queries")
    while rows := list(islice(queries, ROWS)):
        try:
            yield [pa.array(column, TEXT) for column in zip(*rows, strict=True)]
        except UnicodeEncodeError as error:
            raise UsageError(f"queries: label {shown(error.object)} is no text that UTF-8 can hold") from error


def _length(table: Any) -> int | None:
    try:
        return len(table)
    except TypeError:
        return None


def _empty(column: pa.Array) -> Tensor:
    filled = pc.fill_null(pc.binary_length(column), 0)
    return torch.from_numpy(filled.to_numpy(zero_copy_only=False) == 0)
