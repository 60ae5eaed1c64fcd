"""Tables for people, as strings, and the columns that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from eans.reproduction import labels
from eans.reproduction.labels import NUMBERS
from eans.reproduction.report import Outcome, Timing
from eans.wording import duration

QUOTED, MIXED = "numbers that the paper takes from earlier work", "means over seeds whose recipes differ"
OTHERWISE = "ranks with other ties, or among other candidates, than the published ones; they are not judged"
TEXT_COLUMNS = ("hardware", "source")


class Text(NamedTuple):
    """A table of strings; the first columns, which say what was run, stand flush left.

    Attributes:
        groups: for each column, what it has in common with its neighbours, such as ``MRR``; often nothing.
        header: one heading per column.
        rows: as many strings each.
        labels: how many columns say what was run.
        notes: sentences to be read with it.
    """

    groups: list[str]
    header: list[str]
    rows: list[list[str]]
    labels: int
    notes: tuple[str, ...] = ()

    def is_left(self, place: int) -> bool:
        """Is a column flush left?"""
        return place < self.labels or self.header[place] in TEXT_COLUMNS

    @property
    def headings(self) -> list[str]:
        """The header in one line: a group is named where it begins."""
        before = ["", *self.groups]
        return [
            f"{group} {heading}" if group and group != last else heading
            for last, group, heading in zip(before, self.groups, self.header, strict=False)
        ]


class Column(NamedTuple):
    """A heading, what stands below it for an outcome, and the group of columns that it belongs to."""

    heading: str
    write: Callable[[Outcome], str]
    group: str = ""


def text(outcomes: Sequence[Outcome], what: Sequence[Column], found: Sequence[Column], notes: Sequence[str]) -> Text:
    """A table from columns that say what was run and columns that say what came out."""
    columns = [*what, *found]
    rows = [[column.write(outcome) for column in columns] for outcome in in_order(outcomes)]
    groups, header = [column.group for column in columns], [column.heading for column in columns]
    return Text(groups, header, rows, len(what), tuple(notes))


def in_order(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """By dataset, then by model, in the order of their labels; otherwise as they come."""
    datasets = list(dict.fromkeys([*labels.DATASETS, *(outcome.cell["dataset"] for outcome in outcomes)]))
    models = list(dict.fromkeys([*labels.MODELS, *(outcome.cell["model"] for outcome in outcomes)]))
    return sorted(
        outcomes,
        key=lambda outcome: (datasets.index(outcome.cell["dataset"]), models.index(outcome.cell["model"])),
    )


def grouped(outcomes: Sequence[Outcome], share: Callable[[Outcome], str]) -> dict[str, list[Outcome]]:
    """Outcomes by what they share, in the order in which that appears."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(share(outcome), []).append(outcome)
    return found


# --- what was run, and how ------------------------------------------------------------------------------------------

DATASET = Column("dataset", lambda outcome: labels.dataset(outcome.cell))
MODEL = Column("model", lambda outcome: labels.model(outcome.cell))
METHOD = Column("negatives", lambda outcome: labels.method(outcome.cell))
SHORT_METHOD = METHOD._replace(
    write=lambda outcome: METHOD.write(outcome).replace("adversarial", "adv.").replace(" + ", "+")
)


def counts(outcomes: Sequence[Outcome]) -> list[Column]:
    """The whole numbers that say what was run in some of the cells."""

    def column(heading: str) -> Column:
        return Column(heading, lambda outcome: labels.counts(outcome.cell).get(heading, ""))

    return [column(name) for name in labels.COUNTS if any(name in labels.counts(outcome.cell) for outcome in outcomes)]


def times(outcome: Outcome) -> str:
    """Mean training times: one of the runs that were alone, another of those that shared their device."""

    def write(timing: Timing) -> str:
        return duration(timing.seconds) + (f", {timing.at_once} at once" if timing.at_once > 1 else "")

    return "; ".join(map(write, outcome.timings)) or "-"


def seeds(outcome: Outcome) -> str:
    """``0-2`` for three seeds in a row, ``0, 5`` otherwise; a dash without runs."""
    found = sorted(record["seed"] for record in outcome.records)
    if len(found) > 1 and found == list(range(found[0], found[-1] + 1)):
        return f"{found[0]}-{found[-1]}"
    return ", ".join(map(str, found)) or "-"


TIME = Column("time", times)
HARDWARE = Column("hardware", lambda outcome: outcome.hardware or "-")
SEEDS = Column("seed no.", seeds)
RUNS = Column("runs", lambda outcome: str(len(outcome.records) or "-"))


# --- numbers --------------------------------------------------------------------------------------------------------


def published(name: str, who: str, *, error: bool = True) -> Column:
    """What was published, and by whom, with its standard error where that was published too."""

    def write(outcome: Outcome) -> str:
        mean, stderr = labels.target(name, outcome.cell.get(name)), outcome.cell.get(f"{name}_stderr")
        return mean if stderr is None or not error else f"{mean} ± {labels.target(name, stderr)}"

    return Column(who, write)


def measured(name: str, heading: str = "measured", *, error: bool = True, tight: bool = False) -> Column:
    """A measured mean, with its standard error where there is one; without spaces if it should be tight."""

    def write(outcome: Outcome) -> str:
        mean = labels.number(name, (outcome.measured or {}).get(name))
        if not error or name not in outcome.stderr:
            return mean
        return f"{mean}{'±' if tight else ' ± '}{labels.number(name, outcome.stderr[name])}"

    return Column(heading, write)


def difference(name: str, heading: str = "difference") -> Column:
    """Measured less published, or less the base."""
    return Column(heading, lambda outcome: labels.signed(name, (outcome.difference or {}).get(name)))


def about(name: str, *columns: Column) -> list[Column]:
    """Columns as a group, under what the number is called."""
    return [column._replace(group=NUMBERS[name]) for column in columns]


def compared(name: str, *, judged: bool = True) -> Column:
    """All of these in one: ``.338 → .3381 (+.0001)``; where nothing is judged by it, ``169 → 171`` has to do."""
    before, after, change = published(name, "published"), measured(name, error=judged), difference(name)

    def write(outcome: Outcome) -> str:
        numbers = before.write(outcome), after.write(outcome)
        cell = " → ".join(numbers) if set(numbers) != {"-"} else "-"
        known = judged and name in (outcome.difference or {})
        return f"{cell} ({change.write(outcome)})" if known else cell

    return short(Column(NUMBERS[name], write))


def short(column: Column) -> Column:
    """The same with ``.338`` for ``0.338``."""
    return column._replace(write=lambda outcome: labels.without_zeros(column.write(outcome)))


# --- verdicts and notes ---------------------------------------------------------------------------------------------

VERDICT = Column("verdict", lambda outcome: outcome.verdict)


class Mark(NamedTuple):
    """Something to know about a row: when, the word that says so, its sign where there is no room, and its meaning."""

    applies: Callable[[Outcome], bool]
    word: str
    sign: str
    meaning: str


MARKS = (
    Mark(lambda outcome: not outcome.cell.get("own", True), "quoted", "*", QUOTED),
    Mark(lambda outcome: outcome.recipes_differ, "recipes differ", "!", MIXED),
    Mark(lambda outcome: outcome.ranked_otherwise, "ranked otherwise", "?", OTHERWISE),
)


def marked(column: Column, signs: bool = False) -> Column:
    """A column with the marks of each row, in words or as signs."""

    def write(outcome: Outcome) -> str:
        found = [mark for mark in MARKS if mark.applies(outcome)]
        if signs:
            return column.write(outcome) + "".join(mark.sign for mark in found)
        return column.write(outcome) + (f" ({', '.join(mark.word for mark in found)})" if found else "")

    return Column(column.heading, write, column.group)


def notes_on(outcomes: Sequence[Outcome], *, signs: bool = False, published: bool = True) -> list[str]:
    """What the marks of these rows mean, and what stands behind a ±, published ones included or not."""
    used = [mark for mark in MARKS if any(map(mark.applies, outcomes))]
    notes = [f"'{mark.sign if signs else mark.word}' marks {mark.meaning}." for mark in used]
    runs = sorted({outcome.cell["runs"] for outcome in outcomes if "runs" in outcome.cell.fields and published})
    if runs or any(outcome.stderr for outcome in outcomes):
        notes.append("± is the standard error of a mean over seeds.")
    return notes + ([f"That of the paper is over {' or '.join(map(str, runs))} runs."] if runs else [])
