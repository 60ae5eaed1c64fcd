"""What all displays share: the console, and how a value outside a list is refused. Loads no PyTorch."""

from __future__ import annotations

import sys

from rich.console import Console

from eans.errors import UsageError, did_you_mean


def console() -> Console:
    """Standard output; in a pipe, wide enough that no table row is folded. Labels and paths are shown as they are."""
    return Console(width=None if sys.stdout.isatty() else 10_000, highlight=False, markup=False, emoji=False)


def choose(option: str, value: str, allowed: tuple[str, ...]) -> str:
    """`value` if it is allowed; otherwise an error that lists what is."""
    if value not in allowed:
        raise UsageError(f"{option} '{value}' is not one of {', '.join(allowed)}{did_you_mean(value, allowed)}")
    return value
