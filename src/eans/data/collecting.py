"""From batches of labelled triples to ids: int32 while a file is read, then the int64 tensor of a graph."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from eans.arguments import shown
from eans.data.findings import brief
from eans.data.formats import read
from eans.data.formats.base import PARTS
from eans.data.formats.source import FileSource
from eans.errors import DataError
from eans.graph import HEAD, RELATION, TAIL
from eans.numbering import Numbering
from eans.vocabulary import Vocabulary

ROWS = 1 << 20  # triples in a block of memory, which is given back as a whole


@dataclass
class Names:
    """The ids of one kind, and why there may be no others.

    Attributes:
        numbering: the labels so far.
        file: of all labels, where there is one.
        vocabulary: of a graph whose labels they must be.
    """

    numbering: Numbering
    file: Path | None = None
    vocabulary: Vocabulary | None = None

    @property
    def fixed(self) -> bool:
        return self.file is not None or self.vocabulary is not None

    def refusal(self, label: str) -> str:
        """What is wrong with a new label."""
        if self.vocabulary is not None:
            return f"unknown {self.numbering.kind} {brief(label)}{self.vocabulary.nearest(label)}"
        name = self.file.name if self.file is not None else ""
        return f"{self.numbering.kind} {brief(label)} is not in {name}; add it there or remove {name}"


@dataclass
class Collected:
    """The ids of triples, and of each its weight, float32, and its time, where the source has them."""

    ids: Blocks
    weights: Tensor | None = None
    times: Tensor | None = None


def collect(source: FileSource, entities: Names, relations: Names) -> Collected:
    """All triples of a source; new labels enter the numberings."""
    blocks, weights, times, rows = Blocks(), [], [], 0
    with closing(read(source)) as batches, ThreadPoolExecutor(1) as beside:  # type: ignore[type-var]
        for batch in batches:
            parts = [batch.column(part) for part in PARTS]
            before = len(entities.numbering), len(relations.numbering)
            numbered = beside.submit(relations.numbering.number, parts[RELATION])
            ends, new_ends = entities.numbering.number(parts[HEAD], parts[TAIL])
            kinds, new_kinds = numbered.result()
            places = [(at // 2, TAIL if at % 2 else HEAD) for at in _bad(entities, before[0], new_ends)]
            places += [(at, RELATION) for at in _bad(relations, before[1], new_kinds)]
            if places:
                row, part = min(places)
                names = relations if part == RELATION else entities
                raise DataError(f"{source.place(rows + row)}: {_reason(parts[part], row, PARTS[part], names)}")
            blocks.add(ends, kinds)
            if "weight" in batch.schema.names:
                weights.append(batch.column("weight").to_numpy(zero_copy_only=False).astype(np.float32))
            if "time" in batch.schema.names:
                times.append(batch.column("time"))
            rows += len(batch)
    pa.default_memory_pool().release_unused()
    found = Collected(blocks)
    if weights:
        found.weights = torch.from_numpy(np.concatenate(weights))
        if not bool(found.weights.any()):
            raise DataError(f"{source.path}: all weights are 0; nothing would be learned")
    if times:
        found.times = _times(times, source.path)
    return found


def _bad(names: Names, before: int, new: NDArray[np.int64]) -> list[int]:
    """The first of the `new` labels that cannot be one, if any: where it is."""
    bad = 0 if names.fixed else names.numbering.unusable(before)
    return [int(new[bad])] if bad is not None and len(new) else []


def _reason(column: pa.Array, row: int, part: str, names: Names) -> str:
    """What is wrong with a label."""
    label = column[row].as_py()
    if not label:
        return f"empty {part}; fill in the field or delete the line"
    if any(letter in label for letter in "\t\n\r"):
        return f"the {part} {shown(label)} has a tab or a line break, which a label cannot have; replace it"
    return names.refusal(label)


def _times(chunks: list[pa.Array], path: Path) -> Tensor:
    """Times as numbers: their own, or those of texts that are numbers, or else the ranks of texts."""
    kind = chunks[0].type if len({chunk.type for chunk in chunks}) == 1 else pa.large_string()
    times = pa.chunked_array([chunk.cast(kind) for chunk in chunks])
    if pa.types.is_temporal(kind):
        times = times.cast(pa.int64() if kind.bit_width == 64 else pa.int32()).cast(pa.int64())
    for number in (pa.int64(), pa.float64()):
        try:
            values = times.cast(number).to_numpy()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        if np.isfinite(values).all():
            return torch.from_numpy(values.copy())
    try:
        different = times.unique().sort()
        return torch.from_numpy(pc.index_in(times, value_set=different).to_numpy().astype(np.int64))
    except (pa.ArrowException, NotImplementedError, AttributeError):
        raise DataError(f"{path}: times of type {kind} cannot be compared; give numbers, dates or texts") from None


class Blocks:
    """Ids as they come: int32 ``[ROWS, 3]`` in memory that the system gets back in the end."""

    def __init__(self) -> None:
        self._blocks: list[NDArray[np.int32]] = []
        self._used = ROWS

    def add(self, ends: NDArray[np.int64], relations: NDArray[np.int64]) -> None:
        start = 0
        while start < len(ends):
            if self._used == ROWS:
                self._blocks.append(np.frombuffer(mmap.mmap(-1, ROWS * 12), np.int32).reshape(ROWS, 3))
                self._used = 0
            count = min(ROWS - self._used, len(ends) - start)
            to, part = self._blocks[-1][self._used : self._used + count], slice(start, start + count)
            to[:, HEAD], to[:, RELATION], to[:, TAIL] = ends[part, 0], relations[part, 0], ends[part, 1]
            self._used, start = self._used + count, start + count

    def tensor(self) -> Tensor:
        """All of them, int64 ``[n, 3]``; the blocks are gone then."""
        blocks = self._taken()
        size = max(len(self._blocks) - 1, 0) * ROWS + (self._used if self._blocks else 0)
        found, start = np.empty((size, 3), np.int64), 0
        for block in blocks:
            found[start : start + len(block)] = block[: size - start]
            start += len(block)
        return torch.from_numpy(found)

    def _taken(self) -> Iterator[NDArray[np.int32]]:
        self._blocks.reverse()
        while self._blocks:
            yield self._blocks.pop()
