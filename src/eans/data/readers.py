"""Read a folder or a file of triples, in any of the `eans.data.formats`, into a `KnowledgeGraph`.

A folder holds ``train``, ``valid`` and ``test``, each as ``.txt`` or ``.tsv`` with one ``head<TAB>relation<TAB>tail`` a
line, or in another format, and packed or not. ``entities.dict`` and ``relations.dict`` (``id<TAB>label``) are optional
and fix the ids; without them ids follow the order of first appearance over train, valid, test.

Every mistake in a file is a `DataError` of one line, ``path:line: what is wrong; how to mend it``.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import torch
from torch import Tensor

from eans.arguments import choice
from eans.data.collecting import Names, collect
from eans.data.dicts import read_dict
from eans.data.findings import Finding
from eans.data.formats import FOLDERS, FORMATS, TEXT, folder_splits, named_as_file, stem_of
from eans.data.formats.base import ReadOptions
from eans.data.formats.source import BUFFER, PACKED, STDIN, FileSource, problems_of
from eans.errors import DataError
from eans.files import path_text
from eans.graph import SPLITS, KnowledgeGraph, Split
from eans.numbering import Numbering

DICT_SUFFIXES = (".dict", ".dict.gz")
FIRST, OTHERS = (  # text is taken before anything else
    tuple(suffix + packed for packed in ("", *PACKED) for suffix in suffixes)
    for suffixes in (TEXT, [suffix for found in FORMATS.values() for suffix in found.suffixes if suffix not in TEXT])
)
DESCRIBED = next(iter(FOLDERS))  # says where the triples are; other programs leave their files beside train.txt
Report = Callable[[Finding], None]


def _refuse(finding: Finding) -> None:
    raise DataError(f"{finding.message}; delete it from the file")


def load_folder(
    path: str | Path,
    *,
    require: Collection[Split] = SPLITS,
    name: str | None = None,
    use_dicts: bool = True,
    options: ReadOptions | None = None,
    report: Report = _refuse,
) -> KnowledgeGraph:
    """Read the graph in the folder `path`.

    Args:
        path: the folder.
        require: the splits that must be there. Another split is read when present and empty otherwise; train is
            always needed.
        name: what to call the graph; the folder's name by default.
        use_dicts: whether ``entities.dict`` and ``relations.dict`` fix the ids when present.
        options: how to read the files.
        report: told what was left out; without it that is an error.
    """
    return read_folder(Path(path), require, name, use_dicts, options or ReadOptions(), report)[0]


def read_folder(
    folder: Path, require: Collection[Split], name: str | None, use_dicts: bool, options: ReadOptions, report: Report
) -> tuple[KnowledgeGraph, dict[Split, FileSource]]:
    """`load_folder`, and what its splits were read from."""
    for split in require:
        choice("split", split, SPLITS)
    files, made_by = splits_of(folder)
    for split in SPLITS:  # before reading anything: a missing file should not cost a long read first
        if split not in files and (split in require or split == "train"):
            raise missing_split(folder, split)
    entities = _names(folder, "entities", "entity", use_dicts and not made_by, report)
    relations = _names(folder, "relations", "relation", use_dicts and not made_by, report)
    sources = {split: FileSource(path, options, strict=True, format=made_by) for split, path in files.items()}
    graph = _graph(name or path_text(folder.resolve().name), sources, entities, relations, report)
    return graph, sources


def read_file(path: Path, options: ReadOptions, report: Report) -> tuple[KnowledgeGraph, dict[Split, FileSource]]:
    """The graph in one file, or from standard input (``-``): all of it is train."""
    refuse_recipe(path)
    source = FileSource.of(path, options)
    name = "stdin" if str(path) == STDIN else path_text(stem_of(path))
    names = Names(Numbering("entity")), Names(Numbering("relation"))
    return _graph(name, {"train": source}, *names, report), {"train": source}


def _graph(
    name: str, sources: Mapping[Split, FileSource], entities: Names, relations: Names, report: Report
) -> KnowledgeGraph:
    parts = {split: collect(source, entities, relations) for split, source in sources.items()}
    for source in sources.values():
        tell_dropped(source, report)
    # The vocabularies first: they give back memory, which the triples need.
    vocabularies = entities.numbering.vocabulary(), relations.numbering.vocabulary()
    nothing = torch.empty(0, 3, dtype=torch.int64)
    graph = KnowledgeGraph(
        name,
        *vocabularies,
        *(parts[split].ids.tensor() if split in parts else nothing for split in SPLITS),
        weights=parts["train"].weights,
        times=parts["train"].times,
    )
    prefixes = {prefix: start for source in sources.values() for prefix, start in source.prefixes.items()}
    return _with_short_names(graph, prefixes) if prefixes else graph


def _with_short_names(graph: KnowledgeGraph, prefixes: Mapping[str, str]) -> KnowledgeGraph:
    """The graph of RDF documents, whose IRIs are shown as their prefixes have them."""
    from eans.data.formats.rdf import short_names

    arrays = graph.entities.array, graph.relations.array
    return graph.with_names({iri: name for array in arrays for iri, name in short_names(array, prefixes).items()})


def tell_dropped(source: FileSource, report: Report) -> None:
    """Report what was left out of a source, each reason with its first example."""
    for dropped in source.dropped.values():
        message = f"{dropped.example}: {dropped.reason}: {dropped.count:,} left out"
        report(Finding("left-out", dropped.count, dropped.example, message))


def refuse_recipe(path: Path) -> None:
    """Raise for what is no graph although one is asked for."""
    if path.suffix == ".toml":
        raise DataError(f"{path}: is a TOML file, not a folder with a graph; a recipe is given without --data")


def find_splits(folder: Path) -> dict[Split, Path]:
    """The file of each split that `folder` holds; two files for one split are an error."""
    return splits_of(folder)[0]


def splits_of(folder: Path) -> tuple[dict[Split, Path], str]:
    """The same, and the format if another program made the folder."""
    with problems_of(folder, None):
        if folder.is_symlink() and not folder.exists():
            raise DataError(f"{folder}: {_what_else(folder)}; correct the link")
        if not folder.exists():
            raise DataError(f"{folder}: no such {'file' if named_as_file(folder) else 'folder'}; check the path")
        if not folder.is_dir():
            refuse_recipe(folder)
            raise DataError(f"{folder}: is a file; give the folder that holds it, with a train file")
        found = {split: _find(folder, split, FIRST) or _find(folder, split, OTHERS) for split in SPLITS}
        if found["train"] is None or (folder / DESCRIBED).is_file():
            of_another = folder_splits(folder)
            if of_another is not None:
                return of_another[1], of_another[0]
    return {split: path for split, path in found.items() if path is not None}, ""


def read_triples(path: Path, graph: KnowledgeGraph, report: Report = _refuse) -> Tensor:
    """The triples ``[n, 3]`` of one file by the ids of a graph; it must have all labels."""
    known = (
        Names(Numbering(vocabulary.kind, vocabulary.array), vocabulary=vocabulary)
        for vocabulary in (graph.entities, graph.relations)
    )
    source = FileSource.of(path, ReadOptions())
    triples = collect(source, *known).ids.tensor()
    tell_dropped(source, report)
    return triples


def missing_split(folder: Path, split: Split) -> DataError:
    """The error for a folder without `split`."""
    names = ", ".join(split + suffix for suffix in (*TEXT, ".csv", ".parquet", ".jsonl", ".nt"))
    return DataError(f"{folder}: the {split} split is missing; looked for {names}, ..., also {', '.join(PACKED)}")


def text_sha256(path: Path) -> str:
    """SHA-256 of the decompressed file with its line ends turned into LF."""
    digest = hashlib.sha256()
    with FileSource(path).open() as stream:
        held = b""  # a CR at the end of a block waits for the LF that may open the next one
        while block := stream.read(BUFFER):
            block = held + block
            held = b"\r" if block.endswith(b"\r") else b""
            digest.update(block[: len(block) - len(held)].replace(b"\r\n", b"\n"))
        digest.update(held)
    return digest.hexdigest()


def _names(folder: Path, stem: str, kind: str, use_dicts: bool, report: Report) -> Names:
    with problems_of(folder, None):
        path = _find(folder, stem, DICT_SUFFIXES) if use_dicts else None
    if path is None:
        return Names(Numbering(kind))
    source = FileSource(path)
    labels = read_dict(source, kind)
    tell_dropped(source, report)
    return Names(Numbering(kind, labels), file=path)


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
