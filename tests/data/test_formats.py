"""Single files in every format: what is read is what was written, and whatever is wrong is one line with the file."""

from __future__ import annotations

import bz2
import csv
import gzip
import importlib.util
import io
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet

import eans
from eans.data import Finding, load
from eans.data.formats import FOLDERS, FORMATS
from eans.errors import DataError, EansError, EansWarning, UsageError
from eans.graph import KnowledgeGraph
from helpers_runs import environment

Rows = list[tuple[str, str, str]]
PARTS = ("head", "relation", "tail")


def delimited(mark: str, header: bool = False) -> Callable[[Rows], bytes]:
    def write(rows: Rows) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text, delimiter=mark, lineterminator="\n")
        writer.writerows([PARTS, *rows] if header else rows)
        return text.getvalue().encode()

    return write


def tsv(rows: Rows) -> bytes:
    return "".join("\t".join(row) + "\n" for row in rows).encode()


def table(rows: Rows) -> pa.Table:
    return pa.table(
        {part: pa.array(column, pa.string()) for part, column in zip(PARTS, zip(*rows, strict=True), strict=True)}
    )


def arrow(write: Callable[[pa.Table, io.BytesIO], object]) -> Callable[[Rows], bytes]:
    def written(rows: Rows) -> bytes:
        file = io.BytesIO()
        write(table(rows), file)
        return file.getvalue()

    return written


def stream(content: pa.Table, file: io.BytesIO) -> None:
    with pa.ipc.new_stream(file, content.schema) as writer:
        writer.write_table(content)


def jsonl(rows: Rows) -> bytes:
    return "".join(json.dumps(dict(zip(PARTS, row, strict=True))) + "\n" for row in rows).encode()


def iri(label: str) -> str:
    return "http://x/" + "".join(f"{byte:02x}" for byte in label.encode())


def ntriples(rows: Rows) -> bytes:
    return "".join("{} .\n".format(" ".join(f"<{iri(part)}>" for part in row)) for row in rows).encode()


def sqlite(rows: Rows) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        connection = sqlite3.connect(path)
        connection.execute("create table triples (head text, relation text, tail text)")
        connection.executemany("insert into triples values (?, ?, ?)", rows)
        connection.commit()
        connection.close()
        return path.read_bytes()


# By suffix: what writes a file, and what a label becomes.
WRITERS: dict[str, Callable[[Rows], bytes]] = {
    ".tsv": tsv,
    ".txt": tsv,
    ".csv": delimited(",", header=True),
    ".psv": delimited("|"),
    ".parquet": arrow(parquet.write_table),
    ".feather": arrow(feather.write_feather),
    ".arrow": arrow(stream),
    ".jsonl": jsonl,
    ".nt": ntriples,
    ".sqlite": sqlite,
}


def is_there(module: str) -> bool:
    return importlib.util.find_spec(f"eans.data.formats.{module}") is not None


def format_named(suffix: str) -> str:
    return next(name for name, found in FORMATS.items() if suffix in found.suffixes)


SUFFIXES = [suffix for suffix in WRITERS if is_there(format_named(suffix))]
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: pa.compress(content, "zstd", asbytes=True),
}


def quietly(path: Path, **options: object) -> tuple[KnowledgeGraph, list[Finding]]:
    found: list[Finding] = []
    return load(path, report=found.append, **options), found  # type: ignore[arg-type]


def triples(graph: KnowledgeGraph) -> Rows:
    lines = [line.removesuffix("\n").split("\t") for line in graph.text("train")]
    return [(head, relation, tail) for head, relation, tail in lines]


def put(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_every_format_has_a_writer_here() -> None:
    assert {format_named(suffix) for suffix in WRITERS} == set(FORMATS)
    assert len(SUFFIXES) >= 8


# --- what is accepted ---------------------------------------------------------------------------------------------

LABELS = st.text(st.characters(exclude_characters="\t\n\r\ufeff", exclude_categories=("Cs",)), min_size=1, max_size=12)
ROWS = st.lists(st.tuples(LABELS, LABELS, LABELS), min_size=1, max_size=12)


@settings(max_examples=300, deadline=None)
@given(ROWS, st.sampled_from(SUFFIXES), st.sampled_from(list(PACKERS)))
def test_round_trip(rows: Rows, suffix: str, packed: str) -> None:
    packed = "" if suffix == ".sqlite" else packed
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder), f"facts{suffix}{packed}", PACKERS[packed](WRITERS[suffix](rows)))
        graph, _ = quietly(path)
    expected = [tuple(map(iri, row)) for row in rows] if suffix == ".nt" else rows
    assert triples(graph) == expected
    assert graph.name == "facts"
    same = KnowledgeGraph.from_labels(expected)  # type: ignore[arg-type]
    assert (graph.entities, graph.relations) == (same.entities, same.relations)


def test_files_without_a_telling_name(tmp_path: Path) -> None:
    rows = [("a", "r", "b"), ("b", "r", "c")]
    for write in (tsv, delimited(","), delimited(";"), jsonl, arrow(parquet.write_table), arrow(stream)):
        assert triples(quietly(put(tmp_path, "facts", gzip.compress(write(rows))))[0]) == rows


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "object\tsubject\tpredicate\nb\ta\tr\nc\tb\tr\n"),
        ("a.csv", "\ufeffto,from,type\r\nb,a,r\r\nc,b,r\r\n"),
        ("a.csv", 'relation;tail;head\nr;"b";a\n"r";c;b\n'),
        ("a.tsv", '"a"\t"r"\t"b"\n"b"\t"r"\t"c"\n'),
        ("a.jsonl", '["a", "r", "b"]\n["b", "r", "c"]\n'),
        ("a.jsonl", '{"o": "b", "s": "a", "p": "r"}\n{"s": "b", "p": "r", "o": "c"}'),
    ],
)
def test_what_is_detected(tmp_path: Path, name: str, content: str) -> None:
    graph, found = quietly(put(tmp_path, name, content))
    assert triples(graph) == [("a", "r", "b"), ("b", "r", "c")]
    assert found == []


def test_numbers_are_labels(tmp_path: Path) -> None:
    path = tmp_path / "n.parquet"
    parquet.write_table(
        pa.table({"head": [7, 8], "relation": pa.array(["r", "r"]).dictionary_encode(), "tail": [8, 9]}), path
    )
    assert triples(quietly(path)[0]) == [("7", "r", "8"), ("8", "r", "9")]
    path = put(
        tmp_path, "n.jsonl", '{"head": 7, "relation": "r", "tail": "8"}\n{"head": "8", "relation": "r", "tail": 9}\n'
    )
    assert triples(quietly(path)[0]) == [("7", "r", "8"), ("8", "r", "9")]


SCORED = "who,what,whom,sure,when\na,r,b,0.5,2020-01-02\nb,r,c,2,2019-05-01\n"


def test_columns_by_name_and_number(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", SCORED)
    by_name = {"head": "who", "relation": "what", "tail": "whom", "weight": "sure", "time": "when"}
    by_number = "head=1,relation=2,tail=3"
    graph, found = quietly(path, columns=by_name)
    assert triples(graph) == [("a", "r", "b"), ("b", "r", "c")]
    assert graph.weights is not None and graph.weights.tolist() == [0.5, 2.0]  # noqa: PT018
    assert graph.times is not None and graph.times.tolist() == [1, 0]  # noqa: PT018
    assert found == []
    plain = put(tmp_path, "b.csv", SCORED.split("\n", 1)[1])
    assert triples(quietly(plain, columns=by_number)[0]) == [("a", "r", "b"), ("b", "r", "c")]
    swapped = quietly(plain, columns={"head": 3, "relation": 2, "tail": 1, "time": 4})[0]
    assert triples(swapped) == [("b", "r", "a"), ("c", "r", "b")]
    assert swapped.times is not None and swapped.times.tolist() == [0.5, 2.0]  # noqa: PT018


def test_a_folder_of_different_files(tmp_path: Path) -> None:
    put(tmp_path, "train.csv", "head,relation,tail,weight\na,r,b,2\nb,r,a,0\n")
    put(tmp_path, "valid.jsonl.gz", gzip.compress(jsonl([("b", "r", "b")])))
    put(tmp_path, "test.parquet", WRITERS[".parquet"]([("a", "r", "a")]))
    graph, found = quietly(tmp_path)
    assert [len(graph.split(split)) for split in ("train", "valid", "test")] == [2, 1, 1]  # type: ignore[arg-type]
    assert graph.weights is not None and graph.weights.tolist() == [2, 0]  # noqa: PT018
    assert graph.entities.labels == ("a", "b")
    assert found == []


def test_long_lines_and_many_blocks(tmp_path: Path) -> None:
    rows = [(f"{i}" * (1 + i % 40), f"r{i % 7}", f"e{i * i % 997}") for i in range(60_000)]
    rows[50_000] = ("x" * 300_000, "r0", "y")
    for suffix in (".tsv", ".csv", ".jsonl", ".parquet"):
        graph, _ = quietly(put(tmp_path, f"a{suffix}", WRITERS[suffix](rows)))
        assert triples(graph) == rows


# --- what is told -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("a.tsv", "a\tr\tb\n\nb\tr\tc\n\n\nc\tr\ta\n\n", 2),
        ("a.csv", 'head,relation,tail\r\n\r\n"a",r,b\r\n\r\n\r\nb,r,c\r\n\r\n', 2),
        ("a.jsonl", '["a", "r", "b"]\n\n\n["b", "r", "c"]\n\n["c", "r", "a"]\n\n', 2),
    ],
)
def test_blank_lines_are_counted_and_lines_stay_right(tmp_path: Path, name: str, content: str, line: int) -> None:
    path = put(tmp_path, name, content)
    found = quietly(path)[1]
    assert [(f.code, f.count, f.example) for f in found] == [("left-out", 3, f"{path}:{line}")]
    assert found[0].message == f"{path}:{line}: blank lines: 3 left out"
    last = [text for text in content.splitlines() if text][-1]
    number = len(content.rstrip().splitlines())
    path.write_text(content.rstrip() + "\n" + last + "\n")
    again = next(f for f in quietly(path)[1] if f.code == "duplicates")
    assert again.example == f"{path}:{number + 1}"
    assert f" repeats line {number};" in again.message
    with pytest.raises(DataError):
        load(path, strict=True)


def test_lines_behind_a_header_and_fields_of_several_lines(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", 'head,relation,tail,note\na,r,b,"two\nlines"\nc,r,d,\na,r,b,\n')
    codes = {f.code: f.example for f in quietly(path)[1]}
    assert codes["duplicates"] == f"{path}:5"
    assert codes["left-out"] == f"{path}:1: note"
    assert "left-out" not in {f.code for f in quietly(path, columns={"head": "head"})[1]}


def test_rows_of_files_without_lines(tmp_path: Path) -> None:
    path = put(tmp_path, "a.parquet", WRITERS[".parquet"]([("a", "r", "b"), ("a", "r", "c"), ("a", "r", "b")]))
    (finding,) = quietly(path)[1]
    assert finding.message.startswith(f"{path}, triple 3: ('a', 'r', 'b') repeats triple 1; 1 of 3 train triples")


def test_warnings_of_files_are_at_the_callers_line(tmp_path: Path) -> None:
    path = put(tmp_path, "a.tsv", "a\tr\tb\na\tr\tb\n")
    with pytest.warns(EansWarning, match=r"a\.tsv:2") as caught:
        eans.load(path)
    assert caught[0].filename == __file__


# --- what is not accepted -----------------------------------------------------------------------------------------

GOOD = "a,r,b\nb,r,c\n"
WEIGHTED = "head,relation,tail,weight\na,r,b,1\nb,r,c,{}\n"
TABLE = WRITERS[".parquet"]([("a", "r", "b")])
BROKEN: dict[str, tuple[str, bytes | str, str]] = {
    "uneven": ("a.csv", "a,r,b\nb,r,c,d\n", ":2: expected 3 columns head,relation,tail, found 4; columns must be"),
    "narrow": (
        "a.csv",
        "a,b\n",
        ":1: expected 3 columns head,relation,tail, found 2; columns must be separated by ','",
    ),
    "wide": ("a.tsv", "a\tr\tb\tc\n", ":1: found 4 columns and no header; say which is which with columns head=1,"),
    "open quote": ("a.csv", 'a,r,b\n"b,r,c\nc,r,d\n', ":2: expected 3 columns head,relation,tail, found 1"),
    "empty": ("a.csv", "", ": the file is empty; write at least one line"),
    "header alone": ("a.csv", "head,relation,tail\n", ": the file is empty"),
    "empty label": ("a.csv", "a,r,b\nb,,c\n", ":2: empty relation; fill in the field or delete the line"),
    "line break": ("a.csv", 'a,r,b\n"b\nb",r,c\n', ":2: the head 'b\\nb' has a tab or a line break"),
    "latin-1": ("a.csv", b"a,r,b\ncaf\xe9,r,b\n", ":2: not valid UTF-8 at byte 4 of the line"),
    "latin-1, far": ("a.tsv", b"a\tr\tb\n" * 99_999 + b"\xe9\tr\tb\n", ":100000: not valid UTF-8 at byte 1"),
    "lone return": ("a.tsv", "a\tr\tb\rb\tr\tc\n", ":1: carriage return inside the line"),
    "weight, text": ("a.csv", WEIGHTED.format("x"), ":3: the weight 'x' is not a number"),
    "weight, negative": (
        "a.csv",
        WEIGHTED.format(-1),
        ":3: the weight -1.0 is not usable; give a finite number from 0",
    ),
    "weight, nan": ("a.csv", WEIGHTED.format("nan"), ":3: the weight nan is not usable"),
    "weight, inf": ("a.csv", WEIGHTED.format("inf"), ":3: the weight inf is not usable"),
    "weight, none": ("a.csv", WEIGHTED.format(""), ":3: empty weight"),
    "weights 0": ("a.csv", "head,relation,tail,weight\na,r,b,0\n", ": all weights are 0; nothing would be learned"),
    "json": ("a.jsonl", '["a", "r", "b"]\n["a", "r"\n', ":2: is not JSON ("),
    "json, no part": ("a.jsonl", '{"head": "a", "relation": "r", "tail": "b"}\n{"head": "a"}\n', ":2: empty relation"),
    "json, number": ("a.jsonl", "3\n", ":1: 3 is no object"),
    "json, float": ("a.jsonl", '["a", "r", 1.5]\n', ":1: the tail 1.5 is not a text or a whole number"),
    "json, tab": ("a.jsonl", '["a\\tb", "r", "c"]\n', ":1: the head 'a\\tb' has a tab"),
    "json, surrogate": ("a.jsonl", '["\\ud800", "r", "c"]\n', ":1: the head '\\ud800' is no text that UTF-8 can hold"),
    "json, array": ("a.json", '[["a", "r", "c"]]\n', ":1: is an array of arrays or objects"),
    "json, blank": ("a.jsonl", "\n\n", ": the file is empty"),
    "parquet, cut": ("a.parquet", TABLE[:-5], ": is damaged, or neither Parquet nor Arrow ("),
    "parquet, text": ("a.parquet", "hello", ": is damaged, or neither"),
    "feather, cut": ("a.feather", WRITERS[".feather"]([("a", "r", "b")])[:-9], ": is damaged, or neither"),
    "arrow, cut": ("a.arrow", WRITERS[".arrow"]([("a", "r", "b")])[:-30], ": is damaged, or neither"),
    "gz, cut": ("a.csv.gz", gzip.compress(GOOD.encode())[:-3], ": the gzip data is truncated; compress"),
    "bz2, cut": ("a.csv.bz2", bz2.compress(GOOD.encode())[:-3], ": the bz2 data is truncated; compress"),
    "zst, cut": ("a.csv.zst", PACKERS[".zst"](GOOD.encode())[:-3], ": the zstd data is "),
    "zst, none": ("a.csv.zst", GOOD, ": the zstd data is damaged or not zstd"),
    "recipe": ("a.toml", "", ": is a TOML file, not a folder with a graph"),
}


@pytest.mark.parametrize(("name", "content", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_files(tmp_path: Path, name: str, content: bytes | str, message: str) -> None:
    path = put(tmp_path, name, content)
    with pytest.raises(DataError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}{message}")
    assert len(str(caught.value).splitlines()) == 1


def test_columns_of_tables_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for columns, message in (
        ({"head": ["a", None], "relation": ["r", "r"], "tail": ["b", "c"]}, ", triple 2: empty head"),
        ({"head": ["a", ""], "relation": ["r", "r"], "tail": ["b", "c"]}, ", triple 2: empty head"),
        ({"head": [1.5], "relation": ["r"], "tail": ["b"]}, ", triple 1: the head is of type double"),
        ({"x": ["a"], "y": ["r"]}, ": found 2 columns: x, y; say which is which with columns head=NAME"),
        ({"head": ["a"] * 0, "relation": ["r"] * 0, "tail": ["b"] * 0}, ": the file has no rows"),
        ({"head": ["a"], "relation": ["r"], "tail": ["b"], "weight": [-1]}, ", triple 1: the weight -1.0 is not"),
    ):
        parquet.write_table(pa.table(columns), path)
        with pytest.raises(DataError) as caught:
            load(path)
        assert str(caught.value).startswith(f"{path}{message}")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("hed=1", "columns: unknown part 'hed'; did you mean 'head'?"),
        ("head=whoo", "a.csv:1: columns: no column 'whoo' for head; did you mean 'who'?; there are 5: who, what, whom"),
        ("head=9", "a.csv:1: columns: no column '9' for head"),
        ("head=who,head=what", "columns: the part 'head' is given twice"),
        ("head=who,tail=who", "columns: the column 'who' is given twice"),
        ("head=who,tail=1", "a.csv:1: columns: two parts are in one column"),
        ("head", "columns: head is ''; give the name of a column"),
        ({"head": None}, "columns: head is None; give the name of a column"),
        (3, "columns must be like {'head': 'subject'"),
    ],
)
def test_columns_that_are_not_there(tmp_path: Path, columns: object, message: str) -> None:
    put(tmp_path, "a.csv", SCORED)
    with pytest.raises(UsageError) as caught:
        load(tmp_path / "a.csv", columns=columns)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_options_of_a_dataset_with_a_name() -> None:
    with pytest.raises(UsageError, match="columns, query and literals are for files and folders"):
        load("wordnet-core", columns="head=1")


@settings(max_examples=300, deadline=None)
@given(
    ROWS,
    st.sampled_from(SUFFIXES),
    st.sampled_from(list(PACKERS)),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(max_size=3), st.integers(0, 3)), min_size=1, max_size=4),
    st.booleans(),
)
def test_damaged_files_are_one_line_or_a_graph(
    rows: Rows, suffix: str, packed: str, changes: list[tuple[int, bytes, int]], packed_first: bool
) -> None:
    content = WRITERS[suffix](rows)
    content = PACKERS[packed](content) if packed_first else content
    for place, other, removed in changes:
        at = place % (len(content) + 1)
        content = content[:at] + other + content[at + removed :]
    content = content if packed_first else PACKERS[packed](content)
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder), f"facts{suffix}{packed}", content)
        problem = ""
        try:
            graph, _ = quietly(path)
        except EansError as error:
            problem = str(error)
    assert (len(problem.splitlines()) == 1 and str(path) in problem) or len(graph.train) > 0


def test_other_programs_folders_are_known_by_a_file() -> None:
    assert set(FOLDERS.values()) == {"libkge", "openke"}


# --- the command line ---------------------------------------------------------------------------------------------


def command(*arguments: str | Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    program = [sys.executable, "-m", "eans", *map(str, arguments)]
    return subprocess.run(program, env=environment(), input=given, capture_output=True, check=False, timeout=120)


def ring(size: int) -> Rows:
    return [(f"e{i}", f"plus{r}", f"e{(i + r) % size}") for i in range(size) for r in (1, 2, 3)]


def test_train_on_a_file(tmp_path: Path) -> None:
    path = put(tmp_path, "facts.csv", WRITERS[".csv"](ring(40)))
    few = ["--set", "train.steps=2", "--set", "model.dim=4", "--set", "train.batch_size=32"]
    done = command("train", "transe/uniform", "--data", path, "--out", tmp_path / "run", *few)
    assert done.returncode == 0, done.stderr
    told = f"eans: {path} is one file: split 80/10/10 into train, valid, test (--split none: train)"
    assert done.stderr.decode().splitlines() == [told]
    about = json.loads((tmp_path / "run" / "split" / "split.json").read_text())
    assert about["triples"] == {"train": 96, "valid": 12, "test": 12}
    assert set(about["sha256"]) == {"train", "valid", "test"}
    done = command("train", "transe/uniform", "--data", path, "--out", tmp_path / "all", "--split", "none", *few)
    assert (done.returncode, done.stderr) == (0, b"")
    assert not (tmp_path / "all" / "split").exists()


def test_standard_input_and_columns() -> None:
    given = b"note,o,s,p\nx,b,a,r\nx,c,b,r\n"
    done = command("data", "info", "-", "--split", "none", "--columns", "head=s,relation=p,tail=o", given=given)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"KnowledgeGraph('stdin', 3 entities, 1 relations, train 2, valid 0, test 0)")
    done = command("data", "info", "-", "--split", "none", given=b"a\tr\n")
    assert done.returncode == 1
    assert done.stderr.startswith(b"eans: error: <stdin>:1: expected 3 columns head<TAB>relation<TAB>tail, found 2")


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "pipe.tsv"
    os.mkfifo(path)
    with (
        subprocess.Popen(["/bin/sh", "-c", f"printf 'a\\tr\\tb\\nb\\tr\\n' > {path}"]),
        pytest.raises(DataError) as caught,
    ):
        load(path)
    assert str(caught.value).startswith(f"{path}:2: expected 3 columns")


def test_rank_the_triples_of_a_file(tmp_path: Path) -> None:
    graph = KnowledgeGraph.from_labels(ring(12))
    eans.train(graph, "transe", "uniform", dim=4, steps=2, out=tmp_path / "run")
    path = put(tmp_path, "new.csv", "object,subject,predicate\ne3,e1,plus2\n")
    done = command("evaluate", tmp_path / "run", "--test", path, "--json")
    assert done.returncode == 0, done.stderr
    path.write_text("object,subject,predicate\ne3,e1,plus2\ne99,e1,plus2\n")
    done = command("evaluate", tmp_path / "run", "--test", path)
    assert done.stderr.decode().startswith(f"eans: error: {path}:3: unknown entity 'e99'; did you mean ")


def test_nothing_is_left_of_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load("wordnet-core")
