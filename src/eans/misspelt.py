"""Which of very many labels a misspelt one may mean: few are compared closely, those that share most with it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eans.errors import did_you_mean

COMPARED = 20_000  # labels of which each is compared; comparing one takes some 5 us
ALIKE = 2_000  # those that are compared where there are more
BLOCK = 1 << 16  # labels of which bytes are counted at a time


def nearest(label: str, known: pa.LargeStringArray) -> str:
    """``"; did you mean 'x'?"`` for the known label, without nulls, that is most like this one, or ``""``."""
    if len(known) > COMPARED:
        shares = np.concatenate([_shares(label.lower(), known.slice(at, BLOCK)) for at in range(0, len(known), BLOCK)])
        found = np.argpartition(shares, len(shares) - ALIKE)[-ALIKE:]
        known = known.take(pa.array(found[np.lexsort((found, -shares[found]))]))
    return did_you_mean(label, known.to_pylist())


def _shares(wanted: str, known: pa.LargeStringArray) -> NDArray[np.float32]:
    """How much of known labels ``[n]`` and the wanted one is in both: single bytes and pairs of neighbours, ``[n]``.

    Below 1. What a known label repeats counts as often, up to the length of the wanted one. Case does not count.
    """
    lowered = pc.utf8_lower(known)
    _, offsets, letters = lowered.buffers()
    bounds = np.frombuffer(offsets, np.int64)[lowered.offset : lowered.offset + len(lowered) + 1]
    text = np.frombuffer(letters, np.uint8)[bounds[0] : bounds[-1]]
    asked = np.frombuffer(wanted.encode(), np.uint8)
    singles, pairs = np.zeros(1 << 8, np.uint8), np.zeros(1 << 16, np.uint8)
    singles[asked] = pairs[_pairs(asked)] = 1
    starts, ends = bounds[:-1] - bounds[0], bounds[1:] - bounds[0]
    alike = np.minimum(_sums(singles[text], starts, ends), len(asked))
    alike += np.minimum(_sums(pairs[_pairs(text)], starts, np.maximum(ends - 1, starts)), len(asked) - 1)
    share: NDArray[np.float32] = alike.astype(np.float32) / np.maximum(ends - starts + len(asked), 1)
    return share


def _pairs(text: NDArray[np.uint8]) -> NDArray[np.uint16]:
    codes = text[:-1].astype(np.uint16)
    codes <<= 8
    codes |= text[1:]
    return codes


def _sums(values: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of ``values[starts[i] : ends[i]]``."""
    before = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=before[1:])
    return before[ends] - before[starts]
