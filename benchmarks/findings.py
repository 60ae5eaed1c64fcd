"""What a check found, and how far two tensors are apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

TOLERANCE = 1e-6  # of the error's norm, relative to the norm of the exact tensor


class Case(NamedTuple):
    """Arguments of `compare` after the kind, and the gradient of its scores."""

    queries: Tensor
    table: Tensor
    entities: Tensor
    shifts: Tensor | None
    scalars: Tensor | None
    outer: Tensor


class Finding(NamedTuple):
    """One comparison.

    Attributes:
        name: what was compared.
        error: relative error, after the allowance.
        doubtful: how many slopes rounding may legitimately have changed.
        same: did a second run give the same bits?
        tolerance: of the error.
    """

    name: str
    error: float
    doubtful: int = 0
    same: bool = True
    tolerance: float = TOLERANCE

    @property
    def passed(self) -> bool:
        return self.error <= self.tolerance and self.same


def relative_error(found: Tensor, exact: Tensor, allowance: Tensor | None = None) -> float:
    """Norm of the error beyond the allowance, relative to the norm of the exact tensor; infinite for NaN."""
    error = (found.double() - exact).abs()
    if allowance is not None:
        error = (error - allowance).clamp(min=0.0)
    ratio = float(torch.linalg.vector_norm(error) / torch.linalg.vector_norm(exact))
    return ratio if ratio == ratio else float("inf")


def equality(name: str, found: Sequence[Tensor], exact: Sequence[Tensor], again: Sequence[Tensor]) -> Finding:
    """A finding about tensors that have to be equal: no error, or an infinite one."""
    wrong = any(not torch.equal(one, other) for one, other in zip(found, exact, strict=True))
    same = all(torch.equal(one, other) for one, other in zip(found, again, strict=True))
    return Finding(name, float("inf") if wrong else 0.0, 0, same)


def poison(device: torch.device, megabytes: int = 256) -> None:
    """Leave NaN in memory that is handed out next, so that a number nobody wrote shows."""
    if device.type == "cuda":
        torch.full((megabytes << 18,), float("nan"), device=device)
