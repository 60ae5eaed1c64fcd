"""Dense Adam and Adagrad for one table in plain PyTorch: the definition that every faster kernel must equal.

Everything happens on the device of the table, so that a step can be captured in a CUDA graph.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from eans.kernels.deferred_gradients import DeferredGradients
from eans.kernels.updates import Betas

COLLECTS, ROUNDS = False, False


def advance(step: Tensor, rate: Tensor, betas: Betas | None, out: Tensor) -> None:
    """See `eans.kernels.UpdateKernels.advance`; nothing waits for the device."""
    step += 1
    if betas is None:
        torch.stack([rate.to(out.dtype), torch.ones_like(out[1])], out=out)
        return
    # 1 - beta^step without the loss of digits when it is small.
    count = step.to(out.dtype)
    first, second = (-torch.expm1(count * math.log(beta)) for beta in betas)
    torch.stack([rate.to(out.dtype) / first, second.rsqrt()], out=out)


def update(
    table: Tensor, averages: Tensor | None, squares: Tensor, factors: Tensor, deferred: DeferredGradients | None,
    dense: Tensor | None, betas: Betas | None, epsilon: float,
) -> None:  # fmt: skip
    """See `eans.kernels.UpdateKernels.update`; without deferred parts."""
    assert deferred is None
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
