"""The trainer: same bits for the same seed, schedules, validation, best weights, divergence, records."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import eans
from eans import training
from eans.batches import Purpose, mix
from eans.errors import Interrupted, UsageError
from eans.fitting import Observer, Plan, Progress, fit
from eans.graph import KnowledgeGraph
from eans.kernels.cache import outgrows_cache
from eans.models import MODELS
from eans.optimizer import OPTIMIZERS
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.samplers import SAMPLERS
from eans.training import TERMS, Diverged, Trainer
from helpers_runs import environment, ring_graph

SMALL = {"model.dim": 8, "sampler.negatives": 8, "train.batch_size": 32, "train.steps": 20}
DRAWING = (name for name, kind in SAMPLERS.items() if kind.draws)
METHODS = tuple(dict.fromkeys(("uniform", "adv", "eans", "eans+adv", "gaussian", "substitution", *DRAWING)))


def make(method: str = "transe/eans+adv", graph: KnowledgeGraph | None = None, **settings: Any) -> Trainer:
    """A trainer on the ring graph; settings are written ``train__lr=0.1``."""
    graph = graph or ring_graph()
    overrides = SMALL | {key.replace("__", "."): value for key, value in settings.items()}
    return build_trainer(resolve(load(f"default/{method}", overrides), graph), graph)


def run_steps(trainer: Trainer, steps: int) -> list[float]:
    return [trainer.step().total.item() for _ in range(steps)]


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
    settings = {"sampler__reorder_every": 3, "loss__penalty": "n3", "loss__penalty_weight": 1e-3}
    for method, stop in (("eans+adv", 7), ("eans+adv", 10), ("uniform", 13)):  # before, at and after the drop
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
    trainer = make(f"{model}/{method}", sampler__reorder_every=2)
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
        {"loss__detach": True},
        {"loss__penalty": "l3", "loss__penalty_weight": 1e-3},
        {"sampler__known_true": "repeats"},
        {"sampler__known_true": "repeats-everywhere", "sampler__boundary": "reflect"},
        {"loss__name": "logsigmoid", "sampler__false_negatives": "resample"},
        {"loss__name": "logsigmoid", "sampler__false_negatives": "keep"},
        {"model__name": "transd", "model__projection": "entity-table"},
        {"train__subsampling": False},
        {"train__subsampling": "query"},
        {"train__subsampling": "query", "train__subsampling_power": 1.0},
        {"train__subsampling": "answer"},
        {"train__optimizer": "adagrad", "train__lr_decay": "linear"},
        {"sampler__name": "sans", "sampler__pool_kind": "walks", "sampler__walks": 20, "sampler__walk_weights": True},
        {"sampler__name": "sans", "sampler__pool_kind": "walks", "sampler__walks": 20, "sampler__walk_restart": False},
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


def test_a_state_that_knows_fewer_terms_can_be_continued() -> None:
    trainer, other = make(), make()
    run_steps(trainer, 3)
    tensors, values = trainer.state()
    other.load_state(tensors | {"loss_sums": tensors["loss_sums"][:-1]}, values)
    assert torch.equal(other.sums, trainer.sums)  # the last term is none of this recipe's
    run_steps(other, 1)


@pytest.mark.parametrize("sampler", ["eans", "nscaching"])
def test_samplers_hear_of_steps_counted_from_one(sampler: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(training, "outgrows_cache", lambda _: outgrown)
    trainer = make(f"transe/{method}", sampler__negatives=negatives)
    assert trainer.sampler.sorts == sorts
    pending = trainer.optimizer.pending[0]
    assert pending is None or pending.across == sorts
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
    for _ in range(2):
        drawn.append(whole.model.dropout(5, 0.4, whole._seeded(Purpose.DRAW)))
        whole.completed += 1
    assert not torch.equal(*drawn)


def test_a_distance_refuses_dropout() -> None:
    with pytest.raises(UsageError, match=r"'transe' compares by a distance, of which train\.dropout can leave no part"):
        make("transe/uniform", train__dropout=0.1)


def test_a_model_that_cannot_predict_relations_says_so() -> None:
    with pytest.raises(UsageError, match="'rotate' is not linear in the relation"):
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
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
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
    ],
    ids=str,
)
def test_validation_cadence_and_early_stopping(
    plan: Plan, scores: list[float], validated: list[int], completed: int, best: int
) -> None:
    trainer = make(train__steps=10)
    steps, validate = scripted(trainer, scores)
    better: list[int] = []
    progress = fit(trainer, plan, validate, observer=Observer(best=lambda trainer: better.append(trainer.completed)))
    assert (steps, trainer.completed, progress.best_step) == (validated, completed, best)
    assert better[-1:] == ([best] if best else [])


def test_early_stopping_is_resumed_as_stopped() -> None:
    trainer = make(train__steps=10)
    _, validate = scripted(trainer, [0.2, 0.1])
    progress = fit(trainer, Plan(valid_every=2, patience=1), validate)
    assert fit(trainer, Plan(valid_every=2, patience=1), validate, progress) is progress
    assert trainer.completed == 4


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

    def keep(trainer: Trainer, progress: Progress) -> None:
        del progress
        saved.append({name: value.clone() for name, value in trainer.state()[0].items()})

    with pytest.raises(Diverged, match=r"^the loss is not finite by step \d+ .*lower train.lr.*$") as caught:
        fit(trainer, Plan(checkpoint_every=1), observer=Observer(checkpoint=keep))
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
    observer = Observer(
        checkpoint=lambda trainer, _: saved.append(trainer.completed), stop=lambda: trainer.completed == 7
    )
    with pytest.raises(Interrupted, match="stopped at step 7 of 20"):
        fit(trainer, Plan(), observer=observer)
    assert saved == [7]


def test_records() -> None:
    trainer = make(train__steps=25)
    records: list[dict[str, Any]] = []
    losses: list[float] = []
    original = trainer.step

    def step() -> Any:
        terms = original()
        losses.append(terms.total.item())
        return terms

    trainer.step = step  # type: ignore[method-assign]
    progress = fit(trainer, Plan(log_every=10), observer=Observer(log=records.append))
    assert [record["step"] for record in records] == [10, 20, 25]
    for record, window in zip(records, (losses[:10], losses[10:20], losses[20:]), strict=True):
        assert list(record) == ["step", *TERMS, "lr", "seconds", "triples_per_second"]
        assert record["loss"] == pytest.approx(sum(window) / len(window), rel=1e-5)
        assert record["loss"] == pytest.approx(sum(record[name] for name in TERMS[1:]), rel=1e-5)
        assert record["triples_per_second"] > 0
    assert [record["lr"] for record in records] == pytest.approx([1e-3, 1e-4, 1e-4])
    seconds = [record["seconds"] for record in records]
    assert 0 < seconds[0] < seconds[1] < seconds[2] <= round(progress.seconds, 3)


def test_speed_counts_all_steps_of_its_window() -> None:
    trainer = make(train__steps=200)
    _, validate = scripted(trainer, [0.1] * 10)
    records: list[dict[str, Any]] = []
    start = time.perf_counter()
    fit(trainer, Plan(log_every=50, valid_every=40), validate, observer=Observer(log=records.append))
    spent = time.perf_counter() - start
    speeds = [record["triples_per_second"] for record in records if "loss" in record]
    assert 0.6 * spent < sum(50 * 32 / speed for speed in speeds) <= spent


def test_a_validation_record_has_the_time_of_its_step() -> None:
    trainer = make()
    _, validate = scripted(trainer, [0.1] * 2)
    records: list[dict[str, Any]] = []
    observer = Observer(log=records.append, tick=lambda _: time.sleep(0.01))
    fit(trainer, Plan(log_every=20, valid_every=10), validate, observer=observer)
    (first, *_) = [record for record in records if "valid" in record]
    assert first["seconds"] >= 0.09


def test_a_used_trainer_can_be_rewound() -> None:
    trainer = make()
    start = trainer.state()
    beginning = ({name: value.clone() for name, value in start[0].items()}, start[1])
    run_steps(trainer, 5)
    expected = digest(trainer)
    trainer.load_state(*beginning)
    run_steps(trainer, 5)
    assert digest(trainer) == expected


def test_speed_after_a_resume_counts_the_steps_since() -> None:
    def slowly(_: Trainer) -> None:
        time.sleep(0.005)

    progress = Progress()
    first = make(train__steps=100)
    with pytest.raises(Interrupted):
        fit(first, Plan(log_every=50), None, progress, Observer(tick=slowly, stop=lambda: first.completed == 45))
    assert progress.seconds >= 45 * 0.005
    second = make(train__steps=100)
    second.load_state(*first.state())
    records: list[dict[str, Any]] = []
    fit(second, Plan(log_every=50), None, progress, Observer(log=records.append, tick=slowly))
    assert [record["step"] for record in records] == [50, 100]
    assert all(record["triples_per_second"] <= second.stream.batch_size / 0.005 * 1.3 for record in records)


def test_random_streams_are_apart() -> None:
    seeds = [mix(seed, purpose, count) for seed in range(3) for purpose in Purpose for count in range(50)]
    assert len(set(seeds)) == len(seeds)
