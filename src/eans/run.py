"""`Run`: a trained model with all that belongs to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from eans.batch_prediction import ManyPredictions, predict_many
from eans.devices import choose_device
from eans.errors import UsageError
from eans.evaluation import Ties, evaluate
from eans.export import Format, export
from eans.files import as_path
from eans.graph import KnowledgeGraph, Split
from eans.labelled import Triples
from eans.models import Model
from eans.prediction import Known, Predictions, Unknown, predict, score
from eans.progress import Told
from eans.queries import QueryTable
from eans.recipes import Recipe
from eans.recipes.build import build_loss
from eans.runs import RunFolder
from eans.similarity import By, Similar, similar

MEGABYTE = 2**20


@dataclass(frozen=True, eq=False)
class Run:
    """A trained model with its graph, recipe, metrics and history.

    Attributes:
        recipe: resolved, so that it reproduces the run.
        graph: the graph it was trained on.
        model: the trained model.
        metrics: ``{"test": {"both": {"mr", "mrr", "hits@1", ...}, "head": ..., ...}, "valid": ..., "protocol": ...}``.
        history: the log records.
        folder: where the run lives, or None for one in memory.
    """

    recipe: Recipe
    graph: KnowledgeGraph
    model: Model
    metrics: dict[str, Any]
    history: list[dict[str, Any]]
    folder: Path | None = None

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> Run:
        """Open a run folder; an unfinished run has the weights of its last checkpoint and no metrics."""
        folder = RunFolder.open(path)
        graph = folder.graph()
        model = folder.model(graph, choose_device(device))
        return cls(folder.recipe(), graph, model, folder.metrics(), folder.log(), folder.path)

    def save(self, out: str | Path) -> Run:
        """Write a run in memory to a new run folder; return the run as it is there."""
        folder = RunFolder.create(as_path(out, "out"), self.recipe, self.graph)
        with folder.lock():
            for record in self.history:
                folder.append_log(record)
            folder.save_model(self.model)
            folder.save_metrics(self.metrics)
        return replace(self, folder=folder.path)

    def predict(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        k: int = 10,
        known: Known = "filter",
    ) -> Predictions:
        """The k best completions of a triple of which two parts are given; see `eans.predict`."""
        return predict(self.model, self.graph, head=head, relation=relation, tail=tail, k=k, known=known)

    def predict_many(
        self,
        queries: QueryTable,
        k: int = 10,
        known: Known = "filter",
        out: str | Path | None = None,
        skip_unknown: bool = False,
        progress: bool | Told = True,
    ) -> ManyPredictions:
        """The k best completions of each of many queries.

        Args:
            queries: rows of head, relation and tail, of which one is empty (None, or an empty text) and predicted: a
                file (CSV, TSV, JSON lines or Parquet by its ending), or what `from_labels` of a graph takes.
            k, known: as of `predict`.
            out: file to write the answers to while the next are computed, of a kind as its ending says; None: they are
                the ``table`` of what is returned.
            skip_unknown: leave out queries with labels that the graph does not have, and count them; otherwise the
                first one is an error.
            progress: as of `evaluate`.
        """
        options: dict[str, Any] = {"out": out, "skip_unknown": skip_unknown, "progress": progress}
        memory = self.recipe.evaluation.memory_mb * MEGABYTE
        return predict_many(self.model, self.graph, queries, k=k, known=known, memory=memory, **options)

    def score(self, triples: Triples, unknown: Unknown = "error") -> NDArray[np.float32]:
        """The score of each labelled triple, in order: ``[n]``. Higher is more plausible.

        Args:
            triples: in any form that `from_labels` of a graph takes.
            unknown: a triple with a label that the graph does not have is an ``"error"``, or its score is ``"nan"``.
        """
        return score(self.model, self.graph, triples, unknown)

    def similar(self, entity: str, k: int = 10, by: By | None = None) -> tuple[Similar, ...]:
        """The k entities most like one, best first.

        Args:
            entity: label.
            k: how many by each measure.
            by: ``"embedding"``: by their rows of the table, the cosine for models that score by a dot product
                (DistMult, ComplEx, SimplE, RESCAL) and the Euclidean (L2) distance, negative, for all others.
                ``"substitution"``: by the substitution score of EANS, for runs that were trained with its loss.
                None: both, the second where there is one.
        """
        return similar(self.model, self.graph, entity, k, by, build_loss(self.recipe).needs_substitution)

    def export(self, out: str | Path, format: Format = "parquet") -> list[Path]:
        """Write all embeddings with their labels to a folder; returns the files.

        Args:
            out: the folder, which is made if there is none.
            format: ``"parquet"``: a file for each table with a column ``label`` and a list column for each part of a
                row. ``"numpy"``: ``embeddings.npz``, which needs no pickle, and a file of labels for each table.
                ``"word2vec"``: a file of text for each table, ``.vec``, as gensim reads it.
        """
        trained = build_loss(self.recipe).needs_substitution is not None
        return export(self.model, self.graph, out, format, trained)

    def evaluate(
        self,
        split: Split | Triples = "test",
        ties: Ties = "realistic",
        progress: bool | Told = True,
    ) -> dict[str, Any]:
        """Rank a split anew, or labelled triples, and return the metrics with the protocol.

        Args:
            split: ``"train"``, ``"valid"`` or ``"test"``; or triples of labels, in any form that `from_labels` of a
                graph takes, in the place of the test split. They are filtered against the graph's own splits and each
                other.
            ties: ``"realistic"``, ``"optimistic"`` or ``"pessimistic"``.
            progress: True: a bar on a terminal or in a notebook, otherwise a line now and then on standard error;
                False: nothing; or what to call with (queries done, queries in all).
        """
        graph = self.graph
        if not isinstance(split, str):
            graph = graph.with_test(graph.ids(split))
            split = "test"
        split = cast(Split, split)
        if not len(graph.split(split)):
            raise UsageError(f"there are no {split} triples to rank in graph '{graph.name}'")
        memory = self.recipe.evaluation.memory_mb * MEGABYTE
        return evaluate(self.model, graph, (split,), ties=ties, memory=memory, progress=progress)

    def __repr__(self) -> str:
        scores = self.metrics.get("test", {}).get("both", {})
        summary = f", test MRR {scores['mrr']:.3f}" if scores else ""
        return f"Run('{self.recipe.name}' on {self.graph.name}{summary})"
