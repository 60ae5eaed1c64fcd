"""The tables: what each is called, what it takes from a record, and by which rule its cells pass.

The first six are the paper's. Two more go beyond it: the best that this library trains beside the best ever published,
and what comes of the choices that the paper leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from eans.experiments import Record
from paper.cells import Cell

Numbers = Mapping[str, float]

# --- what is taken from a record ------------------------------------------------------------------------------------


class Measure(NamedTuple):
    """Some numbers: their names, and how to take them from a record for a cell; None if it has none for the cell."""

    names: tuple[str, ...]
    take: Callable[[Record, Cell], Numbers | None]


def test_metrics(record: Record) -> dict[str, float]:
    """On the test triples, both sides, under the names that published cells use; nothing where test was not ranked."""
    both = record.get("test.both")
    return {"mr": both["mr"], "mrr": both["mrr"], "hits10": both["hits@10"]} if both else {}


def valid_metrics(record: Record) -> dict[str, float]:
    """The MRR on the valid triples, both sides; nothing where the record does not know it."""
    mrr = record.get("valid.both.mrr")
    return {} if mrr is None else {"valid_mrr": mrr}


def scores_at_step(record: Record, cell: Cell) -> Numbers | None:
    """Mean scores over the steps before the cell's; None if they were not analysed."""
    for analysis in record.get("analysis", ()):
        if analysis["step"] == cell["step"] and not cell.values:
            return {}  # a figure is drawn from the analysis, and shows none of these
        if analysis["step"] == cell["step"] and analysis.get("logged"):
            return {name: float(analysis["logged"][name]) for name in SCORES.names}
    return None


TEST = Measure(("mr", "mrr", "hits10"), lambda record, _: test_metrics(record) or None)
# With the MRR on the valid triples, by which recipes are chosen, where the record knows it.
TEST_AND_VALID = Measure(
    (*TEST.names, "valid_mrr"), lambda record, _: test_metrics(record) | valid_metrics(record) or None
)
SCORES = Measure(("positive_score", "negative_score"), scores_at_step)


# --- rules ----------------------------------------------------------------------------------------------------------

# How far below the published number a mean over seeds may be. Better is a pass.
TOLERANCE = {"mrr": 0.003, "hits10": 0.004}
# Mean scores may differ either way, by so much or by so large a share of the published one.
SCORE_TOLERANCE, SCORE_SHARE = 0.05, 0.05
ROUNDING = 1e-9  # .338 - .003 is not .335 in binary


class Rule(NamedTuple):
    """When a measurement passes: in words, as a test of published and measured numbers, and which it compares."""

    words: str
    passes: Callable[[Numbers, Numbers], bool]
    judged: tuple[str, ...]


def as_good(published: Numbers, measured: Numbers) -> bool:
    """Is the measurement as good as the published numbers, give or take?"""
    allowed = {name: published[name] - slack - ROUNDING for name, slack in TOLERANCE.items() if name in published}
    return all(measured[name] >= least for name, least in allowed.items())


def as_near(published: Numbers, measured: Numbers) -> bool:
    """Are the scores near the published ones, on either side?"""
    return all(
        abs(measured[name] - value) <= max(SCORE_TOLERANCE, SCORE_SHARE * abs(value)) + ROUNDING
        for name, value in published.items()
    )


def above(published: Numbers, measured: Numbers) -> bool:
    """Is the MRR above the published one?"""
    return measured["mrr"] > published["mrr"]


AS_GOOD = Rule(
    "Pass: mean MRR at least the published one less .003, and mean Hits@10 at least the published one less .004; better"
    " is a pass, and rounding comes after.",
    as_good,
    tuple(TOLERANCE),
)
AS_NEAR = Rule(
    "Mean scores of the score-gap table: each within .05, or within five percent, of the published one.",
    as_near,
    SCORES.names,
)
ABOVE = Rule(
    "Pass in the table best: mean MRR above the anchor's, with no tolerance, where the anchor is the best published MRR"
    " that we know of for the model, under any training; Hits@10 is not judged.",
    above,
    ("mrr",),
)

# --- the tables -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        title: for people.
        measure: what it takes from a record.
        rule: when a cell passes; None where nothing is judged.
        from_paper: is it one of the paper's? These are counted together.
    """

    title: str
    measure: Measure = TEST
    rule: Rule | None = AS_GOOD
    from_paper: bool = True


TABLES = {
    "main": Table("Main results"),
    "variance": Table("Variance over seeds"),
    "small-n": Table("Few negatives"),
    "one-negative": Table("One negative"),
    "ablation": Table("Ablation"),
    "score-gap": Table("Scores of positives and negatives", SCORES, AS_NEAR),
    "best": Table("Beyond the paper", TEST_AND_VALID, ABOVE, from_paper=False),
    "choices": Table("What the open choices do", TEST_AND_VALID, None, from_paper=False),
}
PAPER_TABLES = tuple(name for name, table in TABLES.items() if table.from_paper)


def rules_in_words(names: tuple[str, ...]) -> list[str]:
    """The rules of some tables, each once."""
    rules = (TABLES[name].rule for name in names)
    return list(dict.fromkeys(rule.words for rule in rules if rule is not None))
