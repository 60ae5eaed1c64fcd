"""Optimizers whose steps touch the rows that they use alone: row-adagrad and lazy-adam, in whole trainings."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import eans
from eans import kernels
from eans.errors import Interrupted, UsageError
from eans.evaluation import rank
from eans.graph import KnowledgeGraph
from eans.listener import Listener
from eans.optimizer import LazyAdam, RowAdagrad
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.runs import RunFolder
from eans.training import Trainer
from helpers_graphs import random_graph
from helpers_runs import ring_graph

# Few of the entities are in a batch, so that rows wait long for their next gradient.
GRAPH = random_graph(400, 5, (600, 30, 30), seed=3)
SMALL = {"model.dim": 6, "sampler.negatives": 4, "train.batch_size": 8, "train.steps": 240, "train.lr": 0.02}
BY_ROWS = ("lazy-adam", "row-adagrad")


def make(method: str, optimizer: str, graph: KnowledgeGraph = GRAPH, **settings: Any) -> Trainer:
    overrides = SMALL | {"train.optimizer": optimizer} | {key.replace("__", "."): v for key, v in settings.items()}
    return build_trainer(resolve(load(f"default/{method}", overrides), graph), graph)


def steps(trainer: Trainer, count: int) -> Trainer:
    for _ in range(count):
        trainer.step()
    return trainer


def settled(trainer: Trainer) -> Tensor:
    with trainer.settled():
        return trainer.model.entity.detach().clone()


def same(first: Trainer, second: Trainer) -> bool:
    one, two = first.state()[0], second.state()[0]
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


# --- lazy Adam is Adam ------------------------------------------------------------------------------------------------

METHODS = [
    ("transe/uniform", {}),
    ("rotate/eans+adv", {"sampler__reorder_every": 30, "sampler__clusters": 5}),
    ("complex/nscaching", {"sampler__size": 5, "sampler__candidates": 4}),
    ("transe/adv", {"train__lr_decay": "linear"}),
    ("simple/uniform", {"train__reset_optimizer": False, "loss__penalty": "n3", "loss__penalty_weight": 1e-2}),
]


@pytest.mark.parametrize(("method", "settings"), METHODS, ids=[method for method, _ in METHODS])
def test_lazy_adam_equals_adam(method: str, settings: dict[str, Any]) -> None:
    """Over a lower rate and forgotten moments; in float32, as far as rounding lets them.

    On average: the gradient of a distance is a sign, which a difference in rounding may turn.
    """
    lazy, dense = (make(method, name, **settings) for name in ("lazy-adam", "adam"))
    start = settled(dense)
    for _ in range(4):
        moved = settled(steps(dense, 60)) - start
        assert (settled(steps(lazy, 60)) - start - moved).abs().mean() <= 2e-4 * moved.abs().mean()
    assert (lazy.model.entity - dense.model.entity).abs().max() > 1e-3  # rows do lag behind
    torch.testing.assert_close(lazy.model.relation, dense.model.relation, rtol=1e-3, atol=1e-4)


def test_more_steps_than_there_was_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = steps(make("transe/uniform", "lazy-adam"), 60)
    monkeypatch.setattr("eans.optimizer.FIRST_STEPS", 8)
    tight = steps(make("transe/uniform", "lazy-adam"), 60)
    assert torch.equal(plain.model.entity, tight.model.entity)
    assert torch.equal(settled(plain), settled(tight))


# --- the same bits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", BY_ROWS)
@pytest.mark.parametrize("method", ["transe/eans+adv", "complex/nscaching"])
def test_a_state_continues_to_the_same_bits(method: str, optimizer: str) -> None:
    settings = {"sampler__reorder_every": 25} if "eans" in method else {"sampler__size": 5, "sampler__candidates": 4}
    whole = make(method, optimizer, **settings)
    for stop in (70, 120, 190):  # before, at and after the drop
        first, second = (make(method, optimizer, **settings) for _ in range(2))
        tensors, values = steps(first, stop).state()
        second.load_state({name: value.clone() for name, value in tensors.items()}, values)
        steps(second, 240 - stop)
        steps(whole, 240 - whole.completed)
        assert same(second, whole)


@pytest.mark.parametrize("kind", ["auto", "reference"])
@pytest.mark.parametrize("optimizer", BY_ROWS)
def test_reading_the_model_changes_no_bit(optimizer: str, kind: str) -> None:
    with kernels.chosen(kind):
        plain, read = (make("transe/uniform", optimizer) for _ in range(2))
        for _ in range(6):
            steps(plain, 15)
            steps(read, 15)
            with read.settled():
                rank(read.model, GRAPH, "valid")
        assert same(plain, read)
        before = settled(plain)
        plain.finish()
        assert torch.equal(plain.model.entity, before)


def run(out: Path | None, optimizer: str, listener: Listener | None = None, **settings: Any) -> eans.Run:
    from eans.api import start
    from eans.recipes.choosing import choose_recipe

    options = {key: value for key, value in SMALL.items() if key != "train.optimizer"}
    chosen = choose_recipe(
        GRAPH,
        "transe",
        "uniform",
        None,
        {**options, "train.optimizer": optimizer, "train.checkpoint_every": 50} | settings,
    )
    return start(chosen, GRAPH, out, "cpu", listener)


@pytest.mark.parametrize("optimizer", BY_ROWS)
def test_whether_one_validates_or_is_interrupted_changes_no_bit(tmp_path: Path, optimizer: str) -> None:
    plain = run(None, optimizer, **{"train.valid_every": 0, "train.keep": "last", "train.patience": 0})
    validated = run(tmp_path / "run", optimizer, **{"train.valid_every": 40, "train.keep": "last", "train.patience": 0})
    assert torch.equal(plain.model.entity, validated.model.entity)
    assert torch.equal(eans.Run.load(tmp_path / "run").model.entity, plain.model.entity)

    count = 0

    def stop() -> bool:
        nonlocal count
        count += 1
        return count == 77

    with pytest.raises(Interrupted):
        run(
            tmp_path / "cut",
            optimizer,
            Listener(stop=stop),
            **{"train.valid_every": 40, "train.keep": "last", "train.patience": 0},
        )
    # The weights of a run that is not complete are up to date, too.
    half = steps(make("transe/uniform", optimizer), 77)
    assert torch.equal(RunFolder(tmp_path / "cut").model().entity, settled(half))
    resumed = eans.resume(tmp_path / "cut", progress=False)
    assert torch.equal(resumed.model.entity, plain.model.entity)


def test_the_best_weights_are_those_that_were_validated(tmp_path: Path) -> None:
    found = run(tmp_path / "run", "lazy-adam", **{"train.valid_every": 20, "train.keep": "best", "train.patience": 0})
    log = [record for record in RunFolder(tmp_path / "run").log() if "valid" in record]
    best = max(log, key=lambda record: record["valid"]["both"]["mrr"])
    assert found.metrics["training"]["kept_step"] == best["step"] < 240
    assert found.metrics["valid"]["both"] == best["valid"]["both"]


# --- nothing of the size of the table ---------------------------------------------------------------------------------


class Largest(TorchDispatchMode):
    """The largest tensor that PyTorch makes inside, but for views of others."""

    numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {one.untyped_storage().data_ptr() for one in _tensors((args, kwargs or {}))}
        result = function(*args, **(kwargs or {}))
        for one in _tensors(result):
            if one.untyped_storage().data_ptr() not in known:
                self.numbers = max(self.numbers, one.numel())
        return result


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def largest(work: Callable[[], object]) -> int:
    """The largest tensor that PyTorch makes for some work, or all that NumPy holds, in numbers of four bytes."""
    with Largest() as seen:
        work()
    tracemalloc.start()
    try:
        work()
        return max(seen.numbers, tracemalloc.get_traced_memory()[1] // 4)
    finally:
        tracemalloc.stop()


BIG = random_graph(100_000, 3, (500, 5, 5), seed=1)


@pytest.mark.parametrize("kind", ["auto", "reference"])
@pytest.mark.parametrize("optimizer", ["adagrad", *BY_ROWS])
def test_a_step_makes_nothing_of_the_size_of_the_table(optimizer: str, kind: str) -> None:
    if (optimizer, kind) == ("adagrad", "reference"):
        pytest.skip("plain PyTorch adds a dense gradient up")
    with kernels.chosen(kind):
        for method in ("transe/uniform", "complex/adv"):
            trainer = make(method, optimizer, BIG, sampler__known_true="repeats-everywhere")
            steps(trainer, 4)  # kernels are compiled, shuffles drawn
            assert largest(lambda trainer=trainer: steps(trainer, 2)) < 30_000, method  # type: ignore[misc]
    with kernels.chosen("reference"):
        trainer = make("transe/uniform", "adam", BIG)
        assert largest(lambda: steps(trainer, 2)) >= 6 * 100_000  # it would show


# --- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", BY_ROWS)
@pytest.mark.parametrize(
    ("method", "settings", "part"),
    [
        ("transd/uniform", {}, "model 'transd'"),
        ("transr/uniform", {}, "model 'transr'"),
        ("distmult/uniform", {"model__bounded": True}, "model 'distmult' with model.bounded=true"),
        ("complex/all", {"sampler__negatives": 0}, "sampler.name 'all'"),
        ("complex/uniform", {"loss__penalty": "l3", "loss__penalty_weight": 0.1}, "loss.penalty 'l3'"),
    ],
)
def test_a_gradient_of_every_row_is_refused(method: str, settings: dict[str, Any], part: str, optimizer: str) -> None:
    message = f"train.optimizer '{optimizer}' .* {part} has a gradient for every row .* 'adam' or 'adagrad'$"
    with pytest.raises(UsageError, match=message):
        make(method, optimizer, **settings)


def test_a_gradient_of_every_row_that_nobody_declared_is_an_error() -> None:
    table = torch.nn.Parameter(torch.ones(5, 3))
    for kind in (RowAdagrad, LazyAdam):
        optimizer = kind([table], torch.tensor(0.1))
        table.square().sum().backward()
        with pytest.raises(UsageError, match="gradient of the whole entity table"):
            optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize(
    ("ours", "theirs"), [("adam", "lazy-adam"), ("adagrad", "row-adagrad"), ("row-adagrad", "adagrad")]
)
def test_a_state_of_another_optimizer_does_not_fit(ours: str, theirs: str) -> None:
    trainer = steps(make("transe/uniform", ours), 2)
    with pytest.raises(KeyError):  # which a run folder turns into one line
        make("transe/uniform", theirs).load_state(*trainer.state())


@pytest.mark.parametrize("optimizer", BY_ROWS)
def test_it_learns(optimizer: str) -> None:
    rate = 0.2 if optimizer == "row-adagrad" else 0.02
    trainer = make("transe/uniform", optimizer, ring_graph(), train__lr=rate, train__batch_size=32)
    losses = [sum(float(term) for term in trainer.step().values()) for _ in range(240)]
    assert sum(losses[-20:]) < 0.8 * sum(losses[:20])
