"""JSON lines: an object with the parts of a triple on each line, or an array of three.

Arrow parses blocks in which each line is an object with texts for labels. A block in which it is not, as where labels
are numbers, is parsed line by line, which also finds what is wrong.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import json as arrow_json

from eans.arguments import shown
from eans.data.formats.base import PARTS
from eans.data.formats.columns import places_of, triples
from eans.data.formats.source import FileSource
from eans.errors import DataError
from eans.vocabulary import LABELS

BLOCK = 1 << 22
BOM = b"\xef\xbb\xbf"


def read(source: FileSource) -> Iterator[pa.RecordBatch]:
    """The triples of a file."""
    reading = _Reading(source)
    with source.open() as stream:
        first = stream.readline().removeprefix(BOM)
        while first and not first.strip():
            first = reading.blank_line(first) + stream.readline()
        if not first:
            raise DataError(f"{source.path}: the file is empty; write at least one line")
        reading.choose(first)
        block = first + stream.read(BLOCK)
        while block:
            yield reading.batch(block + stream.readline())
            block = stream.read(BLOCK)
    if reading.blank > reading.blank_at_end:
        source.drop("blank lines", reading.blank - reading.blank_at_end, f"{source.path}:{reading.first_blank}")


class _Reading:
    """One pass over a file.

    Attributes:
        blank, first_blank: how many blank lines there are, and the first one.
        blank_at_end: how many there are behind the last triple so far.
    """

    def __init__(self, source: FileSource) -> None:
        self.source = source
        self.names: Sequence[str] = ()
        self.places: dict[str, int] = {}
        self.line = 1  # on which the next block begins
        self.lines: list[tuple[int, int]] = []  # (row, line) where lines stop to follow each other
        self.rows = 0
        self.blank = self.blank_at_end = self.first_blank = 0
        source.line_of = self.line_of

    def blank_line(self, _: bytes) -> bytes:
        """Count a blank line before the first triple."""
        self.blank += 1
        self.first_blank = 1
        self.line += 1
        return b""

    def line_of(self, row: int) -> int:
        """The line of a triple."""
        start, line = next(((start, line) for start, line in reversed(self.lines) if start <= row), (0, 1))
        return line + row - start

    def choose(self, first: bytes) -> None:
        """Find the columns in the first line."""
        value = self._value(first, self.line)
        place = f"{self.source.path}:{self.line}"
        if isinstance(value, list) and any(isinstance(part, (dict, list)) for part in value):
            raise DataError(f"{place}: is an array of arrays or objects; write each of these on a line of its own")
        self.names = list(value) if isinstance(value, dict) else [str(at + 1) for at in range(len(value))]
        self.places = places_of(self.names, self.source, place, titles=isinstance(value, dict))

    def _value(self, line: bytes, number: int) -> dict[str, Any] | list[Any]:
        place = f"{self.source.path}:{number}"
        try:
            value = json.loads(line.decode())
        except UnicodeDecodeError as error:
            fix = "convert the file to UTF-8"
            raise DataError(f"{place}: not valid UTF-8 at byte {error.start + 1} of the line; {fix}") from None
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", "nested too deeply")
            raise DataError(
                f"{place}: is not JSON ({reason}); write one object with head, relation, tail a line"
            ) from None
        if not isinstance(value, (dict, list)):
            raise DataError(f"{place}: {shown(value)} is no object; write one with head, relation, tail a line")
        return value

    def batch(self, block: bytes) -> pa.RecordBatch:
        """The triples of whole lines."""
        count = block.count(b"\n") + (not block.endswith(b"\n"))
        columns, numbers = self._parsed(block), np.arange(self.line, self.line + count)
        if columns is None or len(columns["head"]) != count:
            columns, numbers = self._by_line(block)
        else:
            self.blank_at_end = 0
        starts = np.flatnonzero(np.diff(numbers, prepend=-1) != 1)  # where lines do not follow each other
        self.lines += zip((self.rows + starts).tolist(), numbers[starts].tolist(), strict=True)
        found = triples(columns, lambda row: f"{self.source.path}:{numbers[row] if len(numbers) else self.line}")
        self.rows += len(found)
        self.line += count
        return found

    def _parsed(self, block: bytes) -> dict[str, pa.Array] | None:
        """The columns of a block as Arrow reads it; None where it cannot."""
        fields = {part: self.names[at] for part, at in self.places.items()}
        types = {"weight": pa.float64()}
        schema = pa.schema([(name, types.get(part, LABELS)) for part, name in fields.items()])
        options = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        try:
            table = arrow_json.read_json(
                io.BytesIO(block), arrow_json.ReadOptions(block_size=len(block) + 1, use_threads=False), options
            )
            table.validate(full=True)
        except pa.ArrowException:
            return None
        columns = {part: table[name].combine_chunks() for part, name in fields.items()}
        return None if any(column.null_count for column in columns.values()) else columns

    def _by_line(self, block: bytes) -> tuple[dict[str, pa.Array], NDArray[np.int64]]:
        """The same, line by line; and the line of each triple."""
        numbers: list[int] = []
        values: dict[str, list[Any]] = {part: [] for part in self.places}
        for number, line in enumerate(block.removesuffix(b"\n").split(b"\n"), self.line):
            if not line.strip():
                self.blank, self.blank_at_end = self.blank + 1, self.blank_at_end + 1
                self.first_blank = self.first_blank or number
                continue
            self.blank_at_end = 0
            value = self._value(line, number)
            for part, at in self.places.items():
                values[part].append(self._part(value, part, at, number))
            numbers.append(number)
        columns = {
            part: pa.array(found, pa.float64() if part == "weight" else LABELS if part in PARTS else None)
            for part, found in values.items()
        }
        return columns, np.array(numbers, np.int64)

    def _part(self, value: dict[str, Any] | list[Any], part: str, at: int, number: int) -> Any:
        place, name = f"{self.source.path}:{number}", self.names[at]
        found = value.get(name) if isinstance(value, dict) else value[at] if at < len(value) else None
        if found is None or found == "":
            raise DataError(f"{place}: empty {part} ({name}); fill in the field or delete the line")
        is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
        if part == "weight" and not is_number:
            raise DataError(f"{place}: the weight {shown(found)} is not a number")
        if part == "time":
            return str(found)
        if part == "weight":
            return float(found) if abs(found) < 1 << 1000 else float("inf")
        if not isinstance(found, str) and (not is_number or isinstance(found, float)):
            raise DataError(f"{place}: the {part} {shown(found)} is not a text or a whole number")
        try:
            return str(found).encode().decode()
        except UnicodeEncodeError:
            raise DataError(f"{place}: the {part} {shown(found)} is no text that UTF-8 can hold") from None
