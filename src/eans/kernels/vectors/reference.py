"""`compare_rows`, `complex_product` and `project` in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from eans.kernels.kinds import Comparison, halves
from eans.kernels.tables.reference import half_products


def modulus(vectors: Tensor) -> Tensor:
    """``|z|`` of complex vectors stored ``[re | im]``: ``[..., 2d]`` -> ``[..., d]``; its gradient at zero is zero."""
    real, imaginary = halves(vectors)
    squared = torch.addcmul(real.square(), imaginary, imaginary)
    if not squared.requires_grad:
        return squared.sqrt_()
    zero = squared == 0
    return squared.masked_fill(zero, 1.0).sqrt().masked_fill(zero, 0.0)


def compare_rows(kind: Comparison, query: Tensor, candidate: Tensor) -> Tensor:
    """See `eans.kernels.compare_rows`."""
    if kind == "dot":
        return (query * candidate).sum(-1)
    difference = query - candidate
    if kind == "l1":
        return -difference.abs().sum(-1)
    return -modulus(difference).sum(-1)


def project(rows: Tensor, direction: Tensor) -> Tensor:
    """See `eans.kernels.project`."""
    return rows[..., : direction.shape[-1]] + half_products(rows)[..., None] * direction


def complex_product(left: Tensor, right: Tensor, conjugate_right: bool = False) -> Tensor:
    """See `eans.kernels.complex_product`."""
    left_re, left_im = left.chunk(2, dim=-1)
    right_re, right_im = right.chunk(2, dim=-1)
    if conjugate_right:
        right_im = -right_im
    return torch.cat([left_re * right_re - left_im * right_im, left_re * right_im + left_im * right_re], dim=-1)
