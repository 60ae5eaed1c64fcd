"""The embeddings of a model, with their labels, as files that other programs read.

=============  ================================================================================
``parquet``    a file for each table: the column ``label``, and a list column for each part
``numpy``      ``embeddings.npz`` with an array ``TABLE_PART`` for each part, ``[rows, width]``;
               ``entities.txt`` and ``relations.txt`` with a label on each line
``word2vec``   ``TABLE.vec`` for each table: the sizes, then a label and its row on each line
=============  ================================================================================

Tables: ``entities``, ``relations``, and where the model has them ``inverse_relations`` and ``substitution``. The parts
of a row are those that the model declares, such as ``re`` and ``im`` of complex numbers. In word2vec's format they
stand one after the other.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from eans.arguments import choice
from eans.files import as_path, atomic_file, make_folder
from eans.graph import KnowledgeGraph, Vocabulary
from eans.models import Model
from eans.models.arguments import require_graph
from eans.vocabulary import bytes_of, joined

Format = Literal["parquet", "numpy", "word2vec"]
FORMATS: tuple[Format, ...] = ("parquet", "numpy", "word2vec")
NUMBERS = 1 << 20  # of a block of rows
SPACE = re.compile(r"[%\s]")


@dataclass(frozen=True)
class Table:
    """Some rows of a model with their labels.

    Attributes:
        name: also that of its file.
        labels: of the rows.
        first: where its rows begin in the model's table.
        parts: names and widths of what a row is made of.
    """

    model: Model
    name: str
    labels: Vocabulary
    first: int
    parts: dict[str, int]

    def blocks(self) -> Iterator[tuple[pa.Array, Tensor]]:
        """Labels ``[b]`` and rows ``[b, sum of widths]``, in order."""
        size = max(1, NUMBERS // sum(self.parts.values()))
        for start in range(0, len(self.labels), size):
            labels = self.labels.array[start : start + size]
            ids = torch.arange(self.first + start, self.first + start + len(labels), device=self.model.entity.device)
            with torch.no_grad():
                rows = self.model.entity_rows(ids)
                if self.name != "entities":
                    rows = self.model.relation_values(self.model.relation_rows(ids))
            yield labels, rows.cpu()


def tables_of(model: Model, graph: KnowledgeGraph, with_substitution: bool) -> list[Table]:
    """What there is to export; the substitution relation only if it was trained."""
    relations, parts = graph.relations, model.relation_parts()
    tables = [
        Table(model, "entities", graph.entities, 0, model.entity_parts()),
        Table(model, "relations", relations, 0, parts),
    ]
    if model.reciprocal:
        tables.append(Table(model, "inverse_relations", relations, len(relations), parts))
    if with_substitution:
        name = Vocabulary(["substitution"], "relation")
        tables.append(Table(model, "substitution", name, model.substitution_relation, parts))
    return tables


def export(
    model: Model, graph: KnowledgeGraph, out: str | Path, format: Format = "parquet", with_substitution: bool = False
) -> list[Path]:
    """Write all tables of a model to a folder, and return the files; see the module for what they hold."""
    require_graph(model, graph)
    format = choice("format", format, FORMATS)
    folder = as_path(out, "out")
    make_folder(folder)
    tables = tables_of(model, graph, with_substitution)
    if format == "numpy":
        return _write_numpy(folder, tables)
    ending, write = ("parquet", _write_parquet) if format == "parquet" else ("vec", _write_word2vec)
    paths = [folder / f"{table.name}.{ending}" for table in tables]
    for table, path in zip(tables, paths, strict=True):
        write(path, table)
    return paths


def _write_parquet(path: Path, table: Table) -> None:
    numbers = pa.from_numpy_dtype(_dtype(table))
    schema = pa.schema([("label", pa.string()), *((name, pa.list_(numbers)) for name in table.parts)])
    with atomic_file(path) as file, pq.ParquetWriter(file, schema) as writer:
        for labels, rows in table.blocks():
            columns = [labels.cast(pa.string())]
            for part in torch.split(rows, list(table.parts.values()), dim=1):
                ends = pa.array(np.arange(0, part.numel() + 1, part.shape[1], dtype=np.int32))
                columns.append(pa.ListArray.from_arrays(ends, pa.array(part.reshape(-1).numpy())))
            writer.write_table(pa.table(columns, schema=schema))


def _write_numpy(folder: Path, tables: list[Table]) -> list[Path]:
    paths = [folder / "embeddings.npz", *(folder / f"{table.name}.txt" for table in tables[:2])]
    with atomic_file(paths[0]) as file, zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for table in tables:
            start = 0
            for name, width in table.parts.items():
                shape = (len(table.labels), width)
                with archive.open(f"{table.name}_{name}.npy", "w", force_zip64=True) as array:
                    header = {"descr": _dtype(table).str, "fortran_order": False, "shape": shape}
                    np.lib.format.write_array_header_1_0(array, header)
                    for _, rows in table.blocks():
                        array.write(rows[:, start : start + width].contiguous().numpy().tobytes())
                start += width
    for path, table in zip(paths[1:], tables, strict=False):
        with atomic_file(path) as file:
            for labels, _ in table.blocks():
                file.write(bytes_of(joined("\n", labels, "")))
    return paths


def _write_word2vec(path: Path, table: Table) -> None:
    """White space, and ``%``, in labels as in URLs: ``urllib.parse.unquote`` makes labels of them again."""
    with atomic_file(path) as file:
        file.write(f"{len(table.labels)} {sum(table.parts.values())}\n".encode())
        for labels, rows in table.blocks():
            ends = pa.array(np.arange(0, rows.numel() + 1, rows.shape[1], dtype=np.int32))
            numbers = pa.array(rows.reshape(-1).numpy()).cast(pa.string())
            texts = pc.binary_join(pa.ListArray.from_arrays(ends, numbers), " ").to_pylist()
            words = (SPACE.sub(lambda found: quote(found[0]), label) for label in labels.to_pylist())
            file.write("".join(f"{word} {text}\n" for word, text in zip(words, texts, strict=True)).encode())


def _dtype(table: Table) -> np.dtype[np.generic]:
    return table.model.entity.detach()[:0].cpu().numpy().dtype
