"""Folders of OpenKE: ``train2id.txt``, ``valid2id.txt``, ``test2id.txt``, ``entity2id.txt``, ``relation2id.txt``.

The first line of each is how many follow. Triples are ids in the order head, tail, relation; names are
``name<TAB>id``, or with a space before the id.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from eans.data.formats.base import Source
from eans.data.formats.numbered import read_names, read_triples
from eans.graph import SPLITS, Split

ORDER = ("head", "tail", "relation")
NAMES = r"^(?P<name>[^\t]*[^\t ])[\t ]+(?P<id>[0-9]{1,18})\s*$"


def splits(folder: Path) -> dict[Split, Path] | None:
    """The file of each split that a folder of OpenKE has; None for another folder."""
    if not (folder / "train2id.txt").is_file():  # others have an entity2id.txt beside triples of labels
        return None
    files = {split: folder / f"{split}2id.txt" for split in SPLITS}
    return {split: path for split, path in files.items() if path.is_file()}


def read(source: Source) -> Iterator[pa.RecordBatch]:
    """The triples of one of the splits."""
    entities, relations = (
        read_names(source.path.parent / f"{kind}2id.txt", NAMES, f"the name and the id of one {kind}", counted=True)
        for kind in ("entity", "relation")
    )
    return read_triples(source, ORDER, entities, relations, counted=True)
