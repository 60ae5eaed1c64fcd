"""The figure of an inspection: what the negatives were like over the steps, one line per sampler."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from eans.figures import COLOURS, figure, spread_apart
from eans.files import make_folder
from eans.inspection.records import Inspection, short_names

NAME = "inspection"
STYLES = ("-", (0, (4, 1.5)), (0, (1, 1)))  # a second time through the colours, lines have other dashes
LABEL = 0.1  # distance of names as a share of a panel's height
ROOM = 0.08  # above and below the lines, likewise
LEAST = 0.01  # percent, the bottom of a logarithmic panel


class Panel(NamedTuple):
    """A number of the measurements: its name, its title, and how it is drawn."""

    number: str
    title: str
    percent: bool = True
    logarithmic: bool = False


PANELS = (
    Panel("gap", "score gap, negatives less positives", percent=False),
    Panel("above", "above their positive, %", logarithmic=True),  # it begins at half and ends near nothing
    Panel("idle", "idle, %"),
    Panel("known", "false negatives, train, %"),
    Panel("held_out", "false negatives, held out, %"),
    Panel("effective", "entities, effective, %"),
)


def draw(inspections: Sequence[Inspection], folder: Path) -> None:
    """Write ``inspection.png`` and ``inspection.svg``: a panel per number, names at the ends of the lines."""
    make_folder(folder)
    names = short_names([inspection.name for inspection in inspections])
    width = 8.0 + 0.18 * max(0, max(map(len, names)) - 8)
    height = 4.2 + 0.3 * max(0, len(names) - 6)  # room for the names
    with figure(width, height, folder, NAME) as drawing:
        axes = drawing.subplots(2, 3, sharex=True)
        for axis, panel in zip(axes.flat, PANELS, strict=True):
            _draw_panel(axis, panel, [_points(inspection, panel) for inspection in inspections], names)
        for axis in axes[-1]:
            axis.set_xlabel("step")


def _points(inspection: Inspection, panel: Panel) -> list[tuple[int, float]]:
    """(step, number) of the measurements that have one."""
    pairs = [(found.step, getattr(found, panel.number)) for found in inspection.measurements]
    factor = 100.0 if panel.percent else 1.0
    least = LEAST if panel.logarithmic else -math.inf
    return [(step, max(factor * value, least)) for step, value in pairs if value is not None]


def _draw_panel(axis: Any, panel: Panel, lines: list[list[tuple[int, float]]], names: list[str]) -> None:
    """Lines with their names beside their ends, moved apart where they end close together."""
    axis.set_title(panel.title)
    axis.grid(axis="y", color="#E5E5E5", linewidth=0.6)
    shown = [index for index, line in enumerate(lines) if line]
    if not shown:
        axis.text(0.5, 0.5, "nothing to count", transform=axis.transAxes, ha="center")
        return
    scale = math.log10 if panel.logarithmic else float
    values = [scale(value) for line in lines for _, value in line]
    low, span = min(values), (max(values) - min(values)) or abs(max(values)) or 1.0
    low, span = low - ROOM * span, (1.0 + 2.0 * ROOM) * span
    heights = label_heights([(scale(lines[index][-1][1]) - low) / span for index in shown])
    if panel.logarithmic:
        axis.set_yscale("log")
        axis.set_ylim(10.0**low, 10.0 ** (low + span))
        ticks = [10.0**power for power in range(math.ceil(low), math.floor(low + span) + 1)]
        axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_yticks([], minor=True)
    else:
        axis.set_ylim(low, low + span)
        axis.locator_params(axis="y", nbins=5)
    for index, height in zip(shown, heights, strict=True):
        steps, found = zip(*lines[index], strict=True)
        colour, style = COLOURS[index % len(COLOURS)], STYLES[index // len(COLOURS) % len(STYLES)]
        axis.plot(steps, found, color=colour, linestyle=style)
        axis.plot(steps[-1:], found[-1:], "o", color=colour, clip_on=False)
        axis.text(
            1.05, height, names[index], transform=axis.transAxes, color=colour, fontsize=8, va="center", clip_on=False
        )
    last = max(line[-1][0] for line in lines if line)
    if last:
        axis.set_xlim(0, last)
        axis.locator_params(axis="x", nbins=4)


def label_heights(ends: list[float]) -> list[float]:
    """Where names stand, as shares of a panel's height: beside the ends of the lines, apart, and inside."""
    heights = spread_apart(ends, LABEL)
    upwards = sorted(range(len(heights)), key=lambda index: heights[index])
    least, most = 0.02, 0.98
    for index in upwards:
        heights[index] = max(heights[index], least)
        least = heights[index] + LABEL
    for index in reversed(upwards):
        heights[index] = min(heights[index], most)
        most = heights[index] - LABEL
    return heights
