"""Files that fix the ids: ``entities.dict`` and ``relations.dict``, with ``id<TAB>label`` lines in any order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eans.data.findings import brief
from eans.data.formats.delimited import read_columns
from eans.data.formats.dialect import Dialect
from eans.data.formats.source import FileSource
from eans.errors import DataError

COLUMNS = Dialect(names=("id", "label"), places={"id": 0, "label": 1})
MOST_DIGITS = 18  # fit 64 bits


def read_dict(source: FileSource, kind: str) -> pa.LargeStringArray:
    """The labels in the order of their ids, which must be 0 to n-1, each once."""
    columns = list(zip(*(batch.columns for batch in read_columns(source, COLUMNS)), strict=True))
    fields, labels = (pa.concat_arrays(column) for column in columns)
    written = _first(pc.invert(pc.match_substring_regex(fields, rf"^[0-9]{{1,{MOST_DIGITS}}}$")))
    row = min((found for found in (written, _first(pc.equal(labels, ""))) if found is not None), default=None)
    usable = slice(None) if row is None else slice(0, row)
    ids = fields[usable].cast(pa.int64()).to_numpy()
    _require_different(source, kind, ids, labels[usable])
    if row is not None:
        raise DataError(f"{source.place(row)}: {_reason(fields[row].as_py(), labels[row].as_py())}")
    size = len(ids)
    if ids.max() >= size:  # the ids are distinct, so one too large means that another is missing
        row = int((ids >= size).argmax())
        gap = int(np.setdiff1d(np.arange(size), ids)[0])
        raise DataError(
            f"{source.place(row)}: id {ids[row]} is out of range for {size} labels and id {gap} is missing; "
            f"number the labels 0 to {size - 1} without gaps"
        )
    order = np.empty(size, np.int64)
    order[ids] = np.arange(size)
    return labels.take(pa.array(order))


def _first(found: pa.BooleanArray) -> int | None:
    row: int = pc.index(found, True).as_py()
    return row if row >= 0 else None


def _require_different(source: FileSource, kind: str, ids: NDArray[np.int64], labels: pa.Array) -> None:
    """Raise for the first line whose id or label an earlier one has."""
    codes = labels.dictionary_encode().indices.to_numpy()
    later = {what: _repeated(values) for what, values in (("id", ids), ("label", codes))}
    row, what = min(((found, what) for what, found in later.items() if found is not None), default=(None, ""))
    if row is None:
        return
    values = ids if what == "id" else codes
    first = source.line_of(int((values == values[row]).argmax())) if source.line_of else 0
    if what == "id":
        raise DataError(f"{source.place(row)}: id {ids[row]} is already used on line {first}; each id may occur once")
    shown = f"{kind} {brief(labels[row].as_py())}"
    raise DataError(f"{source.place(row)}: {shown} is already on line {first}; each label may occur once")


def _repeated(values: NDArray[np.int64]) -> int | None:
    """The first place of a value that is not its first."""
    later = np.ones(len(values), dtype=bool)
    later[np.unique(values, return_index=True)[1]] = False
    return int(later.argmax()) if later.any() else None


def _reason(field: str, label: str) -> str:
    """What is wrong with a line."""
    if not field or not label:
        return f"empty {'label' if field else 'id'}; fill in the field or delete the line"
    if field.isascii() and field[1:].isdigit() and field[0] == "-" and len(field) <= MOST_DIGITS:
        return f"id {field} is out of range; ids start at 0"
    swapped = label.isascii() and label.isdigit()
    fix = "swap the columns to id<TAB>label" if swapped else "write lines as id<TAB>label with ids from 0"
    return f"id {brief(field)} is not an integer; {fix}"
