"""What the commands show: tables, progress bars on a terminal, plain lines in a pipe."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from eans import data, recipes
from eans.api import Listener, Run, resume, start
from eans.errors import Interrupted, RunError, UsageError
from eans.evaluation import HITS, TIES, Ties
from eans.graph import RELATION, SIDES, SPLITS, KnowledgeGraph, Split
from eans.prediction import Known, Predictions
from eans.recipes import Recipe
from eans.recipes.build import resolve
from eans.runs import RunFolder
from eans.screen import choose, console, ranking_bars
from eans.stopping import WORDS, StopRequests
from eans.training import Trainer

MOST_RELATIONS = 20
METRICS = ("mr", "mrr", *(f"hits@{k}" for k in HITS))


class TrainingDisplay:
    """Shows a run while it trains: a bar with loss, speed and time left, or a plain line now and then."""

    def __init__(self) -> None:
        self.console = console()
        self.live = sys.stdout.isatty()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.live,
        )
        self.tasks: dict[str, TaskID] = {}
        self.stop = StopRequests(self._on_stop)
        self.steps = 0
        self.printed = 0

    def listener(self) -> Listener:
        return Listener(self.on_start, self.on_log, self.on_tick, self.on_ranking, lambda: self.stop.asked)

    def _task(self, name: str, total: int | None) -> TaskID:
        if name not in self.tasks:
            self.tasks[name] = self.bar.add_task(name, total=total, note="")
        return self.tasks[name]

    def on_start(self, recipe: Recipe, graph: KnowledgeGraph, trainer: Trainer) -> None:
        self._end_preparing()
        self.steps = trainer.schedule.steps
        weights = sum(parameter.numel() for parameter in trainer.model.parameters())
        model, sampler, section = recipe.model, recipe.sampler, recipe.train
        self.console.print(repr(graph), soft_wrap=True)
        negatives = f"{sampler.name} negatives n={trainer.sampler.negatives}"
        self.console.print(
            f"{model.name} d={model.dim} ({weights:,} parameters), {negatives}, {recipe.loss.name} loss,"
            f" b={section.batch_size}, {self.steps:,} steps, seed {section.seed}, {trainer.device}",
            soft_wrap=True,
        )
        if trainer.completed:
            self.console.print(f"resuming at step {trainer.completed:,}")
        if self.live:
            self.bar.update(self._task("training", self.steps), completed=trainer.completed)

    def _end_preparing(self) -> None:
        if "preparing" in self.tasks:
            self.bar.remove_task(self.tasks.pop("preparing"))

    def on_tick(self, step: int) -> None:
        if self.live:
            self.bar.update(self._task("training", self.steps), completed=step)

    def on_log(self, record: dict[str, Any]) -> None:
        if "valid" in record:
            both = record["valid"]["both"]
            self.console.print(f"step {record['step']:,}: valid MRR {both['mrr']:.4f}, Hits@10 {both['hits@10']:.4f}")
            return
        note = f"loss {record['loss']:.4f}  {record['triples_per_second']:,.0f} triples/s"
        if self.live:
            self.bar.update(self._task("training", self.steps), note=note)
        # In a pipe: about twenty lines, however long the run.
        elif record["step"] - self.printed >= self.steps / 20 or record["step"] == self.steps:
            left = (self.steps - record["step"]) * record["seconds"] / record["step"]
            self.console.print(f"step {record['step']:,}/{self.steps:,}  {note}  {left:,.0f} s left", soft_wrap=True)
            self.printed = record["step"]

    def on_ranking(self, split: str, done: int, total: int) -> None:
        if self.live:
            self.bar.update(self._task(f"ranking {split}", total), completed=done)

    def _on_stop(self, count: int) -> None:
        if count > 1:
            raise KeyboardInterrupt  # asked twice: do not wait for the end of the step
        print(WORDS, file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def watching(self, path: Path) -> Iterator[None]:
        """Show the bar; turn Ctrl-C and SIGTERM into an orderly stop with the state saved."""
        try:
            with self.stop.caught(), self.bar:
                if self.live:
                    self._task("preparing", None)  # samplers may take a while to make what they draw from
                try:
                    yield
                finally:
                    self._end_preparing()
        except (Interrupted, KeyboardInterrupt) as interruption:
            what = str(interruption) or "stopped at once"
            raise Interrupted(f"{what}; continue with: {RunFolder(path).resume_command}") from None


def train_with_display(
    recipe_name: str | None, dataset: str | None, out: Path | None, device: str, overrides: list[str]
) -> None:
    """`eans train`."""
    if recipe_name is None:
        dataset = dataset or recipes.load("default", overrides).data.name
        graph = load_graph(dataset)
        recipe = recipes.load(recipes.default_for(graph.source or graph.name), overrides, dataset or None)
    else:
        recipe = recipes.load(recipe_name, overrides, dataset)
        graph = load_graph(recipe.data.name)
    recipe = resolve(recipe, graph)
    display = TrainingDisplay()
    with out_folder(out, recipe, graph) as folder, display.watching(folder):
        run = start(recipe, graph, folder, device, display.listener())
    show_run(run)


def resume_with_display(path: Path, device: str) -> None:
    """`eans train --resume`."""
    complete = RunFolder.open(path).is_complete
    display = TrainingDisplay()
    if complete:
        display.console.print(f"{path} is complete already")
    with display.watching(path):
        run = resume(path, device, display.listener())
    show_run(run)


def load_graph(name: str) -> KnowledgeGraph:
    """The graph behind a dataset name or folder (the bundled one for an empty name), with a bar if it is downloaded."""
    with download_bar() as report:
        return data.load(name or data.bundled_name(), progress=report)


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


def show_run(run: Run) -> None:
    """The result of a finished run."""
    screen = console()
    facts = run.metrics["training"]
    screen.print(f"trained {facts['steps']:,} steps in {facts['seconds']:,.1f} s on {facts['device']}")
    splits: dict[str, Any] = {split: run.metrics[split] for split in ("valid", "test") if split in run.metrics}
    if splits:
        show_metrics(splits, run.metrics["protocol"])
    else:
        screen.print("not evaluated: the graph has neither valid nor test triples")
    screen.print(f"run folder: {run.folder}", soft_wrap=True)


def show_metrics(splits: dict[str, Any], protocol: dict[str, Any]) -> None:
    """A table of metrics by split and side, and the protocol under it."""
    screen = console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("split", "side"):
        table.add_column(name)
    for name in METRICS:
        table.add_column("Hits@" + name[5:] if name.startswith("hits") else name.upper(), justify="right")
    for split, metrics in splits.items():
        for side in ("both", *SIDES):
            values = metrics[side]
            numbers = [f"{values[name]:.1f}" if name == "mr" else f"{values[name]:.4f}" for name in METRICS]
            table.add_row(split if side == "both" else "", side, *numbers)
    screen.print(table)
    screen.print(
        f"filtered against {'+'.join(protocol['filtered_against'])}, {protocol['candidates']} as candidates,"
        f" {protocol['ties']} ties, unseen entities {protocol['unseen_entities']}",
        soft_wrap=True,
    )


def evaluate_with_display(path: Path, split: str, ties: str, as_json: bool, device: str) -> None:
    """`eans evaluate`."""
    choose("--split", split, SPLITS)
    choose("--ties", ties, TIES)
    run = Run.load(path, device)
    if not len(run.graph.split(cast(Split, split))):
        raise UsageError(f"graph '{run.graph.name}' has no {split} triples")
    with ranking_bars() as report:
        metrics = run.evaluate(cast(Split, split), cast(Ties, ties), partial(report, split))
    if as_json:
        print(json.dumps(metrics, indent=2))
    else:
        show_metrics({split: metrics[split]}, metrics["protocol"])


def predict_with_display(
    path: Path, given: dict[str, str | None], k: int, known: str, format_: str, device: str
) -> None:
    """`eans predict`."""
    choose("--known", known, ("filter", "mark"))
    choose("--format", format_, ("table", "csv", "json"))
    predictions = Run.load(path, device).predict(**given, k=k, known=cast(Known, known))
    if format_ == "csv":
        print(predictions.to_csv(), end="")
    elif format_ == "json":
        print(predictions.to_json())
    else:
        show_predictions(predictions, known == "mark")


def show_predictions(predictions: Predictions, with_known: bool) -> None:
    """Predictions as a table, best first."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = ["head", "relation", "tail", "score", *(["known"] if with_known else [])]
    table.add_column("rank", justify="right")
    for name in columns:
        table.add_column(name, justify="right" if name == "score" else "left", overflow="fold")
    for position, row in enumerate(predictions, 1):
        cells = [
            row.head,
            row.relation,
            row.tail,
            f"{row.score:.3f}",
            *(["yes" if row.known else ""] if with_known else []),
        ]
        table.add_row(str(position), *cells)
    console().print(table)


def show_datasets() -> None:
    """`eans data list`."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("name", "entities", "relations", "train", "valid", "test", "found in"):
        table.add_column(name, justify="right" if name in ("entities", "relations", *SPLITS) else "left", no_wrap=True)
    for dataset in data.datasets():
        facts = data.info(dataset.name)
        sizes = facts.sizes
        numbers = [sizes.entities, sizes.relations, sizes.train, sizes.valid, sizes.test]
        table.add_row(dataset.name, *(f"{n:,}" for n in numbers), facts.found_in or "not here yet")
    screen = console()
    screen.print(table)
    for dataset in data.datasets():
        screen.print(f"\n{dataset.name}: {dataset.description}")


def show_dataset(name: str) -> None:
    """`eans data info`."""
    screen = console()
    graph = load_graph(name)
    screen.print(repr(graph), soft_wrap=True)
    screen.print(f"entities that never occur in train: {graph.unseen_entities():,}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("relation")
    for split in SPLITS:
        table.add_column(split, justify="right")
    counts = {split: torch.bincount(graph.split(split)[:, RELATION], minlength=graph.num_relations) for split in SPLITS}
    for relation in counts["train"].argsort(descending=True, stable=True).tolist()[:MOST_RELATIONS]:
        table.add_row(graph.relations[relation], *(f"{int(counts[split][relation]):,}" for split in SPLITS))
    screen.print(table)
    if graph.num_relations > MOST_RELATIONS:
        screen.print(f"and {graph.num_relations - MOST_RELATIONS} relations more")
    for split in SPLITS:
        screen.print(f"sha256 {split}: {graph.sha256[split]}")
    if data.is_registered(name):
        facts = data.info(name)
        screen.print(f"folder: {facts.folder}", soft_wrap=True)
        screen.print(f"licence: {facts.dataset.licence}", soft_wrap=True)


@contextlib.contextmanager
def download_bar() -> Iterator[Any]:
    """A progress bar per file on a terminal; nothing in a pipe."""
    bar = Progress(
        TextColumn("downloading {task.description}"),
        BarColumn(),
        disable=not sys.stderr.isatty(),
        console=Console(stderr=True),
    )
    tasks: dict[str, TaskID] = {}

    def report(file: str, done: int, total: int) -> None:
        if file not in tasks:
            tasks[file] = bar.add_task(file, total=total or None)
        bar.update(tasks[file], completed=done)

    with bar:
        yield report


def fetch_dataset(name: str) -> None:
    """`eans data get`."""
    with download_bar() as report:
        print(data.get(name, progress=report))


def show_recipes() -> None:
    """`eans recipes`."""
    for name in recipes.names():
        dataset = name.split("/")[0]
        print(f"{name}{'  (default)' if name == recipes.default_for(dataset) else ''}")


def show_keys() -> None:
    """`eans recipes keys`."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("key", "default", "meaning"):
        table.add_column(name)
    for key in recipes.all_keys():
        section, _, name = key.partition(".")
        default = getattr(Recipe(), section)
        field = type(default).model_fields[name]
        table.add_row(key, json.dumps(getattr(default, name)), field.description or "")
    console().print(table)
