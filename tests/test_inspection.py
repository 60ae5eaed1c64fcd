"""Measurements of samplers: every number against brute force, and training that ends with the same bits."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
import torch

import eans
from eans.errors import RunError, UsageError
from eans.graph import SIDES, KnowledgeGraph, column
from eans.inspection import Inspector, Measurement, inspect_training, measuring, save, to_csv, to_json
from eans.inspection.figure import draw, label_heights
from eans.inspection.records import short_names
from eans.objective import total
from eans.recipes import Recipe, load
from eans.recipes.build import build_trainer, resolve
from eans.samplers import SAMPLERS, Negatives
from eans.training import Trainer
from helpers_runs import ring_graph

CLOCKS = ("sampling_ms", "step_ms")
SMALL = {"model.dim": 8, "train.batch_size": 32, "sampler.negatives": 6, "train.steps": 24, "train.lr": 0.02}
ORDERED = {"sampler.clusters": 5, "sampler.reorder_every": 7}  # of the sampler that orders the entities
WIDE = {"model.init_range": 0.8, "loss.margin": 1.0}  # so that some negatives are far away
METHODS = ("uniform", "adv", "eans+adv", "softmax")


def recipe_of(name: str, graph: KnowledgeGraph, **more: Any) -> Recipe:
    sampler = more.get("sampler.name", load(f"default/{name}").sampler.name)
    own = ORDERED if sampler == "eans" else {}
    return resolve(load(f"default/{name}", SMALL | own | more), graph)


def trained(recipe: Recipe, graph: KnowledgeGraph, steps: int) -> Trainer:
    trainer = build_trainer(recipe, graph)
    for _ in range(steps):
        trainer.step()
    return trainer


def numbers(measurement: Measurement) -> dict[str, Any]:
    """All that no clock decided."""
    return {name: value for name, value in asdict(measurement).items() if name not in CLOCKS}


def same_state(one: Trainer, other: Trainer) -> bool:
    """Weights, optimizer, sampler and position, to the bit."""
    (a, here), (b, there) = one.state(), other.state()
    return here == there and a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# --- the numbers --------------------------------------------------------------------------------------------------


def brute_force(trainer: Trainer, graph: KnowledgeGraph, inspector: Inspector) -> dict[str, float]:
    """The same draws, counted one by one in Python; for the log-sigmoid loss with equal shares."""
    train, unused = ({tuple(t) for t in part.tolist()} for part in (graph.train, torch.cat([graph.valid, graph.test])))
    totals: Counter[str] = Counter()
    drawn: Counter[int] = Counter()
    generator = torch.Generator()
    for number, side in enumerate(SIDES):
        generator.manual_seed(measuring.mix(0, measuring.Purpose.INSPECT, 1 + number))
        size = trainer.stream.batch_size
        for first in range(0, len(inspector.triples), size):
            triples = inspector.triples[first : first + size]
            negatives = trainer.sampler.sample(triples, side, generator)
            for triple, row, masked in zip(triples, negatives.entities.tolist(), negatives.known_true, strict=True):
                positive = trainer.model.score(triple[None]).item()
                for place, entity in enumerate(row):
                    changed = triple.clone()
                    changed[column(side)] = entity
                    key = tuple(changed.tolist())
                    totals["draws"] += 1
                    totals["known"] += key in train
                    totals["held_out"] += key in unused and key not in train
                    totals["repeats"] += entity in row[place + 1 :]
                    drawn[entity] += 1
                    if not masked[place]:
                        score = trainer.model.score(changed[None]).item()
                        totals["open"] += 1
                        totals["gap"] += score - positive
                        totals["above"] += score > positive and entity != int(triple[column(side)])
                        totals["idle"] += 1.0 / (1.0 + exp(-score - trainer.loss.margin)) < 0.01
    draws, unmasked = totals["draws"], totals["open"]
    shares = [count / draws for count in drawn.values()]
    return {
        **{name: totals[name] / unmasked for name in ("gap", "above", "idle")},
        **{name: totals[name] / draws for name in ("known", "held_out", "repeats")},
        "masked": 1.0 - unmasked / draws,
        "entities": len(drawn) / graph.num_entities,
        "effective": exp(-sum(share * log(share) for share in shares)) / graph.num_entities,
    }


@pytest.mark.parametrize("policy", ["mask", "resample", "keep"])
@pytest.mark.parametrize("method", ["uniform", "gaussian"])
def test_numbers_against_brute_force(method: str, policy: str, make_graph: Callable[..., KnowledgeGraph]) -> None:
    graph = make_graph(30, 2, (120, 40, 40))
    recipe = recipe_of(f"transe/{method}", graph, **WIDE, **{"sampler.false_negatives": policy})
    trainer = trained(recipe, graph, 24)
    inspector = Inspector(trainer, graph, 50)  # not a multiple of the batch size
    measurement = inspector.measure()
    expected = brute_force(trainer, graph, inspector)
    for name, value in expected.items():
        assert getattr(measurement, name) == pytest.approx(value, rel=1e-5, abs=1e-9), name
    assert 0.0 < measurement.idle < 1.0
    assert (measurement.known > 0.0) == (policy != "resample")
    assert (measurement.masked > 0.0) == (policy == "mask")
    assert measurement.held_out > 0.0
    assert (measurement.step, measurement.step_ms, measurement.memory) == (24, None, trainer.sampler.memory())
    assert measurement.sampling_ms > 0.0


@pytest.mark.parametrize("method", METHODS)
def test_idle_negatives_are_those_without_gradient(method: str) -> None:
    """Whatever the loss: N times the gradient of a row by itself, as a share of the most that a row can have."""
    graph = ring_graph()
    trainer = trained(recipe_of(f"rotate/{method}", graph, **WIDE), graph, 24)
    inspector = Inspector(trainer, graph, 40)
    idle = unmasked = 0
    for number, side in enumerate(SIDES):
        inspector.generator.manual_seed(measuring.mix(0, measuring.Purpose.INSPECT, 1 + number))
        for triples in torch.split(inspector.triples, 32):
            entities, known, *_ = trainer.sampler.sample(triples, side, inspector.generator)
            for row in range(len(triples)):
                here = slice(row, row + 1)
                needs = trainer.loss.needs_substitution
                scores = trainer.model.training_scores(triples[here], side, entities[here], needs).detach()
                scores.negative.requires_grad_()
                proposal = torch.full((1, 6), -log(60.0)) if trainer.loss.needs_proposal else None
                found = total(trainer.loss(scores, known[here], torch.ones(1), proposal))
                pull = torch.autograd.grad(found, scores.negative)[0].abs() * 6 / trainer.loss.gradient_bound
                idle += int(((pull < 0.01) & ~known[here]).sum())
                unmasked += int((~known[here]).sum())
    assert inspector.measure().idle == pytest.approx(idle / unmasked)


def test_coverage_of_extremes() -> None:
    assert measuring._effective(torch.tensor([3, 3, 3, 3])) == pytest.approx(1.0)
    assert measuring._effective(torch.tensor([0, 7, 0, 0])) == pytest.approx(0.25)
    assert measuring._effective(torch.tensor([5, 5, 0, 0])) == pytest.approx(0.5)


def test_small_probes_and_bare_graphs() -> None:
    graph = KnowledgeGraph.from_labels([("a", "r", "b"), ("b", "r", "c")], name="bare")
    trainer = build_trainer(recipe_of("transe/uniform", graph), graph)
    inspector = Inspector(trainer, graph)
    assert len(inspector.triples) == 2
    assert inspector.measure().held_out is None  # nothing is held out
    with pytest.raises(UsageError, match="probe must be at least 1, got 0"):
        Inspector(trainer, graph, 0)


def test_nothing_drawn_is_nothing_counted(graph: KnowledgeGraph) -> None:
    """A sampler may draw nothing at all, or nothing that is not known to be true."""
    trainer = build_trainer(recipe_of("transe/uniform", graph), graph)
    inspector = Inspector(trainer, graph)
    sampler: Any = trainer.sampler
    sampler.sample = lambda triples, *_: Negatives(triples[:, 2:], torch.ones(len(triples), 1, dtype=torch.bool))
    measurement = inspector.measure()
    assert (measurement.gap, measurement.above, measurement.idle, measurement.masked) == (None, None, None, 1.0)
    sampler.sample = lambda triples, *_: Negatives(triples[:, :0], torch.ones(len(triples), 0, dtype=torch.bool))
    assert {name for name, value in numbers(inspector.measure()).items() if value is not None} == {"step", "memory"}


# --- training is not affected -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*METHODS, *(n for n, kind in SAMPLERS.items() if kind.draws and n not in METHODS)])
def test_an_inspected_run_ends_with_the_same_bits(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = ring_graph()
    few = {"sampler.negatives": 0} if method == "none" else {}  # one that draws nothing insists on it
    recipe = recipe_of(f"rotate/{method}", graph, **few)
    seen: list[Trainer] = []

    def remembered(*arguments: Any) -> Trainer:
        seen.append(build_trainer(*arguments))
        return seen[-1]

    monkeypatch.setattr(measuring, "build_trainer", remembered)
    before = torch.random.get_rng_state()
    inspection = inspect_training(recipe, graph, every=5, probe=50, device="cpu")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert [measurement.step for measurement in inspection.measurements] == [0, 5, 10, 15, 20, 24]
    assert same_state(seen[0], trained(recipe, graph, 24))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", ["transe", "transd", "complex"])
def test_inspection_does_not_change_a_recorded_run(model: str, method: str) -> None:
    """Measurements before, while and after the steps are recorded."""
    graph = ring_graph()
    recipe = recipe_of(f"{model}/{method}", graph)
    plain, watched = (build_trainer(recipe, graph, "cuda") for _ in range(2))
    inspector = Inspector(watched, graph, 50)
    for _ in range(24):
        plain.step()
        inspector.measure()
        watched.step()
    assert set(watched.work.graphs) == {"head", "tail"}
    assert same_state(plain, watched)


def test_a_limit_is_the_beginning_of_the_whole() -> None:
    graph = ring_graph()
    recipe = recipe_of("transe/eans", graph)
    whole, part = (inspect_training(recipe, graph, limit=limit, every=6, device="cpu") for limit in (None, 13))
    assert [measurement.step for measurement in part.measurements] == [0, 6, 12, 13]
    assert list(map(numbers, part.measurements[:3])) == list(map(numbers, whole.measurements[:3]))
    assert len(inspect_training(recipe, graph, limit=1000, device="cpu").measurements) == 13  # every second of 24 steps


def test_the_same_seed_finds_the_same() -> None:
    settings: dict[str, Any] = {"dim": 8, "steps": 20, "negatives": 4, "batch_size": 32, "every": 10, "device": "cpu"}
    first, again, other = (
        eans.inspect_sampler(ring_graph(), "transe", "eans", seed=seed, **settings) for seed in (3, 3, 4)
    )
    assert list(map(numbers, first.measurements)) == list(map(numbers, again.measurements))
    assert list(map(numbers, first.measurements)) != list(map(numbers, other.measurements))
    assert first.measurements[0].step_ms is None
    assert all(measurement.step_ms > 0.0 for measurement in first.measurements[1:])
    assert (first.recipe.train.steps, first.recipe.train.seed, first.probe) == (20, 3, 157)


def test_the_probe_does_not_follow_the_seed_of_training() -> None:
    """Two runs that differ in their seed: the same triples and the same draws, scored by other weights."""
    graph = ring_graph()
    recipes = [recipe_of("transe/uniform", graph, **{"train.seed": seed}) for seed in (3, 4)]
    one, other = (Inspector(build_trainer(recipe, graph), graph, 50) for recipe in recipes)
    assert torch.equal(one.triples, other.triples)
    first, second = one.measure(), other.measure()
    for name in ("masked", "known", "held_out", "entities", "effective", "repeats"):
        assert getattr(first, name) == getattr(second, name), name
    assert first.gap != second.gap


def test_progress_and_mistakes() -> None:
    graph, heard = ring_graph(), []
    recipe = recipe_of("transe/uniform", graph)
    inspect_training(recipe, graph, limit=3, device="cpu", progress=lambda done, total: heard.append((done, total)))
    assert heard == [(1, 3), (2, 3), (3, 3)]
    for options in ({"limit": 0}, {"every": 0}, {"probe": 0}):
        with pytest.raises(UsageError, match="at least 1"):
            inspect_training(recipe, graph, device="cpu", **options)


# --- finished runs ------------------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


@pytest.mark.parametrize("method", ["uniform", "eans+adv"])
def test_a_run_is_measured_as_it_ended(method: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"dim": 8, "steps": 20, "negatives": 4, "batch_size": 32, "lr": 0.02}
    settings |= {"reorder_every": 7} if method != "uniform" else {}
    eans.train(ring_graph(), "transe", method, out=tmp_path / "run", device="cpu", **settings)
    before = contents(tmp_path / "run")
    inspection = eans.inspect_run(tmp_path / "run", device="cpu")
    assert contents(tmp_path / "run") == before
    (measurement,) = inspection.measurements
    assert measurement.step_ms > 0.0
    on_the_way = eans.inspect_sampler(ring_graph(), "transe", method, every=20, device="cpu", **settings)
    assert numbers(measurement) == numbers(on_the_way.measurements[-1])


def test_a_run_without_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eans.train(ring_graph(), "transe", "uniform", out=tmp_path / "run", device="cpu", dim=4, steps=2)
    (tmp_path / "run" / "checkpoint.safetensors").unlink()
    with pytest.raises(RunError, match=r"checkpoint\.safetensors is missing"):
        eans.inspect_run(tmp_path / "run")
    (tmp_path / "run" / "metrics.json").unlink()
    monkeypatch.setenv("EANS_VERIFY", "0")  # as if it had never been there
    with pytest.raises(RunError, match="holds no weights yet"):
        eans.inspect_run(tmp_path / "run")
    with pytest.raises(UsageError, match="is not a run folder"):
        eans.inspect_run(tmp_path)


# --- what is written ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inspections() -> list[eans.Inspection]:
    graph = ring_graph()
    return [
        inspect_training(recipe_of(f"transe/{name}", graph), graph, every=8, device="cpu")
        for name in ("uniform", "eans")
    ]


def test_json_and_csv(inspections: list[eans.Inspection], tmp_path: Path) -> None:
    found = json.loads(to_json(inspections))
    assert [one["name"] for one in found] == ["default/transe/uniform", "default/transe/eans"]
    assert [one["sampler"] for one in found] == ["uniform", "eans"]
    assert found[0]["measurements"] == [asdict(measurement) for measurement in inspections[0].measurements]
    rows = list(csv.DictReader(io.StringIO(to_csv(inspections))))
    assert [(row["name"], int(row["step"])) for row in rows] == [
        (one.name, measurement.step) for one in inspections for measurement in one.measurements
    ]
    assert float(rows[1]["gap"]) == inspections[0].measurements[1].gap
    assert rows[0]["step_ms"] == ""
    save(inspections, tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder" / "inspection.csv").read_text() == to_csv(inspections)
    assert json.loads((tmp_path / "new" / "folder" / "inspection.json").read_text()) == found
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot create folder"):
        save(inspections, tmp_path / "file" / "x")


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["w/transe/eans", "w/transe/adv"], ["eans", "adv"]),
        (["w/transe/eans", "w/rotate/adv"], ["transe/eans", "rotate/adv"]),
        (["w/transe/eans"], ["eans"]),
        (["runs/a", "w/transe/eans"], ["a", "eans"]),
        (["runs/eans", "w/transe/eans"], ["runs/eans", "w/transe/eans"]),
        (["w/transe/eans", "w/transe/eans"], ["eans", "eans"]),
    ],
)
def test_short_names(names: list[str], short: list[str]) -> None:
    assert short_names(names) == short


def test_figure(inspections: list[eans.Inspection], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(inspections, tmp_path / "one")
    first = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert first.keys() == {"inspection.png", "inspection.svg"}
    assert b"uniform" not in first["inspection.png"]
    draw(inspections, tmp_path / "one")  # the same drawing is the same file
    assert first == {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    bare = KnowledgeGraph.from_labels([("a", "r", "b"), ("b", "r", "c")], name="bare")
    many = [inspect_training(recipe_of("transe/uniform", bare), bare, limit=1, device="cpu")] * 9
    draw(many, tmp_path / "many")  # more lines than colours, and nothing held out
    draw([inspections[0]], tmp_path / "single")


def test_names_in_a_figure_stand_apart_and_inside() -> None:
    for ends in ([0.5], [0.02, 0.03, 0.9], [0.97, 0.98, 0.99], [0.5] * 5, [0.0, 0.0, 1.0, 1.0]):
        found = label_heights(ends)
        assert min(found) >= 0.02 - 1e-9
        assert max(found) <= 0.98 + 1e-9
        ordered = sorted(found)
        assert all(high - low > 0.1 - 1e-9 for low, high in pairwise(ordered))


def test_figures_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    from eans.figures import require_matplotlib

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("eans.figures.find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"the extra 'figures' brings: pip install 'eans\[figures\]'"):
        require_matplotlib()
