"""Kernels behind one switch; models, samplers and losses never know which implementation runs.

Each operation is a package: its ``__init__`` declares signature and meaning, ``reference`` defines it in plain PyTorch,
``numba`` and ``triton`` compute the same faster. `choose` (or the environment variable ``EANS_KERNELS``) picks an
implementation; operations that it does not have stay with PyTorch:

=============  ===========================================================================
``auto``       Triton for tensors on a CUDA GPU, Numba on a CPU, else the reference
``triton``     Triton always; an error where it is not installed
``numba``      Numba always; an error where it is not installed
``reference``  plain PyTorch always
=============  ===========================================================================

`register` adds an implementation of one's own.
"""

from __future__ import annotations

from eans.kernels.catching_up import catch_up, remember
from eans.kernels.comparison import compare
from eans.kernels.kinds import COMPARISONS, Comparison
from eans.kernels.kmeans import distances_to, group_means, nearest
from eans.kernels.log_sigmoid import loss_terms, negative_loss, negative_shares
from eans.kernels.matmul import products
from eans.kernels.rank import Counts, compare_all, count_better, levels_of
from eans.kernels.sampling import label, pick, redraw, repeats, step_along, take
from eans.kernels.selection import Best, best, merged
from eans.kernels.softmax import softmax_nll
from eans.kernels.switch import choose, chosen, current, functions, register, small_operations
from eans.kernels.tables import gather, half_products, sum_abs_cubed, sum_moduli_cubed
from eans.kernels.updates import UpdateKernels, optimizer_kernels
from eans.kernels.vectors import compare_rows, complex_product, project

__all__ = [
    "COMPARISONS",
    "Best",
    "Comparison",
    "Counts",
    "UpdateKernels",
    "best",
    "catch_up",
    "choose",
    "chosen",
    "compare",
    "compare_all",
    "compare_rows",
    "complex_product",
    "count_better",
    "current",
    "distances_to",
    "functions",
    "gather",
    "group_means",
    "half_products",
    "label",
    "levels_of",
    "loss_terms",
    "merged",
    "nearest",
    "negative_loss",
    "negative_shares",
    "optimizer_kernels",
    "pick",
    "products",
    "project",
    "redraw",
    "register",
    "remember",
    "repeats",
    "small_operations",
    "softmax_nll",
    "step_along",
    "sum_abs_cubed",
    "sum_moduli_cubed",
    "take",
]
