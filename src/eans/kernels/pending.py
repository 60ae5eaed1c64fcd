"""Gradients of a table that wait for the optimizer.

Adding up the gradient of an entity table costs more memory traffic than using it: autograd makes a table of the same
size for every use of the table and adds these. An optimizer that adds the parts up itself asks the table to collect
them (`collect`); while `Pending.on`, kernels that know how leave a part here and give autograd nothing. Whatever else
has a gradient still arrives in ``table.grad``, so nothing is lost where a kernel does not know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn

from eans.kernels.aside import Aside
from eans.kernels.reference import Comparison


class CandidateGradient(NamedTuple):
    """The gradient of the candidates of one `compare` without shifts: that of its scores, and its arguments."""

    kind: Comparison
    mean_rest: bool
    gradient: Tensor
    queries: Tensor
    entities: Tensor


class RowGradient(NamedTuple):
    """The gradient ``[M, F]`` of the rows with ids int64 ``[M]``; `ticket` says which gathering it was."""

    ticket: int
    ids: Tensor
    gradient: Tensor


class Segments(NamedTuple):
    """Where each row of a table is used: by candidate pairs first, then by gathered rows.

    Attributes:
        order: int64 ``[M]``: numbers below `pairs` are positions in the candidates ``[B * N]``, the others, less
            `pairs`, positions in the gathered rows; both ascending for one row of the table.
        starts: int64 ``[E + 1]``: the uses of the row at place v are ``order[starts[v] : starts[v + 1]]``.
        pairs: B * N.
    """

    order: Tensor
    starts: Tensor
    pairs: int


class Plan(NamedTuple):
    """Segments that are sorted ahead: of the candidates `entities` and of the first `gatherings`."""

    entities: Tensor
    gatherings: int
    segments: Segments


@dataclass
class Pending:
    """Parts of one table's gradient.

    Attributes:
        line: an order of the rows in which those that are used together stand close: the row at each place and the
            place of each row, int64 ``[E]``; None for the table's own order.
        aside: where the uses are sorted while the scores are computed.
        on: does the table collect at the moment? Otherwise it is a parameter like any other.
        across: candidates of each positive are sorted, so that work on the same part of each shares rows.
        rounded: the table in bfloat16, ``[E, F]``, which comparisons and products read instead, and perhaps some rows
            of zeros; None for the table itself.
        candidates: at most one.
        rows: of gathered rows.
        leading: ``[E, D]`` of the first D columns, at most one.
        products: ``[E]`` of the products of each row's halves, at most one.
        cubes: scalars; each stands for the gradient of ``scalar * sum |x|^3`` over the table.
        gathered: the ids of everything gathered so far, ``[M]`` each.
        plan: for the first comparison.
    """

    line: tuple[Tensor, Tensor] | None
    aside: Aside
    on: bool = True
    across: bool = False
    rounded: Tensor | None = None
    candidates: list[CandidateGradient] = field(default_factory=list)
    rows: list[RowGradient] = field(default_factory=list)
    leading: list[Tensor] = field(default_factory=list)
    products: list[Tensor] = field(default_factory=list)
    cubes: list[Tensor] = field(default_factory=list)

    gathered: list[Tensor] = field(default_factory=list)
    plan: Plan | None = None

    def gather(self, ids: Tensor) -> int:
        """Note that rows int64 ``[M]`` were gathered; returns the ticket of their gradient."""
        self.gathered.append(ids)
        return len(self.gathered) - 1

    def planned(self, entities: Tensor) -> Segments | None:
        """The segments of these very candidates, if they were planned."""
        return self.plan.segments if self.plan is not None and self.plan.entities is entities else None

    def clear(self) -> None:
        """Forget all parts."""
        self.plan = None
        self.gathered.clear()
        for parts in (self.candidates, self.rows, self.leading, self.products, self.cubes):
            parts.clear()


def collect(table: nn.Parameter, line: tuple[Tensor, Tensor] | None = None) -> Pending:
    """Let the table collect parts of its gradient from now on."""
    holder: Any = table
    holder.pending = Pending(line, Aside(table.device))
    pending: Pending = holder.pending
    return pending


def pending_of(table: Tensor) -> Pending | None:
    """Where to leave parts of the gradient of a table, or of a view of its leading columns; None: nowhere."""
    base: Any = table if table._base is None else table._base
    pending: Pending | None = getattr(base, "pending", None)
    if (
        pending is None
        or not pending.on
        or len(base) != len(table)
        or table.storage_offset()
        or table.stride() != base.stride()
    ):
        return None
    return pending
