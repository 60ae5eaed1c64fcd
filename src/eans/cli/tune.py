"""``eans tune``, which is also ``eans train --budget``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from eans.cli.graphs import Reading, load_graph, split_kept, with_reading
from eans.cli.options import (
    DataOption,
    DeviceOption,
    require_given,
)
from eans.cli.tables import show_run
from eans.progress import plain_console
from eans.streams import outlive_readers

BudgetOption = Annotated[
    str, typer.Option(help="Time for the search, such as 90s, 10m or 2h; the run that it ends with is included.")
]


@with_reading()
def tune(
    budget: BudgetOption = "10m",
    data: DataOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the best run and of the search.")] = None,
    methods: Annotated[
        list[str] | None, typer.Option("--method", metavar="METHOD", help="Try this method of the space; repeatable.")
    ] = None,
    space: Annotated[
        Path | None, typer.Option(help="TOML file with methods and ranges; `eans tune --show-space` prints one.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train the winner with so many seeds.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of the search.")] = 0,
    show_space: Annotated[
        bool, typer.Option("--show-space", help="Print the space that is searched, and exit.")
    ] = False,
    workers: Annotated[
        str, typer.Option(metavar="N", help="Trials at a time, each in a process of its own; auto: as many as pay.")
    ] = "auto",
    device: DeviceOption = "auto",
    *,
    reading: Reading,
) -> None:
    """Search for the best model in a given time: whole methods, short runs first, the best of them longer."""
    from eans.tuning.space import space_text

    if show_space:
        plain_console().print(space_text(space), soft_wrap=True, end="")
        return
    search(budget, data, out, methods, space, seeds, seed, workers, device, reading)


def search(
    budget: str,
    data: str | None,
    out: Path | None,
    methods: list[str] | None,
    space: Path | None,
    seeds: int,
    seed: int,
    workers: str,
    device: str,
    reading: Reading,
) -> None:
    """What both commands do."""
    from eans.costs import seconds_of
    from eans.listener import Listener
    from eans.progress import Display
    from eans.runs import STUDY
    from eans.signals import WORDS, StopRequests
    from eans.tuning.report import REPORT
    from eans.tuning.tuning import search_shown

    outlive_readers()
    require_given("--data", data)
    seconds = seconds_of(budget)
    graph = load_graph(data or "", reading)
    folder = out or Path("runs") / f"{Path(graph.name).stem}-tuned"

    def on_stop(count: int) -> None:
        if count > 1:
            raise KeyboardInterrupt
        print(WORDS, file=sys.stderr, flush=True)

    stop = StopRequests(on_stop)
    with stop.caught(), split_kept(graph, data or "", reading.split, folder):
        run = search_shown(
            Display(sys.stdout), graph, seconds, folder, methods, space, seeds, seed, device, workers, True,
            Listener(stop=lambda: stop.asked),
        )  # fmt: skip
    show_run(run)
    plain_console().print(f"search: {folder / STUDY / REPORT}", soft_wrap=True)
