"""Gradients of `compare` on a CPU as compiled loops.

`eans.kernels.numba_rows` has the formulas. The (positive, candidate) pairs are walked in the order of their entities.
The entity's row and its gradient then stay in the nearest cache while the queries, a few megabytes, come from a farther
one; in the order of the positives every candidate row comes from memory, which takes three times as long. One walk
gives both gradients. Threads share the entities; each part of them has its own gradient of the queries, and these are
added at the end. The parts depend on the sizes only, so the bits do not depend on the number of threads.
"""

# Numba's decorator is untyped, and the arguments of a loop are arrays and scalars whose types the compiler infers.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numba import uint64
from torch import Tensor

from eans.kernels.comparison.numba_pairs import Pairs
from eans.kernels.kinds import Comparison, width_of
from eans.kernels.numba_arrays import flat, zeros
from eans.kernels.numba_rows import DOT, KINDS, L1, pull_of_modulus, pull_of_sign
from eans.kernels.numba_threads import compiled, cuts, share, threads_for

# Parts that threads share in the backward pass; fewer when there are few candidates, because each part costs as much as
# about one candidate of each positive.
MOST_PARTS, CANDIDATES_PER_PART = 8, 16


@cache
def _walk(kind: int, moved: bool) -> Any:
    """The loop over pairs ``[first, last)`` with one query of each positive: sets `to_query`, adds to `to_rows`.

    `to_query`, `query` ``[B * D]``, `to_rows` ``[rows * D]``, `table` rows `stride` apart, `gradient`, the pairs and
    their `target` among the rows ``[B * N]``. For distances to moved candidates it also sets `to_shift` ``[B * D]`` and
    adds to `to_scalars` ``[E]``, from `shift` ``[B * D]`` and `scalars` ``[E]``; otherwise these four are empty.
    """

    @compiled
    def walk(
        to_query, to_rows, to_shift, to_scalars, gradient, query, shift, scalars,
        table, stride, place, entity, positive, target, dim, width, first, last,
    ):  # fmt: skip
        columns, half = uint64(width), uint64(dim // 2)
        zero, one = gradient.dtype.type(0), gradient.dtype.type(1)
        to_query[:] = 0
        to_shift[:] = 0
        for p in range(uint64(first), uint64(last)):
            r = uint64(entity[p] * stride)
            t = uint64(target[p] * dim)
            q = uint64(positive[p] * dim)
            g = gradient[uint64(place[p])]
            if kind == DOT:
                for j in range(columns):
                    to_rows[t + j] += g * query[q + j]
                    to_query[q + j] += g * table[r + j]
            elif kind == L1 and not moved:
                for j in range(columns):
                    pull = pull_of_sign(query[q + j], table[r + j], g, zero)
                    to_rows[t + j] += pull
                    to_query[q + j] -= pull
            elif kind == L1:
                s, along = scalars[uint64(entity[p])], zero
                for j in range(columns):
                    pull = pull_of_sign(query[q + j], table[r + j] + s * shift[q + j], g, zero)
                    to_rows[t + j] += pull
                    to_query[q + j] -= pull
                    to_shift[q + j] += s * pull
                    along += pull * shift[q + j]
                to_scalars[uint64(entity[p])] += along
            elif not moved:
                for j in range(columns):
                    real = query[q + j] - table[r + j]
                    imag = query[q + half + j] - table[r + half + j]
                    scale = pull_of_modulus(real, imag, g, zero, one)
                    to_rows[t + j] += scale * real
                    to_rows[t + half + j] += scale * imag
                    to_query[q + j] -= scale * real
                    to_query[q + half + j] -= scale * imag
            else:
                s, along = scalars[uint64(entity[p])], zero
                for j in range(columns):
                    real = query[q + j] - (table[r + j] + s * shift[q + j])
                    imag = query[q + half + j] - (table[r + half + j] + s * shift[q + half + j])
                    scale = pull_of_modulus(real, imag, g, zero, one)
                    real *= scale
                    imag *= scale
                    to_rows[t + j] += real
                    to_rows[t + half + j] += imag
                    to_query[q + j] -= real
                    to_query[q + half + j] -= imag
                    to_shift[q + j] += s * real
                    to_shift[q + half + j] += s * imag
                    along += real * shift[q + j] + imag * shift[q + half + j]
                to_scalars[uint64(entity[p])] += along

    return walk


@compiled
def _add_up(total, parts, first, last):
    """Add the rows of `parts` ``[K, B * D]`` to `total` in elements ``[first, last)``."""
    for part in parts:
        for i in range(uint64(first), uint64(last)):
            total[i] += part[i]


def _parts(pairs: Pairs, negatives: int) -> list[tuple[int, int]]:
    """Intervals of the pairs with about as many each, none of which ends inside an entity."""
    count = min(MOST_PARTS, 1 + negatives // CANDIDATES_PER_PART)
    if count == 1:
        return [(0, len(pairs.entity))]
    inner = pairs.entity[[first for first, _ in cuts(len(pairs.entity), count)][1:]]
    ends = [0, *np.unique(np.searchsorted(pairs.entity, inner)).tolist(), len(pairs.entity)]
    return [(first, last) for first, last in pairwise(ends) if first < last or last == 0]


def gradients(
    kind: Comparison,
    gradient: Tensor,
    queries: Tensor,
    table: Tensor,
    pairs: Pairs,
    shifts: Tensor | None,
    scalars: Tensor | None,
    targets: tuple[Any, int] | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of queries ``[Q, B, D]``, table ``[E, D]``, shifts ``[Q, B, D]`` and scalars ``[E]``.

    Arguments: that of the scores ``[Q, B, N]``; those of `compare`, contiguous except for the stride of the table's
    rows, with the sorted pairs instead of the entities. `dot` takes no shifts here. With `targets`, where each pair's
    entity stands among those that occur, and how many these are (see `distinct`), the gradient of the table has their
    rows alone: ``[U, D]``.
    """
    dim, size = queries.shape[2], queries[:1].numel()
    threads = threads_for(gradient[:1].numel() * dim)
    intervals = _parts(pairs, gradient.shape[2])
    target, count = targets or (pairs.entity, len(table))
    to_table, to_queries = zeros((count, dim), table.dtype), torch.empty_like(queries)
    to_shifts = None if shifts is None else torch.empty_like(shifts)
    to_scalars = None if scalars is None else torch.zeros_like(scalars)
    # The first part writes the result itself, each other one a row of its own; again for the next query.
    room = torch.empty(1 if shifts is None else 2, len(intervals) - 1, size, dtype=queries.dtype)
    more = list(room.numpy())
    where = flat(table), table.stride(0), *pairs, target, dim, width_of(kind, dim)
    loop, to_rows, nothing = _walk(KINDS[kind], shifts is not None), flat(to_table), flat(queries.new_empty(0))

    for index, (outer, query) in enumerate(zip(gradient, queries, strict=True)):
        totals, sums = [flat(to_queries[index])], nothing
        given = [flat(outer), flat(query), nothing, nothing]
        if shifts is not None and to_shifts is not None and scalars is not None and to_scalars is not None:
            given[2:] = flat(shifts[index]), flat(scalars)
            totals.append(flat(to_shifts[index]))
            sums = flat(to_scalars)

        def walk(part: int, first: int, last: int, totals: Any = totals, sums: Any = sums, given: Any = given) -> None:
            to_query, to_shift = [*(totals if part == 0 else [rows[part - 1] for rows in more]), nothing][:2]
            loop(to_query, to_rows, to_shift, sums, *given, *where, first, last)

        def add_up(first: int, last: int, totals: Any = totals) -> None:
            for total, rows in zip(totals, more, strict=True):
                _add_up(total, rows, first, last)

        share(walk, [(part, *interval) for part, interval in enumerate(intervals)], threads)
        if len(intervals) > 1:
            share(add_up, cuts(size, threads, 1 << 12), threads)
    return to_queries, to_table, to_shifts, to_scalars
