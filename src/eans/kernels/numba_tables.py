"""Sums over whole tables and over points on a CPU, as compiled loops.

Gradients of the former can wait (`eans.kernels.pending_tables`).

What threads share depends on the sizes alone, and so do the bits of the sums.
"""

# Numba's decorator is untyped, and the arguments of a loop are arrays and numbers of types that the compiler infers.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import numpy as np
import torch
from numba import uint64
from torch import Tensor

from eans.kernels import pending_tables
from eans.kernels.numba_pairs import flat, segments
from eans.kernels.numba_threads import compiled, cuts, share, share_rows, threads_for

__all__ = ["cubes", "distances_to", "group_means", "half_products"]

# Numbers of one sum of `cubes`; the sums of all blocks are added at the end.
CUBE_BLOCK = 1 << 13


@compiled
def _cubes_loop(sums, numbers, block, first, last):
    """Sums of ``|x|^3`` over the blocks ``[first, last)``."""
    for b in range(uint64(first), uint64(last)):
        start = b * uint64(block)
        total = numbers.dtype.type(0)
        for i in range(start, min(start + uint64(block), uint64(len(numbers)))):
            total += abs(numbers[i]) * numbers[i] * numbers[i]
        sums[b] = total


def _total(table: Tensor) -> Tensor:
    numbers = flat(table)
    blocks = -(-len(numbers) // CUBE_BLOCK)
    sums = table.new_empty(blocks)
    out, threads = flat(sums), threads_for(len(numbers))

    def part(first: int, last: int) -> None:
        _cubes_loop(out, numbers, CUBE_BLOCK, first, last)

    share_rows(part, blocks, threads)
    return table.new_tensor(out.sum(dtype=np.float64))


def cubes(table: Tensor) -> Tensor:
    """`reference_step.cubes`."""
    return pending_tables.cubes(table, _total)


@compiled
def _products_loop(products, table, width, first, last):
    """Inner products of the two halves, `width` numbers each, of rows ``[first, last)``."""
    half = uint64(width)
    for e in range(uint64(first), uint64(last)):
        row = e * uint64(2) * half
        total = table.dtype.type(0)
        for j in range(half):
            total += table[row + j] * table[row + half + j]
        products[e] = total


def _products(table: Tensor) -> Tensor:
    products = table.new_empty(len(table))
    out, numbers, threads = flat(products), flat(table), threads_for(table.numel())

    def part(first: int, last: int) -> None:
        _products_loop(out, numbers, table.shape[1] // 2, first, last)

    share_rows(part, len(table), threads)
    return products


def half_products(rows: Tensor) -> Tensor:
    """`reference_step.half_products`; a loop of its own for a whole table."""
    return pending_tables.half_products(rows, _products)


@compiled
def _distances_loop(distances, points, norms, place, columns, first, last):
    """Squared distances of the points ``[first, last)``, `columns` numbers each, to the one at `place`."""
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
    """`reference.distances_to`; PyTorch's product of a matrix and a vector uses one thread."""
    chosen, (size, columns) = int(place), points.shape
    if not 0 <= chosen < size or norms.shape != (size,) or norms.dtype != points.dtype:
        raise ValueError(f"no distances of points {list(points.shape)} to number {chosen}")
    distances = torch.empty_like(norms)
    out, numbers, squares = flat(distances), flat(points.contiguous()), flat(norms.contiguous())
    threads = threads_for(points.numel())

    def part(first: int, last: int) -> None:
        _distances_loop(out, numbers, squares, chosen, columns, first, last)

    share_rows(part, size, threads)
    return distances


@compiled
def _means_loop(means, points, total, order, starts, stride, first, last):
    """Means of the groups ``[first, last)``: the members of group g are ``order[starts[g] : starts[g + 1]]``.

    `points` has rows `stride` numbers apart, as wide as `total`, which is scratch.
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
    """`reference.group_means`: each thread adds up whole groups, in float64."""
    if len(groups) != len(points) or (len(groups) and not 0 <= int(groups.min()) <= int(groups.max()) < k):
        raise ValueError(f"{len(points)} points need a group in 0..{k - 1} each")
    points = points if points.stride(1) == 1 else points.contiguous()
    order, starts = segments(groups, k)
    means = points.new_empty(k, points.shape[1])
    out, numbers, threads = flat(means), flat(points), threads_for(points.numel())

    def part(first: int, last: int) -> None:
        total = np.empty(points.shape[1], np.float64)
        _means_loop(out, numbers, total, order, starts, points.stride(0), first, last)

    share(part, cuts(k, 8 * threads if threads > 1 else 1), threads)
    return means, torch.from_numpy(np.diff(starts[: k + 1]))
