"""Scores with all entities as a matrix product with gradients."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from torch import Tensor

from eans.kernels.deferred_gradients import DeferredGradients
from eans.kernels.switch import operation


@operation(triton="tensor_cores")
def products(queries: Tensor, table: Tensor, deferred: DeferredGradients | None = None) -> Tensor:
    """Dot products with every row: queries ``[B, D]``, table ``[E, D]`` -> ``[B, E]``.

    The gradient of the table, or of its leading columns, is left in `deferred`, if given.
    """
