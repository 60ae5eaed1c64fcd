"""Ids for labels that come in blocks, in the order of first appearance, without a Python object for any of them.

A label is found by a 64-bit hash in a table with open addressing, and then compared byte by byte: ids are exact. All of
it is array arithmetic on the buffers of Arrow. (Arrow's own ``dictionary_encode`` would build its table anew for each
block, or need a whole column in memory.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eans.vocabulary import LABELS, Vocabulary

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]

BLOCK = 1 << 14  # rows at a time: what is computed of them fits the cache
WORD = 8  # bytes that are hashed and compared at a time
_KEEP = np.array([(1 << 8 * size) - 1 for size in range(WORD + 1)], "<u8")  # the first bytes of a word
_ODD = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)  # of splitmix64


class Numbering:
    """Labels and their ids.

    Args:
        kind: what messages call one of them.
        known: labels that have the ids 0, 1, ...
    """

    def __init__(self, kind: str, known: pa.Array | None = None) -> None:
        self.kind = kind
        self._letters = np.zeros(1 << 12, np.uint8)
        self._bounds = np.zeros(1 << 8, np.int64)
        self._count = 0
        self._seed = 0
        self._make_table(1 << 10)
        if known is not None:
            self.number(known)

    def __len__(self) -> int:
        return self._count

    def vocabulary(self) -> Vocabulary:
        """The labels in the order of their ids, in the memory of the numbering, which numbers no more."""
        count, size = self._count, int(self._bounds[self._count])
        del self._ids, self._halves
        self._bounds.resize(count + 1, refcheck=False)
        self._letters.resize(size, refcheck=False)
        buffers = pa.py_buffer(self._bounds), pa.py_buffer(self._letters)
        return Vocabulary.of_different(pa.LargeStringArray.from_buffers(count, *buffers), self.kind)

    def unusable(self, start: int) -> int | None:
        """The first label from the id `start` on that is empty or has a tab or a line break, counted from there."""
        bounds = self._bounds[start : self._count + 1]
        letters = self._letters[int(bounds[0]) : int(bounds[-1])]
        breaks = np.flatnonzero((letters == ord("\t")) | (letters == ord("\n")) | (letters == ord("\r")))[:1]
        bad = [*np.flatnonzero(np.diff(bounds) == 0)[:1], *(np.searchsorted(bounds - bounds[0], breaks, "right") - 1)]
        return min(map(int, bad), default=None)

    def number(self, *columns: pa.Array) -> tuple[Ints, Ints]:
        """The ids of labels, read row by row, of which some may be new.

        Args:
            columns: C arrays of n labels.

        Returns:
            ids int64 ``[n, C]``; and where each new label is first, as ``row * C + column``, ascending.
        """
        size, width = len(columns[0]), len(columns)
        ids, firsts = np.empty((size, width), np.int64), [np.empty(0, np.int64)]
        for start in range(0, size, BLOCK):
            part = [column[start : start + BLOCK] for column in columns]
            words = _Words.of(part[0].cast(LABELS) if width == 1 else pa.concat_arrays([c.cast(LABELS) for c in part]))
            ids[start : start + BLOCK], new = self._numbered(words, width)
            firsts.append(new + start * width)
        return ids, np.concatenate(firsts)

    def _numbered(self, words: _Words, width: int) -> tuple[Ints, Ints]:
        before, size = self._count, len(words.sizes) // width
        while True:
            hashes = words.hashes(self._seed).reshape(width, size).T.ravel()
            ids = self._find(hashes)
            missing = np.flatnonzero(ids < 0)
            different, first, which = np.unique(hashes[missing], return_index=True, return_inverse=True)
            order = np.argsort(first)
            rank = np.empty(len(order), np.int64)
            rank[order] = np.arange(len(order))
            ids[missing] = before + rank[which]
            new, table = missing[first[order]], ids.reshape(size, width)
            self._append(words, new // width + size * (new % width))
            if words.equal(self._letters, self._bounds, table.T.ravel()):
                if 2 * self._count > len(self._ids):
                    self._make_table(max(2 * len(self._ids), 1 << (2 * self._count).bit_length()))
                else:
                    self._enter(different[order], before)
                return table, new
            # Two labels with one hash: all are hashed in another way.
            self._count, self._seed = before, self._seed + 1
            self._make_table(len(self._ids))

    def _append(self, words: _Words, rows: Ints) -> None:
        """Keep the labels at these rows, with the next ids."""
        sizes = words.sizes[rows]
        ends = self._bounds[self._count] + np.cumsum(sizes)
        count, size = self._count + len(rows), int(ends[-1]) if len(rows) else int(self._bounds[self._count])
        self._bounds = _grown(self._bounds, count + 1)
        self._letters = _grown(self._letters, size + WORD)  # the last word may be read beyond its end
        at = np.repeat(words.starts[rows] - (ends - sizes), sizes) + np.arange(self._bounds[self._count], size)
        self._letters[int(self._bounds[self._count]) : size] = words.letters[at]
        self._bounds[self._count + 1 : count + 1] = ends
        self._count = count

    def _make_table(self, size: int) -> None:
        """An empty table with `size` places, a power of 2, and all labels in it."""
        self._ids = np.full(size, -1, np.int32)
        self._halves = np.zeros(size, np.uint32)  # of the hashes, the lower ones
        for start in range(0, self._count, BLOCK):
            bounds = self._bounds[start : min(start + BLOCK, self._count) + 1]
            self._enter(_Words(self._letters, bounds).hashes(self._seed), start)

    def _places(self, hashes: Hashes) -> Ints:
        return (hashes >> np.uint64(65 - len(self._ids).bit_length())).astype(np.int64)

    def _enter(self, hashes: Hashes, first: int) -> None:
        """Put different hashes, which the table has not, into it, with ids from `first` on."""
        ids, at = np.arange(first, first + len(hashes), dtype=np.int32), self._places(hashes)
        while len(ids):
            free = self._ids[at] < 0
            self._ids[at[free]] = ids[free]  # of several, one is written
            left = self._ids[at] != ids
            self._halves[at[~left]] = hashes[~left].astype(np.uint32)
            ids, hashes, at = ids[left], hashes[left], (at[left] + 1) & (len(self._ids) - 1)

    def _find(self, hashes: Hashes) -> Ints:
        """The ids of hashes, -1 for those that the table has not."""
        at, halves = self._places(hashes), hashes.astype(np.uint32)
        ids = self._ids[at].astype(np.int64)
        left = np.flatnonzero((ids >= 0) & (self._halves[at] != halves))
        at = at[left]
        while len(left):
            at = (at + 1) & (len(self._ids) - 1)
            found = self._ids[at]
            ids[left] = found
            other = (found >= 0) & (self._halves[at] != halves[left])
            left, at = left[other], at[other]
        return ids


class _Words:
    """Labels as words of 8 bytes, the last one of each filled up with zeros.

    Attributes:
        letters: of all labels, uint8, with a word of zeros behind them.
        starts, sizes: where each label is in `letters`, and its length in bytes.
        columns: the first word of each label, the second of those that have one, and so on: which labels these are,
            the words, and what to keep of bytes there to get them (None for all).
    """

    def __init__(self, letters: NDArray[np.uint8], bounds: Ints) -> None:
        self.letters, self.starts, self.sizes = letters, bounds[:-1], np.diff(bounds)
        self.columns: list[tuple[Ints | slice, Hashes, Hashes | None]] = []
        rows: Ints | slice = slice(None)
        least, most = (int(self.sizes.min()), int(self.sizes.max())) if len(self.sizes) else (0, 0)
        for at in range(0, max(most, 1), WORD):
            if least <= at and at:
                rows = np.flatnonzero(self.sizes > at)
            keep = None if least >= at + WORD else _KEEP[np.clip(self.sizes[rows] - at, 0, WORD)]
            self.columns.append((rows, _words_at(letters, self.starts[rows] + at, keep), keep))

    @classmethod
    def of(cls, labels: pa.Array) -> _Words:
        """The words of a ``LargeStringArray`` without nulls."""
        _, offsets, letters = labels.buffers()
        bounds = np.frombuffer(offsets, np.int64)[labels.offset : labels.offset + len(labels) + 1]
        size = int(bounds[-1] - bounds[0])
        padded = np.zeros(size + WORD, np.uint8)
        if size:
            padded[:size] = np.frombuffer(letters, np.uint8)[bounds[0] : bounds[-1]]
        return cls(padded, bounds - bounds[0])

    def hashes(self, seed: int) -> Hashes:
        """64 bits for each label, others for each seed."""
        found = self.sizes.astype(np.uint64)
        found += np.uint64(seed << 32)
        found *= _ODD[2]
        for rows, words, _ in self.columns:
            mixed = found[rows] ^ words
            mixed *= _ODD[0]
            mixed ^= mixed >> np.uint64(32)
            found[rows] = mixed
        found *= _ODD[1]
        found ^= found >> np.uint64(29)
        found *= _ODD[2]
        return found

    def equal(self, letters: NDArray[np.uint8], bounds: Ints, ids: Ints) -> bool:
        """Whether each label is the one with its id."""
        starts = bounds[ids]
        return bool((bounds[ids + 1] - starts == self.sizes).all()) and all(
            bool((_words_at(letters, starts[rows] + WORD * column, keep) == words).all())
            for column, (rows, words, keep) in enumerate(self.columns)
        )


def _words_at(letters: NDArray[np.uint8], starts: Ints, keep: Hashes | None) -> Hashes:
    # Of type void, since NumPy takes single numbers that are not aligned one by one.
    at_any_byte = np.ndarray((len(letters) - WORD + 1,), f"V{WORD}", letters, strides=(1,))
    words: Hashes = at_any_byte[starts].view("<u8")
    return words if keep is None else words & keep


def _grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """The array, with room for `size` values: an eighth more than now at least."""
    if size > len(array):
        array.resize(max(size, len(array) + len(array) // 8), refcheck=False)
    return array
