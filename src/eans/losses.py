"""Losses see scores, a mask and weights; never a model, a batch or a recipe.

Notation: ``s`` a score plus the margin, ``w`` the weights of the positives normalised to sum 1, ``y`` the known-true
mask. Self-adversarial sampling is not a sampler here but the temperature of the negatives' weights.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, logsigmoid

from eans import kernels
from eans.errors import UsageError
from eans.models import Scores, Substitution

Form = Literal["reference", "paper"]


class LossTerms(NamedTuple):
    """The parts that add up to the loss, each a scalar."""

    positive: Tensor
    negative: Tensor
    substitution: Tensor

    @property
    def total(self) -> Tensor:
        return self.positive + self.negative + self.substitution


class LogSigmoid(nn.Module):
    """Positives up, negatives down, through ``log sigmoid``.

    ``L = (L_positive + L_negative) / 2`` with ``L_positive = -sum_i w_i log sig(s_i)`` and
    ``L_negative = -sum_i w_i sum_j p_ij log sig(-s_ij)`` over pairs that are not known to be true.

    ``p_ij`` is ``1 / N`` (N counts the masked ones too), or with an adversarial temperature ``a`` the constant
    ``softmax_j(a s_ij)`` over the unmasked ones (self-adversarial sampling, Sun et al. 2019). A row without unmasked
    negatives contributes zero.

    Args:
        margin: added to every score; the gamma of distance models, 0 for dot products.
        adversarial_temperature: ``a``; 0 for equal weights.

    Attributes:
        needs_substitution: which substitution scores `forward` wants, if any.
        needs_proposal: whether `forward` wants the log-probabilities of the draws.
        needs_negatives: whether it has nothing to learn from positives alone.
        least_margin: what ``loss.margin = "auto"`` stands for with models that have no margin.
        most_pull: the most that ``sum_j |dL / ds_ij|`` can be in a row of weight 1: the scale of gradients.
    """

    needs_substitution: Substitution | None = None
    needs_proposal: bool = False
    needs_negatives: bool = False
    least_margin: float = 0.0
    most_pull: float = 0.5

    def __init__(self, margin: float = 0.0, adversarial_temperature: float = 0.0) -> None:
        super().__init__()
        self.margin = margin
        self.adversarial_temperature = adversarial_temperature

    def logits(self, scores: Scores) -> Tensor:
        """What the loss presses down for each negative, ``[B, N]``: its score and the margin."""
        return scores.negative + self.margin

    def forward(
        self, scores: Scores, known_true: Tensor, weight: Tensor, log_proposal: Tensor | None = None
    ) -> LossTerms:
        """Scores of ``[B]`` positives and ``[B, N]`` negatives, mask bool ``[B, N]``, weight ``[B]``.

        `log_proposal` ``[B, N]`` comes with losses that ask for it by `needs_proposal`.
        """
        del log_proposal
        plain = scores.positive, scores.negative, None
        return LossTerms(
            *kernels.loss_terms(*plain, known_true, weight, self.margin, self.adversarial_temperature).unbind()
        )


class SubstitutionLoss(LogSigmoid):
    """The loss of EANS: false negatives are predicted by a substitution score and spared.

    With ``u`` the substitution score plus the margin, a negative's logit is lowered to ``z = s - l1 u``, known false
    negatives are masked, and ``u`` itself is trained on the labels:

    ``L = (L_positive + L_negative(z)) / 2 + l2 mean_{y=1}(-log sig(u)) + l1 mean(|u|)``

    This is the form that reaches the published numbers: ``u`` averages both directions, its gradient flows through
    ``z``, the mean runs over the known false negatives of the batch, and only the first part is halved.

    Args:
        margin, adversarial_temperature: see `LogSigmoid`.
        substitution_weight: ``l2``.
        substitution_regularization: ``l1``.
        form: ``"reference"`` as above, or ``"paper"`` for the printed equations: one direction, the substitution
            distance without the margin inside ``z``, nothing halved, and per positive
            ``l2 / N sum_j y_j (-log sig(u_j)) + l1 |sum_j u_j|``, averaged over the batch.
        detach: stop the gradient of ``u`` inside ``z``.
    """

    def __init__(
        self,
        margin: float = 0.0,
        adversarial_temperature: float = 0.0,
        substitution_weight: float = 1.0,
        substitution_regularization: float = 0.1,
        form: Form = "reference",
        detach: bool = False,
    ) -> None:
        super().__init__(margin, adversarial_temperature)
        self.substitution_weight = substitution_weight
        self.substitution_regularization = substitution_regularization
        self.form: Form = form
        self.detach = detach
        self.needs_substitution = "symmetric" if form == "reference" else "one-way"
        self.most_pull = 0.5 if form == "reference" else 1.0

    def logits(self, scores: Scores) -> Tensor:
        """``z``, ``[B, N]``."""
        assert scores.substitution is not None
        lowering = scores.substitution + (self.margin if self.form == "reference" else 0.0)
        return super().logits(scores) - self.substitution_regularization * (
            lowering.detach() if self.detach else lowering
        )

    def forward(
        self, scores: Scores, known_true: Tensor, weight: Tensor, log_proposal: Tensor | None = None
    ) -> LossTerms:
        """As `LogSigmoid.forward`; `scores.substitution` must be there."""
        del log_proposal
        assert scores.substitution is not None
        if self.form == "paper" or self.detach:
            return self._variant(scores, scores.substitution, known_true, weight)
        return LossTerms(
            *kernels.loss_terms(
                *scores,
                known_true,
                weight,
                self.margin,
                self.adversarial_temperature,
                self.substitution_weight,
                self.substitution_regularization,
            ).unbind()
        )

    def _variant(self, scores: Scores, substitution: Tensor, known_true: Tensor, weight: Tensor) -> LossTerms:
        """The loss with the printed equations, or with a detached substitution score."""
        weight = weight / weight.sum()
        logit = substitution + self.margin
        positive = -(weight * logsigmoid(scores.positive + self.margin)).sum()
        negative = kernels.negative_loss(self.logits(scores), known_true, weight, self.adversarial_temperature)
        missed = torch.where(known_true, -logsigmoid(logit), 0.0)
        if not logit.numel():  # the means below would be 0 / 0
            return LossTerms(positive / (2 if self.form == "reference" else 1), negative, logit.sum())
        if self.form == "reference":
            prediction = missed.sum() / known_true.sum().clamp(min=1)
            size = logit.abs().mean()
            halves = 2
        else:
            prediction = missed.mean(1).mean()
            size = logit.sum(1).abs().mean()
            halves = 1
        predicted = self.substitution_weight * prediction + self.substitution_regularization * size
        return LossTerms(positive / halves, negative / halves, predicted)


class SoftmaxLoss(LogSigmoid):
    """Cross-entropy of the positive among sampled candidates, as if it had been among all entities.

    ``L = -sum_i w_i log(exp(s_i) / (exp(s_i) + Z_i))`` with ``Z_i = sum_j [y_ij = 0] exp(s_ij) / (N q_ij)``

    ``q_ij`` is the probability with which the sampler draws candidate j for row i, and N counts the masked candidates
    too. So ``Z_i`` estimates, without bias, the sum of ``exp(s)`` over all entities that are not known answers, and the
    loss that of a softmax over them and the positive (sampled softmax; Jean et al. 2015). With every entity drawn once
    and ``q = 1 / E`` it is that loss. This holds for ``sampler.known_true = "exact"`` with masked false negatives.
    Drawing them again raises ``Z_i`` by one over the share of the proposal that is not known to be true, labels of
    repeats lower it, and kept false negatives count, the positive itself among them.

    The margin cancels. A row without unmasked candidates contributes zero. A softmax does not come apart into
    positives and negatives; all of it is reported as the negative term.

    Args:
        margin: has no effect.
        adversarial_temperature: must be 0: a softmax weighs the candidates by their scores already.
        correct_proposal: False leaves ``1 / (N q_ij)`` out: the plain cross-entropy among the positive and its N
            candidates, for any sampler. Likelier draws then weigh more, and the positive competes with N candidates
            instead of E entities.
    """

    needs_negatives = True
    most_pull = 1.0

    def __init__(
        self, margin: float = 0.0, adversarial_temperature: float = 0.0, correct_proposal: bool = True
    ) -> None:
        if adversarial_temperature:
            raise UsageError(
                "loss.name 'softmax' weighs negatives by their scores itself: set loss.adversarial_temperature=0"
            )
        super().__init__(margin)
        self.correct_proposal = correct_proposal
        self.needs_proposal = correct_proposal

    def forward(
        self, scores: Scores, known_true: Tensor, weight: Tensor, log_proposal: Tensor | None = None
    ) -> LossTerms:
        """As `LogSigmoid.forward`; with `correct_proposal`, `log_proposal` must be there."""
        assert (log_proposal is not None) == self.correct_proposal
        surprise = kernels.surprise(scores.positive, scores.negative, known_true, log_proposal)
        total = (weight / weight.sum() * surprise).sum()
        return LossTerms(torch.zeros_like(total), total, torch.zeros_like(total))


class HingeLoss(LogSigmoid):
    """The margin ranking loss: each positive above its negatives by the margin, no matter where.

    ``L = sum_i w_i sum_j p_ij max(0, gamma - s_i + s_ij)`` over pairs that are not known to be true, ``s`` without the
    margin gamma and ``p_ij`` as of `LogSigmoid` (Bordes et al., 2013, have one negative). A pair that keeps the margin
    has no gradient. All of it is reported as the negative term.

    Args:
        margin: gamma, more than 0: without it, equal scores for everything would do.
        adversarial_temperature: see `LogSigmoid`.
    """

    needs_negatives = True
    least_margin = 1.0
    most_pull = 1.0

    def __init__(self, margin: float = 1.0, adversarial_temperature: float = 0.0) -> None:
        if not margin > 0:
            raise UsageError(
                "loss.name 'hinge' keeps positives and negatives apart by a margin: set loss.margin above 0"
            )
        super().__init__(margin, adversarial_temperature)

    def forward(
        self, scores: Scores, known_true: Tensor, weight: Tensor, log_proposal: Tensor | None = None
    ) -> LossTerms:
        """As `LogSigmoid.forward`."""
        del log_proposal
        share = kernels.negative_shares(scores.negative.detach(), known_true, self.adversarial_temperature)
        missing = (self.margin - scores.positive[:, None] + scores.negative).clamp(min=0)
        rows = (share * torch.where(known_true, 0.0, missing)).sum(1)
        total = (weight / weight.sum() * rows).sum()
        return LossTerms(torch.zeros_like(total), total, torch.zeros_like(total))


def relation_loss(scores: Tensor, relations: Tensor, weight: Tensor) -> Tensor:
    """``-sum_i w_i log softmax_r(s_ir)`` at each triple's own relation (Chen et al., 2021): a scalar.

    Scores ``[B, R]`` of all relations between head and tail, relations int64 ``[B]``, weight ``[B]``.
    """
    return (weight / weight.sum() * cross_entropy(scores, relations, reduction="none")).sum()


LOSSES: dict[str, type[LogSigmoid]] = {
    "logsigmoid": LogSigmoid,
    "substitution": SubstitutionLoss,
    "softmax": SoftmaxLoss,
    "hinge": HingeLoss,
}
