"""Adam and Adagrad for one table in plain PyTorch: the definition that every faster kernel must equal.

Everything happens on the device of the table, so that a step can be captured in a CUDA graph; but for an update by
rows, which waits for the device to know how many there are.
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
    """See `eans.kernels.UpdateKernels.update`; deferred parts by rows alone."""
    if deferred is None:
        _update(table, averages, squares, factors, dense, betas, epsilon)
        return
    assert deferred.by_rows
    parts = deferred.sorted_rows()
    if not parts:
        return
    used, gradient = total_of_rows(torch.cat([part.ids for part in parts]), torch.cat([p.gradient for p in parts]))
    # Rows of the state are copied, updated like a table, and put back.
    rows, squared = table[used], squares[used]
    average = None if averages is None else averages[used]
    _update(rows, average, squared, factors, gradient, betas, epsilon)
    table[used], squares[used] = rows, squared
    if averages is not None and average is not None:
        averages[used] = average


def total_of_rows(ids: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Add up rows ``[M, F]`` of equal ids int64 ``[M]``, in their order: the distinct ids ``[U]``, and ``[U, F]``."""
    distinct, inverse = torch.unique(ids, return_inverse=True)
    return distinct, torch.ops.aten.embedding_dense_backward(rows, inverse, len(distinct), -1, False)


def _update(
    table: Tensor, averages: Tensor | None, squares: Tensor, factors: Tensor, gradient: Tensor | None,
    betas: Betas | None, epsilon: float,
) -> None:  # fmt: skip
    size, root = factors
    if averages is None or betas is None:
        if gradient is None:
            return
        averages = gradient
        if squares.dim() == 1:
            squares.add_(gradient.square().mean(1))
            squares = squares[:, None]
        else:
            squares.addcmul_(gradient, gradient)
    elif gradient is None:
        averages.mul_(betas[0])
        squares.mul_(betas[1])
    else:
        averages.lerp_(gradient, 1.0 - betas[0])
        squares.mul_(betas[1]).addcmul_(gradient, gradient, value=1.0 - betas[1])
    slope = squares.sqrt()
    torch.addcmul(torch.full_like(root, epsilon), slope, root, out=slope)
    slope = torch.div(averages, slope, out=slope if slope.shape == averages.shape else None)
    table.addcmul_(slope, size, value=-1.0)
