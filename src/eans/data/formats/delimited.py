"""Delimited text: TSV, CSV, PSV. Arrow parses it; what is wrong in a file is looked for line by line, once it is."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
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
BLOCK = 1 << 20  # bytes that are parsed at a time, and what is left of the last line
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
        rows, lines: so far.
        plain: whether all is read, and each line is a triple.
    """

    def __init__(self, source: FileSource, dialect: Dialect) -> None:
        self.source, self.dialect = source, dialect
        self.rows = self.lines = 0
        self.plain = False
        source.line_of = self.line_of

    def batches(self, start: bytes, stream: BinaryIO) -> Iterator[pa.RecordBatch]:
        tail = b""
        with ThreadPoolExecutor(1) as pool:  # a block is parsed while the one before is at work
            parsed: deque[Future[list[pa.RecordBatch]]] = deque()
            for block in self._blocks(start[self.dialect.skipped :], stream):
                parsed.append(pool.submit(self._parsed, block))
                self.lines += block.count(b"\n") + (not block.endswith(b"\n"))
                tail = (tail + block[-TAIL:])[-TAIL:]
                if len(parsed) > 1:
                    yield from self._counted(parsed.popleft().result())
            for last in parsed:
                yield from self._counted(last.result())
        if not self.rows:
            remedy = "" if self.source.path.name.startswith("train") else ", or remove it"
            raise DataError(f"{self.source.path}: the file is empty; write at least one line{remedy}")
        tail = tail.replace(b"\r\n", b"\n")
        blank_at_end = max(len(tail) - len(tail.rstrip(b"\n")) - 1, 0)
        self.plain = not self.dialect.blank and self.lines - blank_at_end == self.rows
        if not self.plain and (lines := self._blank_lines()):
            self.source.drop("blank lines", len(lines), f"{self.source.path}:{lines[0]}")

    def _counted(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.rows += len(batch)
            yield batch

    def _blocks(self, start: bytes, stream: BinaryIO) -> Iterator[bytes]:
        """Whole records: up to the end of a line, and with quotes in pairs."""
        block = start + stream.read(BLOCK)
        while block:
            block += b"" if block.endswith(b"\n") else stream.readline()
            while self.dialect.quoted and block.count(b'"') % 2 and (more := stream.read(BLOCK) + stream.readline()):
                block += more
            yield block
            block = stream.read(BLOCK)

    def _parsed(self, block: bytes) -> list[pa.RecordBatch]:
        if not block.strip(b"\r\n"):
            return []
        dialect, names = self.dialect, [str(at) for at in range(len(self.dialect.names))]
        chosen = [names[at] for at in dialect.places.values()]
        read = arrow_csv.ReadOptions(column_names=names, block_size=len(block) + 1, use_threads=False)
        parse = arrow_csv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char='"' if dialect.quoted else False,
            newlines_in_values=dialect.quoted,
        )
        convert = arrow_csv.ConvertOptions(
            include_columns=chosen, column_types=dict.fromkeys(chosen, LABELS), null_values=[]
        )
        # Arrow takes a lone carriage return for the end of a line.
        returns = 0 if dialect.quoted else block.count(b"\r")
        if returns and returns - block.endswith(b"\r") > block.count(b"\r\n"):
            raise self.explain("a carriage return inside a line")
        try:
            found: list[pa.RecordBatch] = arrow_csv.read_csv(pa.BufferReader(block), read, parse, convert).to_batches()
            return found
        except pa.ArrowException as problem:
            raise self.explain(str(problem)) from None

    def line_of(self, row: int) -> int:
        """The line on which a triple begins."""
        if self.plain:
            return row + self.dialect.lines + 1
        with self.source.open() as stream, suppress(csv.Error):
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
        lines = (_text(line, number) + "\n" for number, line in enumerate(stream, 1))
        reader, before = csv.reader(lines, delimiter=dialect.delimiter), 0
        for record in reader:
            if before >= dialect.lines and record:
                yield before + 1, record
            before = reader.line_num

    def _blank_lines(self) -> list[int]:
        """Those before the last triple."""
        last = self.line_of(self.rows - 1)
        with self.source.open() as stream:
            blank = [number for number, line in enumerate(stream, 1) if not _text(line, number)]
        return [line for line in blank if line < last]

    def explain(self, problem: str) -> DataError:
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
        return DataError(f"{path}: cannot be read: {problem.splitlines()[0]}")

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
