"""`tune`: the best model for a graph in a given time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from eans.arguments import flag, texts, whole
from eans.costs import seconds_of
from eans.devices import choose_device
from eans.errors import UsageError
from eans.files import as_path, atomic_write, make_folder, take_lock
from eans.lifecycle import continue_run, start
from eans.listener import Listener
from eans.phases import told_to
from eans.progress import Display
from eans.recipes.choosing import given_graph
from eans.run import Run
from eans.runs import STUDY, RunFolder
from eans.tuning.places import place_for
from eans.tuning.plan import completed, plan_for
from eans.tuning.report import REPORT, write_report
from eans.tuning.search import BEST, Search
from eans.tuning.space import Space, space_text
from eans.tuning.study import Study
from eans.tuning.workers import workers_for

if TYPE_CHECKING:
    from eans.graph import KnowledgeGraph

SPACE, SEEDS = "space.toml", "seeds"


def tune(
    graph: KnowledgeGraph,
    budget: str | float,
    *,
    out: str | Path,
    methods: Sequence[str] | None = None,
    space: str | Path | None = None,
    seeds: int = 1,
    seed: int = 0,
    device: str = "auto",
    workers: int | Literal["auto"] = "auto",
    test: bool = True,
    listener: Listener | None = None,
    progress: bool = True,
) -> Run:
    """Search for the best model in a given time; valid decides, and test is ranked once, for the winner.

    Many candidates are trained for a short time, the best of them anew for longer, and the best of these for the
    longest. The same call goes on with a search that was interrupted. Ctrl-C ends it with the best run so far.

    Args:
        graph: to train on; it must have valid triples.
        budget: the time, such as ``"10m"``; a number is seconds.
        out: folder for the winner's run, with the search in ``study/`` beside it.
        methods: those of the space to try; None for all.
        space: a TOML file with methods and the ranges of their hyper-parameters; None for the package's.
        seeds: train the winner's recipe with so many seeds in all, and report mean and deviation.
        seed: of the search and of the first run of each candidate.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        workers: trials at a time, each in a process with its share of the cores; 1: in this process. ``"auto"``: as
            many as pay on this device.
        test: rank the test triples for the winner.
        listener: callbacks of the runs that are trained; of trials in other processes, `stop` alone.
        progress: show the trials as they end, and how far the search is, on standard error.

    Returns:
        The best run. Its folder is `out`; ``study/`` there has the trials, a report and a figure.
    """
    graph, test, listener = given_graph(graph), flag("test", test), Listener.of(listener)
    display = Display() if flag("progress", progress) else None
    return search_shown(
        display, graph, seconds_of(budget), as_path(out, "out"), methods, space, whole("seeds", seeds, 1),
        whole("seed", seed), device, workers, test, listener,
    )  # fmt: skip


def search_shown(
    display: Display | None,
    graph: KnowledgeGraph,
    seconds: float,
    folder: Path,
    methods: Sequence[str] | None,
    space: str | Path | None,
    seeds: int,
    seed: int,
    device: str,
    workers: int | str,
    test: bool,
    listener: Listener,
) -> Run:
    """`tune`, with its arguments checked, on a display of one's own."""
    if find_spec("optuna") is None:
        raise UsageError("tuning needs Optuna, which the extra 'tune' brings: pip install 'eans[tune]'")
    if not len(graph.valid):
        raise UsageError(f"graph '{graph.name}' has no valid triples to choose by; split it, as with --split 80/10/10")
    text = space_text(space)
    wanted = Space.parse(text, str(space or SPACE))
    if methods is not None:
        wanted = wanted.only(texts("methods", methods, "methods of the space, such as 'complex/all+n3'"))
    chosen, study_folder, run_folder = choose_device(device), folder / STUDY, RunFolder(folder)
    at_a_time = workers_for(workers, graph, chosen, seconds)
    if run_folder.is_complete and (study_folder / REPORT).is_file():
        return Run.load(folder, device)
    plan = plan_for(graph, wanted, text, seed)
    earlier = plan.earlier(study_folder)
    if earlier is None and folder.exists():
        run_folder.require_free()
    make_folder(study_folder)
    shown_by, phase = (display, display.phase) if display else (nullcontext(), listener.phase)
    with take_lock(study_folder / ".lock", f"another process is searching in {folder}"), shown_by, told_to(phase):
        began = time.monotonic()
        interrupted = False
        with place_for(at_a_time, graph, chosen, seed, listener, study_folder) as place:
            if earlier is None:
                earlier = completed(plan, wanted, seconds, place)
                atomic_write(study_folder / SPACE, text.encode())
                earlier.save(study_folder)
            study = Study(study_folder, wanted.only(earlier.step_seconds), seed)
            best = None
            if not run_folder.is_complete:
                search = Search(place, study, earlier, seconds, seeds, device, study_folder, display, began)
                best = search.run()
                interrupted = search.interrupted
        if best is None:
            found = Run.load(folder, device)
        else:
            _clear(run_folder)
            found = _finished(best, folder, test)
        others = [] if interrupted else _seeds(found, study_folder / SEEDS, seeds, device, test, listener)
        write_report(study, earlier, found, others, study_folder, seconds)
        shutil.rmtree(study_folder / BEST, ignore_errors=True)
        return found


def _clear(folder: RunFolder) -> None:
    """Remove what a process that was killed while it wrote the winner left behind."""
    for file in (folder.recipe_file, folder.log_file, folder.model_file):
        file.unlink(missing_ok=True)


def _finished(best: Run, folder: Path, test: bool) -> Run:
    """The winner in its folder, with test ranked."""
    metrics: dict[str, Any] = dict(best.metrics)
    if test and len(best.graph.test):
        metrics = {**metrics, **best.evaluate("test", best.recipe.evaluation.ties, progress=False)}
    return replace(best, metrics=metrics).save(folder)


def _seeds(best: Run, folder: Path, seeds: int, device: str, test: bool, listener: Listener) -> list[Run]:
    """The winner's recipe with further seeds."""
    runs = []
    train = best.recipe.train
    for number in range(1, seeds):
        make_folder(folder)
        place = folder / f"seed{train.seed + number}"
        if RunFolder(place).recipe_file.is_file():
            runs.append(continue_run(place, device, listener, test=test))
        else:
            recipe = best.recipe.model_copy(update={"train": train.model_copy(update={"seed": train.seed + number})})
            runs.append(start(recipe, best.graph, place, device, listener, test=test))
    return runs
