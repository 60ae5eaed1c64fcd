"""The cross-entropy of positives in every implementation: values, gradients, NaN and infinity."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_cases import REFERENCE, Implementation, compiled, normal, only_numba, only_triton, same_bits
from torch import Tensor

from eans.kernels.matmul.tensor_cores import ALIGNMENT


def single(*shape: int, seed: int) -> Tensor:
    return normal(*shape, seed=seed, dtype=torch.float32)


def results(ops: Any, positive: Tensor, negative: Tensor, known: Tensor, proposal: Tensor | None) -> list[Tensor]:
    """The loss and both gradients, on the CPU."""
    device = getattr(ops, "device", "cpu")
    leaves = [scores.clone().to(device).requires_grad_() for scores in (positive, negative)]
    found = ops.softmax_nll(*leaves, known.to(device), None if proposal is None else proposal.to(device))
    outer = torch.linspace(-1.0, 2.0, len(positive), dtype=positive.dtype, device=device)
    return [part.cpu() for part in (found.detach(), *torch.autograd.grad(found, leaves, outer))]


def assert_equal(
    ops: Implementation, positive: Tensor, negative: Tensor, known: Tensor, proposal: Tensor | None = None
) -> None:
    wide = None if proposal is None else proposal.double()
    expected = results(REFERENCE, positive.double(), negative.double(), known, wide)
    # Logits are rounded in units of their size, which shows in the exponentials.
    size = float((negative - positive[:, None] - (0.0 if proposal is None else proposal)).abs().max())
    relative, absolute = 4e-6 + 2**-23 * size, 1e-7 if ops.name == "numba" else 2e-6
    if positive.dtype == torch.float64:
        relative = absolute = 1e-12
    for found, exact in zip(results(ops, positive, negative, known, proposal), expected, strict=True):
        assert found.dtype == positive.dtype
        torch.testing.assert_close(found.double(), exact, rtol=relative, atol=absolute)


# --- values and gradients ---------------------------------------------------------------------------------------------


def test_the_definition(ops: Implementation) -> None:
    """Of two candidates, one drawn with probability 1/4 and one known to be true."""
    positive, negative = torch.tensor([0.5]), torch.tensor([[1.0, 7.0]])
    known, proposal = torch.tensor([[False, True]]), torch.tensor([[0.25, 0.5]]).log()
    own, other = torch.tensor(0.5).exp(), torch.tensor(1.0).exp()
    for drawn, weight in ((None, 1.0), (proposal, 1 / (2 * 0.25))):
        found, *_ = results(ops, positive, negative, known, drawn)
        torch.testing.assert_close(found[0], -torch.log(own / (own + weight * other)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize(("batch", "negatives"), [(1, 1), (5, 3), (6, 4), (6, 17), (9, 64)])
@pytest.mark.parametrize("size", [0.1, 5.0, 30.0])
def test_equals_the_reference(
    ops: Implementation, batch: int, negatives: int, size: float, corrected: bool, dtype: torch.dtype
) -> None:
    known = normal(batch, negatives, seed=5) > 0.8
    known[0] = batch == 1  # none of a row
    known[-1] = True  # or all: the positive alone
    proposal = normal(batch, negatives, seed=6, dtype=dtype) - 3.0 if corrected else None
    positive, negative = normal(batch, seed=0, dtype=dtype) * size, normal(batch, negatives, seed=1, dtype=dtype) * size
    assert_equal(ops, positive, negative, known, proposal)


@only_numba
@pytest.mark.parametrize("corrected", [False, True])
def test_many_candidates(ops: Implementation, corrected: bool) -> None:
    known, proposal = normal(3, 1001, seed=5) > 0.8, single(3, 1001, seed=6) - 3.0 if corrected else None
    assert_equal(ops, single(3, seed=0) * 5, single(3, 1001, seed=1) * 5, known, proposal)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(-200, 200, width=32), min_size=1, max_size=20), st.floats(-200, 200, width=32))
def test_any_scores(ops: Implementation, scores: list[float], own: float) -> None:
    negative = torch.tensor([scores])
    assert_equal(ops, torch.tensor([own]), negative, torch.zeros(negative.shape, dtype=torch.bool))


def test_far_apart(ops: Implementation) -> None:
    """Exponentials that float32 does not have: of what is far above the positive, and far below the highest."""
    negative = torch.tensor([[800.0, 1.0, -800.0], [-800.0, -900.0, -1000.0], [90.0, 2.9, 3.1]])
    known = torch.zeros(3, 3, dtype=torch.bool)
    assert_equal(ops, torch.zeros(3), negative, known)
    known[0, 0] = True  # the highest does not count: 1 is the next
    assert_equal(ops, torch.zeros(3), negative, known)


@compiled
@pytest.mark.parametrize("lead", [1.0, 6.0, 20.0, 40.0])
def test_positives_that_lead(ops: Implementation, lead: float) -> None:
    """The gradient of a positive whose loss is small keeps its digits: a difference of two near 1 would not."""
    positive, negative, known = single(3, seed=0) + lead, single(3, 6, seed=1), torch.zeros(3, 6, dtype=torch.bool)
    _, gradient, _ = results(ops, positive, negative, known, None)
    pull = torch.softmax(torch.cat([positive[:, None], negative], 1).double(), 1)[:, 1:].sum(1)
    torch.testing.assert_close(gradient.double(), -torch.linspace(-1.0, 2.0, 3) * pull, rtol=1e-5, atol=0)


@only_numba
def test_exponentials_in_all_of_float32(ops: Implementation) -> None:
    """The slope of ``log(1 + exp(z))`` is the share ``exp(z) / (1 + exp(z))``, to the last digits of the smallest."""
    above = torch.linspace(-86.5, 86.5, 20_001)[:, None].requires_grad_()
    known = torch.zeros(above.shape, dtype=torch.bool)
    found = ops.softmax_nll(torch.zeros(len(above)), above, known, None)
    (slope,) = torch.autograd.grad(found.sum(), above)
    exact = above.detach().double()
    torch.testing.assert_close(slope.double(), exact.sigmoid(), rtol=4e-7, atol=0.0)
    torch.testing.assert_close(found.detach().double()[:, None], exact.exp().log1p(), rtol=4e-7, atol=1e-7)
    # Below, exponentials are zero; float32 has none with all digits there.
    assert ops.softmax_nll(torch.zeros(1), torch.tensor([[-88.0]]), known[:1], None).tolist() == [0.0]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # the interpreter's, of inf - inf
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_shows(ops: Implementation, bad: float) -> None:
    negative = single(4, 37, seed=2)
    negative[2, 33] = bad
    known = torch.zeros(4, 37, dtype=torch.bool)
    loss, _, gradient = results(ops, single(4, seed=3), negative, known, None)
    assert loss.isfinite().tolist() == [True, True, False, True]
    assert not gradient[2, 33].isfinite()
    known[2, 33] = True
    assert results(ops, single(4, seed=3), negative, known, None)[0].isfinite().all()


# --- layouts ----------------------------------------------------------------------------------------------------------


def test_scores_need_not_be_contiguous(ops: Implementation) -> None:
    wide, known, positive = single(8, 12, seed=4), normal(12, 8, seed=5) > 1, single(24, seed=6)[::2]
    found = ops.softmax_nll(ops.put(positive), ops.put(wide).T, ops.put(known), None)
    torch.testing.assert_close(found.cpu(), REFERENCE.softmax_nll(positive, wide.T, known, None))


@only_triton
def test_padded_scores(ops: Implementation) -> None:
    """Scores as `products` leaves them, and a gradient as it needs it; a score that is not finite shows."""
    known, padded, positive = ops.put(torch.zeros(4, 6, dtype=torch.bool)), ops.put(normal(4, 9)), ops.put(normal(4))
    scores = padded[:, :6].detach().requires_grad_()
    found = ops.softmax_nll(positive, scores, known, None)
    torch.testing.assert_close(found.detach(), REFERENCE.softmax_nll(positive, padded[:, :6], known, None))
    (gradient,) = torch.autograd.grad(found.sum(), scores)
    assert gradient.stride(0) % ALIGNMENT == 0
    padded[2, 3] = float("nan")
    assert ops.softmax_nll(positive, padded[:, :6], known, None).isnan().tolist() == [False, False, True, False]


@pytest.mark.parametrize(("batch", "negatives"), [(3, 0), (0, 4)])
def test_nothing_to_compare(ops: Implementation, batch: int, negatives: int) -> None:
    known = torch.zeros(batch, negatives, dtype=torch.bool)
    given = single(batch, seed=0), single(batch, negatives, seed=1), known
    assert ops.softmax_nll(*(ops.put(part) for part in given), None).tolist() == [0.0] * batch


@only_numba
@pytest.mark.parametrize("type_of_positive", [torch.float64, torch.float32])
def test_other_types_go_to_the_reference(ops: Implementation, type_of_positive: torch.dtype) -> None:
    positive, negative = single(4, seed=0).to(type_of_positive), normal(4, 6, seed=1)
    known = normal(4, 6, seed=2) > 0
    expected = REFERENCE.softmax_nll(positive, negative, known, None)
    assert torch.equal(ops.softmax_nll(positive, negative, known, None), expected)


@only_numba
def test_one_mask_and_proposal_for_all_rows(ops: Implementation) -> None:
    positive, negative = single(4, seed=0), single(4, 6, seed=1)
    known, proposal = normal(1, 6, seed=2) > 0, single(1, 6, seed=3)
    found = ops.softmax_nll(positive, negative, known, proposal)
    torch.testing.assert_close(found, REFERENCE.softmax_nll(positive, negative, known, proposal))


# --- autograd ---------------------------------------------------------------------------------------------------------


@only_numba
def test_a_second_backward_pass_is_an_error(ops: Implementation) -> None:
    negative = single(3, 5, seed=1).requires_grad_()
    loss = ops.softmax_nll(single(3, seed=0), negative, torch.zeros(3, 5, dtype=torch.bool), None).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_gradients_of_what_requires_them(ops: Implementation) -> None:
    positive, negative, known = single(5, seed=0), single(5, 7, seed=1), torch.zeros(5, 7, dtype=torch.bool)
    plain, *gradients = results(ops, positive, negative, known, None)
    outer = ops.put(torch.linspace(-1.0, 2.0, 5))
    for index, gradient in enumerate(gradients):
        scores = [ops.put(positive.clone()), ops.put(negative.clone())]
        scores[index].requires_grad_()
        found = ops.softmax_nll(scores[0], scores[1], ops.put(known), None)
        assert torch.equal(torch.autograd.grad(found, scores[index], outer)[0].cpu(), gradient)
    with torch.no_grad():
        found = ops.softmax_nll(ops.put(positive).requires_grad_(), ops.put(negative), ops.put(known), None)
        assert torch.equal(found.cpu(), plain)


@only_numba
def test_same_bits_for_any_number_of_threads(ops: Implementation) -> None:
    """Rows long enough, and enough of them, for threads to be at work at the same time."""
    arguments = single(400, seed=0), single(400, 5000, seed=1), single(400, 5000, seed=2) > 1, None
    several = results(ops, *arguments)
    torch.set_num_threads(1)
    assert same_bits(several, results(ops, *arguments))
