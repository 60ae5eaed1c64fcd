"""The softmax loss: numbers by hand, the full softmax it stands for, and what the correction for the proposal buys."""

from __future__ import annotations

from math import exp, log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import eans
from eans.kernels.softmax.reference import log_candidates
from eans.losses import SoftmaxLoss
from eans.models import Scores
from eans.objective import total
from eans.samplers import SAMPLERS
from helpers_runs import ring_graph

POSITIVE = [1.0, -2.0, 0.5]
NEGATIVE = [[0.0, 2.0, -1.0], [1.0, -3.0, 0.5], [4.0, 5.0, 6.0]]
PROPOSAL = [[0.25, 0.5, 0.125], [0.1, 0.2, 0.4], [0.3, 0.3, 0.3]]
KNOWN = [[False, False, True], [False, False, False], [True, True, True]]
WEIGHT = [1.0, 2.0, 1.0]  # sums to 4


def tensors(grad: bool = False) -> tuple[Scores, Tensor, Tensor, Tensor]:
    positive, negative = (torch.tensor(part, dtype=torch.float64, requires_grad=grad) for part in (POSITIVE, NEGATIVE))
    proposal = torch.tensor(PROPOSAL, dtype=torch.float64).log()
    return Scores(positive, negative, None), torch.tensor(KNOWN), torch.tensor(WEIGHT, dtype=torch.float64), proposal


def test_corrected() -> None:
    """Each candidate counts 1 / (3 q) times; the last row, masked throughout, is silent."""
    z0 = exp(0.0) / 0.75 + exp(2.0) / 1.5
    z1 = exp(1.0) / 0.3 + exp(-3.0) / 0.6 + exp(0.5) / 1.2
    expected = -(log(exp(1.0) / (exp(1.0) + z0)) + 2 * log(exp(-2.0) / (exp(-2.0) + z1))) / 4
    terms = SoftmaxLoss()(*tensors())
    assert total(terms).item() == terms["softmax"].item() == pytest.approx(expected, rel=1e-12)


def test_to_six_digits() -> None:
    # Z_0 = 1.333333 + 4.926037 = 6.259370 and e^1 = 2.718282: -log(2.718282 / 8.977652) = 1.194739
    # Z_1 = 9.060939 + .082978 + 1.373934 = 10.517852 and e^-2 = .135335: -log(.135335 / 10.653187) = 4.365859
    assert total(SoftmaxLoss()(*tensors())).item() == pytest.approx((1.194739 + 2 * 4.365859) / 4, abs=1e-6)


def test_uncorrected() -> None:
    """The plain cross-entropy among the positive and its unmasked candidates; nobody needs to know the proposal."""
    z0, z1 = exp(0.0) + exp(2.0), exp(1.0) + exp(-3.0) + exp(0.5)
    expected = -(log(exp(1.0) / (exp(1.0) + z0)) + 2 * log(exp(-2.0) / (exp(-2.0) + z1))) / 4
    loss = SoftmaxLoss(correct_proposal=False)
    assert not loss.needs_proposal
    assert total(loss(*tensors()[:3])).item() == pytest.approx(expected, rel=1e-12)


def test_gradients_are_probabilities() -> None:
    """A candidate is pushed down by w times its share of the partition sum, the positive up by their total."""
    scores, known, weight, proposal = tensors(grad=True)
    total(SoftmaxLoss()(scores, known, weight, proposal)).backward()
    parts = [[0.0 if KNOWN[i][j] else exp(NEGATIVE[i][j]) / 3 / PROPOSAL[i][j] for j in range(3)] for i in range(3)]
    for i in range(3):
        shares = [part / (exp(POSITIVE[i]) + sum(parts[i])) for part in parts[i]]
        assert scores.negative.grad[i].tolist() == pytest.approx([WEIGHT[i] / 4 * share for share in shares])
        assert scores.positive.grad[i].item() == pytest.approx(-WEIGHT[i] / 4 * sum(shares))


def test_no_candidates_no_loss() -> None:
    scores = Scores(torch.zeros(2), torch.zeros(2, 0), None)
    terms = SoftmaxLoss()(scores, torch.zeros(2, 0, dtype=torch.bool), torch.ones(2), torch.zeros(2, 0))
    assert total(terms).item() == 0.0


# --- the full softmax -----------------------------------------------------------------------------------------------


@given(rows=st.integers(1, 4), entities=st.integers(2, 9), seed=st.integers(0, 1000), scale=st.floats(0.1, 30.0))
def test_every_entity_once_is_the_full_softmax(rows: int, entities: int, seed: int, scale: float) -> None:
    """Candidates: all entities in any order, q = 1 / E; the positive among them is known and masked."""
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(rows, entities, generator=generator, dtype=torch.float64)
    answer = torch.randint(entities, (rows,), generator=generator)
    order = torch.rand(rows, entities, generator=generator).argsort(1)
    weight = torch.rand(rows, generator=generator, dtype=torch.float64) + 0.1
    drawn = Scores(scores[torch.arange(rows), answer], scores.gather(1, order), None)
    uniform = torch.full((rows, entities), -log(entities), dtype=torch.float64)
    found = total(SoftmaxLoss()(drawn, order == answer[:, None], weight, uniform))
    full = torch.nn.functional.cross_entropy(scores, answer, reduction="none")
    torch.testing.assert_close(found, (weight * full).sum() / weight.sum())


# --- the estimate of the partition sum ----------------------------------------------------------------------------

ENTITIES, DRAWS, ROWS = 30, 8, 40_000


def estimates(proposal: Tensor, correct: bool, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Estimates ``[ROWS]`` of the sum of ``exp(s)`` over entities that are not known answers, and that sum."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(ENTITIES, generator=generator, dtype=torch.float64)
    known = torch.arange(ENTITIES) < 4
    drawn = torch.multinomial(proposal, ROWS * DRAWS, replacement=True, generator=generator).reshape(ROWS, DRAWS)
    parts = log_candidates(scores[drawn], known[drawn], proposal.log()[drawn] if correct else None)
    return parts.exp().sum(1), scores[~known].exp().sum()


def off_by(found: Tensor, truth: Tensor) -> float:
    """How many standard errors the mean estimate is away from the truth."""
    return float((found.mean() - truth).abs() / (found.std() / len(found) ** 0.5))


UNIFORM = torch.full((ENTITIES,), 1.0 / ENTITIES, dtype=torch.float64)
SKEWED = torch.softmax(torch.linspace(0.0, 3.0, ENTITIES, dtype=torch.float64), 0)


@pytest.mark.parametrize("proposal", [UNIFORM, SKEWED], ids=["uniform", "skewed"])
def test_the_corrected_sum_is_unbiased(proposal: Tensor) -> None:
    assert off_by(*estimates(proposal, correct=True)) < 3.5


def test_the_plain_sum_is_biased_by_a_skewed_proposal() -> None:
    """Also on the scale of E entities instead of N draws, where a uniform proposal needs no other correction."""
    found, truth = estimates(UNIFORM, correct=False)
    assert off_by(found * ENTITIES / DRAWS, truth) < 3.5
    found, truth = estimates(SKEWED, correct=False)
    assert off_by(found * ENTITIES / DRAWS, truth) > 50.0


def test_a_sampler_and_its_proposal_estimate_the_sum() -> None:
    """The uniform sampler with its own `log_proposal` and labels, summed over a real query."""
    graph = ring_graph()
    sampler = SAMPLERS["uniform"](graph, DRAWS)
    triples = graph.train[:1].expand(20_000, 3)
    negatives = sampler.sample(triples, "tail", torch.Generator().manual_seed(1))
    scores = torch.randn(graph.num_entities, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    proposal = sampler.log_proposal(triples, "tail", negatives.entities)
    found = log_candidates(scores[negatives.entities], negatives.known_true, proposal).exp().sum(1)
    everything = torch.arange(graph.num_entities)[None]
    known = graph.known_train.contains_candidates(triples[:1], "tail", everything)[0]
    assert off_by(found, scores[~known].exp().sum()) < 3.5


def test_learns_a_ring() -> None:
    run = eans.train(ring_graph(), "complex", "softmax", dim=16, steps=400, lr=0.02, batch_size=64, negatives=16)
    assert run.recipe.loss.correct_proposal
    assert run.metrics["test"]["both"]["mrr"] > 0.5
