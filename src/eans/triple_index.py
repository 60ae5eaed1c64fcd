"""Is this triple known? Binary search over sorted keys, on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eans.arguments import choice, described, whole
from eans.errors import DataError, UsageError
from eans.types import Side

SIDES: tuple[Side, Side] = ("head", "tail")
HEAD, RELATION, TAIL = 0, 1, 2
BLOCK = 1 << 18  # numbers that are worked on at a time: what is computed of them is small beside what is kept


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


def distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The different values, ascending, in the memory of `values` ``[n]``, which nobody else may hold."""
    values.sort()
    count = 0
    for start in range(0, len(values), BLOCK):
        part = values[start : start + BLOCK]
        new = np.empty(len(part), bool)
        new[0] = not count or values[count - 1] != part[0]  # what is kept last is the greatest value so far
        np.not_equal(part[1:], part[:-1], out=new[1:])
        kept = part[new]
        values[count : count + len(kept)] = kept
        count += len(kept)
    values.resize(count, refcheck=False)
    return values


class TripleIndex:
    """Which triples are known, answered on the device by binary search over sorted 64-bit keys.

    For each side the triples are encoded as ``query * E + answer`` and sorted, so the answers of one query are a
    contiguous run. The number of a query is ``anchor * R + relation``; where ``E * R * E`` does not fit 64 bits, it is
    the place of that number among those of the known triples. Memory: 16 bytes per triple, and there up to 16 more;
    building takes none besides but for a block.

    Args:
        triples: int64 ``[n, 3]``, or several such parts.

    Attributes:
        keys: by side, int64 ``[K]``, ascending.
        queries: by side, the distinct numbers ``anchor * R + relation``, ascending; None where they are in the keys.
    """

    def __init__(self, triples: Tensor | list[Tensor], num_entities: int, num_relations: int) -> None:
        num_entities, num_relations = whole("num_entities", num_entities), whole("num_relations", num_relations)
        if num_entities * num_relations >= 2**63:
            raise DataError(f"{num_entities} entities x {num_relations} relations do not fit 64-bit keys")
        self.num_entities = num_entities
        self.num_relations = num_relations
        self.queries: dict[Side, Tensor] | None = None
        parts = _checked([*triples] if isinstance(triples, list | tuple) else [triples])
        if num_entities * num_relations * num_entities >= 2**63:
            size = sum(map(len, parts))
            if num_entities * (size + 1) >= 2**63:
                raise DataError(f"{size} triples x {num_entities} entities do not fit 64-bit triple keys")
            self.queries = {side: _distinct_of(parts, partial(self._packed, side=side)) for side in SIDES}
        self.keys: dict[Side, Tensor] = {
            side: _distinct_of(parts, partial(self._keys_in_any_order, side=side)) for side in SIDES
        }
        device = parts[0].device if parts else torch.device("cpu")
        if device.type != "cpu":
            self.__dict__.update(vars(self.to(device)))

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

    def _keys(self, triples: Tensor, side: Side) -> Tensor:
        """The key of each triple: ``[..., 3]`` -> int64 ``[...]``."""
        return self.prefix(triples, side).mul_(self.num_entities).add_(triples[..., column(side)])

    def _keys_in_any_order(self, triples: Tensor, side: Side) -> Tensor:
        """The keys of triples ``[n, 3]``. Searched for one after the other, neighbours are in the cache: a third."""
        if self.queries is not None:
            triples = triples[self._packed(triples, side).argsort()]
        return self._keys(triples, side)

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
        return self._found(self._keys(triples, "tail"), "tail")

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


def _checked(parts: list[Tensor]) -> list[Tensor]:
    for part in parts:
        if not is_ids(part, 2) or part.shape[1] != 3:
            raise UsageError(f"triples must be an int64 tensor of shape [n, 3], got {described(part)}")
    return parts


def _distinct_of(parts: Sequence[Tensor], number: Callable[[Tensor], Tensor]) -> Tensor:
    """The different numbers of all triples, ascending: int64 ``[K]``, found on the CPU."""
    found, start = np.empty(sum(map(len, parts)), np.int64), 0
    for part in parts:
        for block in torch.split(part, BLOCK):
            found[start : start + len(block)] = number(block.cpu()).numpy()
            start += len(block)
    return torch.from_numpy(distinct(found))
