"""Comparing one query with one row, and what a score pulls on them, for the CPU loops.

The comparison is a constant of each loop, which is compiled when first needed: a choice inside makes short rows twice
as slow. With ``g`` the gradient of a score, ``q`` a query and ``c`` a candidate row, ``u = sign(q - c)`` for `l1` and
``u = (q - c) / |q - c|`` for `modulus` (0 where the difference is 0)::

    dot:            to_query = g c      to_candidate = g q
    l1, modulus:    to_query = -g u     to_candidate = g u
"""

# Numba's decorator is untyped, and the arguments of a loop are arrays and scalars whose types the compiler infers.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import math

from eans.kernels.numba_threads import inlined

DOT, L1, MODULUS = 0, 1, 2
KINDS = {"dot": DOT, "l1": L1, "modulus": MODULUS}


@inlined
def score_of(kind, query, q, table, r, columns, half):
    """Compare the query at `q` with the row at `r`: over `columns` columns of one plane, or of two, `half` apart."""
    total = query.dtype.type(0)
    if kind == DOT:
        for j in range(columns):
            total += query[q + j] * table[r + j]
        return total
    if kind == L1:
        for j in range(columns):
            total += abs(query[q + j] - table[r + j])
    else:
        for j in range(columns):
            real = query[q + j] - table[r + j]
            imag = query[q + half + j] - table[r + half + j]
            total += math.sqrt(real * real + imag * imag)
    return -total


@inlined
def shifted_score_of(kind, query, shift, q, table, r, scalar, columns, half):
    """`score_of` for a distance to the moved row ``row + scalar * shift``; the shift lies at `q` too."""
    total = query.dtype.type(0)
    if kind == L1:
        for j in range(columns):
            total += abs(query[q + j] - (table[r + j] + scalar * shift[q + j]))
    else:
        for j in range(columns):
            real = query[q + j] - (table[r + j] + scalar * shift[q + j])
            imag = query[q + half + j] - (table[r + half + j] + scalar * shift[q + half + j])
            total += math.sqrt(real * real + imag * imag)
    return -total


@inlined
def pull_of_sign(query, row, g, zero):
    """``g u`` of one column for `l1`."""
    above = g if query > row else zero
    below = g if query < row else zero
    return above - below


@inlined
def pull_of_modulus(real, imag, g, zero, one):
    """The factor that makes ``g u`` of a difference, for `modulus`."""
    square = real * real + imag * imag
    return zero if square == zero else g * (one / math.sqrt(square))
