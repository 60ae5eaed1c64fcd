"""Negatives by frequency: entities that occur often in the graph, or beside a relation, are drawn often.

Uniform negatives are mostly entities that hardly occur, and easy to tell from an answer. DGL-KE and Marius can draw by
degree, PyKEEN and TorchKGE what occurs in the same place of a relation (pseudo-typed).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from eans.graph import HEAD, RELATION, SIDES, TAIL, KnowledgeGraph, Side, column
from eans.options import Option
from eans.samplers.lists import Lists, ListSampler, offsets

CountedIn = Literal["graph", "place"]
SCALE = 2**16  # weights are whole numbers; powers of counts are rounded to fractions of one


def count_lists(graph: KnowledgeGraph, counted_in: CountedIn, power: float) -> Lists:
    """The entities that occur in training triples, weighed by ``count ** power``.

    ``"graph"``: one list, by how many ends of triples an entity is. ``"place"``: a list for each relation and side, by
    how many of the relation's triples have the entity there; that of relation r and of ``SIDES[i]`` is number
    ``2 r + i``.
    """
    size = graph.num_entities
    if counted_in == "graph":
        keys = torch.cat([graph.train[:, HEAD], graph.train[:, TAIL]])
        number = 1
    else:
        places = [2 * graph.train[:, RELATION] + index for index in range(len(SIDES))]
        ends = [graph.train[:, column(side)] for side in SIDES]
        keys = torch.cat(places) * size + torch.cat(ends)
        number = 2 * graph.num_relations
    found, counts = torch.unique(keys, return_counts=True)
    starts = offsets(torch.bincount(found // size, minlength=number))
    weights = (counts.double().pow(power) * (1 if float(power).is_integer() else SCALE)).round().long()
    return Lists((found % size).int(), starts, offsets(weights))


class Frequency(ListSampler):
    """Entities by how often they occur in training triples: ``P(c) ~ count(c) ** power``, with replacement.

    What does not occur there is not drawn: mix in a `uniform_share` to press it down as well.

    Args:
        graph, negatives, options: see `Sampler`.
        counted_in: ``"graph"``: at either end of any triple, which is the degree of an entity. ``"place"``: at the end
            that is replaced, in triples of the same relation.
        power: of the counts; 1 draws them as the graph has them, 0 all that occur alike.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        negatives: int,
        counted_in: Annotated[
            CountedIn, Option("count entities in all triples, or in the same place of the relation's")
        ] = "graph",
        power: Annotated[float, Option("draw by counts to this power; 0: all that occur alike", ge=0, le=2)] = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(graph, negatives, **options)
        self.counted_in: CountedIn = counted_in
        self.hold(count_lists(graph, counted_in, power))

    def list_of(self, triples: Tensor, side: Side) -> Tensor:
        relations = triples[:, RELATION]
        return 2 * relations + SIDES.index(side) if self.counted_in == "place" else torch.zeros_like(relations)
