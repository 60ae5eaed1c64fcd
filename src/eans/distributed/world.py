"""`World`: the ranks that train together, and the three things they do: exchange rows, add up, and agree."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from eans.errors import RunError

SLICED_FROM = 1 << 12  # numbers from which a sum is made in slices: more messages, fewer bytes


class Lost(RunError):
    """Another rank has gone, or does not answer."""


class World:
    """A process among those that train together. Alone, it sends nothing and needs no `torch.distributed`.

    Every rank makes the same calls in the same order. Sums are made in the order of the ranks, so all have their bits.

    Args:
        rank, size: which process this is, and of how many.
        device: where the tensors are that are sent: a CPU (gloo) or this rank's GPU (NCCL).
        restarted: were ranks of this job started before, and ended?

    Attributes:
        sent: bytes that have left this rank.
    """

    def __init__(
        self, rank: int = 0, size: int = 1, device: torch.device | str = "cpu", restarted: bool = False
    ) -> None:
        self.rank, self.size, self.device, self.restarted = rank, size, torch.device(device), restarted
        self.sent = 0

    @property
    def first(self) -> bool:
        """Is it the rank that shows what happens and writes the run folder?"""
        return self.rank == 0

    def exchange(
        self, rows: Tensor, counts: Sequence[int], expected: Sequence[int] | None = None
    ) -> tuple[Tensor, list[int]]:
        """Send the first ``counts[0]`` rows to rank 0, the next ``counts[1]`` to rank 1, and so on.

        Args:
            rows: ``[sum(counts), ...]``, on any device.
            counts: one for each rank, itself included.
            expected: how many rows come from each, where that is known; else 8 bytes say it to each.

        Returns:
            What all ranks sent here, in the order of the ranks, and how many rows came from each.
        """
        if self.size == 1:
            return rows, list(counts)
        expected = self._counts(counts) if expected is None else list(expected)
        received = rows.new_empty(sum(expected), *rows.shape[1:], device=self.device)
        with self._named():
            dist.all_to_all_single(received, rows.to(self.device).contiguous(), expected, list(counts))
        self.sent += (sum(counts) - counts[self.rank]) * rows[:1].numel() * rows.element_size() if len(rows) else 0
        return received.to(rows.device), expected

    def _counts(self, counts: Sequence[int]) -> list[int]:
        sent = torch.tensor(counts, device=self.device)
        received = torch.empty_like(sent)
        with self._named():
            dist.all_to_all_single(received, sent)
        self.sent += (self.size - 1) * sent.element_size()
        found: list[int] = received.tolist()
        return found

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all ranks, as many as each has, in the order of the ranks: ``[n, ...]``."""
        if self.size == 1:
            return rows
        counts = [len(rows)] * self.size
        return self.exchange(rows.repeat(self.size, *[1] * (rows.dim() - 1)), counts)[0]

    def total(self, values: Tensor) -> Tensor:
        """The sum over the ranks, with the same bits on each: of the shape of `values`.

        Small tensors go to all: ``(W - 1) n`` numbers leave each rank. Of others each rank adds up a slice:
        ``2 (W - 1) ceil(n / W)``.
        """
        if self.size == 1:
            return values
        if values.numel() < SLICED_FROM:
            return _added(self._all(values.reshape(1, -1))).view(values.shape)
        length = -(-values.numel() // self.size)
        slices = torch.nn.functional.pad(values.reshape(-1), (0, length * self.size - values.numel()))
        parts, _ = self.exchange(slices.view(self.size, length), [1] * self.size, [1] * self.size)
        summed = self._all(_added(parts)[None])
        return summed.view(-1)[: values.numel()].view(values.shape)

    def _all(self, row: Tensor) -> Tensor:
        """The row ``[1, n]`` of every rank: ``[W, n]``."""
        once = [1] * self.size
        return self.exchange(row.expand(self.size, -1), once, once)[0]

    def share(self, values: Tensor) -> Tensor:
        """Fill `values` with those of rank 0; returns them."""
        if self.size > 1:
            with self._named():
                dist.broadcast(values, 0)
            self.sent += (self.size - 1) * values.nbytes if self.first else 0
        return values

    def any(self, flag: bool) -> bool:
        """Does any rank say so?"""
        return flag if self.size == 1 else bool(self.total(torch.tensor([flag], device=self.device).float()).any())

    def require(self, error: Exception | None) -> None:
        """Go on where no rank has an error; one that has raises it, and all others `Lost`."""
        failed = self.any(error is not None)
        if error is not None:
            raise error
        if failed:
            raise Lost(f"another rank than {self.rank} of {self.size} has failed")

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise Lost(f"rank {self.rank} of {self.size} lost another rank: {str(error).splitlines()[0]}") from error


def _added(rows: Tensor) -> Tensor:
    """The sum of rows ``[W, n]``, one after the other, which gives the same bits on every machine: ``[n]``."""
    return functools.reduce(torch.add, rows.unbind())


ALONE = World()
