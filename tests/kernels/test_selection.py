"""`best` of every implementation against sorting row by row."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_cases import Implementation, only_numba
from torch import Tensor

from eans.kernels import Best

Answers = list[set[int]]


def index(batch: int, num_entities: int, answers: Answers) -> tuple[Tensor, Tensor, Tensor]:
    """Keys, start and stop: row b's query has the number ``3 b + 1``, and others have answers too."""
    keys, start, stop = [], [], []
    for row in range(batch):
        keys += [3 * row * num_entities + entity for entity in (0, num_entities - 1)]
        start.append(len(keys))
        keys += [(3 * row + 1) * num_entities + entity for entity in sorted(answers[row])]
        stop.append(len(keys))
    found = (torch.tensor(values, dtype=torch.int64) for values in (keys, start, stop))
    return tuple(found)  # type: ignore[return-value]


def run(ops: Implementation, scores: Tensor, k: int, answers: Answers) -> Best:
    keys, start, stop = index(len(scores), scores.shape[1], answers)
    found: Best = ops.best(ops.put(scores), k, ops.put(keys), ops.put(start), ops.put(stop))
    return Best(*(part.cpu() for part in found))


def check(ops: Implementation, scores: Tensor, k: int, answers: Answers) -> None:
    found = run(ops, scores, k, answers)
    assert found.scores.dtype == scores.dtype
    for row, known in enumerate(answers):
        values = scores[row].tolist()
        order = sorted((e for e in range(len(values)) if e not in known), key=lambda e: (-values[e], e))[:k]
        missing = k - len(order)
        assert found.entities[row].tolist() == order + [-1] * missing
        assert found.scores[row].tolist() == [values[e] for e in order] + [-math.inf] * missing
    assert not found.nan.any()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_rows(ops: Implementation, data: st.DataObject) -> None:
    num_entities = data.draw(st.integers(1, 150))
    score = st.sampled_from([-math.inf, -1.0, 0.0, 1e-45, 1.0, 2.0, math.inf])
    rows = data.draw(st.lists(st.lists(score, min_size=num_entities, max_size=num_entities), min_size=1, max_size=3))
    answers = [data.draw(st.sets(st.integers(0, num_entities - 1))) for _ in rows]
    check(ops, torch.tensor(rows), data.draw(st.integers(1, num_entities)), answers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("k", [1, 2, 10, 65, 1000])
@pytest.mark.parametrize("order", ["random", "ascending", "descending"])
def test_long_rows(ops: Implementation, k: int, order: str, dtype: torch.dtype) -> None:
    scores = torch.randn(5, 1000, generator=torch.Generator().manual_seed(k), dtype=dtype)
    if order != "random":
        scores = scores.sort(dim=1, descending=order == "descending").values
    check(ops, scores, k, [set(range(0, 1000, step)) for step in (1, 2, 7, 500, 999)])


@pytest.mark.parametrize("where", [0, 5, 99])
def test_nan_is_told(ops: Implementation, where: int) -> None:
    scores = torch.randn(3, 100)
    scores[1, where] = math.nan
    assert run(ops, scores, 4, [set(), {where}, set()]).nan.tolist() == [False, True, False]


def test_rows_and_columns_may_be_strided(ops: Implementation) -> None:
    scores = torch.randn(5, 19, generator=torch.Generator().manual_seed(0))
    wide = torch.full((5, 30), math.nan)
    wide[:, 4:23] = scores
    answers = [{1, 2}, set(), {18}, {0}, {7}]
    check(ops, wide[:, 4:23], 4, answers)
    check(ops, scores.T.contiguous().T, 4, answers)


def test_no_rows(ops: Implementation) -> None:
    check(ops, torch.empty(0, 5), 3, [])


@only_numba
def test_what_the_loops_would_read_wrongly(ops: Implementation) -> None:
    scores, (keys, start, stop) = torch.randn(2, 5), index(2, 5, [{1}, {2}])
    for k in (0, 6):
        with pytest.raises(ValueError, match=f"the {k} best of 5"):
            ops.best(scores, k, keys, start, stop)
    with pytest.raises(TypeError, match="float16"):
        ops.best(scores.half(), 1, keys, start, stop)
    with pytest.raises(ValueError, match="sizes differ"):
        ops.best(scores, 1, keys, start[:1], stop)
    with pytest.raises(IndexError, match="answers from"):
        ops.best(scores, 1, keys, start, stop + 5)
