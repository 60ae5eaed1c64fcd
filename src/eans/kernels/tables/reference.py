"""`gather`, `half_products` and the sums of cubes in plain PyTorch."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding

from eans.kernels.deferred_gradients import DeferredGradients, RowGradient


class _Gather(torch.autograd.Function):
    """Rows of a table, whose gradient is left in `deferred`."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor, deferred: DeferredGradients) -> Tensor:
        ctx.deferred = deferred
        ctx.save_for_backward(ids)
        ctx.ticket = ctx.deferred.gather(ids.reshape(-1))
        return embedding(ids, table)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None]:
        (ids,) = ctx.saved_tensors
        flat = gradient.reshape(-1, gradient.shape[-1]).contiguous()
        ctx.deferred.rows.append(RowGradient(ctx.ticket, ids.reshape(-1), flat))
        return None, None, None


def deferred_gather(table: Tensor, ids: Tensor, deferred: DeferredGradients | None = None) -> Tensor:
    """`eans.kernels.gather`, which leaves the gradient in `deferred`, if given."""
    if deferred is None or not torch.is_grad_enabled():
        return embedding(ids, table)
    rows: Tensor = _Gather.apply(table, ids, deferred)  # type: ignore[no-untyped-call]
    return rows


def gather(table: Tensor, ids: Tensor, deferred: DeferredGradients | None = None) -> Tensor:
    """See `eans.kernels.gather`; only an optimizer that works by rows adds the gradient up itself here."""
    return deferred_gather(table, ids, deferred if deferred is not None and deferred.by_rows else None)


def sum_abs_cubed(table: Tensor, deferred: DeferredGradients | None = None) -> Tensor:
    """See `eans.kernels.sum_abs_cubed`."""
    del deferred
    return table.abs().pow(3).sum()


class _SumModuliCubed(torch.autograd.Function):
    """``sum |x|^3`` of coordinates ``[B, P, ...]``, and ``3 |x| x``, which autograd takes many more kernels for."""

    @staticmethod
    def forward(ctx: Any, coordinates: Tensor) -> Tensor:
        first, *others = coordinates.unbind(1)
        # PyTorch's own norm over a dimension in the middle takes a hundred times as long on a CPU.
        sizes = functools.reduce(torch.hypot, others, first.abs())
        ctx.save_for_backward(coordinates, sizes)
        return sizes.pow(3).sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        coordinates, sizes = ctx.saved_tensors
        slope: Tensor = coordinates * (3 * gradient * sizes)[:, None]
        return slope


def sum_moduli_cubed(coordinates: Tensor) -> Tensor:
    """See `eans.kernels.sum_moduli_cubed`."""
    total: Tensor = _SumModuliCubed.apply(coordinates)  # type: ignore[no-untyped-call]
    return total


def half_products(rows: Tensor, deferred: DeferredGradients | None = None) -> Tensor:
    """See `eans.kernels.half_products`."""
    del deferred
    left, right = rows.chunk(2, dim=-1)
    return (left * right).sum(-1)
