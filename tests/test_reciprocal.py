"""Reciprocal relations: questions about heads are questions about tails of the inverse relation, for every model."""

from __future__ import annotations

from math import exp, log
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import eans
from eans.errors import UsageError
from eans.evaluation import rank
from eans.graph import SIDES, KnowledgeGraph
from eans.models import MODELS, Model, TransD
from eans.objective import total
from eans.penalties import duals, dura_penalty
from eans.prediction import predict
from eans.recipes import load
from eans.recipes.build import build_model, build_trainer, resolve
from eans.training import Trainer
from helpers_runs import ring_graph

ENTITIES, RELATIONS, DIM = 9, 3, 4
# Models that have no queries for heads have no twin; tests/contracts knows their scores for both sides.
CASES = [pytest.param(name, {}, id=name) for name, kind in MODELS.items() if not kind.tails_only] + [
    pytest.param("transd", {"projection": "entity-table"}, id="transd-entity-table"),
    pytest.param("transr", {"relation_dim": 3}, id="transr-narrow"),
]
models = pytest.mark.parametrize(("name", "options"), CASES)
substitutions = pytest.mark.parametrize("substitution", [None, "symmetric", "one-way"])


def twins(name: str, options: dict[str, Any]) -> tuple[Model, Model]:
    """A reciprocal model, and an ordinary one over twice the relations with the same tables."""
    generator = torch.Generator().manual_seed(0)
    reciprocal = MODELS[name](ENTITIES, RELATIONS, DIM, 1.3, generator, reciprocal=True, **options).double()
    plain = MODELS[name](ENTITIES, 2 * RELATIONS, DIM, 1.3, **options).double()
    plain.load_state_dict(reciprocal.state_dict())
    return reciprocal, plain


def inverted(triples: Tensor) -> Tensor:
    """(h, r, t) -> (t, R + r, h)."""
    return torch.stack([triples[:, 2], triples[:, 1] + RELATIONS, triples[:, 0]], 1)


@pytest.fixture
def triples() -> Tensor:
    return torch.tensor([[0, 0, 1], [1, 2, 0], [6, 1, 6], [3, 0, 5], [2, 2, 4], [0, 1, 8]])


@pytest.fixture
def entities() -> Tensor:
    return torch.randint(ENTITIES, (6, 7), generator=torch.Generator().manual_seed(3))


@models
def test_tables(name, options):
    model, plain = twins(name, options)
    assert len(model.relation) == 2 * RELATIONS + 1
    assert model.substitution_relation == plain.substitution_relation == 2 * RELATIONS  # the last row
    assert model.num_relations == RELATIONS


@models
def test_heads_are_tails_of_the_inverse(name, options, triples, entities):
    model, plain = twins(name, options)
    turned = inverted(triples)
    assert torch.equal(
        model.score_candidates(triples, "head", entities), plain.score_candidates(turned, "tail", entities)
    )
    assert torch.equal(model.score_all(triples, "head"), plain.score_all(turned, "tail"))
    torch.testing.assert_close(
        model.score_all(triples, "head").gather(1, entities), model.score_candidates(triples, "head", entities)
    )
    replaced = turned.repeat_interleave(entities.shape[1], 0)
    replaced[:, 2] = entities.reshape(-1)
    torch.testing.assert_close(model.score_candidates(triples, "head", entities).reshape(-1), model.score(replaced))


@models
def test_tails_and_plain_scores_are_untouched(name, options, triples, entities):
    model, plain = twins(name, options)
    assert torch.equal(model.score(triples), plain.score(triples))
    assert torch.equal(
        model.score_candidates(triples, "tail", entities), plain.score_candidates(triples, "tail", entities)
    )
    assert torch.equal(model.score_all(triples, "tail"), plain.score_all(triples, "tail"))
    relations = model.score_relations(triples[:, 0], triples[:, 2])
    assert relations.shape == (6, RELATIONS)
    torch.testing.assert_close(relations, plain.score_relations(triples[:, 0], triples[:, 2])[:, :RELATIONS])


@models
@substitutions
def test_training_scores(name, options, substitution, triples, entities):
    model, plain = twins(name, options)
    for side in SIDES:
        turned = inverted(triples) if side == "head" else triples
        scores = model.training_scores(triples, side, entities, substitution)
        expected = plain.training_scores(turned, "tail", entities, substitution)
        for found, other in zip(scores, expected, strict=True):
            assert (found is None and other is None) or torch.equal(found, other)


@models
@pytest.mark.parametrize("side", SIDES)
def test_each_side_trains_its_own_rows(name, options, side, triples, entities):
    model, _ = twins(name, options)
    scores = model.training_scores(triples, side, entities)
    (scores.positive.square().sum() + scores.negative.square().sum()).backward()
    moved = model.relation.grad.abs().sum(1) > 0
    rows = slice(RELATIONS, 2 * RELATIONS) if side == "head" else slice(0, RELATIONS)
    assert moved[rows].all()
    assert int(moved.sum()) == RELATIONS


LINEAR = pytest.mark.parametrize("name", ["distmult", "complex", "simple", "rescal"])


@LINEAR
def test_all_rows_but_the_substitution_compete_as_relations(name, triples):
    model, plain = twins(name, {})
    for asked in (triples, inverted(triples)):
        scores = model.relation_scores(model.triple_rows(asked))
        assert scores.shape == (6, 2 * RELATIONS)
        torch.testing.assert_close(scores, plain.score_relations(asked[:, 0], asked[:, 2]))
    scores.sum().backward()
    moved = model.relation.grad.abs().sum(1) > 0
    assert moved.tolist() == [True] * 2 * RELATIONS + [False]


def test_projection_from_the_entity_table_needs_entities_for_the_inverses():
    with pytest.raises(UsageError, match="more entities than relations"):
        TransD(6, 3, 2, projection="entity-table", reciprocal=True)
    TransD(7, 3, 2, projection="entity-table", reciprocal=True)


# --- runs ---------------------------------------------------------------------------------------------------------


def make(model: str, graph: KnowledgeGraph, **settings: Any) -> Trainer:
    overrides = {"model.dim": 8, "sampler.negatives": 8, "train.batch_size": 32, "train.steps": 20, "train.lr": 0.02}
    overrides |= {"model.reciprocal": True, "sampler.clusters": 5, **settings}
    return build_trainer(resolve(load(f"default/{model}/eans+adv", overrides), graph), graph)


@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize(("name", "penalty"), [*((name, "n3") for name in MODELS), ("complex", "dura")])
def test_a_few_steps(name, penalty):
    """A step about tails leaves the inverses alone, a step about heads the relations, but for Adam's momentum."""
    trainer = make(name, ring_graph(), **{"loss.penalty": penalty, "loss.penalty_weight": 1e-3})
    relation, size = trainer.model.relation, trainer.model.num_relations
    start = relation.detach().clone()
    trainer.step()
    assert torch.equal(relation[size : 2 * size], start[size : 2 * size])
    assert (relation[:size] != start[:size]).any(1).all()
    trainer.step()
    gradient = relation.grad.abs().sum(1)
    assert not gradient[:size].any()
    assert (gradient[size : 2 * size] > 0).all()
    losses = [total(trainer.step()).item() for _ in range(18)]
    assert trainer.is_sound()
    assert sum(losses[-4:]) < sum(losses[:4])


@pytest.mark.usefixtures("plain_kernels")
@LINEAR
def test_the_penalty_is_that_of_the_question(name):
    """Of (h, r, t) where the tail is asked for, of (t, R + r, h) where the head is."""
    trainer = make(name, ring_graph(), **{"loss.penalty": "dura", "loss.penalty_weight": 0.3})
    for number in range(2):
        batch = trainer.stream[number]
        triples, _ = trainer.model.oriented(batch.triples, batch.side)
        expected = 0.3 * dura_penalty(*duals(trainer.model, trainer.model.triple_rows(triples))).item()
        trainer.step()
        assert trainer.take_means(1)["dura"] == pytest.approx(expected, rel=1e-5)


@LINEAR
def test_relation_prediction_by_hand(name):
    """Tails: (h, r, t) asks for r among 2R rows; heads: (t, R + r, h) asks for R + r."""
    trainer = make(name, ring_graph(), **{"loss.relation_weight": 0.7, "loss.penalty": "none"})
    model = trainer.model
    size = model.num_relations
    for number, side in enumerate(("tail", "head")):
        rows, asked = trainer.stream.rows(number)
        assert asked == side
        batch = trainer.stream.batch(rows, side, None)
        expected = 0.0
        for (head, relation, tail), weight in zip(batch.triples.tolist(), batch.weight.tolist(), strict=True):
            ends, true = ((head, tail), relation) if side == "tail" else ((tail, head), size + relation)
            triples = torch.tensor([[ends[0], row, ends[1]] for row in range(2 * size)])
            scores = model.score(triples).tolist()
            expected += weight * (log(sum(map(exp, scores))) - scores[true])
        trainer.step()
        found = trainer.take_means(1)["relation"]
        assert found == pytest.approx(0.7 * expected / sum(batch.weight.tolist()), rel=1e-5)


@pytest.mark.usefixtures("plain_kernels")
@LINEAR
def test_relation_prediction_trains_the_rows_that_compete(name):
    """Also the inverses in a step about tails; the first step of Adam moves what has a gradient."""
    trainer = make(name, ring_graph(), **{"loss.relation_weight": 0.7})
    size = trainer.model.num_relations
    trainer.step()
    gradient = trainer.model.relation.grad.abs().sum(1)
    assert (gradient[: 2 * size] > 0).all()


@pytest.mark.parametrize("name", MODELS)
def test_ranks_and_predictions_use_the_inverses(name):
    graph = ring_graph(20)
    model = make(name, graph).model
    ranks = rank(model, graph)
    h, r, t = graph.test.unbind(1)
    questions = {"tail": (graph.test, t), "head": (torch.stack([t, r + graph.num_relations, h], 1), h)}
    for side, (triples, truth) in questions.items():
        for row, (triple, true) in enumerate(zip(triples, truth.tolist(), strict=True)):
            every_entity = triple.repeat(graph.num_entities, 1)
            every_entity[:, 2] = torch.arange(graph.num_entities)
            scores = model.score(every_entity).detach()
            known = graph.known.answers(graph.test[row : row + 1], side)[1]
            others = torch.ones(graph.num_entities, dtype=torch.bool)
            others[known] = False
            near = 1e-4  # apart from rounding between two ways to compute a score
            above = int((scores[others] > scores[true] + near).sum())
            below = int((scores[others] > scores[true] - near).sum())
            assert above <= int(ranks.greater[side][row]) <= below
    question = {"relation": graph.relations[0], "tail": graph.entities[3]}
    best = predict(model, graph, **question, k=1, known="mark")[0]
    asked = torch.stack([torch.full((20,), 3), torch.full((20,), graph.num_relations), torch.arange(20)], 1)
    assert best.score == pytest.approx(model.score(asked).max().item(), rel=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_saved_runs_reload(name, tmp_path: Path):
    settings: dict[str, Any] = {"dim": 4, "steps": 6, "batch_size": 32, "negatives": 4, "reciprocal": True}
    run = eans.train(ring_graph(), name, "uniform", out=tmp_path / "run", **settings)
    again = eans.Run.load(tmp_path / "run")
    assert again.recipe.model.reciprocal
    assert torch.equal(again.model.relation, run.model.relation)
    assert len(again.model.relation) == 2 * 3 + 1
    assert again.evaluate("test")["test"] == run.metrics["test"]


def test_the_default_has_one_row_per_relation():
    graph = ring_graph()
    assert len(build_model(resolve(load("default/transe/uniform"), graph), graph).relation) == 3 + 1
