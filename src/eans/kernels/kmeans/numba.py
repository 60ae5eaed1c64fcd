"""Distances to a point and means of groups on a CPU, as compiled loops.

The parts that threads share are whole points or groups, so the bits do not depend on their number.
"""

# Numba's decorator is untyped, and the arguments of a loop are arrays and scalars whose types the compiler infers.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import numpy as np
import torch
from numba import uint64
from torch import Tensor

from eans.kernels.numba_arrays import flat, segments
from eans.kernels.numba_threads import compiled, cuts, run_rows, share, threads_for


@compiled
def _distances_loop(distances, points, norms, place, columns, first, last):
    """Squared distances of the points ``[first, last)``, of `columns` columns, to the one at `place`."""
    zero, two = norms.dtype.type(0), norms.dtype.type(2)
    seed = uint64(place) * uint64(columns)
    for e in range(uint64(first), uint64(last)):
        row = e * uint64(columns)
        product = zero
        for j in range(uint64(columns)):
            product += points[row + j] * points[seed + j]
        distance = norms[e] - two * product + norms[uint64(place)]
        distances[e] = zero if distance < zero else distance


def distances_to(points: Tensor, norms: Tensor, place: Tensor) -> Tensor:
    """`eans.kernels.distances_to`; PyTorch's product of a matrix and a vector uses one thread."""
    chosen, (size, columns) = int(place), points.shape
    if not 0 <= chosen < size or norms.shape != (size,) or norms.dtype != points.dtype:
        raise ValueError(f"no distances of points {list(points.shape)} to number {chosen}")
    distances = torch.empty_like(norms)
    given = flat(points.contiguous()), flat(norms.contiguous()), chosen, columns
    run_rows(_distances_loop, size, points.numel(), flat(distances), *given)
    return distances


@compiled
def _means_loop(means, points, total, order, starts, stride, first, last):
    """Means of the groups ``[first, last)``: the members of group g are ``order[starts[g] : starts[g + 1]]``.

    `points` has rows `stride` apart, as wide as `total`, which is scratch.
    """
    columns = uint64(len(total))
    for g in range(uint64(first), uint64(last)):
        total[:] = 0
        for p in range(uint64(starts[g]), uint64(starts[g + uint64(1)])):
            row = uint64(order[p]) * uint64(stride)
            for j in range(columns):
                total[j] += points[row + j]
        size = max(1, starts[g + uint64(1)] - starts[g])
        for j in range(columns):
            means[g * columns + j] = total[j] / size


def group_means(points: Tensor, groups: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`eans.kernels.group_means`: each thread adds up whole groups, in float64."""
    if len(groups) != len(points) or (len(groups) and not 0 <= int(groups.min()) <= int(groups.max()) < k):
        raise ValueError(f"{len(points)} points need a group in 0..{k - 1} each")
    points = points if points.stride(1) == 1 else points.contiguous()
    order, starts = segments(groups, k)
    means = points.new_empty(k, points.shape[1])
    out, flat_points, threads = flat(means), flat(points), threads_for(points.numel())

    def part(first: int, last: int) -> None:
        total = np.empty(points.shape[1], np.float64)
        _means_loop(out, flat_points, total, order, starts, points.stride(0), first, last)

    share(part, cuts(k, 8 * threads if threads > 1 else 1), threads)
    return means, torch.from_numpy(np.diff(starts[: k + 1]))
