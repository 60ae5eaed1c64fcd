"""Folders of OpenKE and of LibKGE read back as they were written; what is wrong is one line with file and line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eans.data.formats import libkge, numbered, openke
from eans.errors import DataError
from eans.graph import SPLITS
from helpers_formats import PlainFile, Triple, batches_of, damaged, graphs, message_of, triples_of

GRAPH = [("/m/a", "born in", "/m/b c"), ("/m/b c", "born in", "/m/d"), ("/m/d", "part of", "/m/a")]
Write = Callable[[Path, list[Triple]], Path]


def numbers(triples: list[Triple]) -> tuple[dict[str, int], dict[str, int]]:
    """Ids, the last label first, so that they are not in the order of appearance."""
    entities = sorted({part for head, _, tail in triples for part in (head, tail)}, reverse=True)
    relations = sorted({relation for _, relation, _ in triples}, reverse=True)
    return tuple({label: index for index, label in enumerate(labels)} for labels in (entities, relations))  # type: ignore[return-value]


def write_openke(folder: Path, triples: list[Triple]) -> Path:
    """A folder of OpenKE; the train file."""
    entities, relations = numbers(triples)
    for kind, ids in (("entity", entities), ("relation", relations)):
        lines = "".join(f"{label}\t{index}\n" for label, index in ids.items())
        (folder / f"{kind}2id.txt").write_text(f"{len(ids)}\n{lines}", encoding="utf-8", newline="")
    lines = "".join(f"{entities[h]} {entities[t]} {relations[r]}\n" for h, r, t in triples)
    (folder / "train2id.txt").write_text(f"{len(triples)}\n{lines}", encoding="utf-8")
    return folder / "train2id.txt"


def write_libkge(folder: Path, triples: list[Triple]) -> Path:
    """A folder of LibKGE with a train file alone; that file."""
    entities, relations = numbers(triples)
    about: dict[str, object] = {"name": "own", "num_entities": len(entities), "num_relations": len(relations)}
    for kind, ids in (("entity", entities), ("relation", relations)):
        lines = "".join(f"{index}\t{label}\n" for label, index in ids.items())
        (folder / f"{kind}_ids.del").write_text(lines, encoding="utf-8", newline="")
        about |= {f"files.{kind}_ids.filename": f"{kind}_ids.del", f"files.{kind}_ids.type": "map"}
    lines = "".join(f"{entities[h]}\t{relations[r]}\t{entities[t]}\n" for h, r, t in triples)
    (folder / "train.del").write_text(lines, encoding="utf-8")
    about |= {"files.train.filename": "train.del", "files.train.size": len(triples), "files.train.type": "triples"}
    (folder / "dataset.yaml").write_text(yaml.dump({"dataset": about}))
    return folder / "train.del"


both = pytest.mark.parametrize(("module", "write"), [(openke, write_openke), (libkge, write_libkge)])
# OpenKE writes names before ids: white space at their ends cannot be told from what separates the two.
names = st.text(
    st.characters(exclude_categories=["Cs", "Z", "Cc"], include_characters="'\"\\,;%"), min_size=1, max_size=6
).map(lambda name: f"{name} x{name}")


@both
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(triples=graphs(names))
def test_round_trip(tmp_path: Path, module, write: Write, triples: list[Triple]) -> None:
    assert triples_of(module.read, write(tmp_path, triples)) == triples


@both
def test_splits(tmp_path: Path, module, write: Write) -> None:
    assert module.splits(tmp_path) is None
    train = write(tmp_path, GRAPH)
    assert module.splits(tmp_path) == {"train": train}
    others = {split: tmp_path / train.name.replace("train", split) for split in SPLITS}
    for path in others.values():
        path.write_bytes(train.read_bytes())
    assert module.splits(tmp_path) == others
    assert triples_of(module.read, others["test"]) == GRAPH


@both
def test_labels_beside_other_triples_are_another_folder(tmp_path: Path, module, write: Write) -> None:
    """Older benchmarks have entity2id.txt beside triples of labels; many projects have a dataset.yaml."""
    write(tmp_path, GRAPH)
    (tmp_path / "train2id.txt").unlink(missing_ok=True)
    for other in ("dataset: own\n", "- train\n", "", "name: own\n"):
        (tmp_path / "dataset.yaml").write_text(other)
        assert module.splits(tmp_path) is None


@both
def test_many_blocks_are_in_order(tmp_path: Path, module, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered, "BLOCK", 1000)
    triples = [(f"e{n}", f"r{n % 3}", f"e{n * 7 % 500}") for n in range(500)]
    path = write(tmp_path, triples)
    assert len(batches_of(module.read, PlainFile(path))) > 3
    assert triples_of(module.read, path) == triples


@both
def test_white_space(tmp_path: Path, module, write: Write) -> None:
    path = write(tmp_path, GRAPH)
    content = path.read_bytes()
    for old, new in ((b"\n", b"\r\n"), (b"\t", b" "), (b" ", b"\t"), (b" ", b"  "), (b"\n", b" \n")):
        path.write_bytes(content.replace(old, new))
        assert triples_of(module.read, path) == GRAPH
    for file in tmp_path.glob("*"):
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert triples_of(module.read, path) == GRAPH


@both
def test_blank_lines_are_counted(tmp_path: Path, module, write: Write) -> None:
    path = write(tmp_path, GRAPH)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"\n", *lines[2:], b"\n"]))
    source = PlainFile(path)
    assert sum(map(len, batches_of(module.read, source))) == 3
    assert source.counts == {numbered.BLANK: 2}
    assert source.dropped[numbered.BLANK].example == f"{path}:3"


OPENKE = [
    ("train2id.txt", "3\n", "4\n", "train2id.txt:1: says 4 triples, but there are 3; correct the number or"),
    ("train2id.txt", "3\n", "0 2 1\n", "train2id.txt:1: expected the number of lines that follow, found '0 2 1'"),
    ("train2id.txt", "2 1 1\n", "2 1\n", "train2id.txt:2: expected 3 ids, head, tail, relation, found 2 in '2 1'"),
    ("train2id.txt", "2 1 1\n", "2 3 1\n", "train2id.txt:2: the tail 3 is out of range; the last id in entity2id.txt"),
    ("train2id.txt", "1 0 1\n", "1 0 2\n", "train2id.txt:3: the relation 2 is out of range; the last id in relation2"),
    ("train2id.txt", "1 0 1\n", "-1 0 1\n", "train2id.txt:3: the head '-1' is no id; ids are whole numbers from 0"),
    ("train2id.txt", "1 0 1\n", "1 0.5 1\n", "train2id.txt:3: the tail '0.5' is no id"),
    ("train2id.txt", "1 0 1\n", f"1 0 {10**30}\n", "train2id.txt:3: the relation '1000"),
    ("entity2id.txt", "3\n", "2\n", "entity2id.txt:1: says 2 names, but there are 3"),
    ("entity2id.txt", "/m/d\t0\n", "/m/d\n", "entity2id.txt:2: '/m/d' is not the name and the id of one entity"),
    ("entity2id.txt", "/m/b c\t1", "/m/b c\t0", "entity2id.txt:3: the id 0 is on line 2 already; each may occur once"),
    ("entity2id.txt", "/m/b c\t1", "/m/d\t1", "entity2id.txt:3: the name '/m/d' is on line 2 already; each may occur"),
    ("entity2id.txt", "/m/b c\t1", "/m/b c\t7", "entity2id.txt:3: id 7 is out of range for 3 names; leave no ids out"),
    ("relation2id.txt", "part of", "part\xff", "relation2id.txt:2: not valid UTF-8; convert the file to UTF-8"),
    ("relation2id.txt", None, "", "relation2id.txt: the file is empty; restore it"),
    ("relation2id.txt", None, None, "relation2id.txt: is missing, and names belong there; restore it"),
]


@pytest.mark.parametrize(("name", "old", "new", "expected"), OPENKE)
def test_what_is_wrong_in_openke(tmp_path: Path, name: str, old: str | None, new: str | None, expected: str) -> None:
    check(tmp_path, openke, write_openke, name, old, new, expected)


LIBKGE = [
    ("train.del", "2\t1\t1\n", "2\t1\n", "train.del:1: expected 3 ids, head, relation, tail, found 2"),
    ("train.del", "2\t1\t1\n", "2\t1\t1\t5\n", "train.del:1: expected 3 ids, head, relation, tail, found 4"),
    ("train.del", "1\t1\t0\n", "1\t2\t0\n", "train.del:2: the relation 2 is out of range; the last id in relation_i"),
    ("train.del", None, "", "dataset.yaml: files.train.size: says 3 triples, but there are 0"),
    ("entity_ids.del", "0\t/m/d", "/m/d\t0", "entity_ids.del:1: '/m/d\\t0' is not id<TAB>name; correct the line"),
    ("entity_ids.del", "0\t/m/d\n", "", "entity_ids.del:2: id 2 is out of range for 2 names; leave no ids out"),
    ("entity_ids.del", None, None, "entity_ids.del: is missing, and names belong there; restore it"),
    ("dataset.yaml", "train.size: 3", "train.size: 2", "dataset.yaml: files.train.size: says 2 triples, but there"),
    ("dataset.yaml", "train.size: 3", "train.size: x", "dataset.yaml: files.train.size is 'x'; give a whole number"),
    ("dataset.yaml", "num_entities: 3", "num_entities: 4", "dataset.yaml: num_entities: says 4 names, but there"),
    ("dataset.yaml", "e: train.del", "e: ../train.del", "files.train.filename is '../train.del'; give the name"),
    ("dataset.yaml", "e: train.del", "e: /etc/passwd", "files.train.filename is '/etc/passwd'; give the name"),
    ("dataset.yaml", "e: train.del", "e: [1]", "dataset.yaml: files.train.filename is [1]; give the name"),
    ("dataset.yaml", "e: train.del", "e: no.del", "files.train.filename is no.del, which is not there; restore it"),
    ("dataset.yaml", "e: train.del", "e: {train.del", "dataset.yaml:7: is not YAML (expected"),
    ("dataset.yaml", "dataset:", "dataset: \xff", "dataset.yaml"),
]


@pytest.mark.parametrize(("name", "old", "new", "expected"), LIBKGE)
def test_what_is_wrong_in_libkge(tmp_path: Path, name: str, old: str | None, new: str | None, expected: str) -> None:
    check(tmp_path, libkge, write_libkge, name, old, new, expected)


def check(folder: Path, module, write: Write, name: str, old: str | None, new: str | None, expected: str) -> None:
    """Replace something in a file, or all of it, or remove the file; then what comes is the expected line."""
    train = write(folder, GRAPH)
    content = (folder / name).read_bytes().decode()
    if new is None:
        (folder / name).unlink()
    else:
        assert old is None or old in content
        changed = new if old is None else content.replace(old, new, 1)
        (folder / name).write_bytes(changed.encode("latin-1"))

    def work() -> None:
        module.splits(folder)
        triples_of(module.read, train)

    assert message_of(work).startswith(f"{folder}/")
    assert expected in message_of(work)


@both
def test_broken_files(tmp_path: Path, module, write: Write) -> None:
    """Each gives the whole graph or one line."""
    triples = [(f"entity {n}", f"relation {n % 3}", f"entity {n * 7 % 50}") for n in range(50)]
    train = write(tmp_path, triples)
    failed = 0
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        for content in damaged(whole):
            path.write_bytes(content)
            try:
                assert module.splits(tmp_path) is None or len(triples_of(module.read, train)) == 50
            except DataError:
                failed += 1
                assert "\n" not in message_of(lambda: (module.splits(tmp_path), triples_of(module.read, train)))
        path.write_bytes(whole)
    assert failed > 100
    train.unlink()
    assert "cannot be read" in message_of(lambda: triples_of(module.read, train))


def test_nested_keys_and_other_files_of_libkge(tmp_path: Path) -> None:
    write_libkge(tmp_path, GRAPH)
    (tmp_path / "small").mkdir()
    (tmp_path / "train.del").rename(tmp_path / "small" / "some.del")
    (tmp_path / "dataset.yaml").write_text("dataset:\n  files:\n    train: {filename: small/some.del, size: 3}\n")
    assert libkge.splits(tmp_path) == {"train": tmp_path / "small" / "some.del"}
    assert triples_of(libkge.read, tmp_path / "small" / "some.del") == GRAPH
    (tmp_path / "small" / "some.del").write_text("")
    assert "says 3 triples" in message_of(lambda: triples_of(libkge.read, tmp_path / "small" / "some.del"))


def test_an_empty_file_of_libkge(tmp_path: Path) -> None:
    train = write_libkge(tmp_path, GRAPH)
    (tmp_path / "dataset.yaml").unlink()
    assert triples_of(libkge.read, train) == GRAPH
    train.write_text("")
    assert message_of(lambda: triples_of(libkge.read, train)) == f"{train}: the file is empty; restore it"
