"""What every reader of a format has in common: what it is asked, and what it gives.

A reader is a function ``read(source) -> Iterator[pa.RecordBatch]``. Its batches have the string columns ``head``,
``relation``, ``tail`` (any string or dictionary-of-string type, no nulls, no empty strings), and, if the source has
them, ``weight`` (float64) and ``time`` (any type that sorts). Readers decompress nothing themselves: they open their
file with `Source.open`. What they leave out, they count with `Source.drop`; what is wrong is a `DataError` of one
line, ``path:line: what is wrong; how to mend it``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from eans.arguments import flag, optional_text
from eans.labelled import OPTIONAL, PARTS, asked_columns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["OPTIONAL", "PARTS", "Dropped", "ReadOptions", "Reader", "Source"]


@dataclass(frozen=True)
class ReadOptions:
    """How a user wants a source to be read.

    Attributes:
        columns: part (``"head"``, ``"relation"``, ``"tail"``, ``"weight"``, ``"time"``) to the name of its column, or
            to its number from 1 where there is no header. Parts that are not named are found by the reader.
        query: SQL, for databases.
        literals: keep RDF literals as entities instead of leaving their triples out.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    query: str | None = None
    literals: bool = False

    @classmethod
    def of(cls, columns: object = None, query: object = None, literals: object = False) -> ReadOptions:
        """Options as a user gives them, checked."""
        return cls(asked_columns(columns), optional_text("query", query), flag("literals", literals))


@dataclass
class Dropped:
    """Triples or lines that a reader left out, for one reason.

    Attributes:
        reason: in words, such as ``"blank lines"`` or ``"triples with a literal as object"``.
        count: how many.
        example: the first one: ``path:line``, with the text where that helps.
    """

    reason: str
    count: int
    example: str


class Source(Protocol):
    """A file, a folder, a database or standard input that triples are read from.

    Attributes:
        path: of the file; what messages call it (``<stdin>`` for standard input).
        options: how to read it.
        prefixes: of IRIs, to what they stand for; a reader adds those that its document declares.
    """

    path: Path
    options: ReadOptions
    prefixes: dict[str, str]

    def open(self) -> AbstractContextManager[BinaryIO]:
        """The bytes, decompressed (gzip, zstd, bz2, by content); problems of the file are `DataError`s."""

    def drop(self, reason: str, count: int, example: str) -> None:
        """Count what was left out; counts of one reason are added up and its first example is kept."""


class Reader(Protocol):
    """A format's function; see the module."""

    def __call__(self, source: Source) -> Iterator[pa.RecordBatch]:
        """Batches of labelled triples, in the order of the source."""
