"""What tests of several folders use: a random graph, and watches over what PyTorch does."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from eans.graph import KnowledgeGraph, Vocabulary


def random_graph(entities: int = 12, relations: int = 3, sizes: tuple[int, int, int] = (40, 10, 10), seed: int = 0):
    """Triples drawn at random, duplicates and loops included; entity i is called ``e<i>``, relation i ``r<i>``."""
    generator = torch.Generator().manual_seed(seed)

    def triples(size: int) -> torch.Tensor:
        ends = torch.randint(entities, (size, 2), generator=generator)
        return torch.stack([ends[:, 0], torch.randint(relations, (size,), generator=generator), ends[:, 1]], 1)

    return KnowledgeGraph(
        "tiny",
        Vocabulary(f"e{i}" for i in range(entities)),
        Vocabulary((f"r{i}" for i in range(relations)), "relation"),
        *(triples(size) for size in sizes),
    )


class Meter(TorchDispatchMode):
    """While active: the largest tensor made (elements), and the peak of memory newly held by tensors (bytes)."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.peak = 0
        self.live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.before: dict[int, StorageWeakRef] = {}  # a weak reference keeps the id from being used again

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.live and storage._cdata not in self.before:
                    self.before[storage._cdata] = StorageWeakRef(storage)
        out = func(*args, **(kwargs or {}))
        self.live = {key: entry for key, entry in self.live.items() if not entry[0].expired()}
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.before:
                    self.largest = max(self.largest, storage.nbytes() // tensor.element_size())
                    self.live[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.peak = max(self.peak, sum(size for _, size in self.live.values()))
        return out


# Operations after which a GPU is waited for: a number comes back, or a shape depends on the values.
WAITING = {
    *("_local_scalar_dense", "nonzero", "masked_select", "repeat_interleave", "bincount", "equal"),
    *("_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"),
}


class NoWaiting(TorchDispatchMode):
    """While active: an error where a GPU would be waited for. A CPU thus tells what may be recorded as a CUDA graph."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        masks = name in ("index", "index_put", "index_put_") and any(
            place is not None and place.dtype in (torch.bool, torch.uint8) for place in args[1]
        )
        assert name not in WAITING, f"{name} would wait for a GPU"
        assert not masks, f"{name} by a mask would wait for a GPU"
        return func(*args, **(kwargs or {}))
