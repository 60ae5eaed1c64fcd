"""Large tables on huge pages: rows that are read at random then cost the processor fewer look-ups of addresses."""

from __future__ import annotations

import contextlib
import ctypes
import mmap

from torch import Tensor

# Smaller ones hardly gain, and have blocks of the C library that others use again.
LEAST_BYTES = 1 << 25


def on_huge_pages(tensor: Tensor) -> Tensor:
    """Ask the system to keep a new tensor, which nobody has written yet, on huge pages; returns the tensor.

    Nothing happens on a GPU, with a small tensor, and where the system has no huge pages or will not be asked.
    """
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is None or tensor.device.type != "cpu" or tensor.nbytes < LEAST_BYTES:
        return tensor
    first = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE  # the system takes whole pages
    size = (tensor.data_ptr() + tensor.nbytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
    with contextlib.suppress(OSError, AttributeError):  # no such function in this C library
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), ctypes.c_int(advice))
    return tensor
