"""Kernels behind one switch; models, samplers and losses never know which implementation runs.

The modules ``reference``, ``reference_step`` and ``reference_update`` define every operation in plain PyTorch. `choose`
(or the environment variable ``EANS_KERNELS``) picks an implementation; operations that it does not have stay with
PyTorch:

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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor

from eans.errors import UsageError, did_you_mean
from eans.kernels.reference import COMPARISONS, Comparison, Counts
from eans.kernels.reference_step import fold, negative_loss, negative_shares, repeats
from eans.kernels.reference_update import UpdateKernels

Implementation = Literal["auto", "triton", "numba", "reference"]

__all__ = [
    "COMPARISONS",
    "Comparison",
    "Counts",
    "Implementation",
    "UpdateKernels",
    "choose",
    "chosen",
    "compare",
    "compare_all",
    "compare_rows",
    "complex_product",
    "count_better",
    "cubed_sizes",
    "cubes",
    "distances_to",
    "fold",
    "gather",
    "group_means",
    "half_products",
    "label",
    "loss_terms",
    "nearest",
    "negative_loss",
    "negative_shares",
    "optimizer_kernels",
    "pick",
    "products",
    "project",
    "redraw",
    "repeats",
    "small_operations",
    "step_along",
    "surprise",
    "take",
]

# In which module an implementation has an operation.
_HOMES: dict[str, dict[str, str]] = {
    "reference": {
        "compare": "reference",
        "compare_all": "reference",
        "compare_rows": "reference",
        "complex_product": "reference_step",
        "count_better": "reference",
        "cubed_sizes": "reference_step",
        "cubes": "reference_step",
        "distances_to": "reference",
        "gather": "reference_step",
        "group_means": "reference",
        "half_products": "reference_step",
        "label": "reference_step",
        "loss_terms": "reference_step",
        "nearest": "reference",
        "pick": "reference_step",
        "products": "reference_step",
        "project": "reference_step",
        "redraw": "reference_step",
        "step_along": "reference_step",
        "surprise": "reference_step",
        "take": "reference_step",
    },
    "triton": {
        "compare": "triton_compare",
        "compare_all": "triton_rank",
        "compare_rows": "triton_vectors",
        "complex_product": "triton_vectors",
        "count_better": "triton_rank",
        "cubed_sizes": "triton_cubes",
        "cubes": "triton_tables",
        "gather": "pending_tables",
        "group_means": "triton_nearest",
        "half_products": "triton_tables",
        "label": "triton_sampling",
        "loss_terms": "triton_loss",
        "nearest": "triton_nearest",
        "pick": "triton_sampling",
        "products": "tensor_cores",
        "project": "triton_vectors",
        "redraw": "triton_sampling",
        "step_along": "triton_sampling",
        "surprise": "triton_softmax",
        "take": "triton_sort",
    },
    "numba": {
        "compare": "numba_compare",
        "compare_all": "numba_compare",
        "compare_rows": "numba_vectors",
        "complex_product": "numba_vectors",
        "count_better": "numba_rank",
        "cubes": "numba_tables",
        "distances_to": "numba_tables",
        "gather": "pending_tables",
        "group_means": "numba_tables",
        "half_products": "numba_tables",
        "label": "numba_sampling",
        "pick": "numba_sampling",
        "project": "numba_vectors",
        "surprise": "numba_softmax",
    },
}


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


@contextmanager
def chosen(name: str) -> Iterator[None]:
    """Use one implementation inside."""
    previous = choose(name)
    try:
        yield
    finally:
        choose(previous)


def current() -> Implementation:
    """The implementation that is chosen now."""
    return _choice if _choice is not None else _checked(os.environ.get("EANS_KERNELS", "auto"))


# What `auto` means for a kind of device; others, such as Apple's, get the reference.
_FASTEST: dict[str, Implementation] = {"cuda": "triton", "cpu": "numba"}


@cache
def _installed(name: str) -> bool:
    return name == "reference" or find_spec(name) is not None


@cache
def _function(implementation: str, operation: str) -> Callable[..., Any]:
    home = _HOMES[implementation].get(operation) or _HOMES["reference"][operation]
    function: Callable[..., Any] = getattr(import_module(f"eans.kernels.{home}"), operation)
    return function


def _implementation(device: torch.device) -> Implementation:
    choice = current()
    name: Implementation = _FASTEST.get(device.type, "reference") if choice == "auto" else choice
    if _installed(name):
        return name
    if choice == "auto":
        _say_slow(name)
        return "reference"
    raise UsageError(f"kernels '{name}' were asked for, but the package {name} is not installed; use 'auto'")


@cache
def _say_slow(name: str) -> None:
    """Once per process."""
    warnings.warn(f"{name} is not installed: plain PyTorch kernels will run, several times slower", stacklevel=5)


def _call(operation: str, device: torch.device, *arguments: Any) -> Any:
    return _function(_implementation(device), operation)(*arguments)


def optimizer_kernels(device: torch.device) -> UpdateKernels:
    """The module of the chosen implementation that updates tables."""
    return cast(UpdateKernels, import_module(f"eans.kernels.{_implementation(device)}_update"))


def small_operations(device: torch.device, numbers: int) -> AbstractContextManager[None]:
    """A context for PyTorch's operations on tensors of at most so many numbers: threads only where they are worth it.

    The compiled loops keep theirs. PyTorch's number of threads is changed for as long (`torch.set_num_threads`).
    """
    if _implementation(device) != "numba":
        return nullcontext()
    home = import_module("eans.kernels.numba_threads")
    return cast(AbstractContextManager[None], home.small_operations(numbers))


def compare(
    kind: Comparison,
    queries: Tensor,
    table: Tensor,
    entities: Tensor,
    shifts: Tensor | None = None,
    scalars: Tensor | None = None,
    mean_rest: bool = False,
) -> Tensor:
    """`eans.kernels.reference.compare` by the chosen implementation."""
    scores: Tensor = _call("compare", queries.device, kind, queries, table, entities, shifts, scalars, mean_rest)
    return scores


def compare_all(
    kind: Comparison, queries: Tensor, table: Tensor, shifts: Tensor | None = None, scalars: Tensor | None = None
) -> Tensor:
    """`eans.kernels.reference.compare_all` by the chosen implementation."""
    scores: Tensor = _call("compare_all", queries.device, kind, queries, table, shifts, scalars)
    return scores


def compare_rows(kind: Comparison, query: Tensor, candidate: Tensor) -> Tensor:
    """`eans.kernels.reference.compare_rows` by the chosen implementation."""
    scores: Tensor = _call("compare_rows", query.device, kind, query, candidate)
    return scores


def distances_to(points: Tensor, norms: Tensor, place: Tensor) -> Tensor:
    """`eans.kernels.reference.distances_to` by the chosen implementation."""
    distances: Tensor = _call("distances_to", points.device, points, norms, place)
    return distances


def nearest(points: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """`eans.kernels.reference.nearest` by the chosen implementation."""
    found: tuple[Tensor, Tensor] = _call("nearest", points.device, points, centroids)
    return found


def group_means(points: Tensor, groups: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`eans.kernels.reference.group_means` by the chosen implementation."""
    found: tuple[Tensor, Tensor] = _call("group_means", points.device, points, groups, k)
    return found


def count_better(scores: Tensor, truth: Tensor, keys: Tensor, start: Tensor, stop: Tensor) -> Counts:
    """`eans.kernels.reference.count_better` by the chosen implementation."""
    counts: Counts = _call("count_better", scores.device, scores, truth, keys, start, stop)
    return counts


def gather(table: Tensor, ids: Tensor) -> Tensor:
    """`eans.kernels.reference_step.gather` by the chosen implementation."""
    rows: Tensor = _call("gather", table.device, table, ids)
    return rows


def cubes(table: Tensor) -> Tensor:
    """`eans.kernels.reference_step.cubes` by the chosen implementation."""
    total: Tensor = _call("cubes", table.device, table)
    return total


def cubed_sizes(coordinates: Tensor) -> Tensor:
    """`eans.kernels.reference_step.cubed_sizes` by the chosen implementation."""
    total: Tensor = _call("cubed_sizes", coordinates.device, coordinates)
    return total


def half_products(rows: Tensor) -> Tensor:
    """`eans.kernels.reference_step.half_products` by the chosen implementation."""
    products: Tensor = _call("half_products", rows.device, rows)
    return products


def project(rows: Tensor, direction: Tensor) -> Tensor:
    """`eans.kernels.reference_step.project` by the chosen implementation."""
    projected: Tensor = _call("project", rows.device, rows, direction)
    return projected


def complex_product(left: Tensor, right: Tensor, conjugate_right: bool = False) -> Tensor:
    """`eans.kernels.reference_step.complex_product` by the chosen implementation."""
    product: Tensor = _call("complex_product", left.device, left, right, conjugate_right)
    return product


def products(queries: Tensor, table: Tensor) -> Tensor:
    """`eans.kernels.reference_step.products` by the chosen implementation."""
    scores: Tensor = _call("products", queries.device, queries, table)
    return scores


def take(triples: Tensor, weights: Tensor, rows: Tensor, places: Tensor | None, column: int) -> tuple[Tensor, Tensor]:
    """`eans.kernels.reference_step.take` by the chosen implementation."""
    taken: tuple[Tensor, Tensor] = _call("take", rows.device, triples, weights, rows, places, column)
    return taken


def step_along(line: Tensor, start: Tensor, noise: Tensor, sigma: float, reflect: bool) -> Tensor:
    """`eans.kernels.reference_step.step_along` by the chosen implementation."""
    entities: Tensor = _call("step_along", noise.device, line, start, noise, sigma, reflect)
    return entities


def pick(ids: Tensor, starts: Tensor, kept: Tensor, lots: Tensor, num_entities: int) -> Tensor:
    """`eans.kernels.reference_step.pick` by the chosen implementation."""
    entities: Tensor = _call("pick", lots.device, ids, starts, kept, lots, num_entities)
    return entities


def label(keys: Tensor, prefix: Tensor, entities: Tensor, num_entities: int, repeats_from: float | None) -> Tensor:
    """`eans.kernels.reference_step.label` by the chosen implementation."""
    known: Tensor = _call("label", entities.device, keys, prefix, entities, num_entities, repeats_from)
    return known


def redraw(keys: Tensor, prefix: Tensor, entities: Tensor, others: Tensor, num_entities: int) -> tuple[Tensor, Tensor]:
    """`eans.kernels.reference_step.redraw` by the chosen implementation."""
    found: tuple[Tensor, Tensor] = _call("redraw", entities.device, keys, prefix, entities, others, num_entities)
    return found


def loss_terms(
    positive: Tensor,
    negative: Tensor,
    substitution: Tensor | None,
    known_true: Tensor,
    weight: Tensor,
    margin: float,
    temperature: float,
    substitution_weight: float = 0.0,
    substitution_regularization: float = 0.0,
) -> Tensor:
    """`eans.kernels.reference_step.loss_terms` by the chosen implementation."""
    terms: Tensor = _call(
        "loss_terms", negative.device, positive, negative, substitution, known_true, weight,
        margin, temperature, substitution_weight, substitution_regularization,
    )  # fmt: skip
    return terms


def surprise(positive: Tensor, negative: Tensor, known_true: Tensor, log_proposal: Tensor | None) -> Tensor:
    """`eans.kernels.reference_step.surprise` by the chosen implementation."""
    found: Tensor = _call("surprise", negative.device, positive, negative, known_true, log_proposal)
    return found
