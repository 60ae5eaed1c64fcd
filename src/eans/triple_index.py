"""Is this triple known? Binary search over sorted keys, on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from eans.arguments import choice, described, whole
from eans.errors import DataError, UsageError
from eans.types import Side

SIDES: tuple[Side, Side] = ("head", "tail")
HEAD, RELATION, TAIL = 0, 1, 2


def column(side: Side) -> int:
    """The column of a triple that `side` names."""
    if not isinstance(side, str) or side not in SIDES:
        choice("side", side, SIDES)
    return HEAD if side == "head" else TAIL


def is_ids(found: object, dimensions: int | None = None) -> bool:
    """Is it a tensor of ids, int64, with so many dimensions if it matters how many?"""
    return isinstance(found, Tensor) and found.dtype == torch.int64 and dimensions in (None, found.dim())


def opposite(side: Side) -> Side:
    """The other end of the triple."""
    column(side)  # says so if it is no side
    return "tail" if side == "head" else "head"


def ragged(sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of sizes ``[n]`` one after another: for each member its row and its place there, int64 ``[sum]`` each."""
    rows = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
    return rows, torch.arange(len(rows), device=sizes.device) - (sizes.cumsum(0) - sizes)[rows]


class TripleIndex:
    """Which triples are known, answered on the device by binary search over sorted 64-bit keys.

    For each side the triples are encoded as ``query * E + answer`` and sorted, so the answers of one query are a
    contiguous run. The number of a query is ``anchor * R + relation``; where ``E * R * E`` does not fit 64 bits, it is
    the place of that number among those of the known triples. Memory: 16 bytes per triple, and there up to 16 more.

    Attributes:
        keys: by side, int64 ``[K]``, ascending.
        queries: by side, the distinct numbers ``anchor * R + relation``, ascending; None where they are in the keys.
    """

    def __init__(self, triples: Tensor, num_entities: int, num_relations: int) -> None:
        num_entities, num_relations = whole("num_entities", num_entities), whole("num_relations", num_relations)
        if num_entities * num_relations >= 2**63:
            raise DataError(f"{num_entities} entities x {num_relations} relations do not fit 64-bit keys")
        self.num_entities = num_entities
        self.num_relations = num_relations
        self.queries: dict[Side, Tensor] | None = None
        if num_entities * num_relations * num_entities >= 2**63:
            if num_entities * (len(triples) + 1) >= 2**63:
                raise DataError(f"{len(triples)} triples x {num_entities} entities do not fit 64-bit triple keys")
            self.queries = {side: torch.unique(self._packed(triples, side)) for side in SIDES}
        self.keys: dict[Side, Tensor] = {
            side: torch.unique(self.prefix(triples, side) * num_entities + triples[:, column(side)]) for side in SIDES
        }

    def to(self, device: torch.device | str) -> TripleIndex:
        """A copy of the index on `device` (itself when it is already there)."""
        moved = object.__new__(TripleIndex)
        moved.num_entities, moved.num_relations = self.num_entities, self.num_relations
        moved.keys = {side: keys.to(device) for side, keys in self.keys.items()}
        moved.queries = {side: known.to(device) for side, known in self.queries.items()} if self.queries else None
        return moved

    def __len__(self) -> int:
        return len(self.keys["tail"])

    def _packed(self, triples: Tensor, side: Side) -> Tensor:
        """``anchor * R + relation``: ``[..., 3]`` -> int64 ``[...]``."""
        known = column(opposite(side))
        if not is_ids(triples) or triples.shape[-1:] != (3,):
            raise UsageError(f"triples must be an int64 tensor of shape [..., 3], got {described(triples)}")
        return triples[..., known] * self.num_relations + triples[..., RELATION]

    def prefix(self, triples: Tensor, side: Side) -> Tensor:
        """The number of each query, which its keys start with: ``[..., 3]`` -> int64 ``[...]``."""
        packed = self._packed(triples, side)
        if self.queries is None:
            return packed
        known = self.queries[side]
        if not len(known):
            return torch.zeros_like(packed)
        place = torch.searchsorted(known, packed.contiguous()).clamp_(max=len(known) - 1)
        # No key starts with the number that all unknown queries share.
        return torch.where(known[place] == packed, place, len(known))

    def pairs(self, side: Side) -> Tensor:
        """The query of each key as ``anchor * R + relation``: int64 ``[K]``, ascending."""
        numbers = self.keys[side] // self.num_entities
        return numbers if self.queries is None else self.queries[side][numbers]

    def _found(self, keys: Tensor, side: Side) -> Tensor:
        table = self.keys[side]
        if not len(table):
            return torch.zeros_like(keys, dtype=torch.bool)
        position = torch.searchsorted(table, keys).clamp_(max=len(table) - 1)
        return table[position] == keys

    def contains(self, triples: Tensor) -> Tensor:
        """``[..., 3]`` triples -> bool ``[...]``."""
        return self._found(self.prefix(triples, "tail") * self.num_entities + triples[..., TAIL], "tail")

    def contains_candidates(self, triples: Tensor, side: Side, entities: Tensor) -> Tensor:
        """Is the triple known once its `side` is replaced? ``[B, 3]``, entities ``[B, N]`` -> bool ``[B, N]``."""
        prefix = self.prefix(triples, side)
        if not is_ids(entities, 2) or prefix.shape != entities.shape[:1]:
            raise UsageError(
                f"entities must be an int64 tensor of shape [{len(triples)}, n], got {described(entities)}"
            )
        return self._found(prefix[:, None] * self.num_entities + entities, side)

    def run(self, triples: Tensor, side: Side) -> tuple[Tensor, Tensor]:
        """Where the answers of each query lie in ``keys[side]``: ``[B, 3]`` -> int64 start and stop, ``[B]`` each.

        The query's own `side` column is ignored. The answers are the keys' remainders modulo the number of entities.
        """
        first = self.prefix(triples, side) * self.num_entities
        start = torch.searchsorted(self.keys[side], first)
        stop = torch.searchsorted(self.keys[side], first + self.num_entities)
        return start, stop

    def count(self, triples: Tensor, side: Side) -> Tensor:
        """How many entities answer each query: ``[B, 3]`` -> int64 ``[B]``."""
        start, stop = self.run(triples, side)
        return stop - start

    def answers(self, triples: Tensor, side: Side) -> tuple[Tensor, Tensor]:
        """All known answers of the queries ``[B, 3]`` (their own `side` column is ignored).

        Returns ``(rows, entities)``, both int64 ``[K]``: entity ``entities[i]`` answers query ``rows[i]``.
        """
        start, stop = self.run(triples, side)
        rows, offset = ragged(stop - start)
        return rows, self.keys[side][start[rows] + offset] % self.num_entities
