"""What a GPU's cache can hold."""

from __future__ import annotations

import torch
from torch import Tensor


def outgrows_cache(table: Tensor) -> bool:
    """Is a table on a GPU more than twice as large as the L2 cache?

    Then rows that are read at random come from memory most of the time, and it pays to read the same ones together.
    """
    if not table.is_cuda:
        return False
    cache: int = torch.cuda.get_device_properties(table.device).L2_cache_size
    return table.untyped_storage().nbytes() > 2 * cache
