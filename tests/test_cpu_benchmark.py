"""What `make bench` prints and works on; nothing here is timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import eans
from benchmarks import cpu, cpu_peers, cpu_report, cpu_worker
from helpers_runs import ring_graph


def measured(seconds: float, megabytes: float = 1000.0) -> dict[str, Any]:
    spread = {"least": seconds / 2, "most": 2 * seconds, "others_busy": 0.25}
    return {"seconds": seconds, "peak_mb": megabytes, "start_mb": 250.0, **spread}


@pytest.fixture
def record() -> dict[str, Any]:
    """TransE is fast enough, RotatE is not."""
    size = {"batch": 1024, "negatives": 256}
    return {
        "graph": "FB15k-237",
        "hardware": "2 x abacus",
        "versions": {"torch": "2"},
        "commit": "0123456789abcdef",
        "date": "2026-01-01",
        "first_step": [{"recipe": "transe/adv", "cold": 9.0, "warm": 3.9}],
        "steps": [
            {
                "model": "transe",
                "dim": 1000,
                **size,
                "eans adv": measured(0.1),
                "eans eans+adv": measured(0.3),
                "pykeen": measured(1.5, 4000.0),
            },
            {"model": "rotate", "dim": 1000, **size, "eans adv": measured(0.5), "pykeen": measured(2.0, 3000.0)},
        ],
        "ranking": [{"model": "transe", "dim": 200, "triples": 100, "eans": measured(0.5), "pykeen": measured(5.0)}],
        "sweep": [
            {"model": "transe", "queries": 1, "size": [50, 128, 1], "eans": 2.0, "reference": 3.0, "eager": 4.0},
            {"model": "transe", "queries": 3, "size": [50, 128, 1], "eans": 2.0, "reference": 3.0, "eager": 1.0},
        ],
    }


def test_every_line_says_whether_its_target_is_met(record: dict[str, Any]) -> None:
    lines = [line for line in cpu_report.report(record).splitlines() if "| met |" in line or "| MISSED |" in line]
    found = [("MISSED" not in line, line) for line in lines]
    expected = {
        "| transe/adv | 9.0 | 3.9 | 4 s |": True,
        "| self-adversarial | 100.0 | 1500 | 3.8x | 0.2 / 0.2 | 15.0x | 12x |": True,
        "| EANS, substitution | 300.0 | 1500 | 1.2x | 0.2 / 0.2 | 5.0x | 6x |": False,
        "| self-adversarial | 500.0 | 2000 | 1.0x | 0.2 / 0.2 | 4.0x | 5x |": False,
        "| self-adversarial | 1000 | 4000 | 4.0x | 5.0x | 4x |": True,
        "| self-adversarial | 1000 | 3000 | 3.0x | 3.7x | 4x |": False,
        "| transe d=200 | 200.0 | 20.0 | 0.2 / 0.2 | 10x | 8x |": True,
        "| transe d=200 | 1000 | 1000 | 1.0x | 4x |": False,
        "| 2.00 | 3.00 | 4.00 | 2.0x | 1x |": True,
        "| 2.00 | 3.00 | 1.00 | 0.5x | 1x |": False,
    }
    for part, met in expected.items():
        assert [line_met for line_met, line in found if part in line] == [met], part


def test_rounds_are_joined_by_the_median() -> None:
    parts = [
        {"seconds": [1.0, 9.0], "peak_mb": 5.0, "others_busy": 0.5, "start_mb": 1.0},
        {"seconds": [2.0], "peak_mb": 7.0, "others_busy": 0.0, "start_mb": 1.0},
    ]
    joined = cpu.joined(parts)
    assert (joined["seconds"], joined["of"], joined["peak_mb"], joined["others_busy"]) == (2.0, 3, 7.0, 0.5)


def test_synthetic_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"entities": 50, "relations": 4, "train": 200, "valid": 20, "test": 30}
    monkeypatch.setattr(cpu, "SYNTHETIC_SIZES", sizes)
    cpu.write_synthetic(tmp_path)
    graph = eans.load(tmp_path, report=lambda _: None)  # its triples are drawn with replacement
    assert (graph.num_entities, graph.num_relations) == (50, 4)
    assert [len(graph.split(split)) for split in ("train", "valid", "test")] == [200, 20, 30]


@pytest.mark.parametrize(("model", "queries"), cpu.SWEEPS)
def test_step_by_hand_trains(model: str, queries: int) -> None:
    eager = cpu_peers.Eager(ring_graph(), model, 6, 8, 5, queries)
    before = [table.weight.detach().clone() for table in (eager.entity, eager.relation)]
    eager.step()
    eager.step()
    for table, old in zip((eager.entity, eager.relation), before, strict=True):
        assert torch.isfinite(table.weight).all()
        assert not torch.equal(table.weight, old)


def test_sizes_of_a_cell_reach_the_recipe() -> None:
    recipe = cpu_worker.settings(ring_graph(), "rotate", "eans+adv", 6, 8, 5)
    assert (recipe.model.dim, recipe.train.batch_size, recipe.sampler.negatives) == (6, 8, 5)
    assert (recipe.loss.name, recipe.loss.penalty) == ("substitution", "none")
