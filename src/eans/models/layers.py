"""Layers of a model, such as convolutions: how they start, when they learn, and which random numbers they use.

Layers behave in one way in a training step (batch norm takes the batch's own statistics, dropout leaves numbers out)
and in another everywhere else. `learning` is the one place that switches between the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from eans.errors import UsageError


class Dropout(nn.Module):
    """Zero for a `share` of the numbers in a training step, ``1 / (1 - share)`` times the others: ``[B, ...]``.

    Draws from the generator of the step, which seed and step number decide, so that a run with the same seed gives the
    same bits, a resumed one as well. `torch.nn.Dropout` draws from PyTorch's global generator, whose state is in no
    checkpoint.

    Args:
        share: of the numbers.
        whole_from: dimensions from this one on are kept or left out as a whole: 2 for the channels of ``[B, C, H, W]``;
            None: every number by itself.
    """

    def __init__(self, share: float, whole_from: int | None = None) -> None:
        super().__init__()
        if not 0.0 <= share < 1.0:
            raise UsageError(f"a dropout of {share} is impossible; it is a share, from 0 to less than 1")
        self.share, self.whole_from = share, whole_from
        self.generator: torch.Generator | None = None  # that of the step

    def forward(self, values: Tensor) -> Tensor:
        """``[B, ...]`` -> ``[B, ...]``."""
        if not self.training or not self.share:
            return values
        shape = list(values.shape)
        if self.whole_from is not None:
            shape[self.whole_from :] = [1] * (len(shape) - self.whole_from)
        uniforms = torch.rand(shape, generator=self.generator, device=values.device)
        return values * ((uniforms >= self.share) / (1.0 - self.share))

    def extra_repr(self) -> str:
        return f"{self.share}" if self.whole_from is None else f"{self.share}, whole_from={self.whole_from}"


@contextmanager
def seeded(generator: torch.Generator | None) -> Iterator[None]:
    """While active, PyTorch's global random numbers on the CPU follow from `generator`; then all is as before.

    New layers draw their first values from the global generator. With this they depend on the seed of a run alone.
    """
    seed = int(torch.randint(1 << 62, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def learning(model: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """While active, the layers of a model are in training mode, and `Dropout` draws from `generator`.

    Convolutions use deterministic algorithms, so that a GPU computes the same bits for the same seed.
    """
    dropouts = [layer for layer in model.modules() if isinstance(layer, Dropout)]
    deterministic = torch.backends.cudnn.deterministic
    for layer in dropouts:
        layer.generator = generator
    torch.backends.cudnn.deterministic = True
    model.train()
    try:
        yield
    finally:
        model.eval()
        torch.backends.cudnn.deterministic = deterministic
        for layer in dropouts:
            layer.generator = None


def require_own_dropout(model: nn.Module) -> None:
    """Raise for layers that draw from PyTorch's global generator."""
    for name, layer in model.named_modules():
        if isinstance(layer, (_DropoutNd, nn.RReLU)):
            raise UsageError(
                f"layer '{name}' of model '{type(model).__name__.lower()}' is torch.nn.{type(layer).__name__}, whose "
                "random numbers a resumed run would not repeat; use eans.models.Dropout"
            )
