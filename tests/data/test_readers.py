"""The folder reader: what it accepts, and the one line it gives for everything else."""

import gzip
import hashlib
import os
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eans.data import load_folder, read_triples
from eans.data.readers import text_sha256
from eans.errors import DataError, UsageError
from eans.graph import SPLITS, KnowledgeGraph

GOOD = {"train.txt": b"a\tr\tb\n", "valid.txt": b"b\tr\ta\n", "test.txt": b"a\tr\tc\n"}
DICTS = {"entities.dict": b"2\ta\n0\tb\n1\tc\n", "relations.dict": b"0\tr\n"}


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def triples(graph: KnowledgeGraph, split: str) -> list[tuple[str, ...]]:
    return [tuple(line.removesuffix("\n").split("\t")) for line in graph.text(split)]  # type: ignore[arg-type]


# --- what is accepted ---------------------------------------------------------------------------------------------


def test_ids_follow_first_appearance(tmp_path):
    graph = load_folder(write(tmp_path / "toy", GOOD))
    assert graph.name == "toy"
    assert graph.entities.labels == ("a", "b", "c")  # c occurs in test only and stays
    assert graph.relations.labels == ("r",)
    assert graph.relations.kind == "relation"
    assert graph.train.tolist() == [[0, 0, 1]]
    assert graph.test.tolist() == [[0, 0, 2]]
    assert graph.unseen_entities() == 1
    assert graph.train.dtype == torch.int64


def test_dicts_fix_the_ids_and_may_hold_more(tmp_path):
    dicts = {"entities.dict": b"3\tz\r\n2\ta\r\n0\tb\r\n1\tc\r\n\r\n", "relations.dict.gz": gzip.compress(b"0\tr\n")}
    folder = write(tmp_path, GOOD | dicts)
    graph = load_folder(folder, name="named")
    assert graph.name == "named"
    assert graph.entities.labels == ("b", "c", "a", "z")
    assert graph.train.tolist() == [[2, 0, 0]]
    assert load_folder(folder, use_dicts=False).entities.labels == ("a", "b", "c")


def test_one_dict_alone_is_enough(tmp_path):
    graph = load_folder(write(tmp_path, GOOD | {"entities.dict": DICTS["entities.dict"]}))
    assert graph.entities.labels == ("b", "c", "a")
    assert graph.relations.labels == ("r",)


def test_duplicates_blank_tail_bom_and_missing_last_line_end(tmp_path):
    files = {
        "train.tsv": b"\xef\xbb\xbfa\tr\tb\r\na\tr\tb\r\n\r\n\n",
        "valid.txt.gz": gzip.compress(b"\xef\xbb\xbfa\tr\tb"),
        "test.tsv.gz": gzip.compress(b"a\tr\tb\r"),
    }
    graph = load_folder(write(tmp_path, files))
    assert graph.entities.labels == ("a", "b")
    assert [len(graph.split(split)) for split in SPLITS] == [2, 1, 1]


def test_spaces_and_exotic_separators_belong_to_the_label(tmp_path):
    line = " a  b \tr\x0b\x85\tx\u2028y\x0c\x1c\n"
    graph = load_folder(write(tmp_path, {**GOOD, "train.txt": line.encode()}))
    assert triples(graph, "train") == [(" a  b ", "r\x0b\x85", "x\u2028y\x0c\x1c")]


def test_only_train_when_asked(tmp_path):
    graph = load_folder(write(tmp_path, {"train.txt": GOOD["train.txt"]}), require=("train",))
    assert graph.valid.shape == graph.test.shape == (0, 3)
    graph = load_folder(write(tmp_path, {"test.txt": GOOD["test.txt"]}), require=())
    assert len(graph.test) == 1  # not required, but there


def test_name_of_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(write(tmp_path / "here", GOOD))
    assert load_folder(".").name == "here"


LABELS = st.text(st.characters(exclude_characters="\t\n\r\ufeff", exclude_categories=("Cs",)), min_size=1, max_size=6)
TRIPLES = st.lists(st.tuples(LABELS, LABELS, LABELS), min_size=1, max_size=8)


def encode(lines: list[str], end: str, packed: bool) -> bytes:
    data = "".join(line + end for line in lines).encode()
    return gzip.compress(data, 1) if packed else data


@settings(max_examples=150, deadline=None)
@given(
    st.tuples(TRIPLES, TRIPLES, TRIPLES),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.sampled_from([".txt", ".tsv"]),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_round_trip(graph, end, packed, suffix, random, with_dicts):
    expected = KnowledgeGraph.from_labels(*graph)
    suffix_gz = ".gz" if packed else ""
    lines = {split: ["\t".join(triple) for triple in part] for split, part in zip(SPLITS, graph, strict=True)}
    files = {f"{split}{suffix}{suffix_gz}": encode(lines[split], end, packed) for split in SPLITS}
    orders = {}
    if with_dicts:
        for stem, labels in (("entities", expected.entities), ("relations", expected.relations)):
            orders[stem] = random.sample(list(labels), len(labels))
            rows = [f"{index}\t{label}" for index, label in enumerate(orders[stem])]
            files[f"{stem}.dict{suffix_gz}"] = encode(random.sample(rows, len(rows)), end, packed)
    with tempfile.TemporaryDirectory() as folder:
        found = load_folder(write(Path(folder), files))
        hashes = {split: text_sha256(Path(folder) / f"{split}{suffix}{suffix_gz}") for split in SPLITS}
    for split, part in zip(SPLITS, graph, strict=True):
        assert triples(found, split) == part
    assert dict(found.sha256) == hashes
    if with_dicts:
        assert list(found.entities) == orders["entities"]
        assert list(found.relations) == orders["relations"]
    else:
        assert found.entities == expected.entities
        assert found.relations == expected.relations
        assert all(torch.equal(found.split(split), expected.split(split)) for split in SPLITS)


@pytest.mark.parametrize("before", [(1 << 18) - 2, (1 << 18) - 1, 1 << 18])
def test_text_hash_when_crlf_straddles_blocks(tmp_path, before):
    data = b"x" * before + b"\r\ny\rz\r"
    path = write(tmp_path, {"f.txt": data}) / "f.txt"
    assert text_sha256(path) == hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()


# --- what is not --------------------------------------------------------------------------------------------------

TAB = "columns must be separated by a tab"
UTF8 = "convert the file to UTF-8"
FILL = "fill in the field or delete the line"
LF = "carriage return inside the line; end lines with LF or CRLF"
EMPTY = "the file is empty; write at least one line, or remove it"
ADD_E = "is not in entities.dict; add it there or remove entities.dict"
ADD_R = "is not in relations.dict; add it there or remove relations.dict"
FORM = "write lines as id<TAB>label with ids from 0"
HRT = "expected 3 columns head<TAB>relation<TAB>tail, found"


def gap(index: int, size: int, missing: int) -> str:
    numbers = f"number the labels 0 to {size - 1} without gaps"
    return f"id {index} is out of range for {size} labels and id {missing} is missing; {numbers}"


# name of the file, its content, where the error points, the message
BAD_FILES = {
    "two columns": ("train.txt", b"a\tr\tb\na\tr\n", ":2", f"{HRT} 2; {TAB}"),
    "four columns": ("train.txt", b"a\tr\tb\tc\n", ":1", f"{HRT} 4; {TAB}"),
    "one column": ("train.txt", b"a\n", ":1", f"{HRT} 1; {TAB}"),
    "spaces": ("valid.txt", b"a r b\n", ":1", f"{HRT} 1 (the line has spaces); {TAB}"),
    "commas": ("test.txt", b"a,r,b\r\n", ":1", f"{HRT} 1 (the line has commas); {TAB}"),
    "empty head": ("train.txt", b"\tr\tb\n", ":1", f"empty head; {FILL}"),
    "empty relation": ("train.txt", b"a\t\tb\n", ":1", f"empty relation; {FILL}"),
    "empty tail": ("train.txt", b"a\tr\tb\na\tr\t\r\n", ":2", f"empty tail; {FILL}"),
    "tabs only": ("train.txt", b"a\tr\tb\n\t\t\n", ":2", f"empty head; {FILL}"),
    "blank inside": ("train.txt", b"a\tr\tb\n\n\na\tr\tb\n", ":2", "blank lines: 2 left out; delete it from the file"),
    "blank first": (
        "train.txt",
        b"\xef\xbb\xbf\r\na\tr\tb\n",
        ":1",
        "blank lines: 1 left out; delete it from the file",
    ),
    "latin-1": ("train.txt", b"a\tr\tb\ncaf\xe9\tr\tb\n", ":2", f"not valid UTF-8 at byte 4 of the line; {UTF8}"),
    "latin-1, columns": ("train.txt", b"caf\xe9 r b\n", ":1", f"not valid UTF-8 at byte 4 of the line; {UTF8}"),
    "utf-16": ("train.txt", "a\tr\tb\n".encode("utf-16"), ":1", f"not valid UTF-8 at byte 1 of the line; {UTF8}"),
    "lone CR": ("train.txt", b"a\tr\tb\ra\tr\tb\r", ":1", LF),
    "double CR": ("train.txt", b"a\tr\tb\r\r\n", ":1", LF),
    "empty": ("valid.txt", b"", "", EMPTY),
    "blank only": ("valid.txt", b"\n\r\n", "", EMPTY),
    "unknown entity": ("test.txt", b"a\tr\tq\n", ":1", f"entity 'q' {ADD_E}"),
    "unknown relation": ("test.txt", b"a\tr\tb\na\ts\tb\n", ":2", f"relation 's' {ADD_R}"),
    "unknown, one line": ("test.txt", "a\tr\tq\u2028q\n".encode(), ":1", rf"entity 'q\u2028q' {ADD_E}"),
    "unknown, long": ("test.txt", b"a\tr\t" + b"q" * 99, ":1", f"entity '{'q' * 59}…' {ADD_E}"),
    "dict columns": ("entities.dict", b"0\ta\n1\n", ":2", f"expected 2 columns id<TAB>label, found 1; {TAB}"),
    "dict spaces": (
        "entities.dict",
        b"0 a\n",
        ":1",
        f"expected 2 columns id<TAB>label, found 1 (the line has spaces); {TAB}",
    ),
    "dict empty label": ("entities.dict", b"0\t\n", ":1", f"empty label; {FILL}"),
    "dict empty id": ("entities.dict", b"\ta\n", ":1", f"empty id; {FILL}"),
    "dict utf-8": ("entities.dict", b"0\t\xff\n", ":1", f"not valid UTF-8 at byte 3 of the line; {UTF8}"),
    "dict not an integer": ("entities.dict", b"0\ta\n1.0\tb\n", ":2", f"id '1.0' is not an integer; {FORM}"),
    "dict underscore": ("entities.dict", b"1_0\ta\n", ":1", f"id '1_0' is not an integer; {FORM}"),
    "dict swapped": ("relations.dict", b"r\t0\n", ":1", "id 'r' is not an integer; swap the columns to id<TAB>label"),
    "dict negative": ("entities.dict", b"-1\ta\n", ":1", "id -1 is out of range; ids start at 0"),
    "dict gap": ("entities.dict", b"3\ta\n0\tb\n1\tc\n", ":1", gap(3, 3, 2)),
    "dict from one": ("entities.dict", b"1\ta\n2\tb\n", ":2", gap(2, 2, 0)),
    "dict id twice": (
        "entities.dict",
        b"0\ta\n1\tb\n0\tc\n",
        ":3",
        "id 0 is already used on line 1; each id may occur once",
    ),
    "dict label twice": (
        "entities.dict",
        b"0\ta\n1\ta\n",
        ":2",
        "entity 'a' is already on line 1; each label may occur once",
    ),
    "dict empty": ("entities.dict", b"", "", EMPTY),
}


@pytest.mark.parametrize(("name", "data", "line", "message"), BAD_FILES.values(), ids=BAD_FILES)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_bad_file(tmp_path, name, data, line, message, packed):
    files = GOOD | DICTS | {name: data}
    if packed:
        del files[name]
        name += ".gz"
        files[name] = gzip.compress(data)
    folder = write(tmp_path, files)
    with pytest.raises(DataError) as caught:
        load_folder(folder)
    assert str(caught.value) == f"{folder / name}{line}: {message}"
    assert len(str(caught.value).splitlines()) == 1


PACKED = gzip.compress(b"a\tr\tb\n" * 1000)
BAD_GZIP = {
    "truncated": (PACKED[:-9], "truncated"),
    "header only": (PACKED[:5], "truncated"),
    "not gzip": (b"a\tr\tb\n", "damaged or not gzip"),
    "bad checksum": (PACKED[:-8] + b"\0" * 8, "damaged or not gzip"),
    "flipped bytes": (PACKED[:12] + b"\xff\xff\xff\xff" + PACKED[16:], "damaged or not gzip"),
}


@pytest.mark.parametrize(("data", "reason"), BAD_GZIP.values(), ids=BAD_GZIP)
def test_bad_gzip(tmp_path, data, reason):
    files = {"train.txt.gz": data, "valid.txt": GOOD["valid.txt"], "test.txt": GOOD["test.txt"]}
    path = write(tmp_path, files) / "train.txt.gz"
    with pytest.raises(DataError) as caught:
        load_folder(tmp_path)
    assert str(caught.value) == f"{path}: the gzip data is {reason}; compress or download the file again"


def test_gzip_without_the_suffix(tmp_path):
    write(tmp_path, GOOD | {"train.txt": PACKED})
    assert len(load_folder(tmp_path).train) == 1000


@pytest.mark.parametrize("split", SPLITS)
def test_missing_split_names_the_files_looked_for(tmp_path, split):
    write(tmp_path, {name: data for name, data in GOOD.items() if not name.startswith(split)})
    suffixes = (".txt", ".tsv", ".csv", ".parquet", ".jsonl", ".nt")
    looked_for = f"{', '.join(split + suffix for suffix in suffixes)}, ..., also .gz, .zst, .bz2"
    with pytest.raises(DataError) as caught:
        load_folder(tmp_path)
    assert str(caught.value) == f"{tmp_path}: the {split} split is missing; looked for {looked_for}"


def test_train_is_always_required(tmp_path):
    write(tmp_path, {"valid.txt": GOOD["valid.txt"]})
    with pytest.raises(DataError, match="the train split is missing"):
        load_folder(tmp_path, require=())


@pytest.mark.parametrize(
    ("extra", "names"),
    [
        ("train.tsv", "train.txt and train.tsv"),
        ("test.txt.gz", "test.txt and test.txt.gz"),
        ("entities.dict.gz", "entities.dict and entities.dict.gz"),
    ],
)
def test_two_files_for_one_thing(tmp_path, extra, names):
    write(tmp_path, GOOD | DICTS | {extra: b"a\tr\tb\n"})
    with pytest.raises(DataError) as caught:
        load_folder(tmp_path)
    assert str(caught.value) == f"{tmp_path}: {names} are both present; keep one of them"


def test_folder_that_is_none(tmp_path):
    with pytest.raises(DataError, match="absent: no such folder; check the path"):
        load_folder(tmp_path / "absent")
    path = write(tmp_path, GOOD) / "train.txt"
    with pytest.raises(DataError, match=r"train\.txt: is a file; give the folder that holds"):
        load_folder(path)
    with pytest.raises(DataError, match="cannot be read"):
        load_folder("x" * 5000)


def test_what_stands_in_the_place_of_a_file(tmp_path):
    folder = write(tmp_path / "toy", GOOD | DICTS)
    for name in ("train.txt", "test.txt", "entities.dict"):
        path = folder / name
        content = path.read_bytes()
        for what, make in (
            ("is a folder", path.mkdir),
            ("is a FIFO", lambda path=path: os.mkfifo(path)),
            ("is a link to /no/where, which is not there", lambda path=path: path.symlink_to("/no/where")),
            (f"is a link to {name}, which is not there", lambda path=path, name=name: path.symlink_to(name)),
            ("is a device or socket", lambda path=path: path.symlink_to("/dev/null")),
        ):
            path.unlink()
            make()
            with pytest.raises(DataError) as caught:
                load_folder(folder)
            assert str(caught.value) == f"{path}: {what}; put a file in its place, or remove it"
            if path.is_symlink() or not path.is_dir():
                path.unlink()
            else:
                path.rmdir()
            path.write_bytes(content)
    (tmp_path / "link").symlink_to("toy")
    assert len(load_folder(tmp_path / "link").train) == 1
    (folder / "train.txt").rename(tmp_path / "elsewhere")
    (folder / "train.txt").symlink_to(tmp_path / "elsewhere")
    assert len(load_folder(folder).train) == 1


def test_what_stands_in_the_place_of_the_folder(tmp_path):
    (tmp_path / "link").symlink_to("/no/where")
    with pytest.raises(DataError, match=r"/link: is a link to /no/where, which is not there; correct the link$"):
        load_folder(tmp_path / "link")
    (tmp_path / "recipe.toml").write_text("")
    with pytest.raises(
        DataError, match=r"recipe\.toml: is a TOML file, not a folder with a graph; a recipe is given without"
    ):
        load_folder(tmp_path / "recipe.toml")


@pytest.mark.parametrize("packed", [False, True])
def test_triples_of_a_file_by_the_ids_of_a_graph(tmp_path, packed):
    graph = load_folder(write(tmp_path / "toy", GOOD))
    path = tmp_path / ("new.tsv.gz" if packed else "new.tsv")

    def read(content):
        path.write_bytes(gzip.compress(content) if packed else content)
        return read_triples(path, graph)

    assert read(b"\xef\xbb\xbfc\tr\ta\r\nb\tr\tb").tolist() == [[2, 0, 0], [1, 0, 1]]
    for content, message in (
        (b"a\tr\tb\na\tr\tB\n", ":2: unknown entity 'B'; did you mean 'b'?"),
        (b"a\tq\tb\n", ":1: unknown relation 'q'"),
        (b"a\tr\n", f":1: {HRT} 2; {TAB}"),
        (b"a\t\tb\n", f":1: empty relation; {FILL}"),
        (b"", f": {EMPTY}"),
    ):
        with pytest.raises(DataError) as caught:
            read(content)
        assert str(caught.value) == f"{path}{message}"
    assert graph.num_entities == 3


def test_unknown_split_in_require(tmp_path):
    with pytest.raises(UsageError, match="unknown split 'tets'; did you mean 'test'"):
        load_folder(tmp_path, require=("train", "tets"))  # type: ignore[arg-type]
