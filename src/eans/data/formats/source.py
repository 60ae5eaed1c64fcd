"""A file, or standard input, that triples are read from: decompressed, with what was left out of it."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import shutil
import sys
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from eans.data.formats.base import Dropped, ReadOptions
from eans.errors import DataError

STDIN = "-"
BUFFER = 1 << 20
PACKED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_STARTS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}


@dataclass
class FileSource:
    """A `eans.data.formats.base.Source`.

    Attributes:
        path: of the file; what messages call it (``<stdin>`` for standard input).
        options: how to read it.
        strict: text is ``head<TAB>relation<TAB>tail`` and nothing else, as in a folder; otherwise it is detected.
        format: its key in `eans.data.formats.FORMATS`, or module; empty if the file tells.
        dropped: what was left out, by reason.
        prefixes: that an RDF document declares, to what they stand for.
        line_of: the line of a triple, both counted from 0 and 1; None for formats without lines.
    """

    path: Path
    options: ReadOptions = field(default_factory=ReadOptions)
    strict: bool = False
    format: str = ""
    dropped: dict[str, Dropped] = field(default_factory=dict)
    prefixes: dict[str, str] = field(default_factory=dict)
    line_of: Callable[[int], int] | None = None
    _copy: BinaryIO | None = None

    @classmethod
    def of(cls, path: Path, options: ReadOptions) -> FileSource:
        """A file; ``-`` is standard input, which is copied to a temporary file, as are pipes."""
        if str(path) != STDIN and not path.is_fifo():
            return cls(path, options)
        copy = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115
        source = cls(Path("<stdin>") if str(path) == STDIN else path, options, _copy=copy)
        weakref.finalize(source, copy.close)
        with problems_of(source.path, None):
            if str(path) == STDIN:
                shutil.copyfileobj(sys.stdin.buffer, copy, BUFFER)
            else:
                with path.open("rb") as pipe:
                    shutil.copyfileobj(pipe, copy, BUFFER)
            copy.flush()
        return source

    @property
    def is_copy(self) -> bool:
        """Whether the file can be opened through `open` alone."""
        return self._copy is not None

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The bytes, decompressed (gzip, zstd, bz2, by content); problems of the file are `DataError`s."""
        with problems_of(self.path, None):
            raw = self.path.open("rb") if self._copy is None else os.fdopen(os.dup(self._copy.fileno()), "rb")
        with raw:
            with problems_of(self.path, None):
                raw.seek(0)
                start = raw.read(4)
                raw.seek(0)
            packing = next((name for magic, name in _STARTS.items() if start.startswith(magic)), None)
            if start and packing is None and self.path.suffix.lower() in PACKED:
                raise _damaged(self.path, PACKED[self.path.suffix.lower()], truncated=False)
            with problems_of(self.path, packing):
                yield _unpacked(raw, packing)

    def drop(self, reason: str, count: int, example: str) -> None:
        """Count what was left out; counts of one reason are added up and its first example is kept."""
        self.dropped.setdefault(reason, Dropped(reason, 0, example)).count += count

    def place(self, row: int) -> str:
        """``path:line`` of a triple, counted from 0; ``path, triple N`` where a format has no lines."""
        return f"{self.path}, triple {row + 1}" if self.line_of is None else f"{self.path}:{self.line_of(row)}"

    def near(self, row: int) -> str:
        """The same without the path."""
        return f"triple {row + 1}" if self.line_of is None else f"line {self.line_of(row)}"


def _unpacked(raw: BinaryIO, packing: str | None) -> BinaryIO:
    if packing == "gzip":
        # GzipFile hands out lines through Python code; a BufferedReader around it does so in C.
        return cast("BinaryIO", io.BufferedReader(gzip.GzipFile(fileobj=raw), BUFFER))
    if packing == "bz2":
        return cast("BinaryIO", io.BufferedReader(bz2.BZ2File(raw), BUFFER))
    if packing == "zstd":
        import pyarrow as pa

        return cast("BinaryIO", io.BufferedReader(pa.CompressedInputStream(raw, "zstd"), BUFFER))
    return raw


@contextmanager
def problems_of(path: Path, packing: str | None) -> Iterator[None]:
    """Problems of a file, which may be packed, as `DataError`s."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(path, packing or "gzip", isinstance(error, EOFError)) from None
    except OSError as error:
        if packing is not None and error.errno is None:
            raise _damaged(path, packing, truncated=False) from None
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); check the path and its rights") from None


def _damaged(path: Path, packing: str, truncated: bool) -> DataError:
    reason = "truncated" if truncated else f"damaged or not {packing}"
    return DataError(f"{path}: the {packing} data is {reason}; compress or download the file again")
