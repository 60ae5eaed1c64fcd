"""The cross-entropy of a positive among its candidates on a CPU: one pass over the scores of a row while it is cached.

In plain PyTorch every operation goes through the memory, and the exponentials are taken twice. Here the forward pass
leaves them behind, and the backward pass multiplies.
"""

# Numba's decorator is untyped, and the arguments of a loop are arrays and scalars whose types the compiler infers.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from numba import float32, int32, uint64
from torch import Tensor

from eans.kernels.numba_arrays import flat
from eans.kernels.numba_threads import compiled, inlined, share_rows, threads_for
from eans.kernels.softmax import reference

LOWEST = np.float32(-87.0)  # exp of it is about the least that float32 has with all its digits; of less it is zero here


# A maximum takes vector instructions only where NaN may be ignored. One that is ignored here shows in the exponentials.
@numba.njit(forceinline=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "nnan"})
def _maximum(values, start, count):
    """The largest of some values, and of zero."""
    top = float32(0)
    for j in range(count):
        top = max(top, values[start + j])
    return top


@inlined
def _exponential(x):
    """``exp(x)`` as a factor between 0.7 and 1.5 and a power of two; x at least `LOWEST`, or NaN.

    The remainder of ``x / log 2`` is at most one half, and the polynomial is that of Cephes: 2e-7 of error at most.
    A loop of these takes vector instructions, and one of the library's exponential does not.
    """
    power = np.floor(x * float32(1.4426950408889634) + float32(0.5))
    # log 2 in two parts, the first of which has so few digits that the product is exact.
    rest = x - power * float32(0.693359375) + power * float32(2.12194440e-4)
    value = float32(1.9875691500e-4)
    value = value * rest + float32(1.3981999507e-3)
    value = value * rest + float32(8.3334519073e-3)
    value = value * rest + float32(4.1665795894e-2)
    value = value * rest + float32(1.6666665459e-1)
    value = value * rest + float32(5.0000001201e-1)
    return value * rest * rest + rest + float32(1), power


@compiled
def _rows_loop(
    nll, scale, pull,  # [B]
    exponentials,  # [B * N]
    positive,  # [B]
    negative, known_true, log_weight,  # [B * N]; no weights: empty
    bits, powers,  # [N] int32 and the same memory as float32: scratch
    first, last,
):  # fmt: skip
    """For rows ``[first, last)``: the loss, the exponentials of candidates, and what makes shares of these."""
    count = uint64(len(bits))
    for row in range(uint64(first), uint64(last)):
        start = row * count
        own = positive[row]
        if len(log_weight):
            for j in range(count):
                above = negative[start + j] - own - log_weight[start + j]
                exponentials[start + j] = -np.inf if known_true[start + j] else above
        else:
            for j in range(count):
                above = negative[start + j] - own
                exponentials[start + j] = -np.inf if known_true[start + j] else above
        top = _maximum(exponentials, start, count)
        for j in range(count):
            above = exponentials[start + j] - top
            low = above < LOWEST
            factor, power = _exponential(LOWEST if low else above)
            exponentials[start + j] = factor
            bits[j] = int32(0) if low else (int32(power) + int32(127)) << int32(23)
        total = float32(0)
        for j in range(count):
            value = exponentials[start + j] * powers[j]
            exponentials[start + j] = value
            total += value
        # The positive itself is the first: exp(s - s) = 1.
        whole = np.exp(-top) + total
        nll[row] = top + np.log(whole)
        scale[row] = float32(1) / whole
        pull[row] = total / whole


class _SoftmaxNll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, positive: Tensor, negative: Tensor, known_true: Tensor, log_weight: Tensor | None) -> Tensor:
        batch, negatives = negative.shape
        nll, scale, pull = (torch.empty_like(positive) for _ in range(3))
        exponentials = torch.empty_like(negative)
        weights = flat(log_weight) if log_weight is not None else np.empty(0, np.float32)
        results = [flat(tensor) for tensor in (nll, scale, pull, exponentials)]
        inputs = [flat(tensor) for tensor in (positive, negative, known_true)]
        threads = threads_for(negative.numel())

        def part(first: int, last: int) -> None:
            bits = np.empty(negatives, np.int32)
            _rows_loop(*results, *inputs, weights, bits, bits.view(np.float32), first, last)

        share_rows(part, batch, threads)
        ctx.save_for_backward(exponentials, scale, pull)
        return nll

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        exponentials, scale, pull = ctx.saved_tensors
        # In their place: new memory costs more than the product. A second backward pass is an error of PyTorch's.
        return -upstream * pull, exponentials.mul_((upstream * scale)[:, None]), None, None


def softmax_nll(positive: Tensor, negative: Tensor, known_true: Tensor, log_proposal: Tensor | None) -> Tensor:
    """`eans.kernels.softmax_nll`; a loop of its own for float32."""
    if not negative.numel() or not positive.dtype == negative.dtype == torch.float32:
        return reference.softmax_nll(positive, negative, known_true, log_proposal)
    negative, known_true = negative.contiguous(), known_true.expand_as(negative).contiguous()
    log_weight = None
    if log_proposal is not None:
        log_weight = log_proposal.to(negative.dtype) + reference.log_count(negative)
        log_weight = log_weight.expand_as(negative).contiguous()
    found: Tensor = _SoftmaxNll.apply(positive.contiguous(), negative, known_true, log_weight)
    return found
