"""Tiles of entities: counts add up to those of the whole, ties and NaN included; ranges of processes; the best."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from eans import kernels, ranking
from eans.errors import RunError
from eans.evaluation import baselines, rank
from eans.graph import SIDES, Side, column
from eans.models import MODELS, Model
from eans.models.base import Scorer
from eans.ranking import Asked, Cost, Tiling, best, count, count_at_home, count_elsewhere
from helpers_graphs import random_graph

GRAPH = random_graph(entities=23, relations=3, sizes=(60, 10, 30))


def from_table(scores: Tensor) -> Scorer:
    """A scorer of given scores ``[B, E]``."""
    return lambda rows, entities: scores[rows, entities].clone()


def cut(draw: st.DrawFn, entities: int) -> list[slice]:
    """Tiles of all entities, of any sizes."""
    inner = sorted(draw(st.sets(st.integers(1, entities - 1), max_size=5))) if entities > 1 else []
    return [slice(first, last) for first, last in zip([0, *inner], [*inner, entities], strict=True)]


tilings = st.composite(lambda draw: cut(draw, GRAPH.num_entities))()
implementations = st.sampled_from(["auto", "reference"])
values = st.sampled_from([-math.inf, -1.0, 0.0, 0.5, 1.0, math.inf, math.nan])


def brute(scores: Tensor, triples: Tensor, side: Side) -> list[tuple[int, int, int]]:
    """Greater, equal and NaN of each row, one score at a time."""
    known = {tuple(row) for split in (GRAPH.train, GRAPH.valid, GRAPH.test) for row in split.tolist()}
    found = []
    for row, triple in zip(scores.tolist(), triples.tolist(), strict=True):
        truth = triple[column(side)]
        others = []
        for entity, score in enumerate(row):
            other = list(triple)
            other[column(side)] = entity
            if entity != truth and tuple(other) not in known:
                others.append(score)
        level = row[truth]
        ties = sum(score == level for score in others)
        found.append((sum(score > level for score in others), ties, sum(math.isnan(score) for score in row)))
    return found


@settings(max_examples=60, deadline=None)
@given(data=st.data(), tiles=tilings, side=st.sampled_from(SIDES), implementation=implementations)
def test_counts_of_tiles_add_up(data: st.DataObject, tiles: list[slice], side: Side, implementation: str) -> None:
    size = GRAPH.num_entities
    rows = data.draw(st.lists(st.lists(values, min_size=size, max_size=size), min_size=1, max_size=5))
    scores, triples = torch.tensor(rows), GRAPH.test[: len(rows)]
    asked = Asked.of(triples, side, GRAPH.known)
    with kernels.chosen(implementation):
        found = count(from_table(scores), asked, tiles)
    for got, expected in zip(torch.stack(found).T.tolist(), brute(scores, triples, side), strict=True):
        assert got[2] == expected[2]
        if not expected[2]:
            assert tuple(got) == expected


@settings(max_examples=30, deadline=None)
@given(tiles=tilings, owners=st.integers(1, 3), seed=st.integers(0, 99))
def test_processes_that_own_ranges_add_up(tiles: list[slice], owners: int, seed: int) -> None:
    """Each scores its own entities alone, and is told the true answers' scores by those that have them."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-2, 3, (30, GRAPH.num_entities), generator=generator).float()
    asked, score = Asked.of(GRAPH.test, "tail", GRAPH.known), from_table(scores)
    shares = [tiles[owner::owners] for owner in range(owners)]
    home = [count_at_home(score, asked, share) for share in shares]
    levels = torch.stack([level for level, _ in home]).nan_to_num(nan=-math.inf).amax(0)
    assert torch.equal(levels.float(), scores.gather(1, GRAPH.test[:, 2:])[:, 0])
    counts = sum(part for _, part in home) + sum(count_elsewhere(score, asked, levels, share) for share in shares)
    assert torch.equal(counts, torch.stack(count(score, asked, [slice(0, GRAPH.num_entities)])))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("memory", [1, 4000, 40_000])
def test_ranks_do_not_depend_on_tiles(name: str, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = whole_numbers(name)
    expected = rank(model, GRAPH)
    monkeypatch.setattr(ranking, "LEAST_ENTITIES", 4)
    tiling = Tiling.of(memory, Cost.of(model), range(23), torch.device("cpu"))
    assert len(tiling.tiles) > 1 or memory > 1
    found = rank(model, GRAPH, memory=memory)
    for side in SIDES:
        assert torch.equal(found.greater[side], expected.greater[side])
        assert torch.equal(found.equal[side], expected.equal[side])


def whole_numbers(name: str) -> Model:
    """Scores that are exact, and tie; but for sines, unit vectors and layers."""
    model = MODELS[name](23, 3, 2, generator=torch.Generator().manual_seed(0))
    if name not in ("rotate", "transh", "conve"):
        with torch.no_grad():
            for table in (model.entity, model.relation):
                table.copy_(torch.randint(-2, 3, table.shape, generator=torch.Generator().manual_seed(1)))
    return model


def test_baselines_do_not_depend_on_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (random_graph(entities=23, relations=3, sizes=(60, 10, 30)) for _ in range(2))
    expected = baselines(first)
    monkeypatch.setattr(ranking, "LEAST_ENTITIES", 4)
    assert baselines(second, memory=1) == expected


def test_a_comparison_of_ones_own_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that writes `compare_all` is ranked by it, though without a bound on the memory."""

    class Own(MODELS["distmult"]):  # type: ignore[misc]
        asked = 0

        def compare_all(self, triples: Tensor, side: Side) -> Tensor:
            self.asked += 1
            return -super().compare_all(triples, side)

    plain = whole_numbers("distmult")
    own = Own(23, 3, 2)
    own.load_state_dict(plain.state_dict())
    with torch.no_grad():
        plain.relation.neg_()
    expected = rank(plain, GRAPH)
    monkeypatch.setattr(ranking, "LEAST_ENTITIES", 4)
    monkeypatch.setitem(ranking.MOST_ROWS, "cpu", 7)
    found = rank(own, GRAPH, memory=2000)
    assert own.asked == 2 * math.ceil(30 / Tiling.of(2000, Cost.of(own), range(23), torch.device("cpu")).rows)
    for side in SIDES:
        assert torch.equal(found.greater[side], expected.greater[side])
        assert torch.equal(found.equal[side], expected.equal[side])


@pytest.mark.parametrize("where", ["truth", "other"])
def test_nan_in_any_tile_is_an_error(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "LEAST_ENTITIES", 4)
    model = whole_numbers("distmult")
    with torch.no_grad():
        model.entity[int(GRAPH.test[0, 2]) if where == "truth" else 22] = math.nan
    with pytest.raises(RunError, match="NaN"):
        rank(model, GRAPH, memory=1)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), tiles=tilings, implementation=implementations)
def test_the_best_of_tiles_are_those_of_all(data: st.DataObject, tiles: list[slice], implementation: str) -> None:
    size = GRAPH.num_entities
    numbers = values.filter(lambda value: not math.isnan(value))
    rows = data.draw(st.lists(st.lists(numbers, min_size=size, max_size=size), min_size=1, max_size=4))
    scores, k = torch.tensor(rows), data.draw(st.integers(1, size))
    start, stop = GRAPH.known.run(GRAPH.test[: len(rows)], "tail")
    answers = GRAPH.known.keys["tail"], start, stop
    with kernels.chosen(implementation):
        found = best(from_table(scores), k, answers, size, tiles)
        expected = kernels.best(scores, k, *answers)
    for got, wanted in zip(found, expected, strict=True):
        assert torch.equal(got, wanted)


def test_nan_in_any_tile_is_told_by_the_best() -> None:
    scores = torch.zeros(2, 23)
    scores[1, 20] = math.nan
    nothing = torch.zeros(2, dtype=torch.int64)
    found = best(from_table(scores), 3, (nothing, nothing, nothing), 23, [slice(0, 10), slice(10, 23)])
    assert found.nan.tolist() == [False, True]


@pytest.mark.parametrize("entities", [1, 4096, 5000, 1_000_003])
@pytest.mark.parametrize("memory", [0, 10**6, 2**29])
def test_tiles_cover_the_range_within_the_memory(entities: int, memory: int) -> None:
    cost = Cost(1000.0, 4.5)
    tiling = Tiling.of(memory, cost, range(10, 10 + entities), torch.device("cpu"))
    assert (tiling.tiles[0].start, tiling.tiles[-1].stop) == (10, 10 + entities)
    assert all(one.stop == other.start for one, other in zip(tiling.tiles, tiling.tiles[1:], strict=False))
    largest = max(tile.stop - tile.start for tile in tiling.tiles)
    least = 1 * (1000 + 4.5 * min(entities, ranking.LEAST_ENTITIES))
    assert tiling.rows * (1000 + 4.5 * largest) <= max(memory, least) + 4.5 * tiling.rows
