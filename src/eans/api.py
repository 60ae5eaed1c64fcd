"""The Python interface: train a graph, get a `Run` back, ask it for metrics and predictions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from eans.arguments import flag
from eans.distributed import ranks_of_environment
from eans.errors import UsageError
from eans.files import as_path
from eans.graph import KnowledgeGraph
from eans.lifecycle import continue_run, start
from eans.listener import Listener
from eans.recipes.choosing import choose_recipe
from eans.run import Run
from eans.run_progress import TrainingDisplay, summary


def train(
    graph: KnowledgeGraph,
    model: str | None = None,
    sampler: str | None = None,
    *,
    recipe: str | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    listener: Listener | None = None,
    test: bool = True,
    progress: bool = True,
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
        test: rank the test triples too; False leaves them alone, as when recipes are chosen by valid.
        progress: show the plan and how far it is, on standard error: a bar on a terminal or in a notebook, otherwise
            a line at least every 30 seconds.
        settings: recipe keys, such as ``dim=100``, ``steps=5000``, ``negatives=16``, ``seed=1``, ``lr=1e-3``.
    """
    _require_one_process()
    resolved = choose_recipe(graph, model, sampler, recipe, settings)
    folder = as_path(out, "out") if out is not None else None
    test = flag("test", test)
    return _shown(progress, listener, lambda listener: start(resolved, graph, folder, device, listener, test=test))


def resume(
    path: str | Path,
    device: str = "auto",
    listener: Listener | None = None,
    *,
    test: bool = True,
    progress: bool = True,
) -> Run:
    """Continue an interrupted run to the same bits as if it had not been interrupted; see `train` for the arguments."""
    _require_one_process()
    test = flag("test", test)
    return _shown(progress, listener, lambda listener: continue_run(path, device, listener, test=test))


def _require_one_process() -> None:
    """Raise where ``torchrun`` started several, each of which would train by itself."""
    if ranks_of_environment()[2] > 1:
        raise UsageError(
            "eans.train and eans.resume train with one process; several are for: torchrun ... -m eans train"
        )


def _shown(progress: bool, listener: Listener | None, work: Callable[[Listener], Run]) -> Run:
    """Do the work with a display that passes everything on to `listener`, or without one."""
    listener = Listener.of(listener)
    if not flag("progress", progress):
        return work(listener)
    with TrainingDisplay(listener) as display:
        run = work(display.listener())
        display.display.say(summary(run.recipe, run.metrics["training"]))
        return run
