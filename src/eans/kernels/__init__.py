"""Scoring kernels behind one switch.

`compare`, `compare_all` and `nearest` have the signatures of `eans.kernels.reference`, which defines them. A faster
implementation registers under its name here; models, samplers and losses never know which one runs.
"""

from eans.kernels.reference import COMPARISONS, Comparison, compare, compare_all, compare_rows, modulus, nearest

__all__ = ["COMPARISONS", "Comparison", "compare", "compare_all", "compare_rows", "modulus", "nearest"]
