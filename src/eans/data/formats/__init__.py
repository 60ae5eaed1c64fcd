"""Formats of graphs on disk: one module each, found by file name or by what a file begins with.

A new format is a module with `read` (see `eans.data.formats.base`) and a line in `FORMATS`; one that is a folder is a
module with `splits` as well, and a line in `FOLDERS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from eans.data.formats.source import PACKED, FileSource
from eans.graph import Split

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Format:
    """How files of a format are known.

    Attributes:
        suffixes: of file names, in small letters; one of `PACKED` may follow.
        starts: what the first bytes are, one of these.
        at: where these bytes are.
    """

    suffixes: tuple[str, ...]
    starts: tuple[bytes, ...] = ()
    at: int = 0


TEXT = (".txt", ".tsv")
FORMATS = {
    "delimited": Format((*TEXT, ".csv", ".psv", ".tab")),
    "columnar": Format((".parquet", ".pq", ".arrow", ".feather", ".ipc"), (b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")),
    "jsonl": Format((".jsonl", ".ndjson", ".json"), (b"{",)),
    "rdf": Format((".nt", ".nq", ".ttl", ".trig", ".rdf", ".owl", ".xml"), (b"@prefix", b"<?xml", b"<rdf:RDF")),
    "sql": Format((".duckdb", ".db", ".sqlite", ".sqlite3"), (b"SQLite format 3\0",)),
}
"""By the name of the module."""
FOLDERS = {"dataset.yaml": "libkge", "train2id.txt": "openke"}
"""The file that tells a folder of another program: the name of the module."""
LONGEST_START = 16


def read(source: FileSource) -> Iterator[pa.RecordBatch]:
    """Batches of labelled triples, as `eans.data.formats.base` says."""
    batches: Iterator[pa.RecordBatch] = import_module(f"{__name__}.{source.format or format_of(source)}").read(source)
    return batches


def format_of(source: FileSource) -> str:
    """The format of a file, by its name, or else by its first bytes."""
    suffix = suffix_of(source.path)
    for name, found in FORMATS.items():
        if suffix in found.suffixes:
            return name
    with source.open() as stream:
        start = stream.read(LONGEST_START)
    for name, found in FORMATS.items():
        if start[found.at :].startswith(found.starts):
            return name
    return "sql" if start[8:12] == b"DUCK" else "delimited"


def suffix_of(path: PurePath) -> str:
    """The suffix that tells the format, in small letters: ``.tsv`` of ``train.tsv.gz``."""
    return PurePath(path.name.lower().removesuffix(_packed(path))).suffix


def named_as_file(path: PurePath) -> bool:
    """Whether a name ends like that of a file in one of the formats, packed or not."""
    return bool(_packed(path)) or any(suffix_of(path) in found.suffixes for found in FORMATS.values())


def stem_of(path: PurePath) -> str:
    """The name of a file without these suffixes."""
    name = path.name[: len(path.name) - len(_packed(path))]
    return name[: len(name) - len(suffix_of(path))] or path.name


def _packed(path: PurePath) -> str:
    suffix = path.suffix.lower()
    return suffix if suffix in PACKED else ""


def folder_splits(folder: Path) -> tuple[str, dict[Split, Path]] | None:
    """The format and the files of a folder that another program made."""
    for marker, name in FOLDERS.items():
        if (folder / marker).is_file():
            found: dict[Split, Path] | None = import_module(f"{__name__}.{name}").splits(folder)
            if found is not None:
                return name, found
    return None
