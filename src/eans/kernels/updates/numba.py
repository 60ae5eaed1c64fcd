"""Adam and Adagrad for one table on a CPU: one pass, which adds up the parts of the gradient on the way.

The gradient of a row exists only while the row is updated, in the nearest cache. With dense Adam, rows without a
gradient still move by their momentum; otherwise they are not touched, and the pass is over the rows that are used
alone. Threads share the rows, so the bits do not depend on their number.
"""

# Numba's decorator is untyped, and the arguments of a loop are arrays and scalars whose types the compiler infers.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import math

import numpy as np
import torch
from numba import uint64
from torch import Tensor

from eans.kernels.deferred_gradients import DeferredGradients
from eans.kernels.numba_arrays import distinct_ids, flat, segments
from eans.kernels.numba_threads import compiled, share_rows, threads_for
from eans.kernels.updates import Betas

COLLECTS, ROUNDS = True, False


def advance(step: Tensor, rate: Tensor, betas: Betas | None, out: Tensor) -> None:
    """See `eans.kernels.UpdateKernels`."""
    step += 1
    if betas is None:
        out.copy_(torch.tensor([rate.item(), 1.0], dtype=torch.float64))
        return
    first, second = (-math.expm1(step.item() * math.log(beta)) for beta in betas)
    out.copy_(torch.tensor([rate.item() / first, 1.0 / math.sqrt(second)], dtype=torch.float64))


@compiled
def _update_loop(
    table, averages, squares,  # [E * F]; no averages: Adagrad; squares [E]: of rows
    used,  # [U] rows to update; empty for all
    order, starts, rows, more,  # of gathered rows, [M * F] in two parts; empty for none, as are the next three
    leading, width,  # [E * width]
    dense,  # [E * F]
    products,  # [E]
    cubed, size, root, beta1, beta2, rest1, rest2, epsilon,  # of the table's type
    row_wise,  # one square per row
    total,  # [F], scratch
    first, last,
):  # fmt: skip
    """Adam or Adagrad for rows ``[first, last)``, of the table or of `used`."""
    columns, half = uint64(len(total)), uint64(len(total) // 2)
    zero = total.dtype.type(0)
    for u in range(uint64(first), uint64(last)):
        e = uint64(used[u]) if len(used) else u
        here = e * columns
        led = uint64(0)
        if len(leading):
            led = uint64(width)
            for j in range(led):
                total[j] = leading[e * led + j]
        for j in range(led, columns):
            total[j] = zero
        if len(order):
            for p in range(uint64(starts[u]), uint64(starts[u + uint64(1)])):
                row = uint64(order[p]) * columns
                part = rows
                if row >= uint64(len(rows)):
                    part = more
                    row -= uint64(len(rows))
                for j in range(columns):
                    total[j] += part[row + j]
        if len(dense):
            for j in range(columns):
                total[j] += dense[here + j]
        if len(products):
            pull = products[e]
            for j in range(half):
                total[j] += pull * table[here + half + j]
                total[half + j] += pull * table[here + j]
        if cubed != zero:
            for j in range(columns):
                total[j] += cubed * table[here + j] * abs(table[here + j])
        if row_wise:
            square = zero
            for j in range(columns):
                square += total[j] * total[j]
            square = squares[e] + square / total.dtype.type(columns)
            squares[e] = square
            scale = size / (math.sqrt(square) * root + epsilon)
            for j in range(columns):
                table[here + j] -= scale * total[j]
            continue
        if not len(averages):
            for j in range(columns):
                gradient = total[j]
                square = squares[here + j] + gradient * gradient
                squares[here + j] = square
                table[here + j] -= size * gradient / (math.sqrt(square) * root + epsilon)
            continue
        for j in range(columns):
            gradient = total[j]
            average = beta1 * averages[here + j] + rest1 * gradient
            square = beta2 * squares[here + j] + rest2 * gradient * gradient
            averages[here + j] = average
            squares[here + j] = square
            table[here + j] -= size * average / (math.sqrt(square) * root + epsilon)


def update(
    table: Tensor, averages: Tensor | None, squares: Tensor, factors: Tensor, deferred: DeferredGradients | None,
    dense: Tensor | None, betas: Betas | None, epsilon: float,
) -> None:  # fmt: skip
    """See `eans.kernels.UpdateKernels`."""
    assert deferred is not None
    assert not deferred.candidates  # another implementation's
    num_rows, columns = table.shape
    parts = deferred.sorted_rows()
    few = dense is None and not deferred.whole and (averages is None or deferred.by_rows)
    if few and not parts:
        return
    nothing, nowhere = np.empty(0, table.numpy().dtype), np.empty(0, np.int64)
    used, order, starts, rows, more = nowhere, nowhere, nowhere, nothing, nothing
    if parts:
        ids = _joined([part.ids for part in parts])
        if few:
            used, order, starts = distinct_ids(flat(ids.contiguous()))
        else:
            order, starts = segments(ids, num_rows)
        more = flat(parts[-1].gradient)  # the candidates', if they are among them: many, and not to be copied
        if len(parts) > 1:
            rows = flat(_joined([part.gradient for part in parts[:-1]]))
    leading = deferred.leading[0] if deferred.leading else None
    given = (
        flat(table), nothing if averages is None else flat(averages), flat(squares), used, order, starts, rows, more,
        nothing if leading is None else flat(leading),
        0 if leading is None else leading.shape[1],
        nothing if dense is None else flat(dense.contiguous()),
        flat(torch.stack(deferred.products).sum(0)) if deferred.products else nothing,
    )  # fmt: skip
    cubed = 3.0 * sum(part.item() for part in deferred.cubed)
    beta1, beta2 = betas or (0.0, 0.0)
    constants = flat(table.new_tensor([cubed, *factors.tolist(), beta1, beta2, 1.0 - beta1, 1.0 - beta2, epsilon]))
    row_wise, count = squares.dim() == 1, len(used) if few else num_rows

    def part(first: int, last: int) -> None:
        _update_loop(*given, *constants, row_wise, np.empty(columns, nothing.dtype), first, last)

    share_rows(part, count, threads_for(count * columns))


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
