"""Which place in the ordering of entities a negative takes, given the place of the positive one; and how likely it is.

Probabilities come from tables in double precision, made once when a loss first needs them, so that saying how
likely a draw was costs one look-up.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor

from eans import kernels

ProposalName = Literal["gaussian", "block", "student"]
FARTHEST = 1e9  # standard steps: what a heavy tail adds beyond would not fit an index
# Times round the ordering, each way, that tables follow a heavy tail; what lies beyond is level to 1e-4 of itself.
MOST_IMAGES = 20
# A distribution this many times wider than the ordering is level all over: wider ones have the same table.
WIDEST = 2.0
ROUNDING = 1e-12


class Proposal(ABC):
    """A distribution over the places ``0 .. size - 1`` of an ordering, around a starting place."""

    def __init__(self, size: int) -> None:
        self.size = size

    @abstractmethod
    def draw(self, ordering: Tensor, start: Tensor, negatives: int, generator: torch.Generator) -> Tensor:
        """Entities of `ordering` int64 ``[E]`` at N places drawn around each of `start` ``[B]``: int64 ``[B, N]``."""

    @abstractmethod
    def log_mass(self, start: Tensor, places: Tensor) -> Tensor:
        """Log-probability of drawing `places` ``[B, N]`` around `start` ``[B]``: float32 ``[B, N]``."""


class Gaussian(Proposal):
    """``start + round(sigma z)``, ``z ~ N(0, 1)``, modulo E: the ends are joined.

    ``P(offset) = Phi((offset + 1/2) / sigma) - Phi((offset - 1/2) / sigma)``, added up over the offsets that lead
    to the same place.

    Args:
        size: places of the ordering, E.
        sigma: standard deviation in places.
    """

    reach = 9.0  # standard steps beyond which nothing is left

    def __init__(self, size: int, sigma: float) -> None:
        super().__init__(size)
        self.sigma = sigma
        self._table: Tensor | None = None

    def noise(self, shape: tuple[int, int], generator: torch.Generator, device: torch.device) -> Tensor:
        """Standard steps: float32 of `shape`."""
        return torch.randn(shape, generator=generator, device=device)

    def beyond(self, steps: Tensor) -> Tensor:
        """``P(noise > steps)`` for standard steps >= 0, float64 ``[...]``."""
        return torch.erfc(steps / math.sqrt(2.0)) / 2

    def draw(self, ordering: Tensor, start: Tensor, negatives: int, generator: torch.Generator) -> Tensor:
        noise = self.noise((len(start), negatives), generator, start.device)
        return kernels.step_along(ordering, start, noise, self.sigma)

    def log_mass(self, start: Tensor, places: Tensor) -> Tensor:
        return self._log_masses(places.device)[(places - start[:, None]) % self.size]

    def _mass(self, offset: Tensor, sigma: float) -> Tensor:
        """Probability of whole offsets float64 ``[...]`` on an endless ordering."""
        # Differences of tails, so that small probabilities do not drown in the rounding of large ones.
        distance = offset.abs()
        far = self.beyond((distance + 0.5) / sigma)
        near = self.beyond((distance - 0.5).clamp(min=0.0) / sigma)
        return torch.where(distance == 0.0, 1.0 - 2.0 * far, near - far)

    def _log_masses(self, device: torch.device) -> Tensor:
        """Log-probability of every offset modulo E: float32 ``[E]``."""
        if self._table is None or self._table.device != device:
            size, sigma = self.size, min(self.sigma, WIDEST * self.size)
            offset = torch.arange(size).double()
            # As near to zero as can be: what is cut off on either side then differs least between places.
            offset = torch.where(offset > size // 2, offset - size, offset)
            mass = torch.zeros_like(offset)
            images = math.ceil(min(MOST_IMAGES, self.reach * sigma / size + 1))
            for image in range(-images, images + 1):
                mass += self._mass(offset + image * size, sigma)
            # What is farther away is spread evenly; rounding errors are not.
            rest = 1.0 - float(mass.sum())
            mass += rest / size if rest > ROUNDING else 0.0
            self._table = mass.clamp_(min=0.0).log_().float().to(device)
        return self._table


class Student(Gaussian):
    """The same with heavy tails: ``z = normal / sqrt(chi2 / freedom)``, Student's t, so that far entities occur too.

    Args:
        size, sigma: see `Gaussian`; sigma is the scale, not the standard deviation (which may not exist).
        freedom: whole degrees of freedom; 1 is a Cauchy distribution, large ones approach the Gaussian.
    """

    reach = math.inf

    def __init__(self, size: int, sigma: float, freedom: int) -> None:
        super().__init__(size, sigma)
        self.freedom = freedom

    def noise(self, shape: tuple[int, int], generator: torch.Generator, device: torch.device) -> Tensor:
        normal = super().noise(shape, generator, device)
        # chi2 of two degrees is twice an exponential variable; an odd degree is the square of a normal one.
        odd = self.freedom % 2 == 1
        chi2 = super().noise(shape, generator, device).square_() if odd else torch.zeros_like(normal)
        for _ in range(self.freedom // 2):
            chi2 += 2.0 * torch.empty_like(normal).exponential_(generator=generator)
        chi2.clamp_(min=torch.finfo(chi2.dtype).tiny)
        return normal.mul_((chi2 / self.freedom).rsqrt_()).clamp_(-FARTHEST, FARTHEST)

    def beyond(self, steps: Tensor) -> Tensor:
        """The closed forms for whole degrees: finite sums in ``angle = atan(steps / sqrt(freedom))``."""
        angle = torch.atan(steps / math.sqrt(self.freedom))
        sine, cosine = angle.sin(), angle.cos()
        odd = self.freedom % 2
        term = cosine if odd else torch.ones_like(cosine)
        terms = torch.zeros_like(cosine)
        for power in range(odd, self.freedom - 1, 2):
            terms += term
            term = term * cosine.square() * ((power + 1) / (power + 2))
        inside = 2.0 / math.pi * (angle + sine * terms) if odd else sine * terms
        return (1.0 - inside) / 2


class Block(Proposal):
    """Uniform inside the block that holds the start; the ordering is cut into equal consecutive blocks.

    Block b of W holds the places v with ``floor(v W / E) = b``: sizes differ by one at most.

    Args:
        size: places of the ordering, E.
        blocks: W, at most E.
    """

    def __init__(self, size: int, blocks: int) -> None:
        super().__init__(size)
        self.blocks = blocks

    def _bounds(self, start: Tensor) -> tuple[Tensor, Tensor]:
        """First place of the block around each start ``[B]``, and the first one behind it: int64 ``[B]`` each."""
        block = start * self.blocks // self.size
        first = (block * self.size + self.blocks - 1) // self.blocks
        behind = ((block + 1) * self.size + self.blocks - 1) // self.blocks
        return first, behind

    def draw(self, ordering: Tensor, start: Tensor, negatives: int, generator: torch.Generator) -> Tensor:
        first, behind = self._bounds(start)
        # Remainders of numbers this large are as good as uniform.
        number = torch.randint(2**62, (len(start), negatives), generator=generator, device=start.device)
        return ordering[first[:, None] + number % (behind - first)[:, None]]

    def log_mass(self, start: Tensor, places: Tensor) -> Tensor:
        first, behind = (bound[:, None] for bound in self._bounds(start))
        return torch.where((places >= first) & (places < behind), -(behind - first).float().log(), -torch.inf)
