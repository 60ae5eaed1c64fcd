"""Databases: DuckDB files through the package duckdb, SQLite files through Python's sqlite3. Both are opened to read.

Columns are found by their names (head, relation, tail; subject, predicate, object; ...), or are the only three; a
``weight`` and a ``time`` are taken beside them. Without a query, the one table or view with such columns is read. Ids
follow the order of rows: a query with ``order by`` gives the same ids after the database was written anew.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from eans.data.formats.base import OPTIONAL, PARTS, Source
from eans.errors import DataError, UsageError
from eans.labelled import NAMES
from eans.vocabulary import LABELS

SUFFIXES = (".duckdb", ".db", ".sqlite", ".sqlite3")
ROWS = 65536
MISSING = "rows with NULL or an empty text"

_SQLITE = b"SQLite format 3\0"
_DUCKDB = b"DUCK"  # from byte 8
_TABLES = {
    True: "select '', name from sqlite_master where type in ('table', 'view') and substr(name, 1, 7) <> 'sqlite_'",
    False: "select table_schema, table_name from information_schema.tables",
}

Places = dict[str, int]


def read(source: Source) -> Iterator[pa.RecordBatch]:
    """The rows of ``source.options.query``, or of the only table that has fitting columns."""
    path, asked = source.path, source.options.columns
    with _opened(path) as connection:
        query = source.options.query
        query = _table(connection, path, asked) if query is None else query.strip().rstrip("; \n")
        names = _columns(connection, query)
        places = _places(names, asked, positional=False) or _places(names, asked, positional=True)
        if places is None:
            raise DataError(
                f"{path}: which columns are head, relation and tail? there are {', '.join(names)}; "
                "select three in this order, or give columns of these names"
            )
        places = {part: places[part] for part in (*PARTS, *OPTIONAL) if part in places}
        chosen = ", ".join(f"cast(c{at} as text)" if part in PARTS else f"c{at}" for part, at in places.items())
        columns = ", ".join(f"c{at}" for at in range(len(names)))
        rows = _rows(connection, f"with r({columns}) as (\n{query}\n) select {chosen} from r")
        yield from _batches(rows, list(places), source)


def _opened(path: Path) -> Any:
    """A connection that can only read, within which errors of the database are `DataError`s."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_SQLITE))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path and its rights") from None
    if start == _SQLITE:
        return _connected(path, sqlite3, sqlite3.connect, f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)
    if start[8:12] != _DUCKDB:
        raise DataError(f"{path}: is neither a DuckDB nor an SQLite database; if it is compressed, decompress it")
    try:
        import duckdb
    except ImportError:
        raise UsageError("DuckDB files need duckdb, which the extra 'sql' brings: pip install 'eans[sql]'") from None
    # One thread: rows come in the same order each time. A name in a query is a table, never a variable of Python.
    config = {"threads": 1, "python_enable_replacements": False}
    return _connected(path, duckdb, duckdb.connect, str(path), read_only=True, config=config)


@contextmanager
def _connected(path: Path, module: Any, connect: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
    connection = None
    try:
        connection = connect(*args, **kwargs)
        yield connection
    except (module.Error, pa.ArrowException) as error:
        raise DataError(f"{path}: {str(error).splitlines()[0]}; correct the query or the database") from None
    finally:
        if connection is not None:
            connection.close()


def _columns(connection: Any, query: str) -> list[str]:
    """The names of a query's columns. As part of another query it must be a single one, and one that selects."""
    return [column[0] for column in connection.execute(f"select * from (\n{query}\n) limit 0").description]


def _table(connection: Any, path: Path, asked: Mapping[str, str]) -> str:
    """A query for the only table whose columns have the usual names, or else for the only one with three columns."""
    tables = connection.execute(_TABLES[isinstance(connection, sqlite3.Connection)]).fetchall()
    found = {}
    for names in sorted(tables):
        table = ".".join('"' + name.replace('"', '""') + '"' for name in names if name)
        found[table] = _columns(connection, f"select * from {table}")
    if not found:
        raise DataError(f"{path}: has no tables; is it the right file?")
    for positional in (False, True):
        fitting = [table for table, columns in found.items() if _places(columns, asked, positional) is not None]
        if len(fitting) == 1:
            return f"select * from {fitting[0]}"
        if fitting:
            break
    what = "several tables have" if fitting else "no table has"
    listed = "; ".join(f"{table} ({', '.join(columns)})" for table, columns in found.items())
    raise DataError(f"{path}: {what} columns head, relation and tail; say which in a query. Tables: {listed}")


def _places(names: Sequence[str], asked: Mapping[str, str], positional: bool) -> Places | None:
    """Where the parts of a triple are among columns, weight and time among them if they are there.

    Parts are found as `asked`, by name or by number from 1; the others by their usual names, or, if `positional`, as
    the only columns that are left.
    """
    lowered = [name.strip().lower() for name in names]
    known = {name: at for at, name in enumerate(lowered) if lowered.count(name) == 1}
    known |= {str(at + 1): at for at in range(len(names)) if str(at + 1) not in known}
    wanted = {part: part for part in OPTIONAL if part in known} | {part: asked[part].strip().lower() for part in asked}
    if not known.keys() >= set(wanted.values()):
        return None
    places = {part: known[name] for part, name in wanted.items()}
    left = [part for part in PARTS if part not in places]
    if positional:
        free = [at for at in range(len(names)) if at not in places.values()]
        return dict(zip(left, free, strict=True)) | places if len(free) == len(left) else None
    for group in NAMES:
        usual = dict(zip(PARTS, group, strict=True))
        if all(usual[part] in known for part in left):
            return {part: known[usual[part]] for part in left} | places
    return None


def _rows(connection: Any, query: str) -> Iterator[list[pa.Array]]:
    """Blocks of rows as columns."""
    if not isinstance(connection, sqlite3.Connection):
        yield from (batch.columns for batch in connection.sql(query).to_arrow_reader(ROWS))
        return
    cursor = connection.execute(query)
    types: list[pa.DataType | None] = [None] * len(cursor.description)
    while rows := cursor.fetchmany(ROWS):
        columns = [pa.array([row[at] for row in rows], known) for at, known in enumerate(types)]
        types = [column.type for column in columns]
        yield columns


def _batches(blocks: Iterator[list[pa.Array]], parts: Sequence[str], source: Source) -> Iterator[pa.RecordBatch]:
    kept = seen = dropped = 0
    first = ""
    for columns in blocks:
        casts = {**dict.fromkeys(PARTS, LABELS), "weight": pa.float64()}
        columns = [column.cast(casts.get(part, column.type)) for part, column in zip(parts, columns, strict=True)]
        whole = [pc.fill_null(pc.not_equal(column, ""), False) for column in columns if column.type == LABELS]
        whole += [column.is_valid() for column in columns]
        keep = functools.reduce(pc.and_, whole)
        batch = pa.RecordBatch.from_arrays(columns, list(parts)).filter(keep)
        if not dropped and len(batch) < len(keep):
            first = f"{source.path}: row {seen + pc.index(keep, False).as_py() + 1}"
        kept, seen, dropped = kept + len(batch), seen + len(keep), dropped + len(keep) - len(batch)
        yield batch
    if dropped:
        source.drop(MISSING, dropped, first)
    if not kept:
        raise DataError(f"{source.path}: the query gives no rows" + (" without NULL" if dropped else ""))
