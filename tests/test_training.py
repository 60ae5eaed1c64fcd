"""The trainer: same bits for the same seed, schedules, validation, best weights, divergence, records."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import eans
from eans import execution
from eans.batches import Purpose, mix
from eans.errors import Interrupted, UsageError
from eans.fitting import Plan, fit
from eans.graph import KnowledgeGraph
from eans.kernels.gpu_cache import outgrows_cache
from eans.listener import Listener
from eans.models import MODELS, Model
from eans.objective import total
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.samplers import SAMPLERS
from eans.stores import MemoryStore, Progress
from eans.training import Diverged, Trainer
from helpers_runs import environment, ring_graph

SMALL = {"model.dim": 8, "sampler.negatives": 8, "train.batch_size": 32, "train.steps": 20}
DRAWING = (name for name, kind in SAMPLERS.items() if kind.draws)
METHODS = tuple(dict.fromkeys(("uniform", "adv", "eans", "eans+adv", "gaussian", "substitution", *DRAWING)))


def make(method: str = "transe/eans+adv", graph: KnowledgeGraph | None = None, **settings: Any) -> Trainer:
    """A trainer on the ring graph; settings are written ``train__lr=0.1``."""
    graph = graph or ring_graph()
    overrides = SMALL | {key.replace("__", "."): value for key, value in settings.items()}
    return build_trainer(resolve(load(f"default/{method}", overrides), graph), graph)


def reordered(method: str, every: int) -> dict[str, Any]:
    """The setting of a method that orders the entities, for `make`."""
    return {"sampler__reorder_every": every} if load(f"default/{method}").sampler.name == "eans" else {}


def run_steps(trainer: Trainer, steps: int) -> list[float]:
    """The loss of each, without what is added to it."""
    terms = (trainer.step() for _ in range(steps))
    return [sum(found[name].item() for name in trainer.loss.terms) for found in terms]


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def digest(trainer: Trainer) -> str:
    state, _ = trainer.state()
    return hashlib.sha256(b"".join(state[name].numpy().tobytes() for name in sorted(state))).hexdigest()


@pytest.mark.parametrize("method", ["transe/eans+adv", "rotate/uniform", "complex/substitution"])
def test_same_seed_same_bits(method: str) -> None:
    first, second, other = make(method), make(method), make(method, train__seed=1)
    losses = [run_steps(trainer, 15) for trainer in (first, second, other)]
    assert losses[0] == losses[1] != losses[2]
    assert same(first.state()[0], second.state()[0])
    assert not torch.equal(first.model.entity, other.model.entity)


def test_same_bits_in_another_process() -> None:
    trainer = make(sampler__reorder_every=4)
    run_steps(trainer, 12)
    program = (
        "from test_training import make, run_steps, digest; t = make(sampler__reorder_every=4); "
        "run_steps(t, 12); print(digest(t))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parent,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == digest(trainer)


@pytest.mark.parametrize("model", MODELS)
def test_state_in_the_middle_continues_to_the_same_bits(model: str) -> None:
    penalty = {"loss__penalty": "n3", "loss__penalty_weight": 1e-3}
    for method, stop in (("eans+adv", 7), ("eans+adv", 10), ("uniform", 13)):  # before, at and after the drop
        settings = penalty | reordered(f"{model}/{method}", 3)
        whole, first, second = (make(f"{model}/{method}", **settings) for _ in range(3))
        expected = run_steps(whole, 20)
        begun = run_steps(first, stop)
        tensors, values = first.state()
        second.load_state({name: value.clone() for name, value in tensors.items()}, values)
        assert begun + run_steps(second, 20 - stop) == expected, (method, stop)
        assert same(second.state()[0], whole.state()[0]), (method, stop)


@pytest.mark.parametrize("method", ["transe/eans+adv", "transd/eans", "complex/uniform"])
def test_adagrad_continues_to_the_same_bits(method: str) -> None:
    settings = {"train__optimizer": "adagrad", "loss__penalty": "l3", "loss__penalty_weight": 1e-3}
    for stop in (7, 10, 13):  # before, at and after the drop
        whole, first, second = (make(method, **settings) for _ in range(3))
        expected = run_steps(whole, 20)
        begun = run_steps(first, stop)
        tensors, values = first.state()
        assert {name.split(".")[2] for name in tensors if name.startswith("optimizer.")} == {"step", "sum"}
        second.load_state({name: value.clone() for name, value in tensors.items()}, values)
        assert begun + run_steps(second, 20 - stop) == expected, stop
        assert same(second.state()[0], whole.state()[0]), stop


@pytest.mark.parametrize(("ours", "theirs"), [("adam", "adagrad"), ("adagrad", "adam")])
def test_a_state_of_another_optimizer_does_not_fit(ours: str, theirs: str) -> None:
    trainer, other = make(train__optimizer=ours), make(train__optimizer=theirs)
    run_steps(trainer, 2)
    with pytest.raises(KeyError):  # which a run folder turns into one line
        other.load_state(*trainer.state())


@pytest.mark.parametrize(("optimizer", "lr"), [("adam", 0.02), ("adagrad", 0.2)])
@pytest.mark.parametrize("method", ["transe/uniform", "rotate/eans+adv", "distmult/adv"])
def test_loss_falls(method: str, optimizer: str, lr: float) -> None:
    settings = {"train__steps": 300, "train__optimizer": optimizer, "train__lr": lr, "model__dim": 16}
    losses = run_steps(make(method, **settings), 300)
    assert sum(losses[-20:]) < 0.8 * sum(losses[:20])


def test_loss_falls_on_the_bundled_graph() -> None:
    graph = eans.load("wordnet-core")
    trainer = make("transe/eans", graph, train__lr=0.01, train__batch_size=512, train__steps=120, model__dim=32)
    losses = run_steps(trainer, 120)
    assert sum(losses[-10:]) < 0.75 * sum(losses[:10])


@pytest.mark.parametrize(("model", "method"), list(itertools.product(MODELS, METHODS)))
def test_every_combination_takes_steps(model: str, method: str) -> None:
    trainer = make(f"{model}/{method}", **reordered(f"{model}/{method}", 2))
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    losses = run_steps(trainer, 4)
    assert all(math.isfinite(loss) for loss in losses)
    assert trainer.is_sound()
    assert all(not torch.equal(before[name], value) for name, value in trainer.model.state_dict().items())


@pytest.mark.parametrize(
    "settings",
    [
        *({"sampler__name": name, "sampler__uniform_share": 0.3} for name, kind in SAMPLERS.items() if kind.draws),
        {"loss__form": "paper"},
        {"loss__penalty": "l3", "loss__penalty_weight": 1e-3},
        {"sampler__known_true": "repeats"},
        {"sampler__known_true": "repeats-everywhere"},
        {"loss__name": "logsigmoid", "sampler__false_negatives": "resample"},
        {"loss__name": "logsigmoid", "sampler__false_negatives": "keep"},
        {"model__name": "transd", "model__projection": "entity-table"},
        {"train__subsampling": False},
        {"train__subsampling": "query"},
        {"train__subsampling": "query", "train__subsampling_power": 1.0},
        {"train__subsampling": "answer"},
        {"train__optimizer": "adagrad", "train__lr_decay": "linear"},
        {"sampler__name": "sans", "sampler__kind": "walks", "sampler__walks": 20, "sampler__by_visits": True},
        {"sampler__name": "sans", "sampler__kind": "walks", "sampler__walks": 20, "sampler__restart": False},
        {"model__reciprocal": True},
        {"model__name": "transr", "model__relation_dim": 3},
        {"model__name": "complex", "loss__relation_weight": 0.5},
        {"model__name": "rescal", "loss__relation_weight": 0.5, "model__reciprocal": True},
        {"model__name": "complex", "train__dropout": 0.5},
        {"model__name": "distmult", "sampler__name": "all", "sampler__negatives": 0, "train__dropout": 0.3},
    ],
    ids=lambda settings: ",".join(f"{key}={value}" for key, value in settings.items()),
)
def test_every_option_takes_steps(settings: dict[str, Any]) -> None:
    trainer = make(**settings)
    assert all(math.isfinite(loss) for loss in run_steps(trainer, 4))


@pytest.mark.parametrize("method", ["distmult/uniform", "complex/adv", "transe/eans"])
def test_the_l3_penalty_is_that_of_both_tables(method: str) -> None:
    trainer = make(method, loss__penalty="l3", loss__penalty_weight=0.3)
    entity, relation = (table.detach().double().abs().pow(3).sum().item() for table in trainer.model.parameters())
    trainer.step()
    assert relation > 0.01 * entity
    assert trainer.take_means(1)["l3"] == pytest.approx(0.3 * (entity + relation), rel=1e-5)


def test_a_state_that_knows_fewer_terms_can_be_continued() -> None:
    """States of earlier versions do not name their terms: six or five, the same ones for every loss."""
    settings = {"loss__penalty": "n3", "loss__penalty_weight": 0.1}
    trainer, other, third = (make("transe/uniform", **settings) for _ in range(3))
    run_steps(trainer, 3)
    tensors, values = trainer.state()
    assert values.pop("loss_names") == ["loss", "positive", "negative", "n3"]
    loss, positive, negative, penalty = tensors["loss_sums"].tolist()
    for fewer, count in ((other, 6), (third, 5)):
        sums = torch.tensor([loss, positive, negative, 0.0, penalty, 0.0][:count])
        fewer.load_state(tensors | {"loss_sums": sums}, values)
        assert fewer.state()[0]["loss_sums"].tolist() == [loss, positive, negative, penalty]
        run_steps(fewer, 1)


@pytest.mark.parametrize("name", ["softmax", "hinge"])
def test_a_loss_of_one_term_continues_from_an_earlier_state(name: str) -> None:
    trainer = make("transe/uniform", loss__name=name)
    tensors, values = trainer.state()
    del values["loss_names"]
    trainer.load_state(tensors | {"loss_sums": torch.tensor([5.0, 0.0, 5.0, 0.0, 0.0, 0.0])}, values)
    assert trainer.take_means(2) == {"loss": 2.5, name: 2.5}


@pytest.mark.parametrize("sampler", ["eans", "nscaching"])
def test_samplers_observe_steps_counted_from_one(sampler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make(f"transe/{sampler}")
    heard: list[int] = []
    monkeypatch.setattr(trainer.sampler, "observe", lambda outcome: heard.append(outcome.step))
    run_steps(trainer, 3)
    assert heard == [1, 2, 3]


@pytest.mark.parametrize(
    ("method", "negatives", "outgrown", "sorts"),
    [
        ("uniform", 64, True, True),
        ("uniform", 64, False, False),
        ("uniform", 63, True, False),
        ("eans", 64, True, False),
        ("igan", 64, True, False),
    ],
)
def test_candidates_are_sorted_where_it_pays(
    method: str, negatives: int, outgrown: bool, sorts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many candidates, a table that is larger than the cache, and no line along which they stand anyway."""
    assert not make(f"transe/{method}", sampler__negatives=negatives).sampler.sorts  # a CPU gains nothing
    monkeypatch.setattr(execution, "outgrows_cache", lambda _: outgrown)
    trainer = make(f"transe/{method}", sampler__negatives=negatives)
    assert trainer.sampler.sorts == sorts
    deferred = trainer.optimizer.deferred[0]
    assert deferred is None or deferred.across == sorts
    run_steps(trainer, 3)


def test_a_cache_is_outgrown_by_twice_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnGpu:
        is_cuda, device = True, "cuda:0"

        def __init__(self, size: int) -> None:
            self.size = size

        def untyped_storage(self) -> OnGpu:
            return self

        def nbytes(self) -> int:
            return self.size

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(L2_cache_size=50))
    assert [outgrows_cache(OnGpu(size)) for size in (99, 100, 101)] == [False, False, True]  # type: ignore[arg-type]
    assert not outgrows_cache(torch.zeros(9))


def test_relations_are_learnt() -> None:
    settings = {"loss__relation_weight": 1.0, "train__lr": 0.05, "train__steps": 60}
    trainer = make("complex/eans", **settings)
    run_steps(trainer, 10)
    first = trainer.take_means(10)["relation"]
    run_steps(trainer, 40)
    trainer.take_means(40)
    run_steps(trainer, 10)
    assert 0.0 < trainer.take_means(10)["relation"] < 0.5 * first


def test_dropout_follows_the_seed_and_the_step() -> None:
    """The same bits again, and after an interruption; others than without it, and than at the step before."""
    whole, first, second = (make("complex/uniform", train__dropout=0.4) for _ in range(3))
    run_steps(whole, 6)
    run_steps(first, 3)
    second.load_state(*first.state())
    run_steps(second, 3)
    assert digest(second) == digest(whole)
    plain = make("complex/uniform")
    run_steps(plain, 6)
    assert digest(plain) != digest(whole)
    drawn = []

    def seeded(trainer: Trainer) -> torch.Generator:
        return torch.Generator().manual_seed(mix(trainer.seed, Purpose.DRAW, trainer.completed))

    for _ in range(2):
        drawn.append(whole.model.dropout(5, 0.4, seeded(whole)))
        whole.completed += 1
    assert not torch.equal(*drawn)


def test_dropout_is_unsupported_for_a_distance() -> None:
    with pytest.raises(
        UsageError, match=r"'transe' compares by a distance, .*, which train\.dropout needs; .* 'distmult'"
    ):
        make("transe/uniform", train__dropout=0.1)


def test_a_model_that_cannot_predict_relations_says_so() -> None:
    with pytest.raises(
        UsageError, match=r"'rotate' is not linear in the relation, which loss\.relation_weight needs; .* 'distmult'"
    ):
        make("rotate/eans", loss__relation_weight=1.0)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [  # (learning rate, age of Adam's moments) of steps 1, 2, ...
        ({}, [(0.1, 1), (0.1, 2), (0.1, 3), (0.01, 1), (0.01, 2), (0.01, 3)]),
        ({"reset_optimizer": False}, [(0.1, 1), (0.1, 2), (0.1, 3), (0.01, 4), (0.01, 5), (0.01, 6)]),
        ({"lr_drop": 0.5}, [(0.1, 1), (0.1, 2), (0.1, 3), (0.05, 1), (0.05, 2), (0.05, 3)]),
        ({"lr_drop": 1.0}, [(0.1, n) for n in range(1, 7)]),
        ({"lr_drop_at": 1.0}, [(0.1, n) for n in range(1, 7)]),
        ({"lr_drop_at": 0.0}, [(0.01, n) for n in range(1, 7)]),
        ({"lr_decay": "linear"}, [(0.1, 1), (0.0834, 2), (0.0667, 3), (0.05, 4), (0.0334, 5), (0.0167, 6)]),
        ({"lr_drop_at": 0.34}, [(0.1, 1), (0.1, 2), (0.01, 1), (0.01, 2), (0.01, 3), (0.01, 4)]),
    ],
    ids=str,
)
def test_learning_rate_drop(settings: dict[str, Any], expected: list[tuple[float, int]]) -> None:
    trainer = make(train__steps=6, train__lr=0.1, **{f"train__{key}": value for key, value in settings.items()})
    seen = []
    for _ in range(6):
        trainer.step()
        ages = {int(state["step"]) for state in trainer.optimizer.state.values()}
        assert len(ages) == 1
        seen.append((float(trainer.optimizer.rate), ages.pop()))
    assert seen == [(pytest.approx(rate), age) for rate, age in expected]


@pytest.mark.usefixtures("plain_kernels")
def test_moments_are_fresh_after_the_drop() -> None:
    trainer = make(train__steps=4)
    run_steps(trainer, 3)
    moment = trainer.optimizer.state[trainer.model.entity]["exp_avg"]
    gradient = trainer.model.entity.grad
    assert gradient is not None
    torch.testing.assert_close(moment, 0.1 * gradient)  # (1 - beta_1) times the one gradient since the drop


@pytest.mark.usefixtures("plain_kernels")
def test_the_sum_is_fresh_after_the_drop() -> None:
    trainer = make(train__steps=4, train__optimizer="adagrad")
    run_steps(trainer, 3)
    gradient = trainer.model.entity.grad
    assert gradient is not None
    torch.testing.assert_close(trainer.optimizer.state[trainer.model.entity]["sum"], gradient.square())


@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_sides_alternate_and_rows_without_gradient_move_by_momentum_only(optimizer: str) -> None:
    settings = {"train__batch_size": 2, "sampler__negatives": 1, "train__optimizer": optimizer}
    trainer = make("transe/uniform", ring_graph(400), **settings)
    assert [trainer.stream[step].side for step in range(4)] == ["tail", "head", "tail", "head"]
    trainer.step()
    touched = trainer.model.entity.grad.abs().sum(1) > 0
    before = trainer.model.entity.detach().clone()
    trainer.step()
    untouched_now = touched & (trainer.model.entity.grad.abs().sum(1) == 0)
    assert untouched_now.any()
    moved = (trainer.model.entity.detach() != before)[untouched_now]
    assert moved.all() if optimizer == "adam" else not moved.any()


def scripted(trainer: Trainer, scores: list[float]) -> tuple[list[int], Any]:
    """A validation that answers with the given MRRs in turn, and the list of steps at which it was asked."""
    steps: list[int] = []

    def validate() -> dict[str, Any]:
        steps.append(trainer.completed)
        return {"both": {"mrr": scores[len(steps) - 1]}}

    return steps, validate


@pytest.mark.parametrize(
    ("plan", "scores", "validated", "completed", "best"),
    [
        (Plan(valid_every=4), [0.1, 0.2, 0.3], [4, 8, 10], 10, 10),
        (Plan(valid_every=5), [0.2, 0.1], [5, 10], 10, 5),
        (Plan(), [], [], 10, 0),
        (Plan(valid_every=2, patience=2), [0.1, 0.3, 0.2, 0.3], [2, 4, 6, 8], 8, 4),  # an equal score is no better
        (Plan(valid_every=2, patience=1), [0.3, 0.2], [2, 4], 4, 2),
        (Plan(valid_every=2, patience=2), [0.1, 0.05, 0.2, 0.1, 0.3], [2, 4, 6, 8, 10], 10, 10),
        # What comes up to step 4 does not count, but for the best.
        (Plan(valid_every=2, patience=1, patience_from=4), [0.3, 0.2, 0.1], [2, 4, 6], 6, 2),
        (Plan(valid_every=2, patience=2, patience_from=3), [0.3, 0.2, 0.1, 0.4], [2, 4, 6], 6, 2),
        (Plan(valid_every=2, patience=1, patience_from=4), [0.3, 0.2, 0.4, 0.1], [2, 4, 6, 8], 8, 6),
    ],
    ids=str,
)
def test_validation_cadence_and_early_stopping(
    plan: Plan, scores: list[float], validated: list[int], completed: int, best: int
) -> None:
    trainer = make(train__steps=10)
    steps, validate = scripted(trainer, scores)
    better: list[int] = []

    class Store(MemoryStore):
        def save_best(self, model: Model) -> None:
            assert model is trainer.model
            better.append(trainer.completed)

    progress = fit(trainer, plan, validate, store=Store())
    assert (steps, trainer.completed, progress.best_step) == (validated, completed, best)
    assert better == []
    trainer = make(train__steps=10)
    fit(trainer, replace(plan, keep_best=True), scripted(trainer, scores)[1], store=Store())
    assert better[-1:] == ([best] if best else [])


def test_early_stopping_is_resumed_as_stopped() -> None:
    trainer = make(train__steps=10)
    _, validate = scripted(trainer, [0.2, 0.1])
    progress = fit(trainer, Plan(valid_every=2, patience=1), validate)
    assert fit(trainer, Plan(valid_every=2, patience=1), validate, progress) is progress
    assert trainer.completed == 4


@pytest.mark.parametrize("folder", [False, True], ids=["in memory", "in a folder"])
@pytest.mark.parametrize(("seed", "kept"), [(0, "last"), (1, "best")])
def test_a_sample_of_the_valid_triples_does_not_decide_alone(
    folder: bool, seed: int, kept: str, tmp_path: Path
) -> None:
    """The best by one triple is kept if it is better than the last by all of them."""
    settings: dict[str, Any] = {"dim": 8, "batch_size": 32, "negatives": 8, "lr": 0.1, "lr_drop": 1.0, "seed": seed}
    settings |= {"valid_every": 5, "valid_triples": 1, "patience": 0, "progress": False}
    out = tmp_path / "run" if folder else None
    run = eans.train(ring_graph(), "transe", "eans", out=out, steps=60, keep="best", **settings)
    best = run.metrics["training"]["best_valid_step"]
    assert best < 60, "the case shows nothing if the last weights are the best"
    mrr = {}
    for name, steps in (("last", 60), ("best", best)):
        other = eans.train(ring_graph(), "transe", "eans", steps=steps, keep="last", **settings)
        mrr[name] = other.metrics["valid"]["both"]["mrr"]
        if name == kept:
            assert torch.equal(run.model.entity, other.model.entity)
            assert run.metrics["valid"] == other.metrics["valid"]
    assert mrr[kept] == max(mrr.values())
    assert run.metrics["training"]["kept_step"] == {"last": 60, "best": best}[kept]


@pytest.mark.parametrize("folder", [False, True], ids=["in memory", "in a folder"])
def test_keep_best_ends_with_the_best_weights(folder: bool, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"dim": 8, "batch_size": 32, "negatives": 8, "lr": 0.3, "lr_drop": 1.0, "valid_every": 5}
    graph = ring_graph()
    out = tmp_path / "run" if folder else None
    run = eans.train(graph, "transe", "eans", out=out, steps=60, keep="best", **settings)
    validations = {record["step"]: record["valid"]["both"]["mrr"] for record in run.history if "valid" in record}
    best = max(validations, key=lambda step: validations[step])
    assert best < 60, "the case shows nothing if the last weights are the best"
    assert run.metrics["training"]["best_valid_step"] == best
    assert run.metrics["valid"]["both"]["mrr"] == validations[best]
    shorter = eans.train(graph, "transe", "eans", steps=best, **settings)
    assert same(dict(run.model.state_dict()), dict(shorter.model.state_dict()))
    if folder:
        assert same(dict(eans.Run.load(tmp_path / "run").model.state_dict()), dict(run.model.state_dict()))


@pytest.mark.parametrize(
    "settings",
    [{"train__lr": 1e38}, {"model__init_range": 1e38}, {"loss__penalty": "l3", "loss__penalty_weight": 1e38}],
    ids=str,
)
@pytest.mark.parametrize("method", ["transe/adv", "distmult/uniform", "rotate/adv"])
def test_divergence_stops_with_one_line(method: str, settings: dict[str, Any]) -> None:
    trainer = make(method, **settings)
    saved: list[dict[str, Tensor]] = []

    class Store(MemoryStore):
        def save_checkpoint(self, trainer: Trainer, progress: Progress) -> None:
            del progress
            saved.append({name: value.clone() for name, value in trainer.state()[0].items()})

    with pytest.raises(Diverged, match=r"^the loss is not finite by step \d+ .*lower train.lr.*$") as caught:
        fit(trainer, Plan(checkpoint_every=1), store=Store())
    assert isinstance(caught.value, eans.RunError)
    assert "\n" not in str(caught.value)
    assert all(bool(torch.isfinite(value).all()) for state in saved for value in state.values())


@pytest.mark.parametrize("rate", [1e20, 1e38])
@pytest.mark.parametrize("model", MODELS)
def test_divergence_is_found_before_entities_are_ordered(model: str, rate: float) -> None:
    trainer = make(f"{model}/eans+adv", train__lr=rate, sampler__reorder_every=1)
    # Distances of 1e20 still give a finite, if absurd, loss where embeddings are only added.
    finite = model in ("transe", "transh") and rate == 1e20
    with contextlib.nullcontext() if finite else pytest.raises(Diverged):
        fit(trainer, Plan(checkpoint_every=1))


def test_interruption_saves_first() -> None:
    trainer = make()
    saved: list[int] = []

    class Store(MemoryStore):
        def save_checkpoint(self, trainer: Trainer, progress: Progress) -> None:
            del progress
            saved.append(trainer.completed)

    with pytest.raises(Interrupted, match="stopped at step 7 of 20"):
        fit(trainer, Plan(), store=Store(), listener=Listener(stop=lambda: trainer.completed == 7))
    assert saved == [7]


def test_records() -> None:
    trainer = make(train__steps=25)
    records: list[dict[str, Any]] = []
    losses: list[float] = []
    original, terms = trainer.step, ("positive", "negative", "substitution")

    def step() -> Any:
        terms = original()
        losses.append(total(terms).item())
        return terms

    trainer.step = step  # type: ignore[method-assign]
    progress = fit(trainer, Plan(log_every=10), listener=Listener(log=records.append))
    assert [record["step"] for record in records] == [10, 20, 25]
    for record, window in zip(records, (losses[:10], losses[10:20], losses[20:]), strict=True):
        assert list(record) == ["step", "loss", *terms, "lr", "seconds", "triples_per_second"]
        assert record["loss"] == pytest.approx(sum(window) / len(window), rel=1e-5)
        assert record["loss"] == pytest.approx(sum(record[name] for name in terms), rel=1e-5)
        assert record["triples_per_second"] > 0
    assert [record["lr"] for record in records] == pytest.approx([1e-3, 1e-4, 1e-4])
    seconds = [record["seconds"] for record in records]
    assert 0 < seconds[0] < seconds[1] < seconds[2] <= round(progress.seconds, 3)


def test_speed_counts_all_steps_of_its_window() -> None:
    trainer = make(train__steps=200)
    _, validate = scripted(trainer, [0.1] * 10)
    records: list[dict[str, Any]] = []
    start = time.perf_counter()
    fit(trainer, Plan(log_every=50, valid_every=40), validate, listener=Listener(log=records.append))
    spent = time.perf_counter() - start
    speeds = [record["triples_per_second"] for record in records if "loss" in record]
    assert 0.6 * spent < sum(50 * 32 / speed for speed in speeds) <= spent


def test_a_validation_record_has_the_time_of_its_step() -> None:
    trainer = make()
    _, validate = scripted(trainer, [0.1] * 2)
    records: list[dict[str, Any]] = []
    listener = Listener(log=records.append, tick=lambda _: time.sleep(0.01))
    fit(trainer, Plan(log_every=20, valid_every=10), validate, listener=listener)
    (first, *_) = [record for record in records if "valid" in record]
    assert first["seconds"] >= 0.09


@pytest.mark.parametrize("begun", [0, 3])
def test_a_used_trainer_can_be_rewound(begun: int) -> None:
    """As often as wanted: the steps that follow do not change what was loaded."""
    trainer = make(sampler__reorder_every=2)
    run_steps(trainer, begun)
    start = trainer.state()
    beginning = ({name: value.clone() for name, value in start[0].items()}, start[1])
    run_steps(trainer, 5)
    expected = digest(trainer)
    for _ in range(2):
        trainer.load_state(*beginning)
        run_steps(trainer, 5)
        assert digest(trainer) == expected


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("transe/eans+adv", {}),
        ("complex/nscaching", {}),
        ("distmult/kbgan", {}),
        ("complex/all+n3", {"sampler__negatives": 0, "train__rows": "bfloat16"}),
    ],
)
def test_trainers_that_share_a_state_go_their_own_ways(method: str, settings: dict[str, Any], optimizer: str) -> None:
    """One goes on, the other loads what the first one holds; neither feels the steps of the other."""
    whole, first, second = (make(method, train__optimizer=optimizer, **settings) for _ in range(3))
    run_steps(whole, 9)
    run_steps(first, 5)
    second.load_state(*first.state())
    held = {value.data_ptr() for value in first.state()[0].values()}
    assert not held & {value.data_ptr() for value in second.state()[0].values()}
    for _ in range(4):
        run_steps(first, 1)
        run_steps(second, 1)
    assert same(first.state()[0], whole.state()[0])
    assert same(second.state()[0], whole.state()[0])


def test_speed_after_a_resume_counts_the_steps_since() -> None:
    def slowly(_: int) -> None:
        time.sleep(0.005)

    progress = Progress()
    first = make(train__steps=100)
    with pytest.raises(Interrupted):
        fit(first, Plan(log_every=50), None, progress, None, Listener(tick=slowly, stop=lambda: first.completed == 45))
    assert progress.seconds >= 45 * 0.005
    second = make(train__steps=100)
    second.load_state(*first.state())
    records: list[dict[str, Any]] = []
    store = MemoryStore()
    fit(second, Plan(log_every=50), None, progress, store, Listener(log=records.append, tick=slowly))
    assert store.log() == records
    assert [record["step"] for record in records] == [50, 100]
    assert all(record["triples_per_second"] <= second.stream.batch_size / 0.005 * 1.3 for record in records)


def test_random_streams_are_apart() -> None:
    seeds = [mix(seed, purpose, count) for seed in range(3) for purpose in Purpose for count in range(50)]
    assert len(set(seeds)) == len(seeds)
