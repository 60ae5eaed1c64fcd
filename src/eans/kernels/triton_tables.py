"""Sums over whole tables, whose gradients can wait for the optimizer (`eans.kernels.pending_tables`)."""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from eans.kernels import pending_tables

PRODUCT_COLUMNS = 512
CUBE_BLOCK, CUBE_PROGRAMS = 1024, 2048


@triton.jit
def _cubes_kernel(sums, numbers, size, BLOCK: tl.constexpr):
    """The sum of ``|x|^3`` over every so many blocks of numbers."""
    total = tl.zeros([BLOCK], dtype=numbers.dtype.element_ty)
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    for start in range(tl.program_id(0).to(tl.int64) * BLOCK, size, step):
        places = start + tl.arange(0, BLOCK)
        value = tl.load(numbers + places, mask=places < size, other=0.0)
        total += tl.abs(value) * value * value
    tl.store(sums + tl.program_id(0), tl.sum(total, axis=0))


def _total(table: Tensor) -> Tensor:
    size = table.numel()
    sums = table.new_empty(min(CUBE_PROGRAMS, triton.cdiv(size, CUBE_BLOCK)))
    with torch.cuda.device_of(table):
        _cubes_kernel[(len(sums),)](sums, table, size, BLOCK=CUBE_BLOCK)
    return sums.sum()


def cubes(table: Tensor) -> Tensor:
    """`reference_step.cubes`."""
    return pending_tables.cubes(table, _total)


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


def half_products(rows: Tensor) -> Tensor:
    """`reference_step.half_products`; a kernel of its own for a whole table."""
    return pending_tables.half_products(rows, _products)
