"""Gradients of a table that wait for the optimizer.

Adding up the gradient of an entity table costs more memory traffic than using it: autograd makes a table of the same
size for every use of the table and adds these. An optimizer that adds the parts up itself asks the table to collect
them (`collect`); kernels that know how then leave a part here and give autograd nothing. Whatever else has a gradient
still arrives in ``table.grad``, so nothing is lost where a kernel does not know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn

from eans.kernels.reference import Comparison


class CandidateGradient(NamedTuple):
    """The gradient of the candidates of one `compare` without shifts: that of its scores, and its arguments."""

    kind: Comparison
    mean_rest: bool
    gradient: Tensor
    queries: Tensor
    entities: Tensor


class RowGradient(NamedTuple):
    """The gradient ``[M, F]`` of the rows with ids int64 ``[M]``."""

    ids: Tensor
    gradient: Tensor


@dataclass
class Pending:
    """Parts of one table's gradient.

    Attributes:
        candidates: at most one.
        rows: of gathered rows.
        leading: ``[E, D]`` of the first D columns, at most one.
        products: ``[E]`` of the products of each row's halves, at most one.
        cubes: scalars; each stands for the gradient of ``scalar * sum |x|^3`` over the table.
    """

    candidates: list[CandidateGradient] = field(default_factory=list)
    rows: list[RowGradient] = field(default_factory=list)
    leading: list[Tensor] = field(default_factory=list)
    products: list[Tensor] = field(default_factory=list)
    cubes: list[Tensor] = field(default_factory=list)

    def clear(self) -> None:
        """Forget all parts."""
        for parts in (self.candidates, self.rows, self.leading, self.products, self.cubes):
            parts.clear()


def collect(table: nn.Parameter) -> Pending:
    """Let the table collect parts of its gradient from now on."""
    holder: Any = table
    holder.pending = Pending()
    pending: Pending = holder.pending
    return pending


def pending_of(table: Tensor) -> Pending | None:
    """Where to leave parts of the gradient of a table, or of a view of its leading columns; None: nowhere."""
    base: Any = table if table._base is None else table._base
    pending: Pending | None = getattr(base, "pending", None)
    if pending is None or len(base) != len(table) or table.storage_offset() or table.stride() != base.stride():
        return None
    return pending
