"""Bernoulli negatives: the probabilities of the sides against counting by hand, and what they do to a step."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from eans.graph import SIDES, KnowledgeGraph
from eans.objective import total
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.samplers import Bernoulli, Uniform
from eans.samplers.bernoulli import head_probabilities

Triples = list[tuple[int, int, int]]


def counted(triples: Triples, relation: int) -> float:
    """``tph / (tph + hpt)`` as the definition says it, over distinct triples."""
    tails, heads = defaultdict(set), defaultdict(set)
    for head, r, tail in triples:
        if r == relation:
            tails[head].add(tail)
            heads[tail].add(head)
    if not tails:
        return 0.5
    tph = sum(map(len, tails.values())) / len(tails)
    hpt = sum(map(len, heads.values())) / len(heads)
    return tph / (tph + hpt)


@given(st.lists(st.tuples(*(st.integers(0, n) for n in (5, 2, 5))), min_size=1, max_size=40))
def test_probabilities_are_those_of_the_definition(triples: Triples) -> None:
    found = head_probabilities(torch.tensor(triples), 4)
    assert found.tolist() == pytest.approx([counted(triples, relation) for relation in range(4)])


def star_graph() -> KnowledgeGraph:
    """``many`` leads from one entity to nine others; ``one`` is a chain."""
    star = [("e0", "many", f"e{i}") for i in range(1, 10)]
    return KnowledgeGraph.from_labels(star + [(f"e{i}", "one", f"e{i + 1}") for i in range(9)])


def test_one_to_many_relations_prefer_heads() -> None:
    sampler, graph = Bernoulli(star_graph(), 4), star_graph()
    weights = {
        side: sampler.sample(graph.train, side, torch.Generator().manual_seed(0)).weight.tolist() for side in SIDES
    }
    assert weights["head"] == pytest.approx([1.8] * 9 + [1.0] * 9)
    assert weights["tail"] == pytest.approx([0.2] * 9 + [1.0] * 9)


@pytest.mark.parametrize("side", SIDES)
def test_entities_and_labels_are_the_uniform_ones(side) -> None:
    graph = star_graph()
    samples = [
        kind(graph, 8, false_negatives="resample").sample(graph.train, side, torch.Generator().manual_seed(3))
        for kind in (Bernoulli, Uniform)
    ]
    assert torch.equal(samples[0].entities, samples[1].entities)
    assert torch.equal(samples[0].known_true, samples[1].known_true)
    triples = graph.train
    densities = [kind(graph, 8).log_density(triples, side, samples[0].entities) for kind in (Bernoulli, Uniform)]
    assert torch.equal(*densities)


@given(st.lists(st.tuples(*(st.integers(0, n) for n in (5, 2, 5))), min_size=1, max_size=40))
def test_both_sides_of_a_triple_add_up(triples: Triples) -> None:
    """Over a step of each side a triple counts twice, as it does without weights."""
    graph = KnowledgeGraph.from_labels([(f"e{h}", f"r{r}", f"e{t}") for h, r, t in triples])
    generator = torch.Generator().manual_seed(0)
    head, tail = (Bernoulli(graph, 1).sample(graph.train, side, generator).weight for side in SIDES)
    torch.testing.assert_close(head + tail, torch.full((len(triples),), 2.0))
    assert bool((head > 0).all())
    assert bool((tail > 0).all())


def test_the_weights_reach_the_loss() -> None:
    """Equal first draws, other losses: the trainer multiplies the weights of the positives."""
    graph, losses = star_graph(), []
    for method in ("uniform", "bernoulli"):
        settings = {"model.dim": 4, "sampler.negatives": 4, "train.batch_size": 18, "train.steps": 4}
        settings |= {"train.subsampling": False, "sampler.false_negatives": "mask"}
        trainer = build_trainer(resolve(load(f"default/transe/{method}", settings), graph), graph)
        losses.append(total(trainer.step()).item())
    assert losses[0] != pytest.approx(losses[1], rel=1e-6)


def test_one_relation_weighs_the_sides() -> None:
    """With a single relation the factors are equal within a batch; the step as a whole has to feel them."""
    graph = KnowledgeGraph.from_labels([("hub", "r", f"e{i}") for i in range(9)])
    losses: dict[str, list[float]] = {}
    for method in ("uniform", "bernoulli"):
        settings = {"model.dim": 4, "sampler.negatives": 4, "train.batch_size": 9, "train.lr": 1e-9}
        settings |= {"train.subsampling": False, "sampler.false_negatives": "mask", "train.steps": 4}
        trainer = build_trainer(resolve(load(f"default/transe/{method}", settings), graph), graph)
        losses[method] = [total(trainer.step()).item() for _ in range(2)]  # tails, then heads
    ratios = [one / two for one, two in zip(losses["bernoulli"], losses["uniform"], strict=True)]
    assert ratios == pytest.approx([2 * 1 / 10, 2 * 9 / 10], rel=1e-4)  # 9 tails per head, 1 head per tail
