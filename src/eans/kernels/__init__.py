"""Scoring kernels behind one switch; models, samplers and losses never know which implementation runs.

`eans.kernels.reference` defines what `compare`, `compare_all` and `nearest` compute. `choose` (or the environment
variable ``EANS_KERNELS``) picks an implementation:

=============  ===============================================================================
``auto``       Triton for tensors on a CUDA GPU, the reference everywhere else
``triton``     Triton always; an error where it is not installed
``reference``  plain PyTorch always
=============  ===============================================================================
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from types import ModuleType
from typing import Literal, cast, get_args

import torch
from torch import Tensor

from eans.errors import UsageError, did_you_mean
from eans.kernels import reference
from eans.kernels.reference import COMPARISONS, Comparison, compare_rows, modulus, nearest

Implementation = Literal["auto", "triton", "reference"]

__all__ = [
    "COMPARISONS",
    "Comparison",
    "Implementation",
    "choose",
    "compare",
    "compare_all",
    "compare_rows",
    "modulus",
    "nearest",
]


def _checked(name: str) -> Implementation:
    if name not in get_args(Implementation):
        known = get_args(Implementation)
        raise UsageError(f"unknown kernels '{name}'{did_you_mean(name, known)} (one of {', '.join(known)})")
    return cast(Implementation, name)


_choice: Implementation | None = None


def choose(name: str) -> Implementation:
    """Use one implementation from now on; returns the previous choice."""
    global _choice
    previous = current()
    _choice = _checked(name)
    return previous


def current() -> Implementation:
    """The implementation that is chosen now."""
    return _choice if _choice is not None else _checked(os.environ.get("EANS_KERNELS", "auto"))


@cache
def _triton() -> ModuleType | None:
    try:
        from eans.kernels import triton_compare
    except ImportError:
        return None
    return triton_compare


def _implementation(device: torch.device) -> ModuleType:
    choice = current()
    if choice == "reference" or (choice == "auto" and device.type != "cuda"):
        return reference
    if (fast := _triton()) is not None:
        return fast
    if choice == "triton":
        raise UsageError("kernels 'triton' were asked for, but the package triton is not installed; use 'auto'")
    _say_slow()
    return reference


@cache
def _say_slow() -> None:
    """Once per process."""
    warnings.warn("triton is not installed: the GPU runs plain PyTorch kernels, several times slower", stacklevel=4)


def compare(
    kind: Comparison,
    queries: Tensor,
    table: Tensor,
    entities: Tensor,
    shifts: Tensor | None = None,
    scalars: Tensor | None = None,
) -> Tensor:
    """`eans.kernels.reference.compare` by the chosen implementation."""
    scores: Tensor = _implementation(queries.device).compare(kind, queries, table, entities, shifts, scalars)
    return scores


def compare_all(
    kind: Comparison, queries: Tensor, table: Tensor, shifts: Tensor | None = None, scalars: Tensor | None = None
) -> Tensor:
    """`eans.kernels.reference.compare_all` by the chosen implementation."""
    scores: Tensor = _implementation(queries.device).compare_all(kind, queries, table, shifts, scalars)
    return scores
