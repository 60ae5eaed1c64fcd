"""Recipes, run folders and records of format 1, in which all samplers, models and losses shared one section each.

``fixtures/format-1`` was written by the last version with that format.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import eans
from eans.errors import UsageError
from eans.experiments import recipe_hash
from eans.recipes import all_keys, full_key, load, to_toml
from eans.recipes.build import resolve
from eans.recipes.migration import GONE, RENAMED
from helpers_runs import ring_graph

OLD = Path(__file__).parent / "fixtures" / "format-1"
FILES = sorted(OLD.glob("*.toml"))


def test_hashes_are_those_of_format_1() -> None:
    """Of every recipe of then: records tell by them whether a recipe has changed."""
    graph = ring_graph(120)
    expected = json.loads((OLD / "hashes.json").read_text("utf-8"))
    assert len(expected) > 300
    assert {name: recipe_hash(resolve(load(name), graph), graph) for name in expected} == expected


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_recipe_that_a_run_wrote(file: Path, tmp_path: Path) -> None:
    found, now = load(file), resolve(load(file.stem.replace("--", "/")), ring_graph(120))
    assert found == now
    written = tmp_path / "again.toml"
    written.write_text(to_toml(found), "utf-8")
    assert load(written) == now.model_copy(update={"name": found.name})


def test_a_run_folder(tmp_path: Path) -> None:
    """It opens, its files pass their check, and its weights rank as they did; resuming it does the same steps."""
    shutil.copytree(OLD / "run", tmp_path / "run")
    run = eans.Run.load(tmp_path / "run")
    section = run.recipe.sampler
    assert (section.name, section.size, section.candidates, section.lazy) == ("nscaching", 6, 50, 1)
    again = run.evaluate("test", progress=False)
    assert again["test"]["both"]["mrr"] == pytest.approx(run.metrics["test"]["both"]["mrr"])
    fresh = eans.train(run.graph, recipe=str(tmp_path / "run" / "recipe.toml"), device="cpu", progress=False)
    torch.testing.assert_close(fresh.model.entity, run.model.entity, rtol=1e-4, atol=1e-5)
    assert eans.resume(tmp_path / "run", device="cpu", progress=False).recipe == run.recipe


def test_a_file_written_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[sampler]\nname = "nscaching"\ncache_size = 7\n', "utf-8")
    assert load(file).sampler.size == 7
    file.write_text('[sampler]\nname = "uniform"\ncache_size = 7\n', "utf-8")
    with pytest.raises(UsageError, match=r"sampler\.size belongs to sampler\.name 'nscaching'; .* is 'uniform'"):
        load(file)
    file.write_text("format = 3\n", "utf-8")
    with pytest.raises(UsageError, match="format 3 is not known; it was made by a later version"):
        load(file)


@pytest.mark.parametrize(
    ("name", "old", "new"), [(n, old, new) for n, keys in RENAMED.items() for old, new in keys.items()]
)
def test_names_of_before(name: str, old: str, new: str) -> None:
    """In overrides and keyword arguments; none of them is a key of today."""
    value: Any = getattr(load(f"transe/{name}").sampler, new)
    value = {True: False, False: True}[value] if isinstance(value, bool) else value if isinstance(value, str) else 2
    more = {"sampler.kind": "walks"} if name == "sans" else {}
    assert getattr(load(f"transe/{name}", more | {f"sampler.{old}": value}).sampler, new) == value
    assert full_key(old) == f"sampler.{old}"
    assert f"sampler.{old}" not in all_keys()


def test_keys_that_are_gone() -> None:
    plain = load("transe/eans")
    for key, value in GONE.items():
        assert load("transe/eans", {key: value}) == plain
        assert key not in all_keys()
    with pytest.raises(UsageError, match=r"recipe key 'loss\.detach' is gone: it is always False, but here True"):
        load("transe/eans", {"loss.detach": True})


def test_overrides_that_several_recipes_share() -> None:
    """Experiments leave out what is not for a recipe, as format 1 did, where a single recipe says whose it is."""
    shared = ["sampler.pretrain_steps=5", "sampler.negatives=3"]
    with pytest.raises(UsageError, match=r"sampler\.pretrain_steps belongs to sampler.name 'kbgan' or 'igan'"):
        load("transe/uniform", shared)
    assert load("transe/uniform", shared, strict=False) == load("transe/uniform", shared[1:])
    assert load("transe/kbgan", shared, strict=False).sampler.pretrain_steps == 5
    with pytest.raises(UsageError, match=r"unknown recipe key 'sampler\.pretrain'"):
        load("transe/uniform", ["sampler.pretrain=5"], strict=False)


def test_another_name_takes_its_own_keys(tmp_path: Path) -> None:
    """An override that replaces the sampler leaves out the options of the one that the file has."""
    file = tmp_path / "mine.toml"
    file.write_text('[sampler]\nname = "nscaching"\nsize = 7\nnegatives = 3\n', "utf-8")
    recipe = load(file, ["sampler.name=uniform"])
    assert (recipe.sampler.name, recipe.sampler.negatives) == ("uniform", 3)
    with pytest.raises(UsageError, match=r"sampler\.size belongs to"):
        load(file, ["sampler.name=uniform", "sampler.size=7"])
