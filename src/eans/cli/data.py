"""``eans data``: datasets."""

from __future__ import annotations

from typing import Annotated

import typer

from eans.cli.graphs import Reading, download_bar, load_graph
from eans.cli.options import ColumnsOption, LiteralsOption, QueryOption, SplitOption, StrictOption, require_given
from eans.cli.tables import plain_table
from eans.progress import plain_console

MOST_RELATIONS = 20
NOT_HERE = {"bundled": "", "download": "not here yet", "built": "not built yet"}
app = typer.Typer(no_args_is_help=True, help="Datasets: list them, look at one, fetch one.")


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
def show_one(
    name: Annotated[str, typer.Argument(help="Dataset name, file or folder; - is standard input.")],
    strict: StrictOption = False,
    split: SplitOption = None,
    columns: ColumnsOption = None,
    query: QueryOption = None,
    literals: LiteralsOption = False,
) -> None:
    """Sizes, relations and origin of a dataset."""
    import torch

    from eans import data
    from eans.graph import RELATION, SPLITS

    require_given("the name of the dataset", name)
    console = plain_console()
    graph = load_graph(name, strict, split, Reading(columns, query, literals))
    console.print(repr(graph), soft_wrap=True)
    console.print(f"entities that never occur in train: {graph.unseen_entities():,}")
    table = plain_table("relation", *SPLITS, right=SPLITS)
    counts = {split: torch.bincount(graph.split(split)[:, RELATION], minlength=graph.num_relations) for split in SPLITS}
    for relation in counts["train"].argsort(descending=True, stable=True).tolist()[:MOST_RELATIONS]:
        table.add_row(graph.relations[relation], *(f"{int(counts[split][relation]):,}" for split in SPLITS))
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

    with download_bar() as report:
        print(get(name, progress=report))
