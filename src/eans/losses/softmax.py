"""Cross-entropies: among the candidates that were drawn, or as if among all entities."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from eans import kernels
from eans.losses.base import Loss, Margin
from eans.options import Option
from eans.types import LossTerms, Scores


class SoftmaxLoss(Loss):
    """Cross-entropy of the positive among sampled candidates, as if it had been among all entities.

    ``L = -sum_i w_i log(exp(s_i) / (exp(s_i) + Z_i))`` with ``Z_i = sum_j [y_ij = 0] exp(s_ij) / (N q_ij)``

    ``q_ij`` is the probability with which the sampler draws candidate j for row i, and N counts the masked candidates
    too. So ``Z_i`` estimates, without bias, the sum of ``exp(s)`` over all entities that are not known answers, and the
    loss that of a softmax over them and the positive (sampled softmax; Jean et al. 2015). With every entity drawn once
    and ``q = 1 / E`` it is that loss. This holds for ``sampler.known_true = "exact"`` with masked false negatives.
    Drawing them again raises ``Z_i`` by one over the share of the proposal that is not known to be true, labels of
    repeats lower it, and kept false negatives count, the positive itself among them.

    The margin cancels. A row without unmasked candidates contributes zero.

    Args:
        margin: has no effect.
        correct_proposal: False leaves ``1 / (N q_ij)`` out: the plain cross-entropy among the positive and its N
            candidates, for any sampler. Likelier draws then weigh more, and the positive competes with N candidates
            instead of E entities.
    """

    terms = ("softmax",)
    needs_negatives = True
    needs_proposal = True
    gradient_bound = 1.0

    def __init__(
        self,
        margin: Margin = 0.0,
        correct_proposal: Annotated[
            bool, Option("weigh candidates by 1 / (n q), q the probability of their draw; false: all alike")
        ] = True,
    ) -> None:
        super().__init__()
        self.margin = margin
        self.correct_proposal = correct_proposal
        self.needs_proposal = correct_proposal

    def forward(
        self, scores: Scores, known_true: Tensor, weight: Tensor, log_proposal: Tensor | None = None
    ) -> LossTerms:
        assert (log_proposal is not None) == self.correct_proposal
        nll = kernels.softmax_nll(scores.positive, scores.negative, known_true, log_proposal)
        return {"softmax": (weight / weight.sum() * nll).sum()}
