"""What the Triton kernels share: tiles, loading rows, the pull of a score on its candidate."""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class Tile(NamedTuple):
    """Rows and columns that a program holds at a time (powers of two), and its number of warps."""

    rows: int
    columns: int
    warps: int


# The smallest normal float32, added to a squared modulus: keeps the reciprocal root finite at 0, changes nothing else.
SMALLEST_SQUARE = tl.constexpr(1.1754944e-38)
# Makes every difference that matters (above 1e-30) larger than 1, so that clamping to +-1 leaves its sign.
STEEP = tl.constexpr(2.0**100)


def check_types(queries: Tensor, table: Tensor) -> None:
    """Raise for types that the kernels would sum up in too few bits."""
    if queries.dtype != table.dtype or queries.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"queries and table are both float32 or both float64, not {queries.dtype} and {table.dtype}")


def fitted(tile: Tile, width: int) -> Tile:
    """`tile` without whole warps' worth of columns beyond `width`."""
    return tile._replace(columns=min(tile.columns, triton.next_power_of_2(width)))


@triton.jit
def slice_of_row(ordering, num_rows, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):
    """Of a program with one slice of columns of one row: place of the row in the ordering, slice, row, columns, inside.

    Rows are the fast axis. `ordering` int64 ``[rows]`` or None for the table's own order.
    """
    place = tl.program_id(0) % num_rows
    part = tl.program_id(0) // num_rows
    row, columns, inside = slice_of(place, part, ordering, WIDTH, COLUMNS)
    return place, part, row, columns, inside


@triton.jit
def slice_of(place, part, ordering, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):
    """The row at a place of the ordering, or of the table; the columns of a slice; which of them there are."""
    row = place.to(tl.int64)
    if ordering is not None:
        row = tl.load(ordering + place)
    columns = part * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    return row, columns, columns < WIDTH


@triton.jit
def load_planes(pointer, inside, WIDTH: tl.constexpr, KIND: tl.constexpr):
    """Load the two planes of rows at `pointer` (any shape). One plane: the second repeats the first.

    Values outside are undefined, which saves setting them for each load; what they give must not be stored.
    """
    real = tl.load(pointer, mask=inside)
    imag = real
    if KIND == "modulus":
        imag = tl.load(pointer + WIDTH, mask=inside)
    if real.dtype == tl.bfloat16:  # rounded rows; sums are made of what they stand for
        real = real.to(tl.float32)
        imag = imag.to(tl.float32)
    return real, imag


@triton.jit
def to_candidate(outer, query, candidate, KIND: tl.constexpr):
    """Gradient of the candidate, plane by plane: ``g q`` for dot, else ``g u``.

    The sign of `l1` is a product and a clamp, one instruction each; comparisons and selections would be four, at half
    the rate.
    """
    if KIND == "dot":
        pull = (outer * query[0], outer * query[1])
    elif KIND == "l1":
        difference = query[0] - candidate[0]
        if difference.dtype == tl.float64:  # clamping is for float32 alone
            signed = tl.where(difference > 0, outer, tl.where(difference < 0, -outer, 0.0))
        else:
            signed = outer * tl.clamp(difference * STEEP, -1.0, 1.0)
        pull = (signed, signed)
    else:
        real = query[0] - candidate[0]
        imag = query[1] - candidate[1]
        scale = outer * tl.rsqrt(real * real + (imag * imag + SMALLEST_SQUARE))
        pull = (real * scale, imag * scale)
    return pull


@triton.jit
def moved(row, scalar, shift, SHIFTED: tl.constexpr):
    """The candidate ``row + scalar * shift``, plane by plane."""
    return (row[0] + scalar * shift[0], row[1] + scalar * shift[1]) if SHIFTED else row
