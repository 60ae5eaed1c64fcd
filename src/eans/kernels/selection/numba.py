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
def _worse(scores, entities, i, j):
    """Is the member at `i` worse than that at `j`? Of equal scores, the larger id is."""
    return scores[i] < scores[j] or (scores[i] == scores[j] and entities[i] > entities[j])


@compiled
def _sink(scores, entities, base, size):
    """Bring the root of a heap of `size` members at `base` to its place."""
    one, two = uint64(1), uint64(2)
    place = uint64(0)
    while True:
        child = two * place + one
        if child >= size:
            return
        if child + one < size and _worse(scores, entities, base + child + one, base + child):
            child += one
        i, j = base + place, base + child
        if not _worse(scores, entities, j, i):
            return
        scores[i], scores[j] = scores[j], scores[i]
        entities[i], entities[j] = entities[j], entities[i]
        place = child


@compiled
def _offer(scores, entities, base, size, k, score, e, keys, start, stop, num_entities):
    """Take a candidate into the heap at `base` if it is not known; returns the size of the heap."""
    if start < stop:
        wanted = keys[start] - keys[start] % num_entities + e
        while start < stop:
            middle = (start + stop) // uint64(2)
            if keys[middle] == wanted:
                return size
            if keys[middle] < wanted:
                start = middle + uint64(1)
            else:
                stop = middle
    one, two = uint64(1), uint64(2)
    if size == k:
        scores[base], entities[base] = score, e
        _sink(scores, entities, base, size)
        return size
    place = size
    scores[base + place], entities[base + place] = score, e
    while place:
        parent = (place - one) // two
        i, j = base + place, base + parent
        if not _worse(scores, entities, i, j):
            break
        scores[i], scores[j] = scores[j], scores[i]
        entities[i], entities[j] = entities[j], entities[i]
        place = parent
    return size + one


@compiled
def _finish(scores, entities, base, size, k):
    """Turn the heap into a list of `k`, best first."""
    for place in range(size, k):
        scores[base + place], entities[base + place] = -math.inf, -1
    last = size
    while last > uint64(1):
        last -= uint64(1)
        i, j = base, base + last
        scores[i], scores[j] = scores[j], scores[i]
        entities[i], entities[j] = entities[j], entities[i]
        _sink(scores, entities, base, last)


@compiled
def _best_loop(best, entities, nan, k, scores, stride, num_entities, keys, start, stop, first, last):
    """Rows ``[first, last)`` of `scores`, which lie `stride` apart; the results are ``[B * k]``, `nan` ``[B]``."""
    width, size_k = uint64(num_entities), uint64(k)
    for b in range(uint64(first), uint64(last)):
        row, base, size = b * uint64(stride), b * size_k, uint64(0)
        begin, end = uint64(start[b]), uint64(stop[b])
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
                elif size < size_k or score > best[base]:
                    size = _offer(best, entities, base, size, size_k, score, e, keys, begin, end, num_entities)
        _finish(best, entities, base, size, size_k)


def best(scores: Tensor, k: int, keys: Tensor, start: Tensor, stop: Tensor) -> Best:
    """`eans.kernels.best`, compiled; float32 or float64."""
    _check(scores, k, keys, start, stop)
    scores = scores if scores.stride(1) == 1 else scores.contiguous()
    shape = len(scores), k
    entities = torch.empty(shape, dtype=torch.int64)
    found = Best(scores.new_empty(shape), entities, torch.zeros(len(scores), dtype=torch.bool))
    given = flat(scores), scores.stride(0), scores.shape[1]
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
