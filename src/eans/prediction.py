"""Top-k answers to "which tail, head or relation completes this triple?", by name."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eans import kernels
from eans.arguments import choice, whole
from eans.errors import RunError, UsageError
from eans.graph import HEAD, RELATION, TAIL, KnowledgeGraph, Side
from eans.labelled import Triples
from eans.models import Model
from eans.models.arguments import require_graph
from eans.models.base import RELATION_NUMBERS
from eans.ranking import DEFAULT_MEMORY, Cost, Tiling, best

Known = Literal["filter", "mark"]
KNOWN: tuple[Known, ...] = ("filter", "mark")
Unknown = Literal["error", "nan"]
UNKNOWN: tuple[Unknown, ...] = ("error", "nan")
COLUMNS = ("head", "relation", "tail", "score", "known")


class Prediction(NamedTuple):
    """One completed triple. `known` says whether the graph holds it already (in any split)."""

    head: str
    relation: str
    tail: str
    score: float
    known: bool


@dataclass(frozen=True)
class Predictions(Sequence[Prediction]):
    """Predictions, best first: a sequence of `Prediction`, and a table.

    Attributes:
        target: which column was asked for: ``"head"``, ``"relation"`` or ``"tail"``.
        rows: the predictions.
        readable: label to name, for the labels in `rows` of which the graph has a readable name.
    """

    target: str
    rows: tuple[Prediction, ...]
    readable: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Prediction: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Prediction, ...]: ...
    def __getitem__(self, index: int | slice) -> Prediction | tuple[Prediction, ...]:
        return self.rows[index]

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self.rows)

    @property
    def names(self) -> tuple[str, ...]:
        """The predicted labels, best first."""
        return tuple(getattr(row, self.target) for row in self.rows)

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns by name: ``pandas.DataFrame(predictions.to_dict())`` or ``pyarrow.table(...)`` take it as it is.

        Where the graph has readable names, so has the table: in the columns head_name, relation_name and tail_name.
        """
        columns = {name: [getattr(row, name) for row in self.rows] for name in COLUMNS}
        named = COLUMNS[:3] if self.readable else ()
        return columns | {f"{name}_name": [self.readable.get(label) for label in columns[name]] for name in named}

    def to_csv(self) -> str:
        """Comma-separated, with a header."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        columns = self.to_dict()
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        return text.getvalue()

    def to_json(self) -> str:
        """A list of objects, one per prediction."""
        columns = self.to_dict()
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return json.dumps(rows, ensure_ascii=False, indent=2)


def predict(
    model: Model,
    graph: KnowledgeGraph,
    *,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    k: int = 10,
    known: Known = "filter",
) -> Predictions:
    """Rank the completions of a triple of which two parts are given.

    Args:
        model, graph: the trained model and the graph whose names it uses.
        head, relation, tail: labels, or readable names that just one label has; exactly one is left out, and that one
            is predicted.
        k: how many to return.
        known: ``"filter"`` leaves out triples that the graph holds already; ``"mark"`` keeps them, marked.
    """
    require_graph(model, graph)
    given = {"head": head, "relation": relation, "tail": tail}
    missing = [name for name, label in given.items() if label is None]
    if len(missing) != 1:
        raise UsageError("give exactly two of head, relation and tail; the third is predicted")
    known = choice("known", known, KNOWN)
    k = whole("k", k, least=1)
    vocabularies = {"head": graph.entities, "relation": graph.relations, "tail": graph.entities}
    query = torch.zeros(1, 3, dtype=torch.int64)
    columns = {"head": HEAD, "relation": RELATION, "tail": TAIL}
    for name, label in given.items():
        if label is not None:
            query[0, columns[name]] = vocabularies[name].id(label)
    (target,) = missing
    if target == "relation":
        found = _best_relations(model, graph, query, k, known == "filter")
    else:
        found = _best_entities(model, graph, query, "head" if target == "head" else "tail", k, known == "filter")
    if bool(found.nan):
        raise RunError("the model scores NaN, so nothing can be predicted; its training has diverged")
    here = found.entities[0].cpu() >= 0  # fewer than k unknown completions may exist
    completed = query.repeat(int(here.sum()), 1)
    completed[:, columns[target]] = found.entities[0].cpu()[here]
    rows = []
    scores, marks = found.scores[0].cpu()[here], graph.known.contains(completed)
    for (h, r, t), score, is_known in zip(completed.tolist(), scores.tolist(), marks.tolist(), strict=True):
        rows.append(Prediction(graph.entities[h], graph.relations[r], graph.entities[t], score, is_known))
    entities, relations = {label for row in rows for label in (row.head, row.tail)}, {row.relation for row in rows}
    return Predictions(target, tuple(rows), graph.names_of(entities, relations))


def _best_entities(
    model: Model, graph: KnowledgeGraph, query: Tensor, side: Side, k: int, filtered: bool
) -> kernels.Best:
    """The k best entities in the `side` of one query ``[1, 3]``."""
    device, count = model.entity.device, graph.num_entities
    start, stop = graph.known.run(query, side)
    known = graph.known.keys[side][int(start) : int(stop)].to(device)
    answers = known, torch.zeros_like(start, device=device), (stop - start if filtered else start - start).to(device)
    tiling = Tiling.of(DEFAULT_MEMORY, Cost.of(model), range(count), device)
    return best(model.scorer(query.to(device), side), min(k, count), answers, count, tiling.tiles)


def _best_relations(model: Model, graph: KnowledgeGraph, query: Tensor, k: int, filtered: bool) -> kernels.Best:
    """The k best relations of one query ``[1, 3]``."""
    device = model.entity.device
    scores = model.score_relations(query[:, HEAD].to(device), query[:, TAIL].to(device))
    completed = query.repeat(scores.shape[1], 1)
    completed[:, RELATION] = torch.arange(len(completed))
    known = torch.nonzero(graph.known.contains(completed) & filtered).flatten().to(device)
    start = torch.zeros(1, dtype=torch.int64, device=device)
    return kernels.best(scores, min(k, len(completed)), known, start, start + len(known))


def score(model: Model, graph: KnowledgeGraph, triples: Triples, unknown: Unknown = "error") -> NDArray[np.float32]:
    """The score of each labelled triple, in order: ``[n]``; see `Run.score`.

    With reciprocal relations it is that of the tail query.
    """
    require_graph(model, graph)
    ids = graph.ids(triples, missing=choice("unknown", unknown, UNKNOWN) == "nan")
    here = (ids >= 0).all(1)
    rows = max(1, RELATION_NUMBERS // max(2 * model.entity.shape[1], model.relation.shape[1], model.layer_numbers))
    scores = torch.full((len(ids),), torch.nan)
    with torch.no_grad():
        parts = [model.score(part.to(model.entity.device)).float().cpu() for part in torch.split(ids[here], rows)]
    scores[here] = torch.cat(parts) if parts else torch.empty(0)
    if bool(torch.isnan(scores[here]).any()):
        raise RunError("the model scores NaN, so triples cannot be told apart; its training has diverged")
    return scores.numpy()
