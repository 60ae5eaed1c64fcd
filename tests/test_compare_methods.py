"""Comparing methods: intervals that cover, equal budgets, tables, and what goes on from records."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eans as library
from eans.comparison.methods import affordable_steps, methods_of
from eans.comparison.statistics import difference, holm, mean
from eans.costs import seconds_of
from eans.errors import RunError, UsageError
from eans.experiments.ranks import decoded, encoded, ranks_of
from eans.experiments.records import Record
from helpers_runs import eans, one_line, ring_graph, write_graph

SMALL = ("model.dim=8", "sampler.negatives=4", "train.batch_size=32")
METHODS = ("transe/adv", "distmult/adv")


def drawn(generator: np.random.Generator, seeds: int, triples: int, shift: float = 0.0) -> list[np.ndarray]:
    """Scores of two methods with effects of seed, triple, method and triple, and noise."""
    common = generator.normal(0.3, 0.2, triples)
    return [
        common
        + offset
        + generator.normal(0, 0.02, (seeds, 1))
        + generator.normal(0, 0.1, triples)
        + generator.normal(0, 0.1, (seeds, triples))
        for offset in (shift, 0.0)
    ]


@pytest.mark.parametrize("seeds", [2, 5])
def test_intervals_cover_the_true_difference(seeds: int) -> None:
    generator = np.random.default_rng(seeds)
    estimates = [difference(*drawn(generator, seeds, 100, 0.05)) for _ in range(600)]
    covered = np.mean([one.low <= 0.05 <= one.high for one in estimates])
    assert 0.93 <= covered <= 0.99
    rejected = np.mean([difference(*drawn(generator, seeds, 100)).p < 0.05 for _ in range(600)])
    assert 0.01 <= rejected <= 0.07


def test_one_seed_is_about_the_trained_models() -> None:
    first, second = np.array([[0.5, 0.25, 1.0]]), np.array([[0.25, 0.25, 0.25]])
    found = difference(first, second)
    values = first[0] - second[0]
    assert found.value == pytest.approx(values.mean())
    # Student's t with two degrees of freedom, from a table.
    assert found.high - found.value == pytest.approx(4.302653 * values.std(ddof=1) / 3**0.5, rel=1e-5)
    assert mean(first).value == pytest.approx(first.mean())


def test_equal_methods_do_not_differ() -> None:
    scores = np.full((3, 4), 0.5)
    found = difference(scores, scores)
    assert (found.value, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.6]) == [1.0, 1.0]


@given(st.lists(st.integers(2, 2**31 - 1)))
def test_ranks_come_back(doubled: list[int]) -> None:
    ranks = np.array(doubled, dtype=np.float64) / 2
    assert np.array_equal(decoded(encoded(ranks)), ranks)


def test_damaged_ranks_are_one_line() -> None:
    record = Record("one.json", {"ranks": {"valid": {"head": "?", "tail": "?"}}})
    with pytest.raises(RunError, match=r"one\.json: its ranks of the valid triples cannot be read"):
        ranks_of(record, "valid")


def test_durations() -> None:
    assert [seconds_of(text) for text in ("90s", "2m", "1.5h", "30", 12.5)] == [90, 120, 5400, 30, 12.5]
    for text in ("", "m", "-3", "0s", "2 days", "9" * 400):
        with pytest.raises(UsageError, match="is not a duration"):
            seconds_of(text)


def test_methods_are_recipes_with_overrides() -> None:
    first, second = methods_of(["rotate/eans+adv", "transe/adv,model.dim=8"], "wordnet-core", ["train.lr=0.01"])
    assert (first.name, first.recipe) == ("rotate/eans+adv", "wordnet-core/rotate/eans+adv")
    assert second.overrides == ("data.name=wordnet-core", "train.lr=0.01", "model.dim=8")
    with pytest.raises(UsageError, match="at least two different methods"):
        methods_of(["transe/adv", "transe/adv"], "wordnet-core")
    with pytest.raises(UsageError, match="reorder_every"):  # of EANS
        methods_of(["transe/adv,sampler.reorder_every=5", "rotate/adv"], "wordnet-core")


def test_steps_follow_from_the_budget() -> None:
    graph = ring_graph()
    folder_free = methods_of(METHODS, "wordnet-core", SMALL)[0]
    few, many = (affordable_steps(folder_free, graph, seconds, "cpu") for seconds in (2.0, 200.0))
    assert 10 * few < many


def test_a_comparison(tmp_path: Path) -> None:
    options = {"out": tmp_path, "seeds": 2, "steps": 30, "progress": False, "overrides": SMALL, "device": "cpu"}
    found = library.compare(ring_graph(), METHODS, **options)
    assert [outcome.name for outcome in found.outcomes] == list(METHODS)
    assert all(outcome.steps == [30, 30] for outcome in found.outcomes)
    for outcome in found.outcomes:  # ranks kept of single triples are those that the metrics were made of
        mrr = [metrics["mrr"] for metrics in outcome.metrics]
        assert outcome.scores.mean(axis=1) == pytest.approx(mrr)
    (pair,) = found.pairs
    values = {outcome.name: outcome.mrr.value for outcome in found.outcomes}
    assert pair.difference.value == pytest.approx(values[pair.first] - values[pair.second])
    assert pair.difference.low <= pair.difference.value <= pair.difference.high
    content = json.loads((tmp_path / "comparison.json").read_text())
    assert content["protocol"]["split"] == "valid"
    assert {path.name for path in tmp_path.glob("comparison.*")} == {
        f"comparison.{e}" for e in ("json", "md", "svg", "png")
    }
    for record in (tmp_path / "records").glob("*.json"):  # test was left alone
        assert "test" not in json.loads(record.read_text())
    dates = [json.loads(path.read_text())["date"] for path in sorted((tmp_path / "records").glob("*.json"))]
    again = library.compare(ring_graph(), METHODS, **options)
    assert dates == [json.loads(path.read_text())["date"] for path in sorted((tmp_path / "records").glob("*.json"))]
    assert again.to_dict() == found.to_dict()


def test_the_command(tmp_path: Path) -> None:
    folder = write_graph(ring_graph(), tmp_path / "ring")
    settings = [part for text in SMALL for part in ("--set", text)]
    call = ["compare", *METHODS, "--data", folder, "--out", tmp_path / "out", *settings, "--device", "cpu"]
    done = eans(*call, "--seeds", "1", "--steps", "5", "--test")
    assert done.returncode == 0, done.stderr
    assert "MRR difference" in done.stdout
    assert "11 test triples on both sides, filtered" in done.stdout
    both = eans(*call, "--steps", "5", "--budget", "1s")
    assert (both.returncode, "not both" in one_line(both.stderr)) == (2, True)
