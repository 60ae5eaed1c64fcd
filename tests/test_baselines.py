"""Baselines and relation patterns against counting by hand over Python sets; what runs and commands say of them."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import eans
from eans import relation_patterns
from eans.baselines import BASELINES, LEAST_COUNT, LEAST_SHARE, MOST_RULES, Frequency, InverseRule
from eans.evaluation import DEGREES, TIES, Metrics, baselines, rank
from eans.graph import SIDES, KnowledgeGraph, Side, column
from eans.models import DistMult
from eans.relation_patterns import overlaps
from helpers_graphs import random_graph
from helpers_runs import eans as command
from helpers_runs import ring_graph

Triple = tuple[int, int, int]
GRAPHS = st.builds(
    random_graph,
    entities=st.integers(1, 7),
    relations=st.integers(1, 4),
    sizes=st.tuples(st.integers(1, 40), st.integers(0, 4), st.integers(1, 8)),
    seed=st.integers(0, 10_000),
)


def replaced(triple: Triple, side: Side, entity: int) -> Triple:
    head, relation, tail = triple
    return (entity, relation, tail) if side == "head" else (head, relation, entity)


def frequency(graph: KnowledgeGraph, triple: Triple, side: Side) -> float:
    return sum(row[1] == triple[1] and row[column(side)] == triple[column(side)] for row in graph.train.tolist())


def inverse_rule(graph: KnowledgeGraph, triple: Triple, side: Side) -> float:
    """The surest of the rules that hold in train and lead to the triple, the same for both sides."""
    del side
    train = {tuple(row) for row in graph.train.tolist()}
    head, relation, tail = triple
    best = 0.0
    for body, reverse in product(range(graph.num_relations), (False, True)):
        if body == relation and not reverse:
            continue
        pairs = {(h, t) for h, r, t in train if r == body and not (reverse and h == t)}
        implied = {(t, relation, h) if reverse else (h, relation, t) for h, t in pairs}
        right = len(implied & train)
        fires = (tail, body, head) if reverse else (head, body, tail)
        if pairs and right >= LEAST_COUNT and right / len(pairs) >= LEAST_SHARE and fires in train:
            best = max(best, right / len(pairs))
    return best


BRUTE = {"frequency": frequency, "inverse-rule": inverse_rule}


@pytest.mark.parametrize("name", BASELINES)
@given(graph=GRAPHS)
def test_scores_against_brute_force(name: str, graph: KnowledgeGraph) -> None:
    assert 2 * graph.num_relations <= MOST_RULES
    baseline = BASELINES[name](graph, "cpu")
    for side in SIDES:
        expected = [
            [BRUTE[name](graph, replaced(tuple(row), side, entity), side) for entity in range(graph.num_entities)]
            for row in graph.test.tolist()
        ]
        assert torch.equal(baseline.scores(graph.test, side), torch.tensor(expected, dtype=torch.float32))


@pytest.mark.parametrize("ties", TIES)
@given(graph=GRAPHS)
def test_metrics_against_brute_force(ties: eans.evaluation.Ties, graph: KnowledgeGraph) -> None:
    """Filtered ranks of the scores, counted one candidate at a time."""
    found = baselines(graph, "test", ties=ties)
    known = {tuple(row) for split in ("train", "valid", "test") for row in graph.split(split).tolist()}
    share = {"optimistic": 0.0, "realistic": 0.5, "pessimistic": 1.0}[ties]
    assert set(found) == set(BRUTE)
    for name, score in BRUTE.items():
        ranks: dict[Side, list[float]] = {side: [] for side in SIDES}
        for side, row in product(SIDES, graph.test.tolist()):
            truth = torch.tensor(score(graph, tuple(row), side), dtype=torch.float32)
            others = [replaced(tuple(row), side, entity) for entity in range(graph.num_entities)]
            scores = torch.tensor([score(graph, other, side) for other in others if other not in known])
            ranks[side].append(1 + int((scores > truth).sum()) + share * int((scores == truth).sum()))
        for side in SIDES:
            assert found[name][side] == Metrics.of(torch.tensor(ranks[side])).to_dict()
        assert found[name]["both"] == Metrics.of(torch.tensor([*ranks["head"], *ranks["tail"]])).to_dict()


def test_an_answer_is_copied_from_the_inverse() -> None:
    train = [(f"a{i}", "owns", f"b{i}") for i in range(9)] + [(f"b{i}", "owned_by", f"a{i}") for i in range(10)]
    graph = KnowledgeGraph.from_labels(train, test=[("a9", "owns", "b9")])
    found = baselines(graph)
    assert found["inverse-rule"]["both"]["mrr"] == 1.0
    assert found["frequency"]["both"]["mrr"] < 0.2
    without = KnowledgeGraph.from_labels(train[:-1], test=[("a8", "owned_by", "b8")])
    assert baselines(without)["inverse-rule"]["both"]["mrr"] < 0.2


def test_a_symmetric_relation_implies_its_reverse() -> None:
    train = [("a", "near", "b"), ("b", "near", "a"), ("c", "near", "d"), ("d", "near", "c"), ("e", "near", "f")]
    graph = KnowledgeGraph.from_labels(train, test=[("f", "near", "e")])
    assert baselines(graph)["inverse-rule"]["both"]["mrr"] == 1.0


def test_at_most_so_many_rules_are_applied() -> None:
    """The surest ones: a relation with more duplicates than that."""
    pairs = [(f"a{i}", f"b{i}") for i in range(4)]
    copies = [(h, f"copy{number}", t) for number in range(2 * MOST_RULES) for h, t in pairs]
    graph = KnowledgeGraph.from_labels([*[(h, "is", t) for h, t in pairs[:3]], *copies], test=[("a3", "is", "b3")])
    rule = InverseRule(graph)
    assert len(rule.share) == MOST_RULES
    assert baselines(graph)["inverse-rule"]["both"]["mrr"] == 1.0
    relation = graph.relations.id("copy0")
    assert rule.share[:, relation].tolist() == [1.0] * MOST_RULES  # the other copies, not "is", which is as sure


def test_training_triples_that_repeat_count_again() -> None:
    graph = KnowledgeGraph.from_labels([("a", "r", "b"), ("a", "r", "b"), ("c", "r", "d")], test=[("c", "r", "b")])
    assert Frequency(graph).scores(graph.test, "tail").tolist() == [[0.0, 2.0, 0.0, 1.0]]


def test_blocks_do_not_matter(make_graph) -> None:
    graph, same = make_graph(sizes=(60, 5, 40)), make_graph(sizes=(60, 5, 40))
    assert baselines(graph, memory=0) == baselines(same)


def test_a_sample_is_ranked(make_graph) -> None:
    graph = make_graph(sizes=(60, 5, 40))
    one = baselines(graph, limit=1)
    assert one != baselines(graph)
    assert one == baselines(graph, limit=1)


# --- relation patterns --------------------------------------------------------------------------------------------


def brute_overlaps(graph: KnowledgeGraph, least: float) -> set[tuple[int, int, bool, int, int, int]]:
    pairs: dict[int, set[tuple[int, int]]] = {relation: set() for relation in range(graph.num_relations)}
    for head, relation, tail in graph.train.tolist():
        pairs[relation].add((head, tail))
    found = set()
    for first, second, reverse in product(pairs, pairs, (False, True)):
        if first > second or (first == second and not reverse):
            continue
        one, two = ({pair for pair in pairs[r] if not reverse or pair[0] != pair[1]} for r in (first, second))
        count = len(one & ({(t, h) for h, t in two} if reverse else two))
        if count and max(count / len(one), count / len(two)) >= least:
            found.add((first, second, reverse, count, len(one), len(two)))
    return found


@given(graph=GRAPHS, least=st.sampled_from([0.01, 0.3, 0.5, 1.0]), block=st.sampled_from([1, 3, 1 << 22]))
def test_overlaps_against_brute_force(graph: KnowledgeGraph, least: float, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relation_patterns, "BLOCK", block)
        found = overlaps(graph.train, graph.num_entities, graph.num_relations, least)
    rows = [(o.first, o.second, o.reverse, o.count, o.first_size, o.second_size) for o in found]
    assert len(rows) == len(set(rows))
    assert set(rows) == brute_overlaps(graph, least)
    shares = [o.mutual_share for o in found]
    assert shares == sorted(shares, reverse=True)
    for o in found:
        assert o.pattern == ("symmetric" if o.first == o.second else "inverse" if o.reverse else "near-duplicate")


def test_no_triples_do_not_overlap() -> None:
    assert overlaps(torch.empty(0, 3, dtype=torch.int64), 5, 2) == []


def test_pairs_with_very_many_relations_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = [("a", f"r{i}", "b") for i in range(6)]
    graph = KnowledgeGraph.from_labels([*everything, ("c", "r0", "d"), ("c", "r1", "d")])
    assert len(overlaps(graph.train, 4, 6)) == 15
    monkeypatch.setattr(relation_patterns, "MOST_RELATIONS", 5)
    assert [(o.first, o.second, o.count) for o in overlaps(graph.train, 4, 6, 0.5)] == [(0, 1, 1)]


# --- by degree, and where it is shown ------------------------------------------------------------------------------


def test_metrics_by_degree_against_brute_force(make_graph) -> None:
    graph = make_graph(40, 3, (300, 0, 60), seed=5)
    model = DistMult(40, 3, 4)
    ranks = rank(model, graph)
    expected: dict[int, list[float]] = {}
    for side in SIDES:
        for row, place in zip(ranks.triples.tolist(), ranks.ranks(side).tolist(), strict=True):
            answer = row[column(side)]
            degree = sum((h == answer) + (t == answer) for h, _, t in graph.train.tolist())
            expected.setdefault(max(start for start in DEGREES if start <= degree), []).append(place)
    found = ranks.metrics()["by_degree"]
    assert [group["least"] for group in found] == sorted(expected)
    for group in found:
        places = expected[group["least"]]
        assert group["queries"] == len(places)
        assert group["mrr"] == pytest.approx(sum(1 / place for place in places) / len(places))
        assert group["most"] == {0: 0, 1: 3, 4: 15, 16: 63}[group["least"]]


def test_a_run_keeps_and_shows_its_baselines(tmp_path: Path) -> None:
    graph = ring_graph()
    settings = {"dim": 4, "steps": 3, "negatives": 2, "progress": False}
    run = eans.train(graph, "transe", "uniform", out=tmp_path / "run", device="cpu", **settings)
    stored = json.loads((tmp_path / "run" / "metrics.json").read_text())
    for split in ("valid", "test"):
        assert stored[split]["baselines"] == run.metrics[split]["baselines"] == baselines(graph, split)
        assert sum(group["queries"] for group in stored[split]["by_degree"]) == 2 * len(graph.split(split))
    lines = command("evaluate", tmp_path / "run").stdout.splitlines()
    (line,) = [line.split() for line in lines if "frequency" in line]
    assert float(line[3]) == pytest.approx(stored["test"]["baselines"]["frequency"]["both"]["mrr"], abs=5e-5)
    assert any(line.startswith("test MRR by training triples of the answer: 4-15: 0.") for line in lines)
