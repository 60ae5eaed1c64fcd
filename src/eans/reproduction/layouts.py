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
    SHORT_METHOD,
    TIME,
    VERDICT,
    Column,
    Text,
    about,
    compared,
    counts,
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
from eans.reproduction.report import Outcome
from eans.reproduction.tables import PAPER_TABLES, TABLES

Texts = dict[str, Text]  # by what the rows of one share; "" where a table is not divided


class Style(NamedTuple):
    """A form that all tables have, with its headings of what was published, what was measured and the difference.

    A column without a heading is left out, or is part of another.
    """

    published: str
    measured: str
    difference: str


FULL = Style("published", "measured", "difference")  # everything, for a wide screen
BRIEF = Style("paper", "ours", "")  # for 80 columns or so; leaves out what it must
PAGE = Style("published", "", "")  # for Markdown: the verdict stands early, and published and measured in one column
PRINTED = Style("paper", "ours", "diff.")  # for LaTeX, and 120 columns or so: without times, which no paper prints


def divided(style: Style, outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Outcomes by dataset, in the order of their labels; in full all together."""
    return grouped(in_order(outcomes), lambda outcome: "" if style is FULL else DATASET.write(outcome))


def number(style: Style, name: str, who: str, *, judged: bool = True) -> list[Column]:
    """The columns about a number: published, by whom, and measured; with all that is known of it if it is judged."""
    if style is PAGE:
        return [compared(name, judged=judged)]
    before = published(name, who, error=style is not BRIEF)
    after = measured(name, style.measured, error=judged, tight=style is BRIEF)
    change = [difference(name, style.difference)] if judged and style.difference else []
    return about(name, before, after, *change)


def judged_table(
    style: Style,
    outcomes: Sequence[Outcome],
    what: Sequence[Column],
    who: str,
    numbers: Sequence[Column],
    last: Sequence[Column] = (),
    notes: Sequence[str] = (),
) -> Text:
    """A table with numbers, beside those of whoever published some, and verdicts, which stand early on a page."""
    signs = style is not FULL
    verdict = marked(VERDICT, signs=signs)
    below = [*notes, *notes_on(outcomes, signs=signs, published=style is not BRIEF)]
    if style is PAGE:
        arrows = f"Numbers are {who} → measured (difference)."
        return text(outcomes, [*what, verdict], [*map(short, numbers), RUNS], [arrows, *below])
    found = [*numbers, SEEDS, verdict, *last]
    return text(outcomes, what, [*map(short, found)] if style is PRINTED else found, below)


# --- the paper's tables ---------------------------------------------------------------------------------------------


def paper(style: Style, outcomes: Sequence[Outcome]) -> Texts:
    """A table of the paper; where all cells of a dataset have the same model, the title names it.

    Nothing is judged by mean ranks: on a page they come last, and the brief form has none.
    """
    texts = {}
    for dataset, group in divided(style, outcomes).items():
        models = list(dict.fromkeys(map(MODEL.write, group)))
        place = [DATASET, MODEL] if style is FULL else [MODEL] if len(models) > 1 else []
        what = [*place, SHORT_METHOD if style is BRIEF else METHOD, *counts(group)]
        names = [name for name in labels.NUMBERS if any(name in outcome.cell.fields for outcome in group)]
        names = names or [*TABLES[group[0].cell.table].measure.names]  # nothing was published
        if style is PAGE:
            names.sort(key=lambda name: name == "mr")
        numbers = []
        for name in names:
            if name != "mr" or style is not BRIEF:
                numbers += number(style, name, style.published, judged=name != "mr" or style is not PAGE)
        last = [TIME, HARDWARE] if style is FULL else []
        title = dataset if place else f"{dataset}, {models[0]}"
        texts[title] = judged_table(style, group, what, style.published, numbers, last)
    return texts


# --- best -----------------------------------------------------------------------------------------------------------

PAPER_MRR = Column("paper's MRR", lambda outcome: labels.target("mrr", outcome.cell.get("paper_mrr")))
SOURCE = Column("source", lambda outcome: str(outcome.cell["source"]))
VALID_MRR = measured("valid_mrr", "valid MRR", error=False)


def best(style: Style, outcomes: Sequence[Outcome]) -> Texts:
    """The table of the best recipes; where there is no room for the sources of the anchors, a note names them."""
    mrr, hits10 = number(style, "mrr", "anchor"), number(style, "hits10", "anchor", judged=False)
    numbers = [*mrr, *hits10, VALID_MRR, PAPER_MRR] if style is PAGE else [*mrr, VALID_MRR, *hits10, PAPER_MRR]
    what = [DATASET, MODEL] if style is FULL else [MODEL]
    last = {FULL: [TIME, SOURCE], PRINTED: [SOURCE]}.get(style, [])

    def part(dataset: str, group: Sequence[Outcome]) -> Text:
        notes = [] if last else [anchors(dataset, group)]
        return judged_table(style, group, what, "anchor", numbers, last, notes)

    return {dataset: part(dataset, group) for dataset, group in divided(style, outcomes).items()}


def anchors(dataset: str, outcomes: Sequence[Outcome]) -> str:
    """The sources of one dataset as a note."""
    sources = grouped(outcomes, SOURCE.write).items()
    found = "; ".join(f"{', '.join(map(MODEL.write, rows))}: {source}" for source, rows in sources)
    return f"Anchors of {dataset}: {found}."


# --- choices --------------------------------------------------------------------------------------------------------

SETTING = Column("setting", lambda outcome: str(outcome.cell["setting"]))


def from_base(outcome: Outcome) -> str:
    """How far an MRR is from that of its base."""
    return difference("mrr").write(outcome) if "base" in outcome.cell.fields else "base"


def with_difference(outcome: Outcome) -> str:
    """An MRR, and how far it is from that of its base."""
    mrr, change = measured("mrr").write(outcome), from_base(outcome)
    return mrr if "-" in (mrr, change) else f"{mrr} ({change})"


FROM_BASE = Column("difference", from_base)
HITS10 = measured("hits10", "Hits@10", error=False)
CHOICE = (
    *(measured("mrr", "MRR"), FROM_BASE),
    *(measured("hits10", "Hits@10"), measured("mr", "MR"), measured("valid_mrr", "valid MRR")),
    marked(SEEDS),
)
CHOICES = {
    FULL: (*CHOICE, TIME),
    BRIEF: (measured("mrr", "MRR", tight=True), FROM_BASE, HITS10, VALID_MRR, marked(SEEDS, signs=True)),
    PAGE: (short(Column("MRR", with_difference)), short(HITS10), short(VALID_MRR), marked(RUNS)),
    PRINTED: (*map(short, CHOICE),),
}


def choices(style: Style, outcomes: Sequence[Outcome]) -> Texts:
    """A table per question, or in brief per base, whose dataset, model and method the title names."""
    brief = style is BRIEF
    what = [SETTING] if brief else [DATASET, MODEL, METHOD, SETTING]
    groups = grouped(outcomes, base_in_words if brief else lambda outcome: str(outcome.cell["question"]))
    return {title: text(rows, what, CHOICES[style], notes_on(rows, signs=brief)) for title, rows in groups.items()}


def base_in_words(outcome: Outcome) -> str:
    """A question and the base that an outcome is compared with."""
    overrides = compared_with(outcome).split()[1:]  # after the recipe, which the place says
    place = [column.write(outcome) for column in (DATASET, MODEL, METHOD)]
    return ", ".join([outcome.cell["question"], *place, *overrides])


def compared_with(outcome: Outcome) -> str:
    """The settings of the base that an alternative is compared with, or of a base itself."""
    return str(outcome.cell.get("base", outcome.cell.run().settings))


LAYOUTS: dict[str, Callable[[Style, Sequence[Outcome]], Texts]] = {
    **dict.fromkeys(PAPER_TABLES, paper),
    "best": best,
    "choices": choices,
}
