"""What a loss is: a function of scores, a mask and weights; never of a model, a batch or a recipe.

Notation: ``s`` a score plus the margin, ``w`` the weights of the positives normalised to sum 1, ``y`` the known-true
mask. Self-adversarial sampling is not a sampler here but the temperature of the negatives' weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar

from torch import Tensor, nn

from eans.options import Option
from eans.types import LossTerms, Scores, Substitution, Whole

# Options of several losses; each declares those that it has.
Margin = Annotated[
    float,
    Option(
        "gamma, added to every score; hinge: how much higher positives should score; softmax: sets nothing but "
        "init_range. auto: 9 for distance models, else 0 (hinge: 1)",
        ge=0,
        le=1e6,
        auto=True,
    ),
]
Temperature = Annotated[float, Option("alpha of self-adversarial weights; 0 for equal weights", ge=0)]


class Loss(nn.Module, ABC):
    """Base of all losses. A new one writes `forward`, and declares what it computes and what it needs.

    Attributes:
        terms: the names of what `forward` returns, in this order; they are columns of the training log.
        unweighted: those of the terms that do not depend on the weights of the positives.
        needs_substitution: which substitution scores `forward` needs, if any.
        needs_proposal: whether `forward` needs the log-probabilities of the draws.
        needs_negatives: whether it has nothing to learn from positives alone.
        needs_labels: whether it learns from negatives that are labelled as known to be true.
        margin: gamma; what analyses add to every score.
        least_margin: what ``margin = "auto"`` of a recipe stands for with models that have no margin.
        gradient_bound: the largest that ``sum_j |dL / ds_ij|`` can be in a row of weight 1; None for no bound.
    """

    terms: ClassVar[tuple[str, ...]]
    unweighted: ClassVar[tuple[str, ...]] = ()
    needs_substitution: Substitution | None = None
    needs_proposal: bool = False
    needs_negatives: ClassVar[bool] = False
    needs_labels: ClassVar[bool] = False
    margin: float = 0.0
    least_margin: ClassVar[float] = 0.0
    gradient_bound: float | None = None

    @classmethod
    def automatic(cls, margin: float) -> dict[str, Any]:
        """What the options of this class that may be ``"auto"`` then are; `margin` is what suits the model."""
        return {"margin": margin or cls.least_margin}

    @abstractmethod
    def forward(
        self, scores: Scores, known_true: Tensor, weight: Tensor, log_proposal: Tensor | None = None
    ) -> LossTerms:
        """The terms that add up to the loss, each a scalar, by name.

        Scores of ``[B]`` positives and ``[B, N]`` negatives, mask bool ``[B, N]``, weight ``[B]`` of the positives, of
        which only the ratios matter. `log_proposal` ``[B, N]`` comes with losses that declare `needs_proposal`.
        """

    def part(
        self, scores: Scores, known_true: Tensor, weight: Tensor, log_proposal: Tensor | None, whole: Whole
    ) -> LossTerms:
        """What some of a batch's positives add to the terms of the `whole`: the arguments of `forward` are theirs.

        ``forward`` gives means over the positives by weight; ``sum_i w_i / whole.weight`` of those is their part. A
        loss with `unweighted` terms says here what the part of these is, or cannot be trained on several ranks.
        """
        share = weight.sum() / whole.weight
        return {name: term * share for name, term in self(scores, known_true, weight, log_proposal).items()}

    @classmethod
    def has_parts(cls) -> bool:
        """Is the loss of a batch the sum of what `part` gives for the parts of a batch?"""
        return not cls.unweighted or cls.part is not Loss.part

    def logits(self, scores: Scores) -> Tensor:
        """What the loss presses down for each negative, ``[B, N]``: its score and the margin."""
        return scores.negative + self.margin
