"""How the memory of a run grows with the sizes of its graph, read off from small trainers.

Every part of what a run holds grows evenly with the numbers of entities, relations and triples. Four trainers with the
very model, optimizer and sampler of a recipe say how fast, on graphs of which each has twice as many of one thing: no
second place has to know what these keep.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import torch

from eans.data import Sizes
from eans.description.memory import held
from eans.graph import KnowledgeGraph, Vocabulary
from eans.recipes import Recipe
from eans.recipes.build import build_trainer
from eans.vocabulary import LABELS

PROBED = {"entities": 600, "relations": 8, "triples": 1000}  # twice as many of each in turn
PROBE_BATCH, PROBE_STEPS = 500, 10  # into the second pass over both, when two orders of the triples are kept


class Growth(NamedTuple):
    """Bytes that a part has in any case, and for each entity, relation and triple."""

    fixed: float
    entity: float
    relation: float
    triple: float

    def at(self, sizes: Sizes) -> int:
        """Bytes for a graph of these sizes."""
        triples = sizes.train + sizes.valid + sizes.test
        return round(
            self.fixed + self.entity * sizes.entities + self.relation * sizes.relations + self.triple * triples
        )


def stand_in(sizes: Sizes) -> KnowledgeGraph:
    """A graph of these sizes that holds nothing: its triples are one, its labels are counted and not there."""
    train, valid, test = (
        torch.zeros(1, 3, dtype=torch.int64).expand(count, 3) for count in (sizes.train, sizes.valid, sizes.test)
    )
    names = _Counted(sizes.entities, "entity"), _Counted(sizes.relations, "relation")
    return _StandIn("graph", *names, train, valid, test)


class _StandIn(KnowledgeGraph):
    """A graph that is not checked: that would look at every triple."""

    def __post_init__(self) -> None:
        pass


class _Counted(Vocabulary):
    """So many labels, none of which is there."""

    def __init__(self, size: int, kind: str) -> None:
        super().__init__((), kind)
        self.size = size

    def __len__(self) -> int:
        return self.size


def growth(recipe: Recipe, sizes: Sizes) -> dict[str, Growth]:
    """How the parts of `eans.description.memory.held` grow, for a recipe that was resolved for a graph of `sizes`."""
    base, doubled = _probe(recipe, sizes), [_probe(recipe, sizes, name) for name in PROBED]
    found = {}
    for part, least in base.items():
        more = [one[part] - least for one in doubled]
        each = [extra / count for extra, count in zip(more, PROBED.values(), strict=True)]
        found[part] = Growth(least - sum(more), *each)
    return found


def _probe(recipe: Recipe, sizes: Sizes, doubled: str = "") -> dict[str, int]:
    """What a small trainer holds, with twice as many of one thing."""
    count = {name: number * (2 if name == doubled else 1) for name, number in PROBED.items()}
    graph = small_graph(count["entities"], count["relations"], count["triples"], width=len(str(sizes.entities)))
    trainer = build_trainer(shrunk(recipe, PROBE_BATCH, 2), graph, "cpu")
    for _ in range(PROBE_STEPS):
        trainer.step()
    return held(trainer, graph)


def small_graph(entities: int, relations: int, triples: int, width: int = 1) -> KnowledgeGraph:
    """Different triples that use all entities and relations alike; labels are decimals of so many digits."""
    number = torch.arange(triples)
    heads, kinds = number % entities, number // entities % relations
    rows = torch.stack([heads, kinds, (heads + number * 7 + kinds + 1) % entities], dim=1)
    entity, relation = (
        Vocabulary(pa.array([f"{one:0{width}}" for one in range(count)], LABELS), kind)
        for count, kind in ((entities, "entity"), (relations, "relation"))
    )
    return KnowledgeGraph("random", entity, relation, rows, rows[:0], rows[:0])


def shrunk(recipe: Recipe, batch_size: int, negatives: int) -> Recipe:
    """The recipe for a small graph: fewer positives and negatives, and a range of draws that fits."""
    sampler: dict[str, Any] = {"negatives": min(negatives, recipe.sampler.negatives)}
    if hasattr(recipe.sampler, "sigma"):
        sampler["sigma"] = 2.0
    return recipe.model_copy(
        update={
            "sampler": recipe.sampler.model_copy(update=sampler),
            "train": recipe.train.model_copy(update={"batch_size": batch_size}),
        }
    )
