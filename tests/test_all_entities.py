"""The sampler 'all': masks against brute force, cross-entropy over all entities, refusals, training, inspections."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid

import eans
from eans import cli, kernels
from eans.errors import UsageError
from eans.graph import SIDES, KnowledgeGraph, Side, column
from eans.inspection import Inspector, measuring
from eans.inspection.analysis import Analyst
from eans.losses import LOSSES, LogSigmoid, SoftmaxLoss, SubstitutionLoss
from eans.models import MODELS, Model
from eans.objective import total
from eans.recipes import load, names
from eans.recipes.build import build_sampler, build_trainer, resolve
from eans.samplers import AllEntities, all_entities
from eans.training import Trainer
from helpers_runs import one_line, ring_graph

BOUNDED = {"bounded": True, "score_scale": 3.0, "score_shift": -0.7}
DOT = {
    "distmult": {},
    "complex": {},
    "simple": {},
    "rescal": {},
    "conve": {},
    "distmult-bounded": BOUNDED,
    "simple-bounded": BOUNDED,
}
DISTANCES = [name for name, kind in MODELS.items() if kind.comparison != "dot"]
models = pytest.mark.parametrize("name", DOT)
both_sides = pytest.mark.parametrize("side", SIDES)
both_policies = pytest.mark.parametrize("policy", ["mask", "keep"])
one_way_or_two = pytest.mark.parametrize("reciprocal", [False, True], ids=["plain", "reciprocal"])
SMALL = {"model.dim": 8, "train.batch_size": 32, "train.steps": 20, "train.lr": 0.02}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def asked(graph: KnowledgeGraph) -> Tensor:
    """Every triple of the graph: queries with many answers, with one, and, from valid and test, with none."""
    return torch.cat([graph.train, graph.valid, graph.test])


def answers(graph: KnowledgeGraph, triple: list[int], side: Side) -> set[int]:
    """Entities that complete the triple in train."""
    at, anchor = column(side), 2 - column(side)
    return {row[at] for row in graph.train.tolist() if row[anchor] == triple[anchor] and row[1] == triple[1]}


def brute_mask(graph: KnowledgeGraph, triples: Tensor, side: Side, policy: str) -> Tensor:
    rows = []
    for triple in triples.tolist():
        left_out = {triple[column(side)]} | (answers(graph, triple, side) if policy == "mask" else set())
        rows.append([entity in left_out for entity in range(graph.num_entities)])
    return torch.tensor(rows)


def build(name: str, graph: KnowledgeGraph, reciprocal: bool = False) -> Model:
    """A float64 model whose coordinates are of order one."""
    kind = MODELS[name.partition("-")[0]]
    sizes = graph.num_entities, graph.num_relations, 5
    reciprocal = reciprocal or kind.tails_only
    return kind(*sizes, init_range=1.3, generator=seeded(), reciprocal=reciprocal, **DOT[name]).double()


def every_entity(graph: KnowledgeGraph, triples: Tensor) -> Tensor:
    return torch.arange(graph.num_entities).expand(len(triples), -1).contiguous()


def gradients(model: Model, total: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(model.parameters(), found, strict=True)]


def make(method: str = "complex/all", **settings: Any) -> Trainer:
    graph = ring_graph()
    overrides = SMALL | {key.replace("__", "."): value for key, value in settings.items()}
    return build_trainer(resolve(load(f"default/{method}", overrides), graph), graph)


# --- entities and masks -------------------------------------------------------------------------------------------


@both_sides
@both_policies
@pytest.mark.parametrize("waiting", [True, False], ids=["cpu", "device"])
def test_masks_against_brute_force(
    side: Side, policy: Any, waiting: bool, make_graph: Callable[..., KnowledgeGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, and the way that never waits for a device: rows padded to the most answers of a query."""
    monkeypatch.setattr(all_entities, "can_branch_on", lambda _: waiting)
    hub = KnowledgeGraph.from_labels(
        [*(("a", "r", t) for t in "abcdefgh"), *((h, "s", "z") for h in "cdefz"), ("z", "s", "y"), ("z", "t", "y")]
    )
    for graph in (make_graph(), make_graph(40, 2, (300, 30, 30)), make_graph(1, 1, (3, 0, 0)), hub):
        triples = asked(graph)
        sampler = AllEntities(graph, false_negatives=policy)
        sample = sampler.sample(triples, side, seeded())
        assert torch.equal(sample.entities, every_entity(graph, triples))
        assert (sample.entities.dtype, sample.known_true.dtype) == (torch.int64, torch.bool)
        assert torch.equal(sample.known_true, brute_mask(graph, triples, side, policy))
        one = sampler.sample(triples[-1:], side, seeded())
        assert torch.equal(one.known_true, sample.known_true[-1:])


def test_the_test_graphs_have_queries_of_every_kind(make_graph: Callable[..., KnowledgeGraph]) -> None:
    graph = make_graph(40, 2, (300, 30, 30))
    for side in SIDES:
        counts = {len(answers(graph, triple, side)) for triple in asked(graph).tolist()}
        assert {0, 1} < counts
        assert AllEntities(graph).longest[side] == max(counts) > 3


@both_sides
@both_policies
def test_masks_can_be_recorded(
    side: Side, policy: Any, graph: KnowledgeGraph, no_waiting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing waits for a GPU."""
    monkeypatch.setattr(all_entities, "can_branch_on", lambda _: False)
    sampler, generator = AllEntities(graph, false_negatives=policy), seeded()
    with no_waiting:
        sampler.sample(graph.train, side, generator)


@both_policies
def test_valid_and_test_play_no_part(policy: Any) -> None:
    graph = KnowledgeGraph.from_labels([("a", "r", "b"), ("b", "r", "c")], [("a", "r", "c")], [("a", "r", "a")])
    mask = AllEntities(graph, false_negatives=policy).sample(graph.train[:1], "tail", seeded()).known_true
    assert mask.tolist() == [[False, True, False]]


def test_nothing_is_random_and_nothing_is_kept(graph: KnowledgeGraph) -> None:
    sampler = AllEntities(graph)
    first, generator = sampler.sample(graph.train, "tail", seeded(1)), seeded(2)
    before = generator.get_state()
    other = sampler.sample(graph.train, "tail", generator)
    assert torch.equal(generator.get_state(), before)
    assert torch.equal(first.known_true, other.known_true)
    assert sampler.state_dict() == {}
    assert sampler.memory() == 8 * graph.num_entities
    density = sampler.log_proposal(graph.train, "tail", first.entities)
    torch.testing.assert_close(density.double().exp().sum(1), torch.ones(len(graph.train)).double())


# --- scores and losses --------------------------------------------------------------------------------------------


@models
@both_sides
@one_way_or_two
@pytest.mark.parametrize("substitution", [None, "symmetric", "one-way"])
def test_scores_and_gradients_are_those_of_explicit_candidates(
    name: str, side: Side, reciprocal: bool, substitution: Any, graph: KnowledgeGraph
) -> None:
    model, triples = build(name, graph, reciprocal), graph.train
    found = model.training_scores(triples, side, None, substitution)
    expected = model.training_scores(triples, side, every_entity(graph, triples), substitution)
    torch.testing.assert_close(found.negative, model.score_candidates(triples, side, every_entity(graph, triples)))
    assert (found.substitution is None) == (substitution is None)
    pairs = [(a, b) for a, b in zip(found, expected, strict=True) if a is not None and b is not None]
    totals = [torch.zeros(()).double(), torch.zeros(()).double()]
    for number, (ours, theirs) in enumerate(pairs):
        torch.testing.assert_close(ours, theirs)
        outer = torch.randn(ours.shape, generator=seeded(number), dtype=torch.float64)
        totals = [totals[0] + (ours * outer).sum(), totals[1] + (theirs * outer).sum()]
    for ours, theirs in zip(gradients(model, totals[0]), gradients(model, totals[1]), strict=True):
        assert ours.abs().sum() > 0
        torch.testing.assert_close(ours, theirs)


@models
@both_sides
@both_policies
@one_way_or_two
@pytest.mark.parametrize("correct", [True, False], ids=["corrected", "plain"])
def test_the_softmax_is_the_cross_entropy_over_all_entities(
    name: str, side: Side, policy: Any, reciprocal: bool, correct: bool, graph: KnowledgeGraph
) -> None:
    """Over all of them, or over the positive and what is no known answer; with every gradient."""
    model, triples = build(name, graph, reciprocal), asked(graph)
    weight = torch.rand(len(triples), generator=seeded(1), dtype=torch.float64) + 0.1
    sampler = AllEntities(graph, false_negatives=policy)
    negatives = sampler.sample(triples, side, seeded())
    proposal = sampler.log_proposal(triples, side, negatives.entities).double() if correct else None
    scores = model.training_scores(triples, side, None)
    found = total(SoftmaxLoss(correct_proposal=correct)(scores, negatives.known_true, weight, proposal))

    positive = triples[:, column(side)]
    others = brute_mask(graph, triples, side, policy)
    others[torch.arange(len(triples)), positive] = False  # known answers but the positive
    assert others.any() == (policy == "mask")
    logits = model.score_candidates(triples, side, every_entity(graph, triples)).masked_fill(others, -math.inf)
    expected = (weight / weight.sum() * cross_entropy(logits, positive, reduction="none")).sum()
    exact = {"rtol": 1e-7, "atol": 1e-7} if correct else {}  # log E is a float32
    torch.testing.assert_close(found, expected, **exact)
    for ours, theirs in zip(gradients(model, found), gradients(model, expected), strict=True):
        torch.testing.assert_close(ours, theirs, **exact)


@models
@both_sides
@both_policies
def test_log_sigmoid(name: str, side: Side, policy: Any, graph: KnowledgeGraph) -> None:
    """The mean over E entities of those that are not masked, and the positive."""
    model, triples = build(name, graph), graph.train
    weight = torch.rand(len(triples), generator=seeded(1), dtype=torch.float64) + 0.1
    negatives = AllEntities(graph, false_negatives=policy).sample(triples, side, seeded())
    terms = LogSigmoid(margin=0.3)(model.training_scores(triples, side, None), negatives.known_true, weight)
    scores = model.score_candidates(triples, side, every_entity(graph, triples)) + 0.3
    own = scores.gather(1, triples[:, column(side), None])[:, 0]
    share = weight / weight.sum()
    pressed = torch.where(brute_mask(graph, triples, side, policy), 0.0, -logsigmoid(-scores)).mean(1)
    torch.testing.assert_close(terms["positive"], -(share * logsigmoid(own)).sum() / 2)
    torch.testing.assert_close(terms["negative"], (share * pressed).sum() / 2)


@pytest.mark.parametrize("form", ["reference", "paper"])
@both_sides
def test_the_substitution_loss(form: Any, side: Side, graph: KnowledgeGraph) -> None:
    """As with all entities named one by one; the known answers are what it learns from."""
    model, triples, loss = build("complex", graph), graph.train, SubstitutionLoss(form=form)
    negatives = AllEntities(graph).sample(triples, side, seeded())
    weight = torch.ones(len(triples)).double()
    totals = []
    for entities in (None, every_entity(graph, triples)):
        scores = model.training_scores(triples, side, entities, loss.needs_substitution)
        totals.append(total(loss(scores, negatives.known_true, weight)))
    torch.testing.assert_close(*totals)
    for ours, theirs in zip(*(gradients(model, found) for found in totals), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("loss", "times"), [("softmax", 5.5), ("logsigmoid", 8.5), ("substitution", 10.5)])
def test_memory_is_a_few_times_that_of_the_scores(
    loss: str, times: float, make_graph: Callable[..., KnowledgeGraph], meter: Any
) -> None:
    graph = make_graph(3000, 2, (500, 0, 0))
    settings = {"model.dim": 4, "train.batch_size": 64, "sampler.false_negatives": "mask", "loss.name": loss}
    trainer = build_trainer(resolve(load("default/complex/all", settings), graph), graph)
    trainer.step()
    with meter:
        trainer.step()
    assert meter.largest <= (2 if loss == "substitution" else 1) * 64 * 3001
    assert meter.peak < times * 4 * 64 * 3000


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(({"model.name": name}, f"model '{name}' compares by a distance") for name in DISTANCES),
        ({"sampler.negatives": 5}, "takes every entity, but sampler.negatives is 5; set it to 0"),
        ({"sampler.false_negatives": "resample"}, "set sampler.known_true=exact, sampler.false_negatives=mask or keep"),
        ({"sampler.uniform_share": 0.2}, "sampler.uniform_share=0"),
        ({"sampler.known_true": "repeats"}, "'repeats' needs sampler.false_negatives 'mask'"),
        ({"sampler.known_true": "repeats", "sampler.false_negatives": "mask"}, "set sampler.known_true=exact"),
        ({"sampler.known_true": "repeats-everywhere", "sampler.false_negatives": "mask"}, "sampler.known_true=exact"),
        ({"loss.name": "substitution"}, "learns from labelled false negatives: set sampler.false_negatives=mask"),
        (
            {"loss.adversarial_temperature": 1.0},
            "'substitution' or 'hinge'; loss.name is 'softmax'",
        ),
    ],
    ids=lambda value: ",".join(f"{key}={part}" for key, part in value.items()) if isinstance(value, dict) else "",
)
def test_what_cannot_work_leaves_nothing_behind(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        eans.train(ring_graph(), recipe="distmult/all", out=tmp_path / "run", device="cpu", steps=2, **settings)
    assert message in one_line(str(caught.value))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", DISTANCES)
def test_distances_have_no_such_method(name: str) -> None:
    assert f"default/{name}/all" not in names()
    with pytest.raises(UsageError):
        load(f"default/{name}/all")


@pytest.mark.parametrize("recipe", [name for name in names() if name.endswith("/all")])
def test_every_recipe_of_it_can_be_built(recipe: str) -> None:
    graph = ring_graph()
    found = resolve(load(recipe), graph)
    sampler = build_sampler(found, graph)
    assert isinstance(sampler, AllEntities)
    assert (sampler.negatives, sampler.false_negatives, found.loss.name) == (60, "keep", "softmax")


# --- training -----------------------------------------------------------------------------------------------------


@one_way_or_two
def test_learns_a_ring(reciprocal: bool) -> None:
    settings: dict[str, Any] = {"dim": 16, "steps": 400, "lr": 0.02, "batch_size": 64, "reciprocal": reciprocal}
    run = eans.train(ring_graph(), "complex", "all", device="cpu", **settings)
    assert run.metrics["test"]["both"]["mrr"] > 0.5


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("model", ["distmult", "complex", "simple", "rescal", "conve"])
def test_every_loss_falls(model: str, loss: str) -> None:
    settings = {"sampler__false_negatives": "mask", "loss__name": loss, "loss__penalty": "none", "train__steps": 100}
    trainer = make(f"{model}/all", **settings, train__lr_drop=1.0)
    losses = [total(trainer.step()).item() for _ in range(100)]
    assert trainer.is_sound()
    assert sum(losses[-10:]) < 0.9 * sum(losses[:10])


@pytest.mark.parametrize("settings", [{}, {"model__reciprocal": True, "loss__relation_weight": 0.5}], ids=["", "both"])
@pytest.mark.parametrize("model", ["distmult", "complex", "simple", "rescal"])
def test_fast_kernels_train_as_the_reference(model: str, settings: dict[str, Any]) -> None:
    """Gradients of the product and those that kernels leave with the table add up."""
    tables = []
    before = kernels.current()
    for name in ("reference", "auto"):
        kernels.choose(name)
        try:
            trainer = make(f"{model}/all", **settings)
            for _ in range(6):
                trainer.step()
        finally:
            kernels.choose(before)
        tables.append(trainer.model.state_dict())
    for name, table in tables[0].items():
        torch.testing.assert_close(tables[1][name], table, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["complex/all", "rescal/all"])
def test_a_state_in_the_middle_continues_to_the_same_bits(method: str) -> None:
    whole, first, second = (make(method, loss__relation_weight=0.1) for _ in range(3))
    expected = [total(whole.step()).item() for _ in range(20)]
    begun = [total(first.step()).item() for _ in range(7)]
    tensors, values = first.state()
    assert not any(name.startswith("sampler.") for name in tensors)
    second.load_state({name: value.clone() for name, value in tensors.items()}, values)
    assert begun + [total(second.step()).item() for _ in range(13)] == expected
    assert all(torch.equal(value, second.state()[0][name]) for name, value in whole.state()[0].items())


# --- inspections --------------------------------------------------------------------------------------------------


@both_policies
def test_a_measurement_against_brute_force(policy: str, make_graph: Callable[..., KnowledgeGraph]) -> None:
    graph = make_graph(30, 2, (120, 40, 40))
    settings = SMALL | {"sampler.false_negatives": policy, "model.init_range": 0.8}
    trainer = build_trainer(resolve(load("default/complex/all", settings), graph), graph)
    for _ in range(5):
        trainer.step()
    inspector = Inspector(trainer, graph, 50)
    measurement = inspector.measure()
    train, unused = ({tuple(t) for t in part.tolist()} for part in (graph.train, torch.cat([graph.valid, graph.test])))
    known = held_out = gap = above = unmasked = 0.0
    for side in SIDES:
        mask = brute_mask(graph, inspector.triples, side, policy)
        for row, triple in enumerate(inspector.triples):
            changed = triple.repeat(30, 1)
            changed[:, column(side)] = torch.arange(30)
            scores, own = trainer.model.score(changed).tolist(), trainer.model.score(triple[None]).item()
            for entity, key in enumerate(map(tuple, changed.tolist())):
                known += key in train
                held_out += key in unused and key not in train
                if not mask[row, entity]:
                    unmasked += 1
                    gap += scores[entity] - own
                    above += scores[entity] > own
    draws = 2 * 50 * 30
    expected = {"known": known / draws, "held_out": held_out / draws, "masked": 1 - unmasked / draws}
    expected |= {"gap": gap / unmasked, "above": above / unmasked, "entities": 1.0, "effective": 1.0, "repeats": 0.0}
    for name, value in expected.items():
        assert getattr(measurement, name) == pytest.approx(value, rel=1e-4, abs=1e-9), name
    assert (measurement.masked == pytest.approx(1 / 30)) == (policy == "keep")
    assert measurement.memory == 8 * 30


@pytest.mark.parametrize(
    "inspect", [lambda t, g: Inspector(t, g, 40).measure(), lambda t, g: Analyst(t, g, 2).analyse()]
)
def test_inspections_take_one_product_too(inspect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make()
    monkeypatch.setattr(trainer.model, "compare_candidates", None)
    assert inspect(trainer, ring_graph())


def test_an_inspected_run_ends_with_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, seen = ring_graph(), []

    def remembered(*arguments: Any) -> Trainer:
        seen.append(build_trainer(*arguments))
        return seen[-1]

    monkeypatch.setattr(measuring, "build_trainer", remembered)
    recipe = resolve(load("default/complex/all", SMALL), graph)
    measuring.inspect_training(recipe, graph, every=5, probe=50, device="cpu")
    plain = make()
    for _ in range(20):
        plain.step()
    assert all(torch.equal(value, seen[0].state()[0][name]) for name, value in plain.state()[0].items())


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    def run_command(*arguments: str | Path) -> tuple[str, str]:
        with pytest.raises(SystemExit) as ending:
            cli.main([*map(str, arguments)])
        out, err = capsys.readouterr()
        assert not ending.value.code, err
        return out, err

    return run_command


def test_commands(call: Callable[..., tuple[str, str]], tmp_path: Path) -> None:
    """Train, then inspect the run and the sampler."""
    small = ["--set", "model.dim=4", "--set", "train.steps=4", "--set", "train.batch_size=32", "--device", "cpu"]
    run = tmp_path / "run"
    out, err = call("train", "complex/all", "--data", "wordnet-core", "--out", run, *small)
    assert "all negatives n=6481, softmax loss" in out + err
    out, _ = call("inspect", "sampler", run, "--format", "json", "--device", "cpu")
    (measurement,) = json.loads(out)[0]["measurements"]
    assert (measurement["entities"], measurement["repeats"], measurement["masked"]) == (
        1.0,
        0.0,
        pytest.approx(1 / 6481),
    )
    out, _ = call("report", run, "--format", "json", "--device", "cpu")
    analysis = json.loads(out)["analysis"]
    assert analysis["negatives"] == 6481 * analysis["positives"]
    assert len(analysis["cdf"]) == 6481
    pytest.importorskip("matplotlib")
    call("report", run, "--device", "cpu")
    assert (run / "report.html").stat().st_size > 10_000
