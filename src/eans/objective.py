"""What a step minimises: a loss, and the terms that are added to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from eans.losses import Loss
from eans.models import Model, Positives
from eans.penalties import PENALTIES, Term
from eans.types import LossTerms, Negatives, Scores, Whole


def total(terms: LossTerms) -> Tensor:
    """The sum of the terms: a scalar."""
    return reduce(torch.add, terms.values())


class Objective:
    """The sum of a loss and of weighted terms.

    Args:
        loss: of the scores.
        terms: penalties and relation prediction, with their weights.

    Attributes:
        names: of everything that is added up, as in the training log.
    """

    def __init__(self, loss: Loss, terms: Sequence[Term] = ()) -> None:
        self.loss = loss
        self.terms = tuple(terms)
        self.names = (*loss.terms, *(term.name for term in self.terms))

    def __call__(
        self,
        model: Model,
        positives: Positives,
        scores: Scores,
        negatives: Negatives,
        log_proposal: Tensor | None = None,
        whole: Whole | None = None,
    ) -> LossTerms:
        """Every term by name, each a scalar; `total` adds them up.

        Of some positives of a batch: what they add to the terms of the `whole`.
        """
        found = self._loss(positives.weight, scores, negatives, log_proposal, whole)
        for term in self.terms:
            found[term.name] = term.weight * term.value(model, positives)
            if whole is not None:
                found[term.name] = found[term.name] * term.share(positives, whole)
        assert tuple(found) == self.names, f"declared terms are {self.names}, computed ones {tuple(found)}"
        return found

    def _loss(
        self, weight: Tensor, scores: Scores, negatives: Negatives, log_proposal: Tensor | None, whole: Whole | None
    ) -> LossTerms:
        if whole is not None:
            factors = 1.0 if negatives.weight is None else negatives.weight
            return self.loss.part(scores, negatives.known_true, weight * factors, log_proposal, whole)
        if negatives.weight is None:
            return self.loss(scores, negatives.known_true, weight, log_proposal)  # type: ignore[no-any-return]
        weighted = weight * negatives.weight
        found: LossTerms = self.loss(scores, negatives.known_true, weighted, log_proposal)
        # Losses scale weights to the sum 1; the mean of the sampler's factors must not be lost by that.
        share = weighted.sum() / weight.sum()
        return {name: term if name in self.loss.unweighted else term * share for name, term in found.items()}


# The names, in order, of the sums in a state that does not say them: all losses had the same terms.
_EARLIER = {"softmax": "negative", "hinge": "negative", **dict.fromkeys(PENALTIES, "penalty")}
EARLIER_NAMES = ("loss", "positive", "negative", "substitution", "penalty", "relation")


class LossSums:
    """Sums over steps of a loss and of its terms, for the means of a log record.

    Args:
        names: of the terms.
        device: where they are computed.

    Attributes:
        names: those of the loss and of the terms.
        values: ``[1 + terms]``.
    """

    def __init__(self, names: Sequence[str], device: torch.device) -> None:
        self.names = ("loss", *names)
        self.values = torch.zeros(len(self.names), device=device)

    def add(self, loss: Tensor, terms: LossTerms) -> None:
        """Add those of a step, scalars."""
        self.values += torch.stack([loss, *terms.values()]).detach()

    def take_means(self, steps: int) -> dict[str, float]:
        """The means over so many steps, by name, and start afresh."""
        means = dict(zip(self.names, (self.values / steps).tolist(), strict=True))
        self.values.zero_()
        return means

    def load(self, values: Tensor, names: Sequence[str] = EARLIER_NAMES) -> None:
        """Continue from saved values, of which a state of an earlier version may have fewer or other ones."""
        saved = dict(zip(names, values.tolist(), strict=False))
        loaded = [saved.get(name, saved.get(_EARLIER.get(name, ""), 0.0)) for name in self.names]
        self.values = torch.tensor(loaded, device=self.values.device)
