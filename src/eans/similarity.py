"""Entities that are like one: by what is stored of them, and by the extra relation of EANS."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from eans import kernels
from eans.arguments import choice, whole
from eans.errors import RunError, UsageError
from eans.graph import SIDES, KnowledgeGraph
from eans.kernels.blocks import blocks
from eans.models import Model
from eans.models.arguments import require_graph
from eans.types import Side, Substitution

By = Literal["embedding", "substitution"]
BY: tuple[By, ...] = ("embedding", "substitution")
# What is measured between embeddings: angles where scores are dot products, otherwise distances.
COSINE, DISTANCE, SUBSTITUTION = "cosine", "-L2 distance", "substitution score"


class Similar(NamedTuple):
    """An entity that is like another one; a higher score says more alike. `measure` says what the score is."""

    entity: str
    score: float
    by: By
    measure: str


def similar(
    model: Model,
    graph: KnowledgeGraph,
    entity: str,
    k: int = 10,
    by: By | None = None,
    substitution: Substitution | None = None,
) -> tuple[Similar, ...]:
    """The k entities most like `entity`, best first, by each measure; see `Run.similar`.

    Args:
        model, graph: the trained model and the graph whose names it uses.
        entity: label.
        k: how many by each measure.
        by: ``"embedding"`` or ``"substitution"``; None: both, where there is a substitution score.
        substitution: the form of the score that the model was trained with, if any.
    """
    require_graph(model, graph)
    k, one = whole("k", k, least=1), graph.entities.id(entity)
    wanted = [choice("by", by, BY)] if by is not None else list(BY if substitution else BY[:1])
    if "substitution" in wanted and substitution is None:
        raise UsageError("there are no substitution scores: the run was trained with another loss than 'substitution'")
    found: list[Similar] = []
    for name in wanted:
        measure, scores = _embeddings(model, one) if name == "embedding" else _substitutes(model, one, substitution)
        here = torch.tensor([0, 1], device=scores.device)
        best = kernels.best(scores[None], min(k, len(scores)), here[:1] + one, here[:1], here[1:])
        if bool(best.nan):
            raise RunError("the model has NaN in its tables, so nothing is similar; its training has diverged")
        for score, other in zip(best.scores[0].tolist(), best.entities[0].tolist(), strict=True):
            if other >= 0:
                found.append(Similar(graph.entities[other], score, name, measure))
    return tuple(found)


def _embeddings(model: Model, one: int) -> tuple[str, Tensor]:
    """Cosines with the row of an entity, or its distances to all rows, negative: ``[E]``."""
    table = model.entity_features()
    row, scores = table[one], table.new_empty(len(table))
    for block in blocks(len(table), table.shape[1], table.device):
        rows = table[block]
        if model.comparison == "dot":
            scores[block] = torch.nn.functional.cosine_similarity(rows, row[None], dim=1)
        else:
            scores[block] = -torch.linalg.vector_norm(rows - row, dim=1)
    return COSINE if model.comparison == "dot" else DISTANCE, scores


def _substitutes(model: Model, one: int, substitution: Substitution | None) -> tuple[str, Tensor]:
    """The scores ``[E]`` of all entities as substitutes of one: as in training, the mean of both directions or one."""
    triples = torch.tensor([[one, model.substitution_relation, one]], device=model.entity.device)
    both = substitution == "symmetric" and not model.tails_only
    sides: tuple[Side, ...] = SIDES if both else ("tail",)
    with torch.no_grad():
        # Not `score_all`: with reciprocal relations that would look for the inverse of the substitution relation.
        scores = torch.cat([model.compare_all(triples, side) for side in sides]).mean(0)
    return SUBSTITUTION, scores + model.offset
