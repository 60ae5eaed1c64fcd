"""The loss of EANS (Je, EMNLP 2022): false negatives are predicted by a substitution score and spared."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from eans import kernels
from eans.losses.base import Loss, Margin, Temperature
from eans.options import Option
from eans.types import LossTerms, Scores, Whole

Form = Literal["reference", "paper"]


class SubstitutionLoss(Loss):
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
    """

    terms = ("positive", "negative", "substitution")
    unweighted = ("substitution",)
    needs_labels = True

    def __init__(
        self,
        margin: Margin = 0.0,
        adversarial_temperature: Temperature = 0.0,
        substitution_weight: Annotated[float, Option("lambda_2", ge=0)] = 1.0,
        substitution_regularization: Annotated[float, Option("lambda_1", ge=0)] = 0.1,
        form: Annotated[
            Form, Option("the form that reaches the published numbers, or the equations as printed")
        ] = "reference",
    ) -> None:
        super().__init__()
        self.margin = margin
        self.adversarial_temperature = adversarial_temperature
        self.substitution_weight = substitution_weight
        self.substitution_regularization = substitution_regularization
        self.form: Form = form
        self.needs_substitution = "symmetric" if form == "reference" else "one-way"
        self.gradient_bound = 0.5 if form == "reference" else 1.0

    def logits(self, scores: Scores) -> Tensor:
        """``z``, ``[B, N]``."""
        assert scores.substitution is not None
        lowering = scores.substitution + (self.margin if self.form == "reference" else 0.0)
        return super().logits(scores) - self.substitution_regularization * lowering

    def forward(
        self, scores: Scores, known_true: Tensor, weight: Tensor, log_proposal: Tensor | None = None
    ) -> LossTerms:
        del log_proposal
        assert scores.substitution is not None
        if self.form == "paper":
            return self._as_printed(scores, scores.substitution, known_true, weight)
        terms = kernels.loss_terms(
            *scores,
            known_true,
            weight,
            self.margin,
            self.adversarial_temperature,
            self.substitution_weight,
            self.substitution_regularization,
        )
        return dict(zip(self.terms, terms.unbind(), strict=True))

    def part(
        self, scores: Scores, known_true: Tensor, weight: Tensor, log_proposal: Tensor | None, whole: Whole
    ) -> LossTerms:
        """As `Loss.part`; means over false negatives, over pairs and over positives have other shares of the whole."""
        assert scores.substitution is not None
        found = self(scores, known_true, weight, log_proposal)
        share, rows = weight.sum() / whole.weight, len(weight) / whole.positives
        predicted = found.pop("substitution")
        found = {name: term * share for name, term in found.items()}
        if self.form == "paper":
            return {**found, "substitution": predicted * rows}
        known = known_true.sum().clamp(min=1) / whole.known_true.clamp(min=1)
        logit = scores.substitution + self.margin
        size = logit.abs().mean() if logit.numel() else logit.sum()
        correction = self.substitution_regularization * (rows - known) * size
        return {**found, "substitution": predicted * known + correction}

    def _as_printed(self, scores: Scores, substitution: Tensor, known_true: Tensor, weight: Tensor) -> LossTerms:
        """The printed equations."""
        weight = weight / weight.sum()
        logit = substitution + self.margin
        positive = -(weight * logsigmoid(scores.positive + self.margin)).sum()
        negative = kernels.negative_loss(self.logits(scores), known_true, weight, self.adversarial_temperature)
        if logit.numel():  # the mean over no candidates would be 0 / 0
            prediction = torch.where(known_true, -logsigmoid(logit), 0.0).mean(1).mean()
            size = logit.sum(1).abs().mean()
            predicted = self.substitution_weight * prediction + self.substitution_regularization * size
        else:
            predicted = logit.sum()
        return dict(zip(self.terms, (positive, negative, predicted), strict=True))
