"""Write the generated pages of docs/reference: the keys of a recipe from the schema, the commands from the CLI.

Usage::

    python -m scripts.reference_pages            # writes the pages; `make docs` does it first
"""

from __future__ import annotations

import argparse
import html
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from eans.cli import app
from eans.files import atomic_write
from eans.recipes import key_groups

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
NOTICE = "<!-- Written by `python -m scripts.reference_pages`; do not edit. -->"

RECIPE_HEAD = f"""\
# Recipe keys

{NOTICE}

A recipe is a TOML file of these sections. On the command line a key is set by `--set section.key=value`; in Python,
`eans.train` takes the name after the dot (`dim=100`), or the whole key (`**{{"model.name": "rotate"}}`).
`eans recipes keys` prints this table, `eans recipes show RECIPE` what a recipe sets.
"""
SECTIONS = {
    "data": "The graph.",
    "model": "The model and its parameters; see [models](models.md).",
    "sampler": "The negatives; see [samplers](../explanation/samplers/README.md).",
    "loss": "The loss, and the terms that are added to it.",
    "train": "Length, learning rate, optimizer, validation and checkpoints.",
    "evaluation": "How ranks are computed.",
}
CLI_HEAD = f"""\
# Command line

{NOTICE}

Every command prints its help with `--help`. A mistake is one line on standard error that names the option, file or key
and the fix, and exit status 2.
"""


def cell(text: str) -> str:
    """A text in a cell of a table, where it must not end the cell or become markup."""
    return " ".join(text.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*").split())


def recipe_page() -> str:
    """For each section a table of the keys that it always has, and one of those that each name brings."""
    parts, last = [RECIPE_HEAD], ""
    for group in key_groups():
        section = group.keys[0].key.partition(".")[0]
        if section != last:
            parts.append(f"## `[{section}]`\n\n{SECTIONS[section]}\n")
            last = section
        if group.owners:
            key, names = group.owners.split(" ", 1)
            parts.append(f"With `{key}` {', '.join(f'`{name}`' for name in names.split(', '))}:\n")
        rows = [
            f"| `{key.key.partition('.')[2]}` | `{json.dumps(key.default)}` | {cell(key.help)} |" for key in group.keys
        ]
        parts.append("\n".join(["| key | default | meaning |", "|---|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def hidden(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The names of the commands that help does not show, each with those of its groups."""
    for name, command in group.commands.items():
        if command.hidden:
            yield (*path, name)
        elif hasattr(command, "commands"):
            yield from hidden(command, (*path, name))


def cli_page() -> str:
    """What ``typer utils docs`` makes of the commands, without those that are hidden."""
    command = [sys.executable, "-m", "typer", "eans.cli", "utils", "docs", "--name", "eans"]
    written = html.unescape(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for words in hidden(get_command(app)):
        name = " ".join(words)
        listed, section = rf"^\* `{words[-1]}`:[^\n]*\n", rf"^##+ `eans {name}`\n.*?(?=^## |^### |\Z)"
        written = re.sub(f"{listed}|{section}", "", written, flags=re.MULTILINE | re.DOTALL)
    return CLI_HEAD + written.removeprefix("# `eans`\n").rstrip() + "\n"


PAGES = {"recipe-keys.md": recipe_page, "cli.md": cli_page}


def main() -> None:
    """Write all pages."""
    argparse.ArgumentParser(description=main.__doc__).parse_args()
    for name, render in PAGES.items():
        atomic_write(REFERENCE / name, render().encode())
        print(f"wrote {REFERENCE / name}")


if __name__ == "__main__":
    main()
