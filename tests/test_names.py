"""Readable names: from label files and mappings; shown beside labels, asked for like labels, kept with a run."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import eans
from eans.cli import app
from eans.data.names import name_graph
from eans.errors import DataError, EansWarning, UsageError
from eans.graph import KnowledgeGraph, Vocabulary
from eans.tensor_files import graph_from_bytes, graph_to_bytes
from helpers_runs import ring_graph, write_graph

NAMES = {
    "e1": "Douglas Adams",
    "e2": "Paris",
    "e3": "Paris",
    "e4": "The Room (film)",
    "plus1": "next",
    "plus2": "over next",
}
FEW: dict[str, Any] = {"dim": 4, "steps": 2, "progress": False}


def lines(names: dict[str, str]) -> str:
    return "".join(f"{label}\t{name}\n" for label, name in names.items())


@pytest.fixture(scope="module")
def named() -> KnowledgeGraph:
    return ring_graph(12).with_names(NAMES)


@pytest.fixture(scope="module")
def run(named: KnowledgeGraph, tmp_path_factory: pytest.TempPathFactory) -> eans.Run:
    return eans.train(named, "transe", "uniform", out=tmp_path_factory.mktemp("runs") / "run", **FEW)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "names.tsv"
    path.write_text(lines(NAMES))
    return path


def message(function: Any, *arguments: Any, **more: Any) -> str:
    with pytest.raises(eans.EansError) as caught:
        function(*arguments, **more)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


def names_of(graph: KnowledgeGraph) -> dict[str, str]:
    return graph.names_of(graph.entities, graph.relations)


# --- vocabularies and graphs ------------------------------------------------------------------------------------------


def test_names_are_beside_labels(named: KnowledgeGraph) -> None:
    plain = ring_graph(12)
    assert named.entities == plain.entities
    assert named.vocabulary_sha256 == plain.vocabulary_sha256
    assert "Paris" not in named.entities
    assert [named.entities.shown(named.entities.id(label)) for label in ("e1", "e5")] == ["Douglas Adams (e1)", "e5"]
    assert named.relations.shown(named.relations.id("plus1")) == "next (plus1)"
    assert names_of(named) == NAMES
    assert names_of(plain) == {}


def test_names_are_asked_for_like_labels(named: KnowledgeGraph) -> None:
    entities = named.entities
    for text in ("e1", "Douglas Adams", "Douglas Adams (e1)"):
        assert entities[entities.id(text)] == "e1"
    for text in ("e4", "The Room (film)", "The Room (film) (e4)"):
        assert entities[entities.id(text)] == "e4"
    assert named.relations.id("next") == named.relations.id("plus1")
    assert message(entities.id, "Paris") == "entity 'Paris' is the name of 2: e2, e3; give one of these labels"
    assert entities[entities.id("Paris (e3)")] == "e3"
    for text in ("Rome (e3)", "Paris (e1)", "e5 (e5)", "Nowhere"):
        assert "unknown entity" in message(entities.id, text)
    assert message(entities.id, "Duglas Adams").endswith("; did you mean 'Douglas Adams'?")
    assert "e1000" not in message(ring_graph(12).entities.id, "Douglas Adams")


def test_a_label_goes_before_a_name() -> None:
    graph = KnowledgeGraph.from_labels([("a", "r", "b")]).with_names({"a": "b", "b": "c"})
    assert [graph.entities.id(text) for text in ("a", "b", "c")] == [0, 1, 1]


def test_many_of_one_name() -> None:
    graph = KnowledgeGraph.from_labels([(f"e{n}", "r", "x") for n in range(30)])
    graph = graph.with_names({f"e{n}": "John Smith" for n in range(30)})
    first = ", ".join(f"e{n}" for n in range(10))
    expected = f"entity 'John Smith' is the name of 30: {first}, ...; give one of these labels"
    assert message(graph.entities.id, "John Smith") == expected


def test_names_are_added_to_those_before(named: KnowledgeGraph) -> None:
    again = named.with_names({"e1": "DNA", "e5": "New"})
    assert names_of(again) == NAMES | {"e1": "DNA", "e5": "New"}
    assert names_of(named) == NAMES
    assert names_of(again.with_names({})) == names_of(again)


def test_a_name_like_the_label_says_nothing() -> None:
    assert names_of(ring_graph(12).with_names({"e1": "e1", "e2": ""})) == {}
    assert ring_graph(12).with_names({"e0": "e0"}).entities.shown(0) == "e0"


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=12),
    st.lists(st.integers(0, 7), min_size=12, max_size=12),
)
def test_names_against_a_dictionary(texts: list[str], places: list[int]) -> None:
    """Labels that there are not, labels that come again, names that are empty or end a line."""
    labels = [f"x{place}" for place in places[: len(texts)]]
    given = (pa.array(part, pa.large_string()) for part in (labels, texts))
    vocabulary = Vocabulary([f"x{number}" for number in range(6)]).named(*given)
    expected: dict[str, str] = {}
    for label, text in zip(labels, texts, strict=True):
        expected.setdefault(label, re.sub(r"[\t\n\r]+", " ", text))
    for index, label in enumerate(vocabulary):
        name = expected.get(label, "")
        assert vocabulary.name(index) == (None if name in ("", label) else name)


def test_unknown_labels_are_told_in_one_line() -> None:
    with pytest.warns(EansWarning) as caught:
        graph = ring_graph(12).with_names({"e1": "one", "Q5": "human", "Q6": "x"})
    (warning,) = caught
    assert str(warning.message) == "2 of 3 names are for labels that graph 'ring' does not have, such as 'Q5'"
    assert names_of(graph) == {"e1": "one"}


def test_names_stay_through_splits_and_tests(named: KnowledgeGraph) -> None:
    assert names_of(eans.split(named, report=lambda _: None)) == NAMES
    times = torch.arange(len(named.train)).tolist()
    only = replace(named, valid=named.valid[:0], test=named.test[:0])
    late = eans.split(only, (1, 1, 1), how="temporal", times=times, report=lambda _: None)
    assert names_of(late) == {label: NAMES[label] for label in NAMES if label in (*late.entities, *late.relations)}
    assert names_of(named.with_test(named.valid)) == NAMES
    part = named.entities.take(torch.tensor([3, 0]))
    assert [part[0], part.name(0), part.kind] == [named.entities[3], named.entities.name(3), "entity"]


def test_what_is_no_mapping_of_texts(named: KnowledgeGraph) -> None:
    for wrong in ([("e1", "x")], "e1", {1: "x"}, {"e1": None}, {"e1": "\ud800"}):
        assert "names" in message(named.with_names, wrong)


# --- files of a run ---------------------------------------------------------------------------------------------------


def test_a_run_keeps_names(run: eans.Run, tmp_path: Path) -> None:
    assert run.folder is not None
    assert names_of(eans.Run.load(run.folder).graph) == NAMES
    plain = graph_to_bytes(ring_graph(12))
    assert b"names" not in plain[:2000]  # the file of a graph without names is as it was
    assert names_of(graph_from_bytes(plain, tmp_path)) == {}


@given(
    st.dictionaries(st.sampled_from([f"e{n}" for n in range(12)]), st.text(st.characters(exclude_categories=["Cs"])))
)
def test_names_are_read_back_as_they_were_written(names: dict[str, str]) -> None:
    graph = ring_graph(12).with_names(names)
    assert names_of(graph_from_bytes(graph_to_bytes(graph), Path("g"))) == names_of(graph)


def test_a_damaged_file_is_noticed(named: KnowledgeGraph) -> None:
    vocabulary = named.entities.named(named.entities.array, named.entities.array)
    vocabulary.names = vocabulary.names[:3]  # type: ignore[index]
    content = graph_to_bytes(replace(named, entities=vocabulary))
    assert message(graph_from_bytes, content, Path("g")).startswith("g is damaged (12 entity labels have 3 names)")


# --- predictions, reports ---------------------------------------------------------------------------------------------


def test_predictions_have_names(run: eans.Run) -> None:
    found = run.predict(head="Douglas Adams", relation="next", k=12, known="mark")
    assert found[0].head == "e1"
    assert set(found.names) == {f"e{n}" for n in range(12)}
    table = found.to_dict()
    assert list(table) == ["head", "relation", "tail", "score", "known", "head_name", "relation_name", "tail_name"]
    assert table["tail_name"] == [NAMES.get(label) for label in table["tail"]]
    assert set(table["head_name"]) == {"Douglas Adams"}
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [row["tail_name"] for row in rows] == [NAMES.get(label, "") for label in table["tail"]]
    assert [row["tail_name"] for row in json.loads(found.to_json())] == table["tail_name"]
    plain = replace(run, graph=ring_graph(12)).predict(head="e1", relation="plus1")
    assert list(plain.to_dict()) == ["head", "relation", "tail", "score", "known"]
    assert plain.to_csv().startswith("head,relation,tail,score,known\n")


def test_a_report_shows_names(run: eans.Run) -> None:
    from eans.inspection.page import render

    found = eans.report(run.folder, progress=False)  # type: ignore[arg-type]
    assert found["names"].items() <= NAMES.items()
    assert found["names"]["plus1"] == "next"
    assert {row["relation"] for row in found["relations"]} == {"plus1", "plus5"}
    page = render(found)
    assert ">next (<wbr>plus1)<" in page or ">next (plus1)<" in page
    assert json.dumps(found)


# --- label files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tsv", "txt", "csv", "gz", "bom", "crlf", "header"])
def test_label_files(tmp_path: Path, kind: str) -> None:
    text, name = lines(NAMES), f"names.{kind}"
    if kind == "csv":
        written = io.StringIO()
        csv.writer(written).writerows((NAMES | {"e6": 'a "quoted", name'}).items())
        text = written.getvalue()
    text = text.replace("\n", "\r\n") if kind == "crlf" else f"id\tname\n{text}" if kind == "header" else text
    content = text.encode("utf-8-sig" if kind == "bom" else "utf-8")
    (tmp_path / name).write_bytes(gzip.compress(content, mtime=0) if kind == "gz" else content)
    found = eans.load(write_graph(ring_graph(12), tmp_path / "ring"), labels=tmp_path / name)
    assert names_of(found) == NAMES | ({"e6": 'a "quoted", name'} if kind == "csv" else {})
    assert found.source == str(tmp_path / "ring")


def test_several_label_files(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("e1\tone\n")
    (tmp_path / "b.tsv").write_text("e1\tother\nplus1\tnext\n")
    graph = name_graph(ring_graph(12), [tmp_path / "a.tsv", str(tmp_path / "b.tsv")])
    assert names_of(graph) == {"e1": "one", "plus1": "next"}
    assert names_of(name_graph(graph, [])) == names_of(graph)


def test_what_is_left_out_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "names.tsv"
    path.write_text("id\tname\ne1\tone\nQ5\thuman\n\ne1\tother\ne2\t\n")
    told: list[str] = []
    graph = name_graph(ring_graph(12), path, lambda finding: told.append(finding.message))
    assert told == [
        f"{path}:3: 2 names are left out: for ids that graph 'ring' does not have, such as 'Q5'",
        f"{path}:5: 1 name is left out: for ids that have one on an earlier line, such as 'e1'",
    ]
    assert names_of(graph) == {"e1": "one"}
    with pytest.warns(EansWarning) as caught:
        name_graph(ring_graph(12), path)
    assert [str(warning.message) for warning in caught] == told


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", ": the file is empty; write lines of id, name"),
        (b"\n\n", ": the file is empty"),
        (b"Douglas\te1\n", ": has no id of graph 'ring' in 1 line; swap the columns to id, name"),
        (b"Q1\tx\nQ2\ty\n", ": has no id of graph 'ring' in 2 lines; write lines of id, name"),
        (b"id\tname\n", ": has no id of graph 'ring' in 0 lines"),
        (b"e1 one\n", ":1: expected 2 columns id<TAB>name, found 1; keep these two"),
        (b"e1\tone\ne2\ttwo\tdeux\n", ":2: expected 2 columns id<TAB>name, found 3; keep these two"),
        (b"e1\tone\ne2\t\xff\n", ":2: not valid UTF-8; convert the file to UTF-8"),
        (b"\x1f\x8b1234", ": the gzip data is damaged; compress or download the file again"),
        (gzip.compress(b"e1\tone\n", mtime=0)[:-3], ": the gzip data is damaged"),
        (None, ": cannot be read (No such file or directory); check the path and its rights"),
    ],
)
def test_what_is_wrong_with_a_label_file(tmp_path: Path, content: bytes | None, expected: str) -> None:
    path = tmp_path / "names.tsv"
    if content is not None:
        path.write_bytes(content)
    text = message(name_graph, ring_graph(12), path)
    assert text.startswith(f"{path}{expected}")
    with pytest.raises((DataError, UsageError)):
        name_graph(ring_graph(12), tmp_path)


# --- commands ---------------------------------------------------------------------------------------------------------


def command(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.stdout if not done.exception else str(done.exception)


def test_commands(run: eans.Run, file: Path, tmp_path: Path) -> None:
    asked = ("predict", run.folder, "--relation", "next", "--known", "mark")
    table = command(*asked, "--head", "Douglas Adams", "-k", 12)
    assert "Douglas Adams (e1)" in table
    assert "Paris (e3)" in table
    assert "is the name of 2: e2, e3; give one of these labels" in command(*asked, "--head", "Paris")
    other = tmp_path / "other.tsv"
    other.write_text("e1\tDNA\n")
    assert "DNA (e1)" in command(*asked, "--head", "DNA", "--labels", other)
    assert "head_name" in command(*asked, "--head", "e1", "--format", "csv")
    folder = write_graph(ring_graph(12), tmp_path / "ring")
    assert "over next (plus2)" in command("data", "info", folder, "--labels", file)
    out = tmp_path / "new"
    settings = [f"--set={key}" for key in ("model.dim=4", "train.steps=2")]
    command("train", "--data", folder, "--labels", file, "--labels", other, "--out", out, *settings)
    assert names_of(eans.Run.load(out).graph) == NAMES
    assert "a run keeps its names: leave it out" in command("train", "--resume", out, "--labels", file)


def test_descriptions_show_names() -> None:
    graph = KnowledgeGraph.from_labels([("Q1", "P1", "Q2"), ("Q1", "P1", "Q3")])
    named = graph.with_names({"Q1": "Douglas Adams", "P1": "knows"})
    facts = eans.describe(named, estimate=False, progress=False).facts
    assert facts["degrees"]["hubs"][0]["entity"] == "Douglas Adams (Q1)"
    assert facts["relations"][0]["relation"] == "knows (P1)"
