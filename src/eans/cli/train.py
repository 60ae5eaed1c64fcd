"""``eans train``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eans.cli.graphs import Reading, load_graph, load_pytorch, split_kept, with_reading
from eans.cli.options import (
    DataOption,
    DeviceOption,
    SeedOption,
    SetOption,
    overrides_of,
    require_given,
)
from eans.cli.tables import show_run
from eans.cli.tune import search
from eans.errors import Interrupted, RunError, UsageError
from eans.progress import plain_console
from eans.signals import WORDS, StopRequests
from eans.streams import outlive_readers

if TYPE_CHECKING:
    from eans.distributed import World
    from eans.graph import KnowledgeGraph
    from eans.listener import Listener
    from eans.recipes import Recipe
    from eans.run import Run


@with_reading()
def train(
    recipe: Annotated[
        str | None, typer.Argument(help="Recipe name (see `eans recipes`) or TOML file. Default: the dataset's own.")
    ] = None,
    data: DataOption = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to create. Default: a new one under runs/.")] = None,
    seed: SeedOption = None,
    device: DeviceOption = "auto",
    set_: SetOption = None,
    budget: Annotated[
        str | None, typer.Option(help="Search for the best recipe in this time, such as 10m; see `eans tune`.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue an interrupted run folder.")] = None,
    *,
    reading: Reading,
) -> None:
    """Train a model, evaluate it, and keep everything in a run folder."""
    outlive_readers()
    load_pytorch()
    with ranks(device) as world:
        if resume is not None:
            if any(given is not None for given in (recipe, data, out, seed, reading.split, budget)) or set_:
                raise UsageError(
                    "--resume continues a run as it was: give no recipe, --data, --out, --seed, --set, --split or "
                    "--budget"
                )
            for option, given in (
                ("--strict checks a folder", reading.strict),
                ("--columns, --query and --literals read files", reading.of_files != Reading().of_files),
            ):
                if given:
                    raise UsageError(f"{option} of triples, and --resume reads none: a run has its own copy")
            if reading.labels:
                raise UsageError(
                    "--labels names what a graph has when it is read, and a run keeps its names: leave it out"
                )
            show_run(_resumed(resume, device, world))
            return
        if budget is not None:
            if world.size > 1:
                raise UsageError("--budget searches with one process; start it without torchrun")
            if recipe is not None or set_:
                raise UsageError(
                    "--budget searches for a recipe: give none, and no --set; `eans tune --method METHOD` searches for "
                    "the hyper-parameters of one method"
                )
            search(budget, data, out, None, None, 1, seed or 0, "auto", device, reading)
            return
        require_given("--data", data)
        show_run(_trained(recipe, data, overrides_of(set_, seed), out, device, reading, world))


def _trained(
    name: str | None,
    data: str | None,
    overrides: list[str],
    out: Path | None,
    device: str,
    reading: Reading,
    world: World,
) -> Run:
    from eans.lifecycle import start
    from eans.recipes.choosing import recipe_and_graph

    if world.size > 1:
        if out is None:
            raise UsageError("several ranks share a run folder, where a restart finds it: name one with --out")
        if world.restarted and (out / "recipe.toml").is_file():
            return _resumed(out, device, world)
    recipe, graph = recipe_and_graph(name, data, overrides, partial(load_graph, reading=reading))
    with (
        out_folder(out, recipe, graph) as folder,
        split_kept(graph, recipe.data.name, reading.split, folder) if world.first else contextlib.nullcontext(),
        watching(folder) as listener,
    ):
        return start(recipe, graph, folder, device, listener, world=world)


def _resumed(path: Path, device: str, world: World) -> Run:
    from eans.lifecycle import continue_run
    from eans.runs import RunFolder

    if RunFolder.open(path).is_complete:
        plain_console().print(f"{path} is complete already")
    with watching(path) as listener:
        return continue_run(path, device, listener, world=world)


@contextlib.contextmanager
def ranks(device: str) -> Iterator[World]:
    """The processes that ``torchrun`` started, of which the first one alone prints; this one without it."""
    from eans.distributed import joined

    with joined(device) as world, contextlib.ExitStack() as stack:
        if not world.first:
            nowhere = stack.enter_context(Path(os.devnull).open("w"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
            stack.enter_context(contextlib.redirect_stderr(nowhere))
        yield world


@contextlib.contextmanager
def watching(path: Path) -> Iterator[Listener]:
    """A listener that shows a run on standard output, and turns Ctrl-C and SIGTERM into an orderly stop with the state
    saved.
    """
    from eans.listener import Listener
    from eans.run_progress import TrainingDisplay
    from eans.runs import RunFolder

    def on_stop(count: int) -> None:
        if count > 1:
            raise KeyboardInterrupt  # asked twice: do not wait for the end of the step
        print(WORDS, file=sys.stderr, flush=True)

    stop = StopRequests(on_stop)
    try:
        with stop.caught(), TrainingDisplay(Listener(stop=lambda: stop.asked), sys.stdout) as display:
            yield display.listener()
    except (Interrupted, KeyboardInterrupt) as interruption:
        what = str(interruption) or "stopped at once"
        raise Interrupted(f"{what}; continue with: {RunFolder(path).resume_command}") from None


@contextlib.contextmanager
def out_folder(out: Path | None, recipe: Recipe, graph: KnowledgeGraph) -> Iterator[Path]:
    """The folder of a new run: `out`, or one under runs/ named after the recipe, which is then claimed at once."""
    if out is not None:
        yield out
        return
    name = Path(recipe.name).stem if recipe.name.endswith(".toml") else recipe.name.replace("/", "-")
    if recipe.name.startswith("default/"):
        name = f"{graph.name}-{name.removeprefix('default-')}"
    for suffix in ("", *(f"-{number}" for number in range(2, 10_000))):
        folder = Path("runs") / f"{name}-seed{recipe.train.seed}{suffix}"
        try:
            folder.mkdir(parents=True)
            break
        except FileExistsError:
            continue
        except OSError as error:
            raise RunError(f"cannot create run folder {folder}: {error.strerror}; name one with --out") from error
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()  # works only if the run never began, and the folder is empty
            folder.parent.rmdir()
