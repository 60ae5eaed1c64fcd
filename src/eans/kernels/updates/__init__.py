"""Adam and Adagrad for one table, which may add up the parts of a deferred gradient on the way."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

import torch
from torch import Tensor

from eans.kernels.deferred_gradients import DeferredGradients
from eans.kernels.switch import REFERENCE, implementation_for

Betas = tuple[float, float]
HOMES = {name: f"{__name__}.{name}" for name in (REFERENCE, "numba", "triton")}


class UpdateKernels(Protocol):
    """What an optimizer calls: a module with these names.

    Attributes:
        __name__: of the module.
        COLLECTS: does `update` add up the parts of a deferred gradient (`eans.kernels.deferred_gradients`)? By rows,
            all do.
        ROUNDS: does it keep `DeferredGradients.rounded` up to date, and do comparisons and products read it?
    """

    __name__: str
    COLLECTS: bool
    ROUNDS: bool

    def advance(self, step: Tensor, rate: Tensor, betas: Betas | None, out: Tensor) -> None:
        """Add 1 to the counter `step` and set `out` ``[2]`` to what `update` needs: the size of the step and the factor
        of the root. Adam's are corrected for the start; those of Adagrad, which has no betas, are the rate and 1.
        """

    def update(
        self,
        table: Tensor,
        averages: Tensor | None,
        squares: Tensor,
        factors: Tensor,
        deferred: DeferredGradients | None,
        dense: Tensor | None,
        betas: Betas | None,
        epsilon: float,
    ) -> None:
        """One step of Adam or Adagrad in place, with the gradient `dense` plus all deferred parts.

        ``average = b1 average + (1 - b1) g``, ``square = b2 square + (1 - b2) g^2`` (Adam) or ``square + g^2``
        (Adagrad, whose average is ``g``), then ``row -= size * average / (root * sqrt(square) + epsilon)``. With one
        square per row, Adagrad adds the mean of ``g^2`` over the columns to it.

        By rows (`DeferredGradients.by_rows`) those that have a gradient are updated, and nothing is read, written or
        allocated for the others.

        Args:
            table: ``[E, F]``: the parameters.
            averages, squares: ``[E, F]``: Adam's two moments; or None and Adagrad's sum of squared gradients, of every
                number ``[E, F]`` or of every row ``[E]``.
            factors: from `advance`.
            deferred: parts of the gradient; None for a table that does not collect. By rows these are all of it.
            dense: ``[E, F]`` or None: the rest of it.
            betas, epsilon: of Adam; or None and Adagrad's epsilon.
        """


def optimizer_kernels(device: torch.device) -> UpdateKernels:
    """The module of the chosen implementation that updates tables."""
    return cast(UpdateKernels, import_module(HOMES.get(implementation_for(device), HOMES[REFERENCE])))
