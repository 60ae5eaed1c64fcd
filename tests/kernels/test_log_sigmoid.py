"""The log-sigmoid loss in every implementation equals the formula, written out row by row."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from kernel_cases import Implementation, compiled, normal, with_gradients
from torch import Tensor
from torch.nn.functional import logsigmoid

from eans.kernels import negative_shares

MARGIN, WEIGHT, REGULARIZATION = 2.0, 0.5, 0.125


def naive(
    positive: Tensor, negative: Tensor, other: Tensor | None, known: Tensor, weight: Tensor, temperature: float
) -> Tensor:
    """Positive by positive; ``[3]``."""
    weight = weight / weight.sum()
    up = down = missed = positive.new_zeros(())
    for row in range(len(positive)):
        logits = negative[row] + MARGIN
        if other is not None:
            logits = logits - REGULARIZATION * (other[row] + MARGIN)
            missed = missed - logsigmoid(other[row][known[row]] + MARGIN).sum()
        shares = negative_shares(logits.detach()[None], known[row][None], temperature)[0]
        up = up - weight[row] * logsigmoid(positive[row] + MARGIN)
        down = down - weight[row] * (shares * logsigmoid(-logits))[~known[row]].sum()
    if other is None:
        return torch.stack([up / 2, down / 2, missed])
    predicted = WEIGHT * missed / known.sum().clamp(min=1) + REGULARIZATION * (other + MARGIN).abs().mean()
    return torch.stack([up / 2, down / 2, predicted])


@pytest.mark.parametrize("temperature", [0.0, 0.75])  # a kernel gets its scalars in float32
@pytest.mark.parametrize("substitution", [False, True])
@pytest.mark.parametrize("negatives", [1, 5, 8])
def test_loss_terms(ops: Implementation, temperature: float, substitution: bool, negatives: int) -> None:
    batch = 6
    known = normal(batch, negatives, seed=5) > 0.5
    known[1] = True  # nothing left to push down
    known[2] = False
    weight = normal(batch, seed=6).abs()
    inputs = [normal(batch) * 5, *(normal(batch, negatives, seed=seed) * 5 for seed in range(1, 2 + substitution))]

    def terms(positive: Tensor, negative: Tensor, other: Tensor | None = None) -> Tensor:
        found: Tensor = ops.loss_terms(
            positive, negative, other, ops.put(known), ops.put(weight), MARGIN, temperature, WEIGHT, REGULARIZATION
        )
        return found

    def exact(positive: Tensor, negative: Tensor, other: Tensor | None = None) -> Tensor:
        return naive(positive, negative, other, known, weight, temperature)

    found = with_gradients(terms, *(ops.put(value) for value in inputs))
    for one, two in zip(found, with_gradients(exact, *inputs), strict=True):
        torch.testing.assert_close(one.cpu(), two, rtol=1e-12, atol=1e-12)


@compiled
def test_scores_that_are_slices(ops: Implementation) -> None:
    """As `compare` leaves them: rows of one tensor, which is not contiguous here."""
    scores, known = normal(2, 4, 9), torch.zeros(4, 6, dtype=torch.bool)
    exact = naive(normal(4), scores[0, :, 1:7], scores[1, :, 1:7], known, torch.ones(4).double(), 1.0)
    sliced = ops.put(scores)[:, :, 1:7]
    weight = ops.put(torch.ones(4).double())
    found = ops.loss_terms(
        ops.put(normal(4)), sliced[0], sliced[1], ops.put(known), weight, MARGIN, 1.0, WEIGHT, REGULARIZATION
    )
    torch.testing.assert_close(found.cpu(), exact)


def test_a_loss_that_is_not_finite_shows(ops: Implementation) -> None:
    negative = normal(4, 6)
    negative[2, 3] = float("nan")
    known, weight = torch.zeros(4, 6, dtype=torch.bool), torch.ones(4).double()
    terms: Callable[..., Tensor] = ops.loss_terms
    found = terms(ops.put(normal(4)), ops.put(negative), None, ops.put(known), ops.put(weight), 1.0, 1.0)
    assert found[1].isnan()


def test_no_negatives(ops: Implementation) -> None:
    positive, nothing = ops.put(normal(4)), ops.put(torch.zeros(4, 0).double())
    known, weight = ops.put(torch.zeros(4, 0, dtype=torch.bool)), ops.put(torch.ones(4).double())
    found = ops.loss_terms(positive, nothing, nothing, known, weight, 1.0, 1.0, 0.5, 0.1)
    torch.testing.assert_close(found[0], -logsigmoid(positive + 1.0).mean() / 2)
    assert found[1:].tolist() == [0.0, 0.0]
