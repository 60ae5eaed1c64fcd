"""What is told about a folder of triples that can be read and is probably not what was meant."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eans
from eans.data import Finding, checks, datasets, load
from eans.data.checks import check
from eans.data.readers import find_splits, load_folder
from eans.errors import DataError, EansWarning
from eans.graph import SPLITS
from helpers_runs import environment, ring_graph, write_graph

Triple = tuple[str, str, str]


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """A graph of which there is nothing to tell."""
    return write_graph(ring_graph(), tmp_path / "ring")


def add(folder: Path, split: str, *lines: str, at: int | None = None) -> None:
    """Put lines into a file, at its end or before line `at`, counted from 1."""
    path = folder / f"{split}.txt"
    old = path.read_text("utf-8").splitlines() if path.exists() else []
    at = len(old) if at is None else at - 1
    path.write_text("".join(f"{line}\n" for line in [*old[:at], *lines, *old[at:]]), "utf-8")


def findings(folder: Path) -> dict[str, Finding]:
    found: list[Finding] = []
    load(folder, report=found.append)
    assert all(len(finding.message.splitlines()) == 1 for finding in found)
    assert all(finding.message.startswith(f"{finding.example}: ") for finding in found)
    return {finding.code: finding for finding in found}


def only(folder: Path) -> Finding:
    (finding,) = findings(folder).values()
    return finding


def test_nothing_to_tell(ring: Path) -> None:
    assert findings(ring) == {}
    assert len(load(ring, strict=True).train) == 157


# --- triples ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("split", "effect"), [("train", "is trained on"), ("valid", "is ranked"), ("test", "is ranked")]
)
def test_duplicates_in_a_split(ring: Path, split: str, effect: str) -> None:
    line = (ring / f"{split}.txt").read_text("utf-8").splitlines()[2]
    add(ring, split, line, at=7)
    finding = only(ring)
    size = len(load_folder(ring).split(split))  # type: ignore[arg-type]
    head, relation, tail = line.split("\t")
    assert (finding.code, finding.count, finding.example) == ("duplicates", 1, f"{ring}/{split}.txt:7")
    assert finding.message == (
        f"{ring}/{split}.txt:7: ('{head}', '{relation}', '{tail}') repeats line 3; 1 of {size} {split} triples repeats"
        f" an earlier one and {effect} again; delete it if that is not meant"
    )


@pytest.mark.parametrize(
    ("earlier", "later", "effect"),
    [
        ("train", "valid", "the valid metrics are higher for it"),
        ("train", "test", "the test metrics are higher for it"),
        ("valid", "test", "the best weights are chosen by valid"),
    ],
)
def test_triples_of_one_split_in_another(ring: Path, earlier: str, later: str, effect: str) -> None:
    lines = (ring / f"{earlier}.txt").read_text("utf-8").splitlines()
    add(ring, later, lines[4], lines[6], at=2)
    finding = only(ring)
    assert (finding.code, finding.count, finding.example) == ("leakage", 2, f"{ring}/{later}.txt:2")
    assert f" is in {earlier}.txt:5 too; 2 of " in finding.message
    assert f"{later} triples are in {earlier}: {effect}; delete them from one of the two" in finding.message


def test_packed_files_are_named_as_they_are(ring: Path) -> None:
    add(ring, "test", (ring / "train.txt").read_text("utf-8").splitlines()[0])
    for split in SPLITS:
        path = ring / f"{split}.txt"
        (ring / f"{split}.tsv.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    finding = only(ring)
    assert finding.example == f"{ring}/test.tsv.gz:12"
    assert "is in train.tsv.gz:1 too" in finding.message


ROWS = st.lists(st.tuples(*[st.sampled_from("abc")] * 3), min_size=1, max_size=12)


@pytest.mark.parametrize("largest", [checks.LARGEST, 0])
@settings(max_examples=100, deadline=None)
@given(train=ROWS, valid=ROWS, test=ROWS)
def test_repeated_triples_against_brute_force(
    largest: int, train: list[Triple], valid: list[Triple], test: list[Triple]
) -> None:
    """Also of graphs so large that entities x relations x entities do not fit 64 bits."""
    rows = dict(zip(SPLITS, (train, valid, test), strict=True))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for split, triples in rows.items():
            (folder / f"{split}.txt").write_text("".join("\t".join(triple) + "\n" for triple in triples))
        graph = load_folder(folder)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checks, "LARGEST", largest)
            found = check(graph, folder, find_splits(folder))
    expected = []
    for split, triples in rows.items():
        extra = sum(Counter(triples).values()) - len(set(triples))
        if extra:
            row = next(i for i, triple in enumerate(triples) if triple in triples[:i])
            expected.append(("duplicates", extra, f"{folder}/{split}.txt:{row + 1}"))
    for earlier, later in (("train", "valid"), ("train", "test"), ("valid", "test")):
        shared = [i for i, triple in enumerate(rows[later]) if triple in rows[earlier]]  # type: ignore[index]
        if shared:
            expected.append(("leakage", len(shared), f"{folder}/{later}.txt:{shared[0] + 1}"))
    assert [(f.code, f.count, f.example) for f in found if f.code in ("duplicates", "leakage")] == expected
    known = {triple[1] for triple in train}, {end for triple in train for end in (triple[0], triple[2])}
    held_out = [*valid, *test]
    relations = {triple[1] for triple in held_out} - known[0]
    entities = {end for triple in held_out for end in (triple[0], triple[2])} - known[1]
    counts = {f.code: f.count for f in found if f.code.startswith("unseen")}
    assert (counts.get("unseen-relation", 0), counts.get("unseen-entity", 0)) == (len(relations), len(entities))


@pytest.mark.parametrize(
    "header",
    ["head\trelation\ttail", "Subject\tPredicate\tObject", "source\tedge\ttarget", "h\tr\tt", "head\ttail\ttype"],
)
def test_header(ring: Path, header: str) -> None:
    add(ring, "train", header, at=1)
    add(ring, "test", header, at=1)
    finding = only(ring)  # and not that a triple of test is in train
    assert (finding.code, finding.count, finding.example) == ("header", 2, f"{ring}/train.txt:1")
    assert "is probably a header, and was read as a triple; delete the first line of train.txt and test.txt" in (
        finding.message
    )


def test_a_header_of_one_file_is_told_once(ring: Path) -> None:
    add(ring, "valid", "head\trelation\ttail", at=1)
    assert only(ring).example == f"{ring}/valid.txt:1"


@pytest.mark.parametrize("line", ["head\tplus1\te1", "e1\trelation\te2", "x\trelation\tz", "x\ty\tz"])
def test_what_is_no_header(ring: Path, line: str) -> None:
    add(ring, "train", line, at=1)
    assert findings(ring) == {}


def test_column_names_that_are_labels_are_no_header(ring: Path) -> None:
    add(ring, "train", "head\tpart_of\tbody", "head\tplus1\te1", "object\tplus1\te2", at=1)
    add(ring, "train", "head\ttype\tobject", at=1)
    assert findings(ring) == {}


def swapped(folder: Path) -> None:
    for split in SPLITS:
        path = folder / f"{split}.txt"
        rows = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
        path.write_text("".join(f"{head}\t{tail}\t{relation}\n" for head, relation, tail in rows), "utf-8")


def test_columns_in_another_order(ring: Path) -> None:
    swapped(ring)
    finding = only(ring)
    assert (finding.code, finding.count, finding.example) == ("column-order", 60, f"{ring}/train.txt:1")
    assert "the second column has 60 different labels and the third 3" in finding.message
    assert finding.message.endswith("write them as head<TAB>relation<TAB>tail")


def test_integers_in_another_order(tmp_path: Path) -> None:
    """As OpenKE has them: every id of a relation is one of an entity too."""
    rows = [(i, (i + r + 1) % 40, r) for i in range(40) for r in range(3)]
    add(tmp_path, "train", *("\t".join(map(str, row)) for row in rows))
    assert only(tmp_path).code == "column-order"
    path = tmp_path / "train.txt"
    path.write_text("".join(f"{head}\t{relation}\t{tail}\n" for head, tail, relation in rows))
    assert findings(tmp_path) == {}


def test_disjoint_sides_in_another_order(tmp_path: Path) -> None:
    add(tmp_path, "train", *(f"user{i}\titem{i % 70}\tlikes" for i in range(200)))
    assert only(tmp_path).code == "column-order"


def test_more_relations_than_entities_are_no_other_order(tmp_path: Path) -> None:
    """As in the graph Nations: 14 entities, 55 relations."""
    add(tmp_path, "train", *(f"n{i}\tr{r}\tn{(i + r) % 14}" for i in range(14) for r in range(55)))
    assert findings(tmp_path) == {}


def test_few_triples_or_few_more_relations_are_no_other_order(tmp_path: Path) -> None:
    few, many = tmp_path / "few", tmp_path / "many"
    for folder, count in ((few, 9), (many, 10)):
        folder.mkdir()
        add(folder, "train", *(f"{i}\t{i + 1}\t{i % 3}" for i in range(count)))
    assert (list(findings(few)), list(findings(many))) == ([], ["column-order"])
    numbers = tmp_path / "numbers"
    numbers.mkdir()
    add(numbers, "train", *(f"{i % 20}\t{i % 15}\t{i % 8}" for i in range(120)))  # 15 relations are no 2 x 8
    assert findings(numbers) == {}


def test_relations_and_entities_that_train_does_not_have(ring: Path) -> None:
    add(ring, "valid", "e1\tsees\te3")
    add(ring, "test", "e1\thears\tnobody", "nobody\tsees\te2", "e4\tplus1\te9", at=3)
    found = findings(ring)
    assert {code: (f.count, f.example) for code, f in found.items()} == {
        "unseen-relation": (2, f"{ring}/valid.txt:13"),
        "unseen-entity": (1, f"{ring}/test.txt:3"),
    }
    assert "2 relations such as 'sees' never occur in train, so nothing is learned about them; 3 triples of valid" in (
        found["unseen-relation"].message
    )
    assert (
        "entity 'nobody' never occurs in train, so nothing is learned about it; 2 triples of valid and test have it"
        in (found["unseen-entity"].message)
    )


def test_entities_of_a_dict_file_that_occur_nowhere_are_fine(ring: Path) -> None:
    labels = [*load_folder(ring).entities, "spare"]
    (ring / "entities.dict").write_text("".join(f"{index}\t{label}\n" for index, label in enumerate(labels)))
    assert findings(ring) == {}


# --- labels -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "one", "other", "difference"),
    [
        ("e1 \tplus1\te2", "e1", "e1 ", "white space"),
        ("e2\tplus1\t  e1", "e1", "  e1", "white space"),
        ("e2\tplus1\te1\u00a0", "e1", "e1\\xa0", "white space"),
        ("new  york\tplus1\tnew york", "new  york", "new york", "white space"),
        ("cafe\u0301\tplus1\tcaf\u00e9", "cafe\u0301", "caf\u00e9", "the Unicode form of its letters"),
    ],
)
def test_labels_that_look_the_same(ring: Path, line: str, one: str, other: str, difference: str) -> None:
    add(ring, "train", line)
    finding = only(ring)
    assert (finding.code, finding.count, finding.example) == ("labels-alike", 1, f"{ring}/train.txt:158")
    assert f"entity '{other}' differs from '{one}' only by {difference} (1 such pair); each is learned on its own" in (
        finding.message
    )


def test_relations_that_look_the_same(ring: Path) -> None:
    add(ring, "train", "e1\tplus1 \te2", "e1\t plus1\te2")
    finding = only(ring)
    assert (finding.count, finding.example) == (2, f"{ring}/train.txt:158")
    assert "relation 'plus1 ' differs from 'plus1' only by white space (2 such pairs)" in finding.message


@pytest.mark.parametrize(
    "label", ["e1 x", "E1", "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "日本", " z"]
)
def test_labels_that_look_like_no_other(ring: Path, label: str) -> None:
    add(ring, "train", f"{label}\tplus1\te1")
    assert findings(ring) == {}


@pytest.mark.parametrize("character", ["\x00", "\x07", "\x85", "\u200b", "\u2028", "\ufeff", "\x7f"])
def test_characters_that_do_not_show(ring: Path, character: str) -> None:
    add(ring, "train", f"e7\tplus1\tx{character}y", f"e7\tplus{character}\te8", at=5)
    found: list[Finding] = []
    load(ring, report=found.append)
    assert [(f.code, f.count, f.example) for f in found] == [
        ("control-characters", 1, f"{ring}/train.txt:5"),
        ("control-characters", 1, f"{ring}/train.txt:6"),
    ]
    assert f"has invisible characters (U+{ord(character):04X})" in found[0].message
    assert character not in found[0].message


# --- files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("entity2text.txt", "entity2id.txt", "relation2id.txt", "entity.dict", "entities.tsv", "relations.txt.gz"),
        *("entity2textlong.txt", "entity_names.csv", "id2label.json", "relations.json", "vocab.txt"),
    ],
)
def test_files_of_labels_that_are_not_read(ring: Path, name: str) -> None:
    (ring / name).write_text("x")
    finding = only(ring)
    assert (finding.code, finding.count, finding.example) == ("ignored-labels", 1, str(ring))
    assert f"{name} is not read: labels come from the triples, ids from entities.dict and" in finding.message


@pytest.mark.parametrize("name", ["dev.txt", "train2id.txt", "test.csv", "validation.tsv.gz", "valid.nt"])
def test_files_of_triples_that_are_not_read(ring: Path, name: str) -> None:
    (ring / name).write_text("x")
    assert only(ring).code == "ignored-triples"
    assert f"{name} is not read: splits are read from train, valid and test" in only(ring).message


def test_many_files_that_are_not_read_are_one_line(ring: Path) -> None:
    for name in ("entity2text.txt", "entity2id.txt", "relation2id.txt", "relation2text.txt", "labels.txt"):
        (ring / name).write_text("x")
    assert only(ring).count == 5
    assert "entity2id.txt, entity2text.txt, labels.txt and others are not read" in only(ring).message


@pytest.mark.parametrize("name", ["README", "README.txt", "LICENSE", "relations.dict", "entities.dict.gz", "notes.txt"])
def test_other_files_are_left_alone(ring: Path, name: str) -> None:
    graph = load_folder(ring)
    labels = graph.relations if name.startswith("rel") else graph.entities
    content = "".join(f"{index}\t{label}\n" for index, label in enumerate(labels)).encode()
    (ring / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert findings(ring) == {}


# --- who is told --------------------------------------------------------------------------------------------------


def test_python_users_get_warnings_at_their_line(ring: Path) -> None:
    add(ring, "train", *(ring / "train.txt").read_text("utf-8").splitlines()[:2])
    (ring / "entity2text.txt").write_text("x")
    with pytest.warns(EansWarning) as caught:
        eans.load(ring)
    assert [str(warning.message).split(": ")[0] for warning in caught] == [f"{ring}/train.txt:158", str(ring)]
    assert {warning.filename for warning in caught} == {__file__}


def test_strict(ring: Path) -> None:
    add(ring, "train", (ring / "train.txt").read_text("utf-8").splitlines()[0])
    with pytest.raises(DataError) as caught:
        eans.load(ring, strict=True)
    assert str(caught.value) == only(ring).message
    (ring / "entity2text.txt").write_text("x")
    add(ring, "test", "e1\tsees\te2")
    with pytest.raises(DataError) as caught:
        eans.load(ring, strict=True)
    assert str(caught.value).startswith(f"{ring}/train.txt:158: ('e")
    assert str(caught.value).endswith(" (and 2 more, which are shown without strict)")


def test_nothing_is_told_of_graphs_with_a_name() -> None:
    for dataset in datasets():
        if dataset.bundled:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                load(dataset.name, strict=True)


@pytest.mark.skipif(not os.environ.get("EANS_DATA"), reason="EANS_DATA does not name a folder with the benchmarks")
@pytest.mark.parametrize(("name", "entities"), [("fb15k-237", 36), ("wn18rr", 384)])
def test_the_benchmarks_as_folders(name: str, entities: int) -> None:
    finding = only(Path(os.environ["EANS_DATA"]) / name)
    assert (finding.code, finding.count) == ("unseen-entity", entities)
    load(name, strict=True)


def test_nothing_is_removed(ring: Path) -> None:
    add(ring, "train", *(ring / "train.txt").read_text("utf-8").splitlines()[:2])
    assert len(load(ring, report=lambda _: None).train) == 159


# --- the command line ---------------------------------------------------------------------------------------------


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "eans", *map(str, arguments)]
    return subprocess.run(program, env=environment(), capture_output=True, text=True, check=False, timeout=120)


FEW = ["--set", "train.steps=2", "--set", "model.dim=4", "--set", "train.batch_size=32"]


def test_commands_tell_and_go_on(ring: Path, tmp_path: Path) -> None:
    add(ring, "train", (ring / "train.txt").read_text("utf-8").splitlines()[0])
    told = f"eans: warning: {only(ring).message}\n"
    info = command("data", "info", ring)
    assert (info.returncode, info.stderr) == (0, told)
    run = command("train", "transe/uniform", "--data", ring, "--out", tmp_path / "run", *FEW)
    assert (run.returncode, run.stderr) == (0, told)
    looks = command("inspect", "sampler", "transe/uniform", "transe/bernoulli", "--data", ring, *FEW)
    assert (looks.returncode, looks.stderr) == (0, told)  # once, though two are trained
    (tmp_path / "run" / "metrics.json").unlink()
    resumed = command("train", "--resume", tmp_path / "run")
    assert (resumed.returncode, resumed.stderr) == (0, "")


def test_strict_commands(ring: Path, tmp_path: Path) -> None:
    assert command("data", "info", ring, "--strict").returncode == 0
    add(ring, "train", (ring / "train.txt").read_text("utf-8").splitlines()[0])
    for arguments in (["data", "info", ring], ["train", "transe", "--data", ring, "--out", tmp_path / "run", *FEW]):
        done = command(*arguments, "--strict")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"eans: error: {only(ring).message}\n"
    assert not (tmp_path / "run").exists()
