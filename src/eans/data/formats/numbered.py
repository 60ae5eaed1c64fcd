"""What folders with numbers for labels have in common: files of names by id, and files of triples of ids.

Triples are read by pyarrow, a block of whole lines at a time; Python looks at single lines only to say what is wrong.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from eans.arguments import shown
from eans.data.formats.base import PARTS, Source
from eans.errors import DataError
from eans.vocabulary import LABELS

BLOCK = 1 << 22
BLANK = "blank lines"
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Names:
    """The names in a file, in the order of their ids, which are 0 to n-1."""

    path: Path
    array: pa.LargeStringArray


def read_names(path: Path, pattern: str, form: str, *, counted: bool) -> Names:
    """The names in a file that has an id and a name a line.

    Args:
        path: the file.
        pattern: what a line is: a regular expression with the groups ``name`` and ``id``.
        form: how messages write that.
        counted: whether the first line is the number of lines that follow.
    """
    lines = _lines(path)
    if counted:
        require_count(f"{path}:1", count_of(f"{path}:1", lines.pop(0)), len(lines), "names")
    found = pc.extract_regex(pa.array(lines, LABELS), pattern)
    names, ids = (found.field(found.type.get_field_index(group)) for group in ("name", "id"))
    start = 1 + counted

    def wrong(row: int, reason: str) -> NoReturn:
        raise DataError(f"{path}:{start + row}: {reason}")

    if found.null_count:
        row = pc.index(found.is_null(), True).as_py()
        wrong(row, f"{shown(lines[row])} is not {form}; correct the line")
    for what, values in (("id", ids.cast(pa.int64())), ("name", names)):
        first = pc.index_in(values, value_set=values).to_numpy(zero_copy_only=False)
        again = np.flatnonzero(first != np.arange(len(first)))
        if len(again):
            row = int(again[0])
            value = values[row].as_py()
            wrong(row, f"the {what} {shown(value)} is on line {start + first[row]} already; each may occur once")
    order = ids.cast(pa.int64()).to_numpy()
    if len(order) and order.max() >= len(order):
        wrong(int(order.argmax()), f"id {order.max()} is out of range for {len(order)} names; leave no ids out")
    return Names(path, names.take(pa.array(np.argsort(order))))


def _lines(path: Path) -> list[str]:
    """The lines of a file, at least one."""
    try:
        content = path.read_bytes().removeprefix(BOM)
        lines = content.decode().replace("\r\n", "\n").rstrip("\n\t ").split("\n")
    except FileNotFoundError:
        raise DataError(f"{path}: is missing, and names belong there; restore it") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path and its rights") from None
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}:{number}: not valid UTF-8; convert the file to UTF-8") from None
    if lines == [""]:
        raise DataError(f"{path}: the file is empty; restore it")
    return lines


def count_of(place: str, line: str | bytes) -> int:
    """The number that the first line of a file says."""
    text = line.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise DataError(f"{place}: expected the number of lines that follow, found {_text(text)}; put it there")
    return int(text)


def require_count(place: str, said: int, found: int, what: str) -> None:
    """Raise unless as many were found as `place` says."""
    if said != found:
        raise DataError(f"{place}: says {said} {what}, but there are {found}; correct the number or restore the file")


def read_triples(
    source: Source,
    order: Sequence[str],
    entities: Names,
    relations: Names,
    *,
    counted: bool,
    said: tuple[str, int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The triples in a file of ids, separated by tabs or spaces.

    Args:
        source: the file.
        order: the parts of a triple, as they follow in a line.
        entities, relations: their names.
        counted: whether the first line is the number of triples.
        said: where else it is said how many triples there are, and how many.
    """
    names = {"head": entities, "relation": relations, "tail": entities}
    rows, line = 0, 1
    with source.open() as stream:
        first = stream.readline().removeprefix(BOM)
        if counted:
            place = f"{source.path}:1"
            first, said, line = b"", (place, count_of(place, first)), 2
        while block := first + stream.read(BLOCK):
            first, block = b"", block + stream.readline()
            table = _parsed(block, order)
            if table is None or not _in_range(table, names):
                raise _wrong_line(block, source.path, line, order, names)
            lines = block.count(b"\n") + (not block.endswith(b"\n"))
            if lines > len(table):
                source.drop(BLANK, lines - len(table), f"{source.path}:{line + _blank(block)}")
            rows, line = rows + len(table), line + lines
            yield _labelled(table, names)
    if said is not None:
        require_count(*said, rows, "triples")
    elif not rows:
        raise DataError(f"{source.path}: the file is empty; restore it")


def _parsed(block: bytes, order: Sequence[str]) -> pa.Table | None:
    """Whole lines as a table of integers; None if they are none.

    What one tab, or one space, does not separate is tried again with any white space as one space.
    """
    for tidied in (False, True):
        if tidied:
            block = re.sub(rb"(?m)^ | $", b"", re.sub(rb"[^\S\n]+", b" ", block))
        parse = csv.ParseOptions(delimiter="\t" if b"\t" in block[:1000] else " ", quote_char=False)
        convert = csv.ConvertOptions(column_types=dict.fromkeys(order, pa.int64()), null_values=[])
        read = csv.ReadOptions(column_names=list(order), block_size=len(block) + 1)
        try:
            return csv.read_csv(io.BytesIO(block), read, parse, convert).combine_chunks()
        except pa.ArrowInvalid:
            continue
    return None


def _in_range(table: pa.Table, names: dict[str, Names]) -> bool:
    bounds = {part: pc.min_max(table[part]).as_py() for part in names}
    return not len(table) or all(
        found["min"] >= 0 and found["max"] < len(names[part].array) for part, found in bounds.items()
    )


def _labelled(table: pa.Table, names: dict[str, Names]) -> pa.RecordBatch:
    """The names of ids, each once in a batch."""
    columns = []
    for part in PARTS:
        ids = table[part].combine_chunks().dictionary_encode()
        columns.append(pa.DictionaryArray.from_arrays(ids.indices, names[part].array.take(ids.dictionary)))
    return pa.RecordBatch.from_arrays(columns, list(PARTS))


def _text(found: str | bytes) -> str:
    return shown(found.decode(errors="replace") if isinstance(found, bytes) else found)


def _blank(block: bytes) -> int:
    """Which line is blank, from 0."""
    return next((place for place, line in enumerate(block.split(b"\n")) if not line.strip()), 0)


def _wrong_line(block: bytes, path: Path, start: int, order: Sequence[str], names: dict[str, Names]) -> DataError:
    """The error for the first line that is no triple of ids."""
    for number, line in enumerate(block.split(b"\n"), start):
        fields = line.split()
        if fields and len(fields) != len(order):
            found = f"expected 3 ids, {', '.join(order)}, found {len(fields)} in {_text(line)}"
            return DataError(f"{path}:{number}: {found}; correct the line")
        for part, field in zip(order, fields, strict=False):
            known = names[part]
            if not field.isdigit() or len(field) > 18:
                return DataError(f"{path}:{number}: the {part} {_text(field)} is no id; ids are whole numbers from 0")
            if int(field) >= len(known.array):
                most = f"the last id in {known.path.name} is {len(known.array) - 1}"
                return DataError(f"{path}:{number}: the {part} {int(field)} is out of range; {most}")
    return DataError(f"{path}:{start}: cannot be read as lines of ids; correct or restore the file")
