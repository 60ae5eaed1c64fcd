"""The cross-entropy of a positive among its candidates, one program per positive.

The candidates of a row may be all entities of a graph, so a program walks over them in tiles; backward, each tile has
its own. Both read the scores once, and nothing of their size is made but the gradient.
"""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from eans.kernels.matmul.tensor_cores import aligned
from eans.kernels.softmax import reference

COLUMNS = 2048  # candidates that a program holds at a time


@triton.jit
def _above(negative, known_true, log_weight, row, stride, columns, negatives, own):
    """``z_ij - s_i`` of some candidates of a row; minus infinity where masked or outside."""
    inside = columns < negatives
    logits = tl.load(negative + row * stride + columns, mask=inside, other=0.0) - own
    if log_weight is not None:
        logits -= tl.load(log_weight + row * negatives + columns, mask=inside, other=0.0)
    known = tl.load(known_true + row * negatives + columns, mask=inside, other=1)
    return tl.where(known != 0, -float("inf"), logits)


@triton.jit
def _forward_kernel(
    nll,  # [B]
    others,  # [B]
    positive,  # [B]
    negative,  # [B, N], rows `stride` apart
    known_true,  # [B, N]
    log_weight,  # [B, N] or None: log(N q)
    negatives,
    stride,
    COLUMNS: tl.constexpr,
):
    """The loss of a row, and the probability that it leaves to the others."""
    row = tl.program_id(0).to(tl.int64)
    own = tl.load(positive + row)
    # Scores count from the positive's, which is exp(0) = 1 itself.
    top = own * 0.0
    total = top
    for start in range(0, negatives, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        above = _above(negative, known_true, log_weight, row, stride, columns, negatives, own)
        higher = tl.maximum(top, tl.max(above, axis=0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(above - higher), axis=0)
        top = higher
    itself = tl.exp(-top)
    tl.store(nll + row, top + tl.log(itself + total))
    tl.store(others + row, total / (itself + total))


@triton.jit
def _backward_kernel(
    to_positive,  # [B]
    to_negative,  # [B, N], rows `to_stride` apart
    upstream,  # [B]
    nll,  # [B]
    others,  # [B]
    positive,
    negative,
    known_true,
    log_weight,
    negatives,
    stride,
    to_stride,
    COLUMNS: tl.constexpr,
):
    """Some candidates of a row. What they are pulled by is what the positive is pushed by."""
    row = tl.program_id(0).to(tl.int64)
    own, outer, loss = tl.load(positive + row), tl.load(upstream + row), tl.load(nll + row)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    above = _above(negative, known_true, log_weight, row, stride, columns, negatives, own)
    pull = outer * tl.exp(above - loss)
    tl.store(to_negative + row * to_stride + columns, pull, mask=columns < negatives)
    if tl.program_id(1) == 0:
        tl.store(to_positive + row, -outer * tl.load(others + row))


class _SoftmaxNll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, positive: Tensor, negative: Tensor, known_true: Tensor, log_weight: Tensor | None) -> Tensor:
        batch, negatives = negative.shape
        nll, others = torch.empty_like(positive), torch.empty_like(positive)
        ctx.columns = min(COLUMNS, triton.next_power_of_2(negatives))
        with torch.cuda.device_of(negative):
            _forward_kernel[(batch,)](
                nll, others, positive, negative, known_true, log_weight, negatives, negative.stride(0),
                COLUMNS=ctx.columns, num_warps=8,
            )  # fmt: skip
        ctx.save_for_backward(nll, others, positive, negative, known_true, log_weight)
        return nll

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        nll, others, positive, negative, known_true, log_weight = ctx.saved_tensors
        batch, negatives = negative.shape
        to_positive, to_negative = torch.empty_like(positive), aligned(batch, negatives, negative)
        with torch.cuda.device_of(negative):
            _backward_kernel[(batch, triton.cdiv(negatives, ctx.columns))](
                to_positive, to_negative, upstream.contiguous(), nll, others, positive, negative, known_true,
                log_weight, negatives, negative.stride(0), to_negative.stride(0),
                COLUMNS=ctx.columns, num_warps=8,
            )  # fmt: skip
        return to_positive, to_negative, None, None


def softmax_nll(positive: Tensor, negative: Tensor, known_true: Tensor, log_proposal: Tensor | None) -> Tensor:
    """See `eans.kernels.softmax_nll`."""
    if not negative.numel() or positive.dtype != negative.dtype:
        return reference.softmax_nll(positive, negative, known_true, log_proposal)
    if negative.stride(1) != 1:
        negative = negative.contiguous()
    # A Python float reaches a kernel in single precision; a tensor does not.
    log_weight = None
    if log_proposal is not None:
        log_weight = (log_proposal.to(negative.dtype) + reference.log_count(negative)).contiguous()
    found: Tensor = _SoftmaxNll.apply(positive.contiguous(), negative, known_true.contiguous(), log_weight)
    return found
