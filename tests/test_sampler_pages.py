"""The generated parts of docs/explanation/samplers: from made-up records, and from those there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare_all_samplers as compare
from benchmarks import sampler_costs, sampler_measurements, sampler_pages
from benchmarks.sampler_pages import FOLDER, INDEX, PAGES, Found, difference, updated
from eans.samplers import SAMPLERS

ABOUT: dict[str, Any] = {
    "commit": "0123456789abcdef",
    "date": "2026-01-02T03:04:05+00:00",
    "hardware": {"name": "Some CPU", "threads": 1},
    "versions": {"python": "3.11.1", "torch": "2.9"},
    "steps": 250,
    "others_busy": 0.0,
}
EMPTY = Found([], {}, [])


def cost_cell(ms: float) -> dict[str, float]:
    return {"negatives": 64, "candidates": 64.0, "ms": ms, "sampling_ms": 0.5, "sampler_bytes": 2_000_000}


@pytest.fixture
def found() -> Found:
    """A record of everything."""
    metrics = {"uniform": (0.300, 0.310, 0.320), "EANS": (0.400, 0.410, 0.420), "Bernoulli": (0.31, 0.32, 0.33)}
    runs = [
        {
            "key": compare.cell(entry, model, compare.BUDGET, seed).key,
            "test": {"both": {"mrr": mrr, "hits@10": mrr + 0.3}},
        }
        for model, entry in compare.pairs()
        for seed, mrr in enumerate(metrics.get(entry.title, (0.1, 0.1, 0.1)))
    ]
    measurement = {name: 0.25 for name, _, _ in sampler_pages.COLUMNS}
    inspections = {
        entry.title: {"negatives": 16, "measurements": [measurement, measurement]}
        for entry in sampler_measurements.rows()
    }
    cells = {
        f"{model}/{entry.title}": cost_cell(3.0 if entry.title == "EANS" else 2.0) for model, entry in compare.pairs()
    }
    return Found(runs, inspections, [{**ABOUT, "cells": cells}])


def test_a_difference_has_to_be_larger_than_the_spread() -> None:
    assert difference([0.4, 0.41, 0.42], [0.3, 0.31, 0.32]) == "**+0.100**"
    assert difference([0.31, 0.32, 0.33], [0.3, 0.31, 0.32]) == "+0.010"
    assert difference([0.1, 0.1], [0.2, 0.2]) == "**-0.100**"
    assert difference([0.1], [0.2, 0.2]) == "-"


def test_blocks_of_a_page(found: Found) -> None:
    text = sampler_pages.page_block("eans", found)
    assert "| EANS | 16 | 0.25 | 25.00% |" in text
    assert "| uniform | 64 | 64 | 0.310 ± 0.010 |  | 0.610 ± 0.010 |" in text
    assert "| EANS | 64 | 64 | 0.410 ± 0.010 | **+0.100** | 0.710 ± 0.010 |" in text
    assert "| EANS | 1.50x (3.00 ms) | 1.50x (3.00 ms) | 1.50x (3.00 ms) | 0.50 | 2.00 |" in text
    assert "Some CPU, 1 thread; PyTorch 2.9, Python 3.11.1; 250 steps each; commit `0123456789ab`, 2026-01-02." in text
    assert "Bernoulli" not in text
    assert "| NSCaching | 32 | 64 |" in sampler_pages.page_block("nscaching", found)


def test_without_negatives_there_is_nothing_to_measure(found: Found) -> None:
    text = sampler_pages.page_block("stay-positive", found)
    assert "above positive" not in text
    assert "TransE" not in text
    assert "| Stay Positive | 0 | 0 | 0.100 ± 0.000 | **-0.210** |" in text


def test_a_page_shows_the_models_that_have_its_row(found: Found) -> None:
    text = sampler_pages.page_block("all", found)
    assert "above positive" not in text
    assert "| negatives | n | scored | ComplEx MRR | over uniform | Hits@10 |" in text
    assert "| all entities | 0 | 6481 | 0.100 ± 0.000 | **-0.210** | 0.400 ± 0.000 |" in text
    assert "DistMult" in text
    assert "TransE" not in text


def test_every_row_has_its_page(found: Found) -> None:
    titles = [title for rows in PAGES.values() for title in rows]
    assert sorted(titles) == sorted({entry.title for _, entry in compare.pairs()} - {"uniform"})
    assert {path.stem for path in FOLDER.glob("*.md")} == {INDEX, *PAGES}
    assert set(SAMPLERS) - set(PAGES) == {"none"}  # it is on the page of Stay Positive
    index = updated((FOLDER / f"{INDEX}.md").read_text("utf-8"), INDEX, found)
    for title in titles:
        assert f"| {title} | " in index


@pytest.mark.parametrize("page", [INDEX, *PAGES])
def test_every_block_is_on_its_page_once(page: str, found: Found) -> None:
    text = (FOLDER / f"{page}.md").read_text("utf-8")
    filled = updated(text, page, found)
    assert "Not measured yet" not in filled
    assert "\n\n\n" not in filled
    assert filled == updated(filled, page, found)
    assert "Not measured yet: `python -m benchmarks.compare_all_samplers`." in updated(text, page, EMPTY)
    with pytest.raises(SystemExit, match="0 blocks"):
        updated("", page, found)


@pytest.mark.parametrize("page", [INDEX, *PAGES])
def test_pages_are_what_the_records_say(page: str) -> None:
    """`python -m benchmarks.sampler_pages` brings them up to date."""
    text = (FOLDER / f"{page}.md").read_text("utf-8")
    assert text == updated(text, page, Found.read())


def test_costs_are_kept_by_hardware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "MODELS", ("transe", "complex"))
    monkeypatch.setattr(compare, "SELECTED", {})
    monkeypatch.setattr(compare, "METHODS", {"uniform": ("uniform", ()), "EANS": ("eans", ()), "x": ("x", ())})
    monkeypatch.setattr(compare, "SAMPLERS", {})
    part = sampler_costs.measure(4, 2, "cpu")
    assert set(part["cells"]) == {
        f"{model}/{title}" for model in ("transe", "complex") for title in ("uniform", "EANS")
    }
    assert all(cell["ms"] > 0 and cell["candidates"] == 4 for cell in part["cells"].values())
    lines = sampler_costs.table(part).splitlines()
    assert lines[0] == "| time per step | transe | complex |"
    assert lines[2].startswith("| uniform | 1.00x (")
    assert lines[3].startswith("| EANS | ")
    assert len(lines) == 4
    file = tmp_path / "costs.json"
    for name, steps in (("one", 1), ("other", 2), ("one", 3)):
        sampler_costs.keep({**part, "hardware": {"name": name}, "steps": steps}, file)
    assert [(kept["hardware"]["name"], kept["steps"]) for kept in sampler_costs.read(file)] == [
        ("one", 3),
        ("other", 2),
    ]
    file.write_text(json.dumps({"format": 0}))
    with pytest.raises(sampler_costs.UsageError, match="not a record of costs"):
        sampler_costs.read(file)


def test_measurements_are_kept_without_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        compare, "METHODS", {"uniform": ("uniform", ()), "EANS, block": ("eans", ("sampler.proposal=block",))}
    )
    monkeypatch.setattr(compare, "SAMPLERS", {})
    file = tmp_path / "measurements.json"
    arguments = ["--records", str(file), "--device", "cpu", "--set", "train.steps=3", "--set", "model.dim=4"]
    sampler_measurements.main(arguments)
    first = file.read_bytes()
    found = sampler_measurements.read(file)
    assert list(found) == ["uniform", "EANS, block"]
    assert found["EANS, block"]["overrides"] == [
        "sampler.proposal=block",
        *compare.COMMON,
        "train.steps=3",
        "model.dim=4",
    ]
    assert found["uniform"]["measurements"][-1]["step"] == 3
    assert "sampling_ms" not in found["uniform"]["measurements"][-1]
    sampler_measurements.main(arguments)
    assert file.read_bytes() == first
