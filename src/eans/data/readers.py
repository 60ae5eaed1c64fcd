"""Read a folder of tab-separated triples into a `KnowledgeGraph`.

The folder holds ``train``, ``valid`` and ``test``, each as ``.txt`` or ``.tsv``, plain or gzip-compressed, with one
``head<TAB>relation<TAB>tail`` a line. ``entities.dict`` and ``relations.dict`` (``id<TAB>label``) are optional and fix
the ids; without them ids follow the order of first appearance over train, valid, test.

Every mistake in a file is a `DataError` of one line, ``path:line: what is wrong; how to mend it``.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import zlib
from array import array
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from eans.arguments import choice
from eans.errors import DataError, did_you_mean
from eans.files import path_text
from eans.graph import SPLITS, KnowledgeGraph, Split, Vocabulary

SUFFIXES = (".txt", ".tsv", ".txt.gz", ".tsv.gz")
DICT_SUFFIXES = (".dict", ".dict.gz")
COLUMNS = ("head", "relation", "tail")
DICT_COLUMNS = ("id", "label")

_BUFFER = 1 << 18
_BOM = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"


def load_folder(
    path: str | Path,
    *,
    require: Collection[Split] = SPLITS,
    name: str | None = None,
    use_dicts: bool = True,
) -> KnowledgeGraph:
    """Read the graph in the folder `path`.

    Args:
        path: the folder.
        require: the splits that must be there. Another split is read when present and empty otherwise; train is
            always needed.
        name: what to call the graph; the folder's name by default.
        use_dicts: whether ``entities.dict`` and ``relations.dict`` fix the ids when present.
    """
    folder = Path(path)
    for split in require:
        choice("split", split, SPLITS)
    files = find_splits(folder)
    for split in SPLITS:  # before reading anything: a missing file should not cost a long read first
        if split not in files and (split in require or split == "train"):
            raise missing_split(folder, split)
    entities = _numbering(folder, "entities", "entity", use_dicts)
    relations = _numbering(folder, "relations", "relation", use_dicts)
    triples = {split: _read_triples(files.get(split), entities, relations) for split in SPLITS}
    return KnowledgeGraph(
        name or path_text(folder.resolve().name),
        entities.vocabulary(),
        relations.vocabulary(),
        *(triples[s] for s in SPLITS),
    )


def find_splits(folder: Path) -> dict[Split, Path]:
    """The file of each split that `folder` holds; two files for one split are an error."""
    with _io_errors(folder):
        if folder.is_symlink() and not folder.exists():
            raise DataError(f"{folder}: {_what_else(folder)}; correct the link")
        if not folder.exists():
            raise DataError(f"{folder}: no such folder; check the path")
        if not folder.is_dir() and folder.suffix == ".toml":
            raise DataError(f"{folder}: is a TOML file, not a folder with a graph; a recipe is given without --data")
        if not folder.is_dir():
            raise DataError(f"{folder}: is a file; give the folder that holds it, with a train file")
        found = {split: _find(folder, split, SUFFIXES) for split in SPLITS}
    return {split: path for split, path in found.items() if path is not None}


def read_triples(path: Path, graph: KnowledgeGraph) -> Tensor:
    """The triples ``[n, 3]`` of one file, plain or gzip-compressed, by the ids of a graph; it must have all labels."""
    return _read_triples(path, _Known(graph.entities), _Known(graph.relations))


def missing_split(folder: Path, split: Split) -> DataError:
    """The error for a folder without `split`."""
    names = ", ".join(split + suffix for suffix in SUFFIXES)
    return DataError(f"{folder}: the {split} split is missing; looked for {names}")


def text_sha256(path: Path) -> str:
    """SHA-256 of the decompressed file with its line ends turned into LF."""
    digest = hashlib.sha256()
    with _io_errors(path), _open(path) as stream:
        held = b""  # a CR at the end of a block waits for the LF that may open the next one
        while block := stream.read(_BUFFER):
            block = held + block
            held = b"\r" if block.endswith(b"\r") else b""
            digest.update(block[: len(block) - len(held)].replace(b"\r\n", b"\n"))
        digest.update(held)
    return digest.hexdigest()


class _RefusedError(Exception):
    """A label that cannot be used; the reader adds the file and the line."""


class _Numbering(dict[bytes, int]):
    """Raw label to id. A label is looked at once, when it is first seen: that keeps the reading loop short."""

    def __init__(self, kind: str, source: Path | None = None) -> None:
        super().__init__()
        self.kind = kind
        self.source = source

    def __missing__(self, label: bytes) -> int:
        text = _decode(label, self.kind)
        if self.source is not None:
            name = self.source.name
            raise _RefusedError(f"{self.kind} {_quote(text)} is not in {name}; add it there or remove {name}")
        return self.setdefault(label, len(self))

    def vocabulary(self) -> Vocabulary:
        """The labels in the order of their ids."""
        return Vocabulary((label.decode() for label in sorted(self, key=self.__getitem__)), self.kind)


class _Known(_Numbering):
    """The numbering of a vocabulary, to which nothing can be added."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary.kind)
        self.labels = vocabulary
        self.update((label.encode(), index) for index, label in enumerate(vocabulary))

    def __missing__(self, label: bytes) -> int:
        text = _decode(label, self.kind)
        raise _RefusedError(f"unknown {self.kind} {_quote(text)}{did_you_mean(text, self.labels)}")


def _decode(label: bytes, what: str) -> str:
    if not label:
        raise _RefusedError(f"empty {what}; give it a label or delete the line")
    try:
        text = label.decode()
    except UnicodeDecodeError:
        raise _RefusedError("not valid UTF-8; convert the file to UTF-8") from None
    if "\r" in text:
        raise _RefusedError("carriage return inside the line; end lines with LF or CRLF")
    return text


def _read_triples(path: Path | None, entities: _Numbering, relations: _Numbering) -> Tensor:
    """The triples ``[n, 3]`` of a file; new labels enter the numberings. No file gives ``[0, 3]``."""
    if path is None:
        return torch.empty(0, 3, dtype=torch.int64)
    flat = array("q")  # 24 bytes a triple, where a list of tuples would take some 170
    for number, line in _lines(path):
        try:
            head, relation, tail = line.split(b"\t")
            flat.extend((entities[head], relations[relation], entities[tail]))
        except (ValueError, _RefusedError) as problem:
            raise DataError(f"{path}:{number}: {_explain(line, COLUMNS, problem)}") from None
    return torch.frombuffer(flat, dtype=torch.int64).reshape(-1, 3)


def _numbering(folder: Path, stem: str, kind: str, use_dicts: bool) -> _Numbering:
    with _io_errors(folder):
        path = _find(folder, stem, DICT_SUFFIXES) if use_dicts else None
    return _Numbering(kind) if path is None else _read_dict(path, kind)


def _read_dict(path: Path, kind: str) -> _Numbering:
    """Read ``id<TAB>label`` lines in any order; the ids must be 0 to n-1, each once."""
    numbering = _Numbering(kind, source=path)
    line_of_id: dict[int, int] = {}
    for number, line in _lines(path):
        where = f"{path}:{number}"
        try:
            field, label = line.split(b"\t")
            text = _decode(label, "label")
            index = _parse_id(_decode(field, "id"), text)
        except (ValueError, _RefusedError) as problem:
            raise DataError(f"{where}: {_explain(line, DICT_COLUMNS, problem)}") from None
        if index in line_of_id:
            raise DataError(f"{where}: id {index} is already used on line {line_of_id[index]}; each id may occur once")
        if label in numbering:
            first = line_of_id[numbering[label]]
            raise DataError(f"{where}: {kind} {_quote(text)} is already on line {first}; each label may occur once")
        line_of_id[index] = number
        numbering[label] = index
    size = len(numbering)
    for index, number in line_of_id.items():
        if index >= size:  # the ids are distinct, so one too large means that another is missing
            gap = next(i for i in range(size) if i not in line_of_id)
            raise DataError(
                f"{path}:{number}: id {index} is out of range for {size} labels and id {gap} is missing; "
                f"number the labels 0 to {size - 1} without gaps"
            )
    return numbering


def _parse_id(field: str, label: str) -> int:
    # Plain digits only: int() would also take "+1", " 1" and "1_0". 18 of them fit 64 bits.
    if field.isascii() and field.removeprefix("-").isdigit() and len(field) <= 18:
        if field.startswith("-"):
            raise _RefusedError(f"id {field} is out of range; ids start at 0")
        return int(field)
    swapped = label.isascii() and label.isdigit()
    fix = "swap the columns to id<TAB>label" if swapped else "write lines as id<TAB>label with ids from 0"
    raise _RefusedError(f"id {_quote(field)} is not an integer; {fix}")


def _explain(line: bytes, columns: tuple[str, ...], problem: Exception) -> str:
    """What is wrong with a line that could not be used; the most basic defect comes first."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        return f"not valid UTF-8 at byte {error.start + 1} of the line; convert the file to UTF-8"
    if "\r" in text:
        return "carriage return inside the line; end lines with LF or CRLF"
    fields = text.split("\t")
    wanted = f"{len(columns)} columns {'<TAB>'.join(columns)}"
    if len(fields) == 1 and (" " in text or "," in text):
        separator = "commas" if "," in text else "spaces"
        return f"expected {wanted}, found 1 (the line has {separator}); columns must be separated by a tab"
    if len(fields) != len(columns):
        return f"expected {wanted}, found {len(fields)}; columns must be separated by a tab"
    if "" in fields:
        return f"empty {columns[fields.index('')]}; fill in the field or delete the line"
    return str(problem)


def _find(folder: Path, stem: str, suffixes: tuple[str, ...]) -> Path | None:
    found = [path for suffix in suffixes if os.path.lexists(path := folder / f"{stem}{suffix}")]
    for path in found:
        if not path.is_file():
            raise DataError(f"{path}: {_what_else(path)}; put a file in its place, or remove it")
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise DataError(f"{folder}: {names} are both present; keep one of them")
    return found[0] if found else None


def _what_else(path: Path) -> str:
    """What stands in the place of a file, or of a folder."""
    if path.is_symlink() and not path.exists():
        return f"is a link to {path.readlink()}, which is not there"
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        return "is a folder"
    return "is a FIFO" if stat.S_ISFIFO(mode) else "is a device or socket"


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines without their ends. Only LF and CRLF end a line; blank lines may stand at the end of the file."""
    blank = 0
    empty = True
    with _io_errors(path), _open(path) as stream:
        for number, line in enumerate(stream, 1):
            if number == 1:
                line = line.removeprefix(_BOM)
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            if not line:
                blank = blank or number
                continue
            if blank:
                raise DataError(f"{path}:{blank}: blank line inside the file; delete it")
            empty = False
            yield number, line
    if empty:
        remedy = "" if path.name.startswith("train") else ", or remove it"
        raise DataError(f"{path}: the file is empty; write at least one line{remedy}")


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    with path.open("rb") as raw:
        if path.suffix == ".gz":
            # GzipFile hands out lines through Python code; a BufferedReader around it does so in C.
            with gzip.GzipFile(fileobj=raw) as packed, io.BufferedReader(packed, _BUFFER) as stream:
                yield stream
        elif raw.peek(2).startswith(_GZIP_MAGIC):
            raise DataError(f"{path}: the file is gzip-compressed; rename it to {path.name}.gz")
        else:
            yield raw


@contextmanager
def _io_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        reason = "truncated" if isinstance(error, EOFError) else "damaged or not gzip"
        raise DataError(f"{path}: the gzip data is {reason}; compress or download the file again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); check the path and its rights") from None


def _quote(text: str, limit: int = 60) -> str:
    """`text` in quotes on one line, cut short: a label may hold line separators and be of any length."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")
