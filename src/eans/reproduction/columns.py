"""Tables for people, as strings, and the columns that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from eans.reproduction import labels
from eans.reproduction.labels import NUMBERS
from eans.reproduction.report import Outcome
from eans.wording import duration

QUOTED, MIXED = "numbers that the paper takes from earlier work", "means over seeds whose recipes differ"
TEXT_COLUMNS = ("hardware", "source")


class Text(NamedTuple):
    """A table of strings; the first columns, which say what was run, stand flush left.

    Attributes:
        header: one heading per column.
        rows: as many strings each.
        labels: how many columns say what was run.
        notes: lines to be read with it.
    """

    header: list[str]
    rows: list[list[str]]
    labels: int
    notes: tuple[str, ...] = ()

    def is_left(self, place: int) -> bool:
        """Is a column flush left?"""
        return place < self.labels or self.header[place] in TEXT_COLUMNS


class Column(NamedTuple):
    """A heading, and what stands below it for an outcome."""

    heading: str
    write: Callable[[Outcome], str]


def text(outcomes: Sequence[Outcome], what: Sequence[Column], found: Sequence[Column], notes: Sequence[str]) -> Text:
    """A table from columns that say what was run and columns that say what came out."""
    columns = [*what, *found]
    rows = [[column.write(outcome) for column in columns] for outcome in outcomes]
    return Text([column.heading for column in columns], rows, len(what), tuple(notes))


# --- columns that tables share --------------------------------------------------------------------------------------

DATASET = Column("dataset", lambda outcome: labels.dataset(outcome.cell))
MODEL = Column("model", lambda outcome: labels.model(outcome.cell))
METHOD = Column("negatives", lambda outcome: labels.method(outcome.cell))
TIME = Column("time", lambda outcome: duration(outcome.seconds))
SHARED_TIME = Column("time", lambda outcome: duration(outcome.seconds) + shared(outcome))
HARDWARE = Column("hardware", lambda outcome: outcome.hardware or "-")


def shared(outcome: Outcome) -> str:
    """How many runs had the device together, where it was more than one: their times are longer for it."""
    most = max((round(record.beside) for record in outcome.records), default=1)
    return f", {most} at once" if most > 1 else ""


def published(name: str, who: str) -> Column:
    """What was published, and by whom."""
    return Column(f"{NUMBERS[name]} {who}", lambda outcome: labels.target(name, outcome.cell.get(name)))


def measured(name: str, heading: str = "measured", *, error: bool = True, tight: bool = False) -> Column:
    """A measured mean, with its standard error where there is one; without spaces if it should be tight."""

    def write(outcome: Outcome) -> str:
        mean = labels.number(name, (outcome.measured or {}).get(name))
        if not error or name not in outcome.stderr:
            return mean
        return f"{mean}{'±' if tight else ' ± '}{outcome.stderr[name]:.{0 if name == 'mr' else 4}f}"

    return Column(heading, write)


def difference(name: str, heading: str = "difference") -> Column:
    """Measured less published, or less the base."""
    return Column(heading, lambda outcome: labels.signed(name, (outcome.difference or {}).get(name)))


def seeds(outcome: Outcome) -> str:
    """``0-2`` for three seeds in a row, ``0, 5`` otherwise; a dash without runs."""
    found = sorted(record["seed"] for record in outcome.records)
    if len(found) > 1 and found == list(range(found[0], found[-1] + 1)):
        return f"{found[0]}-{found[-1]}"
    return ", ".join(map(str, found)) or "-"


SEEDS = Column("seeds", seeds)


class Mark(NamedTuple):
    """Something to know about a row: when, the word that says so, its sign where there is no room, and its meaning."""

    applies: Callable[[Outcome], bool]
    word: str
    sign: str
    meaning: str


MARKS = (
    Mark(lambda outcome: not outcome.cell.get("own", True), "quoted", "*", QUOTED),
    Mark(lambda outcome: outcome.recipes_differ, "recipes differ", "!", MIXED),
)


def marked(column: Column, brief: bool = False) -> Column:
    """A column with the marks of each row."""

    def write(outcome: Outcome) -> str:
        found = [mark for mark in MARKS if mark.applies(outcome)]
        if brief:
            return column.write(outcome) + "".join(mark.sign for mark in found)
        return column.write(outcome) + (f" ({', '.join(mark.word for mark in found)})" if found else "")

    return Column(column.heading, write)


def notes_on_marks(outcomes: Sequence[Outcome], brief: bool = False) -> list[str]:
    """What the marks of these rows mean."""
    used = [mark for mark in MARKS if any(map(mark.applies, outcomes))]
    return [f"'{mark.sign if brief else mark.word}' marks {mark.meaning}" for mark in used]


VERDICT = Column("verdict", lambda outcome: outcome.verdict)


def grouped(outcomes: Sequence[Outcome], share: Callable[[Outcome], str]) -> dict[str, list[Outcome]]:
    """Outcomes by what they share, in the order in which that appears."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(share(outcome), []).append(outcome)
    return found
