"""Rows of a table and sums over it, whose gradients can be deferred (`eans.kernels.deferred_gradients`)."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from torch import Tensor

from eans.kernels.deferred_gradients import DeferredGradients
from eans.kernels.switch import operation


@operation(triton="deferred", numba="deferred")
def gather(table: Tensor, ids: Tensor, deferred: DeferredGradients | None = None) -> Tensor:
    """Rows of a table ``[E, F]``: int64 ``[...]`` -> ``[..., F]``. Their gradient is left in `deferred`, if given."""


@operation("triton", "numba")
def half_products(rows: Tensor, deferred: DeferredGradients | None = None) -> Tensor:
    """The inner product of the two halves of each row: ``[..., 2d]`` -> ``[...]``.

    The gradient of a whole table ``[E, 2d]`` is left in its `deferred`, if given.
    """


@operation("triton", "numba")
def sum_abs_cubed(table: Tensor, deferred: DeferredGradients | None = None) -> Tensor:
    """``sum |x|^3`` over a table: a scalar. The gradient is left in `deferred`, if given."""


@operation("triton")
def sum_moduli_cubed(coordinates: Tensor) -> Tensor:
    """``sum |x|^3`` of coordinates ``[B, P, ...]`` of P parts, by their Euclidean norms: a scalar."""
