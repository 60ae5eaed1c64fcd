"""Descriptions of graphs: every count against counting by hand over Python sets, and the command as typed."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import eans
from eans import cli
from eans.baselines import LEAST_COUNT
from eans.description import describing, structure
from eans.description.sections import percent, sections, size
from eans.evaluation import CATEGORIES, relation_categories
from eans.evaluation import baselines as ranked
from eans.graph import SPLITS, KnowledgeGraph
from eans.recipes import load
from eans.recipes.choosing import choose_recipe
from eans.relation_patterns import LEAST
from helpers_graphs import random_graph
from helpers_runs import eans as command
from helpers_runs import one_line, ring_graph, write_graph

GRAPHS = st.builds(
    random_graph,
    entities=st.integers(1, 9),
    relations=st.integers(1, 4),
    sizes=st.tuples(st.integers(1, 40), st.integers(0, 6), st.integers(0, 8)),
    seed=st.integers(0, 10_000),
)
Triple = tuple[int, ...]


def rows(graph: KnowledgeGraph, split: Any = "train") -> list[Triple]:
    return [tuple(row) for row in graph.split(split).tolist()]


def facts(graph: KnowledgeGraph) -> Any:
    return eans.describe(graph, estimate=False, progress=False).facts


# --- counts -------------------------------------------------------------------------------------------------------


@given(graph=GRAPHS)
def test_sizes_against_brute_force(graph: KnowledgeGraph) -> None:
    found, train = structure.counts(graph), rows(graph)
    assert (found["entities"], found["relations"]) == (graph.num_entities, graph.num_relations)
    for split in SPLITS:
        assert found["triples"][split] == len(rows(graph, split))
        assert found["repeated"][split] == len(rows(graph, split)) - len(set(rows(graph, split)))
    ends = {head for head, _, _ in train} | {tail for _, _, tail in train}
    assert found["unseen_entities"] == graph.num_entities - len(ends)
    assert found["unseen_relations"] == graph.num_relations - len({relation for _, relation, _ in train})


@given(graph=GRAPHS)
def test_degrees_against_brute_force(graph: KnowledgeGraph) -> None:
    found, size = structure.degrees(graph), graph.num_entities
    as_head, as_tail = (Counter(row[column] for row in rows(graph)) for column in (0, 2))
    degree = {entity: as_head[entity] + as_tail[entity] for entity in range(size)}
    for name, values in (("degree", degree), ("as_head", as_head), ("as_tail", as_tail)):
        ordered = sorted(values[entity] for entity in range(size))
        assert found[name]["mean"] == pytest.approx(sum(ordered) / size)
        for share in structure.QUANTILES:
            expected = next(value for value in ordered if sum(other <= value for other in ordered) >= share * size)
            assert found[name]["quantiles"][f"{share:g}"] == expected
    for group in found["histogram"]:
        assert group["entities"] == sum(group["least"] <= value <= group["most"] for value in degree.values())
    assert sum(group["entities"] for group in found["histogram"]) == size
    assert [group["least"] for group in found["histogram"]][:4] == [0, 1, 2, 4][: len(found["histogram"])]
    expected = sorted(range(size), key=lambda entity: (-degree[entity], entity))[: structure.HUBS]
    assert found["hubs"] == [
        {"entity": f"e{entity}", "degree": degree[entity], "as_head": as_head[entity], "as_tail": as_tail[entity]}
        for entity in expected
    ]
    highest = sorted(degree.values(), reverse=True)[: math.ceil(size / 100)]
    assert found["top_percent"] == pytest.approx(sum(highest) / (2 * len(rows(graph))))


@given(
    st.integers(1, 60).flatmap(
        lambda size: st.tuples(st.just(size), st.lists(st.tuples(*[st.integers(0, size - 1)] * 2), max_size=2 * size))
    )
)
def test_components_against_a_walk(given: tuple[int, list[tuple[int, int]]]) -> None:
    size, edges = given
    reached = {node: {node} for node in range(size)}
    for _ in range(size):
        for one, other in edges:
            both = reached[one] | reached[other]
            for node in both:
                reached[node] = both
    ends = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2)
    for block in (1, structure.BLOCK):  # as many edges as nodes at a time, at least
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(structure, "BLOCK", block)
            found = structure.component_of(ends[:, 0], ends[:, 1], size).tolist()
        assert found == [min(reached[node]) for node in range(size)]


def test_train_is_looked_at_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph()
    whole = structure.leakage(graph, [])
    assert 0 < whole["test"]["linked"] < whole["test"]["triples"]
    monkeypatch.setattr(structure, "BLOCK", 7)
    assert structure.leakage(graph, []) == whole


@given(order=st.permutations(range(50)))
def test_a_long_chain_is_one_component(order: list[int]) -> None:
    nodes = torch.tensor(order)
    assert not structure.component_of(nodes[:-1], nodes[1:], 50).any()


@given(graph=GRAPHS)
def test_components_of_a_graph_are_of_the_entities_of_train(graph: KnowledgeGraph) -> None:
    found = structure.components(graph)
    seen = {entity for head, _, tail in rows(graph) for entity in (head, tail)}
    groups = [{entity} for entity in seen]
    for head, _, tail in rows(graph):
        joined = [group for group in groups if group & {head, tail}]
        groups = [group for group in groups if group not in joined] + [set().union(*joined)]
    sizes = sorted(map(len, groups), reverse=True)
    assert found == {
        "count": len(sizes),
        "sizes": sizes[: structure.COMPONENTS],
        "largest_share": sizes[0] / len(seen),
    }


# --- relations and leakage ----------------------------------------------------------------------------------------


def patterned(graph: KnowledgeGraph) -> dict[tuple[str, int, int], float]:
    """(pattern, relation, other): share, both ways round."""
    train, found = set(rows(graph)), {}
    for one, two, reverse in product(range(graph.num_relations), range(graph.num_relations), (False, True)):
        if one == two and not reverse:
            continue
        mine, theirs = (
            {(head, tail) for head, relation, tail in train if relation == each and not (reverse and head == tail)}
            for each in (one, two)
        )
        shared = sum(((tail, head) if reverse else (head, tail)) in theirs for head, tail in mine)
        share = min(shared / max(1, len(mine)), shared / max(1, len(theirs)))
        if shared >= LEAST_COUNT and share >= LEAST:
            found["symmetric" if one == two else "inverse" if reverse else "duplicate", one, two] = share
    return found


@given(graph=GRAPHS)
def test_relations_against_brute_force(graph: KnowledgeGraph) -> None:
    found = structure.relations(graph, structure.patterns(graph))
    expected, categories = patterned(graph), relation_categories(graph).tolist()
    counts = {split: Counter(row[1] for row in rows(graph, split)) for split in SPLITS}
    order = sorted(range(graph.num_relations), key=lambda relation: (-counts["train"][relation], relation))
    assert [entry["relation"] for entry in found] == [f"r{relation}" for relation in order]
    for relation, entry in zip(order, found, strict=True):
        of_it = {row for row in rows(graph) if row[1] == relation}
        heads, tails = {head for head, _, _ in of_it}, {tail for _, _, tail in of_it}
        assert [entry[split] for split in SPLITS] == [counts[split][relation] for split in SPLITS]
        assert entry["category"] == CATEGORIES[categories[relation]]
        assert entry["tails_per_head"] == pytest.approx(len(of_it) / max(1, len(heads)))
        assert entry["heads_per_tail"] == pytest.approx(len(of_it) / max(1, len(tails)))
        assert entry["symmetric"] == expected.get(("symmetric", relation, relation))
        for key in ("inverse", "duplicate"):
            assert {other["relation"]: other["share"] for other in entry[f"{key}_of"]} == {
                f"r{two}": share for (name, one, two), share in expected.items() if (name, one) == (key, relation)
            }


@settings(max_examples=200)
@given(graph=GRAPHS)
def test_leakage_against_brute_force(graph: KnowledgeGraph) -> None:
    found = structure.leakage(graph, structure.patterns(graph))
    train, expected = set(rows(graph)), patterned(graph)
    entities = {entity for head, _, tail in train for entity in (head, tail)}
    for split, other in (("valid", "test"), ("test", "valid")):
        total: Counter[str] = Counter()
        for place, (head, relation, tail) in enumerate(rows(graph, split)):
            copied = {
                name
                for name, one, two in expected
                if one == relation
                and not (name == "symmetric" and head == tail)
                and ((head, two, tail) if name == "duplicate" else (tail, two, head)) in train
            }
            total.update(copied)
            total["copied"] += bool(copied)
            total["in_train"] += (head, relation, tail) in train
            total["in_other"] += (head, relation, tail) in rows(graph, other)
            total["repeated"] += (head, relation, tail) in rows(graph, split)[:place]
            total["linked"] += any({head, tail} == {one, two} for one, _, two in train)
            total["unseen_entity"] += not {head, tail} <= entities
            total["unseen_relation"] += all(relation != row[1] for row in train)
        assert found[split] == {key: total[key] for key in found[split]} | {"triples": len(rows(graph, split))}


def test_copies_of_each_kind_are_found() -> None:
    """Random graphs seldom have them."""
    pairs = [(f"a{i}", f"b{i}") for i in range(12)]
    train = [(a, "owns", b) for a, b in pairs[:-1]] + [(b, "owned_by", a) for a, b in pairs]
    train += [(a, "has", b) for a, b in pairs[1:]]
    train += [triple for a, b in pairs[:-1] for triple in ((a, "near", b), (b, "near", a))] + [("a11", "near", "b11")]
    test = [("a11", "owns", "b11"), ("b11", "near", "a11"), ("a0", "has", "b0"), ("a0", "has", "c")]
    found = facts(KnowledgeGraph.from_labels(train, [], test))
    leaks = found["leakage"]["test"]
    assert (leaks["symmetric"], leaks["inverse"], leaks["duplicate"], leaks["copied"]) == (1, 2, 2, 3)
    assert (leaks["linked"], leaks["unseen_entity"], leaks["triples"]) == (3, 1, 4)
    entries = {entry["relation"]: entry for entry in found["relations"]}
    assert entries["near"]["symmetric"] == pytest.approx(22 / 23)
    assert [other["relation"] for other in entries["owned_by"]["inverse_of"]] == ["owns", "has"]
    assert [other["relation"] for other in entries["owns"]["duplicate_of"]] == ["has"]


# --- the rest -----------------------------------------------------------------------------------------------------


def keys(value: Any) -> Any:
    """What is called how, without the values; of a list, the keys of its first entry."""
    if isinstance(value, dict):
        return {key: keys(found) for key, found in value.items()}
    return [keys(value[0])] if isinstance(value, list) and value and isinstance(value[0], dict) else None


METRICS = dict.fromkeys(("mr", "mrr", "hits@1", "hits@3", "hits@10"))
SIDES = dict.fromkeys(("both", "head", "tail"), METRICS)
OF_SPLITS = dict.fromkeys(SPLITS)
SPREAD = {"mean": None, "quantiles": dict.fromkeys(("0", "0.25", "0.5", "0.75", "0.9", "0.99", "1"))}
HELD_OUT = ("valid", "test")
LEAKS = ("triples", "repeated", "in_train", "in_other", "symmetric", "inverse", "duplicate", "copied", "linked")
LEAKS += ("unseen_entity", "unseen_relation")
TIMES = ("preparing", "per_step", "per_ranked_triple", "training", "validating", "ranking", "all")
SCHEMA = {
    "format": None,
    "eans_version": None,
    "graph": dict.fromkeys(("name", "source", "entities", "relations"))
    | {"triples": OF_SPLITS, "also_known": None, "repeated": OF_SPLITS}
    | dict.fromkeys(("unseen_entities", "unseen_relations")),
    "degrees": dict.fromkeys(("degree", "as_head", "as_tail"), SPREAD)
    | {"histogram": [dict.fromkeys(("least", "most", "entities"))], "top_percent": None}
    | {"hubs": [dict.fromkeys(("entity", "degree", "as_head", "as_tail"))]},
    "components": dict.fromkeys(("count", "sizes", "largest_share")),
    "relations": [
        dict.fromkeys(("relation", *SPLITS, "category", "tails_per_head", "heads_per_tail"))
        | dict.fromkeys(("symmetric", "inverse_of", "duplicate_of"))
    ],
    "leakage": dict.fromkeys(HELD_OUT, dict.fromkeys(LEAKS)),
    "baselines": {
        split: {"triples": None, "metrics": {"frequency": SIDES, "inverse-rule": SIDES}} for split in HELD_OUT
    },
    "costs": dict.fromkeys(("device", "hardware", "steps", "parameters"))
    | {"seconds": dict.fromkeys(TIMES)}
    | {"bytes": dict.fromkeys(("model", "optimizer", "sampler", "graph", "batches", "labels", "all", "ranking"))},
}


@pytest.fixture(scope="module")
def described() -> eans.Description:
    return eans.describe(ring_graph(), device="cpu", progress=False)


def test_the_keys_stay(described: eans.Description) -> None:
    """Programs read them: whoever changes one raises `FORMAT`."""
    found = json.loads(described.to_json())
    assert found == described.facts
    recipe = found.pop("recipe")
    assert keys(found) == SCHEMA
    assert (found["format"], describing.FORMAT) == (1, 1)
    assert keys(recipe["choices"]) == [dict.fromkeys(("key", "value", "rule"))]
    assert list(recipe) == ["name", "own", "plan", "choices", "settings"]


def test_the_recipe_is_the_one_that_train_takes(described: eans.Description) -> None:
    graph, found = ring_graph(), described.facts["recipe"]
    expected = choose_recipe(graph, None, None, None, {})
    assert found["name"] == expected.name == "default/rotate/eans+adv"
    assert not found["own"]
    assert {"name": expected.name, **found["settings"]} == expected.model_dump(exclude={"format"})
    plain = load(expected.name).model_dump()
    values = {choice["key"]: choice["value"] for choice in found["choices"]}
    assert set(values) == {
        f"{section}.{key}" for section, of_it in plain.items() if isinstance(of_it, dict)
        for key, value in of_it.items() if value == "auto"
    }  # fmt: skip
    assert values["train.steps"] == 2000
    assert all(choice["rule"] for choice in found["choices"])
    assert facts(eans.load("wordnet-core"))["recipe"]["own"]


def test_costs_are_those_of_the_recipe(described: eans.Description) -> None:
    costs = described.facts["costs"]
    seconds, held = costs["seconds"], costs["bytes"]
    assert held["model"] == 4 * costs["parameters"]
    assert 2 * held["model"] <= held["optimizer"] <= 2 * held["model"] + 100
    parts = ("model", "optimizer", "sampler", "graph", "batches", "labels")
    assert held["all"] == sum(held[key] for key in parts)
    graph = ring_graph()
    triples = sum(len(graph.split(split)) for split in SPLITS)
    assert held["graph"] == 24 * triples + 16 * triples + 16 * len(graph.train)
    assert seconds["training"] == pytest.approx(costs["steps"] * seconds["per_step"])
    assert 0 < seconds["per_step"] < 1
    assert seconds["ranking"] == pytest.approx((len(graph.valid) + len(graph.test)) * seconds["per_ranked_triple"])
    assert seconds["all"] > seconds["training"] + seconds["validating"]
    validations = costs["steps"] // described.facts["recipe"]["settings"]["train"]["valid_every"]
    assert validations == 20
    assert seconds["validating"] == pytest.approx(validations * len(graph.valid) * seconds["per_ranked_triple"])


def test_baselines_are_those_of_the_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(20, 3, (200, 30, 60), seed=4)
    found = facts(graph)["baselines"]
    assert found["test"] == {"triples": 60, "metrics": ranked(graph, "test")}
    monkeypatch.setattr(describing, "MOST_SCORES", 2 * 20 * 25)
    monkeypatch.setattr(describing, "LEAST_RANKED", 7)
    described = eans.describe(graph, estimate=False, progress=False)
    assert described.facts["baselines"]["test"] == {"triples": 25, "metrics": ranked(graph, "test", limit=25)}
    assert "test: of 25 triples, spread evenly over the split" in str(described)


def test_a_graph_of_train_alone_can_be_described() -> None:
    described = eans.describe(KnowledgeGraph.from_labels([("a", "r", "a")]), device="cpu", progress=False)
    assert described.facts["baselines"]["test"] == {"triples": 0, "metrics": {}}
    assert described.facts["costs"]["seconds"]["ranking"] == 0
    assert str(described).count("The graph has neither valid nor test triples") == 1
    pytest.importorskip("matplotlib")
    assert "Nothing to rank" in described.html()


def test_what_is_printed(described: eans.Description) -> None:
    text = str(described)
    for section in sections(described.facts):
        assert section.title in text
        for row in section.rows:
            assert all(word in text for word in row)
    assert repr(described) == "Description of ring"
    many = KnowledgeGraph.from_labels([(f"a{i}", f"r{i:02}", "b") for i in range(30)])
    text = str(eans.describe(many, estimate=False, progress=False))
    assert "and 10 relations more" in text
    assert " r19" not in text
    assert "r19 " in text
    assert "Costs" not in text


def test_numbers_in_words() -> None:
    assert [percent(share) for share in (0.0, 1e-5, 0.345, 0.9999, 1.0)] == [
        "0.0 %", "< 0.1 %", "34.5 %", "> 99.9 %", "100.0 %",
    ]  # fmt: skip
    assert [size(count) for count in (900, 25_000, 12_345_678, 2_000_000_000)] == ["1 kB", "25 kB", "12.3 MB", "2.0 GB"]


# --- the command --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_graph(ring_graph(), tmp_path_factory.mktemp("graphs") / "ring")


def test_json_goes_to_standard_output_alone(folder: Path) -> None:
    done = command("data", "describe", folder, "--no-estimate", "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["costs"] is None
    assert found["graph"]["source"] == str(folder)


def test_files_are_written(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = tmp_path / "found.json", tmp_path / "found.html"
    done = command("data", "describe", folder, "--no-estimate", "--json", files[0], "--html", files[1])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ring\n")
    assert done.stdout.splitlines()[-2:] == [f"written: {file}" for file in files]
    assert json.loads(files[0].read_text("utf-8"))["graph"]["name"] == "ring"
    page = files[1].read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert page.count("<svg") == 3
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")


def test_it_describes_the_graph_as_it_is_split(folder: Path) -> None:
    done = command("data", "describe", folder, "--no-estimate", "--json", "-", "--split", "50/25/25")
    assert json.loads(done.stdout)["graph"]["triples"] == {"train": 90, "valid": 45, "test": 45}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["", "--no-estimate"], "the name of the dataset is empty"),
        (["wordnet-cor"], "did you mean 'wordnet-core'?"),
        (["wordnet-core", "--device", "tpu"], "unknown device 'tpu' (auto, cpu or cuda)"),
        (["wordnet-core", "--json", "nowhere/x.json"], "there is no folder nowhere; name a file with --json"),
        (["wordnet-core", "--html", "."], "cannot write .: it is a folder; name a file with --html"),
        (["wordnet-core", "--html", "-"], "--html needs the name of a file"),
        (["wordnet-core", "--json", "a", "--html", "a"], "--html and --json name the same file"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as status:
        cli.main(["data", "describe", *arguments])
    printed = capsys.readouterr()
    assert status.value.code == 2
    assert message in one_line(printed.err)
    assert not printed.out
    assert not list(tmp_path.iterdir())
