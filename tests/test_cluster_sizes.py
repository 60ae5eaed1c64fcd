"""How even clusters are: the numbers by hand, and that the record has what the program measures."""

from __future__ import annotations

import torch

from benchmarks import cluster_sizes
from benchmarks.cells import read_records
from eans.recipes import load


def test_sizes_by_hand() -> None:
    """Six, three and one points at three places: an entity is one of 36 / 10 + 9 / 10 + 1 / 10 on average."""
    features = torch.tensor([0.0] * 6 + [5.0] * 3 + [9.0])[:, None] + torch.arange(10.0)[:, None] / 1000
    found = cluster_sizes.sizes(features, clusters=3, starts=5, iterations=10)
    assert (found["largest"], found["median"], found["of_a_random_entity"]) == ([6, 3, 1], 3, 5)
    assert found["squares"] == 0.0


def test_the_best_start_is_taken() -> None:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(200, 2, generator=generator)
    one, ten = (cluster_sizes.sizes(features, 20, starts, 5)["squares"] for starts in (1, 10))
    assert ten < one


def test_the_record_has_every_model_both_ways() -> None:
    lines = read_records(cluster_sizes.FILE)
    ways = [(line["recipe"].split("/")[1], line["starts"], line["iterations"]) for line in lines]
    assert ways == [(model, *way) for model in cluster_sizes.OVERRIDES for way in cluster_sizes.WAYS]
    for line in lines:
        assert load(line["recipe"], line["overrides"]).train.steps == line["step"] == cluster_sizes.STEPS
        assert line["clusters"] == 100
        assert len(line["commit"]) >= 40
