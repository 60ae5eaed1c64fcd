"""``eans compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eans.cli.graphs import Reading, load_graph, with_reading
from eans.cli.options import (
    DataOption,
    DeviceOption,
    SetOption,
    require_given,
)
from eans.progress import plain_console


@with_reading("strict", "split", "columns", "query", "literals")
def compare(
    methods: Annotated[
        list[str], typer.Argument(metavar="METHOD", help="RECIPE[,KEY=VALUE...], such as rotate/eans+adv.")
    ],
    data: DataOption = None,
    out: Annotated[Path, typer.Option(help="Folder for records, tables and the figure.")] = Path("comparison"),
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method.")] = 5,
    budget: Annotated[str | None, typer.Option(help="Training time of each run, such as 90s or 2m.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps of each run, instead of --budget.")] = None,
    test: Annotated[bool, typer.Option("--test", help="Rank test instead of valid, once all is chosen.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 1,
    set_: SetOption = None,
    device: DeviceOption = "auto",
    *,
    reading: Reading,
) -> None:
    """Compare methods on a graph: equal budgets, several seeds, differences with 95 % confidence intervals."""
    from eans.comparison import compare as compare_methods

    require_given("--data", data)
    graph = load_graph(data or "", reading)
    found = compare_methods(
        graph, methods, out=out, seeds=seeds, budget=budget, steps=steps, test=test, device=device, workers=workers,
        overrides=set_ or [],
    )  # fmt: skip
    console = plain_console()
    for part in (found.table(), found.differences(), found.text()):
        console.print(f"{part}\n", soft_wrap=True, highlight=False)
    console.print(f"records, tables and figure: {out}", soft_wrap=True)
