"""The log-sigmoid loss and its gradients, one program per positive."""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from eans.kernels.log_sigmoid import reference

# A program holds all negatives of a positive.
MOST_NEGATIVES = 8192
# Partial sums of each positive: losses of positive and negatives (weighted), of missed false negatives, size of the
# substitution scores; the positive's weight; its number of known false negatives.
PARTS = tl.constexpr(6)


@triton.jit
def _softplus(value):
    """``log(1 + exp(x)) = -log sig(-x)``."""
    return tl.maximum(value, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(value)))


@triton.jit
def _shares(logits, counted, negatives, temperature, ADVERSARIAL: tl.constexpr):
    """`reference.negative_shares` of one row; zero where not counted."""
    if ADVERSARIAL:
        scaled = tl.where(counted, logits * temperature, -float("inf"))
        top = tl.max(scaled, axis=0)
        top = tl.where(top == -float("inf"), 0.0, top)
        powers = tl.exp(scaled - top)
        shares = powers / tl.maximum(tl.sum(powers, axis=0), 1e-37)
    else:
        shares = tl.where(counted, 1.0, 0.0).to(logits.dtype) / negatives
    return shares


@triton.jit
def _load_row(
    negative, substitution, known_true, stride, negatives, margin, temperature, regularization,
    ADVERSARIAL: tl.constexpr, SUBSTITUTION: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Of a program: its row, the columns, logits (lowered by the substitution logits), substitution logits, the masks
    and the shares.
    """
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, COLUMNS)
    inside = columns < negatives
    logits = tl.load(negative + row * stride + columns, mask=inside, other=0.0) + margin
    others = logits
    if SUBSTITUTION:
        others = tl.load(substitution + row * stride + columns, mask=inside, other=0.0) + margin
        logits -= regularization * others
    known = (tl.load(known_true + row * negatives + columns, mask=inside, other=0) != 0) & inside
    counted = inside & ~known
    shares = _shares(logits, counted, negatives, temperature, ADVERSARIAL)
    return row, columns, logits, others, known, counted, inside, shares


@triton.jit
def _forward_kernel(
    parts,  # [PARTS, B]
    positive,  # [B]
    negative, substitution,  # [B, N], rows `stride` apart; no substitution: None
    known_true,  # [B, N]
    weight,  # [B]
    batch, negatives, stride, margin, temperature, regularization,
    ADVERSARIAL: tl.constexpr, SUBSTITUTION: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row, _, logits, others, known, counted, inside, shares = _load_row(
        negative, substitution, known_true, stride, negatives, margin, temperature, regularization,
        ADVERSARIAL, SUBSTITUTION, COLUMNS,
    )  # fmt: skip
    mine = tl.load(weight + row)
    parts += row
    tl.store(parts, mine * _softplus(-(tl.load(positive + row) + margin)))
    tl.store(parts + batch, mine * tl.sum(tl.where(counted, shares * _softplus(logits), 0.0), axis=0))
    tl.store(parts + 4 * batch, mine)
    if SUBSTITUTION:
        tl.store(parts + 2 * batch, tl.sum(tl.where(known, _softplus(-others), 0.0), axis=0))
        tl.store(parts + 3 * batch, tl.sum(tl.where(inside, tl.abs(others), 0.0), axis=0))
        tl.store(parts + 5 * batch, tl.sum(known.to(logits.dtype), axis=0))


@triton.jit
def _combine_kernel(
    terms,  # [3]
    norms,  # [2]: 1 / sum of weights, 1 / number of known false negatives
    parts,  # [PARTS, B]
    batch,
    negatives,
    substitution_weight,
    regularization,
    SUBSTITUTION: tl.constexpr,
    BLOCK: tl.constexpr,
):
    index = tl.arange(0, 8)[:, None]
    sums = tl.zeros([8, BLOCK], dtype=terms.dtype.element_ty)
    used = (index < 2) | (index == 4) | ((index < PARTS) & SUBSTITUTION)
    for start in range(0, batch, BLOCK):
        columns = start + tl.arange(0, BLOCK)[None, :]
        sums += tl.load(parts + index * batch + columns, mask=used & (columns < batch), other=0.0)
    totals = tl.sum(sums, axis=1)
    number = tl.arange(0, 8)
    weights = tl.sum(tl.where(number == 4, totals, 0.0), axis=0)
    tl.store(norms, 1.0 / weights)
    tl.store(terms, tl.sum(tl.where(number == 0, totals, 0.0), axis=0) / weights / 2)
    tl.store(terms + 1, tl.sum(tl.where(number == 1, totals, 0.0), axis=0) / weights / 2)
    predicted = 0.0
    if SUBSTITUTION:
        labelled = tl.maximum(tl.sum(tl.where(number == 5, totals, 0.0), axis=0), 1.0)
        tl.store(norms + 1, 1.0 / labelled)
        missed = tl.sum(tl.where(number == 2, totals, 0.0), axis=0) / labelled
        size = tl.sum(tl.where(number == 3, totals, 0.0), axis=0) / batch / negatives
        predicted = substitution_weight * missed + regularization * size
    tl.store(terms + 2, predicted)


@triton.jit
def _backward_kernel(
    to_positive,  # [B]
    to_negative,  # [B, N]
    to_substitution,  # [B, N] or None
    upstream,  # [3]
    norms,  # [2]
    positive, negative, substitution, known_true, weight,
    batch, negatives, stride, margin, temperature, substitution_weight, regularization,
    ADVERSARIAL: tl.constexpr, SUBSTITUTION: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row, columns, logits, others, known, counted, inside, shares = _load_row(
        negative, substitution, known_true, stride, negatives, margin, temperature, regularization,
        ADVERSARIAL, SUBSTITUTION, COLUMNS,
    )  # fmt: skip
    mine = tl.load(weight + row) * tl.load(norms) / 2
    up = -tl.load(upstream) * mine / (1.0 + tl.exp(tl.load(positive + row) + margin))
    tl.store(to_positive + row, up)
    down = tl.load(upstream + 1) * mine * shares / (1.0 + tl.exp(-logits))
    down = tl.where(counted, down, 0.0)
    tl.store(to_negative + row * negatives + columns, down, mask=inside)
    if SUBSTITUTION:
        outer = tl.load(upstream + 2)
        missed = outer * substitution_weight * tl.load(norms + 1) / (1.0 + tl.exp(others))
        sign = tl.where(others > 0, 1.0, tl.where(others < 0, -1.0, 0.0))
        size = outer * regularization / batch / negatives
        pull = size * sign - regularization * down - tl.where(known, missed, 0.0)
        tl.store(to_substitution + row * negatives + columns, pull, mask=inside)


class _LossTerms(torch.autograd.Function):
    """Forward and backward of `loss_terms`."""

    @staticmethod
    def forward(
        ctx: Any, positive: Tensor, negative: Tensor, substitution: Tensor | None, known_true: Tensor, weight: Tensor,
        margin: float, temperature: float, substitution_weight: float, regularization: float,
    ) -> Tensor:  # fmt: skip
        batch, negatives = negative.shape
        parts = negative.new_empty(PARTS.value, batch)
        terms, norms = negative.new_empty(3), negative.new_empty(2)
        flags = {"ADVERSARIAL": temperature != 0.0, "SUBSTITUTION": substitution is not None}
        with torch.cuda.device_of(negative):
            _forward_kernel[(batch,)](
                parts, positive, negative, substitution, known_true, weight, batch, negatives, negative.stride(0),
                float(margin), float(temperature), float(regularization),
                **flags, COLUMNS=triton.next_power_of_2(negatives),
            )  # fmt: skip
            _combine_kernel[(1,)](
                terms, norms, parts, batch, negatives, float(substitution_weight), float(regularization),
                SUBSTITUTION=flags["SUBSTITUTION"], BLOCK=256,
            )  # fmt: skip
        ctx.save_for_backward(norms, positive, negative, substitution, known_true, weight)
        ctx.scalars = tuple(map(float, (margin, temperature, substitution_weight, regularization)))
        ctx.flags = flags
        return terms

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        norms, positive, negative, substitution, known_true, weight = ctx.saved_tensors
        batch, negatives = negative.shape
        to_positive, to_scores = torch.empty_like(positive), negative.new_empty(2, batch, negatives)
        to_substitution = None if substitution is None else to_scores[1]
        with torch.cuda.device_of(negative):
            _backward_kernel[(batch,)](
                to_positive, to_scores[0], to_substitution, upstream.contiguous(), norms,
                positive, negative, substitution, known_true, weight, batch, negatives, negative.stride(0),
                *ctx.scalars, **ctx.flags, COLUMNS=triton.next_power_of_2(negatives),
            )  # fmt: skip
        return to_positive, to_scores[0], to_substitution, *[None] * 6


def loss_terms(
    positive: Tensor, negative: Tensor, substitution: Tensor | None, known_true: Tensor, weight: Tensor,
    margin: float, temperature: float, substitution_weight: float = 0.0, substitution_regularization: float = 0.0,
) -> Tensor:  # fmt: skip
    """See `eans.kernels.loss_terms`."""
    scalars = margin, temperature, substitution_weight, substitution_regularization
    negatives = negative.shape[1]
    strides = {tensor.stride() for tensor in (negative, substitution) if tensor is not None}
    if not 0 < negatives <= MOST_NEGATIVES or weight.dtype != negative.dtype:
        return reference.loss_terms(positive, negative, substitution, known_true, weight, *scalars)
    if len(strides) > 1 or negative.stride(1) != 1:
        negative = negative.contiguous()
        substitution = None if substitution is None else substitution.contiguous()
    terms: Tensor = _LossTerms.apply(
        positive.contiguous(), negative, substitution, known_true.contiguous(), weight.contiguous(), *scalars
    )
    return terms
