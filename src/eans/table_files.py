"""Tables as files that are read and written a block of rows at a time, whatever their size.

The ending of a name says what a file is: ``.csv``, ``.tsv``, ``.jsonl`` (JSON lines, one object each), these three also
with ``.gz``, or ``.parquet``. The name ``-`` is standard input or output.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from eans.errors import DataError, UsageError, did_you_mean
from eans.files import as_path, atomic_file

DELIMITERS = {"csv": ",", "tsv": "\t"}
FORMATS = (*DELIMITERS, "jsonl", "parquet")
TEXT = pa.large_string()
ROWS, BLOCK = 1 << 16, 1 << 20  # rows, and bytes of text, that are read at a time

Write = Callable[[pa.Table], None]


def format_of(path: Path) -> str:
    """The format that the name of a file stands for."""
    ending = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if ending not in FORMATS or (ending == "parquet" and path.suffix.lower() == ".gz"):
        endings = ", ".join(f".{name}" for name in FORMATS)
        raise UsageError(f"{path}: what kind of table is this? Its name should end with {endings} (text also with .gz)")
    return ending


class TableReader:
    """Some columns of a table as texts; a missing value is a null or an empty text.

    Args:
        path: of the file; ``-`` for standard input: CSV, TSV or JSON lines, as its first line shows.
        columns: names of columns, in lower case; that of the file may be in any case. All others are left out.

    Attributes:
        name: what messages call the file.
        total: how many rows there are, None if that is not known before.
    """

    def __init__(self, path: str | Path, columns: Sequence[str]) -> None:
        self.columns = columns
        self.path = None if str(path) == "-" else as_path(path, "queries")
        self.name = "<stdin>" if self.path is None else str(self.path)
        self.format = "csv" if self.path is None else format_of(self.path)
        with self._refused():
            self.total = None if self.path is None else self._count(self.path)

    def place(self, row: int) -> str:
        """Where a row, counted from 0, stands: for messages."""
        if self.format == "parquet":
            return f"{self.name}, row {row} (from 0)"
        return f"{self.name}:{row + (2 if self.format in DELIMITERS else 1)}"

    def __iter__(self) -> Iterator[list[pa.Array]]:
        """Blocks of rows: an array of texts for each of the columns."""
        with self._refused():
            if self.format == "parquet":
                yield from self._parquet()
                return
            with self._opened() as stream:
                first = stream.readline()
                if self.path is None:
                    self.format = "jsonl" if first.lstrip()[:1] == b"{" else "tsv" if b"\t" in first else "csv"
                yield from self._objects(first, stream) if self.format == "jsonl" else self._delimited(first, stream)

    def _count(self, path: Path) -> int | None:
        if self.format == "parquet":
            with pq.ParquetFile(path) as file:
                return int(file.metadata.num_rows)
        if path.suffix.lower() == ".gz" or not path.is_file():
            return None
        lines, last = 0, b"\n"
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                lines, last = lines + block.count(b"\n"), block[-1:]
        return max(0, lines + (last != b"\n") - (self.format in DELIMITERS))

    @contextlib.contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        if self.path is None:
            yield cast(BinaryIO, getattr(sys.stdin, "buffer", sys.stdin))
            return
        with self.path.open("rb") as file:
            yield cast(BinaryIO, gzip.GzipFile(fileobj=file)) if self.path.suffix.lower() == ".gz" else file

    @contextlib.contextmanager
    def _refused(self) -> Iterator[None]:
        """What the file does not allow becomes one line that names it."""
        try:
            yield
        except (OSError, EOFError) as error:
            raise DataError(f"{self.name}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
        except (pa.ArrowException, UnicodeDecodeError) as error:
            reason = str(error).splitlines()[0].rstrip(". ")
            raise DataError(f"{self.name}: no readable {self.format} table ({reason})") from error

    def _wanted(self, found: Sequence[str]) -> list[int]:
        """Which of the columns that were found are asked for, in that order."""
        names = [name.strip().lower() for name in found]
        for column in self.columns:
            if names.count(column) != 1:
                what = "are two columns" if column in names else "is no column"
                near = "" if column in names else did_you_mean(column, names)
                raise DataError(
                    f"{self.name}: there {what} '{column}' among {', '.join(found) or 'none'}{near or ';'} the table"
                    f" needs a header with {', '.join(self.columns)}"
                )
        return [names.index(column) for column in self.columns]

    def _parquet(self) -> Iterator[list[pa.Array]]:
        with pq.ParquetFile(self.path) as file:
            found = file.schema_arrow.names
            names = [found[place] for place in self._wanted(found)]
            for name in names:
                kind = file.schema_arrow.field(name).type
                kind = kind.value_type if pa.types.is_dictionary(kind) else kind
                if not any(test(kind) for test in (pa.types.is_integer, pa.types.is_null, _is_text)):
                    raise DataError(f"{self.name}: column '{name}' is of type {kind}, not of texts or whole numbers")
            for batch in file.iter_batches(ROWS, columns=names):
                yield [batch.column(name).cast(TEXT) for name in names]

    def _delimited(self, header: bytes, stream: BinaryIO) -> Iterator[list[pa.Array]]:
        delimiter = DELIMITERS[self.format]
        found = next(csv.reader([header.decode("utf-8-sig").rstrip("\r\n")], delimiter=delimiter), [])
        wanted = self._wanted(found)
        names = [str(place) for place in range(len(found))]
        convert = pa.csv.ConvertOptions(
            column_types=dict.fromkeys(names, TEXT), include_columns=[names[place] for place in wanted]
        )
        done = 0
        for lines in _whole_lines(stream):
            columns = self._parsed(lines, delimiter, names, convert, done)
            done += len(columns[0])
            yield columns

    def _parsed(
        self, lines: bytes, delimiter: str, names: list[str], convert: pa.csv.ConvertOptions, done: int
    ) -> list[pa.Array]:
        """The columns of some lines; Arrow's own reader of streams would not say in which line a mistake is."""
        try:
            lines.decode()
        except UnicodeDecodeError as error:
            row = done + lines.count(b"\n", 0, error.start)
            raise DataError(f"{self.place(row)}: not valid UTF-8; convert the file to UTF-8") from error
        refused: list[Any] = []

        def refuse(row: Any) -> str:
            refused.append(row)
            return "error"

        parse = pa.csv.ParseOptions(delimiter=delimiter, ignore_empty_lines=False, invalid_row_handler=refuse)
        read = pa.csv.ReadOptions(use_threads=False, column_names=names, block_size=len(lines) + 1)
        try:
            table = pa.csv.read_csv(pa.BufferReader(lines), read, parse, convert)
        except pa.ArrowInvalid as error:
            if not refused:
                raise
            row = refused[0]
            raise DataError(
                f"{self.place(done + row.number - 1)}: expected {row.expected_columns} columns as in the header,"
                f" found {row.actual_columns}"
            ) from error
        return [column.combine_chunks() for column in table.columns]

    def _objects(self, first: bytes, stream: BinaryIO) -> Iterator[list[pa.Array]]:
        rows: list[list[str | None]] = []
        done = 0
        while first:
            rows.append(self._object(first, done + len(rows)))
            first = stream.readline()
            if len(rows) == ROWS or not first:
                yield [pa.array(column, TEXT) for column in zip(*rows, strict=True)]
                done, rows = done + len(rows), []

    def _object(self, line: bytes, row: int) -> list[str | None]:
        try:
            found = json.loads(line) if line.strip() else {}
        except ValueError as error:
            raise DataError(f"{self.place(row)}: no JSON ({error}); write one object on each line") from error
        values = [found.get(column) for column in self.columns] if isinstance(found, dict) else [found]
        for value in values:
            if isinstance(value, bool) or not isinstance(value, (str, int, type(None))) or not isinstance(found, dict):
                example = json.dumps(dict.fromkeys(self.columns, "..."))
                raise DataError(f"{self.place(row)}: expected an object of texts such as {example}, got {line[:60]!r}")
        return [str(value) if isinstance(value, int) else value for value in values]


def _whole_lines(stream: BinaryIO) -> Iterator[bytes]:
    """The rest of a stream, a block at a time that ends where a line does."""
    parts: list[bytes] = []
    while block := stream.read(BLOCK):
        end = block.rfind(b"\n") + 1
        if end:
            yield b"".join([*parts, block[:end]])
            parts = []
        parts.append(block[end:])
    if any(parts):
        yield b"".join(parts)


def _is_text(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


@contextlib.contextmanager
def table_writer(path: str | Path, schema: pa.Schema, format: str = "") -> Iterator[Write]:
    """A function that appends rows to a file, which takes its place when the context ends without an error.

    Args:
        path: of the file; ``-`` for standard output.
        schema: of the rows.
        format: of standard output, one of text.
    """
    if str(path) == "-":
        stream = getattr(sys.stdout, "buffer", sys.stdout)
        write = _text_writer(cast(BinaryIO, stream), schema, format or "csv")
        yield write
        write(schema.empty_table())  # a header, if there were no rows
        stream.flush()
        return
    target = as_path(path, "out")
    kind = format_of(target)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(atomic_file(target))
        if kind == "parquet":
            yield stack.enter_context(pq.ParquetWriter(file, schema)).write_table
            return
        packed = target.suffix.lower() == ".gz"
        stream = cast(BinaryIO, stack.enter_context(gzip.open(file, "wb")) if packed else file)
        write = _text_writer(stream, schema, kind)
        yield write
        write(schema.empty_table())


def _text_writer(stream: BinaryIO, schema: pa.Schema, format: str) -> Write:
    """What appends rows to a stream; a header comes with the first, so that none stands above a mistake."""
    if format == "jsonl":

        def write_objects(table: pa.Table) -> None:
            for batch in table.to_batches(max_chunksize=ROWS):
                lines = (json.dumps(row, ensure_ascii=False) for row in batch.to_pylist())
                stream.write("".join(f"{line}\n" for line in lines).encode())

        return write_objects
    delimiter = DELIMITERS[format]
    headers = [(delimiter.join(schema.names) + "\n").encode()]
    special = f'["\\r\\n{delimiter}]'

    def write_rows(table: pa.Table) -> None:
        if headers:
            stream.write(headers.pop())
        texts = [column for column in table.columns if _is_text(column.type)]
        # Arrow would put quotation marks around every text, and around none only where it is told so.
        quoted = any(pc.any(pc.match_substring_regex(column, special)).as_py() for column in texts)
        options = pa.csv.WriteOptions(
            include_header=False, delimiter=delimiter, quoting_style="needed" if quoted else "none"
        )
        pa.csv.write_csv(table, stream, options)

    return write_rows
