"""Parquet, and Arrow's own formats: Feather (the IPC file) and the IPC stream."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import pyarrow as pa
from pyarrow import parquet

from eans.data.formats.columns import places_of, triples
from eans.data.formats.source import FileSource
from eans.errors import DataError

ROWS = 1 << 14
BUFFER = 1 << 16


def read(source: FileSource) -> Iterator[pa.RecordBatch]:
    """The triples of a file, by its columns."""
    path = source.path
    with source.open() as stream:
        file = stream if isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO) else _held(stream)
        rows = 0
        try:
            schema, batches = _opened(file)
            names = schema.names
            if len(set(names)) < len(names):
                raise DataError(f"{path}: two columns have one name, of {', '.join(names)}; rename one")
            places = places_of(names, source, str(path))
            for batch in batches([names[at] for at in places.values()]):
                batch.validate(full=True)
                columns = {part: batch.column(names[at]) for part, at in places.items()}
                start = rows
                yield triples(columns, lambda row: source.place(start + row))  # noqa: B023
                rows += len(batch)
        except (pa.ArrowException, OSError, NotImplementedError, UnicodeDecodeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DataError(f"{path}: is damaged, or neither Parquet nor Arrow ({reason}); write it again") from None
    if not rows:
        raise DataError(f"{path}: the file has no rows; write at least one triple")


def _held(stream: BinaryIO) -> BinaryIO:
    """A packed file in memory: these formats are read from their end."""
    return io.BytesIO(stream.read())


def _opened(file: BinaryIO) -> tuple[pa.Schema, Callable[[list[str]], Iterable[pa.RecordBatch]]]:
    """The schema, and what gives batches of some columns."""
    start = file.read(6)
    file.seek(0)
    if start.startswith(b"PAR1"):
        table = parquet.ParquetFile(file, buffer_size=BUFFER, pre_buffer=False)
        return table.schema_arrow, lambda names: table.iter_batches(ROWS, columns=names, use_threads=False)
    if start == b"ARROW1":
        ipc = pa.ipc.open_file(file)
        return ipc.schema, lambda _: (ipc.get_batch(number) for number in range(ipc.num_record_batches))
    stream = pa.ipc.open_stream(file)
    return stream.schema, lambda _: stream
