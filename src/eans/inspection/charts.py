"""The figures of a report, as SVG that stands inside a page and takes its colours from there."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from eans.figures import STYLE

WIDTH, HEIGHT = 4.4, 2.7  # inches: readable on a phone, two side by side on a screen
# Placeholders that the page replaces by its variables, which differ between light and dark mode.
PAGE_COLOURS = {"#010101": "var(--ink)", "#020202": "var(--line)", "#030303": "var(--muted)"}
INK, LINE, MUTED = PAGE_COLOURS
BLUE, ORANGE, GREEN = "#040404", "#050505", "#060606"
PAGE_COLOURS |= {BLUE: "var(--blue)", ORANGE: "var(--orange)", GREEN: "var(--green)"}
PAGE_STYLE: Any = STYLE | {
    "svg.fonttype": "none",  # text stays text, in the font of the page
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": LINE,
    "legend.frameon": False,
    "legend.labelcolor": INK,
}


class Chart:
    """One set of axes, written as SVG by `svg`.

    Args:
        across, up: labels of the axes.
    """

    def __init__(self, across: str, up: str) -> None:
        import matplotlib
        from matplotlib.figure import Figure

        with matplotlib.rc_context(PAGE_STYLE):
            self.figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
            self.axes: Any = self.figure.subplots()
            self.axes.set_xlabel(across)
            self.axes.set_ylabel(up)
            self.axes.grid(axis="y", linewidth=0.6)
            self.axes.set_axisbelow(True)

    def line(self, points: Sequence[tuple[float, float]], colour: str, label: str = "", dashed: bool = False) -> None:
        """A line through points; dots where they are few."""
        style = (0, (4, 2)) if dashed else "-"
        marker = "o" if len(points) < 25 and not dashed else ""
        across, up = zip(*points, strict=True)
        drawn: dict[str, Any] = {"color": colour, "linestyle": style, "marker": marker, "markersize": 3}
        self.axes.plot(across, up, label=label or None, clip_on=False, **drawn)  # a dot on the edge stays whole

    def steps(self, edges: Sequence[float], counts: Sequence[int], colour: str, label: str) -> None:
        """A histogram as shares of its own total; nothing for an empty one."""
        total = sum(counts)
        if total:
            shares = [count / total for count in counts]
            self.axes.stairs(shares, edges, color=colour, fill=True, alpha=0.18)
            self.axes.stairs(shares, edges, color=colour, linewidth=1.4, label=label)

    def svg(self, name: str, description: str) -> str:
        """The chart as an ``<svg>`` element with words for those who do not see it; `name` keeps its ids apart."""
        import matplotlib

        content = io.StringIO()
        with matplotlib.rc_context(PAGE_STYLE | {"svg.hashsalt": name}):
            if self.axes.get_legend_handles_labels()[1]:
                self.axes.legend(fontsize=8)
            self.figure.savefig(content, format="svg", transparent=True, metadata={"Date": None})
        return for_page(content.getvalue(), description)


def for_page(svg: str, description: str) -> str:
    """Matplotlib's SVG file as a part of a page: no fixed size, no ids but those referred to, colours by name."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="[A-Za-z0-9.]+_\d+"', "", svg)  # figure_1, text_2: the same in every chart
    svg = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", svg)
    svg = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", svg)
    for colour, name in PAGE_COLOURS.items():
        svg = svg.replace(colour, name)
    svg = re.sub(r"font(?:-family)?: [^;\"]*'[^;\"]*", lambda found: _plain_font(found.group()), svg)
    words = description.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return svg.replace("<svg", f'<svg role="img" aria-label="{words}"', 1)


def _plain_font(style: str) -> str:
    """``font: 9px 'DejaVu Sans', ...`` -> ``font-size: 9px``: the family is the page's."""
    size = re.search(r"[\d.]+px", style)
    return f"font-size: {size.group()}" if size else "font-style: normal"


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
