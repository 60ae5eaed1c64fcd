"""Operations on the rows of a batch: comparing one with one, complex products, projections."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from torch import Tensor

from eans.kernels.kinds import Comparison
from eans.kernels.switch import operation


@operation("triton", "numba")
def compare_rows(kind: Comparison, query: Tensor, candidate: Tensor) -> Tensor:
    """Compare along the last dimension, broadcasting the others: ``[..., D]``, ``[..., D]`` -> ``[...]``."""


@operation("triton", "numba")
def complex_product(left: Tensor, right: Tensor, conjugate_right: bool = False) -> Tensor:
    """Elementwise complex product of vectors stored ``[re | im]``, broadcasting: two ``[..., 2d]`` -> ``[..., 2d]``."""


@operation("triton", "numba")
def project(rows: Tensor, direction: Tensor) -> Tensor:
    """Left halves, moved by the inner product of both halves along a direction: ``[B, 2d]``, ``[B, d]`` -> ``[B, d]``.

    ``left + (left . right) direction``; one direction may stand for all: ``[1, d]``.
    """
