"""The three ways to compare a query ``q`` with a candidate row ``c``; a higher score is more plausible.

====================  ==========================================================
``dot``               ``sum_i q_i c_i``
``l1``                ``-sum_i |q_i - c_i|``
``modulus``           ``-sum_i |q_i - c_i|`` over complex numbers stored ``[re | im]``
====================  ==========================================================
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

Comparison = Literal["dot", "l1", "modulus"]
COMPARISONS: tuple[Comparison, ...] = ("dot", "l1", "modulus")


def halves(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Real and imaginary parts: ``[..., 2d]`` -> two views ``[..., d]``."""
    half = vectors.shape[-1] // 2
    return vectors[..., :half], vectors[..., half:]


def width_of(kind: Comparison, dim: int) -> int:
    """Columns of one plane of a row of `dim` columns: complex rows have two planes."""
    if kind != "modulus":
        return dim
    if dim % 2:
        raise ValueError(f"complex rows [re | im] have an even number of columns, not {dim}")
    return dim // 2
