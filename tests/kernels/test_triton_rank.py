"""`compare_all` in Triton, whatever the block and however programs are grouped; on a GPU, else in the interpreter."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is decorated: before the imports below

pytest.importorskip("triton")

from kernel_cases import Shape, assert_near, let_interpreter_read_bounds, make_case, poison, widened

from eans import evaluation, kernels, ordering
from eans.graph import SIDES
from eans.kernels import Comparison, reference, triton_rank
from eans.kernels.triton_rank import RANK_BLOCKS, Block
from eans.models import MODELS

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BLOCKS = [Block(1, 1, 1, 1), Block(2, 4, 8, 1, 2), Block(4, 2, 4, 1, 4), Block(32, 64, 8, 4)]


@pytest.fixture(autouse=True)
def _interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    let_interpreter_read_bounds(monkeypatch)
    poison(monkeypatch)


@pytest.mark.parametrize("shifted", [False, True], ids=["plain", "shifted"])
@pytest.mark.parametrize("group", [1, 4, 1024])
@pytest.mark.parametrize("block", BLOCKS, ids=str)
@pytest.mark.parametrize("kind", ["l1", "modulus"])
def test_blocks_and_groups(
    kind: Comparison, block: Block, group: int, shifted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RANK_BLOCKS, kind, block)
    monkeypatch.setattr(triton_rank, "GROUP_QUERIES", group)
    case = make_case(Shape(1, 7, 1, 22, 9), shifted, torch.float32, DEVICE)
    wide = widened(case)
    scores, expected = (
        module.compare_all(kind, one.queries[0], one.table, None if one.shifts is None else one.shifts[0], one.scalars)
        for module, one in ((triton_rank, case), (reference, wide))
    )
    assert_near(scores, expected)


@pytest.mark.parametrize("kind", ["l1", "modulus"])
@pytest.mark.parametrize("shape", [Shape(1, 1, 1, 2, 1), Shape(1, 33, 1, 16, 65), Shape(1, 5, 1, 6, 130)], ids=str)
def test_blocks_of_the_gpu(kind: Comparison, shape: Shape) -> None:
    case = make_case(shape, False, device=DEVICE)
    scores = triton_rank.compare_all(kind, case.queries[0], case.table)
    assert_near(scores, reference.compare_all(kind, case.queries[0], case.table))


@pytest.mark.parametrize("kind", ["l1", "modulus"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_in_its_row(kind: Comparison, bad: float) -> None:
    case = make_case(Shape(1, 5, 1, 10, 7), False, torch.float32, DEVICE)
    case.queries[0, 2, 3] = bad
    scores = triton_rank.compare_all(kind, case.queries[0], case.table)
    assert not torch.isfinite(scores[2]).any()
    assert torch.isfinite(scores[[0, 1, 3, 4]]).all()


@pytest.mark.parametrize("name", MODELS)
def test_ranks_are_those_of_the_reference(name: str, make_graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole numbers in the tables: scores are exact, and many tie."""
    graph = make_graph(40, 3, (80, 0, 6))
    model = MODELS[name](40, 3, 2)
    with torch.no_grad():
        for table in (model.entity, model.relation):
            table.copy_(torch.randint(-2, 3, table.shape, generator=torch.Generator().manual_seed(1)))
    monkeypatch.setattr(kernels, "_choice", "reference")
    expected = evaluation.rank(model, graph)
    monkeypatch.setattr(kernels, "_choice", "triton")
    found = evaluation.rank(model.to(DEVICE), graph, memory=4 * evaluation.bytes_per_query(model))
    for side in SIDES:
        if name not in ("rotate", "transh"):  # sines and unit vectors are not whole
            assert torch.equal(found.greater[side], expected.greater[side])
            assert torch.equal(found.equal[side], expected.equal[side])
        assert found.greater[side].device.type == "cpu"


@pytest.mark.parametrize("name", [name for name, kind in MODELS.items() if kind.fused])
def test_a_block_waits_for_nothing(name: str, make_graph, gpu_must_not_wait) -> None:
    graph = make_graph(40, 3, (80, 0, 6))
    model, triples, known = MODELS[name](40, 3, 8).to(DEVICE), graph.test.to(DEVICE), graph.known.to(DEVICE)
    with gpu_must_not_wait():
        evaluation._count_block(model, triples, "tail", known)


def test_lloyd_waits_for_nothing(monkeypatch: pytest.MonkeyPatch, gpu_must_not_wait) -> None:
    points = torch.randn(300, 20, device=DEVICE)
    start = points[:10].clone()
    monkeypatch.setitem(ordering.LOOK_EVERY, DEVICE, 1000)
    with gpu_must_not_wait():
        ordering.kmeans(points, 10, torch.Generator(DEVICE), start)
