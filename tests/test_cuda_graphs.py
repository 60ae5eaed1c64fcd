"""Steps captured as CUDA graphs: the same bits as ordinary steps, and a plain call where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor

from eans.cuda_graphs import WARM_UP, CapturedWork
from eans.data import load
from eans.graph import Side
from eans.models import MODELS
from eans.recipes import load as load_recipe
from eans.recipes.build import build_trainer, resolve
from eans.samplers import StepOutcome
from eans.training import Trainer


def test_without_a_gpu_every_call_goes_through() -> None:
    calls: list[tuple[Tensor, Side]] = []
    work = CapturedWork(lambda rows, side: calls.append((rows, side)), torch.Generator(), torch.device("cpu"))
    batches: list[tuple[Tensor, Side]] = [(torch.tensor([number]), "tail") for number in range(5)]
    for rows, side in batches:
        work(rows, side)
    assert calls == batches
    assert not work.graphs


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_work_that_cannot_be_captured_goes_on_without() -> None:
    generator = torch.Generator("cuda")

    def work(rows: Tensor, side: Side) -> Tensor:
        del side
        drawn = torch.rand(3, generator=generator, device="cuda")
        return drawn + rows.sum().item()  # synchronises with the device, which no capture may do

    captured = CapturedWork(work, generator, torch.device("cuda"))

    def called(number: int) -> Tensor:
        generator.manual_seed(number)
        result: Tensor = captured(torch.tensor([number], device="cuda"), "tail")
        return result

    found = [called(number) for number in range(WARM_UP)]
    with pytest.warns(UserWarning, match="CUDA graphs are off"):
        found.append(called(WARM_UP))
    found.append(called(WARM_UP + 1))
    assert not captured.graphs
    for number, result in enumerate(found):
        generator.manual_seed(number)
        assert torch.equal(result, torch.rand(3, generator=generator, device="cuda") + number)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize(
    ("model", "method"),
    [
        *((model, method) for model in MODELS for method in ("uniform", "eans+adv", "softmax")),
        *((model, "stay-positive") for model in ("distmult", "simple")),
        *((model, "all") for model in ("distmult", "complex", "simple", "rescal")),
        ("complex", "all+n3"),
        ("complex", "relation"),
        *((model, "dropout") for model in ("distmult", "complex")),
        *((model, "adagrad") for model in ("transe", "transd", "distmult", "rotate")),
    ],
)
def test_captured_steps_give_the_same_bits(model: str, method: str) -> None:
    def trained(captured: bool) -> Trainer:
        graph = load("wordnet-core")
        overrides: dict[str, Any] = {"train.steps": 40, "train.batch_size": 128, "model.dim": 33}
        overrides |= {"sampler.reorder_every": 9, "sampler.pretrain_steps": 20}
        if method == "relation":  # EANS that also predicts relations
            overrides |= {"loss.relation_weight": 0.5}
        if method == "dropout":
            overrides |= {"train.dropout": 0.4}
        if method == "adagrad":
            overrides |= {"train.optimizer": "adagrad", "train.rows": "bfloat16"}
        if method == "all+n3":
            overrides |= {"train.rows": "bfloat16"}
        name = f"wordnet-core/{model}/{'eans' if method in ('relation', 'dropout', 'adagrad') else method}"
        recipe = resolve(load_recipe(name, overrides, strict=False), graph)
        trainer = build_trainer(recipe, graph, "cuda")
        trainer.stepper.work.enabled = captured
        for _ in range(40):
            trainer.step()
        return trainer

    captured, ordinary = trained(True), trained(False)
    assert set(captured.stepper.work.graphs) == {"head", "tail"}
    assert not ordinary.stepper.work.graphs
    expected, _ = ordinary.state()
    found, _ = captured.state()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("method", ["kbgan", "igan"])
@pytest.mark.parametrize("model", ["transe", "complex"])
def test_a_generator_that_plays_is_captured(model: str, method: str) -> None:
    def trained(captured: bool) -> Trainer:
        graph = load("wordnet-core")
        overrides = {"train.steps": 130, "train.batch_size": 64, "model.dim": 17, "sampler.pretrain_steps": 20}
        trainer = build_trainer(
            resolve(load_recipe(f"wordnet-core/{model}/{method}", overrides, strict=False), graph), graph, "cuda"
        )
        trainer.stepper.work.enabled = captured
        for _ in range(130):
            trainer.step()
        assert trainer.execution.observes
        assert len(trainer.stepper.work.graphs) == (2 if captured else 0)
        return trainer

    expected, found = trained(False).state()[0], trained(True).state()[0]
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("bernoulli", {}),
        ("frequency", {}),
        ("frequency", {"counted_in": "place", "power": 0.0}),
        ("sans", {}),
        ("sans+adv", {"kind": "walks", "walks": 50, "by_visits": True}),
        ("nscaching", {}),
        ("nscaching", {"draw": "importance", "update": "top", "lazy": 1}),
        ("nscaching", {"draw": "top", "size": 9}),
        ("eans", {"proposal": "block"}),
        ("eans", {"proposal": "student", "freedom": 3}),
        ("eans+adv", {"orders": 2}),
    ],
    ids=str,
)
def test_captured_draws_give_the_same_bits(method: str, options: dict[str, Any]) -> None:
    """What samplers draw, keep and state, in captured and in ordinary steps."""

    def trained(captured: bool) -> dict[str, Tensor]:
        graph = load("wordnet-core")
        overrides = {"train.steps": 40, "train.batch_size": 128, "sampler.reorder_every": 9, "model.dim": 33}
        overrides |= {f"sampler.{key}": value for key, value in options.items()}
        recipe = resolve(load_recipe(f"wordnet-core/transe/{method}", overrides, strict=False), graph)
        trainer = build_trainer(recipe, graph, "cuda")
        trainer.stepper.work.enabled = captured
        for _ in range(40):
            trainer.step()
        assert set(trainer.stepper.work.graphs) == ({"head", "tail"} if captured else set())
        return trainer.state()[0]

    captured, ordinary = trained(True), trained(False)
    assert all(torch.equal(value, ordinary[name]) for name, value in captured.items())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("draw", ["uniform", "importance", "top"])
def test_caches_are_renewed_without_waiting(
    draw: str, gpu_must_not_wait: Callable[[], AbstractContextManager[None]]
) -> None:
    graph = load("wordnet-core")
    overrides = {"train.steps": 40, "train.batch_size": 128, "model.dim": 33, "sampler.draw": draw}
    trainer = build_trainer(
        resolve(load_recipe("wordnet-core/transe/nscaching", overrides, strict=False), graph), graph, "cuda"
    )
    trainer.stepper.work.enabled = False  # a replay would not call `observe`
    observe = trainer.sampler.observe

    def watched(outcome: StepOutcome) -> None:
        with gpu_must_not_wait():
            observe(outcome)

    for number in range(18):
        if number == 8:  # by now kernels are compiled
            trainer.sampler.observe = watched  # type: ignore[method-assign]
        trainer.step()
