"""Sums over a table, and over the coordinates of a batch, with a kernel for the gradient of the latter."""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from eans.kernels.deferred_gradients import DeferredGradients
from eans.kernels.tables import deferred as tables
from eans.kernels.tables import reference

PRODUCT_COLUMNS = 512
CUBE_BLOCK, CUBE_PROGRAMS = 1024, 2048
MODULI_COLUMNS, MODULI_WARPS = 1024, 4


@triton.jit
def _cubes_kernel(sums, values, size, BLOCK: tl.constexpr):
    """The sum of ``|x|^3`` over every so many blocks of values."""
    total = tl.zeros([BLOCK], dtype=values.dtype.element_ty)
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    for start in range(tl.program_id(0).to(tl.int64) * BLOCK, size, step):
        places = start + tl.arange(0, BLOCK)
        value = tl.load(values + places, mask=places < size, other=0.0)
        total += tl.abs(value) * value * value
    tl.store(sums + tl.program_id(0), tl.sum(total, axis=0))


def _total(table: Tensor) -> Tensor:
    size = table.numel()
    sums = table.new_empty(min(CUBE_PROGRAMS, triton.cdiv(size, CUBE_BLOCK)))
    with torch.cuda.device_of(table):
        _cubes_kernel[(len(sums),)](sums, table, size, BLOCK=CUBE_BLOCK)
    return sums.sum()


def sum_abs_cubed(table: Tensor, deferred: DeferredGradients | None = None) -> Tensor:
    """`eans.kernels.sum_abs_cubed`; a kernel of its own where the gradient is deferred."""
    return tables.sum_abs_cubed(table, _total, deferred)


@triton.jit
def _products_kernel(products, table, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], dtype=table.dtype.element_ty)
    for start in range(0, WIDTH, COLUMNS):
        inside = start + columns < WIDTH
        here = table + row * (2 * WIDTH) + start + columns
        total += tl.load(here, mask=inside, other=0.0) * tl.load(here + WIDTH, mask=inside, other=0.0)
    tl.store(products + row, tl.sum(total, axis=0))


def _products(table: Tensor) -> Tensor:
    products = table.new_empty(len(table))
    with torch.cuda.device_of(table):
        _products_kernel[(len(table),)](products, table, WIDTH=table.shape[1] // 2, COLUMNS=PRODUCT_COLUMNS)
    return products


def half_products(rows: Tensor, deferred: DeferredGradients | None = None) -> Tensor:
    """`eans.kernels.half_products`; a kernel of its own where the gradient is deferred."""
    return tables.half_products(rows, _products, deferred)


# --- moduli of coordinates --------------------------------------------------------------------------------------------


@triton.jit
def _moduli(coordinates, row, columns, inside, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """The parts of some coordinates of a row, the second one zero if there is none, and their moduli."""
    here = coordinates + row * (PARTS * WIDTH) + columns
    first = tl.load(here, mask=inside, other=0.0)
    if PARTS == 1:
        return first, first * 0.0, tl.abs(first)
    second = tl.load(here + WIDTH, mask=inside, other=0.0)
    return first, second, tl.sqrt(first * first + second * second)


@triton.jit
def _moduli_kernel(sums, coordinates, WIDTH: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sum of a row, ``[B]``."""
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([COLUMNS], dtype=coordinates.dtype.element_ty)
    for start in range(0, WIDTH, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        _, _, size = _moduli(coordinates, row, columns, columns < WIDTH, WIDTH, PARTS)
        total += size * size * size
    tl.store(sums + row, tl.sum(total, axis=0))


@triton.jit
def _moduli_gradient_kernel(
    gradient, coordinates, upstream, WIDTH: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr
):
    """``3 |x| x`` of some coordinates of a row, times what comes from above."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < WIDTH
    first, second, size = _moduli(coordinates, row, columns, inside, WIDTH, PARTS)
    slope = 3.0 * tl.load(upstream) * size
    here = gradient + row * (PARTS * WIDTH) + columns
    tl.store(here, slope * first, mask=inside)
    if PARTS == 2:
        tl.store(here + WIDTH, slope * second, mask=inside)


class _SumModuliCubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, coordinates: Tensor) -> Tensor:
        batch, parts, width = coordinates.shape
        ctx.save_for_backward(coordinates)
        sums = coordinates.new_empty(batch)
        with torch.cuda.device_of(coordinates):
            _moduli_kernel[(batch,)](
                sums, coordinates, WIDTH=width, PARTS=parts, COLUMNS=_columns(width), num_warps=MODULI_WARPS
            )
        return sums.sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        (coordinates,) = ctx.saved_tensors
        batch, parts, width = coordinates.shape
        gradient = torch.empty_like(coordinates)
        columns = _columns(width)
        with torch.cuda.device_of(coordinates):
            _moduli_gradient_kernel[(batch, triton.cdiv(width, columns))](
                gradient, coordinates, upstream, WIDTH=width, PARTS=parts, COLUMNS=columns, num_warps=MODULI_WARPS
            )
        return gradient


def _columns(width: int) -> int:
    return min(MODULI_COLUMNS, int(triton.next_power_of_2(width)))


def sum_moduli_cubed(coordinates: Tensor) -> Tensor:
    """`eans.kernels.sum_moduli_cubed`; by kernels of its own for ``[B, P, d]`` of one or two parts."""
    if coordinates.dim() != 3 or coordinates.shape[1] > 2 or not coordinates.numel():
        return reference.sum_moduli_cubed(coordinates)
    total: Tensor = _SumModuliCubed.apply(coordinates.contiguous())
    return total
