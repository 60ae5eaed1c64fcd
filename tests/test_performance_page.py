"""The generated parts of docs/explanation/performance.md, from made-up records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import performance_page, speed_record

ABOUT = {
    "commit": "0123456789abcdef",
    "date": "2026-01-02T03:04:05+00:00",
    "hardware": {"name": "Some GPU", "multiprocessors": 100, "memory_gib": 80.4, "l2_mib": 50.0},
    "versions": {"python": "3.11.1", "torch": "2.9", "triton": None, "cuda": "13.0"},
}
TRANSE = "fb15k-237/transe/eans+adv"


def step_cell(recipe: str, ms: float, negatives: int = 256, dim: int = 1000) -> dict[str, Any]:
    return {
        "recipe": recipe,
        "graph": "synthetic fb15k-237",
        "model": recipe.split("/")[1],
        "dim": dim,
        "negatives": negatives,
        "batch": 1024,
        "ms": ms,
        "reorder_ms": 5.04,
        "steady_bytes": 2**29,
        "peak_bytes": 2**30,
    }


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A record of everything."""
    row = {"name": "forward", "ms": 0.25, "replayed_ms": 0.2, "percent_of_floor": 61.7}
    rounded = "l1 with bfloat16 rows"
    sections: dict[str, dict[str, Any]] = {
        "check": {
            "findings": [
                {"name": f"{rounded}: scores", "error": 1e-4},
                {"name": f"{rounded}: query gradient", "error": 2e-2},
                {"name": "l1: scores", "error": 1e-7},
            ]
        },
        "steps": {
            "cells": {
                TRANSE: step_cell(TRANSE, 0.8),
                f"{TRANSE} sampler.negatives=16": step_cell(TRANSE, 0.2, 16),
                f"{TRANSE} sampler.negatives=64": step_cell(TRANSE, 0.4, 64),
                f"{TRANSE} model.dim=500": step_cell(TRANSE, 0.5, dim=500),
                f"{TRANSE} train.rows=bfloat16": step_cell(TRANSE, 0.7),
                "fb15k-237/complex/eans+adv": step_cell("fb15k-237/complex/eans+adv", 1.2),
            }
        },
        "kernels": {
            "copy_bytes_per_s": 4.0e12,
            "multiply_adds_per_s": 25e12,
            "cases": {"fb15k-237/transe": [row, {"name": "new", "error": "TypeError"}], "wn18rr/rotate": [row]},
        },
        "kmeans": {
            "cells": {
                "15000": {
                    "entities": 15000, "width": 1000, "clusters": 100, "cold_ms": 20.0, "warm_ms": 4.0,
                    "feature_bytes": 2**30, "peak_bytes": 2**31,
                }
            }
        },
        "samplers": {
            "cells": {
                "sans": {
                    "negatives": 8, "scored": 9, "ms": 0.6, "uniform_ms": 0.5, "ratio": 1.2, "recorded": False,
                }
            },
            "sorting": {TRANSE: {"unsorted_ms": 0.9, "sorted_ms": 0.7, "sorts": True}},
        },
        "all-entities": {
            "cells": {
                "fb15k-237/complex/best": {
                    "recipe": "fb15k-237/complex/best", "width": 2000, "batch": 512, "ms": 1.0, "rounded_ms": 0.8,
                    "plain_ms": 4.0, "floor_ms": 0.25,
                }
            }
        },
        "ranking": {"cells": {TRANSE: {"graph": "FB15k-237", "queries": 40932, "seconds": 0.4, "peak_bytes": 2**28}}},
    }  # fmt: skip
    for name, results in sections.items():
        speed_record.update(tmp_path / "gpu-speed.json", name, {"quick": False, **results}, ABOUT)
    run = {
        "recipe": TRANSE,
        "overrides": ["train.steps=9"],
        "negatives": 256,
        "steps": 9000,
        "seed": 3,
        "seconds": 12.34,
        "hardware": "Some GPU",
        "curve": [{"seconds": 5.0, "mrr": 0.2}, {"seconds": 9.0, "mrr": 0.3}, {"seconds": 12.0, "mrr": 0.301}],
        "test": {"both": {"mrr": 0.29, "hits@10": 0.5}},
    }
    (tmp_path / "fast.jsonl").write_text(json.dumps(run) + "\n")
    ours, theirs = (
        {"seconds": s, "least": s, "most": s, "peak_mb": mb, "start_mb": 200.0, "others_busy": 0.0}
        for s, mb in ((0.5, 800.0), (5.0, 6400.0))
    )
    cpu = {
        "graph": "FB15k-237",
        "hardware": "2 x CPU",
        "versions": {"eans": "1"},
        "commit": "fedcba9876543210",
        "date": "2026-01-02T00:00:00",
        "steps": [
            {
                "model": "transe", "dim": 1000, "batch": 1024, "negatives": 256,
                "eans adv": ours, "eans eans+adv": {**ours, "seconds": 1.0}, "pykeen": theirs,
            }
        ],
        "ranking": [{"model": "rotate", "dim": 200, "triples": 40, "eans": ours, "pykeen": theirs}],
        "first_step": [{"recipe": "fb15k-237/transe/adv", "cold": 9.0, "warm": 3.0}],
        "sweep": [{"model": "transe", "queries": 1, "size": [50, 128, 1], "eans": 2.0, "reference": 3.0, "eager": 4.0}],
    }  # fmt: skip
    (tmp_path / "cpu-speed.json").write_text(json.dumps(cpu))
    cell = {"model": "rotate", "queries": 2000, "seconds": 2.0, "cpu_seconds": 1.5, "peak_mb": 1234, "others_busy": 0.5}
    predictions = {
        **ABOUT,
        "hardware": {"name": "2 x CPU", "threads": 2},
        "cells": [{**cell, "library": "eans"}, *({**cell, "library": "pykeen", "batch": batch} for batch in (1, 8))],
        "selection": [{"k": 10, "eans_us": 9.0, "torch_us": 40.4}],
    }
    (tmp_path / "prediction.json").write_text(json.dumps(predictions))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "gpu-origin",
            ["Some GPU: 100 multiprocessors", "| steps | 2026-01-02 | `0123456789ab` | 3.11.1 | 2.9 | - | 13.0 |"],
        ),
        (
            "gpu-steps",
            [
                "| FB15k-237, TransE | 1000 | 1024 | 256 | 0.800 | 1 | 1,280 | 5.0 |",
                "| FB15k-237, TransE, n = 16 | 1000 | 1024 | 16 | 0.200 | 0.35 | 5,120 | 5.0 |",
                "| FB15k-237, ComplEx | 1000 | 1024 | 256 | 1.200 | 1 | 853 | 5.0 |",
                "random triples",
            ],
        ),
        (
            "gpu-sizes",
            ["n = 16 | n = 64 | n = 256 |", "| TransE | 0.200 | 0.400 | 0.800 |", "| TransE | 0.500 | 0.800 |"],
        ),
        ("gpu-rounded", ["| FB15k-237, TransE | 0.800 | 0.700 | 1.0e-04 | 2.0e-02 |"]),
        ("gpu-all-entities", ["| FB15k-237, ComplEx | 2000 | 512 | 1.00 | 0.80 | 4.00 | 4.0x, 5.0x | 0.25 |"]),
        (
            "gpu-samplers",
            [
                "| `sans` | 8 | 9 | 0.600 | 0.500 | 1.20x (not recorded) |",
                "| FB15k-237, TransE | 0.900 | 0.700 | yes |",
            ],
        ),
        (
            "gpu-kernels",
            [
                "Memory 4.00 TB/s",
                "| ms alone (share of floor) | FB15k-237, TransE | WN18RR, RotatE |",
                "| forward | 0.250 (62 %) | 0.250 (62 %) |",
                "| new | failed |  |",
                "| forward | 0.200 | 0.200 |",
            ],
        ),
        ("gpu-kmeans", ["| 15,000 | 1000 | 100 | 20.0 | 4.0 | 1.00 | 2.00 |"]),
        ("gpu-ranking", ["| FB15k-237, TransE | 40,932 | 400 | 500 | 102,330 | 0.25 |"]),
        (
            "gpu-memory",
            ["| FB15k-237, TransE | 0.50 | 1.00 | 0.98 | 1 |", "| FB15k-237, ComplEx | 0.50 | 1.00 | 1.95 | - |"],
        ),
        (
            "quality",
            [
                "of all of these runs",
                f"| `{TRANSE} train.steps=9` | 256 | 9,000 | 3 | 12.3 | 9.0 | 0.2900 | 0.5000 | 0.342 |",
            ],
        ),
        ("cpu-origin", ["2 x CPU; FB15k-237; eans 1; commit `fedcba987654`, 2026-01-02."]),
        (
            "cpu-steps",
            [
                "| transe d=1000 b=1024 n=256 | self-adversarial | 500.0 | 5000 | 10.0x | 0.0 / 0.0 | 10.0x | 12x |",
                "| EANS, substitution | 1000.0 | 5000 |",
            ],
        ),
        ("cpu-memory", ["| self-adversarial | 800 | 6400 | 8.0x | 10.3x | 4x | met |"]),
        ("cpu-ranking", ["| rotate d=200 | 80.0 | 8.0 |"]),
        ("cpu-ranking-memory", ["| rotate d=200 | 800 | 6400 | 8.0x | 4x | met |"]),
        ("cpu-first-step", ["| fb15k-237/transe/adv | 9.0 | 3.0 | 4 s | met |"]),
        (
            "prediction",
            [
                "2 x CPU; commit `0123456789ab`, 2026-01-02.",
                "| rotate | eans | 2,000 | 1.00 | 0.75 | 16.7 | 6.2 | 1,234 | 0.5 |",
                "| rotate | PyKEEN predict_target | 2,000 |",
                "| rotate | PyKEEN predict_t, topk | 2,000 |",
                "takes 9 us for k = 10 (`torch.topk`: 40).",
            ],
        ),
        ("cpu-sweep", ["| transe | 1 | 50 | 1 | 128 | 2.00 | 3.00 | 4.00 | 2.0x | 1x | met |"]),
    ],
)
def test_sections(name: str, lines: list[str], records: Path) -> None:
    text = performance_page.rendered(name, records, records)
    assert [line for line in lines if line not in text] == []
    assert "\n\n\n" not in text


def test_every_section_is_on_the_page_once(records: Path) -> None:
    page = performance_page.PAGE.read_text("utf-8")
    filled = performance_page.updated(page, records, records)
    assert "Not measured yet" not in filled
    assert filled == performance_page.updated(filled, records, records)
    for name in performance_page.SECTIONS:
        assert performance_page.written(filled, name) == performance_page.rendered(name, records, records)
    with pytest.raises(SystemExit, match="0 sections"):
        performance_page.written("", "quality")


def test_missing_records_and_trials_say_so(tmp_path: Path) -> None:
    assert "Not measured yet: `python -m benchmarks.cpu`." in performance_page.rendered("cpu-steps", tmp_path)
    speed_record.update(tmp_path / "gpu-speed.json", "ranking", {"quick": True, "cells": {}}, ABOUT)
    assert "Not measured yet" in performance_page.rendered("gpu-ranking", tmp_path)


def test_figures_stand_under_their_sections(records: Path, tmp_path: Path) -> None:
    (tmp_path / "cpu-ratios.svg").write_text("<svg/>")
    assert performance_page.rendered("cpu-steps", records, tmp_path).endswith("](figures/cpu-ratios.svg)")
    assert "figures/" not in performance_page.rendered("cpu-steps", records, tmp_path / "none")
