"""What tests of readers read from and write to: a source that is a plain file, triples by hypothesis, broken files."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from eans.data.formats.base import Dropped, Reader, ReadOptions
from eans.errors import DataError

Triple = tuple[str, str, str]


@dataclass
class PlainFile:
    """A `Source` of one file as it is."""

    path: Path
    options: ReadOptions = field(default_factory=ReadOptions)
    dropped: dict[str, Dropped] = field(default_factory=dict)
    prefixes: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        try:
            with self.path.open("rb") as stream:
                yield stream
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read ({error.strerror}); check the path") from None

    def drop(self, reason: str, count: int, example: str) -> None:
        before = self.dropped.setdefault(reason, Dropped(reason, 0, example))
        before.count += count

    @property
    def counts(self) -> dict[str, int]:
        return {reason: dropped.count for reason, dropped in self.dropped.items()}


def batches_of(read: Reader, source: PlainFile) -> list[pa.RecordBatch]:
    """All batches, which are as `eans.data.formats.base` says."""
    found = list(read(source))
    for batch in found:
        assert batch.schema.names[:3] == ["head", "relation", "tail"]
        for column in batch.columns[:3]:
            plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            assert pa.types.is_large_string(plain.type) or pa.types.is_string(plain.type)
            assert not plain.null_count
            assert "" not in plain.to_pylist()
    return found


def triples_of(read: Reader, path: Path, **options: object) -> list[Triple]:
    """The triples that a reader finds in a file."""
    batches = batches_of(read, PlainFile(path, ReadOptions(**options)))  # type: ignore[arg-type]
    return [
        triple
        for batch in batches
        for triple in zip(*(column.to_pylist() for column in batch.columns[:3]), strict=True)
    ]


def message_of(work: Callable[[], object]) -> str:
    """The one line with which something fails."""
    with pytest.raises(DataError) as caught:
        work()
    text = str(caught.value)
    assert "\n" not in text
    assert text == text.strip()
    return text


def damaged(content: bytes, seed: int = 0) -> Iterator[bytes]:
    """A file cut short, with bytes changed, in other encodings, and no such file at all."""
    yield b""
    yield b"\xff\xfe\x00\x01" * 50
    yield random.Random(seed).randbytes(2000)
    yield content.replace(b"a", b"\xff", 1)
    yield content.decode().encode("utf-16")
    yield b"\0" * 300
    for part in range(1, 8):
        yield content[: len(content) * part // 8]
    for place in range(0, len(content), max(1, len(content) // 40)):
        yield content[:place] + b"\xff" + content[place + 1 :]


# A label is anything that UTF-8 can hold on one line without tabs.
labels = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r\0"), min_size=1, max_size=8)


def graphs(names: st.SearchStrategy[str] = labels, most: int = 12) -> st.SearchStrategy[list[Triple]]:
    """Lists of triples in which labels come again."""
    few = st.lists(names, min_size=1, max_size=4, unique=True)
    return few.flatmap(
        lambda known: st.lists(st.tuples(*[st.sampled_from(known)] * 3), min_size=1, max_size=most)  # type: ignore[arg-type]
    )
