"""Answers to tables of queries against brute force; the forms tables come in; mistakes in them; memory."""

from __future__ import annotations

import gzip
import io
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import eans
from eans import batch_prediction
from eans.batch_prediction import SCHEMA, predict_many
from eans.errors import DataError, EansError, RunError, UsageError
from eans.graph import KnowledgeGraph
from eans.models import MODELS, Model
from eans.prediction import predict, score
from eans.ranking import bytes_per_query
from helpers_graphs import Meter, random_graph
from helpers_runs import eans as command
from helpers_runs import one_line, ring_graph

PARTS = ("head", "relation", "tail")
GRAPH = random_graph(entities=14, relations=4, sizes=(60, 10, 10))
QUERIES = [("e1", "r0", None), (None, "r1", "e2"), ("e3", None, "e4"), ("e1", "r0", None), ("e13", "r3", None)]
Query = tuple[str | None, str | None, str | None]


def make_model(name: str, graph: KnowledgeGraph = GRAPH, **options: Any) -> Model:
    generator = torch.Generator().manual_seed(3)
    options["reciprocal"] = options.get("reciprocal", False) or MODELS[name].tails_only
    return MODELS[name](graph.num_entities, graph.num_relations, 4, 1.0, generator, **options)


@pytest.fixture
def model() -> Model:
    return make_model("rotate")


def brute(model: Model, graph: KnowledgeGraph, queries: list[Query], k: int, known: str) -> list[dict[str, Any]]:
    """The rows of the answers, by scores in float64 of every completion."""
    exact = make_model(type(model).__name__.lower(), graph, reciprocal=model.reciprocal).double()
    exact.load_state_dict({name: value.double() for name, value in model.state_dict().items()})
    truth = {tuple(row) for row in torch.cat([graph.train, graph.valid, graph.test]).tolist()}
    found = []
    for number, query in enumerate(queries):
        column = query.index(None)
        names = graph.relations if column == 1 else graph.entities
        rows = []
        for candidate in range(len(names)):
            triple = [names[candidate] if part is None else part for part in query]
            ids = [graph.entities.id(triple[0]), graph.relations.id(triple[1]), graph.entities.id(triple[2])]
            side = "head" if column == 0 else "tail"
            scores = exact.score_all(torch.tensor([ids]), side)[0]
            value = float(scores[candidate] if column != 1 else scores[ids[2]])
            rows.append((value, candidate, triple, tuple(ids) in truth))
        rows = sorted((row for row in rows if known == "mark" or not row[3]), key=lambda row: (-row[0], row[1]))[:k]
        for rank, (value, _, triple, is_known) in enumerate(rows, 1):
            found.append(dict(zip(SCHEMA.names, (number, rank, *triple, value, is_known), strict=True)))
    return found


def assert_same(table: pa.Table, expected: list[dict[str, Any]]) -> None:
    assert table.schema == SCHEMA
    rows = table.to_pylist()
    scores = [row.pop("score") for row in rows]
    assert scores == pytest.approx([row["score"] for row in expected], rel=1e-4, abs=1e-5)
    assert rows == [{key: value for key, value in row.items() if key != "score"} for row in expected]


def column(names: str) -> st.SearchStrategy[str]:
    return st.sampled_from([f"e{i}" for i in range(14)] if names == "e" else [f"r{i}" for i in range(4)])


QUERY = st.one_of(
    st.tuples(column("e"), column("r"), st.none()),
    st.tuples(st.none(), column("r"), column("e")),
    st.tuples(column("e"), st.none(), column("e")),
)


@settings(max_examples=40)
@given(
    name=st.sampled_from(sorted(MODELS)),
    reciprocal=st.booleans(),
    queries=st.lists(QUERY, max_size=12),
    k=st.integers(1, 16),
    known=st.sampled_from(["filter", "mark"]),
    memory=st.sampled_from([0, 3000, 1 << 20]),
)
def test_any_queries(name: str, reciprocal: bool, queries: list[Query], k: int, known: Any, memory: int) -> None:
    model = make_model(name, reciprocal=reciprocal)
    found = predict_many(model, GRAPH, queries, k=k, known=known, memory=memory, progress=False)
    assert found.table is not None
    assert_same(found.table, brute(model, GRAPH, queries, k, known))
    assert (found.queries, found.answers, found.skipped) == (len(queries), len(found.table), 0)


@pytest.mark.parametrize("known", ["filter", "mark"])
def test_answers_are_those_of_single_queries(model: Model, known: Any) -> None:
    found = predict_many(model, GRAPH, QUERIES, k=3, known=known, progress=False).table
    assert found is not None
    single = []
    for number, query in enumerate(QUERIES):
        asked = {name: part for name, part in zip(PARTS, query, strict=True) if part is not None}
        single += [(number, *row) for row in predict(model, GRAPH, **asked, k=3, known=known)]
    rows = found.to_pylist()
    assert [(row["query"], *(row[name] for name in PARTS), row["known"]) for row in rows] == [
        (*row[:4], row[5]) for row in single
    ]
    assert [row["score"] for row in rows] == pytest.approx([row[4] for row in single])


def test_small_blocks_change_nothing(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = QUERIES * 7
    whole = predict_many(model, GRAPH, queries, k=4, progress=False).table
    monkeypatch.setattr(batch_prediction, "MOST_QUERIES", 3)
    monkeypatch.setattr("eans.queries.ROWS", 5)
    told: list[tuple[int, int]] = []
    assert predict_many(model, GRAPH, queries, k=4, progress=lambda *done: told.append(done)).table == whole
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (len(queries), len(queries))


# --- tables -------------------------------------------------------------------------------------------------------


def text_of(queries: list[Query], delimiter: str) -> str:
    return "".join(delimiter.join(part or "" for part in row) + "\n" for row in [PARTS, *queries])


def write(path: Path, queries: list[Query] = QUERIES) -> Path:
    """The queries as a file of the kind that its ending says."""
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    columns = [list(part) for part in zip(*queries, strict=True)]
    if kind == "parquet":
        pq.write_table(pa.table(dict(zip(PARTS, columns, strict=True))), path)
        return path
    objects = [{name: part for name, part in zip(PARTS, row, strict=True) if part} for row in queries]
    text = "".join(json.dumps(row) + "\n" for row in objects)
    if kind != "jsonl":
        text = text_of(queries, "," if kind == "csv" else "\t")
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def read(path: Path) -> pa.Table:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if path.suffix == ".parquet":
        return pq.read_table(path)
    if ".jsonl" in path.name:
        return pa.Table.from_pylist([json.loads(line) for line in data.splitlines()], schema=SCHEMA)
    parse = pa.csv.ParseOptions(delimiter="," if ".csv" in path.name else "\t")
    types = {field.name: field.type for field in SCHEMA}
    return pa.csv.read_csv(
        io.BytesIO(data), parse_options=parse, convert_options=pa.csv.ConvertOptions(column_types=types)
    )


KINDS = ("csv", "tsv", "jsonl", "parquet", "csv.gz", "jsonl.gz")


@pytest.mark.parametrize("kind", KINDS)
def test_files(model: Model, tmp_path: Path, kind: str) -> None:
    expected = predict_many(model, GRAPH, QUERIES, k=2, progress=False).table
    out = tmp_path / f"answers.{kind}"
    found = predict_many(model, GRAPH, write(tmp_path / f"queries.{kind}"), k=2, out=out, progress=False)
    assert found.table is None
    assert (found.queries, found.answers) == (len(QUERIES), 10)
    assert read(out) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"answers.{kind}", f"queries.{kind}"]


def test_columns_of_other_names_and_types(model: Model, tmp_path: Path) -> None:
    """Columns are found by name, in any case and place; numbers are labels, and others are left alone."""
    graph = KnowledgeGraph.from_labels([("07", "0", "7"), ("7", "0", "8")])
    model = make_model("transe", graph)
    path = tmp_path / "q.csv"
    path.write_bytes("\ufeffid, Tail ,HEAD,relation\r\n1.5,,07,0\r\n".encode())
    found = predict_many(model, graph, path, k=1, progress=False).table
    assert found is not None
    assert found.column("head").to_pylist() == ["07"]
    numbers = pa.table({"tail": pa.nulls(1), "head": [7], "relation": pa.array(["0"]).dictionary_encode()})
    pq.write_table(numbers, tmp_path / "q.parquet")
    found = predict_many(model, graph, tmp_path / "q.parquet", k=1, progress=False).table
    assert found is not None
    assert found.column("head").to_pylist() == ["7"]


def rows_of(columns: dict[str, list[str | None]]) -> list[tuple[str | None, ...]]:
    return list(zip(*columns.values(), strict=True))


FORMS: dict[str, Callable[[dict[str, list[str | None]]], Any]] = {
    "arrow": lambda columns: pa.table(columns),
    "list": rows_of,
    "iterator": lambda columns: iter(rows_of(columns)),
    "numpy": lambda columns: np.array(rows_of(columns)),
    "pandas": lambda columns: pytest.importorskip("pandas").DataFrame(columns),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_forms_in_memory(model: Model, form: Any) -> None:
    columns = {name: list(part) for name, part in zip(PARTS, zip(*QUERIES, strict=True), strict=True)}
    expected = predict_many(model, GRAPH, QUERIES, k=2, progress=False).table
    assert predict_many(model, GRAPH, form(columns), k=2, progress=False).table == expected


def test_labels_that_text_must_quote(tmp_path: Path) -> None:
    graph = KnowledgeGraph.from_labels([('a "b", c', "r", "d|e"), ("d|e", "r", "x,y")])
    out = tmp_path / "out.csv"
    rows = [('a "b", c', "r", None)]
    expected = predict_many(make_model("transe", graph), graph, rows, progress=False).table
    predict_many(make_model("transe", graph), graph, rows, out=out, progress=False)
    assert read(out) == expected


# --- mistakes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": there is no column 'head' among none; the table needs a header with head, relation, tail"),
        ("head,relation,tial\n", ": there is no column 'tail' among head, relation, tial; did you mean 'tial'? the"),
        ("head,head,relation,tail\n", ": there are two columns 'head' among"),
        ("head,relation,tail\ne1,r0,\ne1,,\n", ":3: two of head, relation and tail are empty; leave the one"),
        ("head,relation,tail\ne1,r0,e2\n", ":2: none of head, relation and tail is empty"),
        ("head,relation,tail\ne1,r0,\n\n,r0,e1\n", ":3: the row is empty"),
        ("head,relation,tail\ne1,r0,\ne1,r0\n", ":3: expected 3 columns as in the header, found 2"),
        ("head,relation,tail\ne1,r0,\ne99,r0,\n", ":3: unknown entity 'e99'; did you mean 'e9'? (--skip-unknown"),
        ("head,relation,tail\ne1,R0,\n", ":2: unknown relation 'R0'; did you mean 'r0'?"),
        ("head,relation,tail\ne1,r0,\n\udcff,r0,\n", ":3: not valid UTF-8; convert the file to UTF-8"),
    ],
)  # fmt: skip
def test_a_bad_row_is_one_line(model: Model, tmp_path: Path, text: str, message: str) -> None:
    path, out = tmp_path / "q.csv", tmp_path / "out.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    out.write_text("before")
    with pytest.raises(DataError) as caught:
        predict_many(model, GRAPH, path, out=out, progress=False)
    assert str(caught.value).startswith(f"{path}{message}")
    assert out.read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.jsonl", b'{"head": "e1", "relation": "r0"}\n{"head": \n', ":2: no JSON ("),
        ("q.jsonl", b'["e1"]\n', ":1: expected an object of texts such as"),
        ("q.jsonl", b'{"head": 1.5, "relation": "r0"}\n', ":1: expected an object of texts such as"),
        ("q.parquet", b"no table", ": no readable parquet table ("),
        ("q.csv.gz", b"no gzip", ": cannot be read (Not a gzipped file"),
        ("q.xls", b"", ": what kind of table is this? Its name should end with .csv, .tsv, .jsonl, .parquet"),
    ],
)
def test_other_kinds_of_files(model: Model, tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(EansError) as caught:
        predict_many(model, GRAPH, path, progress=False)
    assert str(caught.value).startswith(f"{path}{message}")
    with pytest.raises(EansError, match=r"nowhere\.csv: cannot be read \(No such file or directory\)"):
        predict_many(model, GRAPH, tmp_path / "nowhere.csv", progress=False)


def test_parquet_of_other_types(model: Model, tmp_path: Path) -> None:
    pq.write_table(pa.table({"head": ["e1"], "relation": [1.5], "tail": [""]}), tmp_path / "q.parquet")
    with pytest.raises(DataError, match="column 'relation' is of type double, not of texts or whole numbers"):
        predict_many(model, GRAPH, tmp_path / "q.parquet", progress=False)
    pq.write_table(pa.table({"head": ["e1", ""], "relation": ["r0", ""], "tail": ["", ""]}), tmp_path / "q.parquet")
    with pytest.raises(DataError, match=r"q.parquet, row 1 \(from 0\): all three are empty"):
        predict_many(model, GRAPH, tmp_path / "q.parquet", progress=False)


def test_empty_lines_may_end_a_file(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "q.csv"
    path.write_text(text_of(QUERIES, ",") + "\n,,\n\n")
    expected = predict_many(model, GRAPH, QUERIES, progress=False).table
    for size in (1 << 16, 1, 3):
        monkeypatch.setattr(batch_prediction, "MOST_QUERIES", size)
        assert predict_many(model, GRAPH, path, progress=False).table == expected
    path.write_text(text_of(QUERIES, ",") + "\n,,\n\ne1,r0,\n")
    with pytest.raises(DataError, match=r"q.csv:7: the row is empty"):
        predict_many(model, GRAPH, path, progress=False)


def test_long_files_are_read_in_parts(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eans.table_files.BLOCK", 17)
    expected = predict_many(model, GRAPH, QUERIES, k=2, progress=False).table
    for kind in ("csv", "tsv.gz"):
        path = write(tmp_path / f"q.{kind}")
        assert predict_many(model, GRAPH, path, k=2, progress=False).table == expected
    (tmp_path / "q.csv").write_text(text_of(QUERIES, ",") + "e1,x,")
    with pytest.raises(DataError, match=r"q.csv:7: unknown relation 'x'"):
        predict_many(model, GRAPH, tmp_path / "q.csv", progress=False)


def test_unknown_labels_can_be_left_out_and_are_counted(model: Model) -> None:
    rows: list[Query] = [QUERIES[0], ("e99", "r0", None), ("e1", "r9", None), QUERIES[1]]
    found = predict_many(model, GRAPH, rows, k=2, skip_unknown=True, progress=False)
    assert (found.queries, found.skipped) == (2, 2)
    assert found.first_skipped == "queries, row 1: unknown entity 'e99'; did you mean 'e9'?"
    assert found.table is not None
    assert found.table.column("query").to_pylist() == [0, 0, 3, 3]
    with pytest.raises(UsageError, match=r"^queries, row 1: unknown entity 'e99'"):
        predict_many(model, GRAPH, rows, progress=False)
    with pytest.raises(UsageError, match=r"^queries, row 1: two of head, relation and tail are empty"):
        predict_many(model, GRAPH, [QUERIES[0], ("e99", None, None)], skip_unknown=True, progress=False)


def test_nan_is_an_error(model: Model, tmp_path: Path) -> None:
    with torch.no_grad():
        model.entity[3] = math.nan
    for query in QUERIES[:3]:
        with pytest.raises(RunError, match="NaN"):
            predict_many(model, GRAPH, [query], out=tmp_path / "out.csv", progress=False)
    assert not list(tmp_path.iterdir())


# --- memory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [500, 5000])
def test_memory_does_not_grow_with_the_table(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries are read as they are answered, and a block of scores is the largest tensor."""
    graph = random_graph(entities=400, relations=3)
    model = make_model("transe", graph)
    monkeypatch.setattr(batch_prediction, "MOST_QUERIES", 100)
    monkeypatch.setattr("eans.queries.ROWS", 100)
    progress = {"read": 0, "done": 0, "most": 0}

    def rows() -> Iterator[Query]:
        for i in range(count):
            progress["read"] += 1
            progress["most"] = max(progress["most"], progress["read"] - progress["done"])
            yield f"e{i % 400}", f"r{i % 3}", None

    def told(done: int, total: int) -> None:
        assert total in (0, count)
        progress["done"] = done

    memory = 10 * bytes_per_query(model)
    with Meter() as meter:
        predict_many(model, graph, rows(), k=5, out=tmp_path / "out.parquet", memory=memory, progress=told)
    assert progress["read"] == count
    assert progress["most"] <= 200
    assert meter.largest <= 10 * 400
    assert meter.peak <= 4 * memory


# --- scores -------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(name=st.sampled_from(sorted(MODELS)), rows=st.lists(st.tuples(column("e"), column("r"), column("e"))))
def test_scores_in_order(name: str, rows: list[tuple[str, str, str]]) -> None:
    model = make_model(name)
    found = score(model, GRAPH, rows)
    assert (found.dtype, found.shape) == (np.float32, (len(rows),))
    for row, value in zip(rows, found, strict=True):
        predictions = predict(model, GRAPH, head=row[0], relation=row[1], k=99, known="mark")
        (expected,) = [p.score for p in predictions if p.tail == row[2]]
        assert value == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_scores_of_unknown_labels(model: Model) -> None:
    rows = [("e1", "r0", "e2"), ("e1", "r0", "e99"), ("e1", "r0", "e2")]
    with pytest.raises(UsageError, match=r"^triples, row 1: unknown entity 'e99'; did you mean 'e9'\?$"):
        score(model, GRAPH, rows)
    found = score(model, GRAPH, rows, "nan")
    assert np.isnan(found).tolist() == [False, True, False]
    assert found[0] == found[2] == score(model, GRAPH, rows[:1])[0]
    assert np.isnan(score(model, GRAPH, rows[1:2], "nan")).all()
    with pytest.raises(UsageError, match="unknown unknown 'skip'"):
        score(model, GRAPH, rows, "skip")  # type: ignore[arg-type]
    with torch.no_grad():
        model.relation[0] = math.nan
    with pytest.raises(RunError, match="NaN"):
        score(model, GRAPH, rows[:1])


# --- the command --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    eans.train(ring_graph(12), "transe", "uniform", dim=4, steps=2, batch_size=16, negatives=2, out=path)
    return path


RING: list[Query] = [("e1", "plus1", None), (None, "plus2", "e5"), ("e1", None, "e2")]


def test_the_command(folder: Path, tmp_path: Path) -> None:
    run = eans.Run.load(folder)
    expected = run.predict_many(RING, k=2, known="mark", progress=False).table
    queries, out = write(tmp_path / "q.csv", RING), tmp_path / "out.parquet"
    done = command("predict", folder, "--queries", queries, "--out", out, "-k", "2", "--known", "mark")
    assert done.stdout == f"{out}: 6 answers to 3 queries\n"
    assert read(out) == expected
    assert expected is not None
    for form, kind in (("csv", "csv"), ("json", "jsonl")):
        done = command(
            "predict",
            folder,
            "--queries",
            "-",
            "-k",
            "2",
            "--known",
            "mark",
            "--format",
            form,
            input=text_of(RING, "\t"),
        )
        (tmp_path / f"out.{kind}").write_text(done.stdout)
        assert read(tmp_path / f"out.{kind}") == expected
    text = write(tmp_path / "q.jsonl", RING).read_text()
    done = command("predict", folder, "--queries", "-", "-k", "1", input=text + '{"head": "x", "relation": "plus1"}\n')
    assert (done.returncode, done.stdout) == (1, "")
    assert one_line(done.stderr).startswith("eans: error: <stdin>:4: unknown entity 'x'")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--queries", "q.csv", "--head", "e1"], "--head cannot be given here: --queries has the queries"),
        (["--head", "e1", "--relation", "plus1", "--out", "x.csv"], "--out cannot be given here: it belongs to"),
        (["--skip-unknown"], "--skip-unknown cannot be given here: it belongs to --queries"),
        (["--queries", "q.csv", "--out", "x.doc"], "x.doc: what kind of table is this?"),
        (["--queries", "q.csv", "--out", "x.csv", "--format", "json"], "--format is that of standard output"),
        (["--queries", "q.csv"], "q.csv: cannot be read (No such file or directory)"),
        (["--queries", "here.csv", "--out", "nowhere/x.csv"], "cannot write nowhere/x.csv: No such file or directory"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit(folder: Path, tmp_path: Path, options: list[str], message: str) -> None:
    write(tmp_path / "here.csv", RING)
    done = command("predict", folder, *options, cwd=tmp_path)
    assert done.returncode != 0
    assert message in one_line(done.stderr)


def test_what_was_left_out_is_told(folder: Path, tmp_path: Path) -> None:
    rows: list[Query] = [*RING, ("x", "plus1", None)]
    queries = write(tmp_path / "q.csv", rows)
    done = command("predict", folder, "--queries", queries, "--skip-unknown", "-k", "1")
    assert (
        one_line(done.stderr) == f"eans: 3 answers to 3 queries; 1 left out, the first: {queries}:5: unknown entity 'x'"
    )
    assert len(done.stdout.splitlines()) == 4
