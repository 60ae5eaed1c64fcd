"""Sums over whole tables on a CPU as compiled loops.

The blocks that threads share depend on the sizes alone, and so do the bits of the sums.
"""

# Numba's decorator is untyped, and the arguments of a loop are arrays and scalars whose types the compiler infers.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import numpy as np
from numba import uint64
from torch import Tensor

from eans.kernels.deferred_gradients import DeferredGradients
from eans.kernels.numba_arrays import flat
from eans.kernels.numba_threads import compiled, run_rows
from eans.kernels.tables import deferred as tables

# Elements of one sum of `sum_abs_cubed`; the sums of all blocks are added at the end.
CUBE_BLOCK = 1 << 13


@compiled
def _cubes_loop(sums, values, block, first, last):
    """Sums of ``|x|^3`` over the blocks ``[first, last)``."""
    for b in range(uint64(first), uint64(last)):
        start = b * uint64(block)
        total = values.dtype.type(0)
        for i in range(start, min(start + uint64(block), uint64(len(values)))):
            total += abs(values[i]) * values[i] * values[i]
        sums[b] = total


def _total(table: Tensor) -> Tensor:
    blocks = -(-table.numel() // CUBE_BLOCK)
    sums = flat(table.new_empty(blocks))
    run_rows(_cubes_loop, blocks, table.numel(), sums, flat(table), CUBE_BLOCK)
    return table.new_tensor(sums.sum(dtype=np.float64))


def sum_abs_cubed(table: Tensor, deferred: DeferredGradients | None = None) -> Tensor:
    """`eans.kernels.sum_abs_cubed`; a loop of its own where the gradient is deferred."""
    return tables.sum_abs_cubed(table, _total, deferred)


@compiled
def _products_loop(products, table, width, first, last):
    """Inner products of the two halves, `width` columns each, of rows ``[first, last)``."""
    half = uint64(width)
    for e in range(uint64(first), uint64(last)):
        row = e * uint64(2) * half
        total = table.dtype.type(0)
        for j in range(half):
            total += table[row + j] * table[row + half + j]
        products[e] = total


def _products(table: Tensor) -> Tensor:
    products = table.new_empty(len(table))
    run_rows(_products_loop, len(table), table.numel(), flat(products), flat(table), table.shape[1] // 2)
    return products


def half_products(rows: Tensor, deferred: DeferredGradients | None = None) -> Tensor:
    """`eans.kernels.half_products`; a loop of its own where the gradient is deferred."""
    return tables.half_products(rows, _products, deferred)
