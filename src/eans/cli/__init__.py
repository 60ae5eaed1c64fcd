"""The ``eans`` command. Each command is a module: it parses, makes one library call and prints.

Heavy imports happen inside the commands, so that ``eans --help`` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from eans._version import __version__
from eans.cli import (
    compare,
    data,
    evaluate,
    export,
    inspect,
    moved,
    predict,
    recipes,
    report,
    similar,
    train,
    tune,
    verify,
)
from eans.commands import execute

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Knowledge-graph embeddings with entity-aware negative sampling.",
)


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        typer.echo(f"eans {__version__}")
        raise typer.Exit


commands = (train.train, tune.tune, compare.compare, evaluate.evaluate, predict.predict, similar.similar, export.export)
for command in (*commands, verify.verify):
    app.command()(command)
app.command(context_settings=moved.ANYTHING)(report.report)
app.command(hidden=True, add_help_option=False, context_settings=moved.ANYTHING)(moved.reproduce)
app.add_typer(data.app, name="data")
app.add_typer(recipes.app, name="recipes")
app.add_typer(inspect.app, name="inspect")


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `eans` command."""
    execute(app, "eans", arguments)
