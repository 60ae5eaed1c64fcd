"""`count_better` of every implementation against a loop in Python; Triton on a GPU, else in its interpreter."""

from __future__ import annotations

import math
import os
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_cases import let_interpreter_read_bounds, poison
from torch import Tensor

from eans import kernels
from eans.kernels import Counts, reference

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is decorated


class Case(NamedTuple):
    """Arguments of `count_better`."""

    scores: Tensor
    truth: Tensor
    keys: Tensor
    start: Tensor
    stop: Tensor


@pytest.fixture(params=["reference", "numba", "triton"])
def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An implementation, made to cut its work into many parts already for small shapes."""
    if request.param == "reference":
        monkeypatch.setitem(reference.BLOCK_ELEMENTS, "cpu", 40)
        monkeypatch.setitem(reference.BLOCK_ELEMENTS, "cuda", 40)
        return reference
    pytest.importorskip(request.param)
    found = import_module(f"eans.kernels.{request.param}_rank")
    if request.param == "triton":
        let_interpreter_read_bounds(monkeypatch)
        monkeypatch.setattr(found, "COUNT_CHUNK", 20)
        monkeypatch.setattr(found, "COUNT_TILE", 8)
    else:
        monkeypatch.setattr("eans.kernels.numba_rank.threads_for", lambda _: 2)
    return found


def make_case(scores: Tensor, truth: list[int], answers: list[set[int]]) -> Case:
    """Rows of a larger index: row b's query has the number ``3 b + 1``, and others have answers too."""
    batch, num_entities = scores.shape
    keys, start, stop = [], [], []
    for row in range(batch):
        keys += [3 * row * num_entities + entity for entity in (0, num_entities - 1)]
        start.append(len(keys))
        keys += [(3 * row + 1) * num_entities + entity for entity in sorted(answers[row])]
        stop.append(len(keys))
    return Case(scores, *(torch.tensor(values, dtype=torch.int64) for values in (truth, keys, start, stop)))


def brute(case: Case, answers: list[set[int]]) -> list[list[int]]:
    """Greater, equal and NaN, row by row."""
    found: list[list[int]] = [[], [], []]
    for row, mine, known in zip(case.scores.tolist(), case.truth.tolist(), answers, strict=True):
        others = [score for entity, score in enumerate(row) if entity not in known and entity != mine]
        found[0].append(sum(score > row[mine] for score in others))
        found[1].append(sum(score == row[mine] for score in others))
        found[2].append(sum(math.isnan(score) for score in row))
    return found


def run(module: ModuleType, case: Case) -> Counts:
    device = "cuda" if module.__name__.endswith("triton_rank") and torch.cuda.is_available() else "cpu"
    counts: Counts = module.count_better(*(tensor.to(device) for tensor in case))
    assert all(count.dtype == torch.int64 and count.shape == (len(case.truth),) for count in counts)
    return counts


def check(module: ModuleType, scores: Tensor, truth: list[int], answers: list[set[int]]) -> None:
    case = make_case(scores, truth, answers)
    assert [count.tolist() for count in run(module, case)] == brute(case, answers)


def random_case(batch: int, num_entities: int, share: float, seed: int = 0) -> tuple[Tensor, list[int], list[set[int]]]:
    """Few distinct scores; each entity is a known answer with probability `share`."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-2, 3, (batch, num_entities), generator=generator).float()
    truth = torch.randint(num_entities, (batch,), generator=generator).tolist()
    known = torch.rand(batch, num_entities, generator=generator) < share
    return scores, truth, [set(row.nonzero()[:, 0].tolist()) for row in known]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.7, 1.0])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 8), (4, 16), (7, 33), (2, 100)], ids=str)
def test_counts(shape: tuple[int, int], share: float, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch)
    check(module, *random_case(*shape, share))
    check(module, *(random_case(*shape, share)[0].double(), *random_case(*shape, share)[1:]))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_row(module: ModuleType, data: st.DataObject) -> None:
    num_entities = data.draw(st.integers(1, 40))
    entity = st.integers(0, num_entities - 1)
    score = st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 1e-45, 1.0, math.inf])
    rows = data.draw(st.lists(st.lists(score, min_size=num_entities, max_size=num_entities), min_size=1, max_size=4))
    truth = [data.draw(entity) for _ in rows]
    answers = [data.draw(st.sets(entity)) | ({mine} if data.draw(st.booleans()) else set()) for mine in truth]
    check(module, torch.tensor(rows), truth, answers)


@pytest.mark.parametrize("where", [0, 5, 39])
def test_nan_is_told(where: int, module: ModuleType) -> None:
    scores, truth, answers = random_case(3, 40, 0.3)
    scores[1, where] = math.nan
    counts = run(module, make_case(scores, truth, answers))
    assert counts.nan.tolist() == [0, 1, 0]
    plain = brute(make_case(scores, truth, answers), answers)
    assert counts.greater[[0, 2]].tolist() == plain[0][::2]


def test_rows_and_columns_may_be_strided(module: ModuleType) -> None:
    scores, truth, answers = random_case(5, 19, 0.4)
    wide = torch.full((5, 30), math.nan)
    wide[:, 4:23] = scores
    check(module, wide[:, 4:23], truth, answers)
    check(module, scores.T.contiguous().T, truth, answers)
    check(module, scores[:1].expand(5, 19), truth, answers)


def test_no_rows(module: ModuleType) -> None:
    check(module, torch.empty(0, 5), [], [])


@pytest.mark.parametrize("name", ["reference", "numba"])
def test_the_switch_finds_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "numba":
        pytest.importorskip("numba")
    monkeypatch.setattr(kernels, "_choice", name)
    scores, truth, answers = random_case(6, 50, 0.3)
    case = make_case(scores, truth, answers)
    assert [count.tolist() for count in kernels.count_better(*case)] == brute(case, answers)


def test_the_reference_stays_small(meter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub: most entities answer every query."""
    monkeypatch.setitem(reference.BLOCK_ELEMENTS, "cpu", 4096)
    case = make_case(*random_case(16, 4000, 0.9))
    with meter:
        reference.count_better(*case)
    assert meter.peak <= 8 * 4096


@pytest.mark.parametrize("name", ["numba", "triton"])
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"scores": torch.zeros(2, 3, dtype=torch.float16)}, TypeError),
        ({"truth": torch.zeros(2, dtype=torch.int32)}, TypeError),
        ({"truth": torch.zeros(3, dtype=torch.int64)}, ValueError),
        ({"start": torch.zeros(1, dtype=torch.int64)}, ValueError),
    ],
)
def test_what_does_not_fit_is_refused(name: str, change: dict[str, Tensor], error: type[Exception]) -> None:
    pytest.importorskip(name)
    case = make_case(torch.zeros(2, 3), [0, 1], [{0}, {1}])
    with pytest.raises(error):
        import_module(f"eans.kernels.{name}_rank").count_better(*case._replace(**change))


@pytest.mark.parametrize(
    "change",
    [
        {"truth": torch.tensor([0, 3])},
        {"truth": torch.tensor([-1, 0])},
        {"start": torch.tensor([-1, 0])},
        {"stop": torch.tensor([0, 7])},
    ],
)
def test_what_lies_outside_is_refused(change: dict[str, Tensor]) -> None:
    """On a CPU; a GPU would have to be waited for."""
    pytest.importorskip("numba")
    case = make_case(torch.zeros(2, 3), [0, 1], [{0}, {1}])
    with pytest.raises(IndexError):
        import_module("eans.kernels.numba_rank").count_better(*case._replace(**change))
