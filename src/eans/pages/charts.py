"""Figures as SVG that stands inside a page and takes its colours from there."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
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
