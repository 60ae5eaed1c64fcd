"""Gathering rows, and sums over whole tables, whose gradients can wait for the optimizer (`eans.kernels.pending`)."""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import embedding

from eans.kernels import reference_step
from eans.kernels.pending import RowGradient, pending_of

PRODUCT_COLUMNS = 512
CUBE_BLOCK, CUBE_PROGRAMS = 1024, 2048


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor) -> Tensor:
        ctx.pending = pending_of(table)
        ctx.save_for_backward(ids)
        ctx.ticket = ctx.pending.gather(ids.reshape(-1))
        return embedding(ids, table)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None]:
        (ids,) = ctx.saved_tensors
        flat = gradient.reshape(-1, gradient.shape[-1]).contiguous()
        ctx.pending.rows.append(RowGradient(ctx.ticket, ids.reshape(-1), flat))
        return None, None


def gather(table: Tensor, ids: Tensor) -> Tensor:
    """`reference_step.gather`."""
    if pending_of(table) is None or not torch.is_grad_enabled():
        return embedding(ids, table)
    rows: Tensor = _Gather.apply(table, ids)
    return rows


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


class _Cubes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor) -> Tensor:
        ctx.pending = pending_of(table)
        size = table.numel()
        sums = table.new_empty(min(CUBE_PROGRAMS, triton.cdiv(size, CUBE_BLOCK)))
        with torch.cuda.device_of(table):
            _cubes_kernel[(len(sums),)](sums, table, size, BLOCK=CUBE_BLOCK)
        return sums.sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> None:
        ctx.pending.cubes.append(gradient)


def cubes(table: Tensor) -> Tensor:
    """`reference_step.cubes`."""
    if pending_of(table) is None or not table.is_contiguous() or not torch.is_grad_enabled():
        return reference_step.cubes(table)
    total: Tensor = _Cubes.apply(table)
    return total


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


class _HalfProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor) -> Tensor:
        ctx.pending = pending_of(table)
        products = table.new_empty(len(table))
        with torch.cuda.device_of(table):
            _products_kernel[(len(table),)](products, table, WIDTH=table.shape[1] // 2, COLUMNS=PRODUCT_COLUMNS)
        return products

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> None:
        ctx.pending.products.append(gradient.contiguous())


def half_products(rows: Tensor) -> Tensor:
    """`reference_step.half_products`; a kernel of its own for a whole table."""
    if rows.dim() != 2 or pending_of(rows) is None or not rows.is_contiguous() or not torch.is_grad_enabled():
        return reference_step.half_products(rows)
    products: Tensor = _HalfProducts.apply(rows)
    return products
