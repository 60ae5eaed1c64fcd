"""Large planted graphs: power-law degrees, the same triples for every block size, ranks of a sample of queries."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

import eans
from benchmarks import large, planted, sparse_ranks
from benchmarks.planted import Planted, load
from eans.evaluation import Metrics, baselines
from eans.graph import SIDES, SPLITS, KnowledgeGraph, column, opposite

SIZES = Planted(20_000, 30, 200_000, seed=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("planted") / "graph"
    SIZES.write(made)
    return made


@pytest.fixture(scope="module")
def graph(folder: Path) -> KnowledgeGraph:
    return load(folder)[1]


def test_sizes(folder: Path, graph: KnowledgeGraph) -> None:
    facts = json.loads((folder / planted.FACTS).read_text("utf-8"))
    total = sum(len(graph.split(split)) for split in SPLITS)
    assert facts["splits"] == {split: len(graph.split(split)) for split in SPLITS}
    assert total + facts["repeated"] == SIZES.triples
    assert total > 0.9 * SIZES.triples
    assert len(graph.known) == total  # all different
    assert facts["unseen_entities"] == graph.unseen_entities()
    assert abs(len(graph.valid) - len(graph.test)) <= 1
    assert len(graph.valid) == pytest.approx(0.05 * SIZES.triples, rel=0.1)


def test_train_has_what_is_held_out(graph: KnowledgeGraph) -> None:
    held_out = torch.cat([graph.valid, graph.test])
    assert not bool(graph.known_train.contains(held_out).any())
    assert bool(torch.isin(held_out[:, [0, 2]], graph.train[:, [0, 2]]).all())
    assert bool(torch.isin(held_out[:, 1], graph.train[:, 1]).all())


def test_degrees_follow_a_power_law(graph: KnowledgeGraph) -> None:
    """Degree against its rank, on logarithmic axes: a straight line over two orders of magnitude."""
    triples = torch.cat([graph.split(split) for split in SPLITS])
    for part in (triples[:, 0], triples[:, [0, 2]].flatten(), triples[:, 1]):
        degrees = torch.bincount(part).sort(descending=True).values.double().numpy()
        ranks = np.arange(1, len(degrees) + 1)
        chosen = slice(20, 2_000) if len(degrees) > 2_000 else slice(0, None)
        slope, start = np.polyfit(np.log(ranks[chosen]), np.log(degrees[chosen]), 1)
        assert -0.95 < slope < -0.6
        line = slope * np.log(ranks[chosen]) + start
        assert np.abs(np.log(degrees[chosen]) - line).max() < 0.5
    popular = torch.bincount(triples[:, 0], minlength=SIZES.entities).topk(100).indices
    assert torch.corrcoef(torch.stack([popular, torch.arange(100)]))[0, 1].abs() < 0.3  # ids say nothing


def rows(planted: Planted, size: int) -> np.ndarray:
    return np.concatenate(list(planted.blocks(size)))


@pytest.mark.parametrize("size", [1, 999, 65_536])
def test_the_size_of_blocks_changes_nothing(size: int) -> None:
    small = Planted(3_001, 7, 9_999, seed=5)
    assert np.array_equal(rows(small, size), rows(small, planted.BLOCK))


def test_files_do_not_depend_on_blocks_and_follow_the_seed(tmp_path: Path) -> None:
    found = {}
    for seed, block in ((5, 700), (5, 1 << 21), (6, 700)):
        folder = tmp_path / f"{seed}-{block}"
        Planted(3_001, 7, 9_999, seed).write(folder, block)
        found[seed, block] = [load(folder)[1].split(split) for split in SPLITS]
    same, other = found[5, 1 << 21], found[6, 700]
    assert all(torch.equal(one, two) for one, two in zip(found[5, 700], same, strict=True))
    assert not any(torch.equal(one, two) for one, two in zip(found[5, 700], other, strict=True))


def test_memory_follows_the_block_and_not_the_triples() -> None:
    def peak(triples: int) -> int:
        tracemalloc.start()
        for _ in Planted(50_000, 50, triples).blocks(1 << 14):
            pass
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(1_000)
    # The most popular head has its triples in one block.
    assert peak(800_000) < 2 * peak(200_000) < 16e6


def test_ids_of_entities_are_a_permutation() -> None:
    for count in (1, 2, 999, 10_000):
        planted = Planted(count, 3, 10)
        ranks = np.arange(count)
        assert np.array_equal(np.sort(planted.entity(ranks)), ranks)
        assert np.array_equal(planted.rank(planted.entity(ranks)), ranks)
    largest = Planted(86_054_151, 14_824, 338_586_276)
    ranks = np.arange(0, largest.entities, 1_000_003)
    assert np.array_equal(largest.rank(largest.entity(ranks)), ranks)


def test_the_groups_of_heads_and_tails_are_each_others(graph: KnowledgeGraph) -> None:
    triples = graph.train.numpy()
    head, tail = (SIZES.rank(triples[:, place]) % SIZES.groups for place in (0, 2))
    assert np.array_equal(SIZES.target(head, triples[:, 1], "tail"), tail)
    assert np.array_equal(SIZES.target(tail, triples[:, 1], "head"), head)
    assert len(np.unique(tail)) == SIZES.groups == 216


def test_planted_ranks_are_those_of_scores(graph: KnowledgeGraph) -> None:
    triples = sparse_ranks.sample(graph, "valid", 200)
    assert len(triples) == 200
    ranks = []
    popularity = torch.from_numpy(SIZES.rank(np.arange(SIZES.entities)))
    for side in SIDES:
        known = SIZES.rank(triples[:, column(opposite(side))].numpy()) % SIZES.groups
        wanted = torch.from_numpy(SIZES.target(known, triples[:, 1].numpy(), side))
        fits = popularity[None, :] % SIZES.groups == wanted[:, None]
        scores = torch.where(fits, -popularity.double(), -torch.inf)
        true = scores.gather(1, triples[:, [column(side)]])
        rows, answers = graph.known.answers(triples, side)
        scores[rows, answers] = -torch.inf
        ranks.append(1 + (scores > true).sum(1))
    found = sparse_ranks.planted(SIZES, graph, "valid", 200)
    assert found == Metrics.of(torch.cat(ranks))
    assert 0.2 < found.mrr < 0.6


@pytest.mark.parametrize("limit", [150, 0])
def test_frequency_ranks_are_those_of_the_baseline(limit: int, tmp_path: Path) -> None:
    small = Planted(1_000, 12, 9_000, seed=3)
    small.write(tmp_path / "graph")
    graph = load(tmp_path / "graph")[1]
    expected = baselines(graph, "valid", limit=limit)["frequency"]["both"]
    found = sparse_ranks.frequency(graph, "valid", limit)
    assert found.to_dict() == pytest.approx(expected)
    assert sparse_ranks.planted(small, graph, "valid", limit).mrr > 3 * found.mrr


def test_a_reader_of_files_finds_the_same_triples(folder: Path, graph: KnowledgeGraph) -> None:
    read = eans.load(folder, report=lambda _: None)
    for split in SPLITS:
        for part, place in (("entities", 0), ("relations", 1), ("entities", 2)):
            labels = getattr(read, part).labels_of(read.split(split)[:, place])
            assert list(map(int, labels[:500].to_pylist())) == graph.split(split)[:500, place].tolist()
    assert graph.entities[17] == "17"
    assert graph.entities.id("19999") == 19_999


def test_the_program_trains_ranks_and_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(large, "GRAPHS", tmp_path / "graphs")
    monkeypatch.setattr(large, "WINDOW", 5)
    out = tmp_path / "large.jsonl"
    for method in ("uniform", "eans+adv"):
        large.main(
            [
                "tiny",
                "--model",
                "transe",
                "--method",
                method,
                "--steps",
                "20",
                "--device",
                "cpu",
                "--limit",
                "30",
                "--out",
                str(out),
            ]
        )
    first, second = map(json.loads, out.read_text("utf-8").splitlines())
    assert (first["recipe"], second["recipe"]) == ("default/transe/uniform", "default/transe/eans+adv")
    assert first["graph"] == second["graph"]
    for record in (first, second):
        assert record["positives_per_second"]["fastest"] >= record["positives_per_second"]["median"] > 0
        assert record["valid"]["planted"]["mrr"] > record["valid"]["frequency"]["mrr"] > 0
        assert record["valid"]["model"]["mrr"] > 0
        assert record["bytes"]["model"] == 4 * 8 * (3_000 + 5 + 1)
        # One number for each entity, one for each of a relation's, and the steps of both tables.
        assert record["optimizer"] == "row-adagrad"
        assert record["bytes"]["optimizer"] == 4 * (3_000 + 8 * (5 + 1)) + 2 * 4
    assert "realistic ties; 30 triples" in capsys.readouterr().out
