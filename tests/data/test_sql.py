"""Databases read back as they were written; what cannot be read is one line."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings

from eans.data.formats import sql
from eans.data.formats.base import ReadOptions
from eans.errors import DataError, UsageError
from helpers_formats import PlainFile, Triple, batches_of, graphs, message_of, triples_of

Make = Callable[..., Path]


@pytest.fixture(params=["sqlite", "duckdb"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes a database of statements, and of rows of a table t."""

    def made(
        *statements: str, rows: list[Any] | None = None, columns: str = "head text, relation text, tail text"
    ) -> Path:
        path = tmp_path / f"g.{request.param}"
        path.unlink(missing_ok=True)
        connection: Any = sqlite3.connect(path) if request.param == "sqlite" else duckdb.connect(str(path))
        if rows is not None:
            connection.execute(f"create table t ({columns})")
            connection.executemany(f"insert into t values ({', '.join('?' * len(rows[0]))})", rows)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()
        return path

    return made


MANY = """create table t as with recursive n(i) as (select 0 union all select i + 1 from n where i < 4999)
select 'e' || i as head, 'r' as relation, 'e' || (i * 7 % 5000) as tail from n"""
ROWS = [("a", "r", "b"), ("b", "r", "c"), ("c", "s", "a")]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10, deadline=None)
@given(triples=graphs())
def test_round_trip(make: Make, triples: list[Triple]) -> None:
    assert triples_of(sql.read, make(rows=triples)) == triples


def test_many_batches_are_in_order(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "ROWS", 2048)
    triples = [(f"e{n}", "r", f"e{n * 7 % 5000}") for n in range(5000)]
    path = make(MANY)
    assert len(batches_of(sql.read, PlainFile(path))) >= 2
    assert triples_of(sql.read, path) == triples


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select tail, relation, head from t", ROWS),
        ("select tail as a, relation as b, head as c from t;", [(t, r, h) for h, r, t in ROWS]),
        ("select head, relation, head from t -- twice", [(h, r, h) for h, r, _ in ROWS]),
        ("with u as (select * from t) select head S, relation P, tail O from u order by head desc ; \n", ROWS[::-1]),
        ("select 1 as h, 2.5 as r, 3 as t", [("1", "2.5", "3")]),
    ],
)
def test_queries(make: Make, query: str, expected: list[Triple]) -> None:
    assert triples_of(sql.read, make(rows=ROWS), query=query) == expected


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, ("h", "r", "t")),
        ({"head": "t", "tail": "h", "relation": "R"}, ("t", "r", "h")),
        ({"head": "3", "tail": "1"}, ("t", "r", "h")),
        ({"weight": "score"}, ("h", "r", "t")),
    ],
)
def test_columns_by_name_and_number(make: Make, columns: dict[str, str], expected: Triple) -> None:
    path = make(rows=[("h", "r", "t", 0.5)], columns="h text, r text, t text, score real")
    source = PlainFile(path, ReadOptions(columns=columns, query="select * from t"))
    (batch,) = batches_of(sql.read, source)
    assert tuple(column[0].as_py() for column in batch.columns[:3]) == expected
    assert batch.schema.names[3:] == list(columns)[: "weight" in columns]


def test_weight_and_time(make: Make) -> None:
    path = make(
        rows=[("a", "r", "b", 1, 2020), ("a", "r", "c", 2, 2021), ("a", "r", "d", None, 2022)],
        columns="s text, p text, o text, weight integer, time integer",
    )
    source = PlainFile(path)
    (batch,) = batches_of(sql.read, source)
    assert batch.schema.names == ["head", "relation", "tail", "weight", "time"]
    assert batch["weight"].to_pylist() == [1.0, 2.0]
    assert str(batch.schema.field("weight").type) == "double"
    assert batch["time"].to_pylist() == [2020, 2021]
    assert source.counts == {sql.MISSING: 1}


def test_rows_that_lack_something_are_counted(make: Make) -> None:
    rows = [("a", "r", "b"), (None, "r", "b"), ("a", "", "b"), ("a", "r", "c")]
    source = PlainFile(make(rows=rows))
    assert [len(batch) for batch in batches_of(sql.read, source)] == [2]
    assert source.counts == {sql.MISSING: 2}
    assert source.dropped[sql.MISSING].example == f"{source.path}: row 2"


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        (("create table u (a int, b int)",), ROWS),
        (("create table u (a int, b int, c int)", "create table v (x text, y text, z text)"), ROWS),
        (('alter table t rename to "a \'quoted\' ""name"',), ROWS),
        (("create view u as select relation as what from t",), ROWS),
    ],
)
def test_the_only_table_that_fits_is_read(make: Make, others: tuple[str, ...], expected: list[Triple]) -> None:
    assert triples_of(sql.read, make(*others, rows=ROWS)) == expected


def test_a_table_of_three_columns_is_read_by_position(make: Make) -> None:
    path = make("create table u (a int, b int)", rows=ROWS, columns="x text, y text, z text")
    assert triples_of(sql.read, path) == ROWS


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("create table u (subject text, predicate text, object text)", "several tables have columns head"),
        ("alter table t rename column head to one", ""),
        ("alter table t add column more text", ""),
    ],
)
def test_tables_are_listed_where_none_is_meant(make: Make, statement: str, expected: str) -> None:
    path = make("create table other (a int, b int)", statement, rows=ROWS)
    if not expected:
        assert triples_of(sql.read, path) == ROWS
        return
    message = message_of(lambda: triples_of(sql.read, path))
    assert message.startswith(f"{path}: {expected}")
    assert 't" (head, relation, tail)' in message
    assert 'u" (subject, predicate, object)' in message


def test_no_table_fits(make: Make) -> None:
    path = make("create table u (a int, b int)")
    message = message_of(lambda: triples_of(sql.read, path))
    assert "no table has columns head, relation and tail; say which in a query. Tables: " in message
    assert 'u" (a, b)' in message
    path = make("create table u (a int)", "drop table u")
    assert message_of(lambda: triples_of(sql.read, path)) == f"{path}: has no tables; is it the right file?"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("selct head from t", "syntax error"),
        ("", "syntax error"),
        ("select head, relation, tial from t", "tial"),
        ("select * from nothing", "nothing"),
        ("select head, relation from t", "which columns are head, relation and tail? there are head, relation; select"),
        ("select * from t where head = 'x'", "the query gives no rows"),
        ("select null, null, null", "the query gives no rows without NULL"),
        ("delete from t", "syntax error"),
        ("drop table t", "syntax error"),
        ("select head, relation, tail, 'much' as weight from t", "'much'"),
    ],
)
def test_a_wrong_query_is_one_line(make: Make, query: str, expected: str) -> None:
    path = make(rows=ROWS)
    message = message_of(lambda: triples_of(sql.read, path, query=query))
    assert message.startswith(f"{path}: ")
    assert expected in message


def test_nothing_is_written(make: Make) -> None:
    path = make(rows=ROWS)
    before = path.read_bytes()
    path.chmod(0o444)
    assert triples_of(sql.read, path) == ROWS
    for attack in ("select 1) limit 0; drop table t; select * from (select 1", "select * from t; drop table t"):
        message_of(lambda attack=attack: triples_of(sql.read, path, query=attack))
    assert path.read_bytes() == before
    assert [other.name for other in path.parent.iterdir()] == [path.name]


def test_a_name_in_a_query_is_no_variable_of_python(tmp_path: Path) -> None:
    path = tmp_path / "g.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("create table t as select 'a' head, 'r' relation, 'b' tail")
    assert "names does not exist" in message_of(lambda: triples_of(sql.read, path, query="select * from names"))


def test_broken_files(make: Make) -> None:
    path = make(MANY)
    whole = path.read_bytes()
    failed = 0
    for number, content in enumerate(cuts(whole)):
        path = path.with_name(f"{number}{path.suffix}")
        path.write_bytes(content)
        try:
            triples_of(sql.read, path)
        except DataError:
            failed += 1
            assert message_of(lambda path=path: triples_of(sql.read, path)).startswith(f"{path}: ")
    assert failed > 8
    missing = path.with_name("missing.db")
    assert "No such file" in message_of(lambda: triples_of(sql.read, missing))
    assert not missing.exists()
    assert "Is a directory" in message_of(lambda: triples_of(sql.read, path.parent))


def cuts(whole: bytes) -> list[bytes]:
    others = [b"", b"\0" * 5000, b"\xff" * 100, whole[:16], b"SQLite format 3\0" + b"\xff" * 5000, whole[:8] + b"DUCK"]
    return [*others, *(whole[: len(whole) * part // 8] for part in range(1, 8))]


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table t (head, relation, tail)")
        connection.execute("insert into t values (cast(x'ff' as text), 'r', 'b')")
    connection.close()
    assert "Could not decode to UTF-8" in message_of(lambda: triples_of(sql.read, path))


def test_without_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "g.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute("create table t as select 'a' head, 'r' relation, 'b' tail")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(UsageError, match=r"pip install 'eans\[sql\]'"):
        list(sql.read(PlainFile(path)))
