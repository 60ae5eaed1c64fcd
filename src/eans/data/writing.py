"""Write a graph as a folder of text files, which `load` reads back with the same ids."""

from __future__ import annotations

from pathlib import Path

from eans.errors import UsageError
from eans.files import atomic_write, make_folder
from eans.graph import SPLITS, KnowledgeGraph


def save_folder(graph: KnowledgeGraph, folder: Path) -> None:
    """``train.txt``, ``valid.txt``, ``test.txt``, and ``entities.dict`` and ``relations.dict``, which fix the ids."""
    if graph.weights is not None or len(graph.also_known):
        raise UsageError(f"graph '{graph.name}' has weights or further known triples, which text files cannot hold")
    make_folder(folder)
    for split in SPLITS:
        atomic_write(folder / f"{split}.txt", "".join(graph.text(split)).encode())
    for name, vocabulary in (("entities", graph.entities), ("relations", graph.relations)):
        lines = (f"{index}\t{label}\n" for index, label in enumerate(vocabulary))
        atomic_write(folder / f"{name}.dict", "".join(lines).encode())
