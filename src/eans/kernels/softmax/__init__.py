"""The cross-entropy of a positive among its candidates."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from torch import Tensor

from eans.kernels.switch import operation


@operation("triton", "numba")
def softmax_nll(positive: Tensor, negative: Tensor, known_true: Tensor, log_proposal: Tensor | None) -> Tensor:
    """``-log(exp(s_i) / (exp(s_i) + sum_j exp(z_ij)))``: ``[B]``, 3 x ``[B, N]`` -> ``[B]``.

    ``exp(z_ij) = exp(s_ij) / (N q_ij)`` for a negative drawn with probability ``q_ij = exp(log_proposal)``, without the
    factor where there is no proposal; 0 where the negative is known to be true.
    """
