"""The trials for Stay Positive's settings: what was tried, and that the recipes are what the record chose."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import stay_positive_grid as grid
from benchmarks.cells import RunSpec, read_records
from eans.recipes import load

RECORDS = read_records(grid.FILE)


def test_the_record_has_every_trial_of_the_grid() -> None:
    keys = {record["key"] for record in RECORDS}
    assert len(keys) == len(RECORDS)
    assert {grid.trial(model, settings).key for model in grid.MODELS for settings in grid.grid()} <= keys
    assert all(set(record) & {"test", "note"} == set() for record in RECORDS)  # valid alone, written by the program


@pytest.mark.parametrize("model", grid.MODELS)
def test_the_recipe_is_the_best_on_valid(model: str) -> None:
    name = f"{grid.GRAPH}/{model}/{grid.METHOD}"
    full = [record for record in RECORDS if record["recipe"] == name and record["steps"] == 3000]
    best = max(full, key=lambda record: record["valid"]["mrr"])
    assert load(name) == load(name, best["overrides"])


@pytest.mark.parametrize("name", grid.STARTS)
def test_the_start_is_the_best_on_valid(name: str) -> None:
    recipe = f"{grid.GRAPH}/{name}"
    best = max((r for r in RECORDS if r["recipe"] == recipe), key=lambda record: record["valid"]["mrr"])
    assert f"model.init_range={load(recipe).model.init_range}" in best["overrides"]


def test_a_trial_is_run_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trials.jsonl"
    small = ("model.dim=4", "train.steps=2", "train.batch_size=16")
    cells = [RunSpec(f"{grid.GRAPH}/distmult/{grid.METHOD}", small)]
    for _ in range(2):
        grid.run_trials(cells, file, 1)
    (record,) = read_records(file)
    assert record["steps"] == 2
    assert 0 < record["valid"]["mrr"] < 1
    assert grid.settings_of(record) == {"model.dim": "4", "train.batch_size": "16"}
    assert capsys.readouterr().err.count("valid MRR") == 1
