"""`ShardedTable`: the rows that a rank owns, and behind them those that it has fetched for one step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from eans.distributed.world import World
from eans.huge_pages import on_huge_pages

BLOCK_NUMBERS = 1 << 22  # of rows that are sent to the first rank at a time
SLACK = 1.25  # room for guests beyond what the last step needed


class Placement(NamedTuple):
    """Which rank owns which entity: an order of all entities, cut into equal consecutive parts.

    Rank w of W owns the places v with ``floor(v W / E) = w``: their numbers differ by one at most. So a cut of the
    ordering into a multiple of W equal blocks (`eans.samplers.proposals.Block`) leaves every block on one rank.

    Attributes:
        entities: int64 ``[E]``: the entity at each place.
        places: int64 ``[E]``: the place of each entity.
        size: W.
    """

    entities: Tensor
    places: Tensor
    size: int

    @classmethod
    def by_id(cls, num_entities: int, size: int, device: torch.device | str = "cpu") -> Placement:
        """The entities in the order of their numbers."""
        numbers = torch.arange(num_entities, device=device)
        return cls(numbers, numbers, size)

    @property
    def starts(self) -> list[int]:
        """The first place of each rank's, and E."""
        size = len(self.places)
        return [-(-rank * size // self.size) for rank in range(self.size + 1)]

    def owner(self, entities: Tensor) -> Tensor:
        """The rank that owns each entity int64 ``[...]``: int64 ``[...]``."""
        return self.places[entities] * self.size // len(self.places)

    def owned(self, rank: int) -> Tensor:
        """The entities of a rank in the order of its rows: int64 ``[L]``."""
        return self.entities[self.starts[rank] : self.starts[rank + 1]]


class Guests(NamedTuple):
    """Rows of other ranks that are here for one step.

    Attributes:
        wanted: from each rank, how many.
        given: to each rank, how many.
        slots: int64 ``[sum(given)]``: which own rows were given, in the order of the ranks.
    """

    wanted: list[int]
    given: list[int]
    slots: Tensor


class ShardedTable:
    """One tensor ``[L + G, F]``: the L rows of this rank, then the G guest rows that were fetched for a step.

    Kernels work on it by local ids, as they do on a whole table; with one rank G is 0.

    A step of a rank that needs G rows of others sends, and receives, ``8 (W - 1)`` bytes of counts, 8 bytes and a row
    for each guest, and a row for its gradient.

    Args:
        rows: ``[L, F]``, those of `placement.owned`.
        placement: who owns which entity.
        world: the ranks.
    """

    def __init__(self, rows: Tensor, placement: Placement, world: World) -> None:
        self.world, self.placement = world, placement
        self.owned = len(rows)
        self._rows = rows
        self.guests = Guests([0] * world.size, [0] * world.size, torch.empty(0, dtype=torch.int64))
        assert self.owned == len(placement.owned(world.rank))

    @property
    def own(self) -> Tensor:
        """The rank's rows ``[L, F]``: a view."""
        return self._rows[: self.owned]

    @property
    def rows(self) -> Tensor:
        """Own rows and guests, ``[L + G, F]``: a view."""
        return self._rows[: self.owned + sum(self.guests.wanted)]

    def mine(self, entities: Tensor) -> Tensor:
        """Which of the entities ``[...]`` this rank owns: bool ``[...]``."""
        return self.placement.owner(entities) == self.world.rank

    def admit(self, *entities: Tensor, before: Callable[[Tensor], None] | None = None) -> list[Tensor]:
        """Fetch the rows of all these entities, int64 of any shapes, from their owners; returns their local ids.

        All ranks call it together. Guests of the call before are gone.

        Args:
            entities: whose rows a step reads.
            before: is told which own rows will be read, here or elsewhere, int64 ``[M]`` with repeats, before they are.
        """
        places = [self.placement.places[some] for some in entities]
        wanted, slots, counts = self._wanted(places)
        found = [self._local(some, wanted) for some in places]
        asked, given = self.world.exchange(slots, counts)
        if before is not None:
            here = torch.cat([some.reshape(-1) for some in found])
            before(torch.cat([here[here < self.owned], asked]))
        rows, _ = self.world.exchange(self.own[asked], given, counts)
        if self.owned + len(rows) > len(self._rows):
            grown = on_huge_pages(self._rows.new_empty(self.owned + int(SLACK * len(rows)), self._rows.shape[1]))
            grown[: self.owned] = self.own
            self._rows = grown
        self.guests = Guests(counts, given, asked)
        self._rows[self.owned : self.owned + len(rows)] = rows
        return found

    def fetch(self, entities: Tensor, own: Tensor) -> Tensor:
        """Rows of any entities int64 ``[n]`` from the tables `own` ``[L, F]`` of all ranks: ``[n, F]``.

        All ranks call it together. Nothing of the table changes.
        """
        places = self.placement.places[entities]
        wanted, slots, counts = self._wanted([places])
        asked, given = self.world.exchange(slots, counts)
        received, _ = self.world.exchange(own[asked], given, counts)
        local = self._local(places, wanted)
        here = local < self.owned
        rows = own.new_empty(len(entities), own.shape[1])
        rows[here], rows[~here] = own[local[here]], received[local[~here] - self.owned]
        return rows

    def _wanted(self, places: list[Tensor]) -> tuple[Tensor, Tensor, list[int]]:
        """Of places, those of other ranks: each one once, in order; their rows there; and how many each rank has."""
        starts = torch.tensor(self.placement.starts, device=self._rows.device)
        everything = torch.cat([some.reshape(-1) for some in places])
        first = starts[self.world.rank]
        wanted = torch.unique(everything[(everything < first) | (everything >= first + self.owned)])
        counts = torch.searchsorted(wanted, starts).diff()
        return wanted, wanted - starts[:-1].repeat_interleave(counts), counts.tolist()

    def _local(self, places: Tensor, wanted: Tensor) -> Tensor:
        """Local ids of places, of which those in `wanted` are guests."""
        here = places - self.placement.starts[self.world.rank]
        return torch.where((here >= 0) & (here < self.owned), here, self.owned + torch.searchsorted(wanted, places))

    def return_guests(self, rows: Tensor) -> Tensor:
        """Send a row for each guest, ``[G, F]``, to its owner; what others return, for the rows of `guests.slots`."""
        return self.world.exchange(rows, self.guests.wanted, self.guests.given)[0]

    def blocks(self, rows: Tensor) -> Iterator[Tensor]:
        """Own rows ``[L, ...]`` of all ranks by the entities' numbers, a block at a time, on the first rank.

        All ranks go through it together; the blocks of the others have no rows.
        """
        size = len(self.placement.places)
        count = max(1, BLOCK_NUMBERS // max(1, math.prod(rows.shape[1:])))
        for first in range(0, size, count):
            places = self.placement.places[first : first + count]
            owner = places * self.world.size // size
            slots = places[owner == self.world.rank] - self.placement.starts[self.world.rank]
            counts = [len(slots) if rank == 0 else 0 for rank in range(self.world.size)]
            arriving = torch.bincount(owner, minlength=self.world.size).tolist()
            expected = arriving if self.world.first else [0] * self.world.size
            received, _ = self.world.exchange(rows[slots], counts, expected)
            if self.world.first:  # rank by rank, and of each in the order of the numbers
                block = torch.empty_like(received)
                block[torch.argsort(owner, stable=True)] = received
                yield block.cpu()
            else:
                yield received

    def move(self, placement: Placement, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Hand every row to its new owner, and what belongs to it: one message from each rank to each other.

        Args:
            placement: the new one, the same on all ranks.
            state: tensors with a row for each own row, ``[L, ...]``, such as the moments of an optimizer.

        Returns:
            The rows of `state` of the new own rows. The table's are in place.
        """
        world, here = self.world, self.placement.owned(self.world.rank)
        owner = placement.owner(here)
        # By new owner, and there in the order of its rows: so that it need not be told which row is which.
        leaving = torch.argsort(placement.places[here])
        counts = torch.bincount(owner, minlength=world.size).tolist()
        arriving = self.placement.owner(placement.owned(world.rank))
        expected = torch.bincount(arriving, minlength=world.size).tolist()
        arrival = torch.argsort(torch.argsort(arriving, stable=True))  # rows come rank by rank
        moved = {}
        for name, rows in {"": self.own, **state}.items():
            received, _ = world.exchange(rows[leaving], counts, expected)
            moved[name] = received[arrival]
        self.placement = placement
        self._rows[: self.owned] = moved.pop("")
        return moved
