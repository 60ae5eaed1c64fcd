"""Gathering rows, and sums over whole tables, whose gradients wait for the optimizer where the table collects them.

`eans.kernels.reference_step` defines what is computed. Sums over a table are handed in as functions, because each
implementation has its own loops for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding

from eans.kernels import reference_step
from eans.kernels.pending import RowGradient, pending_of


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
    rows: Tensor = _Gather.apply(table, ids)  # type: ignore[no-untyped-call]
    return rows


class _Cubes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, total: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.pending = pending_of(table)
        return total(table)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None]:
        ctx.pending.cubes.append(gradient)
        return None, None


def cubes(table: Tensor, total: Callable[[Tensor], Tensor]) -> Tensor:
    """`reference_step.cubes`; by `total` where a contiguous table ``[E, F]`` collects."""
    if pending_of(table) is None or not table.is_contiguous() or not torch.is_grad_enabled():
        return reference_step.cubes(table)
    found: Tensor = _Cubes.apply(table, total)  # type: ignore[no-untyped-call]
    return found


class _HalfProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, products: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.pending = pending_of(table)
        return products(table)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None]:
        ctx.pending.products.append(gradient.contiguous())
        return None, None


def half_products(rows: Tensor, products: Callable[[Tensor], Tensor]) -> Tensor:
    """`reference_step.half_products`; by `products` where `rows` is a contiguous table ``[E, 2d]`` that collects."""
    if rows.dim() != 2 or pending_of(rows) is None or not rows.is_contiguous() or not torch.is_grad_enabled():
        return reference_step.half_products(rows)
    found: Tensor = _HalfProducts.apply(rows, products)  # type: ignore[no-untyped-call]
    return found
