"""The cross-entropy of positives on a CPU, against the reference in float64: values, gradients, NaN and infinity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("numba")

from kernel_cases import poison, two_threads

from eans.kernels import numba_softmax, reference_step

Surprise = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two threads already for small shapes, and buffers that hold NaN."""
    poison(monkeypatch)
    with two_threads(monkeypatch):
        yield


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def results(
    surprise: Surprise, positive: Tensor, negative: Tensor, known: Tensor, proposal: Tensor | None
) -> list[Tensor]:
    """The surprise and both gradients, in float64 where the scores are."""
    leaves = [scores.clone().requires_grad_() for scores in (positive, negative)]
    found = surprise(*leaves, known, proposal)
    outer = torch.linspace(-1.0, 2.0, len(positive), dtype=positive.dtype)
    return [found.detach(), *torch.autograd.grad(found, leaves, outer)]


def assert_equal(positive: Tensor, negative: Tensor, known: Tensor, proposal: Tensor | None = None) -> None:
    wide = None if proposal is None else proposal.double()
    expected = results(reference_step.surprise, positive.double(), negative.double(), known, wide)
    for found, exact in zip(
        results(numba_softmax.surprise, positive, negative, known, proposal), expected, strict=True
    ):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), exact, rtol=4e-6, atol=1e-7)


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize(("batch", "negatives"), [(1, 1), (5, 3), (6, 17), (9, 64), (3, 1001)])
@pytest.mark.parametrize("size", [0.1, 5.0, 30.0])
def test_equals_the_reference(batch: int, negatives: int, size: float, corrected: bool) -> None:
    known = normal(batch, negatives, seed=5) > 0.8
    known[0] = batch == 1  # none of a row
    known[-1] = True  # or all: the positive alone
    proposal = normal(batch, negatives, seed=6) - 3.0 if corrected else None
    assert_equal(normal(batch, seed=0) * size, normal(batch, negatives, seed=1) * size, known, proposal)


@given(st.lists(st.floats(-200, 200, width=32), min_size=1, max_size=20), st.floats(-200, 200, width=32))
def test_any_scores(scores: list[float], own: float) -> None:
    negative = torch.tensor([scores])
    assert_equal(torch.tensor([own]), negative, torch.zeros(negative.shape, dtype=torch.bool))


def test_far_apart() -> None:
    """Exponentials that float32 does not have: of what is far above the positive, and far below the highest."""
    negative = torch.tensor([[800.0, 1.0, -800.0], [-800.0, -900.0, -1000.0], [90.0, 2.9, 3.1]])
    known = torch.zeros(3, 3, dtype=torch.bool)
    assert_equal(torch.tensor([0.0, 0.0, 0.0]), negative, known)
    known[0, 0] = True  # the highest does not count: 1 is the next
    assert_equal(torch.tensor([0.0, 0.0, 0.0]), negative, known)


def test_exponentials_in_all_of_float32() -> None:
    """The slope of ``log(1 + exp(z))`` is the share ``exp(z) / (1 + exp(z))``, to the last digits of the smallest."""
    above = torch.linspace(-86.5, 86.5, 20_001)[:, None].requires_grad_()
    known = torch.zeros(above.shape, dtype=torch.bool)
    found = numba_softmax.surprise(torch.zeros(len(above)), above, known, None)
    (slope,) = torch.autograd.grad(found.sum(), above)
    exact = above.detach().double()
    torch.testing.assert_close(slope.double(), exact.sigmoid(), rtol=4e-7, atol=0.0)
    torch.testing.assert_close(found.detach().double()[:, None], exact.exp().log1p(), rtol=4e-7, atol=1e-7)
    # Below, exponentials are zero; float32 has none with all digits there.
    assert numba_softmax.surprise(torch.zeros(1), torch.tensor([[-88.0]]), known[:1], None).tolist() == [0.0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_shows(bad: float) -> None:
    negative = normal(4, 37, seed=2)
    negative[2, 33] = bad
    known = torch.zeros(4, 37, dtype=torch.bool)
    surprise, _, gradient = results(numba_softmax.surprise, normal(4, seed=3), negative, known, None)
    assert surprise.isfinite().tolist() == [True, True, False, True]
    assert not gradient[2, 33].isfinite()
    known[2, 33] = True
    assert results(numba_softmax.surprise, normal(4, seed=3), negative, known, None)[0].isfinite().all()


def test_scores_need_not_be_contiguous() -> None:
    wide, known = normal(8, 12, seed=4), normal(12, 8, seed=5) > 1
    positive = normal(24, seed=6)[::2]
    found = numba_softmax.surprise(positive, wide.T, known, None)
    torch.testing.assert_close(found, reference_step.surprise(positive, wide.T, known, None))


@pytest.mark.parametrize(("batch", "negatives"), [(3, 0), (0, 4)])
def test_nothing_to_compare(batch: int, negatives: int) -> None:
    known = torch.zeros(batch, negatives, dtype=torch.bool)
    found = numba_softmax.surprise(normal(batch, seed=0), normal(batch, negatives, seed=1), known, None)
    assert found.tolist() == [0.0] * batch


def test_a_second_backward_pass_is_an_error() -> None:
    negative = normal(3, 5, seed=1).requires_grad_()
    loss = numba_softmax.surprise(normal(3, seed=0), negative, torch.zeros(3, 5, dtype=torch.bool), None).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("type_of_positive", [torch.float64, torch.float32])
def test_other_types_go_to_the_reference(type_of_positive: torch.dtype) -> None:
    positive, negative = normal(4, seed=0).to(type_of_positive), normal(4, 6, seed=1).double()
    known = normal(4, 6, seed=2) > 0
    expected = reference_step.surprise(positive, negative, known, None)
    assert torch.equal(numba_softmax.surprise(positive, negative, known, None), expected)


def test_one_mask_and_proposal_for_all_rows() -> None:
    positive, negative = normal(4, seed=0), normal(4, 6, seed=1)
    known, proposal = normal(1, 6, seed=2) > 0, normal(1, 6, seed=3)
    found = numba_softmax.surprise(positive, negative, known, proposal)
    torch.testing.assert_close(found, reference_step.surprise(positive, negative, known, proposal))


def test_gradients_of_what_asks_for_them() -> None:
    positive, negative, known = normal(5, seed=0), normal(5, 7, seed=1), torch.zeros(5, 7, dtype=torch.bool)
    plain, *gradients = results(numba_softmax.surprise, positive, negative, known, None)
    outer = torch.linspace(-1.0, 2.0, 5)
    for index, gradient in enumerate(gradients):
        scores = [positive.clone(), negative.clone()]
        scores[index].requires_grad_()
        found = numba_softmax.surprise(scores[0], scores[1], known, None)
        assert torch.equal(torch.autograd.grad(found, scores[index], outer)[0], gradient)
    with torch.no_grad():
        assert torch.equal(numba_softmax.surprise(positive.requires_grad_(), negative, known, None), plain)


def test_same_bits_for_any_number_of_threads() -> None:
    """Rows long enough, and enough of them, for threads to be at work at the same time."""
    arguments = normal(400, seed=0), normal(400, 5000, seed=1), normal(400, 5000, seed=2) > 1, None
    several = results(numba_softmax.surprise, *arguments)
    torch.set_num_threads(1)
    assert all(map(torch.equal, several, results(numba_softmax.surprise, *arguments)))
