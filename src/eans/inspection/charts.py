"""The figures of a report."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from eans.pages.charts import BLUE, GREEN, MUTED, ORANGE, Chart


def draw_charts(report: dict[str, Any]) -> dict[str, str]:
    """All charts that a report has numbers for, by name; needs matplotlib."""
    charts: dict[str, str] = {}
    for unit, across in (("step", "step"), ("seconds", "seconds")):
        for name, up, points in (
            ("loss", "loss", _losses(report["history"], unit)),
            ("mrr", "validation MRR", _validations(report["history"], unit)),
        ):
            if points:
                chart = Chart(across, up)
                chart.line(points, BLUE if name == "loss" else GREEN)
                if name == "mrr":
                    chart.axes.set_ylim(bottom=0)
                charts[f"{name}_{unit}"] = chart.svg(f"{name}-{unit}", f"{up} over {across}")
    analysis = report["analysis"]
    if analysis is not None:
        charts |= _distributions(analysis)
    return charts


def _losses(history: list[dict[str, Any]], unit: str) -> list[tuple[float, float]]:
    return [(record[unit], record["loss"]) for record in history if "loss" in record]


def _validations(history: list[dict[str, Any]], unit: str) -> list[tuple[float, float]]:
    return [(record[unit], record["valid"]["both"]["mrr"]) for record in history if "valid" in record]


def _distributions(analysis: dict[str, Any]) -> dict[str, str]:
    """Scores, cumulative shares and substitution scores."""
    charts = {}
    scores = analysis["scores"]
    chart = Chart("score + margin", "share")
    chart.steps(scores["edges"], scores["positive"], BLUE, "positives")
    chart.steps(scores["edges"], scores["negative"], ORANGE, "negatives")
    chart.axes.set_xlim(*occupied(scores["edges"], scores["positive"], scores["negative"]))
    charts["scores"] = chart.svg("scores", "Histogram of the scores of positives and negatives")
    if analysis["cdf"] is not None:
        count = len(analysis["cdf"])
        chart = Chart("negatives, best first", "share of the softmax")
        chart.line([(0, 0.0), *enumerate(analysis["cdf"], 1)], BLUE, "all draws")
        if analysis["unmasked"]["cdf"] is not None:
            chart.line([(0, 0.0), *enumerate(analysis["unmasked"]["cdf"], 1)], ORANGE, "without masked ones")
        chart.line([(0, 0.0), (count, 1.0)], MUTED, "all alike", dashed=True)
        chart.axes.set_ylim(0.0, 1.02)
        chart.axes.set_xlim(0, count)
        charts["cdf"] = chart.svg("cdf", "Cumulative share of the softmax over a positive's negatives, best first")
    if "substitution" in analysis:
        found = analysis["substitution"]
        chart = Chart("predicted probability of a false negative", "share of the group")
        groups = (("true", BLUE, "true negatives"), ("train", ORANGE, "false, train"))
        for group, colour, label in (*groups, ("held_out", GREEN, "false, valid and test")):
            chart.steps(found["edges"], found[group], colour, label)
        chart.axes.set_xlim(0.0, 1.0)
        charts["substitution"] = chart.svg("substitution", "Histogram of substitution scores by group")
    return charts


def occupied(edges: Sequence[float], *counts: Sequence[int]) -> tuple[float, float]:
    """From the first bin to the last that holds anything."""
    limits = [limit for place, pair in enumerate(pairwise(edges)) if any(c[place] for c in counts) for limit in pair]
    return min(limits), max(limits)
