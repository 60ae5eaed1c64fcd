"""Scoring kernels behind one switch; models, samplers and losses never know which implementation runs.

`eans.kernels.reference` defines what these functions compute. `choose` (or the environment variable
``EANS_KERNELS``) picks an implementation:

=============  ===========================================================================
``auto``       Triton for tensors on a CUDA GPU, Numba on a CPU, else the reference
``triton``     Triton always; an error where it is not installed
``numba``      Numba always; an error where it is not installed
``reference``  plain PyTorch always
=============  ===========================================================================
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Literal, cast, get_args

import torch
from torch import Tensor

from eans.errors import UsageError, did_you_mean
from eans.kernels import reference
from eans.kernels.reference import COMPARISONS, Comparison, Counts, compare_rows, modulus

Implementation = Literal["auto", "triton", "numba", "reference"]

__all__ = [
    "COMPARISONS",
    "Comparison",
    "Counts",
    "Implementation",
    "choose",
    "compare",
    "compare_all",
    "compare_rows",
    "count_better",
    "group_means",
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


# What `auto` means for a kind of device; others, such as Apple's, get the reference.
_FASTEST: dict[str, Implementation] = {"cuda": "triton", "cpu": "numba"}


@cache
def _module(name: str) -> ModuleType | None:
    """The module of a compiled implementation, or None where its compiler is not installed."""
    try:
        return import_module(f"eans.kernels.{name}_compare")
    except ImportError:
        return None


def _implementation(device: torch.device) -> ModuleType:
    choice = current()
    name = _FASTEST.get(device.type, "reference") if choice == "auto" else choice
    if name == "reference":
        return reference
    if (fast := _module(name)) is not None:
        return fast
    if choice == "auto":
        _say_slow(name)
        return reference
    raise UsageError(f"kernels '{name}' were asked for, but the package {name} is not installed; use 'auto'")


@cache
def _say_slow(name: str) -> None:
    """Once per process."""
    warnings.warn(f"{name} is not installed: plain PyTorch kernels will run, several times slower", stacklevel=4)


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


def count_better(scores: Tensor, truth: Tensor, keys: Tensor, start: Tensor, stop: Tensor) -> Counts:
    """`eans.kernels.reference.count_better` by the chosen implementation."""
    module = _implementation(scores.device)
    if module is not reference:
        module = import_module(module.__name__.replace("_compare", "_rank"))
    counts: Counts = module.count_better(scores, truth, keys, start, stop)
    return counts


def _clustering(points: Tensor) -> ModuleType:
    """Where `nearest` and `group_means` run: Triton has its own; on a CPU they are matrix products."""
    choice = current()
    name = _FASTEST.get(points.device.type) if choice == "auto" else choice
    if name == "triton" and _implementation(points.device) is not reference:
        return import_module("eans.kernels.triton_nearest")
    return reference


def nearest(points: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """`eans.kernels.reference.nearest` by the chosen implementation."""
    labels, distances = _clustering(points).nearest(points, centroids)
    return labels, distances


def group_means(points: Tensor, groups: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`eans.kernels.reference.group_means` by the chosen implementation."""
    means, sizes = _clustering(points).group_means(points, groups, k)
    return means, sizes
