"""The stream of batches: sides, coverage, weights, and that a batch depends on the seed and the step alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from eans import batches
from eans.batches import BatchStream, mix
from eans.errors import DataError
from eans.graph import KnowledgeGraph
from eans.losses.logsigmoid import LogSigmoid
from eans.permutation import Permutation
from eans.types import Batch, Scores
from eans.weights import answer_weights, query_weights, subsampling_weights


def line(size: int) -> KnowledgeGraph:
    """`size` different triples."""
    return KnowledgeGraph.from_labels([(f"a{i}", f"r{i % 3}", f"b{i % 7}") for i in range(size)])


def rows(batch: Batch) -> list[tuple[int, ...]]:
    return [tuple(row) for row in batch.triples.tolist()]


def same(a: Batch, b: Batch) -> bool:
    return a.side == b.side and torch.equal(a.triples, b.triples) and torch.equal(a.weight, b.weight)


@pytest.mark.parametrize(("size", "batch_size"), [(20, 4), (20, 7), (20, 20), (5, 13), (1, 3), (1, 1)])
def test_batches_are_full_and_alternate(size, batch_size):
    stream = BatchStream(line(size), batch_size, seed=0)
    for step in range(12):
        batch = stream[step]
        assert batch.side == ("tail", "head")[step % 2]
        assert batch.triples.shape == (batch_size, 3)
        assert batch.triples.dtype == torch.int64
        assert batch.weight.shape == (batch_size,)
        assert batch.weight.dtype == torch.float32


@given(st.integers(1, 25), st.integers(1, 40), st.integers(0, 3))
def test_every_triple_once_per_pass_and_side(size, batch_size, seed):
    """Cut each side's sequence into passes of `size`: each is a shuffle of all triples."""
    graph = line(size)
    everything = Counter(map(tuple, graph.train.tolist()))
    stream = BatchStream(graph, batch_size, seed)
    steps = -(-3 * size // batch_size)
    for parity in (0, 1):
        seen = [row for i in range(steps) for row in rows(stream[2 * i + parity])]
        for start in range(0, 3 * size, size):
            assert Counter(seen[start : start + size]) == everything


def test_sides_passes_and_seeds_are_shuffled_apart():
    graph = line(50)
    stream, other = BatchStream(graph, 50, seed=0), BatchStream(graph, 50, seed=1)
    passes = [rows(stream[step]) for step in range(4)] + [rows(other[0])] + [[tuple(t) for t in graph.train.tolist()]]
    assert len({tuple(one) for one in passes}) == len(passes)


@pytest.mark.parametrize("batch_size", [3, 8, 30])
def test_random_access(batch_size):
    graph = line(10)
    expected = [BatchStream(graph, batch_size, seed=5)[step] for step in range(30)]
    stream = BatchStream(graph, batch_size, seed=5)
    for step in [29, 0, 13, 13, 28, 1, 2, 3, 27, 14, *range(30), *reversed(range(30))]:
        assert same(stream[step], expected[step])


@pytest.fixture
def many(monkeypatch):
    """Ten triples count as very many, of which four are permuted at a time."""
    monkeypatch.setattr(batches, "MOST_DRAWN", 9)
    monkeypatch.setattr(batches, "BLOCK", 4)
    return line(10)


@pytest.mark.parametrize("batch_size", [1, 3, 10, 27])
def test_very_many_triples_are_permuted_by_blocks(many, batch_size):
    """Each once in a pass and side, other permutations of each, and the same batches from any step on."""
    stream, steps = BatchStream(many, batch_size, seed=5), 2 * -(-30 // batch_size)
    expected = [stream[step] for step in range(steps)]
    passes = []
    for parity in (0, 1):
        seen = [row for batch in expected[parity::2] for row in rows(batch)]
        passes += [tuple(seen[start : start + 10]) for start in (0, 10, 20)]
    assert {frozenset(one) for one in passes} == {frozenset(map(tuple, many.train.tolist()))}
    assert len(set(passes)) == 6
    other = BatchStream(many, batch_size, seed=6)
    assert [rows(other[step]) for step in range(steps)] != [rows(batch) for batch in expected]
    stream = BatchStream(many, batch_size, seed=5)
    for step in [steps - 1, 0, 1, steps - 2, *reversed(range(steps)), *range(steps)]:
        assert same(stream[step], expected[step])


def test_of_very_many_triples_a_block_is_kept(many, monkeypatch):
    asked = []
    plain = Permutation.between
    monkeypatch.setattr(Permutation, "between", lambda *given: asked.append(given[1:3]) or plain(*given))
    stream = BatchStream(many, 2, seed=0)
    for step in range(10):
        _ = stream[step]
    assert asked == [(0, 4), (0, 4), (4, 8), (4, 8), (8, 10), (8, 10)]
    assert not stream._shuffles


def test_the_global_generator_plays_no_part():
    graph = line(30)
    torch.manual_seed(0)
    first = BatchStream(graph, 8, seed=2)[3]
    torch.manual_seed(1)
    state = torch.get_rng_state()
    assert same(first, BatchStream(graph, 8, seed=2)[3])
    assert torch.equal(torch.get_rng_state(), state)


def test_weights_belong_to_their_triples(make_graph):
    graph = make_graph(6, 2, (40, 0, 0))
    weight = dict(zip(map(tuple, graph.train.tolist()), subsampling_weights(graph.train, 2).tolist(), strict=True))
    assert len(set(weight.values())) > 3
    stream = BatchStream(graph, 16, seed=0)
    for step in range(8):
        batch = stream[step]
        assert batch.weight.tolist() == [weight[row] for row in rows(batch)]
    asked = BatchStream(graph, 16, seed=0, subsampling="query")
    answered = BatchStream(graph, 16, seed=0, subsampling="answer")
    for step, side in ((0, "tail"), (1, "head")):
        by_query, by_answer = query_weights(graph.train, 2, side), answer_weights(graph.train, side)
        for stream_of_side, expected in ((asked, by_query), (answered, by_answer)):
            found = dict(zip(map(tuple, graph.train.tolist()), expected.tolist(), strict=True))
            assert stream_of_side[step].side == side
            assert stream_of_side[step].weight.tolist() == [found[row] for row in rows(stream_of_side[step])]
    alike = BatchStream(graph, 16, seed=0, subsampling="query", power=1.0)
    assert alike[1].weight.tolist() == pytest.approx(asked[1].weight.square().tolist(), rel=1e-6)
    plain = BatchStream(graph, 16, seed=0, subsampling=False)
    assert plain[3].weight.tolist() == [1.0] * 16
    assert torch.equal(plain[3].triples, stream[3].triples)


def test_few_shuffles_are_kept():
    stream = BatchStream(line(10), 4, seed=0)
    for step in range(200):
        stream[step]
    assert len(stream._shuffles) <= 4


def test_mix_spreads_neighbours():
    seeds = [mix(seed, purpose, step) for seed in range(5) for purpose in range(3) for step in range(200)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert mix(1, 2) != mix(2, 1)
    assert mix(0) != mix(0, 0)
    assert mix(7, 8, 9) == mix(7, 8, 9)
    bits = [sum(seed >> bit & 1 for seed in seeds) / len(seeds) for bit in range(63)]
    assert all(0.44 < share < 0.56 for share in bits)


def weighted(size: int, weights: list[float]) -> KnowledgeGraph:
    return replace(line(size), weights=torch.tensor(weights))


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=12, max_size=12).filter(any), st.booleans())
def test_weights_of_triples_weigh_positives(weights, subsampling):
    graph = weighted(12, weights)
    stream, plain = (BatchStream(g, 4, seed=3, subsampling=subsampling) for g in (graph, line(12)))
    own = {tuple(row): weight for row, weight in zip(graph.train.tolist(), weights, strict=True)}
    other = {tuple(row): weight for row, weight in zip(plain.triples.tolist(), plain.weights["tail"], strict=True)}
    seen = set()
    for step in range(24):
        batch = stream[step]
        seen |= set(rows(batch))
        expected = torch.tensor([own[row] * other[row] for row in rows(batch)])
        torch.testing.assert_close(batch.weight / batch.weight.sum(), expected / expected.sum())
    assert seen == {row for row, weight in own.items() if weight}


def test_weights_change_the_loss_as_copies_of_triples_do():
    """With weights 2 and 1 the loss is that of a batch in which the first triple stands twice."""
    weight, doubled = torch.tensor([2.0, 1.0]), torch.ones(3)
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2, generator=generator), torch.randn(2, 5, generator=generator)
    loss = LogSigmoid()
    twice = torch.tensor([0, 0, 1])

    def value(rows, weights):
        positive, negative = (part[rows] for part in scores)
        terms = loss(Scores(positive, negative, None), torch.zeros(len(rows), 5, dtype=torch.bool), weights)
        return sum(terms.values())

    every = torch.arange(2)
    torch.testing.assert_close(value(every, weight), value(twice, doubled))
    torch.testing.assert_close(value(every, 10 * weight), value(every, weight))
    torch.testing.assert_close(value(every, torch.tensor([0.0, 1.0])), value(every[1:], torch.ones(1)))


@pytest.mark.parametrize("weights", [[1.0, -1.0, 1.0], [1.0, float("nan"), 1.0], [1.0, float("inf"), 1.0], [0.0] * 3])
def test_weights_that_cannot_be_used(weights):
    with pytest.raises(DataError, match="weights must be finite numbers from 0 on, and one at least greater than 0"):
        weighted(3, weights)
