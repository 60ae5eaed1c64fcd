"""Lazy Adam: what dense Adam would have done to a row of a table since its last gradient, in closed form.

Without a gradient after step s, Adam's moments shrink, ``m = b1^j m_s`` and ``v = b2^j v_s``, and the row moves on::

    delta = - m_s sum_j w_{s+j} rho^j / (sqrt(v_s) + epsilon c_j)    j = 1 .. k,   rho = b1 / sqrt(b2)
    w_t = rate_t sqrt(1 - b2^t) / (1 - b1^t)                         c_j = sqrt(1 - b2^(s+j)) b2^(-j/2)

The sum depends on the row through ``epsilon c_j`` alone, which hardly differs between the few j that count: with
``S = sum w rho^j`` and ``C = sum w rho^j c_j``, two numbers for each step s,

    delta = - S m_s / (sqrt(v_s) + epsilon C / S)

up to a relative error of about ``(epsilon / sqrt(v_s))^2`` times the variance of c. As ``rho^TERMS = 2e-12``, a step
changes the sums of the TERMS steps before it alone.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from torch import Tensor

from eans.kernels.switch import operation
from eans.kernels.updates import Betas

TERMS = 256


@operation("triton", "numba")
def remember(sums: Tensor, step: Tensor, factors: Tensor, betas: Betas) -> None:
    """Add a step to the sums of those before it, after `advance` has counted it.

    Args:
        sums: float64 ``[TERMS + n, 2]``, n larger than the number of any step: S and C of step s are
            ``sums[TERMS + s]`` (of what would lie before step 0, nobody asks).
        step: the number of the step, a scalar.
        factors: from `advance`.
        betas: of Adam.
    """


@operation("triton", "numba")
def catch_up(
    table: Tensor,
    averages: Tensor,
    squares: Tensor,
    last: Tensor,
    sums: Tensor,
    step: Tensor,
    betas: Betas,
    epsilon: float,
    ids: Tensor | None = None,
    upcoming: bool = False,
    rounded: Tensor | None = None,
) -> None:
    """Bring rows, and their moments, to where dense Adam would have them after `step` steps; in place.

    Args:
        table, averages, squares: ``[E, F]``: parameters and moments after each row's last step.
        last: int32 ``[E]``: that step; 0 for rows that had none yet, and have no moments.
        sums, step: see `remember`.
        betas, epsilon: of Adam.
        ids: int64 ``[M]``, repeats allowed: which rows; None for all.
        upcoming: these rows will be updated by the next step, and `last` says so already.
        rounded: the table in bfloat16, to be kept up to date where kernels read it.
    """
