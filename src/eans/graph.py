"""The knowledge graph in memory: names, integer triples, and fast answers to "is this triple known?".

A triple is a row ``(head, relation, tail)`` of integer ids. Everything here is immutable and knows nothing of files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from eans.arguments import choice, described, several, shown, whole
from eans.errors import DataError, UsageError, did_you_mean
from eans.labelled import Triples, labelled
from eans.types import Side as Side

Split = Literal["train", "valid", "test"]
SIDES: tuple[Side, Side] = ("head", "tail")
SPLITS: tuple[Split, Split, Split] = ("train", "valid", "test")
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


class Vocabulary(Sequence[str]):
    """An ordered set of labels; a label's id is its position."""

    def __init__(self, labels: Iterable[str], kind: str = "entity") -> None:
        self.kind = kind
        self.labels: tuple[str, ...] = tuple(labels if isinstance(labels, str) else several("labels", labels, "texts"))
        for label in self.labels:
            if not isinstance(label, str):
                raise DataError(f"{kind} label {shown(label)} is no text")
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
        return isinstance(label, str) and label in self._ids

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
        except (KeyError, TypeError):
            raise UsageError(f"unknown {self.kind} {shown(label)}{did_you_mean(label, self.labels)}") from None

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
        also_known: triples ``[n, 3]`` of no split that are true: filtered like the splits', and neither learned nor
            ranked.
        weights: float32 ``[len(train)]``, how much each triple of train counts in the loss; None is 1 for all.
        times: ``[len(train)]``, int64 or float64, when each triple of train was stated; None if the source has no time.
    """

    name: str
    entities: Vocabulary
    relations: Vocabulary
    train: Tensor
    valid: Tensor
    test: Tensor
    source: str = field(default="", kw_only=True)
    also_known: Tensor = field(default_factory=lambda: torch.empty(0, 3, dtype=torch.int64), kw_only=True)
    weights: Tensor | None = field(default=None, kw_only=True)
    times: Tensor | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for text in (self.name, self.source):
            if not isinstance(text, str):
                raise DataError(f"name and source of a graph must be texts, got {shown(text)}")
        for vocabulary in (self.entities, self.relations):
            if not isinstance(vocabulary, Vocabulary):
                raise DataError(f"entities and relations must be of type Vocabulary, got {described(vocabulary)}")
        for split in (*SPLITS, "also_known"):
            triples = getattr(self, split)
            if not is_ids(triples, 2) or triples.shape[1] != 3:
                raise DataError(f"{split}: expected int64 triples of shape [n, 3], got {described(triples)}")
            limits = (len(self.entities), len(self.relations), len(self.entities))
            if len(triples) and (
                int(triples.min()) < 0 or any(int(triples[:, c].max()) >= limits[c] for c in range(3))
            ):
                raise DataError(f"{split}: an id lies outside the {limits[0]} entities or {limits[1]} relations")
        if not len(self.train):
            raise DataError(f"graph '{self.name}' has no training triples")
        for what, values in (("weights", self.weights), ("times", self.times)):
            if values is not None and (not isinstance(values, Tensor) or values.shape != self.train.shape[:1]):
                raise DataError(
                    f"{what}: expected one for each of {len(self.train)} train triples, got {described(values)}"
                )

    @classmethod
    def from_labels(
        cls, train: Triples, valid: Triples = (), test: Triples = (), name: str = "graph"
    ) -> KnowledgeGraph:
        """Build a graph from labelled triples; ids follow the order of first appearance.

        Args:
            train, valid, test: each a list, generator or other iterable of triples, a NumPy array ``[n, 3]``, or a data
                frame of pandas or polars: by its columns head, relation, tail (or subject, predicate, object, or h, r,
                t, or s, p, o, or source, relation, target), or its three columns in this order. An integer is the label
                of its decimal text: ``7`` and ``"7"`` are one entity.
            name: what to call the graph.
        """
        entities: dict[str, int] = {}
        relations: dict[str, int] = {}
        splits = []
        for split, triples in zip(SPLITS, (train, valid, test), strict=True):
            rows = [
                (
                    entities.setdefault(head, len(entities)),
                    relations.setdefault(relation, len(relations)),
                    entities.setdefault(tail, len(entities)),
                )
                for head, relation, tail in labelled(triples, split)
            ]
            splits.append(torch.tensor(rows, dtype=torch.int64).reshape(-1, 3))
        return cls(name, Vocabulary(entities), Vocabulary(relations, "relation"), *splits)

    def split(self, split: Split) -> Tensor:
        """The triples ``[n, 3]`` of one split."""
        triples: Tensor = getattr(self, choice("split", split, SPLITS))
        return triples

    def ids(self, triples: Triples) -> Tensor:
        """The ids of labelled triples, int64 ``[n, 3]``; a label that the graph does not have is a `UsageError`.

        Args:
            triples: in any form that `from_labels` takes.
        """
        vocabularies = (self.entities, self.relations, self.entities)
        rows = []
        for number, triple in enumerate(labelled(triples)):
            try:
                rows.append([vocabulary.id(label) for vocabulary, label in zip(vocabularies, triple, strict=True)])
            except UsageError as error:
                raise UsageError(f"triples, row {number}: {error}") from None
        return torch.tensor(rows, dtype=torch.int64).reshape(-1, 3)

    def with_test(self, test: Tensor) -> KnowledgeGraph:
        """The graph with other test triples ``[n, 3]``; those that it has now stay known."""
        return replace(self, test=test, also_known=torch.cat([self.also_known, self.test]), source="")

    @property
    def num_entities(self) -> int:
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        return len(self.relations)

    @cached_property
    def known(self) -> TripleIndex:
        """An index over all three splits and `also_known`: what filtered ranking removes."""
        triples = torch.cat([self.train, self.valid, self.test, self.also_known])
        return TripleIndex(triples, self.num_entities, self.num_relations)

    @cached_property
    def known_train(self) -> TripleIndex:
        """An index over the training triples alone: what a sampler may know."""
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

    @cached_property
    def vocabulary_sha256(self) -> str:
        """The SHA-256 of all labels in the order of their ids: what the ids of two graphs must agree in."""
        digest = hashlib.sha256()
        for vocabulary in (self.entities, self.relations):
            digest.update("".join(f"{label}\n" for label in vocabulary).encode() + b"\n")
        return digest.hexdigest()

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
        num_entities, num_relations = whole("num_entities", num_entities), whole("num_relations", num_relations)
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
        known = column(opposite(side))
        if not is_ids(triples) or triples.shape[-1:] != (3,):
            raise UsageError(f"triples must be an int64 tensor of shape [..., 3], got {described(triples)}")
        anchor = triples[..., known]
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
        counts = stop - start
        rows = torch.repeat_interleave(torch.arange(len(triples), device=triples.device), counts)
        offset = torch.arange(len(rows), device=triples.device) - torch.repeat_interleave(
            counts.cumsum(0) - counts, counts
        )
        return rows, self.keys[side][start[rows] + offset] % self.num_entities
