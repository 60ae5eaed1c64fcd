"""Lazy Adam's rows for GPUs: one program for each row that is wanted, and nothing waits for the device.

A row that is wanted several times goes to the program that is first to write `last`; what it does to the row does not
depend on which one that is, so the bits are the same every time.
"""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from eans.kernels.catching_up import TERMS
from eans.kernels.catching_up.reference import powers
from eans.kernels.updates import Betas

COLUMNS, WARPS = 256, 2


@triton.jit
def _remember_kernel(
    sums,  # [TERMS + n, 2]
    powers,  # [TERMS, 2]
    step,
    factors,  # [2]
    COUNT: tl.constexpr,
):
    index = tl.arange(0, COUNT)
    root = tl.load(factors + 1).to(tl.float64)
    weight = tl.load(factors).to(tl.float64) / root
    here = sums + 2 * (tl.load(step).to(tl.int64) + index)
    tl.store(here, tl.load(here) + weight * tl.load(powers + 2 * index))
    tl.store(here + 1, tl.load(here + 1) + weight / root * tl.load(powers + 2 * index + 1))


def remember(sums: Tensor, step: Tensor, factors: Tensor, betas: Betas) -> None:
    """See `eans.kernels.catching_up.remember`; nothing waits for the device."""
    with torch.cuda.device_of(sums):
        _remember_kernel[(1,)](sums, powers(betas, sums.device), step, factors, COUNT=TERMS)


@triton.jit
def _catch_up_kernel(
    table,  # [E, F]
    averages,  # [E, F]
    squares,  # [E, F]
    rounded,  # [E, F] or None
    last,  # [E]
    sums,  # [TERMS + n, 2]
    step,
    ids,  # [M], or None for all rows
    LOG1: tl.constexpr, LOG2: tl.constexpr, EPSILON: tl.constexpr,
    UPCOMING: tl.constexpr, TERMS: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    if ids is not None:
        row = tl.load(ids + row)
    now = tl.load(step).to(tl.int32)
    since = tl.atomic_xchg(last + row, now + UPCOMING)
    if (since < now) & (since > 0):  # a row that never had a gradient has no momentum
        number = table.dtype.element_ty
        place = sums + 2 * (since + TERMS).to(tl.int64)
        total = tl.load(place)
        floor = tl.full((), EPSILON, tl.float64)
        if total > 0.0:
            floor *= tl.load(place + 1) / total
        reach, floor = total.to(number), floor.to(number)
        lag = (now - since).to(tl.float64)
        less = tl.exp(lag * tl.full((), LOG1, tl.float64)).to(number)
        lesser = tl.exp(lag * tl.full((), LOG2, tl.float64)).to(number)
        for start in range(0, WIDTH, COLUMNS):
            columns = start + tl.arange(0, COLUMNS)
            inside = columns < WIDTH
            here = row * WIDTH + columns
            average = tl.load(averages + here, mask=inside, other=0.0)
            square = tl.load(squares + here, mask=inside, other=0.0)
            value = tl.load(table + here, mask=inside, other=0.0) - reach * average / (tl.sqrt(square) + floor)
            tl.store(table + here, value, mask=inside)
            tl.store(averages + here, average * less, mask=inside)
            tl.store(squares + here, square * lesser, mask=inside)
            if rounded is not None:
                tl.store(rounded + here, value.to(tl.bfloat16), mask=inside)


def catch_up(
    table: Tensor, averages: Tensor, squares: Tensor, last: Tensor, sums: Tensor, step: Tensor, betas: Betas,
    epsilon: float, ids: Tensor | None = None, upcoming: bool = False, rounded: Tensor | None = None,
) -> None:  # fmt: skip
    """See `eans.kernels.catching_up.catch_up`; nothing waits for the device."""
    width = table.shape[1]
    programs = len(table) if ids is None else len(ids)
    if not programs:
        return
    with torch.cuda.device_of(table):
        _catch_up_kernel[(programs,)](
            table, averages, squares, rounded, last, sums, step, ids,
            LOG1=math.log(betas[0]), LOG2=math.log(betas[1]), EPSILON=epsilon, UPCOMING=int(upcoming), TERMS=TERMS,
            WIDTH=width, COLUMNS=min(COLUMNS, triton.next_power_of_2(width)), num_warps=WARPS,
        )  # fmt: skip
