"""The knowledge graph in memory: names, integer triples, and fast answers to "is this triple known?".

A triple is a row ``(head, relation, tail)`` of integer ids. Everything here is immutable and knows nothing of files.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from eans.arguments import choice, described, flag, shown, texts
from eans.errors import DataError, EansWarning, UsageError
from eans.label_blocks import label_blocks
from eans.labelled import PARTS, Triples, asked_columns, extras, labelled, times_of, weights_of
from eans.numbering import Numbering
from eans.triple_index import HEAD as HEAD
from eans.triple_index import RELATION as RELATION
from eans.triple_index import SIDES as SIDES
from eans.triple_index import TAIL as TAIL
from eans.triple_index import TripleIndex as TripleIndex
from eans.triple_index import column as column
from eans.triple_index import is_ids as is_ids
from eans.triple_index import opposite as opposite
from eans.types import Side as Side
from eans.vocabulary import LABELS, bytes_of, ids_array, indices, joined
from eans.vocabulary import Vocabulary as Vocabulary

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, Split, Split] = ("train", "valid", "test")
BLOCK = 1 << 16  # triples that are turned into text at a time


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
        weights: float32 ``[len(train)]``, how much each triple of train counts in the loss, relative to the others; one
            with 0 is known to be true and not learned. None is 1 for all.
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
                int(triples.min()) < 0 or any(m >= n for m, n in zip(triples.amax(0).tolist(), limits, strict=True))
            ):
                raise DataError(f"{split}: an id lies outside the {limits[0]} entities or {limits[1]} relations")
        if not len(self.train):
            raise DataError(f"graph '{self.name}' has no training triples")
        for what, values in (("weights", self.weights), ("times", self.times)):
            if values is not None and (not isinstance(values, Tensor) or values.shape != self.train.shape[:1]):
                raise DataError(
                    f"{what}: expected one for each of {len(self.train)} train triples, got {described(values)}"
                )
        if self.weights is not None and not usable_weights(self.weights):
            raise DataError("weights must be finite numbers from 0 on, and one at least greater than 0")

    @classmethod
    def from_labels(
        cls,
        train: Triples,
        valid: Triples = (),
        test: Triples = (),
        name: str = "graph",
        columns: Mapping[str, str | int] | str | None = None,
    ) -> KnowledgeGraph:
        """Build a graph from labelled triples; ids follow the order of first appearance.

        Args:
            train, valid, test: each a list, generator or other iterable of triples, a NumPy array ``[n, 3]``, or a data
                frame of pandas or polars or a table of Arrow: by its columns head, relation, tail (or subject,
                predicate, object, or h, r, t, or s, p, o, or source, relation, target), or its three columns in this
                order. An integer is the label of its decimal text: ``7`` and ``"7"`` are one entity.
            name: what to call the graph.
            columns: which columns of frames are which: ``{"head": "subject", "weight": "confidence"}``; weights and
                times of train are taken only so.
        """
        asked = asked_columns(columns)
        extra = extras(train, asked, "train")
        entities, relations, splits = Numbering("entity"), Numbering("relation"), []
        for split, triples in zip(SPLITS, (train, valid, test), strict=True):
            named = asked if split == "train" else {part: asked[part] for part in PARTS if part in asked}
            blocks = [np.empty((0, 3), np.int64)]
            for heads, kinds, tails in label_blocks(triples, split, named):
                ends, between = entities.number(heads, tails)[0], relations.number(kinds)[0]
                blocks.append(np.column_stack([ends[:, 0], between[:, 0], ends[:, 1]]))
            splits.append(torch.from_numpy(np.concatenate(blocks)))
        first, second = (Vocabulary(found.vocabulary().array, found.kind) for found in (entities, relations))
        made = cls(name, first, second, *splits)
        if "weight" in extra:
            made = replace(made, weights=torch.from_numpy(weights_of(extra["weight"], "train")))
        if "time" in extra:
            made = replace(made, times=torch.from_numpy(times_of(extra["time"], len(made.train))))
        return made

    def split(self, split: Split) -> Tensor:
        """The triples ``[n, 3]`` of one split."""
        triples: Tensor = getattr(self, choice("split", split, SPLITS))
        return triples

    def ids(self, triples: Triples, missing: bool = False) -> Tensor:
        """The ids of labelled triples, int64 ``[n, 3]``; a label that the graph does not have is a `UsageError`.

        Args:
            triples: in any form that `from_labels` takes.
            missing: give such a label the id -1 instead.
        """
        missing = flag("missing", missing)
        asked = list(zip(*labelled(triples), strict=True)) or [(), (), ()]
        vocabularies = (self.entities, self.relations, self.entities)
        ids = torch.stack([known.ids_of(labels) for known, labels in zip(vocabularies, asked, strict=True)], dim=1)
        if not missing and bool((ids < 0).any()):
            row, part = torch.nonzero(ids < 0)[0].tolist()
            known, label = vocabularies[part], asked[part][row]
            raise UsageError(f"triples, row {row}: unknown {known.kind} {shown(label)}{known.nearest(label)}")
        return ids

    def with_test(self, test: Tensor) -> KnowledgeGraph:
        """The graph with other test triples ``[n, 3]``; those that it has now stay known."""
        return replace(self, test=test, also_known=torch.cat([self.also_known, self.test]), source="")

    def with_names(self, names: Mapping[str, str]) -> KnowledgeGraph:
        """The graph with readable names of entities and relations: shown beside labels, and asked for like them.

        Args:
            names: label to name. Labels that the graph does not have are counted in a warning, `EansWarning`; what it
                has no new name for keeps the one it has.
        """
        if not isinstance(names, Mapping):
            raise UsageError(f"names must be a mapping of labels to names, got {shown(names)}")
        try:
            labels, found = (pa.array(texts("names", part, "texts"), LABELS) for part in (names, names.values()))
        except UnicodeEncodeError as error:
            raise UsageError(f"names: {shown(error.object)} is no text that UTF-8 can hold") from None
        unknown = labels.filter(pa.array(~self.has_labels(labels)))
        if len(unknown):
            warnings.warn(
                f"{len(unknown):,} of {len(labels):,} names are for labels that graph '{self.name}' does not have,"
                f" such as {shown(unknown[0].as_py())}",
                EansWarning,
                stacklevel=2,
            )
        return self.named(labels, found)

    def named(self, labels: pa.Array, names: pa.Array) -> KnowledgeGraph:
        """The graph with readable names: Arrow arrays ``[n]``, as `Vocabulary.named` takes them."""
        entities, relations = (part.named(labels, names) for part in (self.entities, self.relations))
        return replace(self, entities=entities, relations=relations)

    def has_labels(self, labels: pa.Array) -> NDArray[np.bool_]:
        """Which of these labels ``[n]`` are those of an entity or a relation."""
        return (indices(labels, self.entities.array) >= 0) | (indices(labels, self.relations.array) >= 0)

    def names_of(self, entities: Iterable[str], relations: Iterable[str]) -> dict[str, str]:
        """Label to readable name, for those of these labels that have one."""
        return self.entities.names_of(entities) | self.relations.names_of(relations)

    @property
    def num_entities(self) -> int:
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        return len(self.relations)

    @cached_property
    def known(self) -> TripleIndex:
        """An index over all three splits and `also_known`: what filtered ranking removes."""
        others = [triples for triples in (self.valid, self.test, self.also_known) if len(triples)]
        return TripleIndex([self.train, *others], self.num_entities, self.num_relations) if others else self.known_train

    @cached_property
    def known_train(self) -> TripleIndex:
        """An index over the training triples alone: what a sampler may know."""
        return TripleIndex(self.train, self.num_entities, self.num_relations)

    def unseen_entities(self) -> int:
        """How many entities never occur in train."""
        seen = torch.zeros(self.num_entities, dtype=torch.bool)
        seen[self.train[:, HEAD]] = seen[self.train[:, TAIL]] = True
        return int((~seen).sum())

    def text(self, split: Split) -> Iterator[str]:
        """The split as lines ``head<TAB>relation<TAB>tail<LF>``, in order."""
        for block in self.text_blocks(split):
            yield from map("{}\n".format, block[:-1].decode().split("\n"))

    def text_blocks(self, split: Split) -> Iterator[bytes]:
        """The bytes of `text`, many lines at a time."""
        triples = self.split(split).numpy()
        entities, relations = self.entities.array, self.relations.array
        ended = joined("\n", entities, "")
        for start in range(0, len(triples), BLOCK):
            rows = triples[start : start + BLOCK]
            parts = (part.take(ids_array(ids)) for part, ids in zip((entities, relations, ended), rows.T, strict=True))
            yield bytes_of(joined("\t", *parts))

    @cached_property
    def sha256(self) -> Mapping[str, str]:
        """Per split, the SHA-256 of `text`: equal to that of a plain LF file with the same triples."""
        hashes: dict[str, str] = {}
        for split in SPLITS:
            digest = hashlib.sha256()
            for block in self.text_blocks(split):
                digest.update(block)
            hashes[split] = digest.hexdigest()
        return hashes

    @cached_property
    def vocabulary_sha256(self) -> str:
        """The SHA-256 of all labels in the order of their ids: what the ids of two graphs must agree in."""
        digest = hashlib.sha256()
        for vocabulary in (self.entities, self.relations):
            for start in range(0, max(len(vocabulary), 1), BLOCK):
                digest.update(bytes_of(joined("\n", vocabulary.array[start : start + BLOCK], "")))
            digest.update(b"\n")
        return digest.hexdigest()

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split} {len(self.split(split)):,}" for split in SPLITS)
        return (
            f"KnowledgeGraph('{self.name}', {self.num_entities:,} entities, {self.num_relations:,} relations, {sizes})"
        )


def usable_weights(weights: Tensor) -> bool:
    """Whether they are finite, none is negative, and not all are 0."""
    return bool(weights.isfinite().all()) and float(weights.min()) >= 0 and float(weights.max()) > 0
