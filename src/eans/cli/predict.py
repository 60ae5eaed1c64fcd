"""``eans predict``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, cast

import typer

from eans.cli.answers import OutOption, QueriesOption, SkipOption, alone, predict_table
from eans.cli.graphs import warn
from eans.cli.options import DeviceOption, LabelsOption, RunArgument, choose
from eans.cli.tables import plain_table
from eans.progress import plain_console
from eans.streams import typed

if TYPE_CHECKING:
    from eans.prediction import Known, Predictions


def predict(
    run: RunArgument,
    head: Annotated[str | None, typer.Option(help="Head entity.")] = None,
    relation: Annotated[str | None, typer.Option(help="Relation.")] = None,
    tail: Annotated[str | None, typer.Option(help="Tail entity.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many.")] = 10,
    known: Annotated[str, typer.Option(help="filter: leave known triples out. mark: keep and mark them.")] = "filter",
    format: Annotated[str, typer.Option(help="table, csv or json.")] = "table",
    queries: QueriesOption = None,
    out: OutOption = None,
    skip_unknown: SkipOption = False,
    labels: LabelsOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Complete a triple: give two of --head, --relation, --tail. Or many of them: give a table, --queries."""
    from eans.data.names import name_graph
    from eans.run import Run

    choose("--known", known, ("filter", "mark"))
    choose("--format", format, ("table", "csv", "json"))
    if queries is not None:
        alone("--queries has the queries", head=head, relation=relation, tail=tail)
        alone("answers to --queries have labels and no names", labels=labels)
        predict_table(run, device, queries, out, skip_unknown, format, k=k, known=cast("Known", known))
        return
    alone("it belongs to --queries", out=out, skip_unknown=skip_unknown or None)
    given = {"head": typed(head), "relation": typed(relation), "tail": typed(tail)}
    trained = Run.load(run, device)
    if labels:
        trained = replace(trained, graph=name_graph(trained.graph, labels, warn))
    predictions = trained.predict(**given, k=k, known=cast("Known", known))
    if format == "csv":
        print(predictions.to_csv(), end="")
    elif format == "json":
        print(predictions.to_json())
    else:
        show_predictions(predictions, known == "mark")


def show_predictions(predictions: Predictions, with_known: bool) -> None:
    """Predictions as a table, best first."""
    from eans.vocabulary import readable

    table = plain_table("rank", right=("rank",))
    for name in ("head", "relation", "tail", "score", *(["known"] if with_known else [])):
        table.add_column(name, justify="right" if name == "score" else "left", overflow="fold")
    for position, row in enumerate(predictions, 1):
        known = ["yes" if row.known else ""] if with_known else []
        triple = (readable(label, predictions.readable.get(label)) for label in row[:3])
        table.add_row(str(position), *triple, f"{row.score:.3f}", *known)
    plain_console().print(table)
