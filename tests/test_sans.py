"""Pools of structure-aware negatives against brute force, what is drawn from them, their bounds, and resumed runs."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import eans
from eans.errors import DataError, UsageError
from eans.graph import SIDES, KnowledgeGraph, Side, Vocabulary, column, opposite
from eans.objective import total
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.samplers import SANS, base, pools
from helpers_runs import ring_graph


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def adjacency(graph: KnowledgeGraph) -> Tensor:
    """The undirected graph without relations, float64 ``[E, E]`` of zeros and ones."""
    matrix = torch.zeros(graph.num_entities, graph.num_entities, dtype=torch.float64)
    for head, _, tail in graph.train.tolist():
        matrix[head, tail] = matrix[tail, head] = 1.0
    return matrix


def members(sampler: SANS) -> list[list[int]]:
    starts = sampler.starts.tolist()
    return [sampler.ids[a:b].tolist() for a, b in itertools.pairwise(starts)]


def brute_pools(graph: KnowledgeGraph, hops: int) -> list[list[int]]:
    """Non-zeros of A^k + A^(k-1), for entities that have a neighbour."""
    matrix = adjacency(graph)
    power = torch.linalg.matrix_power(matrix, hops) + torch.linalg.matrix_power(matrix, hops - 1)
    return [
        row.nonzero()[:, 0].tolist() if edges.any() else [] for row, edges in zip(power, matrix, strict=True)
    ]  # fmt: skip


@pytest.fixture
def sparse(make_graph) -> KnowledgeGraph:
    """60 entities, 45 triples: some entities have no edge, neighbourhoods grow slowly."""
    graph = make_graph(60, 2, (45, 0, 0), seed=3)
    assert graph.unseen_entities() > 0
    return graph


# --- pools --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path_cost", [0, 1, 1 << 40], ids=["listed", "mixed", "products"])
@pytest.mark.parametrize("numbers", [1, 1 << 20], ids=["one at a time", "all at once"])
@pytest.mark.parametrize("hops", [1, 2, 3, 4, 5])
def test_hops_against_matrix_powers(hops, numbers, path_cost, sparse, make_graph, monkeypatch):
    monkeypatch.setattr(pools, "PATH_COST", path_cost)
    monkeypatch.setattr(pools, "BLOCK_NUMBERS", numbers)
    for graph in (sparse, make_graph(12), KnowledgeGraph.from_labels([("a", "r", "a"), ("b", "r", "c")])):
        assert members(SANS(graph, 4, hops=hops)) == brute_pools(graph, hops)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_walks_end_where_their_steps_lead(hops, sparse):
    """Each walk starts anew: its end is k steps from the entity and not from the end of the walk before."""
    reach = torch.linalg.matrix_power(adjacency(sparse), hops)
    sampler = SANS(sparse, 4, kind="walks", hops=hops, walks=3000)
    assert members(sampler) == [row.nonzero()[:, 0].tolist() for row in reach]  # enough walks to find every end
    few = SANS(sparse, 4, kind="walks", hops=hops, walks=3)
    assert all(set(some) <= set(whole) for some, whole in zip(members(few), members(sampler), strict=True))
    assert max(map(len, members(few))) <= 3


@pytest.mark.parametrize("numbers", [1, 1 << 20], ids=["few at a time", "all at once"])
def test_walks_without_restart_go_on(numbers, make_graph, monkeypatch):
    """Around a ring of 4 in steps of one, walks of one step from 0 end at 1 or 3 only; going on, they pass 0 and 2."""
    monkeypatch.setattr(pools, "BLOCK_NUMBERS", numbers)
    ring = KnowledgeGraph.from_labels([("a", "r", "b"), ("b", "r", "c"), ("c", "r", "d"), ("d", "r", "a")])
    options: dict[str, Any] = {"kind": "walks", "hops": 1, "walks": 200}
    assert members(SANS(ring, 4, **options)) == [[1, 3], [0, 2], [1, 3], [0, 2]]
    assert members(SANS(ring, 4, **options, restart=False)) == [[0, 1, 2, 3]] * 4
    # Two steps lead to the same half of the ring, however long one goes on.
    options["hops"] = 2
    assert members(SANS(ring, 4, **options, restart=False)) == [[0, 2], [1, 3], [0, 2], [1, 3]]
    # One walk does not go on from anything: it ends at a neighbour, as any walk of one step.
    single = SANS(make_graph(12), 4, kind="walks", hops=1, walks=1, restart=False)
    near = adjacency(make_graph(12))
    assert all(len(pool) == 1 and near[entity, pool[0]] for entity, pool in enumerate(members(single)))


def test_visits_of_one_long_walk_follow_the_degrees(make_graph):
    """In the long run a walk is at a place as often as edges lead there, wherever it began."""
    graph, walks = make_graph(12), 5_000
    degrees = adjacency(graph).sum(1)
    sampler = SANS(graph, 4, kind="walks", hops=2, walks=walks, restart=False, by_visits=True)
    assert sampler.sums is not None
    visits = torch.zeros(12, 12)
    for entity, (start, pool) in enumerate(zip(sampler.starts.tolist(), members(sampler), strict=False)):
        visits[entity, pool] = sampler.sums.diff()[start : start + len(pool)].float()
    expected = (degrees / degrees.sum()).float().expand(12, 12)
    torch.testing.assert_close(visits / walks, expected, rtol=0, atol=0.03)


def test_visits_follow_the_random_walk(make_graph):
    graph, walks = make_graph(12), 100_000
    edges = adjacency(graph)
    expected = torch.linalg.matrix_power(edges / edges.sum(1, keepdim=True), 3)
    sampler = SANS(graph, 4, kind="walks", hops=3, walks=walks, by_visits=True)
    assert sampler.sums is not None
    visits = sampler.sums.diff()
    assert sampler.sums[sampler.starts].diff().tolist() == [walks] * 12
    for entity, pool in enumerate(members(sampler)):
        start = int(sampler.starts[entity])
        share = visits[start : start + len(pool)] / walks
        torch.testing.assert_close(share.double(), expected[entity, pool], rtol=0, atol=0.01)


def test_pools_depend_on_their_seed_alone(make_graph):
    graph = make_graph(40, 2, (200, 0, 0))

    def build(**options: Any) -> list[list[int]]:
        return members(SANS(graph, 4, limit=10, **options))

    torch.manual_seed(5)
    state = torch.get_rng_state()
    for options in (
        {"hops": 2},
        {"kind": "walks", "walks": 50},
        {"kind": "walks", "walks": 50, "restart": False},
    ):
        assert build(**options) == build(**options) != build(**options, seed=1)
    assert torch.equal(torch.get_rng_state(), state)


def test_large_pools_are_sampled_down_uniformly(make_graph):
    graph = make_graph(40, 2, (60, 0, 0))
    whole, limit, rounds = members(SANS(graph, 4)), 6, 600
    kept = torch.zeros(40, 40)
    for seed in range(rounds):
        for entity, pool in enumerate(members(SANS(graph, 4, limit=limit, seed=seed))):
            assert len(pool) == min(limit, len(whole[entity]))
            assert pool == sorted(set(pool) & set(whole[entity]))
            kept[entity, pool] += 1
    assert max(map(len, whole)) > limit > min(len(pool) for pool in whole if pool)
    for entity, pool in enumerate(whole):
        chance = min(1.0, limit / max(1, len(pool)))
        deviation = math.sqrt(chance * (1 - chance) / rounds)
        assert (kept[entity, pool] / rounds - chance).abs().max() <= 4.5 * deviation if pool else True


def test_memory_is_bounded(make_graph):
    graph = make_graph(2000, 1, (60_000, 0, 0))
    with pytest.raises(UsageError) as caught:
        SANS(graph, 4, memory_limit_mb=2)
    assert "sampler.memory_limit_mb = 2" in str(caught.value)
    assert "lower sampler.limit or sampler.hops" in str(caught.value)
    assert "\n" not in str(caught.value)
    for restart in (True, False):
        with pytest.raises(UsageError, match=r"lower sampler\.limit or sampler\.walks, or allow more"):
            SANS(graph, 4, kind="walks", walks=1000, restart=restart, memory_limit_mb=1)
    small = SANS(graph, 4, memory_limit_mb=2, limit=100)
    assert small.memory() == 4 * 2000 * 100 + 8 * 2001
    weighted = SANS(graph, 4, kind="walks", walks=50, by_visits=True)
    assert weighted.memory() == 12 * len(weighted.ids) + 8 + 8 * 2001


def test_weights_need_walks(graph):
    with pytest.raises(UsageError, match=r"set sampler\.kind=walks"):
        SANS(graph, 4, by_visits=True)
    with pytest.raises(UsageError, match=r"set sampler\.kind=walks, or sampler\.restart=true"):
        SANS(graph, 4, restart=False)


@pytest.mark.parametrize(
    ("name", "hops", "share"), [("fb15k-237", 1, 0.033), ("fb15k-237", 2, 0.415), ("wn18rr", 2, 0.003)]
)
def test_shares_of_real_graphs(name, hops, share):
    """Mean pool around the tails of train, as a share of all entities: known from an independent count."""
    try:
        graph = eans.load(name, download=False)
    except DataError:
        pytest.skip(f"{name} is not here")
    sampler = SANS(graph, 4, hops=hops, limit=graph.num_entities)
    mean = sampler.starts.diff()[graph.train[:, 2]].double().mean().item() / graph.num_entities
    assert mean == pytest.approx(share, abs=0.0005)


# --- draws --------------------------------------------------------------------------------------------------------

OPTIONS: list[dict[str, Any]] = [
    {},
    {"hops": 1},
    {"limit": 4},
    {"kind": "walks", "walks": 30},
    {"kind": "walks", "walks": 30, "by_visits": True},
    {"kind": "walks", "walks": 30, "by_visits": True, "limit": 3},
]
every_option = pytest.mark.parametrize("options", OPTIONS, ids=lambda o: ",".join(map(str, o.values())) or "default")
both_sides = pytest.mark.parametrize("side", SIDES)


def shares(sampler: SANS, entity: int) -> Tensor:
    """How likely each entity is to be drawn beside `entity`, float64 ``[E]``."""
    start, stop = int(sampler.starts[entity]), int(sampler.starts[entity + 1])
    if start == stop:
        return torch.full((sampler.num_entities,), 1 / sampler.num_entities, dtype=torch.float64)
    weights = torch.ones(stop - start) if sampler.sums is None else sampler.sums[start : stop + 1].diff()
    result = torch.zeros(sampler.num_entities, dtype=torch.float64)
    result[sampler.ids[start:stop].long()] = weights.double() / weights.sum()
    return result


@every_option
@both_sides
def test_draws_come_from_the_pool_of_the_kept_entity(options, side, sparse):
    """As often as their weights say; beside an entity without a pool, every entity as often as the other."""
    sampler = SANS(sparse, 40_000, **options)
    lonely = int((sampler.starts.diff() == 0).nonzero()[0, 0])
    triples = sparse.train[:6].clone()
    triples[5, column(opposite(side))] = lonely
    drawn = sampler.draw(triples, side, seeded(1))
    assert drawn.dtype == torch.int64
    for row, triple in zip(drawn, triples.tolist(), strict=True):
        expected = shares(sampler, triple[column(opposite(side))])
        found = torch.bincount(row, minlength=60).double() / len(row)
        assert not found[expected == 0].any()
        torch.testing.assert_close(found, expected, rtol=0, atol=0.012)


@every_option
@both_sides
def test_density_is_that_of_the_draws(options, side, sparse):
    sampler = SANS(sparse, 8, **options)
    every_entity = torch.arange(60)
    triples = torch.stack([every_entity, torch.zeros(60, dtype=torch.int64), every_entity], 1)
    density = sampler.log_density(triples, side, every_entity.expand(60, 60))
    expected = torch.stack([shares(sampler, entity) for entity in range(60)])
    torch.testing.assert_close(density.double().exp(), expected)
    mixed = SANS(sparse, 8, uniform_share=0.25, **options).log_proposal(triples, side, every_entity.expand(60, 60))
    torch.testing.assert_close(mixed.double().exp(), 0.75 * expected + 0.25 / 60)


class NoWaiting(TorchDispatchMode):
    """Refuses whatever makes a GPU wait for the host or the host for a GPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in ("_local_scalar_dense", "nonzero", "masked_select", "unique_dim", "_unique2", "item"), name
        return func(*args, **(kwargs or {}))


@every_option
@both_sides
def test_sampling_never_waits(options, side, sparse, monkeypatch):
    monkeypatch.setattr(eans.kernels.switch, "_choice", "reference")
    monkeypatch.setattr(base, "can_branch_on", lambda _: False)  # as on a GPU
    sampler = SANS(sparse, 8, false_negatives="resample", **options)
    with NoWaiting():
        negatives = sampler.sample(sparse.train, side, seeded())
        sampler.log_proposal(sparse.train, side, negatives.entities)


@pytest.mark.parametrize("looks", [True, False])
def test_what_is_drawn_again_comes_from_the_pool_first(looks, monkeypatch):
    """The hub knows half of its pool; the other half is left to draw from, so nobody else is."""
    monkeypatch.setattr(base, "can_branch_on", lambda _: looks)
    rows = [(0, 0, t) for t in range(1, 11)] + [(0, 1, t) for t in range(11, 21)]
    names = Vocabulary(map(str, range(500))), Vocabulary(["r", "s"], "relation")
    none = torch.empty(0, 3, dtype=torch.int64)
    graph = KnowledgeGraph("hub", *names, torch.tensor(rows), none, none)
    sampler = SANS(graph, 50, hops=1, false_negatives="resample")
    sampler.resample_rounds = 40
    sample = sampler.sample(graph.train[:10], "tail", seeded())
    assert not sample.known_true.any()
    assert set(sample.entities.unique().tolist()) <= {0, *range(11, 21)}


def test_a_pool_of_known_answers_falls_back_to_uniform():
    """The neighbourhood of the hub holds nothing but answers; strangers are all that is left."""
    rows = [(0, 0, t) for t in range(0, 21)] + [(30, 0, 31)]
    names = Vocabulary(map(str, range(200))), Vocabulary(["r"], "relation")
    none = torch.empty(0, 3, dtype=torch.int64)
    graph = KnowledgeGraph("hub", *names, torch.tensor(rows), none, none)
    triples = graph.train[:5]
    sample = SANS(graph, 50, false_negatives="resample").sample(triples, "tail", seeded())
    assert not sample.known_true.any()
    assert sample.entities.min() > 20
    masked = SANS(graph, 50).sample(triples, "tail", seeded())
    assert masked.known_true.all()


# --- training -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["hops", "walks"])
def test_a_resumed_run_makes_the_same_pools(kind):
    graph = ring_graph()
    settings = {"model.dim": 8, "sampler.negatives": 8, "train.batch_size": 32, "train.steps": 12}
    recipe = resolve(load("default/transe/sans+adv", settings | {"sampler.kind": kind}), graph)
    whole, first, second = (build_trainer(recipe, graph) for _ in range(3))
    expected = [total(whole.step()).item() for _ in range(12)]
    begun = [total(first.step()).item() for _ in range(5)]
    tensors, values = first.state()
    assert not [name for name in tensors if name.startswith("sampler.")]
    second.load_state({name: value.clone() for name, value in tensors.items()}, values)
    assert begun + [total(second.step()).item() for _ in range(7)] == expected


@pytest.mark.parametrize("method", ["sans", "sans+adv"])
def test_recipes_draw_again_as_the_paper_does(method):
    recipe = load(f"default/transe/{method}")
    assert (recipe.sampler.name, recipe.sampler.false_negatives) == ("sans", "resample")
    assert (recipe.loss.name, recipe.loss.adversarial_temperature) == ("logsigmoid", float("adv" in method))


def test_both_sides_start_at_the_other_end():
    """A path a - b - c - d: one step from a leads to b, one step from d to c."""
    graph = KnowledgeGraph.from_labels([("a", "r", "b"), ("b", "r", "c"), ("c", "r", "d")])
    sampler = SANS(graph, 200, hops=1)
    triple = torch.tensor([[0, 0, 3]])
    seen: dict[Side, set[int]] = {side: set(sampler.draw(triple, side, seeded())[0].tolist()) for side in SIDES}
    assert seen == {"tail": {0, 1}, "head": {2, 3}}
