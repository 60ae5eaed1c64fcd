"""Readable names from label files: lines ``id<TAB>name``, or ``id,name`` in a ``.csv`` file, perhaps compressed."""

from __future__ import annotations

import gzip
import io
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from eans.arguments import several
from eans.data.findings import Finding, be, brief, many
from eans.errors import DataError, EansWarning
from eans.files import as_path
from eans.graph import KnowledgeGraph
from eans.vocabulary import LABELS, indices

# A first line of two of these, whose first is no label of the graph, is a header.
HEADER = ({"id", "entity", "label", "key", "iri", "uri"}, {"name", "label", "title", "text", "description"})

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


def name_graph(
    graph: KnowledgeGraph,
    files: str | Path | Sequence[str | Path],
    report: Callable[[Finding], None] | None = None,
) -> KnowledgeGraph:
    """The graph with the readable names in one label file or several; of several names for one id the first is taken.

    Args:
        graph: what has the ids, of entities or relations.
        files: the label files.
        report: called with each finding (names for ids that the graph does not have, second names); without it they are
            warnings, `EansWarning`.
    """
    given = [files] if isinstance(files, str | Path) else several("labels", files, "files")
    tables = [_known(graph, as_path(file, "labels file"), report or _warn) for file in given]
    labels, names = (
        pa.concat_arrays([table[column] for table in tables] or [pa.array([], LABELS)]) for column in (0, 1)
    )
    return graph.named(labels, names)


def _known(graph: KnowledgeGraph, path: Path, report: Callable[[Finding], None]) -> tuple[pa.Array, pa.Array]:
    """The labels of a file that the graph has ``[n]``, each once, and their names."""
    labels, names = _read(path)
    known = graph.has_labels(labels)
    first = 1
    if not known[0] and labels[0].as_py().lower() in HEADER[0] and names[0].as_py().lower() in HEADER[1]:
        labels, names, known, first = labels[1:], names[1:], known[1:], 2
    if not known.any():
        swapped = graph.has_labels(names).any()
        fix = "swap the columns to id, name" if swapped else "write lines of id, name"
        raise DataError(f"{path}: has no id of graph '{graph.name}' in {many(len(labels), 'line')}; {fix}")

    def tell(code: str, rows: NDArray[np.bool_], words: str) -> None:
        if count := int(rows.sum()):
            row = int(rows.argmax())
            place = f"{path}:{first + row}"
            message = (
                f"{place}: {many(count, 'name')} {be(count)} left out: {words}, such as {brief(labels[row].as_py())}"
            )
            report(Finding(code, count, place, message))

    tell("unknown-id", ~known, f"for ids that graph '{graph.name}' does not have")
    again = indices(labels, labels) < np.arange(len(labels))
    tell("second-name", again & known, "for ids that have one on an earlier line")
    keep = pa.array(known & ~again)
    return labels.filter(keep), names.filter(keep)


def _warn(finding: Finding) -> None:
    warnings.warn(finding.message, EansWarning, stacklevel=4)


def _read(path: Path) -> tuple[pa.Array, pa.Array]:
    """Ids and names, ``[n]`` each, n at least 1, a line each."""
    content = _content(path)
    comma = path.suffixes[-1:] == [".csv"] or path.suffixes[-2:] == [".csv", ".gz"]
    wrong: list[csv.InvalidRow] = []

    def stop(row: csv.InvalidRow) -> str:
        wrong.append(row)
        return "error"

    parse = csv.ParseOptions(
        delimiter="," if comma else "\t", quote_char='"' if comma else False, ignore_empty_lines=False,
        invalid_row_handler=stop,
    )  # fmt: skip
    read = csv.ReadOptions(column_names=["id", "name"], use_threads=False)
    convert = csv.ConvertOptions(column_types={"id": LABELS, "name": LABELS})
    try:
        table = csv.read_csv(io.BytesIO(content), read, parse, convert)
    except pa.ArrowInvalid as error:
        if not wrong:
            raise DataError(f"{path}: cannot be read ({str(error).splitlines()[0]}); correct the file") from None
        columns = f"expected 2 columns id{',' if comma else '<TAB>'}name, found {wrong[0].actual_columns}"
        raise DataError(f"{path}:{wrong[0].number}: {columns}; keep these two") from None
    return table["id"].combine_chunks(), table["name"].combine_chunks()


def _content(path: Path) -> bytes:
    """A file's bytes, decompressed, in UTF-8, with at least one line."""
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if content.startswith(_GZIP) else content
        content = content.removeprefix(_BOM).rstrip(b"\r\n")
        content.decode()
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise DataError(f"{path}: the gzip data is damaged; compress or download the file again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path and its rights") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}:{line}: not valid UTF-8; convert the file to UTF-8") from None
    if not content:
        raise DataError(f"{path}: the file is empty; write lines of id, name")
    return content
