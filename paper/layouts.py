"""How each table is laid out: its columns, and the notes below it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from eans.experiments import Table
from paper import labels
from paper.report import Outcome
from paper.tables import PAPER_TABLES, TABLES, rules_in_words

QUOTED, MIXED = "numbers that the paper takes from earlier work", "means over seeds whose recipes differ"
OTHERWISE = "ranks with other ties, or among other candidates, than the published ones; they are not judged"
WIDTH = 120


class Text(NamedTuple):
    """A table of strings, and sentences to be read with it."""

    table: Table
    notes: tuple[str, ...] = ()


Texts = dict[str, Text]  # by what the rows of one share; "" where a table is not divided


class Column(NamedTuple):
    """A heading, and what stands below it for an outcome."""

    heading: str
    write: Callable[[Outcome], str]


def text(outcomes: Sequence[Outcome], what: Sequence[Column], found: Sequence[Column], notes: Sequence[str]) -> Text:
    """A table from columns that say what was run and columns that say what came out."""
    columns = [*what, *found]
    rows = [[column.write(outcome) for column in columns] for outcome in in_order(outcomes)]
    return Text(Table([column.heading for column in columns], rows, len(what)), tuple(notes))


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


# --- columns ----------------------------------------------------------------------------------------------------------

DATASET = Column("dataset", lambda outcome: labels.dataset(outcome.cell))
MODEL = Column("model", lambda outcome: labels.model(outcome.cell))
METHOD = Column("negatives", lambda outcome: labels.method(outcome.cell))
VERDICT = Column("verdict", lambda outcome: outcome.verdict)
RUNS = Column("runs", lambda outcome: str(len(outcome.records) or "-"))


def counts(outcomes: Sequence[Outcome]) -> list[Column]:
    """The whole numbers that say what was run in some of the cells."""

    def column(heading: str) -> Column:
        return Column(heading, lambda outcome: labels.counts(outcome.cell).get(heading, ""))

    return [column(name) for name in labels.COUNTS if any(name in labels.counts(outcome.cell) for outcome in outcomes)]


def seeds(outcome: Outcome) -> str:
    """``0-2`` for three seeds in a row, ``0, 5`` otherwise; a dash without runs."""
    found = sorted(record["seed"] for record in outcome.records)
    if len(found) > 1 and found == list(range(found[0], found[-1] + 1)):
        return f"{found[0]}-{found[-1]}"
    return ", ".join(map(str, found)) or "-"


def published(name: str, outcome: Outcome) -> str:
    """A published number, with its standard error where that was published too."""
    mean, stderr = labels.target(name, outcome.cell.get(name)), outcome.cell.get(f"{name}_stderr")
    return mean if stderr is None else f"{mean} ± {labels.target(name, stderr)}"


def measured(name: str, heading: str, *, error: bool = True) -> Column:
    """A measured mean, with its standard error where there is one."""

    def write(outcome: Outcome) -> str:
        mean = labels.number(name, (outcome.measured or {}).get(name))
        return f"{mean} ± {labels.number(name, outcome.stderr[name])}" if error and name in outcome.stderr else mean

    return Column(heading, write)


def difference(name: str, outcome: Outcome) -> str:
    """Measured less published, or less the base."""
    return labels.signed(name, (outcome.difference or {}).get(name))


def compared(name: str, *, judged: bool = True) -> Column:
    """All of these in one: ``.338 → .3381 (+.0001)``; where nothing is judged by it, ``169 → 171`` has to do."""
    after = measured(name, "", error=judged)

    def write(outcome: Outcome) -> str:
        numbers = published(name, outcome), after.write(outcome)
        cell = " → ".join(numbers) if set(numbers) != {"-"} else "-"
        known = judged and name in (outcome.difference or {})
        return f"{cell} ({difference(name, outcome)})" if known else cell

    return short(Column(labels.NUMBERS[name], write))


def short(column: Column) -> Column:
    """The same with ``.338`` for ``0.338``."""
    return column._replace(write=lambda outcome: labels.without_zeros(column.write(outcome)))


# --- marks and notes --------------------------------------------------------------------------------------------------


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

    return Column(column.heading, write)


def notes_on(outcomes: Sequence[Outcome], *, signs: bool = False) -> list[str]:
    """What the marks of these rows mean, and what stands behind a ±."""
    used = [mark for mark in MARKS if any(map(mark.applies, outcomes))]
    notes = [f"'{mark.sign if signs else mark.word}' marks {mark.meaning}." for mark in used]
    runs = sorted({outcome.cell["runs"] for outcome in outcomes if "runs" in outcome.cell.fields})
    if runs or any(outcome.stderr for outcome in outcomes):
        notes.append("± is the standard error of a mean over seeds.")
    return notes + ([f"That of the paper is over {' or '.join(map(str, runs))} runs."] if runs else [])


# --- tables -----------------------------------------------------------------------------------------------------------


def judged_table(
    outcomes: Sequence[Outcome],
    what: Sequence[Column],
    who: str,
    numbers: Sequence[Column],
    notes: Sequence[str] = (),
) -> Text:
    """A table with numbers, beside those of whoever published some, and verdicts."""
    arrows = f"Numbers are {who} → measured (difference)."
    found = [*map(short, numbers), RUNS]
    return text(
        outcomes, [*what, marked(VERDICT, signs=True)], found, [arrows, *notes, *notes_on(outcomes, signs=True)]
    )


def paper(outcomes: Sequence[Outcome]) -> Texts:
    """A table of the paper; where all cells of a dataset have the same model, the title names it.

    Nothing is judged by mean ranks; they come last.
    """
    texts = {}
    for dataset, group in grouped(in_order(outcomes), DATASET.write).items():
        models = list(dict.fromkeys(map(MODEL.write, group)))
        what = [*([MODEL] if len(models) > 1 else []), METHOD, *counts(group)]
        names = [name for name in labels.NUMBERS if any(name in outcome.cell.fields for outcome in group)]
        names = names or [*TABLES[group[0].cell.table].measure.names]  # nothing was published
        names.sort(key=lambda name: name == "mr")
        numbers = [compared(name, judged=name != "mr") for name in names]
        title = dataset if len(models) > 1 else f"{dataset}, {models[0]}"
        texts[title] = judged_table(group, what, "published", numbers)
    return texts


PAPER_MRR = Column("paper's MRR", lambda outcome: labels.target("mrr", outcome.cell.get("paper_mrr")))
VALID_MRR = measured("valid_mrr", "valid MRR", error=False)


def best(outcomes: Sequence[Outcome]) -> Texts:
    """The table of the best recipes; notes name the sources of the anchors."""
    numbers = [compared("mrr"), compared("hits10", judged=False), VALID_MRR, PAPER_MRR]
    return {
        dataset: judged_table(group, [MODEL], "anchor", numbers, [anchors(dataset, group)])
        for dataset, group in grouped(in_order(outcomes), DATASET.write).items()
    }


def anchors(dataset: str, outcomes: Sequence[Outcome]) -> str:
    """The sources of one dataset as a note."""
    sources = grouped(outcomes, lambda outcome: str(outcome.cell["source"])).items()
    found = "; ".join(f"{', '.join(map(MODEL.write, rows))}: {source}" for source, rows in sources)
    return f"Anchors of {dataset}: {found}."


def with_difference(outcome: Outcome) -> str:
    """An MRR, and how far it is from that of its base."""
    mrr = measured("mrr", "").write(outcome)
    change = difference("mrr", outcome) if "base" in outcome.cell.fields else "base"
    return mrr if "-" in (mrr, change) else f"{mrr} ({change})"


SETTING = Column("setting", lambda outcome: str(outcome.cell["setting"]))
CHOICE = (
    short(Column("MRR", with_difference)),
    short(measured("hits10", "Hits@10", error=False)),
    short(VALID_MRR),
    marked(RUNS),
)


def choices(outcomes: Sequence[Outcome]) -> Texts:
    """A table per question."""
    groups = grouped(outcomes, lambda outcome: str(outcome.cell["question"]))
    return {
        title: text(rows, [DATASET, MODEL, METHOD, SETTING], CHOICE, notes_on(rows)) for title, rows in groups.items()
    }


def compared_with(outcome: Outcome) -> str:
    """The settings of the base that an alternative is compared with, or of a base itself."""
    return str(outcome.cell.get("base", outcome.cell.run().settings))


LAYOUTS: dict[str, Callable[[Sequence[Outcome]], Texts]] = {
    **dict.fromkeys(PAPER_TABLES, paper),
    "best": best,
    "choices": choices,
}


# --- Markdown ---------------------------------------------------------------------------------------------------------


def to_markdown(outcomes: Sequence[Outcome], *, rules: bool = True) -> str:
    """The outcomes of one table in Markdown; its parts have headings of the third level, and notes stand below."""
    name = outcomes[0].cell.table
    texts = LAYOUTS[name](outcomes)
    parts = [(f"### {title}\n\n" if title else "") + text.table.markdown() for title, text in texts.items()]
    notes = remarks(texts, (name,) if rules else ())
    return "\n\n".join([*parts, *([wrapped(" ".join(notes))] if notes else [])])


def remarks(texts: Mapping[str, Text], judged: Iterable[str] = ()) -> list[str]:
    """The rules of the judged tables, and what is to be read with texts; each once."""
    notes = (note for text in texts.values() for note in text.notes)
    return list(dict.fromkeys([*rules_in_words(tuple(judged)), *notes]))


def wrapped(paragraph: str) -> str:
    """A paragraph in lines as long as those of the other pages."""
    return textwrap.fill(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False)
