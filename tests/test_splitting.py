"""Properties of splits: different triples, all of them, covered, in proportion, by seed, by time, groups together."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from dataclasses import replace
from datetime import date
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

import eans
from eans.data.findings import Finding
from eans.errors import EansWarning, UsageError
from eans.graph import SPLITS, KnowledgeGraph
from eans.splitting import Splitting, split_graph
from helpers_graphs import random_graph
from helpers_runs import eans as command
from helpers_runs import one_line, ring_graph

Triple = tuple[str, str, str]
GRAPHS = st.builds(
    random_graph,
    entities=st.integers(1, 12),
    relations=st.integers(1, 4),
    sizes=st.tuples(st.integers(4, 80), st.integers(0, 9), st.integers(0, 9)),
    seed=st.integers(0, 10_000),
)
RATIOS = st.sampled_from([(0.8, 0.1, 0.1), (80, 10, 10), (1, 1, 1), (0.5, 0.0, 0.5), (9, 1, 0)])


def labels(graph: KnowledgeGraph, *splits: str) -> list[Triple]:
    return [tuple(line.rstrip("\n").split("\t")) for part in splits for line in graph.text(part)]


def divided(graph: KnowledgeGraph, **options: Any) -> tuple[KnowledgeGraph, list[Finding]]:
    """A split and its findings; examples that cannot be split so are not looked at."""
    found: list[Finding] = []
    try:
        return eans.split(graph, **options, report=found.append), found
    except UsageError as error:
        assume("cannot be split so that" not in str(error))
        raise


def timed(graph: KnowledgeGraph, seed: int, different: int = 12) -> KnowledgeGraph:
    """The graph with times and nothing held out."""
    times = torch.randint(different, (len(graph.train),), generator=torch.Generator().manual_seed(seed))
    return replace(graph, valid=graph.valid[:0], test=graph.test[:0], times=times)


@given(
    graph=GRAPHS, ratios=RATIOS, seed=st.integers(0, 3), cover=st.booleans(), groups=st.sampled_from([None, "inverse"])
)
def test_a_random_split_divides_all_different_triples(graph, ratios, seed, cover, groups) -> None:
    result, found = divided(graph, ratios=ratios, seed=seed, cover=cover, groups=groups)
    everything = labels(graph, *SPLITS)
    parts = [labels(result, part) for part in SPLITS]
    assert Counter(list(chain(*parts))) == Counter(set(everything))  # disjoint, and nothing is lost
    assert [len(part) > 0 for part in parts] == [share > 0 for share in ratios]
    dropped = [finding.count for finding in found if finding.code == "duplicates"]
    assert sum(dropped) == len(everything) - len(set(everything))
    if cover:
        assert {e for h, _, t in parts[1] + parts[2] for e in (h, t)} <= {e for h, _, t in parts[0] for e in (h, t)}
        assert {r for _, r, _ in parts[1] + parts[2]} <= {r for _, r, _ in parts[0]}
    order = list(dict.fromkeys(everything))
    assert all(part == [triple for triple in order if triple in set(part)] for part in parts)
    again, _ = divided(graph, ratios=ratios, seed=seed, cover=cover, groups=groups)
    assert again.sha256 == result.sha256


@given(graph=GRAPHS, ratios=RATIOS, seed=st.integers(0, 3))
def test_without_groups_the_ratios_are_met(graph, ratios, seed) -> None:
    """To the triple if nothing must be covered; otherwise no more is held out than asked."""
    size = len(set(labels(graph, *SPLITS)))
    wanted = [max(1, round(size * share / sum(ratios))) if share else 0 for share in ratios[1:]]
    loose, _ = divided(graph, ratios=ratios, seed=seed, cover=False)
    assert [len(loose.valid), len(loose.test)] == wanted
    tight, _ = divided(graph, ratios=ratios, seed=seed)
    assert len(tight.valid) <= wanted[0] + 1
    assert len(tight.valid) + len(tight.test) <= sum(wanted)


@given(seed=st.integers(0, 50))
def test_a_dense_graph_is_split_to_the_triple_and_covered(seed) -> None:
    graph = random_graph(30, 4, (600, 0, 0), seed)
    size = len(set(labels(graph, "train")))
    result = eans.split(graph, (0.6, 0.2, 0.2), seed, report=lambda _: None)
    assert [len(result.valid), len(result.test)] == [round(size * 0.2)] * 2
    assert result.unseen_entities() == graph.unseen_entities()


def test_what_train_needs_is_given_back_and_replaced() -> None:
    """Twenty leaves, each on one triple, and a dense rest: none of the leaves is held out, and the shares are met."""
    leaves = [("hub", "leaf", f"l{i}") for i in range(20)]
    rest = [(f"a{i}", "r", f"a{j}") for i in range(10) for j in range(10)]
    for seed in range(10):
        result = eans.split(leaves + rest, (0.5, 0.25, 0.25), seed, report=lambda _: None)
        assert (len(result.train), len(result.valid), len(result.test)) == (60, 30, 30)
        assert set(leaves) <= set(labels(result, "train"))
        assert result.unseen_entities() == 0


def test_seeds_differ() -> None:
    graph = ring_graph()
    assert eans.split(graph, seed=0).sha256["test"] != eans.split(graph, seed=1).sha256["test"]


def test_held_out_triples_are_drawn_evenly() -> None:
    """Over many seeds each of 100 triples of a dense graph is in test about as often, and in valid."""
    graph = random_graph(4, 30, (200, 0, 0), 1)
    rows = list(dict.fromkeys(labels(graph, "train")))
    for part in ("valid", "test"):
        counts = Counter(
            triple for seed in range(300) for triple in labels(eans.split(graph, seed=seed, report=print), part)
        )
        seen = [counts[triple] for triple in rows if Counter(r for _, r, _ in rows)[triple[1]] > 4]
        assert min(seen) >= 15
        assert max(seen) <= 50  # 30 expected, and 5 of deviation


# --- groups -------------------------------------------------------------------------------------------------------


@given(graph=GRAPHS, seed=st.integers(0, 3), kinds=st.integers(2, 30), cover=st.booleans())
def test_groups_stay_together(graph, seed, kinds, cover) -> None:
    everything = labels(graph, *SPLITS)
    group_of = {triple: f"g{number % kinds}" for number, triple in enumerate(dict.fromkeys(everything))}
    groups = [group_of[triple] for triple in everything]
    result, _ = divided(graph, ratios=(2, 1, 1), seed=seed, groups=groups, cover=cover)
    sides = [{group_of[triple] for triple in labels(result, part)} for part in SPLITS]
    assert not (sides[0] & sides[1])
    assert not (sides[0] & sides[2])
    assert not (sides[1] & sides[2])


def family() -> list[Triple]:
    """Inverse, near-duplicate and symmetric relations over the same pairs, and one that has nothing to do with them."""
    pairs = [(f"p{i}", f"c{i % 15}") for i in range(60)]
    rows = [row for p, c in pairs for row in ((p, "parent", c), (c, "child", p), (p, "elder", c))]
    rows += [row for i in range(40) for row in ((f"p{i}", "knows", f"p{i + 20}"), (f"p{i + 20}", "knows", f"p{i}"))]
    return [*rows, *((f"p{i}", "likes", f"c{(i * 7) % 15}") for i in range(60))]


def test_copies_are_reported_and_kept_on_one_side() -> None:
    rows, found = family(), []
    result = eans.split(rows, (0.7, 0.15, 0.15), report=found.append)
    train = set(labels(result, "train"))
    kin = {"parent", "child", "elder"}

    def has_copy(triple: Triple) -> bool:
        head, relation, tail = triple
        if relation == "knows":
            return (tail, "knows", head) in train
        same, reverse = (kin - {"child"}, {"child"}) if relation != "child" else ({"child"}, kin - {"child"})
        return relation in kin and (
            any((head, other, tail) in train for other in same)
            or any((tail, other, head) in train for other in reverse)
        )

    held_out = labels(result, "valid", "test")
    (finding,) = [finding for finding in found if finding.code == "copies"]
    assert finding.count == sum(map(has_copy, held_out)) > 10
    assert "split with groups 'inverse'" in finding.message
    found.clear()
    result = eans.split(rows, (0.7, 0.15, 0.15), groups="inverse", report=found.append)
    train = set(labels(result, "train"))
    assert not any(map(has_copy, labels(result, "valid", "test")))
    assert found == []
    assert abs(len(result.test) - 0.15 * len(rows)) <= 3


def test_a_group_larger_than_what_is_held_out_stays_in_train() -> None:
    rows = [(f"a{i % 7}", "r", f"b{i % 11}") for i in range(77)]
    groups = [0] * 40 + list(range(1, 38))
    result = eans.split(rows, groups=groups, report=print)
    assert set(rows[:40]) <= set(labels(result, "train"))
    assert (len(result.valid), len(result.test)) == (8, 8)


# --- time ---------------------------------------------------------------------------------------------------------


@given(graph=GRAPHS, seed=st.integers(0, 99), ratios=RATIOS, different=st.integers(1, 40), cover=st.booleans())
def test_a_temporal_split_is_in_order(graph, seed, ratios, different, cover) -> None:
    graph = timed(graph, seed, different)
    rows = labels(graph, "train")
    earliest: dict[Triple, int] = {}
    for triple, time in zip(rows, graph.times.tolist(), strict=True):
        earliest[triple] = min(time, earliest.get(triple, time))
    result, found = divided(graph, how="temporal", ratios=ratios, cover=cover)
    parts = [labels(result, part) for part in SPLITS]
    spans = [[earliest[triple] for triple in part] for part in parts if part]
    assert all(max(one) < min(two) for one, two in pairwise(spans))
    assert result.times.tolist() == spans[0]
    left_out = sum(finding.count for finding in found if finding.code == "left-out")
    assert len(set(chain(*parts))) == sum(map(len, parts)) == len(earliest) - left_out
    if cover:
        assert result.unseen_entities() == (
            0 if left_out else graph.num_entities - len(graph.train[:, [0, 2]].unique())
        )
        assert {r for _, r, _ in parts[1] + parts[2]} <= {r for _, r, _ in parts[0]}
        known = {e for h, _, t in parts[0] for e in (h, t)}
        assert {e for h, _, t in parts[1] + parts[2] for e in (h, t)} <= known
    else:
        assert left_out == 0


def test_shares_of_time() -> None:
    """A hundred times, a triple each: the cuts are where the ratios say."""
    rows = [(f"a{i % 9}", "r", f"b{i % 20}") for i in range(100)]
    result = eans.split(rows, how="temporal", times=list(range(100, 200)), report=print)
    assert (len(result.train), len(result.valid), len(result.test)) == (80, 10, 10)
    assert result.times.tolist() == list(range(100, 180))


@pytest.mark.parametrize(
    "times",
    [
        [date(2020, 1, 1 + i) for i in range(20)],
        [f"2020-01-{1 + i:02}" for i in range(20)],
        np.arange("2020-01-01", "2020-01-21", dtype="datetime64[D]"),
        [i / 7 for i in range(20)],
    ],
    ids=["dates", "texts", "numpy", "floats"],
)
def test_times_of_many_kinds(times: Any) -> None:
    rows = [(f"a{i % 2}", "r", f"b{i % 5}") for i in range(20)]
    assert len(set(rows)) == 10
    rows = [(f"a{i % 4}", "r", f"b{i % 5}") for i in range(20)]
    result = eans.split(rows[::-1], how="temporal", times=list(times)[::-1], cover=False, report=print)
    assert labels(result, "test") == rows[18:][::-1]


@pytest.mark.parametrize("times", [[1, "a"], [None] * 20, [1.0, float("nan")] * 10, ["a"] * 19, 7, [[1]] * 20])
def test_times_that_do_not_sort(times: Any) -> None:
    with pytest.raises(UsageError, match="times"):
        eans.split([(f"a{i % 4}", "r", f"b{i % 5}") for i in range(20)], how="temporal", times=times)


# --- what belongs to triples --------------------------------------------------------------------------------------


def test_weights_and_known_triples_stay_with_the_graph() -> None:
    graph = KnowledgeGraph.from_labels([(f"a{i % 9}", "r", f"b{i % 20}") for i in range(100)])
    weights = torch.arange(100.0)
    graph = replace(graph, weights=weights, also_known=graph.train[:2])
    result = eans.split(graph, report=print)
    weight_of = dict(zip(labels(graph, "train"), weights.tolist(), strict=True))
    assert result.weights.tolist() == [weight_of[triple] for triple in labels(result, "train")]
    assert torch.equal(result.also_known, graph.also_known)
    assert result.source == ""
    with pytest.raises(UsageError, match="weights for train alone"):
        eans.split(replace(graph, test=graph.train[:1]))


# --- mistakes and options -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ratios": (0.8, 0.2)}, "three numbers"),
        ({"ratios": (0, 1, 1)}, "the first not 0"),
        ({"ratios": (1, -1, 1)}, "none is negative"),
        ({"how": "tempral"}, "did you mean 'temporal'"),
        ({"how": "temporal"}, "needs the time of each triple"),
        ({"how": "temporal", "groups": "inverse"}, "keeps no groups together"),
        ({"groups": "invers"}, "did you mean 'inverse'"),
        ({"groups": [1, 2]}, "groups: expected one for each of 180 triples, got 2"),
        ({"groups": [[1]] * 180}, "groups must be numbers or texts"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_mistakes(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        eans.split(ring_graph(), **options)


def test_what_cannot_be_covered_is_said() -> None:
    with pytest.raises(UsageError, match=r"cannot be split so that valid has some: .* see cover"):
        eans.split([(f"a{i}", "r", f"b{i}") for i in range(50)])
    loose = eans.split([(f"a{i}", "r", f"b{i}") for i in range(50)], cover=False)
    assert (len(loose.train), len(loose.valid), len(loose.test)) == (40, 5, 5)


def test_findings_are_warnings_where_nobody_asks_for_them() -> None:
    rows = [(f"a{i % 5}", "r", f"b{i % 20}") for i in range(40)]
    with pytest.warns(EansWarning, match="20 triples, such as .* repeat an earlier one and are left out") as caught:
        eans.split(rows, cover=False)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("80/10/10", Splitting()),
        ("temporal", Splitting(how="temporal")),
        ("temporal,90/5/5", Splitting((0.9, 0.05, 0.05), how="temporal")),
        (" 7/2/1 , inverse, seed=12,uncovered", Splitting((7, 2, 1), 12, cover=False, groups="inverse")),
        ("random,.8/.1/.1", Splitting()),
    ],
)
def test_the_option(text: str, expected: Splitting) -> None:
    assert Splitting.parse(text) == expected


@given(st.text(alphabet="0123456789/.,=seedtmporalinv ", max_size=20))
@example("1/2/3/4")
@example("//")
@example("./././")
@example("../1/1")
def test_any_text_as_option(text: str) -> None:
    try:
        message = str(Splitting.parse(text))
    except UsageError as error:
        message = str(error)
    assert len(message.splitlines()) == 1


# --- on the command line ------------------------------------------------------------------------------------------


def one_file(folder: Path) -> Path:
    """A folder in which nothing is held out."""
    folder.mkdir()
    (folder / "train.txt").write_text("".join("\t".join(row) + "\n" for row in family()), "utf-8")
    return folder


def test_a_run_keeps_its_split(tmp_path: Path) -> None:
    data, run = one_file(tmp_path / "data"), tmp_path / "run"
    small = ("--set", "model.dim=4", "--set", "train.steps=3", "--set", "train.batch_size=16")
    done = command("train", "transe/uniform", "--data", data, "--out", run, "--split", "70/15/15,seed=3", *small)
    assert done.returncode == 0, done.stderr
    assert "are copies of a training triple" in one_line(done.stderr)
    about = json.loads((run / "split" / "split.json").read_text("utf-8"))
    metrics = json.loads((run / "metrics.json").read_text("utf-8"))
    assert about["sha256"] == metrics["protocol"]["split_sha256"]
    assert (about["how"], about["seed"], about["ratios"], about["source"]) == (
        "random",
        3,
        [0.7, 0.15, 0.15],
        str(data),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = eans.load(run / "split")
    assert graph.sha256 == about["sha256"]
    assert graph.sha256 == eans.split(eans.load(data), (0.7, 0.15, 0.15), 3, report=print).sha256
    assert {part: len(graph.split(part)) for part in SPLITS} == about["triples"]
    again = eans.Run.load(run, "cpu")
    assert eans.evaluate(again.model, graph, "test", progress=False)["test"] == metrics["test"]


def test_slips_on_the_command_line(tmp_path: Path) -> None:
    data = one_file(tmp_path / "data")
    done = command("data", "info", data, "--split", "80/10")
    assert done.returncode == 2
    assert one_line(done.stderr).startswith(
        "eans: error: split '80/10': unknown word '80/10'; did you mean '80/10/10'?"
    )
    assert command("data", "info", data, "--split", "temporal").returncode == 2
    whole = command("data", "info", data, "--split", "none").stdout
    assert "train 320, valid 0, test 0" in whole
    assert "train 256, valid 32, test 32" in command("data", "info", data, "--split", "80/10/10").stdout
    assert command("train", "--resume", tmp_path, "--split", "none").returncode == 2


def test_repeated_triples_are_the_earliest() -> None:
    graph = KnowledgeGraph.from_labels([("a", "r", "b"), ("a", "r", "c"), ("a", "r", "b"), ("b", "r", "c")])
    graph = replace(graph, times=torch.tensor([9, 2, 1, 5]))
    result = split_graph(graph, Splitting((2, 0, 1), how="temporal", cover=False), lambda _: None)
    assert labels(result, "train") == [("a", "r", "c"), ("a", "r", "b")]
    assert labels(result, "test") == [("b", "r", "c")]
