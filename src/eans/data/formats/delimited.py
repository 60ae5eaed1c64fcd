"""Delimited text: TSV, CSV, PSV. Arrow parses it; what is wrong in a file is looked for line by line, once it is."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pyarrow as pa
from pyarrow import csv as arrow_csv

from eans.arguments import shown
from eans.data.formats import suffix_of
from eans.data.formats.columns import triples
from eans.data.formats.dialect import STRICT, Dialect, detect
from eans.data.formats.source import FileSource
from eans.errors import DataError
from eans.vocabulary import LABELS

SAMPLE = 1 << 18  # bytes from which a dialect is found
BLOCK = 1 << 17  # bytes that are parsed at a time; of a file with long lines more
BOM = b"\xef\xbb\xbf"
TAIL = 1 << 10


def read(source: FileSource) -> Iterator[pa.RecordBatch]:
    """The triples of a file."""
    with source.open() as stream:
        start, whole = _start_of(stream)
        strict = source.strict and not source.options.columns and suffix_of(source.path) in (".txt", ".tsv")
        dialect = STRICT if strict else detect(start, whole, source, suffix_of(source.path))
        rows = 0
        for batch in _Reading(source, dialect).batches(start, stream):
            columns = {part: batch.column(at) for at, part in enumerate(dialect.places)}
            before = rows
            yield triples(columns, lambda row: source.place(before + row))  # noqa: B023
            rows += len(batch)


def read_columns(source: FileSource, dialect: Dialect) -> Iterator[pa.RecordBatch]:
    """The fields of a file that is written like this, in the order of the dialect's places."""
    with source.open() as stream:
        yield from _Reading(source, dialect).batches(_start_of(stream)[0], stream)


def _start_of(stream: BinaryIO) -> tuple[bytes, bool]:
    """The first bytes without a byte-order mark, and whether they are all."""
    start = b""
    while len(start) < SAMPLE and (more := stream.read(SAMPLE - len(start))):
        start += more
    return start.removeprefix(BOM), len(start) < SAMPLE


class _Reading:
    """One pass over a file.

    Attributes:
        rows: so far.
        plain: whether all is read, and each line is a triple.
    """

    def __init__(self, source: FileSource, dialect: Dialect) -> None:
        self.source, self.dialect = source, dialect
        self.rows, self.plain = 0, False
        source.line_of = self.line_of

    def batches(self, start: bytes, stream: BinaryIO) -> Iterator[pa.RecordBatch]:
        feed = _Feed(start[self.dialect.skipped :], stream, exact=not self.dialect.quoted)
        block = max(BLOCK, 16 * max(map(len, start.split(b"\n"))))
        with _explained(self, feed):
            if feed.is_blank:
                raise self._empty()
            with arrow_csv.open_csv(pa.PythonFile(feed, "r"), **self._options(block)) as reader:
                for batch in reader:
                    self.rows += len(batch)
                    yield batch
            if feed.problem is not None:
                raise feed.problem
        if not self.rows:
            raise self._empty()
        self.plain = not self.dialect.blank and feed.lines == self.rows
        if not self.plain and (lines := self._blank_lines()):
            self.source.drop("blank lines", len(lines), f"{self.source.path}:{lines[0]}")

    def _options(self, block: int) -> dict[str, object]:
        dialect, names = self.dialect, [str(at) for at in range(len(self.dialect.names))]
        chosen = [names[at] for at in dialect.places.values()]
        return {
            "read_options": arrow_csv.ReadOptions(column_names=names, block_size=block, use_threads=False),
            "parse_options": arrow_csv.ParseOptions(
                delimiter=dialect.delimiter,
                quote_char='"' if dialect.quoted else False,
                newlines_in_values=dialect.quoted,
            ),
            "convert_options": arrow_csv.ConvertOptions(
                include_columns=chosen, column_types=dict.fromkeys(chosen, LABELS), null_values=[]
            ),
        }

    def _empty(self) -> DataError:
        remedy = "" if self.source.path.name.startswith("train") else ", or remove it"
        return DataError(f"{self.source.path}: the file is empty; write at least one line{remedy}")

    def line_of(self, row: int) -> int:
        """The line on which a triple begins."""
        if self.plain:
            return row + self.dialect.lines + 1
        with self.source.open() as stream:
            for found, (line, _) in enumerate(self._records(stream)):
                if found == row:
                    return line
        return row + self.dialect.lines + 1

    def _records(self, stream: BinaryIO) -> Iterator[tuple[int, list[str]]]:
        """Each record with the line on which it begins, blank ones and what comes before the first triple left out."""
        dialect = self.dialect
        if not dialect.quoted:
            for number, line in enumerate(stream, 1):
                text = _text(line, number)
                if number > dialect.lines and text:
                    yield number, text.split(dialect.delimiter)
            return
        csv.field_size_limit(1 << 30)
        lines = io.TextIOWrapper(stream, "utf-8", "replace", newline="")
        reader, before = csv.reader(lines, delimiter=dialect.delimiter), 0
        for record in reader:
            if before >= dialect.lines and record:
                yield before + 1, record
            before = reader.line_num
        lines.detach()

    def _blank_lines(self) -> list[int]:
        """Those before the last triple."""
        with self.source.open() as stream:
            records = [line for line, _ in self._records(stream)]
        with self.source.open() as stream:
            blank = [number for number, line in enumerate(stream, 1) if not _text(line, number)]
        return [line for line in blank if line < records[-1]]

    def explain(self, problem: Exception) -> DataError:
        """The first line that is wrong."""
        path, width = self.source.path, len(self.dialect.names)
        with self.source.open() as stream:
            for number, line in enumerate(stream, 1):
                reason = _broken(line, number) or ("" if self.dialect.quoted else self._odd(_text(line, number)))
                if reason and number > self.dialect.lines:
                    return DataError(f"{path}:{number}: {reason}")
        if self.dialect.quoted:
            try:
                with self.source.open() as stream:
                    for number, record in self._records(stream):
                        if len(record) != width:
                            return DataError(f"{path}:{number}: {self._misfit(record)}")
            except csv.Error as error:
                return DataError(f"{path}: {error}; correct the file")
        return DataError(f"{path}: cannot be read: {str(problem).splitlines()[0]}")

    def _odd(self, text: str) -> str:
        """What is wrong with a line that has no quotes; nothing is for a blank one."""
        dialect = self.dialect
        fields = text.split(dialect.delimiter)
        if not text or len(fields) == len(dialect.names):
            return ""
        return self._misfit(fields)

    def _misfit(self, fields: list[str]) -> str:
        delimiter, names = self.dialect.delimiter, self.dialect.names
        mark, word = ("<TAB>", "a tab") if delimiter == "\t" else (delimiter, shown(delimiter))
        found = str(len(fields))
        if len(fields) == 1 and delimiter == "\t" and (" " in fields[0] or "," in fields[0]):
            found += f" (the line has {'commas' if ',' in fields[0] else 'spaces'})"
        quotes = " and each quote be closed" if self.dialect.quoted else ""
        wanted = f"expected {len(names)} columns {mark.join(names)}"
        return f"{wanted}, found {found}; columns must be separated by {word}{quotes}"


def _broken(line: bytes, number: int) -> str:
    """Why the bytes of a line are no text."""
    try:
        text = _text(line, number, "strict")
    except UnicodeDecodeError as error:
        return f"not valid UTF-8 at byte {error.start + 1} of the line; convert the file to UTF-8"
    return "carriage return inside the line; end lines with LF or CRLF" if "\r" in text else ""


def _text(line: bytes, number: int, errors: str = "replace") -> str:
    line = line.removeprefix(BOM) if number == 1 else line
    return line.removesuffix(b"\n").removesuffix(b"\r").decode(errors=errors)


@contextmanager
def _explained(reading: _Reading, feed: _Feed) -> Iterator[None]:
    """What Arrow cannot read, by its line."""
    try:
        yield
    except (pa.ArrowException, _LoneReturnError) as problem:
        if feed.problem is not None and not isinstance(feed.problem, _LoneReturnError):
            raise feed.problem from None
        raise reading.explain(problem) from None


class _LoneReturnError(Exception):
    """Arrow takes a lone carriage return for the end of a line; here it is a mistake."""


class _Feed(io.RawIOBase):
    """The bytes of a file for Arrow, looked at as they pass. A problem is kept: Arrow would word it anew.

    Attributes:
        problem: what went wrong.
    """

    def __init__(self, start: bytes, stream: BinaryIO, exact: bool) -> None:
        self._next, self._stream, self._exact = start, stream, exact
        self._lines, self._return, self._tail = 0, False, b""
        self.problem: Exception | None = None

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing but line ends."""
        while not self._next.strip(b"\r\n"):
            more = self._stream.read(BLOCK)
            if not more:
                return True
            self._next += more
        return False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes; none once there is a problem."""
        try:
            block = self._next[:size] or self._stream.read(size)
        except Exception as problem:
            self.problem = problem
            return b""
        self._next = self._next[size:]
        self._lines += block.count(b"\n")
        if self._exact and (self._return or b"\r" in block):
            seen = (b"\r" if self._return else b"") + block
            self._return = seen.endswith(b"\r")  # it may be the first half of an end, or the end of the file
            if seen.count(b"\r") - self._return > seen.count(b"\r\n"):
                self.problem = _LoneReturnError()
                return b""
        self._tail = (self._tail + block[-TAIL:])[-TAIL:]
        return block

    @property
    def lines(self) -> int:
        """How many there were; blank ones at the end do not count."""
        tail = self._tail.replace(b"\r\n", b"\n")
        return self._lines + 1 - (len(tail) - len(tail.rstrip(b"\n")))
