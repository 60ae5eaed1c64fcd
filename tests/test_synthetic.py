"""Synthetic graphs: what is planted in them can be found, and what is held out can be learned."""

from __future__ import annotations

import pytest
import torch

from benchmarks.synthetic import FAMILIES, planted_mrr


@pytest.mark.parametrize("family", FAMILIES)
def test_structure_is_worth_more_than_popularity(family: str) -> None:
    planted = FAMILIES[family](400, 8, 6_000, seed=1)
    graph = planted.graph
    assert graph.num_entities == 400
    assert len(graph.known) == sum(map(len, (graph.train, graph.valid, graph.test)))  # all different
    for column in (0, 1, 2):
        of_train = set(graph.train[:, [0, 2] if column != 1 else [1]].flatten().tolist())
        assert set(torch.cat([graph.valid, graph.test])[:, column].tolist()) <= of_train
    hubs = torch.bincount(graph.train[:, 0], minlength=400).sort(descending=True).values
    assert hubs[:40].sum() > 0.3 * len(graph.train)  # a tenth of the entities
    by_structure = planted_mrr(planted)
    shuffled = FAMILIES[family](400, 8, 6_000, seed=2)
    by_chance = planted_mrr(type(planted)(graph, shuffled.plausibility))
    assert by_structure > 3 * by_chance
    assert planted_mrr(FAMILIES[family](400, 8, 6_000, seed=1)) == by_structure
