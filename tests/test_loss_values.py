"""Losses against numbers worked out row by row with `math` alone: a batch of 4 positives with 5 negatives each."""

from __future__ import annotations

from math import exp, log

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import binary_cross_entropy_with_logits

import eans
from eans.errors import UsageError
from eans.kernels import negative_shares
from eans.losses import BinaryCrossEntropy, HingeLoss, LogSigmoid, SubstitutionLoss
from eans.models import MODELS, Scores
from eans.objective import total as sum_of
from eans.penalties import duals, dura_penalty, l3_penalty, n3_penalty, relation_loss
from helpers_runs import ring_graph

GAMMA, ALPHA, L1, L2 = 2.0, 0.5, 0.1, 0.7
POSITIVE = [-1.0, 0.5, -3.0, 2.0]
NEGATIVE = [
    [-2.0, -1.0, 0.0, 1.0, -4.0],
    [-0.5, 0.25, -3.0, -2.5, 1.5],
    [-1.5, -1.5, 2.0, 0.0, -6.0],  # known to be true throughout
    [3.0, -0.75, -2.25, -5.0, 0.5],
]
SUBSTITUTION = [
    [-1.0, -2.0, 0.5, 0.0, -3.0],
    [1.0, -0.5, -4.0, -2.0, -1.0],
    [0.25, -1.25, 0.0, -2.5, 1.0],
    [-3.5, -0.25, 2.0, -1.0, -6.0],
]
KNOWN = [
    [False, False, True, False, False],
    [False, False, False, False, False],
    [True, True, True, True, True],
    [True, False, False, False, True],
]
WEIGHT = [0.5, 1.0, 0.25, 0.75]  # sums to 2.5
ROWS, NEGATIVES = 4, 5


def logsig(x: float) -> float:
    return -log(1.0 + exp(-x))


def tensors(*, known: list[list[bool]] = KNOWN, grad: bool = False) -> tuple[Scores, Tensor, Tensor]:
    parts = [torch.tensor(part, dtype=torch.float64, requires_grad=grad) for part in (POSITIVE, NEGATIVE, SUBSTITUTION)]
    return Scores(*parts), torch.tensor(known), torch.tensor(WEIGHT, dtype=torch.float64)


def hand_positive() -> float:
    """-(0.5 logsig(-1 + 2) + 1 logsig(.5 + 2) + .25 logsig(-3 + 2) + .75 logsig(2 + 2)) / 2.5"""
    return -(0.5 * logsig(1.0) + 1.0 * logsig(2.5) + 0.25 * logsig(-1.0) + 0.75 * logsig(4.0)) / 2.5


def test_the_positive_part_to_six_digits():
    # log(1 + e^-1) = .3132617, log(1 + e^-2.5) = .0788897, log(1 + e) = 1.3132617, log(1 + e^-4) = .0181500
    by_digits = (0.5 * 0.3132617 + 0.0788897 + 0.25 * 1.3132617 + 0.75 * 0.0181500) / 2.5
    assert hand_positive() == pytest.approx(by_digits, abs=1e-6)
    assert LogSigmoid(GAMMA)(*tensors())["positive"].item() == pytest.approx(by_digits / 2, abs=1e-6)


# --- log-sigmoid --------------------------------------------------------------------------------------------------


def test_equal_shares():
    """Row 0 leaves out its third negative, row 2 everything, row 3 the first and the last; each share is 1/5."""
    row0 = logsig(-0.0) + logsig(-1.0) + logsig(-3.0) + logsig(2.0)
    row1 = logsig(-1.5) + logsig(-2.25) + logsig(1.0) + logsig(0.5) + logsig(-3.5)
    row2 = 0.0
    row3 = logsig(-1.25) + logsig(0.25) + logsig(3.0)
    negative = -(0.5 * row0 / 5 + 1.0 * row1 / 5 + 0.25 * row2 / 5 + 0.75 * row3 / 5) / 2.5
    terms = LogSigmoid(GAMMA)(*tensors())
    assert terms["positive"].item() == pytest.approx(hand_positive() / 2, rel=1e-12)
    assert terms["negative"].item() == pytest.approx(negative / 2, rel=1e-12)
    assert sum_of(terms).item() == pytest.approx((hand_positive() + negative) / 2, rel=1e-12)


def test_adversarial_shares():
    """Shares exp(.5 s) over the unmasked of the row, s with the margin: 0, 1, (2), 3, -2 and so on."""
    a, b, c, d = exp(0.0), exp(0.5), exp(1.5), exp(-1.0)
    row0 = (a * logsig(-0.0) + b * logsig(-1.0) + c * logsig(-3.0) + d * logsig(2.0)) / (a + b + c + d)
    a, b, c, d, e = exp(0.75), exp(1.125), exp(-0.5), exp(-0.25), exp(1.75)
    row1 = a * logsig(-1.5) + b * logsig(-2.25) + c * logsig(1.0) + d * logsig(0.5) + e * logsig(-3.5)
    row1 /= a + b + c + d + e
    row2 = 0.0
    a, b, c = exp(0.625), exp(-0.125), exp(-1.5)
    row3 = (a * logsig(-1.25) + b * logsig(0.25) + c * logsig(3.0)) / (a + b + c)
    negative = -(0.5 * row0 + 1.0 * row1 + 0.25 * row2 + 0.75 * row3) / 2.5
    terms = LogSigmoid(GAMMA, ALPHA)(*tensors())
    assert terms["positive"].item() == pytest.approx(hand_positive() / 2, rel=1e-12)
    assert terms["negative"].item() == pytest.approx(negative / 2, rel=1e-12)


def test_equal_weights():
    scores, known, _ = tensors()
    terms = LogSigmoid()(scores, known, torch.ones(4, dtype=torch.float64))
    assert terms["positive"].item() == pytest.approx(
        -(logsig(-1.0) + logsig(0.5) + logsig(-3.0) + logsig(2.0)) / 4 / 2, rel=1e-12
    )


def test_adversarial_shares_are_constants():
    """The gradient of a negative is w p sig(s) / 2, with no part from p."""
    scores, known, weight = tensors(grad=True)
    loss = LogSigmoid(GAMMA, ALPHA)
    sum_of(loss(scores, known, weight)).backward()
    for i in range(ROWS):
        total = sum(exp(ALPHA * (NEGATIVE[i][j] + GAMMA)) for j in range(NEGATIVES) if not KNOWN[i][j])
        for j in range(NEGATIVES):
            s = NEGATIVE[i][j] + GAMMA
            share = 0.0 if KNOWN[i][j] else exp(ALPHA * s) / total
            expected = WEIGHT[i] / 2.5 * share / (1.0 + exp(-s)) / 2
            assert scores.negative.grad[i, j].item() == pytest.approx(expected, rel=1e-10, abs=1e-15)


def test_shares():
    scores, known, _ = tensors()
    equal = negative_shares(scores.negative, known, 0.0)
    assert equal.sum(1).tolist() == pytest.approx([0.8, 1.0, 0.0, 0.6])
    adversarial = negative_shares(scores.negative, known, 1.0)
    assert adversarial.sum(1).tolist() == pytest.approx([1.0, 1.0, 0.0, 1.0])
    assert not adversarial[known].any()
    assert equal[0].tolist() == pytest.approx([0.2, 0.2, 0.0, 0.2, 0.2])
    nearly_flat = negative_shares(scores.negative, known, 1e-9)
    assert nearly_flat[0].tolist() == pytest.approx([0.25, 0.25, 0.0, 0.25, 0.25])


# --- hinge ----------------------------------------------------------------------------------------------------------


def test_hinge_with_equal_shares():
    """What is missing to a lead of 2: row 0 has 1, 2, (3), 4, 0 and row 1 has 1, 1.75, 0, 0, 3; row 3 has its lead."""
    terms = HingeLoss(GAMMA)(*tensors())
    assert terms["hinge"].item() == pytest.approx((0.5 * 7 / 5 + 1.0 * 5.75 / 5) / 2.5, rel=1e-12)


def test_hinge_with_adversarial_shares():
    """The same, by shares exp(.5 s) over the unmasked of the row."""
    a, b, c, d = exp(-1.0), exp(-0.5), exp(0.5), exp(-2.0)
    row0 = (1 * a + 2 * b + 4 * c) / (a + b + c + d)
    a, b, c, d, e = exp(-0.25), exp(0.125), exp(-1.5), exp(-1.25), exp(0.75)
    row1 = (1 * a + 1.75 * b + 3 * e) / (a + b + c + d + e)
    assert HingeLoss(GAMMA, ALPHA)(*tensors())["hinge"].item() == pytest.approx((0.5 * row0 + row1) / 2.5, rel=1e-12)


def test_a_pair_that_keeps_the_margin_has_no_gradient():
    scores, known, weight = tensors(grad=True)
    positive, negative = torch.autograd.grad(sum_of(HingeLoss(GAMMA)(scores, known, weight)), list(scores[:2]))
    torch.testing.assert_close(positive * 2.5 * 5, -torch.tensor([1.5, 3.0, 0.0, 0.0], dtype=torch.float64))
    assert (negative[0] > 0).tolist() == [True, True, False, True, False]
    assert not negative[2:].any()


def test_a_hinge_learns_a_ring():
    settings = {"loss.name": "hinge", "dim": 16, "steps": 400, "lr": 0.02, "batch_size": 64, "negatives": 16}
    run = eans.train(ring_graph(), "complex", "uniform", **settings)
    assert run.recipe.loss.margin == 1.0
    assert run.metrics["test"]["both"]["mrr"] > 0.5


@pytest.mark.parametrize("margin", [0.0, -1.0])
def test_a_hinge_needs_a_margin(margin):
    with pytest.raises(UsageError, match=r"set loss\.margin above 0"):
        HingeLoss(margin)


# --- binary cross-entropy -------------------------------------------------------------------------------------------


def test_every_candidate_weighs_as_much_as_the_positive():
    """Labels smoothed to .9 + 1/5 = 1 (at most) and 1/5; row 2 has no candidates left, row 3 two known ones."""
    terms = BinaryCrossEntropy(GAMMA, label_smoothing=0.1)(*tensors())
    # H(s, 1/5) = -logsig(-s) - s / 5
    row0 = sum(-logsig(-s) - s / 5 for s in (0.0, 1.0, 3.0, -2.0)) / 1
    row1 = sum(-logsig(-s) - s / 5 for s in (1.5, 2.25, -1.0, -0.5, 3.5))
    row3 = sum(-logsig(-s) - s / 5 for s in (1.25, -0.25, -3.0)) / 2
    assert terms["positive"].item() == pytest.approx(hand_positive(), rel=1e-12)
    assert terms["negative"].item() == pytest.approx((0.5 * row0 + row1 + 0.75 * row3) / 2.5, rel=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_an_epoch_against_all_entities_is_the_loss_of_1_n_scoring(smoothing):
    """Queries with 1, 2 and 4 answers among 30 entities: each answer a positive, against the multi-label loss."""
    logits = torch.randn(3, 30, dtype=torch.float64, requires_grad=True)
    queries, answers = torch.tensor([0, 1, 1, 2, 2, 2, 2]), torch.tensor([4, 0, 29, 1, 2, 3, 17])
    labels = torch.zeros(3, 30, dtype=torch.float64)
    labels[queries, answers] = 1.0
    smooth = (1 - smoothing) * labels + (1 / 30 if smoothing else 0.0)
    expected = binary_cross_entropy_with_logits(logits, smooth, reduction="sum")

    scores = Scores(logits[queries, answers], logits[queries], None)
    terms = BinaryCrossEntropy(label_smoothing=smoothing)(scores, labels[queries].bool(), torch.ones(7).double())
    found = 7 * sum_of(terms)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(total, logits, retain_graph=True) for total in (found, expected)))


# --- substitution, the form behind the published numbers ----------------------------------------------------------


def lowered(i: int, j: int) -> float:
    """The logit z = s - l1 u, both with the margin."""
    return NEGATIVE[i][j] + GAMMA - L1 * (SUBSTITUTION[i][j] + GAMMA)


def hand_substitution() -> float:
    """l2 mean over the 8 known pairs of -logsig(u), plus l1 mean |u| over all 20."""
    # u = score + 2 at the known pairs: row 0: 2.5; row 2: 2.25, .75, 2, -.5, 3; row 3: -1.5, -4
    known = [2.5, 2.25, 0.75, 2.0, -0.5, 3.0, -1.5, -4.0]
    sizes = [1.0 + 0.0 + 2.5 + 2.0 + 1.0, 3.0 + 1.5 + 2.0 + 0.0 + 1.0, 2.25 + 0.75 + 2.0 + 0.5 + 3.0]
    sizes.append(1.5 + 1.75 + 4.0 + 1.0 + 4.0)
    return L2 * -sum(map(logsig, known)) / 8 + L1 * sum(sizes) / 20


def test_reference_form():
    # z: row 0: 0 - .1, 1 - 0, (masked), 3 - .2, -2 + .1; and so on
    row0 = logsig(0.1) + logsig(-1.0) + logsig(-2.8) + logsig(1.9)
    row1 = logsig(-1.2) + logsig(-2.1) + logsig(0.8) + logsig(0.5) + logsig(-3.4)
    row3 = logsig(-1.075) + logsig(0.65) + logsig(3.1)
    negative = -(0.5 * row0 + 1.0 * row1 + 0.75 * row3) / 5 / 2.5
    terms = SubstitutionLoss(GAMMA, 0.0, L2, L1)(*tensors())
    assert terms["positive"].item() == pytest.approx(hand_positive() / 2, rel=1e-12)
    assert terms["negative"].item() == pytest.approx(negative / 2, rel=1e-12)
    assert terms["substitution"].item() == pytest.approx(hand_substitution(), rel=1e-12)


def test_reference_form_with_adversarial_shares():
    """The shares come from z, not from the raw scores."""
    a, b, c, d = exp(-0.05), exp(0.5), exp(1.4), exp(-0.95)
    row0 = (a * logsig(0.1) + b * logsig(-1.0) + c * logsig(-2.8) + d * logsig(1.9)) / (a + b + c + d)
    a, b, c, d, e = exp(0.6), exp(1.05), exp(-0.4), exp(-0.25), exp(1.7)
    row1 = a * logsig(-1.2) + b * logsig(-2.1) + c * logsig(0.8) + d * logsig(0.5) + e * logsig(-3.4)
    row1 /= a + b + c + d + e
    a, b, c = exp(0.5375), exp(-0.325), exp(-1.55)
    row3 = (a * logsig(-1.075) + b * logsig(0.65) + c * logsig(3.1)) / (a + b + c)
    negative = -(0.5 * row0 + 1.0 * row1 + 0.75 * row3) / 2.5
    terms = SubstitutionLoss(GAMMA, ALPHA, L2, L1)(*tensors())
    assert terms["negative"].item() == pytest.approx(negative / 2, rel=1e-12)
    assert terms["substitution"].item() == pytest.approx(hand_substitution(), rel=1e-12)
    assert sum_of(terms).item() == pytest.approx((hand_positive() + negative) / 2 + hand_substitution(), rel=1e-12)


def test_gradient_of_the_substitution_score():
    """-l1 w sig(z) / 5 / 2 through z at unmasked pairs; label and size terms, not halved."""
    scores, known, weight = tensors(grad=True)
    sum_of(SubstitutionLoss(GAMMA, 0.0, L2, L1)(scores, known, weight)).backward()
    for i in range(ROWS):
        for j in range(NEGATIVES):
            u = SUBSTITUTION[i][j] + GAMMA
            expected = L1 * ((u > 0) - (u < 0)) / 20
            if KNOWN[i][j]:
                expected -= L2 / 8 / (1.0 + exp(u))
            else:
                expected -= L1 * WEIGHT[i] / 2.5 / 5 / 2 / (1.0 + exp(-lowered(i, j)))
            assert scores.substitution.grad[i, j].item() == pytest.approx(expected, rel=1e-10, abs=1e-15)


def test_no_known_true_leaves_only_the_size():
    scores, known, weight = tensors(known=[[False] * 5] * 4, grad=True)
    terms = SubstitutionLoss(GAMMA, 0.0, L2, L1)(scores, known, weight)
    sizes = sum(abs(u + GAMMA) for row in SUBSTITUTION for u in row)
    assert terms["substitution"].item() == pytest.approx(L1 * sizes / 20, rel=1e-12)
    row2 = sum(logsig(-lowered(2, j)) for j in range(5))
    others = sum(WEIGHT[i] * sum(logsig(-lowered(i, j)) for j in range(5)) for i in (0, 1, 3))
    assert terms["negative"].item() == pytest.approx(-(others + 0.25 * row2) / 5 / 2.5 / 2, rel=1e-12)
    sum_of(terms).backward()
    assert torch.isfinite(scores.substitution.grad).all()


def test_single_negative():
    scores = Scores(torch.tensor([1.0]), torch.tensor([[-1.0]]), torch.tensor([[0.5]]))
    terms = SubstitutionLoss(0.0, 1.0, L2, L1)(scores, torch.tensor([[False]]), torch.tensor([3.0]))
    assert terms["positive"].item() == pytest.approx(-logsig(1.0) / 2, rel=1e-6)
    assert terms["negative"].item() == pytest.approx(-logsig(1.05) / 2, rel=1e-6)  # z = -1 - .1 * .5, share 1
    assert terms["substitution"].item() == pytest.approx(0.05, rel=1e-6)
    terms = SubstitutionLoss(0.0, 1.0, L2, L1)(scores, torch.tensor([[True]]), torch.tensor([3.0]))
    assert terms["negative"].item() == 0.0
    assert terms["substitution"].item() == pytest.approx(L2 * -logsig(0.5) + 0.05, rel=1e-6)


# --- substitution, as printed -------------------------------------------------------------------------------------


def test_paper_form():
    """Nothing is halved; z lowers by l1 times the score without margin; the sums are per positive."""
    # z = s + 2 - .1 * score: row 0: 0 + .1, 1 + .2, (masked), 3 - 0, -2 + .3; and so on
    row0 = logsig(-0.1) + logsig(-1.2) + logsig(-3.0) + logsig(1.7)
    row1 = logsig(-1.4) + logsig(-2.3) + logsig(0.6) + logsig(0.3) + logsig(-3.6)
    row3 = logsig(-1.275) + logsig(0.45) + logsig(2.9)
    negative = -(0.5 * row0 + 1.0 * row1 + 0.75 * row3) / 5 / 2.5
    label0 = -logsig(2.5) / 5
    label2 = -(logsig(2.25) + logsig(0.75) + logsig(2.0) + logsig(-0.5) + logsig(3.0)) / 5
    label3 = -(logsig(-1.5) + logsig(-4.0)) / 5
    # |sum u| per row, u with the margin: 1 + 0 + 2.5 + 2 - 1, 3 + 1.5 - 2 + 0 + 1, ...
    size0, size1, size2, size3 = 4.5, 3.5, 7.5, abs(-1.5 + 1.75 + 4.0 + 1.0 - 4.0)
    substitution = L2 * (label0 + 0.0 + label2 + label3) / 4 + L1 * (size0 + size1 + size2 + size3) / 4
    terms = SubstitutionLoss(GAMMA, 0.0, L2, L1, form="paper")(*tensors())
    assert terms["positive"].item() == pytest.approx(hand_positive(), rel=1e-12)
    assert terms["negative"].item() == pytest.approx(negative, rel=1e-12)
    assert terms["substitution"].item() == pytest.approx(substitution, rel=1e-12)


# --- penalties ----------------------------------------------------------------------------------------------------


def test_l3_sums_whole_tables():
    tables = torch.tensor([[1.0, -2.0], [0.0, 3.0]]), torch.tensor([[-1.0]])
    assert l3_penalty(tables).item() == 1 + 8 + 27 + 1


def test_the_relation_is_predicted_by_a_softmax():
    scores = torch.tensor([[0.0, log(3.0)], [log(4.0), 0.0]], dtype=torch.float64)
    weight = torch.tensor([1.0, 3.0], dtype=torch.float64)
    found = relation_loss(scores, torch.tensor([1, 1]), weight)
    assert found.item() == pytest.approx(-(log(3 / 4) + 3 * log(1 / 5)) / 4)


def test_n3_averages_over_the_batch():
    factors = torch.tensor([[1.0, -2.0], [0.0, 1.0]]), torch.tensor([[-2.0], [1.0]]), torch.tensor([[0.0], [3.0]])
    assert n3_penalty([factor[:, None] for factor in factors]).item() == (1 + 8 + 1) / 2 + (8 + 1) / 2 + 27 / 2


def test_n3_takes_the_size_of_a_coordinate():
    """One triple with the coordinates 3 - 4i and 0, and its gradient ``3 |x| x``; at zero it is zero."""
    factor = torch.tensor([[[3.0, 0.0], [-4.0, 0.0]]], requires_grad=True)
    penalty = n3_penalty([factor])
    penalty.backward()
    assert penalty.item() == 125
    assert factor.grad.tolist() == [[[45.0, 0.0], [-60.0, 0.0]]]


@pytest.mark.parametrize("shape", [(3, 1, 4), (2, 2, 5), (1, 2, 3, 4)])
def test_n3_gradient_by_finite_differences(shape):
    factor = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    assert torch.autograd.gradcheck(lambda one: n3_penalty([one, 2 * one]), factor)


@pytest.mark.parametrize(
    ("model", "head", "relation", "tail", "squares", "products"),
    [
        ("distmult", [1.0, -2.0], [3.0, 0.5], [0.0, 4.0], 5 + 16, (9 + 1) + (0 + 4)),
        # (1 - 2i), (3 + 0.5i), 4i: a product of complex numbers has the product of their sizes
        ("complex", [1.0, -2.0], [3.0, 0.5], [0.0, 4.0], 5 + 16, 5 * 9.25 + 16 * 9.25),
    ],
)
def test_dura_by_hand(model, head, relation, tail, squares, products):
    width = {"distmult": 2, "complex": 1}[model]
    found = MODELS[model](2, 1, width)
    with torch.no_grad():
        found.entity.copy_(torch.tensor([head, tail]))
        found.relation[0] = torch.tensor(relation)
    triples = torch.tensor([[0, 0, 1], [0, 0, 1]])
    assert dura_penalty(*duals(found, found.triple_rows(triples))).item() == pytest.approx(
        0.5 * squares + 1.5 * products
    )


@pytest.mark.parametrize("model", ["distmult", "complex", "simple", "rescal"])
def test_dura_gradient_by_finite_differences(model):
    found = MODELS[model](4, 2, 3, generator=torch.Generator().manual_seed(0)).double()
    triples = torch.tensor([[0, 0, 1], [2, 1, 2], [3, 0, 0]])

    def penalty(entity, relation):
        return functional_call(DuraOf(found), {"model.entity": entity, "model.relation": relation}, (triples,))

    assert torch.autograd.gradcheck(penalty, (found.entity, found.relation))


class DuraOf(torch.nn.Module):
    """The penalty of a model as a function of its tables."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, triples):
        return dura_penalty(*duals(self.model, self.model.triple_rows(triples)))


def test_penalty_gradient_is_three_x_squared():
    table = torch.tensor([[1.0, -2.0, 0.0]], requires_grad=True)
    l3_penalty([table]).backward()
    assert table.grad.tolist() == [[3.0, -12.0, 0.0]]
