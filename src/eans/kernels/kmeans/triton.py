"""The two halves of a K-means iteration on GPUs: `nearest` and `group_means`; no atomics, so the bits repeat.

* `nearest`: a program compares some points with all centroids, a block of them at a time, and keeps the best in
  registers; no ``[E, k]`` matrix is written. Products are made of three TensorFloat-32 products each, which together
  are as exact as float32.
* `group_means`: a stable sort has put the points of a group side by side. A program adds up the rows of one interval of
  the sorted points, group by group; a second kernel adds these sums. Both read their input once, whatever k is.

Nothing here waits for the device.
"""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from eans.kernels.kmeans import reference


class Block(NamedTuple):
    """Points, centroids and columns that a program holds at a time (powers of two, at least 16), its warps, and how
    many blocks of columns are on their way to it.
    """

    points: int
    centroids: int
    columns: int
    warps: int
    stages: int = 3


NEAREST_BLOCK = Block(128, 128, 32, 8)
# Rows that a program of `group_means` loads at a time, columns that it owns, and its warps.
ROWS, COLUMNS, WARPS = 8, 256, 4
# Intervals of the sorted points: of at least so many points, and about so many of them.
LEAST_INTERVAL, INTERVALS = 32, 4096


@triton.jit
def _nearest_kernel(
    labels,  # [E]
    distances,  # [E]
    points,  # [E, F], rows STRIDE apart
    centroids,  # [k, F], contiguous
    norms,  # [k]: squared lengths of the centroids
    num_points,
    k,
    DIM: tl.constexpr,
    STRIDE: tl.constexpr,
    BP: tl.constexpr,
    BK: tl.constexpr,
    WIDTH: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Label and squared distance of BP points: the least ``|c|^2 - 2 p.c``, then ``+ |p|^2``."""
    point = tl.program_id(0).to(tl.int64) * BP + tl.arange(0, BP)
    # Beyond the ends: the last point or centroid again, not stored or not chosen.
    points += tl.minimum(point, num_points - 1)[:, None] * STRIDE
    best = tl.full([BP], float("inf"), dtype=tl.float32)
    label = tl.zeros([BP], dtype=tl.int32)
    length = tl.zeros([BP], dtype=tl.float32)
    for first in range(0, k, BK):
        centroid = first + tl.arange(0, BK)
        rows = centroids + tl.minimum(centroid, k - 1)[None, :] * DIM
        product = tl.zeros([BP, BK], dtype=tl.float32)
        squares = tl.zeros([BP, WIDTH], dtype=tl.float32)
        for start in tl.range(0, DIM, WIDTH, num_stages=STAGES):
            column = start + tl.arange(0, WIDTH)
            left = tl.load(points + column[None, :], mask=(column < DIM)[None, :], other=0.0)
            right = tl.load(rows + column[:, None], mask=(column < DIM)[:, None], other=0.0)
            product = tl.dot(left, right, product, input_precision="tf32x3")
            squares += left * left
        partial = tl.load(norms + tl.minimum(centroid, k - 1))[None, :] - 2.0 * product
        partial = tl.where((centroid < k)[None, :], partial, float("inf"))
        least, place = tl.min(partial, axis=1, return_indices=True, return_indices_tie_break_left=True)
        label = tl.where(least < best, first + place, label)
        best = tl.minimum(least, best)
        length = tl.sum(squares, axis=1)  # the same in every round
    tl.store(labels + point, label.to(tl.int64), mask=point < num_points)
    tl.store(distances + point, tl.maximum(best + length, 0.0), mask=point < num_points)


def nearest(points: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """`eans.kernels.nearest` in one kernel for float32; of centroids at the same distance the first is taken."""
    if points.dtype != torch.float32 or centroids.dtype != torch.float32 or not len(points):
        return reference.nearest(points, centroids)
    points, centroids = points if points.stride(1) == 1 else points.contiguous(), centroids.contiguous()
    num_points, k = len(points), len(centroids)
    labels = torch.empty(num_points, dtype=torch.int64, device=points.device)
    distances = points.new_empty(num_points)
    block = NEAREST_BLOCK
    with torch.cuda.device_of(points):
        _nearest_kernel[(triton.cdiv(num_points, block.points),)](
            labels,
            distances,
            points,
            centroids,
            centroids.square().sum(1),
            num_points,
            k,
            DIM=points.shape[1],
            STRIDE=points.stride(0),
            BP=block.points,
            BK=max(16, min(block.centroids, triton.next_power_of_2(k))),
            WIDTH=block.columns,
            STAGES=block.stages,
            num_warps=block.warps,
        )
    return labels, distances


@triton.jit
def _interval_kernel(
    sums,  # [intervals + k - 1, F]
    points,  # [E, F], rows STRIDE apart
    order,  # [E]: points sorted by group
    groups,  # [E]: their groups, sorted
    starts,  # [k + 1]: where each group begins in `order`
    num_points,
    DIM: tl.constexpr,
    STRIDE: tl.constexpr,
    LENGTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Sums of one interval's points, group by group, over some columns.

    The sum of group g goes to row ``interval + g``. From one such pair to the next in the sorted order at least one of
    the two grows, so no row has two owners, and those of one group are neighbours.
    """
    interval = tl.program_id(0)
    begin = interval * LENGTH
    end = tl.minimum(begin + LENGTH, num_points)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    lane = tl.arange(0, ROWS)
    first = tl.load(groups + begin).to(tl.int32)
    last = tl.load(groups + end - 1).to(tl.int32)
    for group in range(first, last + 1):
        low = tl.maximum(tl.load(starts + group).to(tl.int32), begin)
        high = tl.minimum(tl.load(starts + group + 1).to(tl.int32), end)
        total = tl.zeros([ROWS, COLUMNS], dtype=sums.dtype.element_ty)
        for place in range(low, high, ROWS):
            inside = place + lane < high
            point = tl.load(order + place + lane, mask=inside, other=0)
            wanted = inside[:, None] & (column < DIM)[None, :]
            total += tl.load(points + point[:, None] * STRIDE + column[None, :], mask=wanted, other=0.0)
        target = sums + (interval + group).to(tl.int64) * DIM + column
        tl.store(target, tl.sum(total, axis=0), mask=column < DIM)


@triton.jit
def _mean_kernel(
    means,  # [k, F]
    sums,  # [intervals + k - 1, F]
    starts,  # [k + 1]
    DIM: tl.constexpr,
    LENGTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The mean of one group over some columns, from its sums in `_interval_kernel`'s rows; 0 for an empty group."""
    group = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    lane = tl.arange(0, ROWS)
    begin = tl.load(starts + group).to(tl.int32)
    end = tl.load(starts + group + 1).to(tl.int32)
    low = begin // LENGTH + group
    high = low
    if end > begin:
        high = (end - 1) // LENGTH + group + 1
    total = tl.zeros([ROWS, COLUMNS], dtype=means.dtype.element_ty)
    for row in range(low, high, ROWS):
        wanted = (row + lane < high)[:, None] & (column < DIM)[None, :]
        total += tl.load(sums + (row + lane).to(tl.int64)[:, None] * DIM + column[None, :], mask=wanted, other=0.0)
    size = tl.maximum(end - begin, 1).to(means.dtype.element_ty)
    tl.store(means + group.to(tl.int64) * DIM + column, tl.sum(total, axis=0) / size, mask=column < DIM)


def group_means(points: Tensor, groups: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`eans.kernels.group_means` in time that does not grow with k; float32 or float64."""
    if points.dtype not in (torch.float32, torch.float64) or not len(points):
        return reference.group_means(points, groups, k)
    points = points if points.stride(1) == 1 else points.contiguous()
    num_points, dim = points.shape
    # Short keys are sorted in fewer passes.
    key = groups.to(torch.int16) if k < 2**15 else groups.to(torch.int32)
    sorted_groups, order = torch.sort(key, stable=True)
    bounds = torch.arange(k + 1, dtype=sorted_groups.dtype, device=points.device)
    starts = torch.searchsorted(sorted_groups, bounds)
    length = max(LEAST_INTERVAL, triton.next_power_of_2(num_points // INTERVALS))
    intervals, slices = triton.cdiv(num_points, length), triton.cdiv(dim, COLUMNS)
    sums = points.new_empty(intervals + k - 1, dim)
    means = points.new_empty(k, dim)
    with torch.cuda.device_of(points):
        _interval_kernel[(intervals, slices)](
            sums,
            points,
            order,
            sorted_groups,
            starts,
            num_points,
            DIM=dim,
            STRIDE=points.stride(0),
            LENGTH=length,
            ROWS=ROWS,
            COLUMNS=COLUMNS,
            num_warps=WARPS,
        )
        _mean_kernel[(k, slices)](
            means, sums, starts, DIM=dim, LENGTH=length, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS
        )
    return means, starts.diff()
