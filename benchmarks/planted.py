"""Large power-law graphs with planted structure: ``python -m benchmarks.planted --entities N --triples T --out DIR``.

Entities belong to groups of about a hundred, and groups are the points of a grid of three axes that wrap around. A
relation leads from an entity to those of its own group, or of the next one along an axis: near in the grid is near in
the graph, and products, translations and rotations can tell the relations apart. The k-th most popular entity is the
head of triples in proportion to ``k ** -0.8``, inside a group tails are as uneven, and relations are too. The ids of
entities are in no order.

Everything follows from the number of a triple and the seed, a block of triples at a time: memory is a byte for each
entity and some hundred bytes for each triple of a block, and the size of blocks changes nothing. The graph is written
as three Parquet files of numbers: `load` makes a `KnowledgeGraph` of them, and so does `eans.load`, with other ids.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from pyarrow import parquet
from torch import Tensor

from eans.errors import DataError
from eans.files import atomic_write
from eans.graph import HEAD, RELATION, SPLITS, TAIL, KnowledgeGraph, Side, Split, Vocabulary
from eans.vocabulary import LABELS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
ROOT = 5  # popularity falls as rank ** -(1 - 1 / ROOT): its sums are roots, and what inverts them are products
MEMBERS = 100  # entities of a group, about
AXES = 3
HELD_OUT = (0.05, 50_000)  # of the triples, for valid and for test each: this share, and at most so many
BLOCK = 1 << 21
SCHEMA = pa.schema([(part, pa.int32()) for part in ("head", "relation", "tail")])
FACTS = "planted.json"


def uniforms(seed: int, stream: int, start: int, count: int) -> Floats:
    """The random numbers ``start, start + 1, ...`` of a stream, from 0 to 1: ``[count]``."""
    bits = np.random.Philox(key=np.array([seed, stream], np.uint64))
    bits.advance(start // 4)  # each step of this generator makes four
    return np.random.Generator(bits).random(start % 4 + count)[start % 4 :]


def popular(uniform: Floats, count: int) -> Ints:
    """Places 0, 1, ... below `count` for numbers from 0 to 1: the k-th place is drawn about as ``k ** -0.8``."""
    root = 1.0 + uniform * ((count + 1.0) ** (1 / ROOT) - 1.0)
    power = root.copy()
    for _ in range(ROOT - 1):
        power *= root
    places: Ints = np.minimum((power - 1.0).astype(np.int64), count - 1)
    return places


@dataclass(frozen=True)
class Planted:
    """What decides a graph: its sizes and the seed. `triples` are drawn; those that repeat another are left out."""

    entities: int
    relations: int
    triples: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.entities < 1 << 31 or min(self.entities, self.relations, self.triples) < 1:
            raise DataError(f"{self}: sizes must be positive, and entities fewer than 2^31")

    @property
    def side(self) -> int:
        """Groups along an axis."""
        return max(2, round(math.pow(self.entities / MEMBERS, 1 / AXES)))

    @property
    def groups(self) -> int:
        """The entity with popularity rank k belongs to group ``k % groups``, as its member ``k // groups``."""
        return min(int(self.side**AXES), self.entities)

    @cached_property
    def offsets(self) -> Ints:
        """Where a relation leads: to the same group, or to the next one along an axis, ``[R, 3]``."""
        drawn = (uniforms(self.seed, 0, 0, self.relations) * (2 * AXES + 1)).astype(np.int64)
        found = np.zeros((self.relations, AXES), np.int64)
        moved = np.flatnonzero(drawn)
        found[moved, (drawn[moved] - 1) // 2] = 1 - 2 * (drawn[moved] % 2)
        return found

    @cached_property
    def step(self) -> int:
        """Popularity rank k is entity ``k * step % E``: as far from a ratio of small numbers as can be."""
        step = max(1, round(self.entities * (math.sqrt(5) - 1) / 2))
        while math.gcd(step, self.entities) != 1:
            step += 1
        return step

    def entity(self, ranks: Ints) -> Ints:
        """The entities with these popularity ranks, of any shape."""
        return ranks * self.step % self.entities

    def rank(self, entities: Ints) -> Ints:
        """The popularity ranks of entities, from 0: the inverse of `entity`."""
        return entities * pow(self.step, -1, self.entities) % self.entities

    def target(self, groups: Ints, relations: Ints, side: Side) -> Ints:
        """The group in which answers on `side` are, for the groups ``[n]`` of the known entities."""
        sign = 1 if side == "tail" else -1
        found, scale = np.zeros_like(groups), 1
        for axis in range(AXES):
            place = (groups // scale % self.side + sign * self.offsets[relations, axis]) % self.side
            found += place * scale
            scale *= self.side
        return found % self.groups

    def head_rank(self, numbers: Any) -> Any:
        """The popularity ranks of the heads of triples with these numbers ``[n]``, which ascend with them."""
        return popular((np.asarray(numbers, np.float64) + 0.5) / self.triples, self.entities)

    def blocks(self, size: int = BLOCK) -> Iterator[Ints]:
        """Different triples ``[n, 3]``, about so many at a time and whole heads at once, by the head's popularity."""
        start = 0
        while start < self.triples:
            last = self.head_rank(min(start + size, self.triples) - 1)
            stop = bisect_right(range(self.triples), int(last), key=lambda number: int(self.head_rank(number)))
            yield self._block(start, stop)
            start = stop

    def _block(self, start: int, stop: int) -> Ints:
        head = self.head_rank(np.arange(start, stop))
        relation = popular(uniforms(self.seed, 1, start, stop - start), self.relations)
        group = self.target(head % self.groups, relation, "tail")
        members = (self.entities - 1 - group) // self.groups + 1
        most = -(-self.entities // self.groups)
        member = np.minimum(popular(uniforms(self.seed, 2, start, stop - start), most), members - 1)
        first = int(head[0])
        if (int(head[-1]) - first + 1) * self.relations * self.entities >= 1 << 63:
            raise DataError("the keys of a block do not fit 64 bits; make blocks smaller")
        keys = ((head - first) * self.relations + relation) * self.entities + group + member * self.groups
        pairs, tail = np.divmod(np.unique(keys), self.entities)
        head, relation = np.divmod(pairs, self.relations)
        return np.stack([self.entity(head + first), relation, self.entity(tail)], axis=1)

    def write(self, folder: Path, block: int = BLOCK) -> dict[str, Any]:
        """Write the graph, complete or not at all, and return what is in ``planted.json``.

        What is held out has no entity and no relation that train lacks: triples that would are put into train.
        """
        began, cpu = time.perf_counter(), time.process_time()
        part = folder.with_name(f"{folder.name}.{os.getpid()}")
        part.mkdir(parents=True)
        files = {split: parquet.ParquetWriter(part / f"{split}.parquet", SCHEMA) for split in SPLITS}
        share, held_out = min(HELD_OUT[0], HELD_OUT[1] / self.triples), list[Ints]()
        used = np.zeros(self.entities, bool), np.zeros(self.relations, bool)
        sizes = dict.fromkeys(SPLITS, 0)
        count = 0

        def add(split: Split, rows: Ints) -> None:
            files[split].write_table(pa.table([pa.array(part, pa.int32()) for part in rows.T], schema=SCHEMA))
            sizes[split] += len(rows)
            if split == "train":
                used[0][rows[:, [HEAD, TAIL]]], used[1][rows[:, RELATION]] = True, True

        for rows in self.blocks(block):
            held = uniforms(self.seed, 3, count, len(rows)) < 2 * share
            count += len(rows)
            held_out.append(rows[held])
            add("train", rows[~held])
        rows = np.concatenate(held_out)
        known = used[0][rows[:, HEAD]] & used[1][rows[:, RELATION]] & used[0][rows[:, TAIL]]
        for split, found in zip(SPLITS, (rows[~known], rows[known][::2], rows[known][1::2]), strict=True):
            add(split, found)
        for file in files.values():
            file.close()
        facts = asdict(self) | {
            "splits": sizes,
            "repeated": self.triples - count,
            "unseen_entities": int(self.entities - used[0].sum()),
            "block": block,
            "seconds": round(time.perf_counter() - began, 2),
            "cpu_seconds": round(time.process_time() - cpu, 2),
            "peak_mb": round(peak_mb()),
        }
        atomic_write(part / FACTS, (json.dumps(facts, indent=2) + "\n").encode())
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
        return facts


def peak_mb() -> float:
    """The most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def decimal_labels(count: int, kind: str) -> Vocabulary:
    """The labels "0", "1", ...: no Python string is made, and nothing is looked up to see that they are different."""
    return Vocabulary.of_different(pa.array(np.arange(count)).cast(LABELS), kind)


def load(folder: Path) -> tuple[Planted, KnowledgeGraph]:
    """What `Planted.write` has written; labels are the numbers."""
    facts = json.loads((folder / FACTS).read_text("utf-8"))
    planted = Planted(*(facts[name] for name in ("entities", "relations", "triples", "seed")))
    splits = [_triples(folder / f"{split}.parquet") for split in SPLITS]
    names = decimal_labels(planted.entities, "entity"), decimal_labels(planted.relations, "relation")
    return planted, KnowledgeGraph(folder.name, *names, *splits, source=str(folder.resolve()))


def _triples(path: Path) -> Tensor:
    """int64 ``[n, 3]``, a group of rows at a time."""
    file = parquet.ParquetFile(path)
    triples, start = torch.empty(file.metadata.num_rows, 3, dtype=torch.int64), 0
    for batch in file.iter_batches():
        for place, part in enumerate(batch.columns):
            triples[start : start + len(batch), place] = torch.from_numpy(part.to_numpy().copy())
        start += len(batch)
    return triples


def main(arguments: list[str] | None = None) -> None:
    """Write a graph, and print its sizes and what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--relations", type=int, default=200)
    parser.add_argument("--triples", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--block", type=int, default=BLOCK, help="triples that are made at a time")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    planted = Planted(given.entities, given.relations, given.triples, given.seed)
    print(json.dumps(planted.write(given.out, given.block), indent=2))


if __name__ == "__main__":
    main()
