"""`count_better` on a CPU as a compiled loop: one pass over the scores of a row, one over its known answers.

`eans.kernels.reference` defines what is computed. The numbers are whole, so they do not depend on the threads.
"""

# Numba's decorator is untyped, and the arguments of a loop are arrays and numbers of types that the compiler infers.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import torch
from numba import uint64
from torch import Tensor

from eans.kernels.numba_pairs import flat
from eans.kernels.numba_threads import compiled, share_rows, threads_for
from eans.kernels.reference import Counts, check_counts

__all__ = ["count_better"]


@compiled
def _rows_loop(greater, equal, nan, scores, stride, num_entities, truth, keys, start, stop, first, last):
    """Count in rows ``[first, last)`` of `scores`, which lie `stride` numbers apart; the others are ``[B]``."""
    entities = uint64(num_entities)
    for b in range(uint64(first), uint64(last)):
        row = b * uint64(stride)
        mine = uint64(truth[b])
        level = scores[row + mine]
        above = same = undefined = 0
        for e in range(entities):
            score = scores[row + e]
            above += score > level
            same += score == level
            undefined += score != score
        same -= 1  # the true entity itself
        for place in range(uint64(start[b]), uint64(stop[b])):
            e = uint64(keys[place]) % entities
            score = scores[row + e]
            above -= score > level
            same -= (score == level) & (e != mine)
        greater[b], equal[b], nan[b] = above, same, undefined


def _check(scores: Tensor, truth: Tensor, keys: Tensor, start: Tensor, stop: Tensor) -> None:
    """Refuse what the loop, which checks nothing, would read wrongly; arguments as of `count_better`."""
    check_counts(scores, truth, keys, start, stop)
    if any(tensor.device.type != "cpu" for tensor in (scores, truth, keys, start, stop)):
        raise ValueError("the compiled loops take tensors on the CPU only")
    if not len(scores):
        return
    mine, begin, end = truth.numpy(), start.numpy(), stop.numpy()
    if mine.min() < 0 or mine.max() >= scores.shape[1]:
        raise IndexError(f"entities from {mine.min()} to {mine.max()} among {scores.shape[1]}")
    if begin.min() < 0 or end.max() > len(keys):
        raise IndexError(f"answers from {begin.min()} to {end.max()} among {len(keys)}")


def count_better(scores: Tensor, truth: Tensor, keys: Tensor, start: Tensor, stop: Tensor) -> Counts:
    """`reference.count_better`, compiled; float32 or float64."""
    _check(scores, truth, keys, start, stop)
    batch, num_entities = scores.shape
    counts = Counts(*(torch.empty(batch, dtype=torch.int64) for _ in range(3)))
    scores = scores if scores.stride(1) == 1 else scores.contiguous()
    out, numbers = [flat(count) for count in counts], flat(scores)
    answers = [flat(tensor.contiguous()) for tensor in (truth, keys, start, stop)]
    threads = threads_for(scores.numel())

    def part(first: int, last: int) -> None:
        _rows_loop(*out, numbers, scores.stride(0), num_entities, *answers, first, last)

    share_rows(part, batch, threads)
    return counts
