"""`best` on a CPU as compiled loops.

The best so far of a row are a heap whose root is the worst of them. Few scores get past it, so a group of scores is
compared with the root first. The order of the ids decides among equal scores, and no row depends on another one.
"""

# Numba's decorator is untyped, and the arguments of a loop are arrays and scalars whose types the compiler infers.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import math

import torch
from numba import uint64
from torch import Tensor

from eans.kernels.numba_arrays import flat
from eans.kernels.numba_threads import compiled, inlined, run_rows
from eans.kernels.rank import check_counts
from eans.kernels.selection import Best

# Scores that are looked at together: whether any of them belongs to the best.
GROUP = 64


@inlined
def _worse(score, e, other, o):
    """Is the first candidate worse than the second? Of equal scores, the larger id is."""
    return score < other or (score == other and e > o)


@inlined
def _sink(scores, entities, base, size, score, e):
    """Put a candidate into a heap of `size` members at `base` whose root is free."""
    one, two, place = uint64(1), uint64(2), uint64(0)
    while True:
        child = two * place + one
        if child >= size:
            break
        c = base + child
        if child + one < size and _worse(scores[c + one], entities[c + one], scores[c], entities[c]):
            child, c = child + one, c + one
        if not _worse(scores[c], entities[c], score, e):
            break
        scores[base + place], entities[base + place] = scores[c], entities[c]
        place = child
    scores[base + place], entities[base + place] = score, e


@inlined
def _rise(scores, entities, base, size, score, e):
    """Add a candidate to a heap of `size` members at `base`."""
    one, two, place = uint64(1), uint64(2), size
    while place:
        parent = (place - one) // two
        p = base + parent
        if not _worse(score, e, scores[p], entities[p]):
            break
        scores[base + place], entities[base + place] = scores[p], entities[p]
        place = parent
    scores[base + place], entities[base + place] = score, e


@inlined
def _is_known(e, keys, start, stop, num_entities):
    """Is the entity one of the answers ``keys[start:stop]``?"""
    if start >= stop:
        return False
    wanted = keys[start] - keys[start] % num_entities + e
    while start < stop:
        middle = (start + stop) // uint64(2)
        if keys[middle] < wanted:
            start = middle + uint64(1)
        elif keys[middle] > wanted:
            stop = middle
        else:
            return True
    return False


@inlined
def _finish(scores, entities, base, size, k, begin):
    """Turn the heap into a list of `k`, best first; columns become entities, which count from `begin`."""
    for place in range(size, k):
        scores[base + place], entities[base + place] = -math.inf, -1
    last = size
    while last > uint64(1):
        last -= uint64(1)
        i = base + last
        score, e = scores[i], entities[i]
        scores[i], entities[i] = scores[base], entities[base]
        _sink(scores, entities, base, last, score, e)
    for place in range(size):
        entities[base + place] += begin


@compiled
def _best_loop(
    best, entities, nan, k, scores, stride, columns, begin, num_entities, keys, start, stop, first, last
):  # fmt: skip
    """Rows ``[first, last)`` of `scores`, which lie `stride` apart; the results are ``[B * k]``, `nan` ``[B]``."""
    width, size_k, offset = uint64(columns), uint64(k), uint64(begin)
    for b in range(uint64(first), uint64(last)):
        row, base, size = b * uint64(stride), b * size_k, uint64(0)
        low, high = uint64(start[b]), uint64(stop[b])
        for group in range(uint64(0), width, uint64(GROUP)):
            level = best[base] if size == size_k else scores.dtype.type(-math.inf)
            until = min(group + uint64(GROUP), width)
            if size == size_k:
                found = 0
                for e in range(group, until):
                    found += not (scores[row + e] <= level)  # NaN as well
                if not found:
                    continue
            for e in range(group, until):
                score = scores[row + e]
                if score != score:
                    nan[b] = True
                elif size < size_k:
                    if not _is_known(e + offset, keys, low, high, num_entities):
                        _rise(best, entities, base, size, score, e)
                        size += uint64(1)
                elif score > best[base] and not _is_known(e + offset, keys, low, high, num_entities):
                    _sink(best, entities, base, size, score, e)
        _finish(best, entities, base, size, size_k, begin)


def best(
    scores: Tensor,
    k: int,
    keys: Tensor,
    start: Tensor,
    stop: Tensor,
    first: int = 0,
    num_entities: int | None = None,
) -> Best:
    """`eans.kernels.best`, compiled; float32 or float64."""
    _check(scores, k, keys, start, stop)
    scores = scores if scores.stride(1) == 1 else scores.contiguous()
    shape = len(scores), k
    entities = torch.empty(shape, dtype=torch.int64)
    found = Best(scores.new_empty(shape), entities, torch.zeros(len(scores), dtype=torch.bool))
    given = flat(scores), scores.stride(0), scores.shape[1], first, num_entities or scores.shape[1]
    answers = [flat(tensor.contiguous()) for tensor in (keys, start, stop)]
    run_rows(_best_loop, len(scores), scores.numel(), *map(flat, found), k, *given, *answers)
    return found


def _check(scores: Tensor, k: int, keys: Tensor, start: Tensor, stop: Tensor) -> None:
    """Raise for what the loops, which check nothing, would read wrongly; arguments as of `best`."""
    check_counts(scores, start, keys, start, stop)
    if any(tensor.device.type != "cpu" for tensor in (scores, keys, start, stop)):
        raise ValueError("the compiled loops take tensors on the CPU only")
    if not 0 < k <= max(1, scores.shape[1]):
        raise ValueError(f"the {k} best of {scores.shape[1]}")
    if len(start) and (int(start.min()) < 0 or int(stop.max()) > len(keys)):
        raise IndexError(f"answers from {int(start.min())} to {int(stop.max())} among {len(keys)}")
