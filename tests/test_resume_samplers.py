"""Samplers with much state resume to the same bits: the real command, killed, against one that was left alone."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file

from helpers_runs import eans, outcome, ring_graph, write_graph
from test_resume import Nursery, at_step, checkpoint_step, kill

RECIPE = """
[model]
name = "{model}"
dim = 16
[sampler]
negatives = {negatives}
{sampler}
[loss]
name = "{loss}"
[train]
steps = 160
batch_size = 32
lr = 0.05
log_every = 7
valid_every = 20
checkpoint_every = 5
"""
SAMPLERS = {
    "nscaching": ('name = "nscaching"\nsize = 6\ncandidates = 5', "logsigmoid"),
    "nscaching-scores": (
        'name = "nscaching"\nsize = 6\ndraw = "importance"\nlazy = 2\nupdate = "top"',
        "logsigmoid",
    ),
    "two-orders": ('name = "eans"\nreorder_every = 7\norders = 2\ninside = "inherited"', "substitution"),
    "heavy-tails": ('name = "eans"\nreorder_every = 7\nproposal = "student"\nwarm_start = false', "substitution"),
    "late-orders": ('name = "eans"\nreorder_every = 7\norder_epoch = 9\ninside = "inherited"', "substitution"),
    "all": ('name = "all"\nfalse_negatives = "keep"', "softmax"),
    "blocks": ('name = "eans"\nreorder_every = 7\nproposal = "block"\nblocks = 4\norders = 3', "substitution"),
}
MODELS = {"all": ("complex", 0)}  # the model, and how many negatives
STATE: dict[str, set[str]] = {
    "all": set(),
    "nscaching": {"head_cache", "tail_cache"},
    "nscaching-scores": {"head_cache", "tail_cache", "head_scores", "tail_scores"},
}
LINES = {"virtual_to_real", "real_to_virtual", "centroids"}
STATE["late-orders"] = {*LINES, "next_line"}


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    nursery = Nursery(tmp_path_factory.mktemp("nursery") / "errors")
    yield nursery
    nursery.close()


@pytest.mark.parametrize("name", SAMPLERS)
def test_killed_runs_resume_to_the_same_bits(name: str, tmp_path: Path, nursery: Nursery) -> None:
    sampler, loss = SAMPLERS[name]
    model, negatives = MODELS.get(name, ("transe", 8))
    (tmp_path / "recipe.toml").write_text(RECIPE.format(model=model, negatives=negatives, sampler=sampler, loss=loss))
    write_graph(ring_graph(), tmp_path / "graph")
    result = eans("train", "recipe.toml", "--data", "graph", "--out", "whole", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    state = load_file(tmp_path / "whole" / "checkpoint.safetensors")
    held = {key.removeprefix("sampler.") for key in state if key.startswith("sampler.")}
    assert held == STATE.get(name, LINES)

    run = tmp_path / "run"
    run.mkdir()
    for file in ("recipe.toml", "graph.safetensors"):
        shutil.copy(tmp_path / "whole" / file, run / file)
    for step in (5, 60, 115):
        assert nursery.resume(run, at_step(run, step, kill)) == -signal.SIGKILL
        assert step <= checkpoint_step(run) < 160
    assert nursery.resume(run) == 0
    assert outcome(run) == outcome(tmp_path / "whole")
    resumed = load_file(run / "checkpoint.safetensors")
    assert all(value.equal(resumed[key]) for key, value in state.items())
