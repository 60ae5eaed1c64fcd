"""Folders of LibKGE: ``dataset.yaml``, which names the files of triples and of names, and those, ``*.del``.

Files have tabs between columns and no first line: ``id<TAB>name``, and triples of ids, head, relation, tail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import yaml

from eans.arguments import shown
from eans.data.formats.base import PARTS, Source
from eans.data.formats.numbered import read_names, read_triples, require_count
from eans.errors import DataError
from eans.graph import SPLITS, Split

ABOUT = "dataset.yaml"
NAMES = r"^(?P<id>[0-9]{1,18})\t(?P<name>[^\t]+)$"


def splits(folder: Path) -> dict[Split, Path] | None:
    """The file of each split that a folder of LibKGE has; None for another folder."""
    about = _about(folder)
    if about is None:
        return None
    files = {split: _file(folder, about, split) for split in SPLITS}
    for split, path in files.items():
        if f"files.{split}.filename" in about and not path.is_file():
            raise DataError(f"{folder / ABOUT}: files.{split}.filename is {path.name}, which is not there; restore it")
    return {split: path for split, path in files.items() if path.is_file()}


def read(source: Source) -> Iterator[pa.RecordBatch]:
    """The triples of one of the files that ``dataset.yaml`` names."""
    folder = next((parent for parent in source.path.parents if (parent / ABOUT).is_file()), source.path.parent)
    about = _about(folder) or {}
    entities, relations = (
        read_names(_file(folder, about, f"{kind}_ids"), NAMES, "id<TAB>name", counted=False)
        for kind in ("entity", "relation")
    )
    for key, names in (("num_entities", entities), ("num_relations", relations)):
        if key in about:
            require_count(f"{folder / ABOUT}: {key}", _number(folder, about, key), len(names.array), "names")
    sizes = [f"files.{split}.size" for split in SPLITS if _file(folder, about, split) == source.path]
    said = next(((f"{folder / ABOUT}: {key}", _number(folder, about, key)) for key in sizes if key in about), None)
    yield from read_triples(source, PARTS, entities, relations, counted=False, said=said)


def _about(folder: Path) -> dict[str, Any] | None:
    """What ``dataset.yaml`` says of the dataset, by keys with dots; None where it is not a dataset of LibKGE."""
    path = folder / ABOUT
    if not path.is_file():
        return None
    try:
        found = yaml.safe_load(path.read_bytes())
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DataError(f"{path}:{line}: is not YAML ({error.problem}); correct the line") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise DataError(f"{path}: is not YAML in UTF-8; restore it") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path and its rights") from None
    return _flat(found["dataset"]) if isinstance(found, dict) and isinstance(found.get("dataset"), dict) else None


def _flat(section: Mapping[Any, Any], start: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in section.items():
        flat |= _flat(value, f"{start}{key}.") if isinstance(value, dict) else {f"{start}{key}": value}
    return flat


def _file(folder: Path, about: Mapping[str, Any], what: str) -> Path:
    """The file of a split, or of names: as ``dataset.yaml`` says, or as it is usually called."""
    key = f"files.{what}.filename"
    name = about.get(key, f"{what}.del")
    if not isinstance(name, str) or not name or PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        raise DataError(f"{folder / ABOUT}: {key} is {shown(name)}; give the name of a file in the folder")
    return folder / name


def _number(folder: Path, about: Mapping[str, Any], key: str) -> int:
    value = about[key]
    if isinstance(value, bool) or not isinstance(value, int):
        raise DataError(f"{folder / ABOUT}: {key} is {shown(value)}; give a whole number, or leave it out")
    return value
