"""Lazy Adam's rows on a CPU: one pass over those that are wanted, which threads share."""

# Numba's decorator is untyped, and the arguments of a loop are arrays and scalars whose types the compiler infers.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import math

import numpy as np
from numba import uint64
from torch import Tensor

from eans.kernels.catching_up import TERMS
from eans.kernels.catching_up.reference import powers
from eans.kernels.numba_arrays import distinct_ids, flat
from eans.kernels.numba_threads import compiled, run_rows
from eans.kernels.updates import Betas


def remember(sums: Tensor, step: Tensor, factors: Tensor, betas: Betas) -> None:
    """See `eans.kernels.catching_up.remember`."""
    now, (size, root) = int(step), factors.tolist()
    sums[now : now + TERMS].add_(powers(betas, sums.device) * sums.new_tensor([size / root, size / root**2]))


@compiled
def _catch_up_loop(
    table, averages, squares, last,  # [E * F], [E]
    sums,  # [2 * (TERMS + n)]
    wanted,  # [U] distinct rows; empty for all
    now, then, columns, epsilon, log1, log2, terms,  # `then`: the step that `last` says afterwards
    begin, end,
):  # fmt: skip
    """Rows ``[begin, end)``, of the table or of `wanted`."""
    number = table.dtype.type
    for u in range(uint64(begin), uint64(end)):
        e = uint64(wanted[u]) if len(wanted) else u
        since = last[e]
        if 0 < since < now:  # a row that never had a gradient has no momentum
            place = uint64(2 * (since + terms))
            total = sums[place]
            reach, floor = number(total), number(epsilon)
            if total > 0.0:
                floor = number(epsilon * (sums[place + uint64(1)] / total))
            less, lesser = number(math.exp((now - since) * log1)), number(math.exp((now - since) * log2))
            here = e * uint64(columns)
            for i in range(here, here + uint64(columns)):
                table[i] -= reach * averages[i] / (math.sqrt(squares[i]) + floor)
                averages[i] *= less
                squares[i] *= lesser
        last[e] = max(since, then)


def catch_up(
    table: Tensor, averages: Tensor, squares: Tensor, last: Tensor, sums: Tensor, step: Tensor, betas: Betas,
    epsilon: float, ids: Tensor | None = None, upcoming: bool = False, rounded: Tensor | None = None,
) -> None:  # fmt: skip
    """See `eans.kernels.catching_up.catch_up`."""
    assert rounded is None
    now, columns = int(step), table.shape[1]
    wanted = np.empty(0, np.int64) if ids is None else distinct_ids(flat(ids.contiguous()))[0]
    count = len(table) if ids is None else len(wanted)
    run_rows(
        _catch_up_loop, count, count * columns,
        flat(table), flat(averages), flat(squares), flat(last), flat(sums), wanted, now, now + upcoming, columns,
        epsilon, *map(math.log, betas), TERMS,
    )  # fmt: skip
