"""Training without negatives: the penalty on the sum of all scores, alone and inside a run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from eans.objective import total
from eans.penalties import stay_positive_penalty
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.training import Trainer
from helpers_runs import ring_graph

models = pytest.mark.parametrize("model", ["distmult", "simple"])


def make(model: str, **settings: Any) -> Trainer:
    graph = ring_graph()
    overrides = {"model.dim": 8, "train.batch_size": 32, "train.steps": 20, "loss.penalty_weight": 1e-3}
    overrides |= {key.replace("__", "."): value for key, value in settings.items()}
    return build_trainer(resolve(load(f"default/{model}/stay-positive", overrides), graph), graph)


@pytest.mark.parametrize(("power", "value", "slope"), [(1, 3.0, -1.0), (2, 9.0, -6.0)])
def test_powers(power: int, value: float, slope: float) -> None:
    total = torch.tensor(-3.0, requires_grad=True)
    penalty = stay_positive_penalty(total, power)
    penalty.backward()  # type: ignore[no-untyped-call]
    assert (penalty.item(), total.grad) == (value, torch.tensor(slope))


@models
@pytest.mark.parametrize("power", [1, 2])
def test_the_loss_is_positives_plus_penalty(model: str, power: int) -> None:
    trainer = make(model, loss__penalty_power=power)
    expected = 1e-3 * trainer.model.total_score().abs().item() ** power
    terms = trainer.step()
    means = trainer.take_means(1)
    assert terms["negative"] == 0
    assert means["stay-positive"] == pytest.approx(expected, rel=1e-4)
    assert means["loss"] == pytest.approx(means["positive"] + expected, rel=1e-4)


@models
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_positives_rise_while_the_sum_stays_near_zero(model: str, temperature: float) -> None:
    graph = ring_graph()
    trainer = make(model, train__steps=200, train__lr=0.02, loss__adversarial_temperature=temperature)
    before = trainer.model.score(graph.train).mean()
    for _ in range(200):
        trainer.step()
    assert trainer.is_sound()
    assert trainer.model.score(graph.train).mean() > before + 2.0
    assert trainer.model.total_score().abs() / (graph.num_entities**2 * graph.num_relations) < 0.01


@models
def test_without_the_penalty_everything_is_plausible(model: str) -> None:
    """From tables without a negative number, the positives alone drive every score up."""
    graph = ring_graph()
    means = []
    for weight in (1e-3, 1e-12):
        trainer = make(model, train__steps=200, train__lr=0.02, loss__penalty_weight=weight)
        with torch.no_grad():
            for table in trainer.model.parameters():
                table.abs_()
        for _ in range(200):
            trainer.step()
        means.append(trainer.model.total_score().item() / (graph.num_entities**2 * graph.num_relations))
    held, free = means
    assert abs(held) < 0.1
    assert free > 5.0


@models
def test_state_in_the_middle_continues_to_the_same_bits(model: str) -> None:
    whole, first, second = (make(model) for _ in range(3))
    expected = [total(whole.step()).item() for _ in range(20)]
    begun = [total(first.step()).item() for _ in range(8)]
    tensors, values = first.state()
    second.load_state({name: value.clone() for name, value in tensors.items()}, values)
    assert begun + [total(second.step()).item() for _ in range(12)] == expected
    assert torch.equal(second.model.entity, whole.model.entity)


@models
def test_plain_scores_may_be_penalised_too(model: str) -> None:
    """Nothing about the penalty needs bounded scores, or the absence of negatives."""
    trainer = make(model, model__bounded=False, sampler__name="uniform", sampler__negatives=4)
    assert all(total(trainer.step()).isfinite() for _ in range(5))
