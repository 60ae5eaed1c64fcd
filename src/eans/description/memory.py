"""What a run holds in memory, part by part: the tensors and labels that are there, each counted once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from eans.graph import KnowledgeGraph, Vocabulary
from eans.training import Trainer

STATE = ("model", "optimizer", "sampler")  # what a checkpoint has


def held(trainer: Trainer, graph: KnowledgeGraph) -> dict[str, int]:
    """Bytes by part while a run trains, once it has ranked something.

    ``model``, ``optimizer`` and ``sampler`` are the state; ``graph`` is the triples with the indices of those that are
    known, ``batches`` what the stream of batches adds, ``labels`` the names of entities and relations.
    """
    tensors, _ = trainer.state()
    seen: set[int] = set()
    found = {
        part: sum(value.nbytes for name, value in tensors.items() if name.startswith(f"{part}.")) for part in STATE
    }
    for part, owners in (("graph", (graph, graph.known, graph.known_train)), ("batches", (trainer.stream,))):
        found[part] = sum(_bytes(tensor, seen) for tensor in _tensors(owners))
    return found | {"labels": sum(_label_bytes(part) for part in (graph.entities, graph.relations))}


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors that an object of this library, a mapping or a sequence holds."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
    elif type(value).__module__.startswith("eans.") and not isinstance(value, Vocabulary):
        yield from _tensors(getattr(value, "__dict__", {}))


def _bytes(tensor: Tensor, seen: set[int]) -> int:
    """Those of a tensor's storage, unless it was counted before."""
    storage = tensor.untyped_storage()
    if storage.data_ptr() in seen:
        return 0
    seen.add(storage.data_ptr())
    return storage.nbytes()


def _label_bytes(vocabulary: Vocabulary) -> int:
    return int(vocabulary.array.nbytes) + (0 if vocabulary.names is None else int(vocabulary.names.nbytes))
