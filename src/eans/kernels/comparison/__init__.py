"""Comparing each positive's candidates with its queries: most of the work of a training step."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from torch import Tensor

from eans.kernels.deferred_gradients import DeferredGradients
from eans.kernels.kinds import Comparison
from eans.kernels.switch import operation


@operation("triton", "numba")
def compare(
    kind: Comparison,
    queries: Tensor,
    table: Tensor,
    entities: Tensor,
    shifts: Tensor | None = None,
    scalars: Tensor | None = None,
    mean_rest: bool = False,
    deferred: DeferredGradients | None = None,
) -> Tensor:
    """Compare each positive's candidates with each of its queries; differentiable in all float arguments.

    TransD moves the candidate along one direction that belongs to the query: ``c = row + scalar[entity] * shift``.

    Args:
        kind: how; see `eans.kernels.kinds`.
        queries: ``[Q, B, D]``: Q queries for each of B positives, all compared with the same candidates.
        table: ``[E, D]`` entity rows; rows may be strided.
        entities: int64 ``[B, N]`` candidates.
        shifts, scalars: ``[Q, B, D]`` and ``[E]``, both or neither: candidate ``e`` becomes
            ``table[e] + scalars[e] * shifts[q, b]``.
        mean_rest: average the scores of all queries but the first.
        deferred: where parts of the gradient of the table, or of its leading columns, are left.

    Returns:
        Scores ``[Q, B, N]``; with `mean_rest` ``[min(Q, 2), B, N]``.
    """
