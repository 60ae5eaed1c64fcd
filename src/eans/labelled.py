"""Labelled triples from what people have them in: lists, generators, NumPy arrays, data frames, tables of Arrow.

A frame is recognised by what it can do, columns by name: neither pandas, polars nor pyarrow is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral
from pathlib import PurePath
from typing import Any, Protocol

from eans.errors import UsageError

Labelled = tuple[str, str, str]
Partly = tuple[str | None, str | None, str | None]


class Array(Protocol):
    """What is used of an array of NumPy, or a tensor."""

    @property
    def shape(self) -> Any: ...

    def tolist(self) -> Any: ...


class Frame(Protocol):
    """What is used of a data frame of pandas or polars, whose columns have ``to_list``, or of a table of Arrow."""

    @property
    def columns(self) -> Any: ...

    def __getitem__(self, name: Any, /) -> Any: ...


Triples = Iterable[Sequence[str | int]] | Array | Frame

COLUMNS = ("head", "relation", "tail")
# What the three columns may be called.
NAMES = (
    COLUMNS,
    ("subject", "predicate", "object"),
    ("h", "r", "t"),
    ("s", "p", "o"),
    ("source", "relation", "target"),
)
MISSING = ("NAType", "NaTType")  # of pandas: neither equal nor unequal to itself


def labelled(triples: object, what: str = "triples") -> Iterator[Labelled]:
    """The triples, each part a string; an integer becomes its decimal text.

    Args:
        triples: rows of three labels: a list or another iterable, an array ``[n, 3]``, or a data frame.
        what: how an error names them.

    Raises:
        UsageError: one line that names the row, counted from 0, and what is wrong with it.
    """
    for number, triple in enumerate(_rows(triples, what)):
        # Nearly all are so; looking closer takes several times as long.
        if type(triple) is tuple and len(triple) == 3:
            head, relation, tail = triple
            if type(head) is type(relation) is type(tail) is str and head and relation and tail:
                yield triple
                continue
        yield _converted(triple, f"{what}, row {number}")


def partly_labelled(triples: object, what: str) -> Iterator[Partly]:
    """As `labelled`, where each part may be missing: None, an empty text, or what a data frame has instead."""
    for number, triple in enumerate(_rows(triples, what)):
        where = f"{what}, row {number}"
        head, relation, tail = (
            None if _is_missing(part) else _label(part, name, where)
            for part, name in zip(_three(triple, where), COLUMNS, strict=True)
        )
        yield head, relation, tail


def _rows(triples: Any, what: str) -> Iterable[Any]:
    if isinstance(triples, (str, bytes, PurePath)):
        raise UsageError(f"{what}: expected triples, got {triples!r}; a folder of files is opened with eans.load(...)")
    if hasattr(triples, "columns"):
        return _rows_of_frame(triples, what)
    if hasattr(triples, "shape") and hasattr(triples, "tolist"):
        shape = tuple(triples.shape)
        if len(shape) != 2 or shape[1] != 3:
            if shape == (0,):
                return []
            raise UsageError(f"{what}: expected an array of shape [n, 3], got {list(shape)}")
        return map(tuple, triples.tolist())
    if not isinstance(triples, Iterable):
        raise UsageError(f"{what}: expected triples (a list, an array or a data frame), got {_shown(triples)}")
    return triples


def _rows_of_frame(frame: Any, what: str) -> Iterable[Any]:
    """The rows of the columns that are named like the parts of a triple, or of the only three."""
    names = list(getattr(frame, "column_names", frame.columns))  # of a table of Arrow: `columns` are not their names
    lists = {name: _reader(frame[name]) for name in names if names.count(name) == 1}
    if None in lists.values():
        raise UsageError(f"{what}: cannot read a {type(frame).__name__}; give its rows as a list or an array")
    found = {str(name).strip().lower(): name for name in names}
    wanted = next(([found[name] for name in group] for group in NAMES if found.keys() >= set(group)), names)
    if len(wanted) != 3 or any(names.count(name) != 1 for name in wanted):
        columns = ", ".join(map(str, names))
        raise UsageError(
            f"{what}: expected columns head, relation and tail, or three in this order, got {columns}; choose three"
        )
    return zip(*(lists[name]() for name in wanted), strict=True)  # type: ignore[misc]


def _reader(column: Any) -> Callable[[], list[Any]] | None:
    """What gives the members of a column of pandas, polars or Arrow; None for anything else."""
    found: Callable[[], list[Any]] | None = getattr(column, "to_list", None) or getattr(column, "to_pylist", None)
    return found


def _converted(triple: Any, where: str) -> Labelled:
    parts = zip(_three(triple, where), COLUMNS, strict=True)
    head, relation, tail = (_label(part, name, where) for part, name in parts)
    return head, relation, tail


def _three(triple: Any, where: str) -> Sequence[Any]:
    """A row, if it has three parts."""
    if hasattr(triple, "tolist"):
        triple = triple.tolist()
    if isinstance(triple, (str, bytes)) or not isinstance(triple, Sequence):
        raise UsageError(f"{where}: a triple is three labels, head, relation and tail, not {_shown(triple)}")
    if len(triple) != 3:
        raise UsageError(
            f"{where}: expected three labels, head, relation and tail, got {len(triple)}: {_shown(triple)}"
        )
    return triple


def _is_missing(value: Any) -> bool:
    if isinstance(value, (str, float)):
        return value == "" or value != value
    return value is None or type(value).__name__ in MISSING


def _label(value: Any, name: str, where: str) -> str:
    if isinstance(value, str) and value:
        return str(value)
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(int(value))
    if _is_missing(value):
        raise UsageError(f"{where}: the {name} is missing ({value!r}); fill it in or drop the row")
    reason = "; a column of integers turns into floats where one is missing" if isinstance(value, float) else ""
    raise UsageError(
        f"{where}: the {name} {_shown(value)} is of type {type(value).__name__}, not a string or an integer{reason}"
    )


def _shown(value: object, limit: int = 80) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
