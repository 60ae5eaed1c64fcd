"""``eans predict --queries``: a table of queries to a table of answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from eans.errors import UsageError
from eans.progress import plain_console

STREAMS = {"table": "csv", "csv": "csv", "json": "jsonl"}
QueriesOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Many queries: a table with columns head, relation and tail, in each row one of them empty. CSV, TSV, JSON"
        " lines or Parquet by its ending; - for standard input.",
    ),
]
OutOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Where the answers to --queries go. Default: -, standard output, as CSV."),
]
SkipOption = Annotated[
    bool, typer.Option("--skip-unknown", help="Leave out --queries with unknown labels, and count them.")
]


def alone(reason: str, **options: object) -> None:
    """Raise for options that do not go with the others."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"--{name.replace('_', '-')} cannot be given here: {reason}")


def predict_table(
    run: Path, device: str, queries: str, out: str | None, skip_unknown: bool, format: str, **options: Any
) -> None:
    """Answer a table of queries, and say on standard error how many there were if they go to standard output."""
    from eans.batch_prediction import predict_many
    from eans.run import Run
    from eans.streams import typed
    from eans.table_files import format_of

    target = "-" if out is None else out
    if target != "-":
        format_of(Path(target))  # before the run is loaded
        if format != "table":
            raise UsageError("--format is that of standard output; the ending of --out says what the file is")
    trained = Run.load(run, device)
    options |= {"out": target, "skip_unknown": skip_unknown, "format": STREAMS[format]}
    found = predict_many(trained.model, trained.graph, typed(queries) or "", **options)
    text = f"{found.answers:,} answers to {found.queries:,} queries"
    if found.skipped:
        text += f"; {found.skipped:,} left out, the first: {found.first_skipped}"
    if target != "-":
        plain_console().print(f"{target}: {text}", soft_wrap=True)
    elif found.skipped:
        typer.echo(f"eans: {text}", err=True)
