"""Labelled triples from what people have them in: lists, generators, NumPy arrays, data frames, Arrow tables.

A frame is recognised by what it can do, columns by name: none of pandas, polars and pyarrow is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from eans.arguments import several, shown
from eans.errors import UsageError, did_you_mean

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

PARTS = ("head", "relation", "tail")
OPTIONAL = ("weight", "time")
# What the three columns may be called.
NAMES = (
    PARTS,
    ("subject", "predicate", "object"),
    ("h", "r", "t"),
    ("s", "p", "o"),
    ("source", "relation", "target"),
)
# What each of them may be called if all three are found so.
PART_NAMES = {
    "head": {*("head", "h", "head_id", "subject", "subj", "s", "source", "src", "from", "start", "entity1")},
    "relation": {
        *("relation", "rel", "r", "relation_id", "relation_type", "predicate", "pred", "p", "property", "edge", "type"),
    },
    "tail": {*("tail", "t", "tail_id", "object", "obj", "o", "target", "tgt", "to", "end", "entity2")},
}
MISSING = ("NAType", "NaTType")  # of pandas: neither equal nor unequal to itself


def labelled(triples: object, what: str = "triples", columns: Mapping[str, str] | None = None) -> Iterator[Labelled]:
    """The triples, each part a string; an integer becomes its decimal text.

    Args:
        triples: rows of three labels: a list or another iterable, an array ``[n, 3]``, or a data frame.
        what: how an error names them.
        columns: of a data frame, as `asked_columns` gives them.

    Raises:
        UsageError: one line that names the row, counted from 0, and what is wrong with it.
    """
    for number, triple in enumerate(_rows(triples, what, columns or {})):
        # Nearly all are so; looking closer takes several times as long.
        if type(triple) is tuple and len(triple) == 3:
            head, relation, tail = triple
            if type(head) is type(relation) is type(tail) is str and head and relation and tail:
                yield triple
                continue
        yield _converted(triple, f"{what}, row {number}")


def partly_labelled(triples: object, what: str) -> Iterator[Partly]:
    """As `labelled`, where each part may be missing: None, an empty text, or what a data frame has instead."""
    for number, triple in enumerate(_rows(triples, what, {})):
        where = f"{what}, row {number}"
        head, relation, tail = (
            None if _is_missing(part) else _label(part, name, where)
            for part, name in zip(_three(triple, where), PARTS, strict=True)
        )
        yield head, relation, tail


def _rows(triples: Any, what: str, columns: Mapping[str, str]) -> Iterable[Any]:
    if isinstance(triples, (str, bytes, PurePath)):
        raise UsageError(f"{what}: expected triples, got {triples!r}; a folder of files is opened with eans.load(...)")
    if hasattr(triples, "columns"):
        return _rows_of_frame(triples, what, columns)
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


def _rows_of_frame(frame: Any, what: str, asked: Mapping[str, str]) -> Iterable[Any]:
    return zip(*map(_listed, columns_of_frame(frame, what, asked)), strict=True)


def columns_of_frame(frame: Any, what: str, asked: Mapping[str, str]) -> list[Any]:
    """The columns that are named like the parts of a triple, or the only three: heads, relations and tails."""
    places, names = _places_in_frame(frame, what, asked), _names(frame)
    return [frame[names[places[part]]] for part in PARTS]


def _places_in_frame(frame: Any, what: str, asked: Mapping[str, str]) -> dict[str, int]:
    names = _names(frame)
    if not all(
        hasattr(frame[name], "to_list") or hasattr(frame[name], "to_pylist") for name in names if names.count(name) == 1
    ):
        raise UsageError(f"{what}: cannot read a {type(frame).__name__}; give its rows as a list or an array")
    try:
        places = part_places([str(name) for name in names], asked)
    except UsageError as error:
        raise UsageError(f"{what}: {error}") from None
    if places is None or any(names.count(names[at]) != 1 for at in places.values()):
        columns = ", ".join(map(str, names))
        raise UsageError(
            f"{what}: expected columns head, relation and tail, or three in this order, got {columns}; choose three"
        )
    return places


def _names(frame: Any) -> list[Any]:
    return list(frame.column_names if hasattr(frame, "column_names") else frame.columns)  # of Arrow, of others


def _listed(column: Any) -> list[Any]:
    found: list[Any] = column.to_list() if hasattr(column, "to_list") else column.to_pylist()
    return found


def extras(triples: object, columns: Mapping[str, str], what: str) -> dict[str, list[Any]]:
    """The weights and times of a data frame that are asked for, by part."""
    if not hasattr(triples, "columns"):
        if columns:
            raise UsageError(f"{what}: columns are those of a data frame, and this is a {type(triples).__name__}")
        return {}
    asked = [part for part in OPTIONAL if part in columns]
    places = _places_in_frame(triples, what, columns) if asked else {}
    return {part: _listed(triples[_names(triples)[places[part]]]) for part in asked}  # type: ignore[index]


def weights_of(values: Sequence[Any], what: str) -> NDArray[np.float32]:
    """Weights of triples, which must be finite numbers from 0 on."""
    for row, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < inf:
            raise UsageError(f"{what}, row {row}: the weight {shown(value)} is no finite number from 0 on")
    return np.array(values, np.float32)


def times_of(times: object, count: int) -> NDArray[np.int64] | NDArray[np.float64]:
    """Times of triples as numbers: their own, or their ranks where they are texts or dates."""
    values = several("times", times, "times, one for each triple")
    if len(values) != count:
        raise UsageError(f"times: expected one for each of {count} triples, got {len(values)}")
    try:
        found = np.asarray(values)
        if found.shape == (count,) and found.dtype.kind in "iu":
            return found.astype(np.int64)
        if found.shape == (count,) and found.dtype.kind == "f" and np.isfinite(found).all():
            return found.astype(np.float64)
        if found.shape == (count,) and found.dtype.kind in "UMO" and None not in values:
            return np.unique(found, return_inverse=True)[1].astype(np.int64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise UsageError("times must be numbers, dates or texts, all of one kind, and none may be missing")


def asked_columns(columns: object) -> dict[str, str]:
    """Part to the name or number of its column, from a mapping or from a text, ``head=subject,weight=confidence``."""
    if columns is None:
        return {}
    if isinstance(columns, str):
        pairs = [(part.strip(), name.strip()) for part, _, name in (word.partition("=") for word in columns.split(","))]
    elif isinstance(columns, Mapping):
        pairs = [(part, str(name) if type(name) is int else name) for part, name in columns.items()]
    else:
        raise UsageError(f"columns must be like {{'head': 'subject', 'weight': 'confidence'}}, got {shown(columns)}")
    for part, name in pairs:
        known = (*PARTS, *OPTIONAL)
        if part not in known:
            raise UsageError(
                f"columns: unknown part {shown(part)}{did_you_mean(part, known)} (one of {', '.join(known)})"
            )
        if not isinstance(name, str) or not name:
            raise UsageError(f"columns: {part} is {shown(name)}; give the name of a column, or its number from 1")
    found = dict(pairs)
    for kind, values in (("part", [part for part, _ in pairs]), ("column", [name for _, name in pairs])):
        if twice := next((value for value in values if values.count(value) > 1), None):
            raise UsageError(f"columns: the {kind} {shown(twice)} is given twice")
    return found


def part_places(names: Sequence[str], asked: Mapping[str, str], positional: bool = True) -> dict[str, int] | None:
    """Where the parts of a triple are among columns, weight and time among them if they are called so; None if unclear.

    Args:
        names: of the columns.
        asked: part to the name of its column, or its number from 1. The others are found by their usual names.
        positional: whether the only columns that are left are head, relation and tail in this order.

    Raises:
        UsageError: a column that is asked for is not there.
    """
    lowered = [name.strip().lower() for name in names]
    once = {name: at for at, name in enumerate(lowered) if lowered.count(name) == 1}
    places = {part: _asked_place(names, name, part) for part, name in asked.items()}
    if len(set(places.values())) < len(places):
        raise UsageError(f"columns: two parts are in one column of {', '.join(names)}; give each its own")
    free = {name: at for name, at in once.items() if at not in places.values()}
    places |= {part: free.pop(part) for part in OPTIONAL if part in free and part not in places}
    left = [part for part in PARTS if part not in places]
    for group in NAMES:
        usual = dict(zip(PARTS, group, strict=True))
        if all(usual[part] in free for part in left):
            return places | {part: free[usual[part]] for part in left}
    candidates = {part: [at for name, at in free.items() if name in PART_NAMES[part]] for part in left}
    if all(len(found) == 1 for found in candidates.values()):
        return places | {part: found[0] for part, found in candidates.items()}
    others = [at for at in range(len(names)) if at not in places.values()]
    if positional and len(others) == len(left):
        return places | dict(zip(left, others, strict=True))
    return None


def _asked_place(names: Sequence[str], name: str, part: str) -> int:
    exact = [at for at, found in enumerate(names) if found.strip() == name]
    exact = exact or [at for at, found in enumerate(names) if found.strip().lower() == name.lower()]
    if len(exact) > 1:
        raise UsageError(f"columns: {len(exact)} columns are called {shown(name)}; give its number for {part}")
    if exact:
        return exact[0]
    if name.isascii() and name.isdigit() and 1 <= int(name) <= len(names):
        return int(name) - 1
    guess = did_you_mean(name, names)
    raise UsageError(f"columns: no column {shown(name)} for {part}{guess}; there are {len(names)}: {', '.join(names)}")


def _converted(triple: Any, where: str) -> Labelled:
    parts = zip(_three(triple, where), PARTS, strict=True)
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
