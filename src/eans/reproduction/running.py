"""One run with its record: train in a folder of its own, continue there if it was cut off, say what came out."""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eans import data
from eans._version import __version__
from eans.api import Listener, Run, resume, start
from eans.errors import EansError
from eans.files import make_folder
from eans.graph import KnowledgeGraph
from eans.recipes import Recipe, load
from eans.recipes.build import resolve
from eans.reproduction.records import Record, RunSpec, current_commit, write_record
from eans.reproduction.watching import Notes, Watcher
from eans.runs import RunFolder, take_lock

SIDES = ("both", "head", "tail")


def prepare(spec: RunSpec) -> tuple[Recipe, KnowledgeGraph]:
    """The resolved recipe of a run, and its graph."""
    recipe = load(spec.recipe, [*spec.overrides, f"train.seed={spec.seed}"])
    graph = data.load(recipe.data.name)
    return resolve(recipe, graph), graph


def recipe_hash(recipe: Recipe) -> str:
    """What two resolved recipes share that differ in seed and name alone.

    Only values other than the defaults count: a key that is new, and changes nothing by default, changes no hash. Nor
    does a default that becomes another; do not change one, set the new value in the recipes.
    """
    train = recipe.train.model_copy(update={"seed": Recipe().train.seed})
    content = recipe.model_copy(update={"name": "", "train": train}).model_dump(exclude_defaults=True)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def outdated(records: Iterable[Record]) -> list[Record]:
    """The records of recipes that have changed since, as far as the records and the graphs on this machine tell."""
    graphs: dict[str, KnowledgeGraph | None] = {}
    hashes: dict[str, str] = {}
    found = []
    for record in records:
        spec = record.spec
        if "recipe_hash" not in record.content:
            continue
        if spec.settings not in hashes:
            recipe = load(spec.recipe, spec.overrides)
            name = recipe.data.name or data.bundled_name()
            if name not in graphs:
                graphs[name] = data.load(name) if data.is_here(name) else None
            graph = graphs[name]
            hashes[spec.settings] = recipe_hash(resolve(recipe, graph)) if graph is not None else ""
        if hashes[spec.settings] not in ("", record["recipe_hash"]):
            found.append(record)
    return found


def describe(spec: RunSpec, run: Run, total_seconds: float) -> dict[str, Any]:
    """The record of a finished run."""
    facts, protocol = run.metrics["training"], run.metrics["protocol"]
    curve = [
        {"step": record["step"], "seconds": record["seconds"], "mrr": record["valid"]["both"]["mrr"]}
        for record in run.history
        if "valid" in record
    ]
    losses = [record["loss"] for record in run.history if "loss" in record]
    return {
        "recipe": spec.recipe,
        "overrides": list(spec.overrides),
        "seed": spec.seed,
        "recipe_hash": recipe_hash(run.recipe),
        "commit": current_commit(),
        "versions": {
            "eans": __version__,
            "torch": facts["torch_version"],
            "python": platform.python_version(),
        },
        "hardware": facts["hardware"],
        "device": facts["device"],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "steps": facts["steps"],
        "seconds": facts["seconds"],
        # A process that was killed may not have left all of its time in the notes.
        "total_seconds": max(round(total_seconds, 1), facts["seconds"]),
        "valid": {side: run.metrics["valid"][side] for side in SIDES},
        "test": {side: run.metrics["test"][side] for side in SIDES},
        "protocol": {name: protocol[name] for name in ("ties", "candidates", "split_sha256")},
        "curve": curve,
        "losses": [losses[0], losses[-1]],
    }


def run_spec(
    spec: RunSpec,
    records: Path,
    working: Path,
    *,
    device: str = "auto",
    looks: Sequence[int] = (),
    company: Callable[[], Mapping[int, int]] = dict,
    listener: Listener | None = None,
) -> Record:
    """Train and evaluate, write the record, and clear the run folder away.

    Args:
        spec: what to run.
        records: the folder of records.
        working: where the run's folder is while it is not done. A run that was interrupted continues there; one of
            another recipe, such as an older version of this one, is thrown away.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        looks: steps at which the scores of negatives are kept; if there are any, those at the last step are too, and
            the final order of entities.
        company: how many runs there were, by how often that was so; asked now and then.
        listener: callbacks.

    To be called by one process at a time: see `making`.
    """
    began = time.perf_counter()
    recipe, graph = prepare(spec)
    path = working / spec.name
    if path.exists() and not _can_continue(path, recipe):
        with RunFolder(path).lock():  # nobody goes on with it by `eans train --resume`
            shutil.rmtree(path)
    begun = path.exists()
    make_folder(path, "choose another --records")
    notes = Notes(path, began, company)
    watch = Watcher(notes, looks, listener or Listener()).listener()
    try:
        run = resume(path, device, watch) if begun else start(recipe, graph, path, device, watch)
    except BaseException:
        with contextlib.suppress(EansError):  # what ended the run matters more
            notes.save()
        raise
    content = describe(spec, run, notes.total_seconds)
    content["seconds"] = round(content["seconds"] - notes.seconds, 3)
    content["runs_at_a_time"] = notes.runs_at_a_time
    if looks:
        content["analysis"] = [notes.looks[step] for step in sorted(notes.looks)]
        if notes.order is not None:
            content["order"] = notes.order
    record = write_record(records, spec, content)
    shutil.rmtree(path, ignore_errors=True)
    error_file(spec, working).unlink(missing_ok=True)
    return record


@contextlib.contextmanager
def making(spec: RunSpec, working: Path) -> Iterator[None]:
    """What one process does here about a run, from looking for its record to writing it, no other does meanwhile.

    Raises:
        FolderInUse: another process is at it.
    """
    make_folder(working, "choose another --records")
    # Beside the run's folder, and left behind: a file that comes and goes could be locked twice.
    file = take_lock(working / f"{spec.name}.lock", f"another process is making {spec.key}")
    with contextlib.closing(file):
        yield


def error_file(spec: RunSpec, working: Path) -> Path:
    """Where a run that failed for a reason that nobody foresaw leaves its traceback."""
    return working / f"{spec.name}.error.txt"


def saved_step(spec: RunSpec, working: Path) -> int:
    """The step from which a run that was begun before would go on; 0 where it would start."""
    path = working / spec.name
    try:
        name = load(spec.recipe, spec.overrides).data.name or data.bundled_name()
        if not path.is_dir() or not data.is_here(name):
            return 0
        return RunFolder(path).saved_step() if _can_continue(path, prepare(spec)[0]) else 0
    except EansError:  # the run itself will say what is wrong
        return 0


def _can_continue(path: Path, recipe: Recipe) -> bool:
    """Does the folder hold an unfinished run of this very recipe?"""
    folder = RunFolder(path)
    try:
        return folder.graph_file.is_file() and folder.recipe().model_dump() == recipe.model_dump()
    except EansError:
        return False
