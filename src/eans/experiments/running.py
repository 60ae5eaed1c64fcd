"""One experiment with its record: train in a folder of its own, continue there if it was cut off, say what came out."""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eans import data
from eans._version import __version__
from eans.errors import EansError
from eans.experiments.extras import Extra
from eans.experiments.records import Experiment, Record, RecordStore, current_commit
from eans.files import take_lock
from eans.graph import KnowledgeGraph
from eans.lifecycle import continue_run, start
from eans.listener import Listener
from eans.recipes import Recipe, load
from eans.recipes.build import resolve
from eans.recipes.library import left_out
from eans.recipes.migration import flat
from eans.recipes.parts import PARTS
from eans.run import Run
from eans.runs import RunFolder

SIDES = ("both", "head", "tail")


def prepare(experiment: Experiment) -> tuple[Recipe, KnowledgeGraph]:
    """The resolved recipe of an experiment, and its graph."""
    recipe = to_the_end(load(experiment.recipe, [*experiment.overrides, f"train.seed={experiment.seed}"], strict=False))
    graph = data.load(recipe.data.name)
    return resolve(recipe, graph), graph


def to_the_end(recipe: Recipe) -> Recipe:
    """A recipe that is not resolved yet, without validations that it leaves to ``auto``.

    Runs that are compared do all their steps and are judged by their last weights, unless their recipe says otherwise.
    """
    plain, train = Recipe().train.model_dump(), recipe.train.model_dump()
    keys = ("valid_every", "valid_triples", "patience", "patience_from", "keep")
    off = {key: plain[key] for key in keys if train[key] == "auto"}
    return recipe.model_copy(update={"train": recipe.train.model_copy(update=off)})


def recipe_hash(recipe: Recipe, graph: KnowledgeGraph, overrides: Sequence[str] = ()) -> str:
    """What two resolved recipes share that differ in seed and name alone.

    Only values other than the defaults count: a key that is new, and changes nothing by default, changes no hash. Nor
    does a default that becomes another; do not change one, set the new value in the recipes. The hash is that of
    recipes in format 1 (`eans.recipes.migration`), so that records of then and of now are comparable: that is why it
    counts what the recipe of this name and `overrides` set for other classes, and what follows from the graph.
    """
    content = recipe.model_dump(
        exclude_defaults=True, exclude={"name": True, "train": {"seed"}, **dict.fromkeys(PARTS, True)}
    )
    for part, also in left_out(recipe, overrides).items():
        content[part] = flat(part, getattr(recipe, part), also, graph)
    content = {section: values for section, values in content.items() if values}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def describe(experiment: Experiment, run: Run) -> dict[str, Any]:
    """The content of the record of a finished run."""
    facts, protocol = run.metrics["training"], run.metrics["protocol"]
    curve = [
        {"step": record["step"], "seconds": record["seconds"], "mrr": record["valid"]["both"]["mrr"]}
        for record in run.history
        if "valid" in record
    ]
    losses = [record["loss"] for record in run.history if "loss" in record]
    ranked: dict[str, Any] = {
        split: {side: run.metrics[split][side] for side in SIDES} for split in ("valid", "test") if split in run.metrics
    }
    return {
        "recipe": experiment.recipe,
        "overrides": list(experiment.overrides),
        "seed": experiment.seed,
        "recipe_hash": recipe_hash(run.recipe, run.graph, experiment.overrides),
        "commit": current_commit(),
        "versions": {"eans": __version__, "torch": facts["torch_version"], "python": platform.python_version()},
        "hardware": facts["hardware"],
        "device": facts["device"],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "steps": facts["steps"],
        "seconds": facts["seconds"],
        **ranked,
        "protocol": {name: protocol[name] for name in ("ties", "candidates", "split_sha256")},
        "curve": curve,
        "losses": [losses[0], losses[-1]],
    }


def run_experiment(
    experiment: Experiment,
    store: RecordStore,
    *,
    device: str = "auto",
    test: bool = True,
    extra: Extra | None = None,
    listener: Listener | None = None,
    runs_at_a_time: int = 1,
) -> Record:
    """Train and evaluate in this process, write the record, and delete the run's folder.

    A run that was interrupted continues; one of another recipe, such as an older version of this one, starts anew. To
    be called by one process at a time: see `locked`.

    Args:
        experiment: what to run.
        store: where its record goes, and its state meanwhile.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        test: rank the test triples too; False leaves them alone, for choosing among experiments by valid.
        extra: adds fields to the record.
        listener: callbacks.
        runs_at_a_time: how many processes share the device, for the record.
    """
    recipe, graph = prepare(experiment)
    store.make_folders()
    path = store.working / experiment.name
    if path.exists() and not _can_continue(path, recipe):
        with RunFolder(path).lock():  # nobody continues it by `eans train --resume`
            shutil.rmtree(path)
    begun = path.exists()
    watch = extra.watch(experiment, path) if extra is not None else None
    listener = listener or Listener()
    listener = listener if watch is None else _both(watch.listener, listener)
    if begun:
        run = continue_run(path, device, listener, test=test)
    else:
        run = start(recipe, graph, path, device, listener, test=test)
    if not test:  # an earlier process may have ranked it, and ended before the record was written; or not
        run.metrics.pop("test", None)
    elif "test" not in run.metrics:
        run.metrics.update(run.evaluate("test", run.recipe.evaluation.ties, progress=False))
    content = describe(experiment, run) | {"runs_at_a_time": runs_at_a_time}
    if watch is not None:
        content |= {"seconds": round(content["seconds"] - watch.seconds, 3), **watch.fields(run)}
    record = store.write(experiment, content)
    shutil.rmtree(path, ignore_errors=True)
    error_file(experiment, store).unlink(missing_ok=True)
    return record


def _both(first: Listener, second: Listener) -> Listener:
    """A listener that tells two, in this order; the second one says when to stop."""

    def tell(part: str) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            getattr(first, part)(*arguments)
            getattr(second, part)(*arguments)

        return call

    return Listener(tell("start"), tell("log"), tell("tick"), tell("ranking"), second.stop, tell("phase"))


@contextlib.contextmanager
def locked(experiment: Experiment, store: RecordStore) -> Iterator[None]:
    """What one process does about an experiment, from looking for its record to writing it, no other does meanwhile.

    Raises:
        FolderInUse: another process is at it.
    """
    store.make_folders()
    # Beside the run's folder, and left behind: a file that comes and goes could be locked twice.
    file = take_lock(store.working / f"{experiment.name}.lock", f"another process is making {experiment.key}")
    with contextlib.closing(file):
        yield


def error_file(experiment: Experiment, store: RecordStore) -> Path:
    """Where a run that failed for a reason that nobody foresaw leaves its traceback."""
    return store.working / f"{experiment.name}.error.txt"


def saved_step(experiment: Experiment, store: RecordStore) -> int:
    """The step from which a run that was begun before would continue; 0 where it would start."""
    path = store.working / experiment.name
    try:
        name = load(experiment.recipe, experiment.overrides, strict=False).data.name or data.bundled_name()
        if not path.is_dir() or not data.is_here(name):
            return 0
        return RunFolder(path).saved_step() if _can_continue(path, prepare(experiment)[0]) else 0
    except EansError:  # the run itself will say what is wrong
        return 0


def _can_continue(path: Path, recipe: Recipe) -> bool:
    """Does the folder hold an unfinished run of this very recipe?"""
    folder = RunFolder(path)
    try:
        return folder.graph_file.is_file() and folder.recipe().model_dump() == recipe.model_dump()
    except EansError:
        return False
