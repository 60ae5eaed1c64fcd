"""``eans evaluate``."""

from __future__ import annotations

from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from eans.cli.graphs import warn
from eans.cli.options import DeviceOption, RunArgument, choose
from eans.cli.tables import show_metrics
from eans.errors import UsageError

if TYPE_CHECKING:
    from eans.evaluation import Ties
    from eans.graph import Split
    from eans.run import Run


def evaluate(
    run: RunArgument,
    split: Annotated[str | None, typer.Option(help="train, valid or test. Default: test.")] = None,
    test: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Rank the triples of this file (TSV, CSV, Parquet, JSON lines, ...) instead of a split.",
        ),
    ] = None,
    ties: Annotated[str, typer.Option(help="realistic, optimistic or pessimistic.")] = "realistic",
    json: Annotated[bool, typer.Option("--json", help="Print JSON: everything, also by relation.")] = False,
    device: DeviceOption = "auto",
) -> None:
    """Rank a split, or the triples of a file, with a trained model: filtered MR, MRR and Hits@k."""
    from eans.evaluation import TIES
    from eans.graph import SPLITS
    from eans.run import Run

    if test is not None and split is not None:
        raise UsageError("--test ranks a file instead of a split; give --test or --split, not both")
    chosen = cast("Split", choose("--split", split if split is not None else "test", SPLITS))
    choose("--ties", ties, TIES)
    trained = Run.load(run, device)
    if test is not None:
        trained = with_test_file(trained, test)
    if not len(trained.graph.split(chosen)):
        raise UsageError(f"graph '{trained.graph.name}' has no {chosen} triples")
    metrics = trained.evaluate(chosen, cast("Ties", ties))
    if test is not None:
        # The run's own test split is still filtered: it is not what the table calls test.
        metrics["protocol"] |= {"filtered_against": [*SPLITS, str(test)], "test_file": str(test)}
    if json:
        print(dumps(metrics, indent=2))
    else:
        show_metrics({chosen: metrics[chosen]}, metrics["protocol"])


def with_test_file(run: Run, file: Path) -> Run:
    """The run with the triples of a file in place of the test split, which stays known."""
    from eans.data import check_test, read_triples

    graph = run.graph.with_test(read_triples(file, run.graph, warn))
    for finding in check_test(graph, file):
        warn(finding)
    return replace(run, graph=graph)
