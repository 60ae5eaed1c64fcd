"""Operations on a table whose gradients are left to the optimizer where a `DeferredGradients` is passed.

Sums over a table are handed in as functions, because each implementation has its own for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eans.kernels.deferred_gradients import DeferredGradients
from eans.kernels.tables import reference


def gather(table: Tensor, ids: Tensor, deferred: DeferredGradients | None = None) -> Tensor:
    """See `eans.kernels.gather`."""
    return reference.deferred_gather(table, ids, deferred)


class _Sum(torch.autograd.Function):
    """`total` of a table, whose upstream gradient goes to the `parts` of its deferred gradient."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, total: Callable[[Tensor], Tensor], parts: list[Tensor]) -> Tensor:
        ctx.parts = parts
        return total(table)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None]:
        ctx.parts.append(gradient.contiguous())
        return None, None, None


def _whole(table: Tensor) -> bool:
    return table.dim() == 2 and table.is_contiguous() and torch.is_grad_enabled()


def sum_abs_cubed(table: Tensor, total: Callable[[Tensor], Tensor], deferred: DeferredGradients | None) -> Tensor:
    """`eans.kernels.sum_abs_cubed`, by `total` where the gradient is deferred."""
    if deferred is None or not _whole(table):
        return reference.sum_abs_cubed(table)
    return _Sum.apply(table, total, deferred.cubed)  # type: ignore[no-untyped-call,no-any-return]


def half_products(rows: Tensor, products: Callable[[Tensor], Tensor], deferred: DeferredGradients | None) -> Tensor:
    """`eans.kernels.half_products`, by `products` where `rows` is a table whose gradient is deferred."""
    if deferred is None or not _whole(rows):
        return reference.half_products(rows)
    return _Sum.apply(rows, products, deferred.products)  # type: ignore[no-untyped-call,no-any-return]
