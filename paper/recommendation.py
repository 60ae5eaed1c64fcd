"""docs/results/recommendation.md: which negatives to train a model with, by all full-length runs in the records.

Among the methods of a model on a graph the one with the highest MRR on valid is recommended, and its MRR on test shown.
An effect is a difference of test MRRs between two methods. It is called clear where it is larger than
``t s sqrt(1/a + 1/b)`` for means of ``a`` and ``b`` seeds: ``s`` is the standard deviation over seeds, pooled over the
settings of this model and graph that have several, and ``t`` the 97.5 % quantile of Student's distribution with as many
degrees of freedom as the pool has. Seeds alone would make such a difference in one of 20 cases.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from eans.experiments import Record, Table
from paper.labels import DATASETS, METHOD_NAMES, MODELS, without_zeros

METHODS = ("uniform", "adv", "eans", "eans+adv", "nscaching", "kbgan", "sans+adv")
EFFECTS = {
    "EANS over uniform": ("eans", "uniform"),
    "EANS + self-adv. over self-adv.": ("eans+adv", "adv"),
}
HEAD = """\
# Which negatives for which model

<!-- Written by `python -m paper report --page docs/results/reproduction.md` from paper/records; do not edit. The text
comes from paper/recommendation.md. -->
"""


@dataclass(frozen=True)
class Setting:
    """The runs of a recipe as it stands, over seeds.

    Attributes:
        valid, test: MRR by seed.
    """

    valid: tuple[float, ...]
    test: tuple[float, ...]

    @property
    def mrr(self) -> float:
        """On test, the mean."""
        return statistics.fmean(self.test)


Settings = Mapping[tuple[str, str, str], Setting]  # by dataset, model and method


def settings(records: Iterable[Record]) -> dict[tuple[str, str, str], Setting]:
    """Those of the recipes without overrides that have both metrics."""
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for record in records:
        dataset, model, method = record.experiment.recipe.split("/")
        numbers = record.get("valid.both.mrr"), record.get("test.both.mrr")
        if not record.experiment.overrides and None not in numbers:
            found.setdefault((dataset, model, method), []).append(numbers)
    return {place: Setting(*zip(*runs, strict=True)) for place, runs in found.items()}


def spread(found: Settings, dataset: str, model: str) -> tuple[float, int]:
    """The pooled standard deviation of test MRR over seeds, and its degrees of freedom."""
    several = [one.test for place, one in found.items() if place[:2] == (dataset, model) and len(one.test) > 1]
    freedom = sum(len(runs) - 1 for runs in several)
    squares = sum(statistics.variance(runs) * (len(runs) - 1) for runs in several)
    return (float((squares / freedom) ** 0.5), freedom) if freedom else (float("nan"), 0)


def effect(first: Setting, second: Setting, deviation: float, freedom: int) -> tuple[float, bool]:
    """The difference of test MRRs, and whether it is clear."""
    difference = first.mrr - second.mrr
    if not freedom:
        return difference, False
    from scipy.special import stdtrit

    chance = float(stdtrit(freedom, 0.975)) * deviation * (1 / len(first.test) + 1 / len(second.test)) ** 0.5
    return difference, abs(difference) > chance


def chosen(found: Settings, dataset: str, model: str) -> str:
    """The method with the highest mean MRR on valid."""
    methods = [method for method in METHODS if (dataset, model, method) in found]
    return max(methods, key=lambda method: statistics.fmean(found[dataset, model, method].valid))


def recommended(found: Settings, dataset: str) -> Table:
    """A row per model: what to use, what it reaches, what EANS adds, and the recipe `best`."""
    rows = []
    for model, name in MODELS.items():
        if not any((dataset, model, method) in found for method in METHODS):
            continue
        deviation, freedom = spread(found, dataset, model)
        use = chosen(found, dataset, model)
        cells = [name, METHOD_NAMES.get(use, use), number(found[dataset, model, use])]
        for pair in EFFECTS.values():
            both = [found.get((dataset, model, method)) for method in pair]
            known = [one for one in both if one is not None]
            cells.append(signed(*effect(known[0], known[1], deviation, freedom)) if len(known) == 2 else "-")
        best = found.get((dataset, model, "best"))
        over_seeds = f"{without_zeros(f'{deviation:.4f}')} ({freedom})" if freedom else "-"
        rows.append([*cells, number(best) if best is not None else "-", over_seeds])
    return Table(["model", "negatives by valid", "MRR", *EFFECTS, "recipe best", "deviation"], rows, labels=2)


def number(setting: Setting) -> str:
    """A mean, with its standard error where there is one, and the number of seeds where there is none."""
    if len(setting.test) == 1:
        return without_zeros(f"{setting.mrr:.4f}")
    return without_zeros(f"{setting.mrr:.4f} ± {statistics.stdev(setting.test) / len(setting.test) ** 0.5:.4f}")


def signed(difference: float, clear: bool) -> str:
    """A difference, in bold where it is clear."""
    text = without_zeros(f"{difference:+.4f}")
    return f"**{text}**" if clear else text


def render(records: Iterable[Record]) -> str:
    """The page as Markdown."""
    found = settings(records)
    parts = [HEAD, Path(__file__).with_suffix(".md").read_text("utf-8")]
    for dataset, name in DATASETS.items():
        table = recommended(found, dataset)
        parts += [f"## {name}", table.markdown()] if table.rows else []
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"
