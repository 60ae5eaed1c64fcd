"""Ranks and metrics against pure-Python loops on graphs full of ties; the protocol, bad scores, and bounded memory."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from eans import kernels
from eans._version import __version__
from eans.errors import RunError, UsageError
from eans.evaluation import (
    CATEGORIES,
    HITS,
    TIES,
    Metrics,
    Ranks,
    baselines,
    evaluate,
    protocol,
    rank,
    relation_categories,
)
from eans.graph import SIDES, KnowledgeGraph, Side, Vocabulary, column
from eans.kernels import blocks
from eans.models import MODELS, DistMult, Model
from eans.ranking import bytes_per_query

ALL_METRICS = {"mr", "mrr", "hits@1", "hits@3", "hits@10"}


class Stub(DistMult):
    """Scores read from a table ``[R, E, E]``, whatever the parameters are."""

    def __init__(self, table: Tensor) -> None:
        super().__init__(table.shape[1], table.shape[0], 1)
        self.table = table

    def compare_all(self, triples: Tensor, side: Side) -> Tensor:
        h, r, t = triples.T
        return (self.table[r, h] if side == "tail" else self.table[r, :, t]).clone()


def integers(name: str, graph: KnowledgeGraph, seed: int = 0, high: int = 2) -> Model:
    """A model with small whole numbers in its tables: scores are exact, and many tie."""
    model = MODELS[name](graph.num_entities, graph.num_relations, 2)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for table in (model.entity, model.relation):
            table.copy_(torch.randint(-high, high + 1, table.shape, generator=generator))
    return model


def brute_counts(model: Model, graph: KnowledgeGraph, triples: Tensor, side: Side) -> list[tuple[int, int]]:
    """(candidates above, candidates level) for each triple, known ones left out, one score at a time."""
    known = {tuple(row) for split in (graph.train, graph.valid, graph.test) for row in split.tolist()}
    counts = []
    for row in triples.tolist():
        truth = model.score(torch.tensor([row])).item()
        above = level = 0
        for entity in range(graph.num_entities):
            other = list(row)
            other[column(side)] = entity
            if tuple(other) in known:
                continue
            score = model.score(torch.tensor([other])).item()
            above += score > truth
            level += score == truth
        counts.append((above, level))
    return counts


def brute_metrics(ranks: list[float]) -> dict[str, float]:
    n = len(ranks)
    result = {"mr": sum(ranks) / n, "mrr": sum(1 / rank for rank in ranks) / n}
    return result | {f"hits@{k}": sum(rank <= k for rank in ranks) / n for k in (1, 3, 10)}


def close(actual: dict[str, Any], expected: dict[str, Any]) -> bool:
    return actual == {key: pytest.approx(value, rel=1e-12) for key, value in expected.items()}


@pytest.fixture
def tied(make_graph):
    """A graph with unseen entities, and a model with many equal scores."""
    graph = make_graph(25, 4, (14, 6, 30), seed=2)
    assert graph.unseen_entities() > 0
    return graph, integers("distmult", graph)


# --- ranks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["distmult", "transe", "complex", "transd", "rescal", "transr"])
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_counts_against_brute_force(name, split, make_graph):
    graph = make_graph(15, 3, (40, 12, 12), seed=1)
    model = integers(name, graph)
    ranks = rank(model, graph, split)
    assert torch.equal(ranks.triples, graph.split(split))
    for side in SIDES:
        pairs = list(zip(ranks.greater[side].tolist(), ranks.equal[side].tolist(), strict=True))
        assert pairs == brute_counts(model, graph, graph.split(split), side)
        assert sum(level for _, level in pairs) > 0


@given(seed=st.integers(0, 10_000), entities=st.integers(1, 8), relations=st.integers(1, 3))
def test_counts_on_any_small_graph(seed, entities, relations):
    generator = torch.Generator().manual_seed(seed)

    def triples(size: int) -> Tensor:
        ends = torch.randint(entities, (size, 2), generator=generator)
        return torch.stack([ends[:, 0], torch.randint(relations, (size,), generator=generator), ends[:, 1]], 1)

    names = Vocabulary(map(str, range(entities))), Vocabulary(map(str, range(relations)), "relation")
    graph = KnowledgeGraph("any", *names, triples(6), triples(2), triples(5))
    model = integers("distmult", graph, seed, high=1)
    ranks = rank(model, graph)
    for side in SIDES:
        pairs = list(zip(ranks.greater[side].tolist(), ranks.equal[side].tolist(), strict=True))
        assert pairs == brute_counts(model, graph, graph.test, side)


@pytest.mark.parametrize("ties", TIES)
def test_all_metrics_against_brute_force(ties, tied):
    graph, model = tied
    share = {"optimistic": 0.0, "realistic": 0.5, "pessimistic": 1.0}[ties]
    by_side = {
        side: [1 + above + share * level for above, level in brute_counts(model, graph, graph.test, side)]
        for side in SIDES
    }
    result = rank(model, graph).metrics(ties)
    assert result["triples"] == 30
    assert close(result["both"], brute_metrics(by_side["head"] + by_side["tail"]))
    for side in SIDES:
        assert close(result[side], brute_metrics(by_side[side]))

    relations = graph.test[:, 1].tolist()
    assert set(result["by_relation"]) == {f"r{relation}" for relation in relations}
    for label, metrics in result["by_relation"].items():
        rows = [i for i, relation in enumerate(relations) if f"r{relation}" == label]
        expected = brute_metrics([by_side[side][i] for side in SIDES for i in rows])
        assert close(metrics, {"triples": len(rows)} | expected)

    kinds = [brute_category(graph, relation) for relation in range(4)]
    assert set(result["by_category"]) == {kinds[relation] for relation in relations}
    for kind, metrics in result["by_category"].items():
        rows = [i for i, relation in enumerate(relations) if kinds[relation] == kind]
        assert metrics["triples"] == len(rows)
        for side in SIDES:
            assert close(metrics[side], brute_metrics([by_side[side][i] for i in rows]))
        assert close(metrics["both"], brute_metrics([by_side[side][i] for side in SIDES for i in rows]))
    json.dumps(result)


def test_tie_policies_by_hand():
    one = torch.tensor([0, 2, 0])
    ranks = Ranks(None, "test", torch.zeros(3, 3), {"head": one, "tail": one}, {"head": torch.tensor([0, 3, 1])})
    assert ranks.ranks("head", "optimistic").tolist() == [1.0, 3.0, 1.0]
    assert ranks.ranks("head").tolist() == [1.0, 4.5, 1.5]
    assert ranks.ranks("head", "pessimistic").tolist() == [1.0, 6.0, 2.0]


def test_metrics_by_hand():
    metrics = Metrics.of(torch.tensor([1.0, 2.0, 4.0, 20.0], dtype=torch.float64))
    assert (metrics.count, metrics.mr, metrics.mrr) == (4, 6.75, (1 + 0.5 + 0.25 + 0.05) / 4)
    assert metrics.hits == {1: 0.25, 3: 0.5, 10: 0.75}
    assert metrics.to_dict().keys() == ALL_METRICS
    empty = Metrics.of(torch.empty(0, dtype=torch.float64))
    assert empty.count == 0
    assert set(empty.to_dict().values()) == {0.0}
    assert HITS == (1, 3, 10)


def test_a_constant_model_is_in_the_middle(make_graph):
    """All candidates tie: best place 1, worst place last, realistic the mean of both."""
    graph = make_graph(9, 2, (20, 0, 8))
    ranks = rank(Stub(torch.zeros(2, 9, 9)), graph)
    for side in SIDES:
        left = 9 - graph.known.count(graph.test, side)
        assert ranks.ranks(side, "optimistic").tolist() == [1.0] * 8
        assert torch.equal(ranks.ranks(side, "pessimistic"), 1.0 + left.double())
        assert torch.equal(ranks.ranks(side, "realistic"), 1.0 + left.double() / 2)


def test_perfect_and_worst_model(make_graph):
    """Perfect: known triples score 1, others 0. Worst: the other way round."""
    graph = make_graph(12, 2, (30, 5, 10))
    table = torch.zeros(2, 12, 12)
    for split in (graph.train, graph.valid, graph.test):
        table[split[:, 1], split[:, 0], split[:, 2]] = 1.0
    best = rank(Stub(table), graph).metrics("pessimistic")
    assert best["both"] == {"mr": 1.0, "mrr": 1.0, "hits@1": 1.0, "hits@3": 1.0, "hits@10": 1.0}
    worst = rank(Stub(-table), graph)
    for side in SIDES:
        assert torch.equal(worst.ranks(side, "optimistic"), 13.0 - graph.known.count(graph.test, side).double())


@pytest.mark.parametrize("extreme", [float("inf"), -float("inf")])
def test_infinite_scores_are_ranked(extreme):
    graph = KnowledgeGraph.from_labels([("a", "r", "b")], test=[("a", "r", "c")])
    table = torch.zeros(1, 3, 3)
    table[0, 0, 0] = extreme
    assert rank(Stub(table), graph).ranks("tail", "optimistic").tolist() == [2.0 if extreme > 0 else 1.0]


def test_other_answers_are_filtered_from_every_split():
    graph = KnowledgeGraph.from_labels(
        [("a", "r", "b"), ("x", "r", "y")], valid=[("a", "r", "c")], test=[("a", "r", "d"), ("a", "r", "e")]
    )
    ids = graph.entities.ids
    table = torch.zeros(1, len(ids), len(ids))
    for score, label in enumerate("abcexyd"):  # d is last but for the filter: a, x and y beat it
        table[0, ids["a"], ids[label]] = -score
    ranks = rank(Stub(table), graph)
    assert ranks.greater["tail"].tolist() == [3, 1]  # for e only a is above


def test_unseen_entities_stay():
    """An entity that train never saw is a candidate and may be the answer."""
    graph = KnowledgeGraph.from_labels([("a", "r", "b")], test=[("a", "r", "new"), ("a", "r", "a")])
    table = torch.zeros(1, 3, 3)
    table[0, 0] = torch.tensor([0.0, 1.0, 2.0])
    ranks = rank(Stub(table), graph)
    assert len(ranks.triples) == 2
    assert ranks.greater["tail"].tolist() == [0, 0]  # the first: nobody is above; the second: `new` is filtered
    graph = KnowledgeGraph.from_labels([("a", "r", "b")], valid=[("b", "r", "new")], test=[("a", "r", "a")])
    assert rank(Stub(table), graph).greater["tail"].tolist() == [1]


# --- arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1, 3, 29, 1000])
def test_blocks_do_not_matter(rows, tied):
    graph, model = tied
    expected, actual = rank(model, graph), rank(model, graph, memory=rows * bytes_per_query(model))
    for side in SIDES:
        assert torch.equal(actual.greater[side], expected.greater[side])
        assert torch.equal(actual.equal[side], expected.equal[side])


@pytest.mark.parametrize("limit", [1, 2, 7, 29, 30, 31, 1000])
def test_limit_spreads_over_the_split(limit, tied):
    graph, model = tied
    whole, part = rank(model, graph), rank(model, graph, limit=limit)
    n = min(limit, 30)
    rows = list(range(30)) if n == 30 else [int(i * 29 / max(1, n - 1)) for i in range(n)]
    assert torch.equal(part.triples, graph.test[rows])
    for side in SIDES:
        assert torch.equal(part.greater[side], whole.greater[side][rows])


@pytest.mark.parametrize(("size", "limit"), [(1000, 999), (20_466, 20_465), (50_000, 7)])
def test_limit_takes_different_triples(size, limit):
    """Each triple of the split has its own relation."""
    test = torch.zeros(size, 3, dtype=torch.int64)
    test[:, 1] = torch.arange(size)
    graph = KnowledgeGraph("long", Vocabulary("a"), Vocabulary(map(str, range(size))), test[:1], test[:0], test)
    chosen = rank(DistMult(1, size, 1), graph, limit=limit).triples[:, 1]
    assert len(chosen.unique()) == limit
    assert (chosen[0], chosen[-1]) == (0, size - 1)


def test_limit_in_a_split_beyond_single_precision():
    """2 ** 24 + 3 is no float32."""
    triples = torch.zeros(1, 3, dtype=torch.int64).expand(2**24 + 4, 3)
    one = KnowledgeGraph.from_labels([("a", "r", "a")])
    graph = replace(one, test=triples)
    vars(graph)["known"] = one.known  # what takes long to make
    assert len(rank(DistMult(1, 1, 1), graph, limit=10).triples) == 10


def test_progress_counts_queries(tied):
    graph, model = tied
    calls: list[tuple[int, int]] = []
    rank(model, graph, memory=8 * bytes_per_query(model), progress=lambda done, total: calls.append((done, total)))
    assert [done for done, _ in calls] == [8, 16, 24, 30, 38, 46, 54, 60]
    assert {total for _, total in calls} == {60}


def test_unknown_split(tied):
    graph, model = tied
    with pytest.raises(UsageError, match="did you mean 'valid'"):
        rank(model, graph, "vaild")


@pytest.mark.parametrize("where", [(0, 1), (0, 2)], ids=["truth", "other"])
def test_nan_is_an_error(where):
    graph = KnowledgeGraph.from_labels([("a", "r", "b")], test=[("a", "r", "b"), ("b", "r", "c")])
    table = torch.zeros(1, 3, 3)
    table[0][where] = torch.nan
    with pytest.raises(RunError, match="NaN"):
        rank(Stub(table), graph)


def test_nan_parameters_are_an_error(tied):
    graph, model = tied
    with torch.no_grad():
        model.entity[3, 0] = torch.nan
    with pytest.raises(RunError, match="NaN"):
        evaluate(model, graph)


def test_ranking_changes_neither_model_nor_graph(tied):
    graph, model = tied
    before = model.entity.detach().clone(), model.relation.detach().clone(), graph.test.clone()
    rank(model, graph)
    assert all(torch.equal(a, b) for a, b in zip(before, (model.entity, model.relation, graph.test), strict=True))
    assert model.entity.grad is None


# --- categories ---------------------------------------------------------------------------------------------------


def brute_category(graph: KnowledgeGraph, relation: int) -> str:
    pairs = {(h, t) for h, r, t in graph.train.tolist() if r == relation}
    if not pairs:
        return "unseen"
    tails_per_head = len(pairs) / len({h for h, _ in pairs})
    heads_per_tail = len(pairs) / len({t for _, t in pairs})
    return f"{'N' if heads_per_tail >= 1.5 else '1'}-{'N' if tails_per_head >= 1.5 else '1'}"


def test_categories_by_hand():
    edges = {
        "capital": [("a", "b"), ("c", "d"), ("a", "b")],
        "has": [("a", "b"), ("a", "c"), ("d", "e")],  # 1.5 tails per head
        "in": [("b", "a"), ("c", "a"), ("d", "a")],
        "near": [("a", "b"), ("a", "c"), ("b", "b"), ("b", "c")],
    }
    train = [(h, relation, t) for relation, pairs in edges.items() for h, t in pairs]
    graph = KnowledgeGraph.from_labels(train, test=[("a", "never", "b")])
    assert [CATEGORIES[i] for i in relation_categories(graph).tolist()] == ["1-1", "1-N", "N-1", "N-N", "unseen"]


@pytest.mark.parametrize("seed", range(4))
def test_categories_against_brute_force(seed, make_graph):
    graph = make_graph(12, 8, (40, 0, 5), seed=seed)
    assert [CATEGORIES[i] for i in relation_categories(graph).tolist()] == [brute_category(graph, r) for r in range(8)]


# --- evaluate -----------------------------------------------------------------------------------------------------


def test_evaluate_reports_splits_and_protocol(tied):
    graph, model = tied
    result = evaluate(model, graph, ties="pessimistic", limit=20)
    assert set(result) == {"valid", "test", "protocol"}
    found = baselines(graph, ties="pessimistic", limit=20)
    assert result["test"] == rank(model, graph, limit=20).metrics("pessimistic") | {"baselines": found}
    assert result["protocol"] == protocol(graph, "pessimistic", 20)
    assert result["protocol"]["split_sha256"] == graph.sha256
    assert result["protocol"]["candidates"] == "all 25 entities"
    assert result["protocol"]["filtered_against"] == ["train", "valid", "test"]
    assert result["protocol"]["triples"] == "at most 20 per split"
    assert result["protocol"]["unseen_entities"] == f"kept ({graph.unseen_entities()} never occur in train)"
    assert result["protocol"]["eans_version"] == __version__
    assert protocol(graph)["triples"] == "all"
    json.dumps(result)


def test_evaluate_leaves_out_empty_splits(make_graph):
    graph = make_graph(sizes=(20, 0, 5))
    assert set(evaluate(integers("distmult", graph), graph)) == {"test", "protocol"}


# --- memory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("entities", "dim", "test"), [(20_000, 4, 64), (300, 256, 500)], ids=["many", "wide"])
def test_memory_stays_under_the_bound(name, entities, dim, test, meter, make_graph, monkeypatch):
    """All at once would take at least twice the bound of 2 MB, be it the scores or the queries."""
    monkeypatch.setitem(blocks.BLOCK_ELEMENTS, "cpu", 1 << 13)  # a kernel's own block comes on top
    graph = make_graph(entities, 3, (500, 0, test))
    model = MODELS[name](entities, 3, dim)
    memory = 2_000_000
    assert test * bytes_per_query(model) > 2 * memory
    assert graph.known is not None  # the index is the graph's, not the ranking's
    with meter:
        rank(model, graph, memory=memory)
    assert memory / 4 < meter.peak <= memory


@pytest.mark.parametrize("choice", ["auto", "reference"])
def test_memory_stays_under_the_bound_where_queries_have_many_answers(choice, meter, monkeypatch):
    """Half of all entities answer the one query that test asks again and again."""
    monkeypatch.setattr(kernels.switch, "_choice", choice)
    monkeypatch.setitem(blocks.BLOCK_ELEMENTS, "cpu", 1 << 13)
    entities, memory = 20_000, 2_000_000
    zeros = torch.zeros(10_000, dtype=torch.int64)
    train = torch.stack([zeros, zeros, torch.arange(10_000)], 1)
    test = torch.stack([zeros[:50], zeros[:50], torch.arange(10_000, 10_050)], 1)
    names = Vocabulary(map(str, range(entities))), Vocabulary("r", "relation")
    graph = KnowledgeGraph("star", *names, train, train[:0], test)
    model = MODELS["distmult"](entities, 1, 4)
    assert graph.known is not None
    with meter:
        rank(model, graph, memory=memory)
    assert meter.peak <= memory
