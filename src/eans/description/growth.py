"""How the memory of a run grows with the sizes of its graph, read off from small trainers.

Every part of what a run holds grows evenly with the numbers of entities, relations and triples. Four trainers with the
very model, optimizer and sampler of a recipe say how fast, on graphs of which each has twice as many of one thing: no
second place has to know what these keep.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import torch

from eans.batches import MOST_DRAWN
from eans.data import Sizes
from eans.description.memory import held
from eans.graph import KnowledgeGraph, Vocabulary
from eans.recipes import Recipe
from eans.recipes.build import build_trainer
from eans.vocabulary import LABELS

PROBED = {"entities": 600, "relations": 8, "triples": 1000}  # twice as many of each in turn
ORDERS, NUMBERED = 2 * 2 * 8, 2 * 8  # bytes of a triple: two orders for each side; the numbers of its two queries
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
    if sizes.train > MOST_DRAWN:  # orders are computed as they are needed
        found["batches"] = found["batches"]._replace(triple=found["batches"].triple - ORDERS)
    if sizes.entities**2 * sizes.relations >= 1 << 63:  # queries are numbered, at most as many as there are triples
        indices = 2 if _held_out(sizes) else 1
        found["graph"] = found["graph"]._replace(triple=found["graph"].triple + indices * NUMBERED)
    return found


def _held_out(sizes: Sizes) -> bool:
    """Whether there are triples to know besides those of train, and so a second index."""
    return sizes.valid + sizes.test > 0


def _probe(recipe: Recipe, sizes: Sizes, doubled: str = "") -> dict[str, int]:
    """What a small trainer holds, with twice as many of one thing."""
    count = {name: number * (2 if name == doubled else 1) for name, number in PROBED.items()}
    width, valid = len(str(sizes.entities)), 1 if _held_out(sizes) else 0
    graph = small_graph(count["entities"], count["relations"], count["triples"], width, valid)
    trainer = build_trainer(shrunk(recipe, PROBE_BATCH, 2), graph, "cpu")
    for _ in range(PROBE_STEPS):
        trainer.step()
    return held(trainer, graph)


def small_graph(entities: int, relations: int, triples: int, width: int = 1, valid: int = 0) -> KnowledgeGraph:
    """Different triples that use all entities and relations alike; labels are decimals of so many digits."""
    number = torch.arange(triples + valid)
    heads, kinds = number % entities, number // entities % relations
    rows = torch.stack([heads, kinds, (heads + number * 7 + kinds + 1) % entities], dim=1)
    entity, relation = (
        Vocabulary(pa.array([f"{one:0{width}}" for one in range(count)], LABELS), kind)
        for count, kind in ((entities, "entity"), (relations, "relation"))
    )
    return KnowledgeGraph("random", entity, relation, rows[:triples], rows[triples:], rows[:0])


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
