"""Commands that were part of the package once: the paper's experiments."""

from __future__ import annotations

import shlex

import typer

from eans.errors import UsageError

# Of a command that takes whatever the one of the paper takes.
ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True}


def reproduce(context: typer.Context) -> None:
    """The paper's experiments have left the package."""
    raise UsageError(hint(["reproduce", *context.args]))


def hint(arguments: list[str]) -> str:
    """One line that says where they are."""
    command = shlex.join(["python", "-m", "paper", *arguments])
    return f"the paper's experiments are run from a checkout of the repository: {command}"
