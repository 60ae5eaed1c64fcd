"""What all displays share: the console, bars for rankings, how a value outside a list is refused. Loads no PyTorch."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from eans.errors import UsageError, did_you_mean


def console() -> Console:
    """Standard output; in a pipe, wide enough that no table row is folded. Labels and paths are shown as they are."""
    return Console(width=None if sys.stdout.isatty() else 10_000, highlight=False, markup=False, emoji=False)


def choose(option: str, value: str, allowed: tuple[str, ...]) -> str:
    """`value` if it is allowed; otherwise an error that lists what is."""
    if value not in allowed:
        raise UsageError(f"{option} '{value}' is not one of {', '.join(allowed)}{did_you_mean(value, allowed)}")
    return value


@contextlib.contextmanager
def ranking_bars() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar per split on standard error, so that the result can be piped: hears (split, done, in all)."""
    bar = Progress(
        TextColumn("ranking {task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        disable=not sys.stderr.isatty(),
        console=Console(stderr=True),
        transient=True,
    )
    tasks: dict[str, TaskID] = {}

    def report(split: str, done: int, total: int) -> None:
        if split not in tasks:
            tasks[split] = bar.add_task(split, total=total)
        bar.update(tasks[split], completed=done)

    with bar:
        yield report
