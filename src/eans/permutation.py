"""A permutation of many numbers that is computed where it is asked for: nothing is drawn or kept for each number."""

from __future__ import annotations

from itertools import cycle
from math import isqrt

import torch
from torch import Tensor

ROUNDS = 6  # of which each changes one of two digits; from four on, they look random to whoever does not know the keys
_ODD = (-0x61C8864680B583EB, -0x40A7B892E31B1A47)  # of splitmix64, as signed numbers
_HALF, _HIGH = (1 << 32) - 1, (1 << 40) - 1


class Permutation:
    """A permutation of 0, ..., size - 1.

    A number has two digits, ``left * width + right``, with `width` and `height` near the root of the size. In turns, a
    hash of one digit is added to the other, modulo their number: a Feistel network, as which it can be undone, whatever
    the hash. What ends beyond the size, less than one in `width`, goes through it again until it does not.

    Args:
        size: how many numbers, 1 at least and below 2 ** 62.
        seed: of the keys of the hashes.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.width = isqrt(size - 1) + 1
        self.height = -(-size // self.width)
        generator = torch.Generator().manual_seed(seed)
        self.keys: list[int] = torch.randint(1 << 62, (ROUNDS,), generator=generator).tolist()

    def between(self, start: int, stop: int, device: torch.device | str = "cpu") -> Tensor:
        """The numbers at positions ``[start, stop)``, int64 ``[stop - start]``; the same on every device."""
        found = self._through(torch.arange(start, stop, device=device))
        while len(beyond := torch.nonzero(found >= self.size).flatten()):
            found[beyond] = self._through(found[beyond])
        return found

    def _through(self, numbers: Tensor) -> Tensor:
        left, right = numbers // self.width, numbers % self.width
        for key, changed in zip(self.keys, cycle("lr"), strict=False):
            if changed == "l":
                left = _hash(right, key).add_(left).remainder_(self.height)
            else:
                right = _hash(left, key).add_(right).remainder_(self.width)
        return left.mul_(self.width).add_(right)


def _hash(digits: Tensor, key: int) -> Tensor:
    """40 bits for each, int64 ``[n]``; products wrap around."""
    mixed = (digits + key).mul_(_ODD[0])
    mixed ^= (mixed >> 32).bitwise_and_(_HALF)
    return mixed.mul_(_ODD[1]).bitwise_right_shift_(23).bitwise_and_(_HIGH)
