"""What samplers draw, against the closed-form distribution by chi-square; the line of entities and its cadence.

The seeds are fixed, so each test gives the same answer every time.
"""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from eans import kernels
from eans.errors import UsageError
from eans.graph import SIDES, KnowledgeGraph, Side, Vocabulary, column
from eans.samplers import EANS, Uniform
from eans.samplers.eans import default_clusters, default_sigma
from eans.samplers.proposals import Gaussian

ROWS, NEGATIVES = 100, 2000
CUT = 1e-3


def phi(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def p_value(observed: list[float], expected: list[float]) -> float:
    """Chi-square survival function by Wilson and Hilferty; bins with fewer than 10 expected are pooled."""
    rare = [i for i, e in enumerate(expected) if e < 10.0]
    bins = [(o, e) for o, e in zip(observed, expected, strict=True) if e >= 10.0]
    pooled = sum(observed[i] for i in rare), sum(expected[i] for i in rare)
    if pooled[1] >= 10.0:
        bins.append(pooled)
    else:
        assert pooled[0] <= 40  # next to impossible places stay next to empty
    if len(bins) < 2:
        return 1.0
    freedom = len(bins) - 1
    statistic = sum((o - e) ** 2 / e for o, e in bins)
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return 0.5 * math.erfc(z / math.sqrt(2.0))


def closed_form(entities: int, sigma: float, start: int) -> list[float]:
    """P(virtual index): offsets d have mass Phi((d + .5) / sigma) - Phi((d - .5) / sigma), with the ends joined."""
    mass = [0.0] * entities
    reach = math.ceil(9 * sigma) + 1
    for d in range(-reach, reach + 1):
        mass[(start + d) % entities] += phi((d + 0.5) / sigma) - phi((d - 0.5) / sigma)
    return mass


def line_graph(entities: int) -> KnowledgeGraph:
    """Every entity is once a head and once a tail, of different triples."""
    train = torch.tensor([[(i + 1) % entities, 0, i] for i in range(entities)])
    none = torch.empty(0, 3, dtype=torch.int64)
    names = Vocabulary(map(str, range(entities)))
    return KnowledgeGraph("line", names, Vocabulary(["r"], "relation"), train, none, none)


def shuffled(sampler: EANS, seed: int = 1) -> EANS:
    """The same sampler with its entities in a random line."""
    sampler.virtual_to_real = torch.randperm(sampler.num_entities, generator=torch.Generator().manual_seed(seed))
    sampler.real_to_virtual = torch.argsort(sampler.virtual_to_real)
    return sampler


def counts(sampler: EANS | Uniform, entity: int, side: Side, seed: int = 0) -> list[int]:
    """How often each entity is drawn for a positive one."""
    triple = torch.zeros(1, 3, dtype=torch.int64)
    triple[0, column(side)] = entity
    triple[0, 2 - column(side)] = (entity + 1) % sampler.num_entities
    drawn = sampler.draw(triple.repeat(ROWS, 1), side, torch.Generator().manual_seed(seed))
    return torch.bincount(drawn.reshape(-1), minlength=sampler.num_entities).tolist()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("entities", "sigma", "start"),
    [
        (50, 3.0, 25),
        (50, 3.0, 0),
        (50, 3.0, 49),
        (50, 20.0, 3),
        (1000, 40.0, 990),
        (10, 0.3, 9),
        (7, 20.0, 5),  # sigma beyond the number of entities
        (2, 0.7, 0),
        (2, 5.0, 1),
        (1, 2.0, 0),
    ],
)
def test_draws_follow_the_closed_form(entities, sigma, start, side):
    sampler = shuffled(EANS(line_graph(entities), NEGATIVES, clusters=1, sigma=sigma))
    real = sampler.virtual_to_real.tolist()
    mass = closed_form(entities, sigma, start)
    assert sum(mass) == pytest.approx(1.0, abs=1e-9)
    observed = counts(sampler, real[start], side)
    expected = [mass[v] * ROWS * NEGATIVES for v in range(entities)]
    assert p_value([observed[real[v]] for v in range(entities)], expected) > CUT


def test_offsets_are_symmetric():
    """As many draws d to the left as to the right; none is favoured by truncation."""
    sampler = EANS(line_graph(400), NEGATIVES, clusters=1, sigma=6.0)
    observed = counts(sampler, 200, "tail")
    for d in range(1, 16):
        left, right = observed[200 - d], observed[200 + d]
        assert abs(left - right) < 4.5 * math.sqrt(left + right), d
    share = observed[200] / sum(observed)
    assert share == pytest.approx(phi(0.5 / 6) - phi(-0.5 / 6), rel=0.03)


def test_the_test_can_fail():
    """Truncating towards zero, as the authors' code did, is told apart with ease."""
    sampler = EANS(line_graph(50), NEGATIVES, clusters=1, sigma=3.0)
    noise = torch.randn(ROWS * NEGATIVES, generator=torch.Generator().manual_seed(0)) * 3.0
    observed = torch.bincount((25 + noise.trunc().long()) % 50, minlength=50).tolist()
    mass = closed_form(50, 3.0, 25)
    expected = [m * ROWS * NEGATIVES for m in mass]
    assert p_value(observed, expected) < 1e-12
    assert p_value(counts(sampler, 25, "tail"), expected) > CUT


@pytest.mark.parametrize("entities", [2, 7, 50, 1000])
@pytest.mark.parametrize("side", SIDES)
def test_uniform(entities, side):
    sampler = Uniform(line_graph(entities), NEGATIVES)
    expected = [ROWS * NEGATIVES / entities] * entities
    assert p_value(counts(sampler, 0, side), expected) > CUT


def test_draws_within_a_row_are_independent():
    """Neighbouring draws of a row are uncorrelated, and so are neighbouring rows."""
    sampler = EANS(line_graph(1000), NEGATIVES, clusters=1, sigma=30.0)
    triples = torch.tensor([[0, 0, 500]]).repeat(ROWS, 1)
    drawn = sampler.draw(triples, "tail", torch.Generator().manual_seed(3)).double() - 500.0
    size = drawn.numel()
    for product in (drawn[:, 1:] * drawn[:, :-1], drawn[1:] * drawn[:-1]):
        assert abs(product.mean().item() / 900.0) < 4.0 / math.sqrt(size)


def test_each_row_is_centred_on_its_own_positive():
    sampler = shuffled(EANS(line_graph(200), 500, clusters=1, sigma=0.01))
    graph = line_graph(200)
    for side in SIDES:
        drawn = sampler.draw(graph.train, side, torch.Generator().manual_seed(0))
        assert torch.equal(drawn, graph.train[:, column(side), None].expand(-1, 500))


# --- the line -----------------------------------------------------------------------------------------------------


def outcome(step: int, features: torch.Tensor) -> SimpleNamespace:
    model = SimpleNamespace(entity_features=lambda: features)
    return SimpleNamespace(step=step, model=model, generator=torch.Generator().manual_seed(step))


def blobs(entities: int, groups: int) -> torch.Tensor:
    """Entity i lies near the corner i mod groups."""
    corners = 100.0 * torch.arange(groups)[:, None] * torch.tensor([[1.0, 0.0]])
    noise = torch.randn(entities, 2, generator=torch.Generator().manual_seed(0))
    return corners[torch.arange(entities) % groups] + noise


def test_reordering_puts_similar_entities_side_by_side():
    sampler = EANS(line_graph(60), 10, clusters=4)
    sampler.observe(outcome(1, blobs(60, 4)))
    line = sampler.virtual_to_real
    assert sorted(line.tolist()) == list(range(60))
    assert torch.equal(sampler.real_to_virtual[line], torch.arange(60))
    groups = (line % 4).reshape(4, 15)
    assert all(len(set(group)) == 1 for group in groups.tolist())
    assert sampler.centroids.shape == (4, 2)


def test_cadence():
    """The first ordering follows the first step, the next ones every `reorder_every` steps."""
    sampler = EANS(line_graph(30), 4, clusters=3, reorder_every=5)
    changed = []
    for step in range(1, 17):
        before = sampler.centroids
        sampler.observe(outcome(step, torch.randn(30, 2, generator=torch.Generator().manual_seed(step))))
        changed.append(sampler.centroids is not before)
    assert [step for step, was in enumerate(changed, 1) if was] == [1, 6, 11, 16]


@pytest.mark.parametrize("orders", [1, 3])
def test_a_new_line_may_wait(orders: int) -> None:
    """Until a multiple of `order_epoch` steps is done; then it is the one that would have taken effect at once."""
    now, late = (EANS(line_graph(30), 4, clusters=3, reorder_every=5, order_epoch=e, orders=orders) for e in (0, 8))
    identity = torch.arange(30).expand_as(now.virtual_to_real)
    expected, lines = identity.clone(), []
    for step in range(1, 33):
        features = torch.randn(30, 2, generator=torch.Generator().manual_seed(step))
        for sampler in (now, late):
            sampler.observe(outcome(step, features))
        if step % 8 == 0:  # among them step 16, which makes a line as well
            expected = now.virtual_to_real.clone()
            lines.append(expected)
        assert torch.equal(late.virtual_to_real, expected), step
        assert torch.equal(late.real_to_virtual.gather(-1, late.virtual_to_real), identity)
    assert len({tuple(line.flatten().tolist()) for line in lines}) == 4


@pytest.mark.parametrize("order_epoch", [0, 7])
def test_clusters_inherit_the_line_before(order_epoch: int) -> None:
    """Two clusters that were apart stay apart in one that holds both; by id they would be mixed."""
    even = torch.arange(30) % 2 == 0
    apart = torch.stack([torch.where(even, 0.0, 9.0), torch.zeros(30)], 1)
    sampler = EANS(line_graph(30), 4, clusters=2, reorder_every=1, order_epoch=order_epoch, inside="inherited")
    sampler.reorder(apart, torch.Generator().manual_seed(0))
    moved = torch.stack([torch.zeros(30), torch.where(torch.arange(30) < 28, 0.0, 9.0)], 1)
    sampler.reorder(moved, torch.Generator().manual_seed(0))
    line = (sampler.next_line if order_epoch else sampler.virtual_to_real).tolist()
    assert set(line[:2]) == {28, 29} or set(line[-2:]) == {28, 29}
    large = [entity for entity in line if entity < 28]
    assert large in ([*range(0, 28, 2), *range(1, 28, 2)], [*range(1, 28, 2), *range(0, 28, 2)])


def test_later_orderings_start_from_the_previous_centroids():
    """With unmoved features a warm start is already converged: the line stays as it is."""
    features = torch.randn(200, 3, generator=torch.Generator().manual_seed(2))
    sampler = EANS(line_graph(200), 4, clusters=20, reorder_every=1)
    for step in range(1, 4):
        sampler.observe(outcome(step, features))
    line, centroids = sampler.virtual_to_real, sampler.centroids
    sampler.observe(outcome(4, features))
    assert torch.equal(sampler.virtual_to_real, line)
    torch.testing.assert_close(sampler.centroids, centroids)


@pytest.mark.parametrize("orders", [1, 3])
def test_without_a_warm_start_the_line_before_has_no_say(orders: int) -> None:
    """With unmoved features too, a later ordering is the one that a new sampler has from the same random numbers."""
    features = torch.randn(200, 3, generator=torch.Generator().manual_seed(2))
    used, new, warm = (EANS(line_graph(200), 4, clusters=20, warm_start=w, orders=orders) for w in (False, False, True))
    for sampler in (used, warm):
        sampler.reorder(features, torch.Generator().manual_seed(0))
    for sampler in (used, new, warm):
        sampler.reorder(features, torch.Generator().manual_seed(1))
    assert torch.equal(used.centroids, new.centroids)
    assert torch.equal(used.virtual_to_real, new.virtual_to_real)
    assert not torch.equal(warm.virtual_to_real, new.virtual_to_real)


def test_defaults():
    assert [default_clusters(n) for n in (1, 2, 100, 9_999, 10_000, 40_943)] == [1, 1, 10, 99, 100, 100]
    assert default_sigma(14_541, 100) == pytest.approx(290.82)
    sampler = EANS(line_graph(100), 4)
    assert (sampler.clusters, sampler.sigma) == (10, 20.0)
    assert EANS(line_graph(100), 4, clusters=25).sigma == 8.0


def test_more_clusters_than_entities():
    with pytest.raises(UsageError, match=r"clusters is 8, but the graph has 7 entities"):
        EANS(line_graph(7), 4, clusters=8)
    EANS(line_graph(7), 4, clusters=7)


@pytest.mark.parametrize("implementation", ["reference", "numba"])
def test_rare_large_offsets_do_not_lose_precision(implementation):
    """Adding before rounding in float32 would make odd places of a long line unreachable."""
    entities = (1 << 24) + 4096  # from 2 ** 24 on, float32 has no odd numbers
    sampler = EANS.__new__(EANS)
    torch.nn.Module.__init__(sampler)
    sampler.negatives, sampler.orders, sampler.proposal = 1000, 1, Gaussian(entities, 3.0)
    sampler.real_to_virtual = sampler.virtual_to_real = torch.arange(entities)
    triples = torch.tensor([[0, 0, entities - 11]])
    with kernels.chosen(implementation):
        drawn = sampler.draw(triples, "tail", torch.Generator().manual_seed(0))
    parity = Counter((drawn % 2).reshape(-1).tolist())
    assert min(parity[0], parity[1]) > 400
