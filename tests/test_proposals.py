"""Proposals along the line of entities: what they draw against the probabilities that they state."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from eans.graph import SIDES, column
from eans.samplers import EANS, SAMPLERS
from eans.samplers.proposals import Block, Gaussian, Proposal, Student
from test_eans_draw import CUT, NEGATIVES, ROWS, closed_form, counts, line_graph, p_value

STUDENT_TABLE = {  # 97.5 % quantiles from any table of Student's t
    1: 12.7062,
    2: 4.30265,
    3: 3.18245,
    4: 2.77645,
    5: 2.57058,
    10: 2.22814,
    30: 2.04227,
}
OPTIONS = [
    {"sigma": 3.0},
    {"sigma": 40.0},
    {"sigma": 300.0},
    {"proposal": "block", "blocks": 7},
    {"proposal": "block", "blocks": 1},
    {"proposal": "student", "sigma": 2.0},
    {"proposal": "student", "sigma": 2.0, "freedom": 1},
    {"proposal": "student", "sigma": 4.0, "freedom": 3},
    {"proposal": "student", "sigma": 30.0, "freedom": 1},
    {"orders": 3, "sigma": 2.0},
    {"orders": 2, "proposal": "block", "blocks": 4},
    {"orders": 2, "proposal": "student", "sigma": 1.0},
]
described = pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())))


def shuffled(sampler: EANS, seed: int = 1) -> EANS:
    """The same sampler with random lines."""
    generator = torch.Generator().manual_seed(seed)
    lines, tables = (table.view(sampler.orders, -1) for table in (sampler.virtual_to_real, sampler.real_to_virtual))
    for line, table in zip(lines, tables, strict=True):
        line.copy_(torch.randperm(sampler.num_entities, generator=generator))
        table.copy_(line.argsort())
    return sampler


def stated(sampler, entity: int, side="tail") -> torch.Tensor:
    """The probability that it states of every entity, around one: float64 ``[E]``."""
    triple = torch.zeros(1, 3, dtype=torch.int64)
    triple[0, column(side)] = entity
    return sampler.log_density(triple, side, torch.arange(sampler.num_entities)[None])[0].double().exp()


@described
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("entity", [0, 17, 49])
def test_draws_follow_the_stated_probabilities(options, side, entity):
    sampler = shuffled(EANS(line_graph(50), NEGATIVES, clusters=1, **options))
    probability = stated(sampler, entity, side)
    assert probability.sum().item() == pytest.approx(1.0, abs=2e-6)
    if sampler.orders == 1:
        observed = counts(sampler, entity, side)
        assert p_value(observed, (probability * ROWS * NEGATIVES).tolist()) > CUT
        return
    # Draws of one row share their order: as many rows as draws make them independent.
    triples = torch.zeros(ROWS * 500, 3, dtype=torch.int64)
    triples[:, column(side)] = entity
    sampler.negatives = 1
    observed = torch.bincount(
        sampler.draw(triples, side, torch.Generator().manual_seed(2)).reshape(-1), minlength=50
    ).tolist()
    assert p_value(observed, (probability * len(triples)).tolist()) > CUT


@described
def test_probabilities_can_be_recorded(options, no_waiting):
    """Once the table is made, nothing waits for a GPU."""
    graph = line_graph(50)
    sampler = EANS(graph, 8, clusters=1, **options)
    entities = sampler.draw(graph.train, "tail", torch.Generator().manual_seed(0))
    sampler.log_density(graph.train, "tail", entities)
    with no_waiting:
        sampler.log_density(graph.train, "tail", entities)


@pytest.mark.parametrize(("entities", "sigma"), [(50, 3.0), (50, 20.0), (7, 20.0), (10, 0.3), (2, 5.0), (1, 2.0)])
def test_gaussian_probabilities_are_the_closed_form(entities, sigma):
    sampler = EANS(line_graph(entities), 1, clusters=1, sigma=sigma)
    for start in {0, entities // 3, entities - 1}:
        expected = torch.tensor(closed_form(entities, sigma, start)).double()
        torch.testing.assert_close(stated(sampler, start), expected, rtol=2e-6, atol=1e-9)


@given(
    entities=st.integers(1, 60),
    sigma=st.floats(0.05, 500.0),
    freedom=st.integers(0, 6),
    start=st.integers(0, 59),
)
def test_probabilities_add_up(entities, sigma, freedom, start):
    law: Proposal = Student(entities, sigma, freedom) if freedom else Gaussian(entities, sigma)
    start = torch.tensor([start % entities])
    mass = law.log_mass(start, torch.arange(entities)[None]).double().exp()
    assert mass.sum().item() == pytest.approx(1.0, abs=5e-6)


@pytest.mark.parametrize(("freedom", "quantile"), STUDENT_TABLE.items())
def test_students_distribution(freedom, quantile):
    law = Student(10, 1.0, freedom)
    at = torch.tensor([0.0, quantile], dtype=torch.float64)
    assert law.beyond(at).tolist() == pytest.approx([0.5, 0.025], abs=1e-6)
    noise = law.noise((1000, 200), torch.Generator().manual_seed(0), torch.device("cpu"))
    assert (noise > quantile).double().mean().item() == pytest.approx(0.025, abs=0.0015)
    assert (noise < -quantile).double().mean().item() == pytest.approx(0.025, abs=0.0015)
    assert bool(noise.isfinite().all())


@pytest.mark.parametrize("freedom", [1, 2, 3])
def test_tables_of_heavy_tails_against_a_long_sum(freedom):
    """Ten thousand times round the line instead of twenty."""
    size, sigma = 30, 5.0
    law = Student(size, sigma, freedom)
    offset = torch.arange(size).double()
    longer = sum(law._mass(offset + image * size, sigma) for image in range(-10_000, 10_000))
    found = law.log_mass(torch.tensor([0]), torch.arange(size)[None])[0].double().exp()
    torch.testing.assert_close(found, longer / longer.sum(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("freedom", [1, 2])
def test_the_wildest_noise_stays_an_index(freedom, monkeypatch):
    """A denominator of zero is as unlikely as it is possible."""
    monkeypatch.setattr(torch.Tensor, "exponential_", lambda self, **_: self.zero_())
    monkeypatch.setattr(torch.Tensor, "square_", lambda self: self.zero_())
    law = Student(100, 5.0, freedom)
    drawn = law.draw(torch.arange(100), torch.tensor([3]), 200, torch.Generator().manual_seed(0))
    assert 0 <= drawn.min() <= drawn.max() < 100


@given(entities=st.integers(1, 200), data=st.data())
def test_blocks_are_equal_and_hold_their_places(entities, data):
    blocks = data.draw(st.integers(1, entities))
    first, behind = Block(entities, blocks)._bounds(torch.arange(entities))
    place = torch.arange(entities)
    assert bool((first <= place).all())
    assert bool((place < behind).all())
    assert len(set(first.tolist())) == blocks
    sizes = set((behind - first).tolist())
    assert max(sizes) - min(sizes) <= 1
    assert torch.equal(first[first], first)
    assert int(behind[-1]) == entities


def test_a_block_is_all_there_is():
    sampler = shuffled(EANS(line_graph(40), 500, clusters=1, proposal="block", blocks=4))
    line = sampler.virtual_to_real
    for place in (0, 9, 10, 39):
        triple = torch.tensor([[0, 0, int(line[place])]])
        drawn = set(sampler.draw(triple, "tail", torch.Generator().manual_seed(0)).reshape(-1).tolist())
        assert drawn == set(line[place // 10 * 10 : place // 10 * 10 + 10].tolist())


@pytest.mark.parametrize(("entities", "blocks"), [(1, 1), (3, 1), (4, 2), (15, 7), (16, 8), (1000, 8)])
def test_no_block_holds_one_entity_alone(entities, blocks):
    assert EANS(line_graph(entities), 1, proposal="block").blocks == blocks


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_uniform_share_is_mixed_in(share):
    sampler = shuffled(EANS(line_graph(50), 1, clusters=1, sigma=3.0, uniform_share=share))
    triple = torch.tensor([[0, 0, 5]])
    everything = torch.arange(50)[None]
    mixed = sampler.log_proposal(triple, "tail", everything)[0].double().exp()
    torch.testing.assert_close(mixed, (1 - share) * stated(sampler, 5) + share / 50, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", ["uniform", "bernoulli"])
def test_uniform_probabilities(name):
    torch.testing.assert_close(stated(SAMPLERS[name](line_graph(50), 1), 3), torch.full((50,), 0.02).double())


# --- several orders -----------------------------------------------------------------------------------------------


def outcome(step: int, features: torch.Tensor) -> SimpleNamespace:
    model = SimpleNamespace(entity_features=lambda: features)
    return SimpleNamespace(step=step, model=model, generator=torch.Generator().manual_seed(step))


def features(entities: int = 300, seed: int = 0) -> torch.Tensor:
    return torch.randn(entities, 6, generator=torch.Generator().manual_seed(seed))


def test_orders_differ_and_are_permutations():
    sampler = EANS(line_graph(300), 4, clusters=12, orders=3)
    assert sampler.virtual_to_real.shape == sampler.real_to_virtual.shape == (3, 300)
    before = sampler.virtual_to_real.data_ptr()
    sampler.observe(outcome(1, features()))
    assert sampler.virtual_to_real.data_ptr() == before
    assert sampler.centroids.shape == (3, 12, 6)
    for line, table in zip(sampler.virtual_to_real, sampler.real_to_virtual, strict=True):
        assert torch.equal(line[table], torch.arange(300))
    pairs = [(0, 1), (0, 2), (1, 2)]
    assert all(not torch.equal(sampler.virtual_to_real[a], sampler.virtual_to_real[b]) for a, b in pairs)


def test_the_first_of_several_orders_is_the_only_one_of_one():
    one, several = (EANS(line_graph(300), 4, clusters=12, orders=orders) for orders in (1, 2))
    for sampler in (one, several):
        sampler.observe(outcome(1, features()))
    assert one.virtual_to_real.shape == (300,)
    assert all(torch.equal(a, b) for a, b in zip(one.ordering(), several.ordering(), strict=True))
    assert set(one.state_dict()) == set(several.state_dict()) == {"virtual_to_real", "real_to_virtual", "centroids"}


def test_each_order_starts_from_its_own_centroids():
    """With unmoved features all lines have converged: they stay as they are, and stay different."""
    sampler = EANS(line_graph(300), 4, clusters=12, orders=2, reorder_every=1)
    for step in range(1, 5):
        sampler.observe(outcome(step, features()))
    lines = sampler.virtual_to_real.clone()
    sampler.observe(outcome(5, features()))
    assert torch.equal(sampler.virtual_to_real, lines)
    assert not torch.equal(lines[0], lines[1])


def test_a_row_draws_along_one_order():
    sampler = shuffled(EANS(line_graph(400), 300, clusters=1, sigma=2.0, orders=2))
    triples = torch.tensor([[0, 0, 7]]).repeat(60, 1)
    drawn = sampler.draw(triples, "tail", torch.Generator().manual_seed(0))
    used = []
    for row in drawn:
        near = [(table[row] - table[7]).remainder(400) for table in sampler.real_to_virtual]
        close = [bool((torch.minimum(offset, 400 - offset) < 20).all()) for offset in near]
        assert sum(close) == 1
        used.append(close.index(True))
    assert 15 < sum(used) < 45


def test_bytes_of_the_lines():
    assert EANS(line_graph(100), 4).memory() == 2 * 8 * 100
    assert EANS(line_graph(100), 4, orders=3).memory() == (2 * 3 + 1) * 8 * 100


def test_far_entities_occur_with_heavy_tails():
    """Beyond ten scales a Gaussian draws nothing, Student's t of two degrees one in a hundred."""
    shares = []
    for proposal in ("gaussian", "student"):
        sampler = EANS(line_graph(1000), NEGATIVES, clusters=1, sigma=5.0, proposal=proposal)
        observed = torch.tensor(counts(sampler, 500, "tail")).double()
        shares.append(float(observed[(torch.arange(1000) - 500).abs() > 50].sum() / observed.sum()))
    assert shares[0] == 0.0
    assert shares[1] == pytest.approx(2 * (0.5 - 10.1 / (2 * math.sqrt(2 + 10.1**2))), rel=0.1)
