"""Steps recorded as CUDA graphs: the same bits as ordinary steps, and a plain call where there is no GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from eans.data import load
from eans.graph import Side
from eans.models import MODELS
from eans.recipes import load as load_recipe
from eans.recipes.build import build_trainer, resolve
from eans.recording import RecordedWork
from eans.training import Trainer


def test_without_a_gpu_every_call_goes_through() -> None:
    calls: list[tuple[Tensor, Side]] = []
    work = RecordedWork(lambda rows, side: calls.append((rows, side)), torch.Generator(), torch.device("cpu"))
    batches: list[tuple[Tensor, Side]] = [(torch.tensor([number]), "tail") for number in range(5)]
    for rows, side in batches:
        work(rows, side)
    assert calls == batches
    assert not work.recordings


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("method", ["uniform", "eans+adv", "softmax"])
@pytest.mark.parametrize("model", MODELS)
def test_recorded_steps_give_the_same_bits(model: str, method: str) -> None:
    def trained(recorded: bool) -> Trainer:
        graph = load("wordnet-core")
        overrides = {"train.steps": 40, "train.batch_size": 128, "sampler.reorder_every": 9, "model.dim": 33}
        recipe = resolve(load_recipe(f"wordnet-core/{model}/{method}", overrides), graph)
        trainer = build_trainer(recipe, graph, "cuda")
        trainer.work.enabled = recorded
        for _ in range(40):
            trainer.step()
        return trainer

    recorded, ordinary = trained(True), trained(False)
    assert set(recorded.work.recordings) == {"head", "tail"}
    assert not ordinary.work.recordings
    assert all(torch.equal(a, b) for a, b in zip(recorded.model.parameters(), ordinary.model.parameters(), strict=True))
