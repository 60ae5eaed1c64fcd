"""The Python interface: train a graph, get a `Run` back, ask it for metrics and predictions."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from eans._version import __version__
from eans.errors import Interrupted, UsageError, did_you_mean
from eans.evaluation import Ties, evaluate, rank
from eans.fitting import Observer, Progress, fit
from eans.graph import KnowledgeGraph, Split
from eans.models import Model
from eans.prediction import Known, Predictions, predict
from eans.recipes import Recipe, all_keys, default_for
from eans.recipes import load as load_recipe
from eans.recipes.build import build_plan, build_trainer, resolve
from eans.runs import RunFolder
from eans.training import Diverged, Trainer

MEGABYTE = 2**20


@dataclass
class Listener:
    """Callbacks for whoever watches a run; every part is optional.

    Attributes:
        start: called once with the resolved recipe, the graph and the trainer (a resumed one is not at step 0).
        log: receives each log record.
        tick: called with the number of completed steps after each step.
        ranking: called with (split, queries done, queries in all) while a split is ranked.
        stop: asked after each step; True saves the state and ends the run with `Interrupted`.
    """

    start: Callable[[Recipe, KnowledgeGraph, Trainer], None] = field(default=lambda *_: None)
    log: Callable[[dict[str, Any]], None] = field(default=lambda _: None)
    tick: Callable[[int], None] = field(default=lambda _: None)
    ranking: Callable[[str, int, int], None] = field(default=lambda *_: None)
    stop: Callable[[], bool] = field(default=lambda: False)


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
        folder = RunFolder.open(Path(path))
        graph = folder.graph()
        model = folder.model(graph, choose_device(device))
        return cls(folder.recipe(), graph, model, folder.metrics(), folder.log(), folder.path)

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

    def evaluate(
        self, split: Split = "test", ties: Ties = "realistic", progress: Callable[[int, int], None] | None = None
    ) -> dict[str, Any]:
        """Rank a split anew and return its metrics with the protocol; `progress` hears (queries done, in all)."""
        memory = self.recipe.evaluation.memory_mb * MEGABYTE
        return evaluate(self.model, self.graph, (split,), ties=ties, memory=memory, progress=progress)

    def __repr__(self) -> str:
        scores = self.metrics.get("test", {}).get("both", {})
        summary = f", test MRR {scores['mrr']:.3f}" if scores else ""
        return f"Run('{self.recipe.name}' on {self.graph.name}{summary})"


def choose_device(device: str) -> torch.device:
    """``auto`` takes a GPU when there is one."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except RuntimeError:
        chosen = None
    if chosen is None or chosen.type not in ("cpu", "cuda"):
        raise UsageError(f"unknown device '{device}' (auto, cpu or cuda)")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device '{device}' was asked for, but PyTorch sees no CUDA GPU; use --device cpu")
    return chosen


def _full_keys(settings: Mapping[str, Any]) -> dict[str, Any]:
    """``{"dim": 100, "train.steps": 10}`` -> ``{"model.dim": 100, "train.steps": 10}``."""
    short = {key.partition(".")[2]: key for key in all_keys() if not key.endswith(".name")}
    full = {}
    for key, value in settings.items():
        if key not in short and key not in all_keys():
            raise UsageError(f"unknown setting '{key}'{did_you_mean(key, [*short, *all_keys()])}")
        full[short.get(key, key)] = value
    return full


def train(
    graph: KnowledgeGraph,
    model: str | None = None,
    sampler: str | None = None,
    *,
    recipe: str | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    listener: Listener | None = None,
    **settings: Any,
) -> Run:
    """Train a model on a graph and evaluate it.

    Args:
        graph: what to learn.
        model: a name from `MODELS`, such as ``"transe"``, ``"complex"`` or ``"rotate"``.
        sampler: a method of the recipes, such as ``"uniform"``, ``"adv"``, ``"eans"``, ``"eans+adv"`` or ``"kbgan"``.
        recipe: a recipe name or file instead of model and sampler. With none of the three, the graph's default.
        out: folder to keep the run in; None keeps it in memory.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        listener: callbacks.
        settings: recipe keys, such as ``dim=100``, ``steps=5000``, ``negatives=16``, ``seed=1``, ``lr=1e-3``.
    """
    resolved = choose_recipe(graph, model, sampler, recipe, settings)
    return start(resolved, graph, Path(out) if out is not None else None, device, listener)


def choose_recipe(
    graph: KnowledgeGraph, model: str | None, sampler: str | None, recipe: str | None, settings: Mapping[str, Any]
) -> Recipe:
    """The resolved recipe behind the arguments of `train`."""
    if not isinstance(graph, KnowledgeGraph):
        raise UsageError(f"{graph!r} is not a graph; make one with eans.load(...) or KnowledgeGraph.from_labels(...)")
    if recipe is not None and (model is not None or sampler is not None):
        raise UsageError("give either a recipe, or a model and a sampler")
    if recipe is None:
        dataset, default_model, default_method = default_for(graph.source or graph.name, model).split("/")
        recipe = f"{dataset}/{model or default_model}/{sampler or default_method}"
    return resolve(load_recipe(recipe, _full_keys(settings), data=graph.source or graph.name), graph)


def start(
    recipe: Recipe,
    graph: KnowledgeGraph,
    out: Path | None = None,
    device: str = "auto",
    listener: Listener | None = None,
) -> Run:
    """Train a resolved recipe from the beginning."""
    # Built before the folder is made: a recipe that cannot be built leaves nothing behind.
    trainer = build_trainer(recipe, graph, choose_device(device))
    if out is None:
        return _execute(recipe, graph, trainer, None, listener or Listener())
    folder = RunFolder.create(out, recipe, graph)
    with folder.lock():
        return _execute(recipe, graph, trainer, folder, listener or Listener())


def resume(path: str | Path, device: str = "auto", listener: Listener | None = None) -> Run:
    """Continue an interrupted run to the same bits as if it had not been interrupted."""
    folder = RunFolder.open(Path(path))
    if folder.is_complete:
        return Run.load(path, device)
    with folder.lock():
        recipe, graph = folder.recipe(), folder.graph()
        trainer = build_trainer(recipe, graph, choose_device(device))
        return _execute(recipe, graph, trainer, folder, listener or Listener())


def _execute(
    recipe: Recipe, graph: KnowledgeGraph, trainer: Trainer, folder: RunFolder | None, listener: Listener
) -> Run:
    progress = folder.load_checkpoint(trainer) if folder is not None else Progress()
    history = folder.log() if folder is not None else []
    memory = recipe.evaluation.memory_mb * MEGABYTE
    best: dict[str, torch.Tensor] = {}

    def validate() -> dict[str, Any]:
        ranks = rank(trainer.model, graph, "valid", limit=recipe.train.valid_triples, memory=memory)
        return ranks.summary(recipe.evaluation.ties)

    def log(record: dict[str, Any]) -> None:
        history.append(record)
        if folder is not None:
            folder.append_log(record)
        listener.log(record)

    def keep_best(trainer: Trainer) -> None:
        if recipe.train.keep != "best":
            return
        if folder is not None:
            folder.save_weights(folder.best_file, trainer.model)
        else:
            best.update({name: value.detach().clone() for name, value in trainer.model.state_dict().items()})

    def checkpoint(trainer: Trainer, progress: Progress) -> None:
        if folder is not None:
            folder.save_checkpoint(trainer, progress)

    listener.start(recipe, graph, trainer)
    observer = Observer(log, checkpoint, keep_best, lambda trainer: listener.tick(trainer.completed), listener.stop)
    try:
        progress = fit(trainer, build_plan(recipe), validate, progress, observer)
    except Diverged as error:
        raise Diverged(f"{error}; {folder.last_good_state() if folder is not None else 'nothing is kept'}") from None

    model = trainer.model
    if recipe.train.keep == "best" and progress.best_step:
        if folder is not None:
            folder.load_best(model)
        else:
            model.load_state_dict(best)
    metrics: dict[str, Any] = {}
    for split in ("valid", "test"):
        report = _ranking_reporter(listener, split)
        metrics |= evaluate(model, graph, (split,), ties=recipe.evaluation.ties, memory=memory, progress=report)
    metrics["training"] = _training_facts(recipe, trainer, progress)
    if folder is not None:
        folder.save_weights(folder.model_file, model)
        folder.save_metrics(metrics)
    return Run(recipe, graph, model, metrics, history, folder.path if folder is not None else None)


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


def hardware_name(device: torch.device) -> str:
    """The name of the GPU or processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")  # where Python itself knows no more than the architecture
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.processor() or platform.machine()
