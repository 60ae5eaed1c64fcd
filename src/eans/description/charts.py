"""The figures of a description."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eans.description.sections import Facts
from eans.evaluation import CATEGORIES
from eans.pages.charts import BLUE, GREEN, ORANGE, Chart

CURVE = 400  # points of the curve of relations at most
COPIES = (("symmetric", BLUE, "symmetric"), ("inverse", ORANGE, "inverse"), ("duplicate", GREEN, "near-duplicate"))


def draw_charts(facts: Facts) -> dict[str, str]:
    """All charts that a graph has numbers for, by name; needs matplotlib."""
    charts = {
        "degrees": _degrees(facts["degrees"]["histogram"]),
        "frequencies": _frequencies(facts["relations"]),
        "categories": _categories(facts["relations"]),
    }
    held_out = {split: found for split, found in facts["leakage"].items() if found["triples"]}
    if any(found["copied"] for found in held_out.values()):
        charts["copies"] = _copies(held_out)
    return charts


def _degrees(histogram: Sequence[Facts]) -> str:
    chart = Chart("triples of train", "entities")
    chart.axes.bar(range(len(histogram)), [group["entities"] for group in histogram], color=BLUE, width=0.85)
    chart.axes.yaxis.set_major_formatter("{x:,.0f}")
    chart.axes.locator_params(axis="y", integer=True)
    every = -(-len(histogram) // 9)
    places = range(0, len(histogram), every)
    chart.axes.set_xticks(places, [f"{histogram[place]['least']:,}" for place in places])
    return chart.svg("degrees", "Histogram of the degrees of entities, in bins that double")


def _frequencies(relations: Sequence[Facts]) -> str:
    """Of the most frequent relations together, from one to all of them."""
    total = sum(entry["train"] for entry in relations)
    points, reached = [(0, 0.0)], 0
    for place, entry in enumerate(relations, 1):
        reached += entry["train"]
        points.append((place, reached / total))
    every = -(-len(points) // CURVE)
    chart = Chart("relations, most frequent first", "share of train")
    chart.line([*points[:-1:every], points[-1]], BLUE)
    chart.axes.set_ylim(0.0, 1.02)
    chart.axes.set_xlim(0, len(relations))
    chart.axes.locator_params(axis="x", integer=True)
    return chart.svg("frequencies", "Cumulative share of the training triples, most frequent relations first")


def _categories(relations: Sequence[Facts]) -> str:
    names = CATEGORIES[:-1]
    total = sum(entry["train"] for entry in relations)
    sizes = [[entry["train"] for entry in relations if entry["category"] == name] for name in names]
    of_relations = [len(group) / len(relations) for group in sizes]
    of_triples = [sum(group) / total for group in sizes]
    chart = Chart("kind of relation", "share")
    _side_by_side(chart, names, [(of_relations, BLUE, "of relations"), (of_triples, ORANGE, "of triples")])
    return chart.svg("categories", "Share of relations and of training triples by kind of relation")


def _copies(held_out: dict[str, Any]) -> str:
    chart = Chart("split", "share of its triples")
    bars = [
        ([found[key] / found["triples"] for found in held_out.values()], colour, label)
        for key, colour, label in COPIES
        if any(found[key] for found in held_out.values())
    ]
    _side_by_side(chart, list(held_out), bars)
    return chart.svg("copies", "Share of valid and test triples with a copy in train, by pattern of relations")


def _side_by_side(chart: Chart, names: Sequence[str], bars: Sequence[tuple[Sequence[float], str, str]]) -> None:
    """A group of bars for each name."""
    width = 0.8 / len(bars)
    for place, (heights, colour, label) in enumerate(bars):
        left = [number + width * (place - (len(bars) - 1) / 2) for number in range(len(names))]
        chart.axes.bar(left, heights, width=0.92 * width, color=colour, label=label)
    chart.axes.set_xticks(range(len(names)), names)
    most = max(height for heights, *_ in bars for height in heights)
    chart.axes.set_ylim(0.0, (1.1 + 0.1 * len(bars)) * most)  # room for the legend
