"""Cached negatives: the renewal against a model in plain Python, the draws, determinism, and that they get harder."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import eans
from eans.graph import SIDES, KnowledgeGraph, Side, Vocabulary, column
from eans.models import MODELS, Model, Scores
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.samplers import Negatives, NSCaching, StepOutcome
from eans.samplers.nscaching import first_of_each, with_gumbel_noise
from eans.training import Trainer

Triples = list[tuple[int, int, int]]
some_triples = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 5)), min_size=1, max_size=20)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tiny_graph(triples: Triples) -> KnowledgeGraph:
    """Six entities and two relations whatever the triples are."""
    empty = torch.empty(0, 3, dtype=torch.int64)
    names = Vocabulary(f"e{i}" for i in range(6)), Vocabulary(("r0", "r1"), "relation")
    return KnowledgeGraph("tiny", *names, torch.tensor(triples), empty, empty)


def tiny_model(graph: KnowledgeGraph, seed: int = 0) -> Model:
    return MODELS["transe"](graph.num_entities, graph.num_relations, 3, 1.0, seeded(seed))


def after(step: int, model: Model, triples: torch.Tensor, side: Side, seed: int) -> StepOutcome:
    """What the trainer hands over; the cache looks at neither the negatives nor their scores."""
    none = torch.empty(len(triples), 0)
    scores = Scores(torch.zeros(len(triples)), none, None)
    return StepOutcome(step, model, triples, side, Negatives(none.long(), none.bool()), scores, seeded(seed))


def content(sampler: NSCaching, side: Side) -> dict[int, list[int]]:
    """The cached entities of each query, in the order of the slots; the query is ``anchor * R + relation``."""
    pairs, cache = sampler.get_buffer(f"{side}_pairs"), sampler.get_buffer(f"{side}_cache")
    return dict(zip(pairs.tolist(), cache[:-1].tolist(), strict=True))


def renewed_by_hand(
    sampler: NSCaching, graph: KnowledgeGraph, model: Model, batch: Triples, side: Side, seed: int
) -> dict[int, list[int]]:
    """The definition, entity by entity, with the same random numbers."""
    n1, n2, at = sampler.size, sampler.candidates, column(side)
    generator, triples = seeded(seed), torch.tensor(batch)
    fresh = torch.randint(graph.num_entities, (len(batch), n2), generator=generator)
    cache = content(sampler, side)
    known = set(map(tuple, graph.train.tolist()))
    queries = [triple[2 - at] * graph.num_relations + triple[1] for triple in batch]
    candidates = [cache[query] + row for query, row in zip(queries, fresh.tolist(), strict=True)]
    scores = model.score_candidates(triples, side, torch.tensor(candidates)).detach()
    if sampler.kept_by == "importance":
        scores = with_gumbel_noise(scores, generator)
    result = dict(cache)
    for number, (triple, query) in enumerate(zip(batch, queries, strict=True)):
        if query in queries[:number]:
            continue

        def corrupted(entity: int, triple: tuple[int, int, int] = triple) -> tuple[int, ...]:
            return (entity, *triple[1:]) if side == "head" else (*triple[:2], entity)

        allowed = {}
        for place, entity in enumerate(candidates[number]):
            if sampler.false_negatives == "keep" or corrupted(entity) not in known:
                allowed[entity] = float(scores[number, place])  # the last of several equal ones counts
        best = sorted(allowed, key=lambda entity: -allowed[entity])[:n1]
        if best:
            result[query] = [best[slot % len(best)] for slot in range(n1)]
    return result


@given(
    triples=some_triples,
    picks=st.lists(st.integers(0, 19), min_size=1, max_size=8),
    side=st.sampled_from(SIDES),
    sizes=st.tuples(st.integers(1, 7), st.integers(0, 7)),
    update=st.sampled_from(["importance", "top"]),
    policy=st.sampled_from(["mask", "resample", "keep"]),
    seed=st.integers(0, 1000),
)
def test_renewal_is_that_of_the_definition(triples, picks, side, sizes, update, policy, seed):
    graph = tiny_graph(triples)
    options = {"size": sizes[0], "candidates": sizes[1], "update": update, "false_negatives": policy}
    sampler, model = NSCaching(graph, 3, **options), tiny_model(graph, seed)
    other: Side = "tail" if side == "head" else "head"
    untouched = content(sampler, other)
    for number in range(3):
        batch = [triples[(pick + number) % len(triples)] for pick in picks]
        expected = renewed_by_hand(sampler, graph, model, batch, side, seed + number)
        sampler.observe(after(1 + 2 * number, model, torch.tensor(batch), side, seed + number))
        assert content(sampler, side) == expected
    assert content(sampler, other) == untouched


@given(triples=some_triples, seed=st.integers(0, 1000))
def test_scores_stand_beside_their_entities(triples, seed):
    graph = tiny_graph(triples)
    sampler = NSCaching(graph, 3, size=4, candidates=3, draw="importance")
    model, batch = tiny_model(graph, seed), graph.train
    sampler.observe(after(1, model, batch, "tail", seed))
    row = sampler.rows(batch, "tail")
    scores = model.score_candidates(batch, "tail", sampler.tail_cache[row].long()).detach()
    torch.testing.assert_close(sampler.tail_scores[row], scores)


@given(st.lists(st.integers(-3, 3), max_size=12))
def test_first_of_each(keys):
    assert first_of_each(torch.tensor(keys, dtype=torch.int64)).tolist() == [keys.index(key) for key in keys]


def test_gumbel_noise_draws_without_replacement():
    """How often each pair is chosen, against the probabilities of two draws one after the other."""
    scores = torch.tensor([0.0, 1.0, -1.0, 2.0])
    weights = scores.exp().tolist()
    rounds = 40_000
    chosen = with_gumbel_noise(scores.expand(rounds, 4), seeded()).topk(2, dim=1).indices
    observed = Counter(map(tuple, chosen.tolist()))
    for first, second in itertools.permutations(range(4), 2):
        probability = weights[first] / sum(weights) * weights[second] / (sum(weights) - weights[first])
        spread = math.sqrt(probability * (1 - probability) / rounds)
        assert observed[first, second] / rounds == pytest.approx(probability, abs=4.5 * spread)


# --- rules ----------------------------------------------------------------------------------------------------------


def test_known_answers_leave_the_cache(make_graph):
    graph = make_graph(30, 2, (60, 0, 0))
    for policy, expected in (("mask", False), ("keep", True)):
        sampler, model = NSCaching(graph, 5, size=20, false_negatives=policy), tiny_model(graph)
        for side in SIDES:
            sampler.observe(after(1, model, graph.train, side, 3))
            cached = sampler.get_buffer(f"{side}_cache")[sampler.rows(graph.train, side)].long()
            assert bool(graph.known_train.contains_candidates(graph.train, side, cached).any()) is expected


def test_a_query_that_everything_answers_keeps_its_cache():
    graph = tiny_graph([(0, 0, tail) for tail in range(6)])
    sampler = NSCaching(graph, 5, size=4)
    before = sampler.tail_cache.clone()
    sampler.observe(after(1, tiny_model(graph), graph.train, "tail", 0))
    assert torch.equal(sampler.tail_cache, before)


def test_entities_do_not_multiply(make_graph):
    """However often the best entity is drawn again, it has one slot."""
    graph = make_graph(40, 1, (5, 0, 0))
    sampler, model = NSCaching(graph, 5, size=10, update="top"), tiny_model(graph)
    for number in range(20):
        sampler.observe(after(1 + 2 * number, model, graph.train, "tail", number))
    for row in sampler.tail_cache[:-1].tolist():
        assert len(set(row)) == 10
    # By now every entity has been drawn: the caches hold the best ones there are.
    scores = model.score_all(graph.train, "tail")
    known = graph.known_train.contains_candidates(graph.train, "tail", torch.arange(40).expand(5, -1))
    best = scores.masked_fill(known, -torch.inf).topk(10, dim=1).indices
    cached = sampler.tail_cache[sampler.rows(graph.train, "tail")].long()
    assert torch.equal(cached.sort(1).values, best.sort(1).values)


@pytest.mark.parametrize(("lazy", "renewed"), [(0, [1, 2, 3, 4, 5, 6, 7, 8]), (1, [1, 2, 5, 6]), (2, [1, 2, 7, 8])])
def test_lazy_renewals(lazy, renewed, make_graph):
    """The sides take turns; after a renewal so many steps of the side go without."""
    graph = make_graph(50, 2, (40, 0, 0))
    sampler, model = NSCaching(graph, 5, size=10, lazy=lazy), tiny_model(graph)
    seen = []
    for step in range(1, 9):
        side: Side = "tail" if step % 2 else "head"
        before = {key: value.clone() for key, value in sampler.state_dict().items()}
        sampler.observe(after(step, model, graph.train, side, step))
        changed = {key for key, value in sampler.state_dict().items() if not torch.equal(value, before[key])}
        assert changed <= {f"{side}_cache"}
        seen += [step] if changed else []
    assert seen == renewed


def test_defaults_are_those_of_the_paper(make_graph: Callable[..., KnowledgeGraph]) -> None:
    """N1 = N2 = 50, a uniform draw, a renewal by importance after every step."""
    sampler = NSCaching(make_graph(60, 3, (80, 0, 0)), 5)
    section = load("wn18rr/transe/nscaching").sampler
    for found in (sampler, section):
        assert (found.size, found.candidates) == (50, 50)
    for found in ((sampler.drawn_by, sampler.kept_by, sampler.lazy), (section.draw, section.update, section.lazy)):
        assert found == ("uniform", "importance", 0)
    assert {sampler.get_buffer(f"{side}_cache").shape[1] for side in SIDES} == {50}


@pytest.mark.parametrize("update", ["importance", "top"])
@pytest.mark.parametrize("draw", ["uniform", "importance", "top"])
def test_renewals_do_not_wait_for_a_gpu(draw, update, make_graph, no_waiting):
    graph = make_graph(30)
    sampler, model = NSCaching(graph, 5, draw=draw, update=update), tiny_model(graph)
    with no_waiting:
        sampler.observe(after(1, model, graph.train, "tail", 0))


# --- draws ----------------------------------------------------------------------------------------------------------


def filled(draw: str, scores: list[float], negatives: int) -> NSCaching:
    """One query whose slots hold the entities 0, 1, 2, ... with these scores."""
    sampler = NSCaching(tiny_graph([(0, 0, 5)]), negatives, size=len(scores), draw=draw)
    sampler.tail_cache[0] = torch.arange(len(scores))
    if draw != "uniform":
        sampler.tail_scores[0] = torch.tensor(scores)
    return sampler


@pytest.mark.parametrize("draw", ["uniform", "importance"])
def test_slots_are_drawn_by_their_weight(draw):
    scores = [0.0, 2.0, -1.0, 1.0]
    drawn = filled(draw, scores, 40_000).draw(torch.tensor([[0, 0, 5]]), "tail", seeded())
    weights = [math.exp(score) if draw == "importance" else 1.0 for score in scores]
    share = torch.bincount(drawn[0], minlength=4).double() / 40_000
    assert share.tolist() == pytest.approx([weight / sum(weights) for weight in weights], abs=0.012)


@pytest.mark.parametrize(("negatives", "expected"), [(1, [1]), (3, [1, 3, 0]), (6, [1, 3, 0, 2, 1, 3])])
def test_the_best_slots_in_turn(negatives, expected):
    sampler = filled("top", [0.0, 2.0, -1.0, 1.0], negatives)
    assert sampler.draw(torch.tensor([[0, 0, 5]]), "tail", seeded())[0].tolist() == expected


@pytest.mark.parametrize("extreme", [0.0, -1e30, 1e30])
def test_extreme_scores_leave_slots_in_range(extreme):
    sampler = filled("importance", [extreme, 0.0, -1e30, extreme], 1000)
    drawn = sampler.draw(torch.tensor([[0, 0, 5]]), "tail", seeded())
    assert 0 <= drawn.min() <= drawn.max() < 4
    assert 2 not in drawn


@pytest.mark.parametrize("side", SIDES)
def test_each_row_reads_its_own_cache(side, make_graph):
    graph = make_graph(60, 3, (80, 0, 0))
    sampler = NSCaching(graph, 200, size=9)
    drawn = sampler.draw(graph.train, side, seeded())
    cache, at = content(sampler, side), 2 - column(side)
    for triple, row in zip(graph.train.tolist(), drawn.tolist(), strict=True):
        assert set(row) == set(cache[triple[at] * 3 + triple[1]])


def test_queries_that_train_does_not_hold_share_a_row(make_graph):
    graph = make_graph(60, 3, (20, 0, 0))
    sampler = NSCaching(graph, 300, size=9)
    known = set(sampler.tail_pairs.tolist())
    strange = next((h, r, 0) for h, r in itertools.product(range(60), range(3)) if h * 3 + r not in known)
    drawn = sampler.draw(torch.tensor([strange, (59, 2, 0)]), "tail", seeded())
    assert set(drawn[0].tolist()) == set(sampler.tail_cache[-1].tolist())


def test_bytes(make_graph):
    """4 bytes per slot, 8 where scores are kept, and 8 per query; queries are the distinct pairs of train."""
    graph = make_graph(60, 3, (80, 0, 0))
    queries = len({(h, r) for h, r, _ in graph.train.tolist()}) + len({(r, t) for _, r, t in graph.train.tolist()})
    assert NSCaching(graph, 5, size=9).memory() == (queries + 2) * 9 * 4 + queries * 8
    assert NSCaching(graph, 5, size=9, draw="top").memory() == (queries + 2) * 9 * 8 + queries * 8


# --- training -------------------------------------------------------------------------------------------------------


def trainer_on_words(method: str, **settings: Any) -> Trainer:
    graph = eans.load("wordnet-core")
    overrides = {"model.dim": 32, "train.lr": 0.01, "train.batch_size": 256, "train.steps": 400, "sampler.negatives": 8}
    recipe = load(f"wordnet-core/transe/{method}", overrides | settings)
    return build_trainer(resolve(recipe, graph), graph)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"sampler.draw": "importance", "sampler.update": "top"},
        {"sampler.draw": "top", "sampler.lazy": 2},
    ],
    ids=["paper", "importance-top", "top-lazy"],
)
def test_negatives_become_harder_than_uniform_ones(settings):
    """The model in training finds cached entities likelier than uniform ones; before training it does not."""

    def lead(trainer: Trainer) -> float:
        """By how many standard deviations of uniform scores the cached negatives score above their mean."""
        batch = trainer.stream[trainer.completed]
        sampler, model = trainer.sampler, trainer.model
        cached = sampler.sample(batch.triples, batch.side, seeded(1))
        fresh = sampler.uniform(batch.triples, seeded(2))
        with torch.no_grad():
            hard = model.score_candidates(batch.triples, batch.side, cached.entities)[~cached.known_true]
            plain = model.score_candidates(batch.triples, batch.side, fresh)
        return float((hard.mean() - plain.mean()) / plain.std())

    trainer = trainer_on_words("nscaching", **settings)
    assert abs(lead(trainer)) < 0.15
    for _ in range(300):
        trainer.step()
    assert lead(trainer) > 0.5
