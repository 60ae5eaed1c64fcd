"""`compare_all` and `count_better` of every implementation, and the ranks that evaluation makes of them."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_cases import (
    REFERENCE,
    Implementation,
    Shape,
    assert_near,
    compiled,
    kinds,
    only_numba,
    only_reference,
    only_triton,
    types,
    with_shift,
)
from kernel_cases import make_case as make_comparison
from torch import Tensor

from eans import evaluation, kernels, ranking
from eans.graph import SIDES
from eans.kernels import Comparison, Counts, blocks
from eans.models import MODELS

# --- compare_all ------------------------------------------------------------------------------------------------------


@kinds
@with_shift
@types
@pytest.mark.parametrize("shape", [Shape(1, 5, 1, 38, 7), Shape(1, 1, 1, 2, 1), Shape(1, 9, 1, 70, 33)], ids=str)
def test_compare_all(ops: Implementation, kind: Comparison, shifted: bool, dtype: torch.dtype, shape: Shape) -> None:
    """It equals `compare` with every entity as a candidate of every query."""
    case = make_comparison(shape, shifted, dtype)
    scores = ops.compare_all(kind, *case.to(ops.device).ranked())
    assert scores.dtype == dtype
    wide = case.widened()
    entities = torch.arange(shape.entities).expand(shape.batch, shape.entities)
    assert_near(scores, REFERENCE.compare(kind, wide.queries, wide.table, entities, wide.shifts, wide.scalars)[0])


@only_numba
@kinds
@with_shift
@types
def test_compare_all_of_many(ops: Implementation, kind: Comparison, shifted: bool, dtype: torch.dtype) -> None:
    case = make_comparison(Shape(1, 9, 1, 70, 1001), shifted, dtype)
    assert_near(ops.compare_all(kind, *case.ranked()), REFERENCE.compare_all(kind, *case.widened().ranked()))


@only_triton
@with_shift
@pytest.mark.parametrize("group", [1, 4, 1024])
@pytest.mark.parametrize("block", [(1, 1, 1, 1), (2, 4, 8, 1, 2), (4, 2, 4, 1, 4), (32, 64, 8, 4)], ids=str)
@pytest.mark.parametrize("kind", ["l1", "modulus"])
def test_blocks_and_groups(
    ops: Implementation,
    kind: Comparison,
    block: tuple[int, ...],
    group: int,
    shifted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module: Any = import_module("eans.kernels.rank.triton")
    monkeypatch.setitem(module.RANK_BLOCKS, kind, module.Block(*block))
    monkeypatch.setattr(module, "GROUP_QUERIES", group)
    case = make_comparison(Shape(1, 7, 1, 22, 9), shifted, torch.float32)
    scores = ops.compare_all(kind, *case.to(ops.device).ranked())
    assert_near(scores, REFERENCE.compare_all(kind, *case.widened().ranked()))


@only_triton
@pytest.mark.parametrize("kind", ["l1", "modulus"])
@pytest.mark.parametrize("shape", [Shape(1, 1, 1, 2, 1), Shape(1, 33, 1, 16, 65), Shape(1, 5, 1, 6, 130)], ids=str)
def test_blocks_of_the_gpu(
    ops: Implementation, kind: Comparison, shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = import_module("eans.kernels.rank.triton")
    monkeypatch.setattr(module, "RANK_BLOCKS", dict.fromkeys(("l1", "modulus"), module.Block(32, 64, 8, 4)))
    case = make_comparison(shape, False)
    scores = ops.compare_all(kind, *case.to(ops.device).ranked())
    assert_near(scores, REFERENCE.compare_all(kind, *case.ranked()))


@kinds
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_in_its_row(ops: Implementation, kind: Comparison, bad: float) -> None:
    case = make_comparison(Shape(1, 5, 1, 10, 7), False, torch.float32).to(ops.device)
    case.queries[0, 2, 3] = bad
    scores = ops.compare_all(kind, case.queries[0], case.table)
    assert not torch.isfinite(scores[2]).any()
    assert torch.isfinite(scores[[0, 1, 3, 4]]).all()


@only_reference
@kinds
@with_shift
def test_compare_all_needs_one_block_beyond_its_result(
    ops: Implementation, kind: Comparison, shifted: bool, meter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setitem(blocks.BLOCK_ELEMENTS, "cpu", 1024)
    case = make_comparison(Shape(1, 4, 1, 64, 3000), shifted)
    with meter:
        scores = ops.compare_all(kind, *case.ranked())
    assert meter.largest == scores.numel()
    assert meter.peak <= 8 * (scores.numel() + 4 * 1024 + 64)


# --- count_better -----------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """Arguments of `count_better`."""

    scores: Tensor
    truth: Tensor
    keys: Tensor
    start: Tensor
    stop: Tensor


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


def run(ops: Implementation, case: Case) -> Counts:
    counts: Counts = ops.count_better(*(ops.put(tensor) for tensor in case))
    assert all(count.dtype == torch.int64 and count.shape == (len(case.truth),) for count in counts)
    return counts


def check(ops: Implementation, scores: Tensor, truth: list[int], answers: list[set[int]]) -> None:
    case = make_case(scores, truth, answers)
    assert [count.tolist() for count in run(ops, case)] == brute(case, answers)


def random_case(batch: int, num_entities: int, share: float, seed: int = 0) -> tuple[Tensor, list[int], list[set[int]]]:
    """Few distinct scores; each entity is a known answer with probability `share`."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-2, 3, (batch, num_entities), generator=generator).float()
    truth = torch.randint(num_entities, (batch,), generator=generator).tolist()
    known = torch.rand(batch, num_entities, generator=generator) < share
    return scores, truth, [set(row.nonzero()[:, 0].tolist()) for row in known]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.7, 1.0])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 8), (4, 16), (7, 33), (2, 100)], ids=str)
def test_counts(shape: tuple[int, int], share: float, ops: Implementation) -> None:
    check(ops, *random_case(*shape, share))
    check(ops, *(random_case(*shape, share)[0].double(), *random_case(*shape, share)[1:]))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_row(ops: Implementation, data: st.DataObject) -> None:
    num_entities = data.draw(st.integers(1, 40))
    entity = st.integers(0, num_entities - 1)
    score = st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 1e-45, 1.0, math.inf])
    rows = data.draw(st.lists(st.lists(score, min_size=num_entities, max_size=num_entities), min_size=1, max_size=4))
    truth = [data.draw(entity) for _ in rows]
    answers = [data.draw(st.sets(entity)) | ({mine} if data.draw(st.booleans()) else set()) for mine in truth]
    check(ops, torch.tensor(rows), truth, answers)


@pytest.mark.parametrize("where", [0, 5, 39])
def test_nan_is_told(where: int, ops: Implementation) -> None:
    scores, truth, answers = random_case(3, 40, 0.3)
    scores[1, where] = math.nan
    counts = run(ops, make_case(scores, truth, answers))
    assert counts.nan.tolist() == [0, 1, 0]
    plain = brute(make_case(scores, truth, answers), answers)
    assert counts.greater[[0, 2]].tolist() == plain[0][::2]


def test_rows_and_columns_may_be_strided(ops: Implementation) -> None:
    scores, truth, answers = random_case(5, 19, 0.4)
    wide = torch.full((5, 30), math.nan)
    wide[:, 4:23] = scores
    check(ops, wide[:, 4:23], truth, answers)
    check(ops, scores.T.contiguous().T, truth, answers)
    check(ops, scores[:1].expand(5, 19), truth, answers)


def test_no_rows(ops: Implementation) -> None:
    check(ops, torch.empty(0, 5), [], [])


@only_reference
def test_the_reference_stays_small(ops: Implementation, meter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub: most entities answer every query."""
    monkeypatch.undo()
    monkeypatch.setitem(blocks.BLOCK_ELEMENTS, "cpu", 4096)
    case = make_case(*random_case(16, 4000, 0.9))
    with meter:
        ops.count_better(*case)
    assert meter.peak <= 8 * 4096


@compiled
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"scores": torch.zeros(2, 3, dtype=torch.float16)}, TypeError),
        ({"truth": torch.zeros(2, dtype=torch.int32)}, TypeError),
        ({"truth": torch.zeros(3, dtype=torch.int64)}, ValueError),
        ({"start": torch.zeros(1, dtype=torch.int64)}, ValueError),
    ],
)
def test_what_does_not_fit(ops: Implementation, change: dict[str, Tensor], error: type[Exception]) -> None:
    case = make_case(torch.zeros(2, 3), [0, 1], [{0}, {1}])
    with pytest.raises(error):
        ops.count_better(*(ops.put(tensor) for tensor in case._replace(**change)))


@only_numba
@pytest.mark.parametrize(
    "change",
    [
        {"truth": torch.tensor([0, 3])},
        {"truth": torch.tensor([-1, 0])},
        {"start": torch.tensor([-1, 0])},
        {"stop": torch.tensor([0, 7])},
    ],
)
def test_what_lies_outside(ops: Implementation, change: dict[str, Tensor]) -> None:
    """On a CPU; a GPU would have to be synchronised."""
    case = make_case(torch.zeros(2, 3), [0, 1], [{0}, {1}])
    with pytest.raises(IndexError):
        ops.count_better(*case._replace(**change))


# --- ranks ------------------------------------------------------------------------------------------------------------


@compiled
@pytest.mark.parametrize("name", MODELS)
def test_ranks_are_those_of_the_reference(ops: Implementation, name: str, make_graph: Any) -> None:
    """Whole numbers in the tables: scores are exact, and many tie."""
    graph = make_graph(40, 3, (80, 0, 6))
    model = MODELS[name](40, 3, 2)
    with torch.no_grad():
        for table in (model.entity, model.relation):
            table.copy_(torch.randint(-2, 3, table.shape, generator=torch.Generator().manual_seed(1)))
    with kernels.chosen("reference"):
        expected = evaluation.rank(model, graph)
    with kernels.chosen(ops.name):
        found = evaluation.rank(model.to(ops.device), graph, memory=4 * ranking.bytes_per_query(model))
    for side in SIDES:
        if name not in ("rotate", "transh"):  # sines and unit vectors are not whole
            assert torch.equal(found.greater[side], expected.greater[side])
            assert torch.equal(found.equal[side], expected.equal[side])
        assert found.greater[side].device.type == "cpu"


@pytest.mark.parametrize("name", [name for name, kind in MODELS.items() if kind.fused])
def test_ranking_a_block_does_not_synchronise(name: str, make_graph: Any, gpu_must_not_wait: Any) -> None:
    graph = make_graph(40, 3, (80, 0, 6))
    model, known = MODELS[name](40, 3, 8).to("cuda"), graph.known.to("cuda")
    asked = ranking.Asked.of(graph.test, "tail", known)
    with gpu_must_not_wait():
        ranking.count(model.scorer(asked.triples, "tail"), asked, [slice(0, 40)])
