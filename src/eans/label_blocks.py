"""Labelled triples, in whatever form, as Arrow arrays of labels: many rows at a time, where the form allows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eans.arguments import shown
from eans.errors import DataError
from eans.labelled import PARTS, Triples, columns_of_frame, labelled
from eans.vocabulary import LABELS, array_of

BLOCK = 1 << 18  # rows
TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
Columns = tuple[pa.LargeStringArray, pa.LargeStringArray, pa.LargeStringArray]


def label_blocks(triples: Triples, what: str, columns: Mapping[str, str]) -> Iterator[Columns]:
    """Heads, relations and tails, row by row what `eans.labelled.labelled` gives for the same arguments."""
    found = _as_columns(triples, what, columns)
    if found is not None:
        for start in range(0, len(found[0]), BLOCK):
            head, relation, tail = (_combined(column.slice(start, BLOCK)) for column in found)
            yield head, relation, tail
        return
    rows = labelled(triples, what, columns)
    while block := list(islice(rows, BLOCK)):
        head, relation, tail = (
            _encoded(column, part) for column, part in zip(zip(*block, strict=True), PARTS, strict=True)
        )
        yield head, relation, tail


def _as_columns(triples: Any, what: str, columns: Mapping[str, str]) -> list[pa.Array | pa.ChunkedArray] | None:
    """The three columns of a frame or an array; None for what has none, and for what has to be looked at row by row."""
    if hasattr(triples, "columns"):
        parts = columns_of_frame(triples, what, columns)
    elif isinstance(triples, np.ndarray) and triples.ndim == 2 and triples.shape[1] == len(PARTS):
        parts = list(triples.T)
    else:
        return None
    found = []
    for part in parts:
        labels = _labels(part)
        if labels is None or len(labels) != len(parts[0]):
            return None
        found.append(labels)
    return found


def _labels(column: Any) -> pa.Array | pa.ChunkedArray | None:
    """A column of texts or of whole numbers, of which none is missing, as labels; None for any other."""
    try:
        if isinstance(column, np.ndarray):
            held = pa.array(np.ascontiguousarray(column)) if column.dtype.kind in "iu" else _of_texts(column.tolist())
        elif hasattr(column, "__arrow_c_stream__"):
            held = pa.chunked_array(column)
        else:
            held = None
        if held is None or held.null_count:
            return None
        kind = held.type.value_type if pa.types.is_dictionary(held.type) else held.type
        if not (pa.types.is_integer(kind) or any(is_text(kind) for is_text in TEXTS)):
            return None
        labels = held.cast(LABELS)
    except (pa.ArrowException, TypeError, ValueError):
        return None
    return labels if pc.min(pc.binary_length(labels)).as_py() != 0 else None


def _of_texts(values: list[Any]) -> pa.LargeStringArray | None:
    return array_of(values) if set(map(type, values)) <= {str} else None


def _combined(column: pa.Array | pa.ChunkedArray) -> pa.LargeStringArray:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _encoded(labels: tuple[str, ...], part: str) -> pa.LargeStringArray:
    try:
        return array_of(labels)
    except UnicodeEncodeError as error:
        kind = "relation" if part == "relation" else "entity"
        raise DataError(f"{kind} label {shown(error.object)} is no text that UTF-8 can hold") from None
