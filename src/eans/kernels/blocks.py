"""Cutting the work of plain PyTorch into blocks, so that no temporary of the size of the whole problem exists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

# Elements of one block's temporary, such as [rows, N, D]. On a CPU a block should stay in cache; a GPU wants fewer
# launches.
BLOCK_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 26}


def blocks(rows: int, elements_per_row: int, device: torch.device) -> Iterator[slice]:
    """``range(rows)`` as slices of about `BLOCK_ELEMENTS` elements, of at least one row each."""
    size = max(1, BLOCK_ELEMENTS.get(device.type, 1 << 18) // max(1, elements_per_row))
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Are all numbers of all tensors finite? No copy is made of any, and a GPU is waited for once.

    The least and the greatest number are NaN where one is.
    """
    ends = [torch.stack(torch.aminmax(tensor.detach())) for tensor in tensors if tensor.numel()]
    return not ends or bool(torch.stack([torch.isfinite(pair).all() for pair in ends]).all())
