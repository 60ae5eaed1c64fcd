"""How each table is laid out: which columns it has, in full and for a narrow screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from eans.reproduction import labels
from eans.reproduction.columns import (
    DATASET,
    HARDWARE,
    METHOD,
    MODEL,
    SEEDS,
    SHARED_TIME,
    TIME,
    VERDICT,
    Column,
    Text,
    difference,
    grouped,
    marked,
    measured,
    notes_on_marks,
    published,
    text,
)
from eans.reproduction.labels import NUMBERS
from eans.reproduction.report import Outcome
from eans.reproduction.tables import PAPER_TABLES

Texts = dict[str, Text]  # by what the rows of one share; "" where a table is not divided


class Layout(NamedTuple):
    """The two forms of a table. The brief one is for 80 columns or so, and leaves out what it must."""

    full: Callable[[Sequence[Outcome]], Texts]
    brief: Callable[[Sequence[Outcome]], Texts]


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


def paper_in_full(outcomes: Sequence[Outcome]) -> Texts:
    """Published, measured with its standard error, and difference for each number."""
    found = []
    for name in numbers_of(outcomes):
        found += [published(name, "published"), measured(name), difference(name)]
    found += [SEEDS, marked(VERDICT), TIME, HARDWARE]
    return {"": text(outcomes, [DATASET, MODEL, METHOD, *counts(outcomes)], found, notes_on_marks(outcomes))}


def paper_in_brief(outcomes: Sequence[Outcome]) -> Texts:
    """One table per dataset, without mean ranks, differences, times and hardware."""
    method = Column(
        "negatives", lambda outcome: METHOD.write(outcome).replace("adversarial", "adv.").replace(" + ", "+")
    )
    texts = {}
    for dataset, group in grouped(outcomes, DATASET.write).items():
        models = list(dict.fromkeys(map(MODEL.write, group)))
        what = [*([MODEL] if len(models) > 1 else []), method, *counts(group)]
        found = []
        for name in numbers_of(group):
            if name != "mr":
                found += [published(name, "paper"), measured(name, "ours", tight=True)]
        title = dataset if len(models) > 1 else f"{dataset}, {models[0]}"
        texts[title] = text(
            group, what, [*found, SEEDS, marked(VERDICT, brief=True)], notes_on_marks(group, brief=True)
        )
    return texts


# --- best -----------------------------------------------------------------------------------------------------------

PAPER_MRR = Column("paper's MRR", lambda outcome: labels.target("mrr", outcome.cell.get("paper_mrr")))
SOURCE = Column("source", lambda outcome: str(outcome.cell["source"]))


def best_in_full(outcomes: Sequence[Outcome]) -> Texts:
    """What is judged with its standard error and difference, the rest by its mean."""
    found = [
        *(published("mrr", "anchor"), measured("mrr"), difference("mrr")),
        measured("valid_mrr", "valid MRR", error=False),
        *(published("hits10", "anchor"), measured("hits10", error=False)),
        *(PAPER_MRR, SEEDS, marked(VERDICT), SHARED_TIME, SOURCE),
    ]
    return {"": text(outcomes, [DATASET, MODEL], found, notes_on_marks(outcomes))}


def best_in_brief(outcomes: Sequence[Outcome]) -> Texts:
    """One table per dataset, with the sources as notes, and without differences and times."""
    found = [
        *(published("mrr", "anchor"), measured("mrr", "ours", tight=True)),
        measured("valid_mrr", "valid MRR", error=False),
        *(published("hits10", "anchor"), measured("hits10", "ours", error=False)),
        *(PAPER_MRR, SEEDS, marked(VERDICT, brief=True)),
    ]
    texts = {}
    for dataset, group in grouped(outcomes, DATASET.write).items():
        sources = grouped(group, SOURCE.write).items()
        anchors = "; ".join(f"{', '.join(map(MODEL.write, rows))}: {source}" for source, rows in sources)
        notes = [f"Anchors of {dataset}: {anchors}", *notes_on_marks(group, brief=True)]
        texts[dataset] = text(group, [MODEL], found, notes)
    return texts


# --- choices --------------------------------------------------------------------------------------------------------

SETTING = Column("setting", lambda outcome: str(outcome.cell["setting"]))


def from_base(outcome: Outcome) -> str:
    """How far an MRR is from that of its base."""
    return difference("mrr").write(outcome) if "base" in outcome.cell.fields else "base"


FROM_BASE = Column("difference", from_base)


def choices_in_full(outcomes: Sequence[Outcome]) -> Texts:
    """One table per question."""
    found = [measured("mrr", "MRR"), FROM_BASE, measured("hits10", "Hits@10"), measured("mr", "MR")]
    found += [measured("valid_mrr", "valid MRR"), marked(SEEDS), SHARED_TIME]
    what = [DATASET, MODEL, METHOD, SETTING]
    questions = grouped(outcomes, lambda outcome: str(outcome.cell["question"])).items()
    return {question: text(group, what, found, notes_on_marks(group)) for question, group in questions}


def choices_in_brief(outcomes: Sequence[Outcome]) -> Texts:
    """One table per base, without mean ranks, and with one standard error."""
    found = [measured("mrr", "MRR", tight=True), FROM_BASE, measured("hits10", "Hits@10", error=False)]
    found += [measured("valid_mrr", "valid MRR", error=False), marked(SEEDS, brief=True)]

    def title(outcome: Outcome) -> str:
        return ", ".join([outcome.cell["question"], *(column.write(outcome) for column in (DATASET, MODEL, METHOD))])

    bases = grouped(outcomes, title).items()
    return {base: text(group, [SETTING], found, notes_on_marks(group, brief=True)) for base, group in bases}


LAYOUTS = {
    **dict.fromkeys(PAPER_TABLES, Layout(paper_in_full, paper_in_brief)),
    "best": Layout(best_in_full, best_in_brief),
    "choices": Layout(choices_in_full, choices_in_brief),
}
