"""How each table is laid out: which columns it has on a wide screen, on a narrow one, on a page and in print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from eans.reproduction import labels
from eans.reproduction.columns import (
    DATASET,
    HARDWARE,
    METHOD,
    MODEL,
    RUNS,
    SEEDS,
    TIME,
    VERDICT,
    Column,
    Text,
    about,
    compared,
    difference,
    grouped,
    in_order,
    marked,
    measured,
    notes_on,
    published,
    short,
    text,
)
from eans.reproduction.labels import NUMBERS
from eans.reproduction.report import Outcome
from eans.reproduction.tables import PAPER_TABLES

Texts = dict[str, Text]  # by what the rows of one share; "" where a table is not divided
Form = Callable[[Sequence[Outcome]], Texts]


class Layout(NamedTuple):
    """The forms of a table.

    Attributes:
        full: everything, for a wide screen.
        brief: for 80 columns or so; leaves out what it must.
        page: for Markdown, at the width of a page: the verdict stands early, and published and measured in one column.
        printed: for LaTeX, without what is of no use in a paper, such as times.
    """

    full: Form
    brief: Form
    page: Form
    printed: Form


ARROWS = "Numbers are {} → measured (difference)."


def by_dataset(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Outcomes by dataset, in the order of their labels."""
    return grouped(in_order(outcomes), DATASET.write)


# --- the paper's tables ---------------------------------------------------------------------------------------------


def numbers_of(outcomes: Sequence[Outcome]) -> list[str]:
    """The names of the numbers that were published for these cells, in their order."""
    return [name for name in NUMBERS if any(name in outcome.cell.fields for outcome in outcomes)]


def counts(outcomes: Sequence[Outcome]) -> list[Column]:
    """The whole numbers that say what was run in some of the cells."""

    def column(key: str, heading: str) -> Column:
        return Column(heading, lambda outcome: f"{outcome.cell[key]:,}" if key in outcome.cell.fields else "")

    headings = {"negatives": "n", "step": "step"}
    return [column(*pair) for pair in headings.items() if any(pair[0] in outcome.cell.fields for outcome in outcomes)]


def by_place(outcomes: Sequence[Outcome]) -> dict[str, tuple[list[Outcome], list[Column]]]:
    """Outcomes by dataset, and what tells them apart; the title has the model where all have the same."""
    found = {}
    for dataset, group in by_dataset(outcomes).items():
        models = list(dict.fromkeys(map(MODEL.write, group)))
        several = len(models) > 1
        what = [*([MODEL] if several else []), METHOD, *counts(group)]
        found[dataset if several else f"{dataset}, {models[0]}"] = (group, what)
    return found


def paper_in_full(outcomes: Sequence[Outcome]) -> Texts:
    """One table with times and hardware."""
    found = []
    for name in numbers_of(outcomes):
        found += about(name, published(name, "published"), measured(name), difference(name))
    found += [SEEDS, marked(VERDICT), TIME, HARDWARE]
    return {"": text(outcomes, [DATASET, MODEL, METHOD, *counts(outcomes)], found, notes_on(outcomes))}


def paper_in_brief(outcomes: Sequence[Outcome]) -> Texts:
    """One table per dataset, without mean ranks, published errors, differences, times and hardware."""
    method = Column(
        "negatives", lambda outcome: METHOD.write(outcome).replace("adversarial", "adv.").replace(" + ", "+")
    )
    texts = {}
    for title, (group, what) in by_place(outcomes).items():
        found = []
        for name in numbers_of(group):
            if name != "mr":
                found += about(name, published(name, "paper", error=False), measured(name, "ours", tight=True))
        found += [SEEDS, marked(VERDICT, signs=True)]
        shown = [method if column is METHOD else column for column in what]
        texts[title] = text(group, shown, found, notes_on(group, signs=True, published=False))
    return texts


def paper_on_a_page(outcomes: Sequence[Outcome]) -> Texts:
    """One table per dataset; mean ranks, which nothing is judged by, come last."""
    texts = {}
    for title, (group, what) in by_place(outcomes).items():
        names = sorted(numbers_of(group), key=lambda name: name == "mr")
        numbers = [compared(name, judged=name != "mr") for name in names]
        notes = [ARROWS.format("published"), *notes_on(group, signs=True)]
        texts[title] = text(group, [*what, marked(VERDICT, signs=True)], [*numbers, RUNS], notes)
    return texts


def paper_in_print(outcomes: Sequence[Outcome]) -> Texts:
    """One table per dataset, without times and hardware."""
    texts = {}
    for title, (group, what) in by_place(outcomes).items():
        found = []
        for name in numbers_of(group):
            found += about(name, published(name, "paper"), measured(name, "ours"), difference(name, "diff."))
        found += [SEEDS, marked(VERDICT, signs=True)]
        texts[title] = text(group, what, [*map(short, found)], notes_on(group, signs=True))
    return texts


# --- best -----------------------------------------------------------------------------------------------------------

PAPER_MRR = Column("paper's MRR", lambda outcome: labels.target("mrr", outcome.cell.get("paper_mrr")))
SOURCE = Column("source", lambda outcome: str(outcome.cell["source"]))
VALID_MRR = measured("valid_mrr", "valid MRR", error=False)


def anchors(dataset: str, outcomes: Sequence[Outcome]) -> str:
    """The sources of one dataset as a note."""
    sources = grouped(outcomes, SOURCE.write).items()
    found = "; ".join(f"{', '.join(map(MODEL.write, rows))}: {source}" for source, rows in sources)
    return f"Anchors of {dataset}: {found}."


def best_in_full(outcomes: Sequence[Outcome]) -> Texts:
    """One table with times; what is judged has its standard error and difference."""
    found = [
        *about("mrr", published("mrr", "anchor"), measured("mrr"), difference("mrr")),
        VALID_MRR,
        *about("hits10", published("hits10", "anchor"), measured("hits10", error=False)),
        *(PAPER_MRR, SEEDS, marked(VERDICT), TIME, SOURCE),
    ]
    return {"": text(outcomes, [DATASET, MODEL], found, notes_on(outcomes))}


def best_in_brief(outcomes: Sequence[Outcome]) -> Texts:
    """One table per dataset, with the sources as notes, and without differences and times."""
    found = [
        *about("mrr", published("mrr", "anchor"), measured("mrr", "ours", tight=True)),
        VALID_MRR,
        *about("hits10", published("hits10", "anchor"), measured("hits10", "ours", error=False)),
        *(PAPER_MRR, SEEDS, marked(VERDICT, signs=True)),
    ]
    return {
        dataset: text(group, [MODEL], found, [anchors(dataset, group), *notes_on(group, signs=True)])
        for dataset, group in by_dataset(outcomes).items()
    }


def best_on_a_page(outcomes: Sequence[Outcome]) -> Texts:
    """One table per dataset, with the sources as notes."""
    numbers = [compared("mrr"), compared("hits10", judged=False), short(VALID_MRR), short(PAPER_MRR)]
    texts = {}
    for dataset, group in by_dataset(outcomes).items():
        notes = [ARROWS.format("anchor"), anchors(dataset, group), *notes_on(group, signs=True)]
        texts[dataset] = text(group, [MODEL, marked(VERDICT, signs=True)], [*numbers, RUNS], notes)
    return texts


def best_in_print(outcomes: Sequence[Outcome]) -> Texts:
    """One table per dataset, without times."""
    found = [
        *about("mrr", published("mrr", "anchor"), measured("mrr", "ours"), difference("mrr", "diff.")),
        VALID_MRR,
        *about("hits10", published("hits10", "anchor"), measured("hits10", "ours", error=False)),
        *(PAPER_MRR, SEEDS, marked(VERDICT, signs=True), SOURCE),
    ]
    return {
        dataset: text(group, [MODEL], [*map(short, found)], notes_on(group, signs=True))
        for dataset, group in by_dataset(outcomes).items()
    }


# --- choices --------------------------------------------------------------------------------------------------------

SETTING = Column("setting", lambda outcome: str(outcome.cell["setting"]))


def from_base(outcome: Outcome) -> str:
    """How far an MRR is from that of its base."""
    return difference("mrr").write(outcome) if "base" in outcome.cell.fields else "base"


FROM_BASE = Column("difference", from_base)
RUN = (DATASET, MODEL, METHOD, SETTING)
CHOICE = (
    *(measured("mrr", "MRR"), FROM_BASE),
    *(measured("hits10", "Hits@10"), measured("mr", "MR"), measured("valid_mrr", "valid MRR")),
    marked(SEEDS),
)


def by_question(outcomes: Sequence[Outcome], found: Sequence[Column]) -> Texts:
    """One table per question."""
    questions = grouped(outcomes, lambda outcome: str(outcome.cell["question"])).items()
    return {question: text(group, RUN, found, notes_on(group)) for question, group in questions}


def choices_in_full(outcomes: Sequence[Outcome]) -> Texts:
    """One table per question, with times."""
    return by_question(outcomes, [*CHOICE, TIME])


def compared_with(outcome: Outcome) -> str:
    """The settings of the base that an alternative is compared with, or of a base itself."""
    return str(outcome.cell.get("base", outcome.cell.run().settings))


def choices_in_brief(outcomes: Sequence[Outcome]) -> Texts:
    """One table per base, without mean ranks, and with one standard error."""
    found = [measured("mrr", "MRR", tight=True), FROM_BASE, measured("hits10", "Hits@10", error=False)]
    found += [VALID_MRR, marked(SEEDS, signs=True)]

    def title(outcome: Outcome) -> str:
        overrides = compared_with(outcome).split()[1:]  # after the recipe, which the columns name
        place = [column.write(outcome) for column in (DATASET, MODEL, METHOD)]
        return ", ".join([outcome.cell["question"], *place, *overrides])

    bases = grouped(outcomes, title).items()
    return {base: text(group, [SETTING], found, notes_on(group, signs=True)) for base, group in bases}


def choices_on_a_page(outcomes: Sequence[Outcome]) -> Texts:
    """One table per question, with the difference beside the MRR, and without mean ranks and valid triples."""

    def write(outcome: Outcome) -> str:
        mrr, change = measured("mrr").write(outcome), from_base(outcome)
        return mrr if "-" in (mrr, change) else f"{mrr} ({change})"

    numbers = [Column("MRR", write), measured("hits10", "Hits@10", error=False)]
    return by_question(outcomes, [*map(short, numbers), marked(RUNS)])


def choices_in_print(outcomes: Sequence[Outcome]) -> Texts:
    """One table per question, without times."""
    return by_question(outcomes, [*map(short, CHOICE)])


LAYOUTS = {
    **dict.fromkeys(PAPER_TABLES, Layout(paper_in_full, paper_in_brief, paper_on_a_page, paper_in_print)),
    "best": Layout(best_in_full, best_in_brief, best_on_a_page, best_in_print),
    "choices": Layout(choices_in_full, choices_in_brief, choices_on_a_page, choices_in_print),
}
