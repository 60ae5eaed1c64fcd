"""Baselines that need no model: what a metric is worth is seen beside them.

They score every entity as an answer, from the training triples alone, and are ranked by `eans.evaluation` like a model.
Most of their scores are 0, so that most ranks are decided by how ties count.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from eans.graph import HEAD, RELATION, SIDES, TAIL, KnowledgeGraph, Side, column, opposite
from eans.models.base import Scorer
from eans.relation_patterns import HALF, overlaps_in_train
from eans.triple_index import ragged

LEAST_SHARE = HALF  # of a relation's triples that must imply another one's for it to be a rule
LEAST_COUNT = 2  # of the triples that a rule was right about in train
MOST_RULES = 8  # of a relation: the surest ones
# Numbers of 8 bytes for a query and an entity, at most, while a rule is applied: answers, their rows and places.
PER_ENTITY = 5


class Baseline(ABC):
    """Scores of all entities as answers, as `eans.evaluation` ranks them."""

    @abstractmethod
    def scores(self, triples: Tensor, side: Side, entities: range | None = None) -> Tensor:
        """Scores of a range of entities, or of all, in the place of `side`: int64 ``[B, 3]`` -> float32 ``[B, e]``."""

    def scorer(self, triples: Tensor, side: Side) -> Scorer:
        """As that of a model."""
        return lambda rows, entities: self.scores(triples[rows], side, range(entities.start, entities.stop))


class Frequency(Baseline):
    """An answer scores how many training triples have it with this relation, on this side."""

    def __init__(self, graph: KnowledgeGraph, device: torch.device | str = "cpu") -> None:
        self.num_entities = graph.num_entities
        self.first: dict[Side, Tensor] = {}  # of each relation, where its entities begin: [R + 1]
        self.entities: dict[Side, Tensor] = {}
        self.counts: dict[Side, Tensor] = {}
        for side in SIDES:
            codes = (graph.train[:, RELATION] * graph.num_entities + graph.train[:, column(side)]).numpy()
            codes.sort()  # where it is
            starts = np.flatnonzero(np.diff(codes, prepend=-1))
            found, counts = (torch.from_numpy(part) for part in (codes[starts], np.diff(starts, append=len(codes))))
            bounds = torch.arange(graph.num_relations + 1) * graph.num_entities
            self.first[side] = torch.searchsorted(found, bounds).to(device)
            self.entities[side] = (found % graph.num_entities).to(device)
            self.counts[side] = counts.float().to(device)

    def scores(self, triples: Tensor, side: Side, entities: range | None = None) -> Tensor:
        """See `Baseline`."""
        wanted = range(self.num_entities) if entities is None else entities
        relations, row_of = torch.unique(triples[:, RELATION], return_inverse=True)
        start = self.first[side][relations]
        size = self.first[side][relations + 1] - start
        rows, offset = ragged(size)
        place = start[rows] + offset
        columns = self.entities[side][place] - wanted.start
        here = (columns >= 0) & (columns < len(wanted))
        table = torch.zeros(len(relations), len(wanted), device=triples.device)
        table[rows[here], columns[here]] = self.counts[side][place[here]]
        return table[row_of]


class InverseRule(Baseline):
    """An answer scores how sure the rule is that leads to it: inverse, symmetric or near-duplicate relations in train.

    A rule "(x, b, y) implies (x, a, y)", or (y, a, x), is as sure as the share of the training triples of b for which
    it is true in train.
    """

    def __init__(self, graph: KnowledgeGraph, device: torch.device | str = "cpu") -> None:
        self.num_entities = graph.num_entities
        self.known = graph.known_train.to(device)
        rules: dict[int, list[tuple[float, int, bool]]] = {}
        for found in overlaps_in_train(graph):
            ways = {(found.first, found.second, found.first_share), (found.second, found.first, found.second_share)}
            for premise, implied, sure in ways:
                if sure >= LEAST_SHARE and found.count >= LEAST_COUNT:
                    rules.setdefault(implied, []).append((sure, premise, found.reverse))
        most = max((min(MOST_RULES, len(of_one)) for of_one in rules.values()), default=0)
        # By place of a rule in the order of sureness, for each relation: how sure, the other relation, and whether
        # head and tail change places. A share of 0 is no rule.
        share, body = torch.zeros(most, graph.num_relations), torch.zeros(most, graph.num_relations, dtype=torch.int64)
        reverse = torch.zeros(most, graph.num_relations, dtype=torch.bool)
        for implied, of_one in rules.items():
            for place, rule in enumerate(sorted(of_one, key=lambda rule: (-rule[0], *rule[1:]))[:MOST_RULES]):
                share[place, implied], body[place, implied], reverse[place, implied] = rule
        self.share, self.body, self.reverse = share.to(device), body.to(device), reverse.to(device)

    def scores(self, triples: Tensor, side: Side, entities: range | None = None) -> Tensor:
        """See `Baseline`."""
        wanted = range(self.num_entities) if entities is None else entities
        relation = triples[:, RELATION]
        scores = torch.zeros(len(triples), len(wanted), device=triples.device)
        for share, body, reverse in zip(self.share, self.body, self.reverse, strict=True):
            for exchanged in (False, True):
                asked = torch.nonzero((share[relation] > 0) & (reverse[relation] == exchanged)).flatten()
                queries = triples[asked]
                queries = queries[:, [TAIL, RELATION, HEAD]] if exchanged else queries.clone()
                queries[:, RELATION] = body[relation[asked]]
                rows, answers = self.known.answers(queries, opposite(side) if exchanged else side)
                here = (answers >= wanted.start) & (answers < wanted.stop)
                rows, answers = asked[rows[here]], answers[here] - wanted.start
                scores.view(-1).scatter_reduce_(0, rows * len(wanted) + answers, share[relation[rows]], "amax")
        return scores


BASELINES: dict[str, Callable[[KnowledgeGraph, torch.device | str], Baseline]] = {
    "frequency": Frequency,
    "inverse-rule": InverseRule,
}
