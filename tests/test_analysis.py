"""Distributions of scores: against brute force in Python, and training that never notices."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from math import exp, log1p
from pathlib import Path
from typing import Any

import pytest
import torch

import eans
from eans.batches import Purpose, mix
from eans.errors import RunError, UsageError
from eans.graph import KnowledgeGraph, column
from eans.inspection.analysis import Analyst, Histogram, analyse_run, separation
from eans.recipes.build import build_trainer
from eans.samplers import SAMPLERS
from eans.training import Trainer
from helpers_graphs import Meter
from helpers_runs import ring_graph
from test_inspection import contents, recipe_of, same_state, trained

BATCHES = 3


def log_sigmoid(value: float) -> float:
    return -log1p(exp(-value))


def brute_force(trainer: Trainer, graph: KnowledgeGraph, analyst: Analyst) -> dict[str, Any]:
    """The same draws, scored and counted one by one; `cdf` and `unmasked` included."""
    train, held_out = (
        {tuple(t) for t in part.tolist()} for part in (graph.train, torch.cat([graph.valid, graph.test]))
    )
    generator = torch.Generator().manual_seed(mix(0, Purpose.INSPECT, 1))
    margin, needs = trainer.loss.margin, trainer.loss.needs_substitution
    positives, negatives, lowered, unmasked, weighted = [], [], [], [], []
    regularization = getattr(trainer.loss, "substitution_regularization", 0.0) if needs is not None else 0.0
    rows: dict[str, list[list[float]]] = {"all": [], "open": []}
    groups: dict[str, list[float]] = {"true": [], "train": [], "held_out": []}
    own = 0
    for chosen, side in zip(analyst.rows, analyst.sides, strict=True):
        triples, weights = graph.train[chosen], trainer.stream.weights[side][chosen].tolist()
        scores = [trainer.model.score(triple[None]).item() + margin for triple in triples]
        weighted.append(sum(w * log_sigmoid(score) for w, score in zip(weights, scores, strict=True)) / sum(weights))
        drawn = trainer.sampler.sample(triples, side, generator)
        for triple, entities, masked in zip(triples, drawn.entities, drawn.known_true.tolist(), strict=True):
            positives.append(trainer.model.score(triple[None]).item() + margin)
            here, logits = [], []
            for entity in entities.tolist():
                changed = triple.clone()
                changed[column(side)] = entity
                here.append(trainer.model.score(changed[None]).item() + margin)
                logits.append(here[-1])
                own += changed.tolist() == triple.tolist()
                group = "train" if tuple(changed.tolist()) in train else "true"
                if group == "true" and tuple(changed.tolist()) in held_out:
                    group = "held_out"
                if needs is not None:
                    both = trainer.model.training_scores(triple[None], side, torch.tensor([[entity]]), needs)
                    groups[group].append(1.0 / (1.0 + exp(-both.substitution.item() - margin)))
                    logits[-1] -= regularization * (both.substitution.item() + margin)
            negatives += here
            lowered += logits
            kept = [score for score, out in zip(here, masked, strict=True) if not out]
            unmasked += [logit for logit, out in zip(logits, masked, strict=True) if not out]
            rows["all"].append(here)
            if kept:
                rows["open"].append(kept + [float("-inf")] * (len(here) - len(kept)))
    valid = [trainer.model.score(triple[None]).item() + margin for triple in graph.valid]
    return {
        "positive_score": sum(weighted) / len(weighted),
        "positive_mean": sum(positives) / len(positives),
        "valid_mean": sum(valid) / len(valid),
        "valid_score": sum(-log1p(exp(-score)) for score in valid) / len(valid),
        "negative_score": sum(lowered) / len(lowered),
        "negative_mean": sum(negatives) / len(negatives),
        "open_score": sum(unmasked) / len(unmasked),
        "cdf": cumulated(rows["all"]),
        "open_cdf": cumulated(rows["open"]),
        "groups": groups,
        "own": own,
        "positives": positives,
        "negatives": negatives,
    }


def cumulated(rows: list[list[float]]) -> list[float]:
    shares = [0.0] * len(rows[0])
    for row in rows:
        weights = sorted((exp(score - max(row)) for score in row), reverse=True)
        shares = [share + weight / sum(weights) / len(rows) for share, weight in zip(shares, weights, strict=True)]
    return [sum(shares[: place + 1]) for place in range(len(shares))]


def histogram(values: list[float], edges: list[float]) -> list[int]:
    counts = Counter(min(max(bisect_right(edges, value) - 1, 0), len(edges) - 2) for value in values)
    return [counts[place] for place in range(len(edges) - 1)]


@pytest.mark.parametrize("method", ["uniform", "eans+adv", "gaussian"])
def test_numbers_against_brute_force(method: str, make_graph: Callable[..., KnowledgeGraph]) -> None:
    graph = make_graph(30, 2, (120, 40, 40))
    trainer = trained(recipe_of(f"transe/{method}", graph), graph, 24)
    analyst = Analyst(trainer, graph, BATCHES)
    assert analyst.sides == ("tail", "head", "tail")
    found, expected = analyst.analyse(), brute_force(trainer, graph, analyst)
    assert json.loads(json.dumps(found)) == found
    assert (found["step"], found["positives"], found["negatives"]) == (24, 96, 576)
    for name in (
        "positive_score",
        "positive_mean",
        "valid_score",
        "valid_mean",
        "negative_score",
        "negative_mean",
        "cdf",
    ):
        assert found[name] == pytest.approx(expected[name], rel=1e-5, abs=1e-6), name
    assert found["unmasked"]["negative_score"] == pytest.approx(expected["open_score"], rel=1e-5)
    assert found["unmasked"]["cdf"] == pytest.approx(expected["open_cdf"], rel=1e-5)
    assert found["cdf"][-1] == 1.0
    assert found["cdf"][0] > 1 / 6
    for name in ("positive", "negative"):
        near = histogram(expected[f"{name}s"], found["scores"]["edges"])
        assert sum(found["scores"][name]) == len(expected[f"{name}s"])
        assert sum(abs(a - b) for a, b in zip(found["scores"][name], near, strict=True)) <= 4  # on an edge, rounded
    assert ("substitution" in found) == (method == "eans+adv")


@pytest.mark.parametrize("method", ["uniform", "eans+adv"])
def test_what_comes_next_against_brute_force(method: str, make_graph: Callable[..., KnowledgeGraph]) -> None:
    graph = make_graph(30, 2, (120, 40, 40))
    trainer = trained(recipe_of(f"transe/{method}", graph), graph, 25)
    generator = torch.Generator().manual_seed(mix(0, Purpose.INSPECT, 27))
    positives, negatives = [], []
    for step in (25, 26, 27):  # the next ones, counted from 0
        batch = trainer.stream[step]
        drawn = trainer.sampler.sample(batch.triples, batch.side, generator).entities
        for triple, entities in zip(batch.triples, drawn.tolist(), strict=True):
            positives.append(log_sigmoid(trainer.model.score(triple[None]).item() + trainer.loss.margin))
            for entity in entities:
                changed = triple.clone()
                changed[column(batch.side)] = entity
                negatives.append(trainer.model.score(changed[None]).item() + trainer.loss.margin)
    found = Analyst(trainer, graph, 1).look_ahead(3)
    assert found["positive_score"] == pytest.approx(sum(positives) / len(positives), rel=1e-5)
    assert found["negative_score"] == pytest.approx(sum(negatives) / len(negatives), rel=1e-5)


def test_substitution_scores_by_group(make_graph: Callable[..., KnowledgeGraph]) -> None:
    graph = make_graph(30, 2, (120, 40, 40))
    trainer = trained(recipe_of("rotate/eans", graph), graph, 24)
    analyst = Analyst(trainer, graph, BATCHES)
    found, expected = analyst.analyse()["substitution"], brute_force(trainer, graph, analyst)
    assert found["own"] == expected["own"] > 0
    groups = expected["groups"]
    assert sum(sum(found[name]) for name in groups) == 576
    for name, values in groups.items():
        assert sum(found[name]) == len(values) > 0
        near = histogram(values, found["edges"])
        assert sum(abs(a - b) for a, b in zip(found[name], near, strict=True)) <= 4
    for name in ("train", "held_out"):
        pairs = [(one, other) for one in groups[name] for other in groups["true"]]
        wins = sum((one > other) + 0.5 * (one == other) for one, other in pairs) / len(pairs)
        assert found["separation"][name] == pytest.approx(wins, abs=2e-3)  # ties inside 5,000 bins


def test_every_analysis_is_the_same_and_training_does_not_notice() -> None:
    graph = ring_graph()
    for method in (*SAMPLERS, "eans+adv", "softmax"):
        if method == "none":
            continue
        few = {"sampler.negatives": 0} if method == "all" else {}
        recipe = recipe_of(f"{'complex' if method == 'all' else 'rotate'}/{method}", graph, **few)
        plain, watched = trained(recipe, graph, 0), trained(recipe, graph, 0)
        analyst = Analyst(watched, graph, 2)
        before = torch.random.get_rng_state()
        for _ in range(9):  # with a new order of the entities in between
            assert analyst.analyse() == analyst.analyse()
            assert analyst.look_ahead(2) == analyst.look_ahead(2)
            watched.step()
            plain.step()
        assert torch.equal(torch.random.get_rng_state(), before)
        assert same_state(plain, watched), method


def test_the_probe_does_not_follow_the_seed_of_training() -> None:
    """Two runs that differ in their seed: the same batches and the same draws, scored by other weights."""
    graph = ring_graph()
    recipes = [recipe_of("transe/eans", graph, **{"train.seed": seed}) for seed in (3, 4)]
    one, other = (Analyst(trained(recipe, graph, 0), graph, BATCHES) for recipe in recipes)
    assert one.sides == other.sides
    assert torch.equal(one.rows, other.rows)
    first, second = one.analyse(), other.analyse()
    assert first["unmasked"]["negatives"] == second["unmasked"]["negatives"]
    assert first["substitution"]["own"] == second["substitution"]["own"]
    for name in ("true", "train", "held_out"):
        assert sum(first["substitution"][name]) == sum(second["substitution"][name]), name
    assert first["negative_mean"] != second["negative_mean"]


def test_without_negatives_and_without_held_out_triples() -> None:
    graph = KnowledgeGraph.from_labels([("a", "r", "b"), ("b", "r", "c")], name="bare")
    settings = {"sampler.negatives": 0, "train.batch_size": 4, "loss.penalty": "stay-positive"}
    settings |= {"sampler.name": "none", "loss.name": "logsigmoid", "loss.penalty_weight": 0.1}
    analyst = Analyst(trained(recipe_of("distmult/uniform", graph, **settings), graph, 2), graph, 2)
    assert analyst.look_ahead(2)["negative_score"] is None
    found = analyst.analyse()
    assert (found["positives"], found["negatives"]) == (8, 0)
    assert found["negative_score"] is found["negative_mean"] is found["cdf"] is None
    assert found["unmasked"] == {"negatives": 0, "negative_score": None, "negative_mean": None, "cdf": None}
    assert sum(found["scores"]["positive"]) == 8
    assert sum(found["scores"]["negative"]) == 0
    assert "substitution" not in found
    bare = Analyst(trained(recipe_of("transe/eans", graph, **{"sampler.clusters": 1}), graph, 2), graph, 1).analyse()
    assert sum(bare["substitution"]["held_out"]) == 0
    assert bare["substitution"]["separation"]["held_out"] is None
    with pytest.raises(UsageError, match="batches must be at least 1, got 0"):
        Analyst(trained(recipe_of("transe/uniform", graph), graph, 0), graph, 0)


def test_no_more_than_one_batch_is_held() -> None:
    graph = ring_graph()
    trainer = trained(recipe_of("transe/eans", graph, **{"sampler.negatives": 64}), graph, 1)
    peaks = []
    for batches in (2, 12):
        analyst = Analyst(trainer, graph, batches)
        with Meter() as meter:
            analyst.analyse()
        peaks.append(meter.peak)
    assert peaks[1] < 1.1 * peaks[0]


def test_histograms_keep_what_lies_outside() -> None:
    counts = Histogram(2, 4, "cpu", (0.0, 4.0))
    counts.add(torch.tensor([-7.0, 0.5, 1.0, 3.9, 4.0, 99.0]), torch.tensor([0, 0, 1, 1, 1, 0]))
    assert counts.edges() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert counts.tolist() == [[2, 0, 0, 1], [0, 1, 0, 2]]
    free = Histogram(1, 12, "cpu")
    free.add(torch.tensor([0.0, 10.0]), torch.zeros(2, dtype=torch.int64))
    assert free.edges() == pytest.approx([float(place) for place in range(-1, 12)])
    constant = Histogram(1, 2, "cpu")
    constant.add(torch.full((3,), 5.0), torch.zeros(3, dtype=torch.int64))
    assert (constant.edges(), constant.tolist()) == ([4.0, 5.0, 6.0], [[0, 3]])


def test_separation_by_hand() -> None:
    low, high = torch.tensor([4, 0, 0]), torch.tensor([0, 0, 9])
    assert separation(high, low) == 1.0
    assert separation(low, high) == 0.0
    assert separation(low, low) == 0.5
    assert separation(torch.tensor([1, 1, 0]), torch.tensor([1, 0, 1])) == (0.5 + 0.0 + 1.0 + 0.0) / 4
    assert separation(torch.zeros(3), high) is None


def test_a_run_folder_is_only_read(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"dim": 8, "steps": 20, "negatives": 4, "batch_size": 32, "reorder_every": 7}
    eans.train(ring_graph(), "transe", "eans", out=tmp_path / "run", device="cpu", **settings)
    before = contents(tmp_path / "run")
    found = analyse_run(tmp_path / "run", batches=4, device="cpu")
    assert contents(tmp_path / "run") == before
    recipe = eans.Run.load(tmp_path / "run").recipe
    assert found == Analyst(trained(recipe, ring_graph(), 20), ring_graph(), 4).analyse()
    (tmp_path / "run" / "checkpoint.safetensors").unlink()
    with pytest.raises(RunError, match=r"checkpoint\.safetensors is missing"):
        analyse_run(tmp_path / "run")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_finds_the_same_and_a_recorded_run_does_not_notice() -> None:
    graph = ring_graph()
    recipe = recipe_of("transe/eans", graph)
    here, there = trained(recipe, graph, 0), build_trainer(recipe, graph, "cuda")
    analysts = [Analyst(trainer, graph, 4) for trainer in (here, there)]
    one, other = (analyst.analyse() for analyst in analysts)
    assert one["positive_mean"] == pytest.approx(other["positive_mean"], rel=1e-4)  # draws differ between devices
    assert one["negatives"] == other["negatives"]
    plain, watched = (build_trainer(recipe, graph, "cuda") for _ in range(2))
    analyst = Analyst(watched, graph, 2)
    for _ in range(24):
        analyst.analyse()
        plain.step()
        watched.step()
    assert same_state(plain, watched)
