"""`compare` for GPUs: a fused forward kernel, and autograd around it and the gradient kernels.

Each candidate row is gathered once and compared with all of a positive's queries; ``[batch, negatives, dim]`` never
exists. With ``TRITON_INTERPRET=1`` the kernels also run, slowly, on a CPU.
"""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from eans.kernels.comparison import reference
from eans.kernels.comparison.reference import contiguous, with_mean_rest
from eans.kernels.comparison.triton_arguments import Arguments
from eans.kernels.comparison.triton_candidates import candidate_gradients
from eans.kernels.comparison.triton_queries import query_gradients
from eans.kernels.deferred_gradients import CandidateGradient, DeferredGradients, leave_leading
from eans.kernels.kinds import Comparison
from eans.kernels.triton_sort import plan
from eans.kernels.triton_tiles import Tile, check_types, load_planes

# Queries that one launch compares with a candidate row: as many as one training step has.
MOST_QUERIES = 3

# Rows are candidates of one positive. With 128 columns per warp (4 per thread) rows and queries have the same layout
# over the threads; fewer columns make the compiler exchange them between threads inside the loop.
FORWARD_TILES: dict[str, Tile] = {"dot": Tile(8, 128, 1), "l1": Tile(4, 64, 1), "modulus": Tile(2, 128, 1)}
SHIFTED_TILE = Tile(2, 128, 1)


@triton.jit
def _add_columns(total, query, shift, row, scalar, KIND: tl.constexpr, SHIFTED: tl.constexpr):
    """Add a tile's products or distances: `query`, `shift` ``[1, C]``, `row` ``[R, C]``, `total` ``[R, C]``."""
    real, imag = row
    if SHIFTED:
        real += scalar * shift[0]
        imag += scalar * shift[1]
    if KIND == "dot":
        total += query[0] * real
    elif KIND == "l1":
        total += tl.abs(query[0] - real)
    else:
        real = query[0] - real
        imag = query[1] - imag
        total += tl.sqrt(real * real + imag * imag)
    return total


@triton.jit
def _add_tile(
    totals, queries, table, shifts, scalar, columns, inside, plane,
    WIDTH: tl.constexpr, KIND: tl.constexpr, Q: tl.constexpr, SHIFTED: tl.constexpr,
):  # fmt: skip
    """Add one tile of columns to the totals of all queries, with pointers to the starts of the rows involved."""
    total0, total1, total2 = totals
    row = load_planes(table + columns, inside, WIDTH, KIND)
    query = load_planes(queries + columns, inside, WIDTH, KIND)
    shift = query
    if SHIFTED:
        shift = load_planes(shifts + columns, inside, WIDTH, KIND)
    total0 = _add_columns(total0, query, shift, row, scalar, KIND, SHIFTED)
    if Q > 1:
        query = load_planes(queries + plane + columns, inside, WIDTH, KIND)
        if SHIFTED:
            shift = load_planes(shifts + plane + columns, inside, WIDTH, KIND)
        total1 = _add_columns(total1, query, shift, row, scalar, KIND, SHIFTED)
    if Q > 2:
        query = load_planes(queries + 2 * plane + columns, inside, WIDTH, KIND)
        if SHIFTED:
            shift = load_planes(shifts + 2 * plane + columns, inside, WIDTH, KIND)
        total2 = _add_columns(total2, query, shift, row, scalar, KIND, SHIFTED)
    return total0, total1, total2


@triton.jit
def _store_scores(scores, total, drawn, KIND: tl.constexpr):
    """Sum the columns of `total` ``[R, C]``; a distance counts against the candidate."""
    total = tl.sum(total, axis=1)[:, None]
    tl.store(scores, total if KIND == "dot" else -total, mask=drawn)


@triton.jit
def _forward_kernel(
    scores,  # [Q, B, N], or [2, B, N] with MEAN
    queries, table, entities, shifts, scalars,  # see `Arguments`
    batch, negatives,
    DIM: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, KIND: tl.constexpr, Q: tl.constexpr,
    MEAN: tl.constexpr, SHIFTED: tl.constexpr, ACROSS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Scores of ROWS candidates of one positive with all of its queries.

    ACROSS: programs that run at one time compare the same part of each positive's candidates, which then share rows if
    candidates are sorted; otherwise all candidates of a few positives.

    The sums stay spread over ``[R, C]`` until the last column: a reduction inside the loop costs several times more.
    """
    if ACROSS:
        positive = tl.program_id(0) % batch
        part = tl.program_id(0) // batch
    else:
        tiles = tl.cdiv(negatives, ROWS)
        positive = tl.program_id(0) // tiles
        part = tl.program_id(0) % tiles
    candidate = part * ROWS + tl.arange(0, ROWS)[:, None]
    drawn = candidate < negatives
    pair = positive * negatives + candidate
    # Beyond the end: the last candidate again, not stored.
    entity = tl.load(entities + positive * negatives + tl.minimum(candidate, negatives - 1))
    scalar = 0.0
    if SHIFTED:
        scalar = tl.load(scalars + entity)
        shifts += positive * DIM
    queries += positive * DIM
    rows = table + entity * STRIDE
    plane = batch * DIM  # from one query of a positive to its next

    zero = tl.zeros([ROWS, COLUMNS], dtype=queries.dtype.element_ty)
    totals = (zero, zero, zero)
    columns = tl.arange(0, COLUMNS)[None, :]
    WHOLE: tl.constexpr = WIDTH // COLUMNS * COLUMNS
    for start in range(0, WHOLE, COLUMNS):
        totals = _add_tile(totals, queries, rows, shifts, scalar, start + columns, None, plane, WIDTH, KIND, Q, SHIFTED)
    if WHOLE < WIDTH:  # the only masked tile
        columns += WHOLE
        inside = columns < WIDTH
        ends = _add_tile(
            (zero, zero, zero), queries, rows, shifts, scalar, columns, inside, plane, WIDTH, KIND, Q, SHIFTED
        )
        totals = (
            totals[0] + tl.where(inside, ends[0], 0.0),
            totals[1] + tl.where(inside, ends[1], 0.0),
            totals[2] + tl.where(inside, ends[2], 0.0),
        )

    plane = batch * negatives
    _store_scores(scores + pair, totals[0], drawn, KIND)
    if Q > 1:
        second = (totals[1] + totals[2]) / 2 if MEAN and Q > 2 else totals[1]
        _store_scores(scores + plane + pair, second, drawn, KIND)
    if Q > 2 and not MEAN:
        _store_scores(scores + 2 * plane + pair, totals[2], drawn, KIND)


def forward_scores(given: Arguments, across: bool = False) -> Tensor:
    """Scores without gradients; `across` as in `eans.kernels.deferred_gradients`."""
    count, batch, _ = given.queries.shape
    negatives = given.entities.shape[1]
    tile = given.tile(FORWARD_TILES, SHIFTED_TILE)
    scores = given.queries.new_empty(min(count, 2) if given.mean_rest else count, batch, negatives)
    _forward_kernel[(batch * triton.cdiv(negatives, tile.rows),)](
        scores, given.queries, given.table, given.entities, given.shifts, given.scalars, batch, negatives,
        ACROSS=across, **given.constants(tile),
    )  # fmt: skip
    return scores


class _Compare(torch.autograd.Function):
    """Forward and backward of `compare` for at most MOST_QUERIES queries."""

    @staticmethod
    def forward(
        ctx: Any, kind: Comparison, queries: Tensor, table: Tensor, entities: Tensor, shifts: Tensor | None,
        scalars: Tensor | None, mean_rest: bool, deferred: DeferredGradients | None, learns: bool,
    ) -> Tensor:  # fmt: skip
        ctx.deferred = deferred
        queries, table, entities, shifts, scalars = contiguous(queries, table, entities, shifts, scalars)
        ctx.kind, ctx.mean_rest = kind, mean_rest
        rows = table
        if ctx.deferred is not None and ctx.deferred.rounded is not None:
            rows = ctx.deferred.rounded[:, : table.shape[1]]
        ctx.save_for_backward(queries, table, rows, entities, shifts, scalars)
        # Scores that a sampler computes between two steps have no gradient, even where the table requires one.
        if learns and ctx.deferred is not None and ctx.deferred.plan is None and ctx.needs_input_grad[2]:
            plan(ctx.deferred, entities, len(table))
        with torch.cuda.device_of(queries):
            across = ctx.deferred is not None and ctx.deferred.across
            return forward_scores(Arguments(kind, queries, rows, entities, shifts, scalars, mean_rest), across)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gradient, deferred = gradient.contiguous(), ctx.deferred
        queries, table, rows, entities, shifts, scalars = ctx.saved_tensors
        given = Arguments(ctx.kind, queries, rows, entities, shifts, scalars, ctx.mean_rest)
        _, needs_queries, needs_table, _, needs_shifts, needs_scalars, *_ = ctx.needs_input_grad
        to_queries = to_table = to_shifts = to_scalars = None
        with torch.cuda.device_of(gradient):
            if needs_queries or needs_shifts:
                to_queries, to_shifts = query_gradients(gradient, given)
            waits = needs_table and deferred is not None
            whole = table.is_contiguous() and shifts is None
            if waits and whole and not deferred.candidates:
                deferred.candidates.append(CandidateGradient(ctx.kind, ctx.mean_rest, gradient, queries, entities))
            elif needs_table or needs_scalars:
                to_table, to_scalars = candidate_gradients(gradient, given._replace(table=table), deferred)
                if waits:
                    to_table = leave_leading(deferred, to_table)
        return None, to_queries, to_table, None, to_shifts, to_scalars, None, None, None


def _check(queries: Tensor, table: Tensor, entities: Tensor) -> None:
    """Raise for what the kernels would compute wrongly rather than not at all."""
    check_types(queries, table)
    # Positions inside one tensor of pairs or queries are counted in 32 bits.
    if len(queries) * max(entities.numel(), queries[0].numel()) >= 2**31:
        raise ValueError("a batch with 2^31 or more scores or query elements: split it")


def compare(
    kind: Comparison, queries: Tensor, table: Tensor, entities: Tensor,
    shifts: Tensor | None = None, scalars: Tensor | None = None, mean_rest: bool = False,
    deferred: DeferredGradients | None = None,
) -> Tensor:  # fmt: skip
    """`eans.kernels.compare`, compiled; float32 or float64."""
    if entities.numel() == 0:  # nothing to launch
        return reference.compare(kind, queries, table, entities, shifts, scalars, mean_rest, deferred)
    if shifts is None or scalars is None:
        shifts = scalars = None
    if len(queries) > MOST_QUERIES:
        cuts = [slice(start, start + MOST_QUERIES) for start in range(0, len(queries), MOST_QUERIES)]
        moves = [None if shifts is None else shifts[cut] for cut in cuts]
        several = torch.cat(
            [
                compare(kind, queries[cut], table, entities, move, scalars, deferred=deferred)
                for cut, move in zip(cuts, moves, strict=True)
            ]
        )
        return with_mean_rest(several) if mean_rest else several
    _check(queries, table, entities)
    learns = torch.is_grad_enabled()
    scores: Tensor = _Compare.apply(kind, queries, table, entities, shifts, scalars, mean_rest, deferred, learns)
    return scores
