"""Entities that are like one against brute force in float64, by both measures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import eans
from eans.errors import RunError, UsageError
from eans.models import MODELS, Model
from eans.similarity import similar
from eans.types import Substitution
from helpers_graphs import random_graph
from helpers_runs import eans as command
from helpers_runs import one_line, ring_graph

GRAPH = random_graph(entities=9, relations=3)


def make(name: str, reciprocal: bool = False) -> Model:
    generator = torch.Generator().manual_seed(5)
    reciprocal = reciprocal or MODELS[name].tails_only
    return MODELS[name](GRAPH.num_entities, GRAPH.num_relations, 4, 1.0, generator, reciprocal=reciprocal)


def order(scores: list[float], k: int, without: int) -> list[str]:
    ids = sorted((e for e in range(len(scores)) if e != without), key=lambda e: (-scores[e], e))[:k]
    return [f"e{e}" for e in ids]


@settings(max_examples=40)
@given(name=st.sampled_from(sorted(MODELS)), one=st.integers(0, 8), k=st.integers(1, 12))
def test_by_embedding(name: str, one: int, k: int) -> None:
    model = make(name)
    rows = model.entity.detach().double().tolist()
    if model.comparison == "dot":
        dots = [sum(a * b for a, b in zip(row, rows[one], strict=True)) for row in rows]
        expected = [dot / math.hypot(*row) / math.hypot(*rows[one]) for dot, row in zip(dots, rows, strict=True)]
    else:
        expected = [-math.dist(row, rows[one]) for row in rows]
    found = similar(model, GRAPH, f"e{one}", k, "embedding")
    assert [row.entity for row in found] == order(expected, k, one)
    assert [row.score for row in found] == pytest.approx([expected[int(row.entity[1:])] for row in found], abs=1e-5)
    assert {row.measure for row in found} == {"cosine" if model.comparison == "dot" else "-L2 distance"}


@settings(max_examples=40)
@given(
    name=st.sampled_from(sorted(MODELS)),
    one=st.integers(0, 8),
    form=st.sampled_from(["symmetric", "one-way"]),
    reciprocal=st.booleans(),
)
def test_by_substitution(name: str, one: int, form: Substitution, reciprocal: bool) -> None:
    """The score that training lowers negatives by: the mean of ``(one, s, e)`` and ``(e, s, one)``, or the first."""
    model = make(name, reciprocal)
    s = model.substitution_relation
    forward = [model.score(torch.tensor([[one, s, e]])).item() for e in range(9)]
    backward = [model.score(torch.tensor([[e, s, one]])).item() for e in range(9)]
    if form == "one-way" or model.tails_only:
        backward = forward
    expected = [(a + b) / 2 for a, b in zip(forward, backward, strict=True)]
    found = similar(model, GRAPH, f"e{one}", 9, "substitution", form)
    assert [row.score for row in found] == pytest.approx(
        [expected[int(name[1:])] for name in order(expected, 9, one)], abs=1e-5
    )
    assert [expected[int(row.entity[1:])] for row in found] == pytest.approx([row.score for row in found], abs=1e-5)
    assert {(row.by, row.measure) for row in found} == {("substitution", "substitution score")}


def test_both_where_there_are_both() -> None:
    model = make("transe")
    both = similar(model, GRAPH, "e1", 3, None, "symmetric")
    parts = similar(model, GRAPH, "e1", 3, "embedding"), similar(model, GRAPH, "e1", 3, "substitution", "symmetric")
    assert both == parts[0] + parts[1]
    assert similar(model, GRAPH, "e1", 3) == parts[0]


def test_mistakes() -> None:
    model = make("transe")
    with pytest.raises(UsageError, match=r"^unknown entity 'e99'; did you mean 'e9'|unknown entity 'e99'"):
        similar(model, GRAPH, "e99")
    with pytest.raises(UsageError, match=r"^there are no substitution scores: the run was trained with another loss"):
        similar(model, GRAPH, "e1", by="substitution")
    with pytest.raises(UsageError, match="unknown by 'embeding'; did you mean 'embedding'"):
        similar(model, GRAPH, "e1", by="embeding")  # type: ignore[arg-type]
    with torch.no_grad():
        model.entity[3] = math.nan
    with pytest.raises(RunError, match="NaN"):
        similar(model, GRAPH, "e1")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    path = tmp_path_factory.mktemp("runs")
    small: dict[str, Any] = {"dim": 4, "steps": 2, "batch_size": 16, "negatives": 2}
    for sampler in ("uniform", "eans"):
        eans.train(ring_graph(12), "transe", sampler, out=path / sampler, **small)
    return {sampler: path / sampler for sampler in ("uniform", "eans")}


def test_the_command(folders: dict[str, Path]) -> None:
    assert "substitution" in {row.by for row in eans.Run.load(folders["eans"]).similar("e1")}
    done = command("similar", folders["eans"], "e1", "-k", "3", "--format", "json")
    found = [eans.Similar(**row) for row in json.loads(done.stdout)]
    assert tuple(found) == eans.Run.load(folders["eans"]).similar("e1", 3)
    lines = command("similar", folders["eans"], "e1", "-k", "3").stdout.splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("rank")] == [["rank", "entity"]] * 2
    assert [line.split()[1] for line in lines if not line.startswith("rank")] == [row.entity for row in found]
    assert len(command("similar", folders["uniform"], "e1", "-k", "3").stdout.splitlines()) == 4
    done = command("similar", folders["uniform"], "e1", "--by", "substitution")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there are no substitution scores" in one_line(done.stderr)
    assert "unknown entity 'E1'; did you mean 'e1'?" in one_line(command("similar", folders["eans"], "E1").stderr)
