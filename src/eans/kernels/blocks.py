"""Cutting the work of plain PyTorch into blocks, so that no temporary of the size of the whole problem exists."""

from __future__ import annotations

from collections.abc import Iterator

import torch

# Elements of one block's temporary, such as [rows, N, D]. On a CPU a block should stay in cache; a GPU wants fewer
# launches.
BLOCK_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 26}


def blocks(rows: int, elements_per_row: int, device: torch.device) -> Iterator[slice]:
    """``range(rows)`` as slices of about `BLOCK_ELEMENTS` elements, of at least one row each."""
    size = max(1, BLOCK_ELEMENTS.get(device.type, 1 << 18) // max(1, elements_per_row))
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))
