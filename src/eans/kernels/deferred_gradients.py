"""Gradients of a table that are added up by the optimizer instead of autograd.

Autograd makes a table of the same size for every use of the entity table and adds these, which costs more memory
traffic than using the gradient. An optimizer that adds the parts up itself has a `DeferredGradients` for each table; a
training step passes it to the operations on the table. Kernels that support it leave a part there and give autograd
nothing. All other gradients still arrive in ``table.grad``, so nothing is lost where a kernel does not support it, or
where no `DeferredGradients` is passed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from eans.kernels.kinds import Comparison
from eans.kernels.side_stream import SideStream


class CandidateGradient(NamedTuple):
    """The gradient of the candidates of one `compare` without shifts: that of its scores, and its arguments."""

    kind: Comparison
    mean_rest: bool
    gradient: Tensor
    queries: Tensor
    entities: Tensor


class RowGradient(NamedTuple):
    """The gradient ``[M, F]`` of the rows with ids int64 ``[M]``; `ticket` tells which `gather` they came from."""

    ticket: int
    ids: Tensor
    gradient: Tensor


class Segments(NamedTuple):
    """Where each row of a table is used: by candidate pairs first, then by gathered rows.

    Attributes:
        order: int64 ``[M]``: values below `pairs` are positions in the candidates ``[B * N]``, the others, less
            `pairs`, positions in the gathered rows; both ascending for one row of the table.
        starts: int64 ``[E + 1]``: the uses of the row at place v are ``order[starts[v] : starts[v + 1]]``.
        pairs: B * N.
    """

    order: Tensor
    starts: Tensor
    pairs: int


class Uses(NamedTuple):
    """The same as `Segments`, of the rows that are used alone, whatever the size of the table: its size is M.

    Attributes:
        order, pairs: see `Segments`.
        keys: integers ``[M]``, ascending: the place of the row of each use.
        ends: int64 ``[M]``: where the segment of each use ends. It starts at its row's first use, which does the work.
    """

    order: Tensor
    keys: Tensor
    ends: Tensor
    pairs: int


class Plan(NamedTuple):
    """What is sorted ahead: the uses as the candidates `entities` and in the first `gatherings`."""

    entities: Tensor
    gatherings: int
    segments: Segments | Uses


@dataclass
class DeferredGradients:
    """Parts of one table's gradient.

    Attributes:
        ordering: of the rows in which those that are used together are close: the row at each place and the
            place of each row, int64 ``[E]``; None for the table's own order.
        side_stream: where the uses are sorted while the scores are computed.
        across: candidates of each positive are sorted, so that work on the same part of each shares rows.
        rounded: the table in bfloat16, ``[E, F]``, which comparisons and products read instead, and perhaps some rows
            of zeros; None for the table itself.
        by_rows: the optimizer works on the rows that have a gradient alone: comparisons leave those rows, never a
            gradient of the table's size.
        rows_stay: rows without a gradient stay as they are.
        candidates: at most one.
        rows: of gathered rows.
        leading: ``[E, D]`` of the first D columns, at most one.
        products: ``[E]`` of the products of each row's halves, at most one.
        cubed: scalars; each stands for the gradient of ``scalar * sum |x|^3`` over the table.
        gathered: the ids of everything gathered so far, ``[M]`` each.
        plan: for the first comparison.
    """

    ordering: tuple[Tensor, Tensor] | None
    side_stream: SideStream
    across: bool = False
    rounded: Tensor | None = None
    by_rows: bool = False
    rows_stay: bool = False
    candidates: list[CandidateGradient] = field(default_factory=list)
    rows: list[RowGradient] = field(default_factory=list)
    leading: list[Tensor] = field(default_factory=list)
    products: list[Tensor] = field(default_factory=list)
    cubed: list[Tensor] = field(default_factory=list)

    gathered: list[Tensor] = field(default_factory=list)
    plan: Plan | None = None

    def gather(self, ids: Tensor) -> int:
        """Note that rows int64 ``[M]`` were gathered; returns the ticket of their gradient."""
        self.gathered.append(ids)
        return len(self.gathered) - 1

    def sorted_rows(self) -> list[RowGradient]:
        """The gathered rows in the order in which they were gathered."""
        return sorted(self.rows, key=lambda part: part.ticket)

    def planned(self, entities: Tensor) -> Segments | None:
        """The segments of these very candidates, if they were planned for every row."""
        planned = self.plan is not None and self.plan.entities is entities and self.plan.segments
        return planned if isinstance(planned, Segments) else None

    @property
    def whole(self) -> bool:
        """Is there a part for every row of the table?"""
        return bool(self.leading or self.products or self.cubed)

    def clear(self) -> None:
        """Forget all parts."""
        self.plan = None
        self.gathered.clear()
        for parts in (self.candidates, self.rows, self.leading, self.products, self.cubed):
            parts.clear()


class TableSinks(NamedTuple):
    """Where the parts of the gradients of a model's two tables are left; None: nowhere, autograd adds them up."""

    entity: DeferredGradients | None = None
    relation: DeferredGradients | None = None


AUTOGRAD = TableSinks()


def deferred_for(table: Tensor, ordering: tuple[Tensor, Tensor] | None = None) -> DeferredGradients:
    """An empty collection of parts for a table."""
    return DeferredGradients(ordering, SideStream(table.device))


def leave_leading(deferred: DeferredGradients | None, gradient: Tensor) -> Tensor | None:
    """Leave a gradient ``[E, D]`` of the leading columns where there is none yet; what is returned is for autograd."""
    if deferred is None or deferred.leading:
        return gradient
    deferred.leading.append(gradient)
    return None
