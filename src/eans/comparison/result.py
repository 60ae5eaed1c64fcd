"""What came out of a comparison, and its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from statistics import fmean
from typing import Any, NamedTuple

from eans.comparison.statistics import Estimate, Floats, difference, holm, mean
from eans.experiments import Mean, Table

METRICS = ("mrr", "hits@1", "hits@10")


@dataclass(frozen=True)
class Outcome:
    """A method and its runs, one for each seed.

    Attributes:
        name, recipe, overrides: of the method.
        steps, seconds: of training.
        metrics: ``{"mr", "mrr", "hits@1", ...}`` of both sides.
        scores: mean reciprocal rank of each triple on both sides, ``[S, n]``.
    """

    name: str
    recipe: str
    overrides: tuple[str, ...]
    steps: list[int]
    seconds: list[float]
    metrics: list[Mapping[str, float]]
    scores: Floats = field(repr=False)

    @cached_property
    def mrr(self) -> Estimate:
        """Mean MRR and its confidence interval."""
        return mean(self.scores)


class Pair(NamedTuple):
    """Two methods, the better one first.

    Attributes:
        first, second: names.
        difference: of their MRRs.
        p: corrected for the number of pairs.
    """

    first: str
    second: str
    difference: Estimate
    p: float


@dataclass(frozen=True)
class Comparison:
    """Methods in the order in which they were given, and how they were compared."""

    outcomes: Sequence[Outcome]
    protocol: Mapping[str, Any]

    @cached_property
    def pairs(self) -> list[Pair]:
        """Every two methods; the largest difference first."""
        found = []
        for pair in combinations(self.outcomes, 2):
            first, second = sorted(pair, key=lambda outcome: -outcome.mrr.value)
            found.append((first.name, second.name, difference(first.scores, second.scores)))
        corrected = holm([estimate.p for *_, estimate in found])
        pairs = [Pair(*pair, p) for pair, p in zip(found, corrected, strict=True)]
        return sorted(pairs, key=lambda pair: -pair.difference.value)

    def table(self) -> Table:
        """Methods, best first: metrics with standard errors over seeds, the interval of the MRR, steps, seconds."""
        rows = [
            [
                outcome.name,
                *(_mean([values[name] for values in outcome.metrics]) for name in METRICS),
                _interval(outcome.mrr),
                round(fmean(outcome.steps)),
                round(fmean(outcome.seconds), 1),
                len(outcome.steps),
            ]
            for outcome in sorted(self.outcomes, key=lambda outcome: -outcome.mrr.value)
        ]
        return Table(["method", *METRICS, "MRR, 95 % interval", "steps", "seconds", "runs"], rows, 1)

    def differences(self) -> Table:
        """Pairs, the largest difference first."""
        rows: list[list[Any]] = [
            [pair.first, pair.second, Mean(pair.difference.value), _interval(pair.difference), f"{pair.p:.2g}"]
            for pair in self.pairs
        ]
        return Table(["better", "worse", "MRR difference", "95 % interval", "p (Holm)"], rows, 2)

    def text(self) -> str:
        """How it was compared, in a line."""
        protocol = self.protocol
        equal = f"{protocol['steps']:,} steps each" if protocol["steps"] else "each recipe's own steps"
        if protocol["budget"]:
            equal = f"{protocol['budget']} of training each"
        count = self.outcomes[0].scores.shape[1]
        return (
            f"{protocol['graph']}, {count:,} {protocol['split']} triples on both sides, filtered,"
            f" {protocol['candidates']} as candidates, {protocol['ties']} ties; {protocol['seeds']} seeds, {equal};"
            " intervals over seeds and triples"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything but the scores of single triples, which the records have."""
        methods = [
            {
                "name": outcome.name,
                "recipe": outcome.recipe,
                "overrides": list(outcome.overrides),
                "mrr": vars(outcome.mrr),
                "runs": [
                    {"seed": seed, "steps": steps, "seconds": seconds, "metrics": dict(metrics)}
                    for seed, (steps, seconds, metrics) in enumerate(
                        zip(outcome.steps, outcome.seconds, outcome.metrics, strict=True)
                    )
                ],
            }
            for outcome in self.outcomes
        ]
        pairs = [
            {"better": pair.first, "worse": pair.second, **vars(pair.difference), "p_holm": pair.p}
            for pair in self.pairs
        ]
        return {"protocol": dict(self.protocol), "methods": methods, "pairs": pairs}


def _mean(values: list[float]) -> Mean:
    from statistics import stdev

    return Mean(fmean(values), stdev(values) / len(values) ** 0.5 if len(values) > 1 else None)


def _interval(estimate: Estimate) -> str:
    return f"{estimate.low:.4f} to {estimate.high:.4f}"
