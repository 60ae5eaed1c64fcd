"""The knowledge graph in memory: names, integer triples, and fast answers to "is this triple known?".

A triple is a row ``(head, relation, tail)`` of integer ids. Everything here is immutable and knows nothing of files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from eans.errors import DataError, UsageError, did_you_mean

Side = Literal["head", "tail"]
Split = Literal["train", "valid", "test"]
SIDES: tuple[Side, Side] = ("head", "tail")
SPLITS: tuple[Split, Split, Split] = ("train", "valid", "test")
HEAD, RELATION, TAIL = 0, 1, 2


def column(side: Side) -> int:
    """The column of a triple that `side` names."""
    return HEAD if side == "head" else TAIL


def opposite(side: Side) -> Side:
    """The other end of the triple."""
    return "tail" if side == "head" else "head"


class Vocabulary(Sequence[str]):
    """An ordered set of labels; a label's id is its position."""

    def __init__(self, labels: Iterable[str], kind: str = "entity") -> None:
        self.kind = kind
        self.labels = tuple(labels)
        self._ids = {label: index for index, label in enumerate(self.labels)}
        if len(self._ids) != len(self.labels):
            twice = next(label for index, label in enumerate(self.labels) if self._ids[label] != index)
            raise DataError(f"{kind} '{twice}' is listed twice; labels must be unique")
        for label in self.labels:
            if not label or "\t" in label or "\n" in label or "\r" in label:
                raise DataError(f"{kind} label {label!r} is empty or contains a tab or line break")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        return self.labels[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def __contains__(self, label: object) -> bool:
        return label in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.labels == other.labels

    def __hash__(self) -> int:
        return hash(self.labels)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} {self.kind} labels)"

    def id(self, label: str) -> int:
        """The id of `label`; an unknown label is a `UsageError` that names the nearest known one."""
        try:
            return self._ids[label]
        except KeyError:
            raise UsageError(f"unknown {self.kind} '{label}'{did_you_mean(label, self.labels)}") from None

    @property
    def ids(self) -> Mapping[str, int]:
        """Label to id."""
        return self._ids


@dataclass(frozen=True, eq=False)
class KnowledgeGraph:
    """Three splits of integer triples and the names behind the integers.

    Attributes:
        name: what reports call the graph.
        entities, relations: the vocabularies; they cover all three splits.
        train, valid, test: int64 tensors of shape ``[n, 3]`` with columns head, relation, tail.
        source: where it can be loaded from again, a registered name or an absolute path; empty if nowhere.
    """

    name: str
    entities: Vocabulary
    relations: Vocabulary
    train: Tensor
    valid: Tensor
    test: Tensor
    source: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        for split in SPLITS:
            triples = self.split(split)
            if triples.dtype != torch.int64 or triples.dim() != 2 or triples.shape[1] != 3:
                raise DataError(f"{split}: expected int64 triples of shape [n, 3], got {triples.dtype} {triples.shape}")
            limits = (len(self.entities), len(self.relations), len(self.entities))
            if len(triples) and (
                int(triples.min()) < 0 or any(int(triples[:, c].max()) >= limits[c] for c in range(3))
            ):
                raise DataError(f"{split}: an id lies outside the {limits[0]} entities or {limits[1]} relations")
        if not len(self.train):
            raise DataError(f"graph '{self.name}' has no training triples")

    @classmethod
    def from_labels(
        cls,
        train: Iterable[tuple[str, str, str]],
        valid: Iterable[tuple[str, str, str]] = (),
        test: Iterable[tuple[str, str, str]] = (),
        name: str = "graph",
    ) -> KnowledgeGraph:
        """Build a graph from labelled triples; ids follow the order of first appearance."""
        entities: dict[str, int] = {}
        relations: dict[str, int] = {}
        splits = []
        for triples in map(list, (train, valid, test)):
            for triple in triples:
                if not _is_triple(triple):
                    raise UsageError(f"a triple is three strings, head, relation and tail, not {triple!r}")
            rows = [
                (
                    entities.setdefault(head, len(entities)),
                    relations.setdefault(relation, len(relations)),
                    entities.setdefault(tail, len(entities)),
                )
                for head, relation, tail in triples
            ]
            splits.append(torch.tensor(rows, dtype=torch.int64).reshape(-1, 3))
        return cls(name, Vocabulary(entities), Vocabulary(relations, "relation"), *splits)

    def split(self, split: Split) -> Tensor:
        """The triples ``[n, 3]`` of one split."""
        if split not in SPLITS:
            raise UsageError(f"unknown split '{split}'{did_you_mean(split, SPLITS)} (train, valid or test)")
        triples: Tensor = getattr(self, split)
        return triples

    @property
    def num_entities(self) -> int:
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        return len(self.relations)

    @cached_property
    def known(self) -> TripleIndex:
        """An index over all three splits: what filtered ranking removes."""
        return TripleIndex(torch.cat([self.train, self.valid, self.test]), self.num_entities, self.num_relations)

    @cached_property
    def known_train(self) -> TripleIndex:
        """An index over the training triples alone: what a sampler may look at."""
        return TripleIndex(self.train, self.num_entities, self.num_relations)

    def unseen_entities(self) -> int:
        """How many entities never occur in train."""
        return self.num_entities - len(torch.unique(self.train[:, [HEAD, TAIL]]))

    def text(self, split: Split) -> Iterator[str]:
        """The split as lines ``head<TAB>relation<TAB>tail<LF>``, in order."""
        entities, relations = self.entities.labels, self.relations.labels
        for head, relation, tail in self.split(split).tolist():
            yield f"{entities[head]}\t{relations[relation]}\t{entities[tail]}\n"

    @cached_property
    def sha256(self) -> Mapping[str, str]:
        """Per split, the SHA-256 of `text`: equal to that of a plain LF file with the same triples."""
        hashes: dict[str, str] = {}
        for split in SPLITS:
            digest = hashlib.sha256()
            for line in self.text(split):
                digest.update(line.encode())
            hashes[split] = digest.hexdigest()
        return hashes

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split} {len(self.split(split)):,}" for split in SPLITS)
        return (
            f"KnowledgeGraph('{self.name}', {self.num_entities:,} entities, {self.num_relations:,} relations, {sizes})"
        )


class TripleIndex:
    """Which triples are known, answered on the device by binary search over sorted 64-bit keys.

    For each side the triples are encoded as ``(anchor * R + relation) * E + answer`` and sorted, so the answers of
    one query are a contiguous run. Memory: 16 bytes per triple.
    """

    def __init__(self, triples: Tensor, num_entities: int, num_relations: int) -> None:
        if num_entities * num_relations * num_entities >= 2**63:
            raise DataError(f"{num_entities} entities x {num_relations} relations do not fit 64-bit triple keys")
        self.num_entities = num_entities
        self.num_relations = num_relations
        self.keys: dict[Side, Tensor] = {
            side: torch.unique(self.prefix(triples, side) * num_entities + triples[:, column(side)]) for side in SIDES
        }

    def to(self, device: torch.device | str) -> TripleIndex:
        """A copy of the index on `device` (itself when it is already there)."""
        moved = object.__new__(TripleIndex)
        moved.num_entities, moved.num_relations = self.num_entities, self.num_relations
        moved.keys = {side: keys.to(device) for side, keys in self.keys.items()}
        return moved

    def __len__(self) -> int:
        return len(self.keys["tail"])

    def prefix(self, triples: Tensor, side: Side) -> Tensor:
        """The number of each query, which its keys start with: ``[..., 3]`` -> int64 ``[...]``."""
        anchor = triples[..., column(opposite(side))]
        return anchor * self.num_relations + triples[..., RELATION]

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
        return self._found(self.prefix(triples, side)[:, None] * self.num_entities + entities, side)

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
        counts = stop - start
        rows = torch.repeat_interleave(torch.arange(len(triples), device=triples.device), counts)
        offset = torch.arange(len(rows), device=triples.device) - torch.repeat_interleave(
            counts.cumsum(0) - counts, counts
        )
        return rows, self.keys[side][start[rows] + offset] % self.num_entities


def _is_triple(found: object) -> bool:
    """Is it three strings, and not one?"""
    if isinstance(found, str) or not isinstance(found, Sequence):
        return False
    return len(found) == 3 and all(isinstance(part, str) for part in found)


def subsampling_weights(triples: Tensor, num_relations: int, power: float = 0.5) -> Tensor:
    """Weights that even out frequent pairs: ``(c(h, r) + c(r, t)) ** -power``, float32 ``[n]``.

    ``c`` is the number of triples that share the pair, plus 3 (the smoothing of the RotatE code, which the EANS
    paper inherits without saying so, and its power).
    """
    total = _frequency(triples, num_relations, "tail") + _frequency(triples, num_relations, "head")
    return total.to(torch.float32).pow(-power)


def query_weights(triples: Tensor, num_relations: int, side: Side, power: float = 0.5) -> Tensor:
    """Weights that even out frequent questions for a `side`: ``c(h, r) ** -power`` for tails, float32 ``[n]``.

    ``c`` as in `subsampling_weights` (Kamigaito & Hayashi, 2022, who call it unique). With a power of 1 questions count
    nearly alike, however many answers they have.
    """
    return _frequency(triples, num_relations, side).to(torch.float32).pow(-power)


def answer_weights(triples: Tensor, side: Side, power: float = 0.5) -> Tensor:
    """Weights that favour frequent answers: ``0.1 + 0.9 (c(a) / max c) ** power``, float32 ``[n]``.

    ``c`` is how often an entity occurs as a head or a tail, and the answer ``a`` is the entity at the `side`. The
    authors of DURA (Zhang et al., 2020) weigh positives so in their code, with a power of 1.
    """
    counts = torch.bincount(triples[:, [HEAD, TAIL]].flatten()).to(torch.float32)
    share = counts[triples[:, column(side)]] / counts.amax()
    return 0.1 + 0.9 * share.pow(power)


def _frequency(triples: Tensor, num_relations: int, side: Side) -> Tensor:
    """How many triples share each one's question for the `side`, and 3 more: int64 ``[n]``."""
    inverse: Tensor
    counts: Tensor
    anchor = triples[:, column(opposite(side))]
    _, inverse, counts = torch.unique(
        anchor * num_relations + triples[:, RELATION], return_inverse=True, return_counts=True
    )
    return counts[inverse] + 3
