"""Filtered ranks on a sample of queries by what needs no model, without a score for every entity.

`planted`: by the structure that `benchmarks.planted` has put into a graph. `frequency`: by how many training triples
have the answer with this relation, the baseline ``frequency`` of `eans.baselines`. Both are realistic ranks among all
entities, as `eans.evaluation.rank` finds them: the same triples, the same filter, the same ties.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.planted import Planted
from eans.baselines import Frequency
from eans.evaluation import Metrics
from eans.graph import RELATION, SIDES, KnowledgeGraph, Side, Split, column, opposite


def sample(graph: KnowledgeGraph, split: Split, limit: int) -> Tensor:
    """The triples ``[n, 3]`` that `eans.evaluation.rank` takes for a limit: spread evenly over the split."""
    triples = graph.split(split)
    if not limit or limit >= len(triples):
        return triples
    return triples[torch.linspace(0, len(triples) - 1, limit, dtype=torch.float64).long()]


def planted(structure: Planted, graph: KnowledgeGraph, split: Split = "valid", limit: int = 1000) -> Metrics:
    """Ranks by group, then by popularity: no model is expected to do better, so they say what an MRR is worth."""
    found = []
    for side in SIDES:
        triples = sample(graph, split, limit)
        true = torch.from_numpy(structure.rank(triples[:, column(side)].numpy()))
        known = structure.rank(triples[:, column(opposite(side))].numpy()) % structure.groups
        group = torch.from_numpy(structure.target(known, triples[:, RELATION].numpy(), side))
        assert bool((true % structure.groups == group).all())
        rows, answers = graph.known.answers(triples, side)
        ranks = torch.from_numpy(structure.rank(answers.numpy()))
        # Among the members of the group those come first that are more popular, and of these the known ones are out.
        out = torch.bincount(
            rows[(ranks % structure.groups == group[rows]) & (ranks < true[rows])], minlength=len(true)
        )
        found.append(1 + true // structure.groups - out)
    return Metrics.of(torch.cat(found))


def frequency(graph: KnowledgeGraph, split: Split = "valid", limit: int = 1000) -> Metrics:
    """The metrics of the baseline, of both sides."""
    baseline = Frequency(graph)
    triples = sample(graph, split, limit)
    return Metrics.of(torch.cat([_frequency_ranks(baseline, graph, triples, side) for side in SIDES]))


def _frequency_ranks(baseline: Frequency, graph: KnowledgeGraph, triples: Tensor, side: Side) -> Tensor:
    rows, answers = graph.known.answers(triples, side)
    bounds = torch.searchsorted(rows, torch.arange(len(triples) + 1))
    ranks = torch.empty(len(triples), dtype=torch.float64)
    for row, (relation, true) in enumerate(triples[:, [RELATION, column(side)]].tolist()):
        start, stop = baseline.first[side][relation : relation + 2].tolist()
        entities, counts = baseline.entities[side][start:stop], baseline.counts[side][start:stop]

        def scores(asked: Tensor, entities: Tensor = entities, counts: Tensor = counts) -> Tensor:
            if not len(entities):
                return torch.zeros(len(asked))
            place = torch.searchsorted(entities, asked).clamp_(max=len(entities) - 1)
            return torch.where(entities[place] == asked, counts[place], 0.0)

        score = scores(torch.tensor([true]))
        others = answers[bounds[row] : bounds[row + 1]]
        known = scores(others[others != true])
        never = graph.num_entities - len(entities) if not float(score) else 0  # entities with a score of 0
        greater = (counts > score).sum() - (known > score).sum()
        equal = (counts == score).sum() + never - 1 - (known == score).sum()
        ranks[row] = 1.0 + greater + equal / 2
    return ranks
