"""What stands below a figure on the page: what it shows, of which runs, what is missing, and what the paper's shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from paper import labels
from paper.cells import Cell
from paper.figure_data import METHODS, Records, shown
from paper.layouts import in_order, seeds
from paper.overview import not_run
from paper.report import Outcome, judge

HIGH = 0.8  # where most of the false negatives are; substitution scores lie between 0 and 1
SHOWS = {
    "small-n": "MRR and Hits@10 against the number of negatives",
    "negative-cdf": "How the negatives of a positive share the softmax weight",
    "substitution-histogram": "Substitution scores of true and false negatives",
    "order": "The line of entities after the last step",
}
# What the paper says of its own figure.
PAPER = {
    "small-n": "In the paper's figure, of TransE and ComplEx with 1, 4, 8 and 16 negatives, self-adversarial negatives"
    " lose much as they get fewer, and EANS mostly does not.",
    "negative-cdf": "In the paper's figure the weight of uniform negatives gathers on few of them: after 100,000 steps"
    " the first 64 have more than 80 % of it. That of EANS stays quite even. The runs are those of the table of scores,"
    " which the paper seems to have made with self-adversarial weights; without them uniform negatives gather more.",
    "substitution-histogram": "In the paper's account scores tell true and false negatives apart, and those in valid"
    " or test are high too, though training does not know them.",
    "order": "The paper has no such figure.",
}


def caption(name: str, data: Any, cells: Sequence[Cell], records: Records) -> str:
    """The caption of a figure that was drawn from data."""
    outcomes = in_order(judge(shown(name, cells), records))
    run = [outcome for outcome in outcomes if outcome.records] or outcomes
    places = ", ".join(dict.fromkeys(labels.place(outcome.cell) for outcome in run))
    several = name in METHODS  # which are written on the figure
    method = "" if several else f" with {labels.method(run[0].cell)}"
    of = f"seed {data['seed']}" if name == "order" else seeds_of(run)
    missing = [f"Not run yet: {not_run(outcomes)}."] if several and not_run(outcomes) else []
    here = how_far_apart(data) if name == "substitution-histogram" else ""
    return " ".join([f"{SHOWS[name]}: {places}{method}; {of}.", *missing, PAPER[name], here]).rstrip()


def how_far_apart(shares: Mapping[str, Sequence[float]]) -> str:
    """How well substitution scores tell false negatives from true ones, from the shares of each group in the bins."""
    groups = (("train", "train knows it"), ("held_out", "it is in valid or test"))
    found = [
        f"{100 * separation(shares[group], shares['true']):.0f} of 100 pairs if {where}"
        for group, where in groups
        if group in shares and "true" in shares
    ]
    if not found:
        return ""
    high = sum(share for edge, share in zip(shares["edges"], shares["true"], strict=False) if edge >= HIGH)
    return (
        f"Here {100 * high:.0f} % of the true ones score {HIGH:g} or more, and a false one scores higher than a true"
        f" one in {', and in '.join(found)}."
    )


def separation(group: Sequence[float], other: Sequence[float]) -> float:
    """The probability that a member of `group` lies above one of `other`, ties half, from their shares in bins."""
    below = [before + 0.5 * here for before, here in zip(accumulate(other, initial=0.0), other, strict=False)]
    return sum(share * rest for share, rest in zip(group, below, strict=True))


def seeds_of(outcomes: Sequence[Outcome]) -> str:
    """The seeds of some cells, or how many where they differ."""
    names = {seeds(outcome) for outcome in outcomes}
    counts = sorted(len(outcome.records) for outcome in outcomes)
    least, most = counts[0], counts[-1]
    if len(names) == 1:
        return f"{'seed' if most == 1 else 'seeds'} {names.pop()}"
    return f"{most if least == most else f'{least} to {most}'} {'seed' if most == 1 else 'seeds'} each"
