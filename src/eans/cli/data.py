"""``eans data``: datasets; `describe` is `eans.describe`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eans.cli.graphs import Reading, download_bar, load_graph, load_pytorch, with_reading
from eans.cli.options import (
    DeviceOption,
    SetOption,
    file_to_write,
    require_given,
)
from eans.cli.tables import plain_table
from eans.errors import UsageError
from eans.progress import plain_console

if TYPE_CHECKING:
    from eans.description import Plan

MOST_RELATIONS = 20
NOT_HERE = {"bundled": "", "download": "not here yet", "built": "not built yet"}
STANDARD_OUTPUT = Path("-")
JsonOption = Annotated[
    Path | None, typer.Option(help="Write all numbers to this file; - for standard output, instead of the tables.")
]
app = typer.Typer(no_args_is_help=True, help="Datasets: list them, look at one, describe one, fetch one.")


@app.command("list")
def show_all() -> None:
    """All registered datasets."""
    from eans.data import datasets, info

    numbers = ("entities", "relations", "train", "valid", "test")
    table = plain_table()
    for name in ("name", *numbers, "found in"):
        table.add_column(name, justify="right" if name in numbers else "left", no_wrap=True)
    for dataset in datasets():
        facts = info(dataset.name)
        sizes = [f"{getattr(facts.sizes, name):,}" for name in numbers]
        table.add_row(dataset.name, *sizes, facts.found_in or NOT_HERE[dataset.kind])
    console = plain_console()
    console.print(table)
    for dataset in datasets():
        console.print(f"\n{dataset.name}: {dataset.description}")


@app.command("info")
@with_reading()
def show_one(
    name: Annotated[str, typer.Argument(help="Dataset name, file or folder; - is standard input.")],
    *,
    reading: Reading,
) -> None:
    """Sizes, relations and origin of a dataset."""
    import torch

    from eans import data
    from eans.graph import RELATION, SPLITS

    require_given("the name of the dataset", name)
    console = plain_console()
    graph = load_graph(name, reading)
    console.print(repr(graph), soft_wrap=True)
    console.print(f"entities that never occur in train: {graph.unseen_entities():,}")
    table = plain_table("relation", *SPLITS, right=SPLITS)
    counts = {split: torch.bincount(graph.split(split)[:, RELATION], minlength=graph.num_relations) for split in SPLITS}
    for relation in counts["train"].argsort(descending=True, stable=True).tolist()[:MOST_RELATIONS]:
        table.add_row(graph.relations.shown(relation), *(f"{int(counts[split][relation]):,}" for split in SPLITS))
    console.print(table)
    if graph.num_relations > MOST_RELATIONS:
        console.print(f"and {graph.num_relations - MOST_RELATIONS} relations more")
    for split in SPLITS:
        console.print(f"sha256 {split}: {graph.sha256[split]}")
    if data.is_registered(name):
        facts = data.info(name)
        console.print(f"folder: {facts.folder}", soft_wrap=True)
        if facts.dataset.built_from:
            console.print(f"built from: {facts.dataset.built_from}", soft_wrap=True)
        console.print(f"licence: {facts.dataset.licence}", soft_wrap=True)


@app.command("get")
def fetch(name: Annotated[str, typer.Argument(help="Dataset name.")]) -> None:
    """Download or build a dataset if it is not on this machine; print its folder."""
    from eans.data import get

    with download_bar("checking the files") as report:
        print(get(name, progress=report))


@app.command()
@with_reading()
def describe(
    name: Annotated[str | None, typer.Argument(help="Dataset name, file or folder; - is standard input.")] = None,
    json: JsonOption = None,
    html: Annotated[Path | None, typer.Option(help="Write one HTML page with figures to this file.")] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate/--no-estimate", help="Measure what training takes on this machine.")
    ] = True,
    device: DeviceOption = "auto",
    plan: Annotated[
        bool, typer.Option("--plan", help="Say only what memory and time a recipe would take, part by part.")
    ] = False,
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="ENTITIES,RELATIONS,TRIPLES", help="With --plan, instead of a graph; such as 86M,14824,338M."
        ),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="With --plan: recipe name or file. Default: that of eans train.")
    ] = None,
    set_: SetOption = None,
    *,
    reading: Reading,
) -> None:
    """Describe a graph before training: degrees, relations, leakage, components, baselines, a recipe and its cost."""
    require_given("the name of the dataset", name)
    _check_plan(name, plan, {"--sizes": sizes, "--recipe": recipe, "--set": set_}, {"--html": html})
    targets = _targets(json, html)  # mistakes are told before the work, not after
    load_pytorch()
    from eans.data import Sizes
    from eans.description import Description, describe, plan_for
    from eans.description.planning import parse_sizes
    from eans.devices import choose_device
    from eans.files import atomic_write

    choose_device(device)
    source = load_graph(name, reading) if name is not None else parse_sizes(str(sizes))
    found: Description | Plan
    if plan or isinstance(source, Sizes):
        found = plan_for(source, recipe, set_ or (), estimate=estimate, device=device)
    else:
        found = describe(source, estimate=estimate, device=device)
    console = plain_console()
    if json == STANDARD_OUTPUT:
        print(found.to_json())
    else:
        found.show(console)
    for option, target in targets.items():
        text = found.html() if option == "--html" and isinstance(found, Description) else found.to_json() + "\n"
        atomic_write(target, text.encode())
        if json != STANDARD_OUTPUT:
            console.print(f"written: {target}", soft_wrap=True)


def _check_plan(name: str | None, plan: bool, of_plan: dict[str, object], of_description: dict[str, object]) -> None:
    """Options that go with --plan alone, or never with it; a graph or its sizes, and not both."""
    for option, value in (of_description if plan else of_plan).items():
        if value not in (None, []):
            raise UsageError(f"{option} {'cannot go' if plan else 'goes'} with --plan{'' if plan else ' alone'}")
    if (name is None) == (of_plan["--sizes"] is None):
        fault = (
            "the name of the dataset is missing" if name is None else f"'{name}' and --sizes both say how large it is"
        )
        raise UsageError(f"{fault}; give a dataset, a file or a folder{', or --sizes' if plan else ''}")


def _targets(json: Path | None, html: Path | None) -> dict[str, Path]:
    """The files to write, by option."""
    from eans.figures import require_matplotlib

    if html is not None:
        require_matplotlib()
        if html in (json, STANDARD_OUTPUT):
            fault = "needs the name of a file" if html == STANDARD_OUTPUT else "and --json name the same file"
            raise UsageError(f"--html {fault}; write for example --html graph.html")
    files = {"--json": None if json == STANDARD_OUTPUT else json, "--html": html}
    return {option: file_to_write(option, path) for option, path in files.items() if path is not None}
