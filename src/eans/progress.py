"""How work that takes long shows that it goes on: a bar on a terminal or in a notebook, otherwise a line now and then.

The library and the command line share `Display`; `eans.run_progress` says with it what there is to say of a run.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from types import TracebackType
from typing import IO, TYPE_CHECKING

from eans.arguments import flag
from eans.errors import EansError
from eans.phases import told_to

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.table import Table

INTERVAL = 30.0  # seconds between two lines at most
# Of the interval: when the first line about something comes, and how often it is looked whether one is due.
FIRST, LOOK = 1 / 15, 1 / 60

__all__ = ["Display", "Report", "Told", "duration", "of_one", "one_of", "plain_console", "plain_table", "shown"]

Report = Callable[[str, int, int], None]
"""Called as ``report(name, done, total)``."""
Told = Callable[[int, int], None]
"""Called as ``told(done, total)``."""


def duration(seconds: float | None) -> str:
    """``3.1 s``, ``99 s``, ``12 min``, ``3 h 05 min``; a dash for None."""
    if seconds is None:
        return "-"
    if seconds < 180:
        return f"{seconds:.{1 if seconds < 10 else 0}f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60:,} h {minutes % 60:02d} min"


def plain_console(stream: IO[str] | None = None) -> Console:
    """A console on a stream, standard output unless told otherwise: labels and paths are shown as they are.

    In a pipe it is wide enough that no table row is folded.
    """
    from rich.console import Console

    width = None if _is_terminal(stream or sys.stdout) else 10_000
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def plain_table(*columns: str, right: Collection[str] = ()) -> Table:
    """A table without lines; the columns in `right` are flush right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left")
    return table


def _is_terminal(stream: IO[str] | None) -> bool:
    """Without standard streams, or with closed ones, there is none."""
    return stream is not None and not stream.closed and stream.isatty()


@dataclass
class Task:
    """Something that is counted.

    Attributes:
        name: what it is called.
        total, done: how much there is, None where nobody knows, and how much of it is done.
        note: what else there is to say about it.
        steps: it counts steps, which lines show as they are; anything else is a percentage there.
        since, first: from when on speed is measured, and what had been done by then.
    """

    name: str
    total: int | None
    done: int
    note: str
    steps: bool
    since: float
    first: int

    def line(self, now: float, with_rest: bool) -> str:
        """The task in a few words, with the time that the rest takes if that is known and wanted."""
        if self.total is None:
            return "  ".join([f"{self.name} {self.done:,}", *([self.note] if self.note else [])])
        done = f"step {self.done:,}/{self.total:,}" if self.steps else f"{self.name} {100 * self.done // self.total} %"
        parts = [done, *([self.note] if self.note else [])]
        if with_rest and self.first < self.done < self.total:
            rest = (self.total - self.done) * (now - self.since) / (self.done - self.first)
            parts.append(f"{duration(rest)} left")
        return "  ".join(parts)


class Display:
    """Shows tasks and phases while they last; a context, to be left when all is done.

    Where there is no bar, a thread writes the lines, so that one comes even while a single step takes minutes.

    Args:
        stream: where to; None: standard error.
        interval: seconds between two lines at most. The first one about a task or a phase comes after a fifteenth of
            it, so what is over sooner leaves no line.
        keep: tasks whose bars stay when they are done.
    """

    def __init__(self, stream: IO[str] | None = None, interval: float = INTERVAL, keep: tuple[str, ...] = ()) -> None:
        self.stream: IO[str] | None = stream if stream is not None else sys.stderr
        self.interval = interval
        self.keep = keep
        self.tasks: dict[str, Task] = {}
        self.current_phase = ""
        self.live = self._has_bars()
        self._mentioned = {""}
        self._due = time.monotonic() + interval
        # Since when, for what is under way. A phase may consist of many short ones, such as of compiling each kernel,
        # and counts from the first that came since a task advanced.
        self._since: dict[str, float] = {}
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: OSError | EansError | None = None
        self._bar: Progress | None = None
        self._bars: dict[str, TaskID] = {}

    def _has_bars(self) -> bool:
        """Is there a terminal that can redraw a line, or a notebook that has what rich needs?"""
        if self.stream is None:  # a program without standard streams
            return False
        console = plain_console(self.stream)
        if console.is_jupyter:
            return find_spec("ipywidgets") is not None
        return _is_terminal(self.stream) and not console.is_dumb_terminal

    def __enter__(self) -> Display:
        if self.live:
            self._bar = self._make_bar()
            self._bar.start()
        else:
            self._thread = threading.Thread(target=self._write_lines, name="eans-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._bar is not None:
            for name in [name for name in self._bars if name not in self.keep]:
                self._remove_bar(name)
            self._bar.stop()

    def _make_bar(self) -> Progress:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=plain_console(self.stream),
            # What else is printed goes above the bar, unless it goes elsewhere.
            redirect_stdout=_is_terminal(sys.stdout),
            redirect_stderr=_is_terminal(sys.stderr),
        )

    def say(self, line: str) -> None:
        """Write a line, above the bars if there are some."""
        with self._lock:
            if self._bar is not None:
                self._bar.console.print(line, soft_wrap=True)
            elif self.stream is not None:
                self._write(self.stream, line)

    def _write(self, stream: IO[str], line: str) -> None:
        """Where the reader has gone, or the stream was closed, nothing more is written, and work goes on."""
        try:
            try:
                stream.write(line + "\n")
            except UnicodeEncodeError:
                stream.write(line.encode("ascii", "backslashreplace").decode() + "\n")
            stream.flush()
        except (BrokenPipeError, ValueError):
            self.stream = None

    def advance(self, name: str, done: int, total: int | None, note: str = "", steps: bool = False) -> None:
        """Say how far a task is; it begins with the first such call and ends when all is done."""
        if self._failure is not None:
            raise self._failure
        now = time.monotonic()
        with self._lock:
            if name not in self.tasks:
                self._begin(Task(name, total, done, note, steps, now, done), now)
            self._since = {key: since for key, since in self._since.items() if key in self.tasks}
            task = self.tasks[name]
            task.done, task.total, task.note = done, total, note
            if self._bar is not None:
                self._bar.update(self._bars[name], completed=done, total=total, note=note)
            if total is not None and done >= total:
                self._end(name)

    def time_from_here(self, name: str) -> None:
        """Measure the speed of a task from now on: what was done so far took longer, or came from elsewhere."""
        task = self.tasks[name]
        task.since, task.first = time.monotonic(), task.done

    def _begin(self, task: Task, now: float) -> None:
        self.tasks[task.name] = task
        self._since[task.name] = now
        if self._bar is not None:
            if task.name not in self._bars:
                description = self.current_phase or task.name
                self._bars[task.name] = self._bar.add_task(description, total=task.total, note=task.note)
            if "" in self._bars:
                self._remove_bar("")

    def _end(self, name: str) -> None:
        del self.tasks[name]
        self._since.pop(name, None)
        if self._bar is not None and name not in self.keep:
            self._remove_bar(name)

    def _remove_bar(self, name: str) -> None:
        if self._bar is not None:
            self._bar.remove_task(self._bars.pop(name))

    def phase(self, name: str) -> None:
        """Say by what name the present work goes; ``""`` for none. See `eans.phases`."""
        now = time.monotonic()
        with self._lock:
            self.current_phase = name
            self._since.setdefault(name, now)
            if self._bar is None:
                return
            if self.tasks:
                last = next(reversed(self.tasks))
                self._bar.update(self._bars[last], description=name or last)
            elif name and "" not in self._bars:
                self._bars[""] = self._bar.add_task(name, total=None, note="")
            elif name:
                self._bar.update(self._bars[""], description=name)
            elif "" in self._bars:
                self._remove_bar("")

    def mention(self, name: str) -> None:
        """No first line is needed about this task: others tell of it."""
        self._mentioned.add(name)

    def status(self) -> str:
        """What the next line says: the tasks that are under way, and the phase; empty where there is nothing."""
        now = time.monotonic()
        last = len(self.tasks) - 1
        parts = [task.line(now, place == last) for place, task in enumerate(self.tasks.values())]
        if self.current_phase:
            seconds = now - self._since.setdefault(self.current_phase, now)
            so_far = f", {duration(seconds)} so far" if seconds >= FIRST * self.interval else ""
            parts.append(self.current_phase + so_far)
        return "  ".join(parts)

    def _first_line(self, name: str) -> float:
        """When the first line about something is due: what lasts is named soon, and later when its turn comes."""
        return self._since.get(name, math.inf) + FIRST * self.interval

    def _write_lines(self) -> None:
        while not self._ended.wait(LOOK * self.interval):
            with self._lock:
                now = time.monotonic()
                active = {*self.tasks, self.current_phase}
                if now < min([self._due, *(self._first_line(name) for name in active - self._mentioned)]):
                    continue
                self._due = now + self.interval
                line = self.status()
                self._mentioned |= active
                try:
                    if line:
                        self.say(line)
                except (OSError, EansError) as error:  # raised where the work is done, and not here
                    self._failure = error
                    return


@contextmanager
def shown(progress: bool | Report, doing: str = "") -> Iterator[Report | None]:
    """What the argument `progress` of a function stands for: what to call as ``report(name, done, total)``, or None.

    True: a display of its own on standard error, as long as the context lasts; it says what is done, such as
    ``"ranking "``, before each name. False: nothing.
    """
    if callable(progress):
        yield progress
    elif not flag("progress", progress):
        yield None
    else:
        with Display() as display, told_to(display.phase):
            yield lambda name, done, total: display.advance(doing + name, done, total)


def of_one(progress: bool | Told) -> bool | Report:
    """For `shown`: an argument `progress` of a function that does one thing, and so has no name for it."""
    return (lambda _, done, total: progress(done, total)) if callable(progress) else progress


def one_of(report: Report | None, name: str) -> Told | None:
    """What to call as ``told(done, total)`` so that `report` is told about the task `name`."""
    return None if report is None else partial(report, name)
