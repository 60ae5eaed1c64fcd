"""What a model is called with, checked: ids out of range would read whatever lies beside a table."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from eans.arguments import described
from eans.errors import UsageError
from eans.graph import KnowledgeGraph


class Model(Protocol):
    """What the checks read of an `eans.models.Model`."""

    vocabulary: str

    @property
    def num_entities(self) -> int:
        """How many entities it has a row for."""

    @property
    def num_relations(self) -> int:
        """How many relations it was built for."""

    @property
    def substitution_relation(self) -> int:
        """The last of its relation rows."""


def require_graph(model: Model, graph: KnowledgeGraph) -> None:
    """Raise for a graph with other entities or relations, whose ids mean something else.

    A model that was built from sizes alone knows nothing but those.
    """
    if not isinstance(getattr(model, "vocabulary", None), str):
        raise UsageError(f"a trained model is needed, got {described(model)}; take that of a run, run.model")
    if not isinstance(graph, KnowledgeGraph):
        raise UsageError(f"a graph is needed, got {described(graph)}; make one with eans.load(...)")
    sizes = (model.num_entities, model.num_relations) == (graph.num_entities, graph.num_relations)
    if not sizes or model.vocabulary not in ("", graph.vocabulary_sha256):
        raise UsageError(
            f"the model was built for other entities and relations than those of graph '{graph.name}'; use the graph "
            "of its run, or rank triples by name with run.evaluate(triples)"
        )


def require_triples(model: Model, triples: Tensor) -> None:
    """Raise for anything but int64 ids ``[B, 3]`` of entities and relation rows of the model."""
    if not isinstance(triples, Tensor) or triples.dtype != torch.int64 or triples.shape[1:] != (3,):
        raise UsageError(f"triples must be an int64 tensor of shape [n, 3], got {described(triples)}")
    rows = model.substitution_relation + 1
    limits = (model.num_entities, rows, model.num_entities)
    if not len(triples):
        return
    least, most = triples.amin(0).tolist(), triples.amax(0).tolist()
    if min(least) < 0 or any(number >= limit for number, limit in zip(most, limits, strict=True)):
        raise UsageError(f"a triple has an id outside the model's {limits[0]} entities or {rows} relation rows")


def require_entities(model: Model, entities: Tensor, *leading: int) -> None:
    """Raise for anything but int64 ids ``[*leading, n]`` of the model's entities."""
    right = isinstance(entities, Tensor) and entities.dtype == torch.int64
    if not right or entities.dim() != len(leading) + 1 or tuple(entities.shape[:-1]) != leading:
        shape = ", ".join(map(str, (*leading, "n")))
        raise UsageError(f"entities must be an int64 tensor of shape [{shape}], got {described(entities)}")
    if entities.numel() and not 0 <= int(entities.min()) <= int(entities.max()) < model.num_entities:
        raise UsageError(f"an entity has an id outside the model's {model.num_entities} entities")
