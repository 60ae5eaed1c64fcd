"""``eans recipes``."""

from __future__ import annotations

from json import dumps
from typing import Annotated

import typer

from eans.cli.tables import plain_table
from eans.progress import plain_console

app = typer.Typer(help="Recipes: list them, show one, list the keys.")


@app.callback(invoke_without_command=True)
def show_all(context: typer.Context) -> None:
    """All recipes."""
    if context.invoked_subcommand is not None:
        return
    from eans.recipes import default_for, names

    for name in names():
        print(f"{name}{'  (default)' if name == default_for(name.split('/')[0]) else ''}")


@app.command("show")
def show_one(name: Annotated[str, typer.Argument(help="Recipe name or TOML file.")]) -> None:
    """A recipe as TOML, all defaults filled in."""
    from eans.recipes import load, to_toml

    typer.echo(to_toml(load(name)), nl=False)


@app.command("keys")
def show_keys() -> None:
    """Every key a recipe may set, with its default and meaning."""
    from eans.recipes import key_groups

    table = plain_table("key", "default", "meaning")
    for group in key_groups():
        table.add_section()
        if group.owners:
            table.add_row(group.owners, style="bold")
        for key in group.keys:
            table.add_row(key.key, dumps(key.default), key.help)
    plain_console().print(table)
