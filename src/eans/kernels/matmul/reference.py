"""`products` in plain PyTorch."""

from __future__ import annotations

from torch import Tensor

from eans.kernels.deferred_gradients import DeferredGradients


def products(queries: Tensor, table: Tensor, deferred: DeferredGradients | None = None) -> Tensor:
    """See `eans.kernels.products`."""
    del deferred
    return queries @ table.T
