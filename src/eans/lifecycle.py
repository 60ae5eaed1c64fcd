"""A run from its beginning, or from its last checkpoint, to its metrics; in memory and in a folder alike."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from eans._version import __version__
from eans.devices import choose_device, hardware_name
from eans.errors import Interrupted
from eans.evaluation import evaluate, rank
from eans.fitting import Plan, fit
from eans.graph import KnowledgeGraph, Split
from eans.listener import Listener
from eans.models import Model
from eans.phases import told_to
from eans.recipes import Recipe
from eans.recipes.build import build_trainer
from eans.run import MEGABYTE, Run
from eans.runs import RunFolder
from eans.stores import MemoryStore, Progress, RunStore
from eans.training import Diverged, Trainer


def start(
    recipe: Recipe,
    graph: KnowledgeGraph,
    out: Path | None = None,
    device: str = "auto",
    listener: Listener | None = None,
    *,
    test: bool = True,
) -> Run:
    """Train a resolved recipe from the beginning, and rank valid and, unless told otherwise, test.

    Nothing is shown but what the listener shows.
    """
    listener = Listener.of(listener)
    with told_to(listener.phase):
        # Built before the folder is made: a recipe that cannot be built leaves nothing behind.
        trainer = build_trainer(recipe, graph, choose_device(device))
        if out is None:
            return Lifecycle(recipe, graph, trainer, MemoryStore(), listener).complete(test)
        folder = RunFolder.create(out, recipe, graph)
        with folder.lock():
            return Lifecycle(recipe, graph, trainer, folder, listener).complete(test)


def continue_run(path: str | Path, device: str = "auto", listener: Listener | None = None, *, test: bool = True) -> Run:
    """`eans.resume`, with nothing shown but what the listener shows."""
    listener = Listener.of(listener)
    folder = RunFolder.open(path)
    if folder.is_complete:
        return Run.load(path, device)
    with folder.lock(), told_to(listener.phase):
        recipe, graph = folder.recipe(), folder.graph()
        trainer = build_trainer(recipe, graph, choose_device(device))
        return Lifecycle(recipe, graph, trainer, folder, listener).complete(test)


class Lifecycle:
    """What is left of a run: training from the store's checkpoint, choosing the weights, ranking.

    Args:
        recipe, graph: what is trained on what.
        trainer: new, made from them.
        store: where the run is kept.
        listener: callbacks.
    """

    def __init__(
        self, recipe: Recipe, graph: KnowledgeGraph, trainer: Trainer, store: RunStore, listener: Listener
    ) -> None:
        self.recipe, self.graph, self.trainer = recipe, graph, trainer
        self.store, self.listener = store, listener
        self.memory = recipe.evaluation.memory_mb * MEGABYTE

    def complete(self, test: bool) -> Run:
        """Train to the end, rank valid and, if `test`, test."""
        return self.finish(self.train(), test)

    def finish(self, progress: Progress, test: bool) -> Run:
        """What comes after training: choose the weights, rank valid and, if `test`, test."""
        self.trainer.finish()
        metrics, kept = self._choose_weights(progress)
        metrics |= self._metrics_of("test") if test else {}
        metrics["training"] = _training_facts(self.recipe, self.trainer, progress) | {"kept_step": kept}
        history = self.store.log()
        self.store.save_model(self.model)
        self.store.save_metrics(metrics)
        return Run(self.recipe, self.graph, self.model, metrics, history, self.store.location)

    @property
    def model(self) -> Model:
        """The model that is trained."""
        return self.trainer.model

    def train(self) -> Progress:
        """Train from the store's checkpoint to the end; it says how validation went."""
        progress = self.store.load_checkpoint(self.trainer)
        self.listener.start(self.recipe, self.graph, self.trainer)
        try:
            return fit(self.trainer, Plan.of(self.recipe), self._validate, progress, self.store, self.listener)
        except Diverged as error:
            raise Diverged(f"{error}; {self.store.last_good_state()}") from None

    def _validate(self) -> dict[str, Any]:
        limit = int(self.recipe.train.valid_triples)
        told = partial(self.listener.ranking, "valid")
        ranks = rank(self.model, self.graph, "valid", limit=limit, memory=self.memory, progress=told)
        return ranks.summary(self.recipe.evaluation.ties)

    def _metrics_of(self, split: Split) -> dict[str, Any]:
        report = _ranking_reporter(self.listener, split)
        ties = self.recipe.evaluation.ties
        return evaluate(self.model, self.graph, (split,), ties=ties, memory=self.memory, progress=report)

    def _choose_weights(self, progress: Progress) -> tuple[dict[str, Any], int]:
        """Leave the model with the weights to keep, the last or the best; return their valid metrics and their step."""
        train, last_step = self.recipe.train, self.trainer.completed
        if train.keep != "best" or not 0 < progress.best_step < last_step:
            return self._metrics_of("valid"), last_step
        if not 0 < int(train.valid_triples) < len(self.graph.valid):
            self.store.load_best(self.model)
            return self._metrics_of("valid"), progress.best_step
        # A sample of the valid triples says little about small differences; where they all do not agree, the last stay.
        self.store.keep_last(self.model)
        of_last = self._metrics_of("valid")
        self.store.load_best(self.model)
        of_best = self._metrics_of("valid")
        if of_best["valid"]["both"]["mrr"] > of_last["valid"]["both"]["mrr"]:
            return of_best, progress.best_step
        self.store.load_last(self.model)
        return of_last, last_step


def _ranking_reporter(listener: Listener, split: str) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        listener.ranking(split, done, total)
        if listener.stop():
            raise Interrupted(f"stopped while ranking {split}; training is complete")

    return report


def _training_facts(recipe: Recipe, trainer: Trainer, progress: Progress) -> dict[str, Any]:
    """What a reader needs to judge or repeat the run."""
    return {
        "recipe": recipe.name,
        "seed": recipe.train.seed,
        "steps": trainer.completed,
        "seconds": round(progress.seconds, 3),
        "best_valid_step": progress.best_step,
        "device": str(trainer.device),
        "hardware": hardware_name(trainer.device),
        "eans_version": __version__,
        "torch_version": torch.__version__,
    }
