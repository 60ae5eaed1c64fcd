"""Every registered loss: what holds whatever its formula. Values by hand are in test_loss_values.py."""

from __future__ import annotations

from math import log
from typing import Any

import pytest
import torch
from torch import Tensor

from eans.losses import LOSSES, Loss
from eans.objective import total as sum_of
from eans.types import LossTerms, Scores

FORMS: dict[str, list[dict[str, Any]]] = {
    "logsigmoid": [{}],
    "substitution": [{"form": form} for form in ("reference", "paper")],
    "softmax": [{"correct_proposal": correct} for correct in (True, False)],
}
# They compare positives with negatives: without negatives there is nothing to learn, and a margin on both cancels.
COMPARING = {"softmax", "hinge"}
WITHOUT_TEMPERATURE = {"softmax", "bce"}


def temperature_of(name: str, temperature: float) -> dict[str, Any]:
    """The option of self-adversarial weights; a softmax, which weighs by scores itself, has none."""
    return {} if name in WITHOUT_TEMPERATURE else {"adversarial_temperature": temperature}


CASES = [
    pytest.param(name, options | temperature_of(name, temperature), id=f"{name}-{options}-{temperature}")
    for name in LOSSES
    for options in FORMS.get(name, [{}])
    for temperature in ((0.0,) if name in WITHOUT_TEMPERATURE else (0.0, 0.7))
]
losses = pytest.mark.parametrize(("name", "options"), CASES)
# The weights are constants: their gradient differs from the numeric one on purpose.
SMOOTH = [case for case in CASES if not case.values[1].get("adversarial_temperature")]
# The printed equations use the substitution score without the margin in one place; a hinge has it between two scores.
MARGIN_EVERYWHERE = [case for case in CASES if case.values[1].get("form") != "paper" and case.values[0] != "hinge"]


def batch(rows: int = 4, negatives: int = 5, known: float = 0.3, seed: int = 0) -> tuple[Scores, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    scores = Scores(normal(rows), normal(rows, negatives), normal(rows, negatives))
    mask = torch.rand(rows, negatives, generator=generator) < known
    return scores, mask, torch.rand(rows, generator=generator, dtype=torch.float64) + 0.1


def call(loss: Loss, scores: Scores, known: Tensor, weight: Tensor) -> LossTerms:
    """The terms; where the loss asks for it, with a proposal that is uniform over twenty entities."""
    proposal = torch.full_like(scores.negative.detach(), -log(20.0)) if loss.needs_proposal else None
    return loss(scores, known, weight, proposal)


def run(loss: Loss, scores: Scores, known: Tensor, weight: Tensor) -> tuple[LossTerms, list[Tensor]]:
    """Terms, and the gradients of the total for the scores that take part."""
    terms = call(loss, scores, known, weight)
    grads = torch.autograd.grad(sum_of(terms), list(scores), allow_unused=True, materialize_grads=True)
    return terms, list(grads)


def pressing(terms: LossTerms) -> Tensor:
    """The term of the negatives; all of a loss that does not come apart."""
    return terms.get("negative", sum_of(terms))


def finite(*tensors: Tensor) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


@losses
def test_total_is_the_sum_of_finite_scalars(name, options):
    terms, grads = run(LOSSES[name](margin=2.0, **options), *batch())
    assert tuple(terms) == LOSSES[name].terms
    assert set(LOSSES[name].unweighted) <= set(terms)
    assert all(term.shape == () for term in terms.values())
    assert finite(*terms.values(), *grads)
    assert sum_of(terms).item() == pytest.approx(sum(term.item() for term in terms.values()))
    assert min(term.item() for term in terms.values()) >= 0.0


@pytest.mark.parametrize(("name", "options"), SMOOTH)
def test_gradients(name, options):
    loss = LOSSES[name](margin=1.5, **options)
    scores, known, weight = batch()
    inputs = tuple(scores) if loss.needs_substitution else (scores.positive, scores.negative)

    def total(positive: Tensor, negative: Tensor, substitution: Tensor | None = None) -> Tensor:
        return sum_of(call(loss, Scores(positive, negative, substitution), known, weight))

    assert torch.autograd.gradcheck(total, inputs)


@losses
def test_pushes_positives_up_and_unmasked_negatives_down(name, options):
    scores, known, weight = batch()
    _, (positive, negative, _) = run(LOSSES[name](margin=9.0, **options), scores, known, weight)
    assert (positive < 0).all()
    assert (negative[~known] > 0).all()
    assert not negative[known].any()


@losses
@pytest.mark.parametrize("known", [0.0, 1.0], ids=["none-known", "all-known"])
@pytest.mark.parametrize("negatives", [1, 5])
def test_extreme_masks(name, options, known, negatives):
    scores, mask, weight = batch(negatives=negatives, known=known)
    terms, grads = run(LOSSES[name](margin=1.0, **options), scores, mask, weight)
    assert finite(*terms.values(), *grads)
    assert (pressing(terms) == 0) == (known == 1.0)
    if known == 1.0:
        assert not grads[1].any()


@losses
def test_without_negatives_only_the_positives_count(name, options):
    scores, mask, weight = batch(negatives=0)
    terms, grads = run(LOSSES[name](margin=1.0, **options), scores, mask, weight)
    assert pressing(terms) == terms.get("substitution", 0) == 0
    assert finite(*grads)
    if name in COMPARING:
        return
    assert terms["positive"] > 0
    full = LOSSES[name](margin=1.0, **options)(batch()[0]._replace(positive=scores.positive), batch()[1], weight)
    torch.testing.assert_close(terms["positive"], full["positive"])


@losses
def test_one_row_masked_throughout_is_silent(name, options):
    """The other rows get exactly the negative loss they would get if the row's scores were anything else."""
    scores, known, weight = batch()
    known[2] = True
    loss = LOSSES[name](margin=1.0, **options)
    terms, grads = run(loss, scores, known, weight)
    assert finite(*terms.values(), *grads)
    assert not grads[1][2].any()
    assert grads[1][[0, 1, 3]].any()
    wild = scores.negative.detach().clone()
    wild[2] = torch.tensor([1e30, -1e30, 0.0, 700.0, -700.0])
    again, grads = run(loss, scores._replace(negative=wild.requires_grad_()), known, weight)
    assert torch.equal(pressing(again), pressing(terms))
    assert finite(*grads)


@losses
@pytest.mark.parametrize("size", [80.0, 1e4])
def test_large_scores_stay_finite(name, options, size):
    scores, known, weight = batch()
    big = Scores(*(torch.sign(part.detach()).mul(size).float().requires_grad_() for part in scores))
    terms, grads = run(LOSSES[name](margin=9.0, **options), big, known, weight.float())
    assert finite(*terms.values(), *grads)


@losses
def test_only_ratios_of_weights_matter(name, options):
    scores, known, weight = batch()
    loss = LOSSES[name](**options)
    for a, b in zip(
        call(loss, scores, known, weight).values(), call(loss, scores, known, 17.0 * weight).values(), strict=True
    ):
        torch.testing.assert_close(a, b)
    flipped = call(loss, scores, known, weight.flip(0))
    assert pressing(call(loss, scores, known, weight)) != pressing(flipped)


@losses
def test_order_of_rows_and_negatives_does_not_matter(name, options):
    scores, known, weight = batch()
    rows, columns = torch.tensor([3, 0, 2, 1]), torch.tensor([4, 2, 0, 1, 3])
    loss = LOSSES[name](margin=1.0, **options)
    shuffled = Scores(scores.positive[rows], *(part[rows][:, columns] for part in scores[1:]))
    moved = call(loss, shuffled, known[rows][:, columns], weight[rows])
    for a, b in zip(call(loss, scores, known, weight).values(), moved.values(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("name", "options"), MARGIN_EVERYWHERE)
def test_adding_a_margin_is_adding_to_every_score(name, options):
    scores, known, weight = batch()
    moved = Scores(*(part + 3.0 for part in scores))
    for a, b in zip(
        call(LOSSES[name](margin=3.0, **options), scores, known, weight).values(),
        call(LOSSES[name](**options), moved, known, weight).values(),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@losses
def test_says_which_substitution_it_needs(name, options):
    needs = LOSSES[name](**options).needs_substitution
    assert needs == {None: None, "reference": "symmetric", "paper": "one-way"}[options.get("form")]


@losses
def test_the_gradient_bound_is_reached_and_never_passed(name, options):
    """The bound on a row's gradient that `gradient_bound` promises: tight where every negative scores far too high."""
    scores, _, weight = batch(rows=1)
    loss = LOSSES[name](**options)
    unmasked = torch.zeros_like(scores.negative, dtype=torch.bool)
    if loss.gradient_bound is None:  # as many negatives as there are, each as much as the positive
        assert name == "bce"
        return
    high = Scores(scores.positive - 60.0, scores.negative + 60.0, scores.substitution)
    for some, tight in ((scores, False), (high, True)):
        pull = torch.autograd.grad(sum_of(call(loss, some, unmasked, weight)), some.negative)[0].abs().sum().item()
        assert pull <= loss.gradient_bound * (1 + 1e-12)
        assert not tight or pull == pytest.approx(loss.gradient_bound)


@losses
def test_terms_that_do_not_depend_on_the_weights(name, options):
    """A sampler's factors on the weights change the others, and must not be lost by the scaling to the sum 1."""
    scores, known, weight = batch()
    loss = LOSSES[name](**options)
    terms, other = call(loss, scores, known, weight), call(loss, scores, known, weight.flip(0))
    assert {key for key in terms if terms[key] == other[key]} == set(loss.unweighted)


def test_no_loss_is_another_one():
    assert all(kind.__mro__[1] is Loss for kind in LOSSES.values())
