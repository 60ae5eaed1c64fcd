"""Dense Adam for one table in plain PyTorch: the definition that every faster kernel must equal.

Everything happens on the device of the table, so that a step can be recorded.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from eans.kernels.pending import Pending

COLLECTS, ROUNDS = False, False


class UpdateKernels(Protocol):
    """What an optimizer calls: a module with these names.

    Attributes:
        __name__: of the module.
        COLLECTS: does `update` add up the parts of a gradient that a table collected (`eans.kernels.pending`)?
        ROUNDS: does it keep `Pending.rounded` up to date, and do the comparisons read it?
    """

    __name__: str
    COLLECTS: bool
    ROUNDS: bool

    def advance(self, step: Tensor, rate: Tensor, betas: tuple[float, float], out: Tensor) -> None:
        """Add 1 to the counter `step` and set `out` ``[2]`` to what `update` needs: the size of the step and the factor
        of the root, both corrected for the start.
        """

    def update(
        self,
        table: Tensor,
        averages: Tensor,
        squares: Tensor,
        factors: Tensor,
        pending: Pending | None,
        dense: Tensor | None,
        betas: tuple[float, float],
        epsilon: float,
    ) -> None:
        """One step of Adam in place, with the gradient `dense` plus all pending parts.

        Args:
            table, averages, squares: ``[E, F]``: the numbers and Adam's two moments.
            factors: from `advance`.
            pending: parts of the gradient; None for a table that does not collect.
            dense: ``[E, F]`` or None: the rest of it.
            betas, epsilon: of Adam.
        """


def advance(step: Tensor, rate: Tensor, betas: tuple[float, float], out: Tensor) -> None:
    """See `UpdateKernels.advance`; nothing waits for the device."""
    step += 1
    # 1 - beta^step without the loss of digits when it is small.
    count = step.to(out.dtype)
    first, second = (-torch.expm1(count * math.log(beta)) for beta in betas)
    torch.stack([rate.to(out.dtype) / first, second.rsqrt()], out=out)


def update(
    table: Tensor,
    averages: Tensor,
    squares: Tensor,
    factors: Tensor,
    pending: Pending | None,
    dense: Tensor | None,
    betas: tuple[float, float],
    epsilon: float,
) -> None:
    """See `UpdateKernels.update`; without pending parts."""
    assert pending is None
    size, root = factors
    if dense is None:
        averages.mul_(betas[0])
        squares.mul_(betas[1])
    else:
        averages.lerp_(dense, 1.0 - betas[0])
        squares.mul_(betas[1]).addcmul_(dense, dense, value=1.0 - betas[1])
    slope = squares.sqrt()
    torch.addcmul(torch.full_like(root, epsilon), slope, root, out=slope)
    torch.div(averages, slope, out=slope)
    table.addcmul_(slope, size, value=-1.0)
