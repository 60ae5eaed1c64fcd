"""The figure of a comparison: MRR of each method with the runs beside it, and the differences of pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from eans.comparison.statistics import Estimate
from eans.figures import COLOURS, GREY, figure

if TYPE_CHECKING:
    from eans.comparison.result import Comparison

MOST_PAIRS = 15


def draw(comparison: Comparison, folder: Path) -> None:
    """Write ``comparison.svg`` and ``comparison.png``."""
    outcomes = sorted(comparison.outcomes, key=lambda outcome: outcome.mrr.value)
    pairs = comparison.pairs[:MOST_PAIRS][::-1]
    heights = [0.6 + 0.28 * len(outcomes), 0.6 + 0.28 * len(pairs)]
    with figure(8, sum(heights), folder, "comparison", comparison.text()) as drawing:
        upper, lower = drawing.subplots(2, 1, height_ratios=heights)
        upper.set_title(f"MRR on {comparison.protocol['split']}: mean, 95 % interval, runs")
        for place, outcome in enumerate(outcomes):
            runs = [values["mrr"] for values in outcome.metrics]
            upper.plot(runs, [place + 0.22] * len(runs), "|", color=GREY, markersize=6)
            _bar(upper, place, outcome.mrr, COLOURS[0])
        upper.set_yticks(range(len(outcomes)), [outcome.name for outcome in outcomes])
        lower.set_title("Difference of MRR, 95 % interval")
        lower.axvline(0, color=GREY, linewidth=0.8)
        for place, pair in enumerate(pairs):
            _bar(lower, place, pair.difference, COLOURS[0] if pair.p < 0.05 else GREY)
        lower.set_yticks(range(len(pairs)), [f"{pair.first} − {pair.second}" for pair in pairs])
        for axis, count in ((upper, len(outcomes)), (lower, len(pairs))):
            axis.set_ylim(-0.6, count - 0.4)
            axis.tick_params(axis="y", length=0)


def _bar(axis: Any, place: int, estimate: Estimate, colour: str) -> None:
    axis.plot([estimate.low, estimate.high], [place, place], color=colour)
    axis.plot([estimate.value], [place], "o", color=colour)
