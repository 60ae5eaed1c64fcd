"""Negatives by frequency: counts by hand, probabilities against brute force, and what is drawn."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from eans.graph import SIDES, KnowledgeGraph, Side, Vocabulary, column
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.samplers import Frequency
from eans.samplers.frequency import count_lists

E, R = 9, 3


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def graph_of(rows: list[tuple[int, int, int]], entities: int = E, relations: int = R) -> KnowledgeGraph:
    """Entities and relations that no triple has are there as well."""
    names = Vocabulary(f"e{i}" for i in range(entities)), Vocabulary(f"r{i}" for i in range(relations))
    nothing = torch.empty(0, 3, dtype=torch.int64)
    return KnowledgeGraph("graph", *names, torch.tensor(rows), nothing, nothing)


def brute_shares(graph: KnowledgeGraph, triple: list[int], side: Side, counted_in: str, power: float) -> list[float]:
    """``P(c)`` of every entity as candidate for the side of a triple."""
    rows = graph.train.tolist()
    if counted_in == "graph":
        counts = Counter(end for head, _, tail in rows for end in (head, tail))
    else:
        counts = Counter(row[column(side)] for row in rows if row[1] == triple[1])
    weights = [counts[entity] ** power if counts[entity] else 0.0 for entity in range(graph.num_entities)]
    return [weight / sum(weights) for weight in weights]


triples = st.lists(
    st.tuples(st.integers(0, E - 1), st.integers(0, R - 1), st.integers(0, E - 1)), min_size=1, max_size=20, unique=True
)
ways = st.tuples(st.sampled_from(["graph", "place"]), st.sampled_from([1.0, 0.0, 0.5, 0.75, 2.0]))


def test_counts_by_hand() -> None:
    graph = graph_of([(0, 0, 1), (0, 0, 2), (3, 0, 2), (0, 2, 0)])
    lists = count_lists(graph, "graph", 1.0)
    assert lists.ids.tolist() == [0, 1, 2, 3]
    assert lists.starts.tolist() == [0, 4]
    assert lists.sums is not None
    assert lists.sums.diff().tolist() == [4, 1, 2, 1]  # a loop has two ends
    whole = count_lists(graph, "graph", 1)  # an int does as well
    assert whole.sums is not None
    assert torch.equal(whole.sums, lists.sums)
    lists = count_lists(graph, "place", 1.0)
    assert lists.sums is not None
    runs = list(zip(lists.starts.tolist(), lists.starts.tolist()[1:], strict=False))
    found = [dict(zip(lists.ids[a:b].tolist(), lists.sums.diff()[a:b].tolist(), strict=True)) for a, b in runs]
    heads, tails = [{0: 2, 3: 1}, {}, {0: 1}], [{1: 1, 2: 2}, {}, {0: 1}]
    order = {"head": heads, "tail": tails}
    assert found == [order[side][relation] for relation in range(R) for side in SIDES]


@given(triples, ways)
def test_probabilities_against_brute_force(rows: list[tuple[int, int, int]], way: tuple[str, float]) -> None:
    graph = graph_of(rows)
    counted_in, power = way
    sampler = Frequency(graph, 4, counted_in=counted_in, power=power)  # type: ignore[arg-type]
    everything = torch.arange(E).expand(len(graph.train), -1)
    for side in SIDES:
        shares = sampler.log_density(graph.train, side, everything).exp().tolist()
        for triple, row in zip(graph.train.tolist(), shares, strict=True):
            assert row == pytest.approx(brute_shares(graph, triple, side, counted_in, power), rel=1e-4)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("power", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("counted_in", ["graph", "place"])
def test_draws_follow_the_probabilities(counted_in: str, power: float, side: Side, make_graph) -> None:
    graph = make_graph(12)
    rows, draws = graph.train[:3], 40_000
    sampler = Frequency(graph, draws, counted_in=counted_in, power=power)  # type: ignore[arg-type]
    drawn = sampler.draw(rows, side, seeded())
    found = torch.stack([row.bincount(minlength=12) for row in drawn]) / draws
    expected = torch.tensor([brute_shares(graph, triple, side, counted_in, power) for triple in rows.tolist()])
    torch.testing.assert_close(found, expected, rtol=0, atol=0.01)
    assert set(drawn[0].tolist()) == {entity for entity, share in enumerate(expected[0].tolist()) if share}


def test_a_place_that_nobody_was_seen_in_has_all_entities() -> None:
    graph = graph_of([(0, 0, 1), (2, 2, 3)])
    asked = torch.tensor([[0, 1, 1], [2, 2, 3]])
    sampler = Frequency(graph, 500, counted_in="place")
    drawn = sampler.draw(asked, "tail", seeded())
    assert set(drawn[0].tolist()) == set(range(E))
    assert set(drawn[1].tolist()) == {3}
    shares = sampler.log_density(asked, "tail", torch.arange(E).expand(2, -1)).exp()
    assert shares[0].tolist() == pytest.approx([1 / E] * E)
    assert shares[1].tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0]


def test_every_one_of_very_many_ends_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two neighbouring numbers of float32 there are thousands of ends, when there are 2 ** 36."""
    sampler = Frequency(graph_of([(0, 0, 1)]), 1)
    sampler.sums = torch.tensor([0, 2**36 - 3, 2**36])  # the last three ends are entity 1
    lot = 1.0 - 1.5 / 2**36
    monkeypatch.setattr(torch, "rand", lambda shape, dtype=torch.float32, **_: torch.full(shape, lot, dtype=dtype))
    assert sampler.draw(torch.tensor([[0, 0, 1]]), "tail", seeded()).tolist() == [[1]]
    lot = 1.0 - 4.5 / 2**36  # float32 has no such number: it would be 1
    assert sampler.draw(torch.tensor([[0, 0, 1]]), "tail", seeded()).tolist() == [[0]]


@pytest.mark.parametrize("counted_in", ["graph", "place"])
def test_memory_is_not_in_the_checkpoint(counted_in: str) -> None:
    graph = graph_of([(0, 0, 1), (0, 0, 2), (3, 0, 2), (0, 2, 0)])
    trainer = build_trainer(
        resolve(load("default/transe/frequency", [f"sampler.counted_in={counted_in}", "train.batch_size=2"]), graph),
        graph,
    )
    trainer.step()
    candidates, lists = {"graph": (4, 1), "place": (6, 2 * R)}[counted_in]
    assert trainer.sampler.memory() == 12 * candidates + 8 + 8 * (lists + 1)
    assert not trainer.sampler.state_dict()
