"""What a GPU's cache can hold."""

from __future__ import annotations

import torch
from torch import Tensor


def outgrows_cache(table: Tensor) -> bool:
    """Is a table on a GPU, and there more than twice as large as the cache that all its processors share?

    Then rows that are read at random come from memory most of the time, and it pays to read the same ones at a time.
    """
    if not table.is_cuda:
        return False
    cache: int = torch.cuda.get_device_properties(table.device).L2_cache_size
    return table.untyped_storage().nbytes() > 2 * cache
