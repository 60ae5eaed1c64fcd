"""Columns of any type as the batches that readers give: labels as text, weights as float64; and what is wrong there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from eans.arguments import shown
from eans.data.formats.base import OPTIONAL, Source
from eans.errors import DataError, UsageError
from eans.labelled import part_places
from eans.vocabulary import LABELS

Place = Callable[[int], str]


def places_of(names: Sequence[str], source: Source, place: str, titles: bool = True) -> dict[str, int]:
    """Which column has which part of a triple, from 0; columns that are not read are told unless others were asked for.

    Args:
        names: of the columns; numbers from 1 if there are no `titles`.
        source: where they are.
        place: where the names are, as messages say it.
        titles: whether the file names its columns.
    """
    asked = source.options.columns
    try:
        places = part_places(names, asked)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None
    if places is None:
        listed = f": {', '.join(names)}" if titles else " and no header"
        raise DataError(
            f"{place}: found {len(names)} columns{listed}; say which is which with columns"
            f" head={'NAME' if titles else 1},relation={'NAME' if titles else 2},tail={'NAME' if titles else 3}"
        )
    unread = [name for at, name in enumerate(names) if at not in places.values()]
    if unread and not asked:
        source.drop("columns that are not read", len(unread), f"{place}: {', '.join(unread)}")
    return places


def triples(columns: Mapping[str, pa.Array], place: Place) -> pa.RecordBatch:
    """A batch of triples.

    Args:
        columns: by part; labels are texts or whole numbers, a label ``7`` is the text ``"7"``.
        place: where a row of the batch is, as messages say it.
    """
    parts = {}
    for part, column in columns.items():
        parts[part] = {"weight": _weights, "time": _times}.get(part, _labels)(column, part, place)
    return pa.RecordBatch.from_arrays(list(parts.values()), list(parts))


def _labels(column: pa.Array, part: str, place: Place) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    is_text = any(test(column.type) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))
    if not is_text and not pa.types.is_integer(column.type) and not pa.types.is_null(column.type):
        raise DataError(f"{place(0)}: the {part} is of type {column.type}; labels are texts or whole numbers")
    _require_all(column, part, place)
    return column.cast(LABELS)


def _weights(column: pa.Array, part: str, place: Place) -> pa.Array:
    _require_all(column, part, place)
    try:
        numbers = column.cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        row = next((row for row, value in enumerate(column.to_pylist()) if not _is_number(value)), 0)
        raise DataError(f"{place(row)}: the weight {shown(column[row].as_py())} is not a number") from None
    usable = pc.and_(pc.is_finite(numbers), pc.greater_equal(numbers, 0.0))
    row = pc.index(usable, False).as_py()
    if row >= 0:
        raise DataError(
            f"{place(row)}: the weight {numbers[row].as_py()} is not usable; give a finite number from 0 on"
        )
    return numbers


def _is_number(value: object) -> bool:
    try:
        pa.array([value]).cast(pa.float64())
    except pa.ArrowException:
        return False
    return True


def _times(column: pa.Array, part: str, place: Place) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    _require_all(column, part, place)
    return column


def _require_all(column: pa.Array, part: str, place: Place) -> None:
    missing = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    if (
        missing is None
        and part in OPTIONAL
        and (pa.types.is_string(column.type) or pa.types.is_large_string(column.type))
    ):
        missing = pc.binary_length(column).to_numpy(zero_copy_only=False) == 0  # empty labels are found with the ids
    if missing is not None and missing.any():
        raise DataError(f"{place(int(missing.argmax()))}: empty {part}; fill in the field or delete the line")
