"""What the parts of training pass to each other: plain data, without behaviour.

Shapes: B positives of a batch, N negatives of each, E entities, R relations, F and G numbers of their rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

Side = Literal["head", "tail"]
Substitution = Literal["symmetric", "one-way"]


class Capability(Enum):
    """What some models can do and others cannot; the value says so of one that cannot.

    Models declare it by attributes (`eans.models.Model`), samplers and terms of an objective name what they need, and
    `eans.compatibility` compares the two.
    """

    DOT_PRODUCT = "compares by a distance, not by a dot product"
    LINEAR_IN_RELATION = "is not linear in the relation"
    CLOSED_FORM_SUM = "has no closed form of the sum over all triples"
    HEAD_QUERIES = "has no queries for heads"
    UNBOUNDED_ROWS = "passes its rows through a bounded function"
    GRADIENT_BY_ROWS = "has a gradient for every row of the entity table"


class Batch(NamedTuple):
    """Positives of one step.

    Attributes:
        triples: int64 ``[B, 3]``.
        side: the end to corrupt.
        weight: float32 ``[B]``.
    """

    triples: Tensor
    side: Side
    weight: Tensor


class Negatives(NamedTuple):
    """Candidates for one batch.

    Attributes:
        entities: int64 ``[B, N]``.
        known_true: bool ``[B, N]``: labelled as a false negative.
        weight: ``[B]`` or None: factors on the weights of the positives.
        notes: tensors that the sampler's own `observe` wants to see again.
    """

    entities: Tensor
    known_true: Tensor
    weight: Tensor | None = None
    notes: tuple[Tensor, ...] = ()


class TripleRows(NamedTuple):
    """What the tables hold of B triples: rows ``[B, F]``, ``[B, G]`` and ``[B, F]``."""

    head: Tensor
    relation: Tensor
    tail: Tensor


class Scores(NamedTuple):
    """The scores of one training batch, without margins.

    Attributes:
        positive: ``[B]``.
        negative: ``[B, N]``.
        substitution: ``[B, N]`` or None: how plausible it is that the negative could stand in for the positive
            entity, scored through the extra relation `substitution`.
    """

    positive: Tensor
    negative: Tensor
    substitution: Tensor | None

    def detach(self) -> Scores:
        """The same scores without their history."""
        substitution = self.substitution.detach() if self.substitution is not None else None
        return Scores(self.positive.detach(), self.negative.detach(), substitution)


# The parts that add up to what a step minimises, each a scalar, by name.
LossTerms = dict[str, Tensor]


class TrainedModel(Protocol):
    """What samplers use of the model that is trained (`eans.models.Model`)."""

    def entity_features(self) -> Tensor:
        """All entity-indexed parameters side by side, ``[E, F]``."""

    def scores_of_candidates(self, triples: Tensor, side: Side, entities: Tensor) -> Tensor:
        """Scores with the `side` of each triple ``[B, 3]`` replaced by `entities` ``[B, N]``: ``[B, N]``."""


@dataclass(frozen=True)
class StepOutcome:
    """What a sampler may use after an optimizer step. It must not change the model.

    Attributes:
        step: how many steps are complete, counted from 1.
        model: after the update.
        triples, side: the batch, ``[B, 3]``.
        negatives: what the sampler returned for it.
        scores: detached scores of the step, before the update.
        generator: random numbers for the sampler's own use.
    """

    step: int
    model: TrainedModel
    triples: Tensor
    side: Side
    negatives: Negatives
    scores: Scores
    generator: torch.Generator
