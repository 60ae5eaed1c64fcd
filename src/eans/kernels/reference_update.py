"""Dense Adam and Adagrad for one table in plain PyTorch: the definition that every faster kernel must equal.

Everything happens on the device of the table, so that a step can be recorded.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from eans.kernels.pending import Pending

COLLECTS, ROUNDS = False, False
Betas = tuple[float, float]


class UpdateKernels(Protocol):
    """What an optimizer calls: a module with these names.

    Attributes:
        __name__: of the module.
        COLLECTS: does `update` add up the parts of a gradient that a table collected (`eans.kernels.pending`)?
        ROUNDS: does it keep `Pending.rounded` up to date, and do comparisons and products read it?
    """

    __name__: str
    COLLECTS: bool
    ROUNDS: bool

    def advance(self, step: Tensor, rate: Tensor, betas: Betas | None, out: Tensor) -> None:
        """Add 1 to the counter `step` and set `out` ``[2]`` to what `update` needs: the size of the step and the factor
        of the root. Adam's are corrected for the start; those of Adagrad, which has no betas, are the rate and 1.
        """

    def update(
        self,
        table: Tensor,
        averages: Tensor | None,
        squares: Tensor,
        factors: Tensor,
        pending: Pending | None,
        dense: Tensor | None,
        betas: Betas | None,
        epsilon: float,
    ) -> None:
        """One step of Adam or Adagrad in place, with the gradient `dense` plus all pending parts.

        Args:
            table: ``[E, F]``: the numbers.
            averages, squares: ``[E, F]``: Adam's two moments; or None and Adagrad's sum of squared gradients.
            factors: from `advance`.
            pending: parts of the gradient; None for a table that does not collect.
            dense: ``[E, F]`` or None: the rest of it.
            betas, epsilon: of Adam; or None and Adagrad's epsilon.
        """


def advance(step: Tensor, rate: Tensor, betas: Betas | None, out: Tensor) -> None:
    """See `UpdateKernels.advance`; nothing waits for the device."""
    step += 1
    if betas is None:
        torch.stack([rate.to(out.dtype), torch.ones_like(out[1])], out=out)
        return
    # 1 - beta^step without the loss of digits when it is small.
    count = step.to(out.dtype)
    first, second = (-torch.expm1(count * math.log(beta)) for beta in betas)
    torch.stack([rate.to(out.dtype) / first, second.rsqrt()], out=out)


def update(
    table: Tensor,
    averages: Tensor | None,
    squares: Tensor,
    factors: Tensor,
    pending: Pending | None,
    dense: Tensor | None,
    betas: Betas | None,
    epsilon: float,
) -> None:
    """See `UpdateKernels.update`; without pending parts."""
    assert pending is None
    size, root = factors
    if averages is None or betas is None:
        if dense is None:
            return
        averages = dense
        squares.addcmul_(dense, dense)
    elif dense is None:
        averages.mul_(betas[0])
        squares.mul_(betas[1])
    else:
        averages.lerp_(dense, 1.0 - betas[0])
        squares.mul_(betas[1]).addcmul_(dense, dense, value=1.0 - betas[1])
    slope = squares.sqrt()
    torch.addcmul(torch.full_like(root, epsilon), slope, root, out=slope)
    torch.div(averages, slope, out=slope)
    table.addcmul_(slope, size, value=-1.0)
