"""The paper's figures from run records, and one of the entity order: SVG, PNG and, if asked for, PDF.

======================  ==================================================================================
small-n                 MRR and Hits@10 against the number of negatives, EANS beside self-adversarial
negative-cdf            how evenly the negatives of a positive share the softmax weight, at three steps
substitution-histogram  substitution scores of true negatives and of two kinds of false ones
order                   entities in the plane by their place in the line; similarity along the line; not the paper's
======================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from eans.figures import COLOURS, GREY, figure, require_matplotlib
from paper.cells import Cell
from paper.figure_data import Panels, Records, find, fingerprint
from paper.labels import DATASETS, MODELS, NUMBERS

GRID: Any = {"color": "#E5E5E5", "linewidth": 0.6}
PUBLISHED: Any = {"linestyle": "", "mfc": "none", "mec": COLOURS[0], "ms": 8, "zorder": 3}
# Names and styles of what is drawn, by method and by group of negatives.
LINES = {
    "eans": ("EANS", COLOURS[0]),
    "eans+adv": ("EANS + self-adversarial", COLOURS[0]),
    "adv": ("self-adversarial", COLOURS[1]),
    "uniform": ("uniform", COLOURS[1]),
}
FILLS = {
    "true": ("true negatives", GREY),
    "train": ("false, known in train", COLOURS[3]),
    "held_out": ("false, in valid or test", COLOURS[2]),
}


def file_name(name: str) -> str:
    """The name of a figure's files, without ending."""
    return f"figure-{name}"


def width_on_a_page(name: str, data: Any) -> int:
    """In pixels, of which a figure has a hundred per inch; its file has twice as many, for fine screens."""
    return round(100 * DRAWERS[name].size(data)[0])


def draw(
    name: str, cells: Sequence[Cell], records: Records, folder: Path, formats: Sequence[str] = ("svg", "png")
) -> bool:
    """Draw a figure of the cells into a folder; says whether there was anything to draw it from."""
    found = find(name, cells, records)
    if not found:
        return False
    require_matplotlib()
    drawer = DRAWERS[name]
    with figure(*drawer.size(found), folder, file_name(name), f"data {fingerprint(found)}", formats) as drawing:
        drawer.draw(found, drawing)
    return True


def draw_small_n(panels: Panels, drawing: Any) -> None:
    """A column per graph and model, a row per number, and one legend of all that is there."""
    rows = ("mrr", "hits10")
    axes = drawing.subplots(len(rows), len(panels), squeeze=False, sharex=True)
    for column, ((dataset, model), panel) in enumerate(panels.items()):
        for row, name in enumerate(rows):
            axis, lines = axes[row][column], panel[name]
            for method, (label, colour) in LINES.items():
                if points := sorted(lines.get(method, {}).items()):
                    axis.plot(*zip(*points, strict=True), "o-", color=colour, label=label)
            if points := sorted(lines.get("published", {}).items()):
                axis.plot(*zip(*points, strict=True), marker="o", label="EANS, published", **PUBLISHED)
            axis.set_xscale("log", base=2)
            ticks = sorted({n for line in lines.values() for n in line})
            axis.set_xticks(ticks, [str(n) for n in ticks])
            axis.set_xticks([], minor=True)
            axis.grid(axis="y", **GRID)
            axis.margins(x=0.08, y=0.12)
            axis.locator_params(axis="y", nbins=5)
            axis.set_title(f"{DATASETS.get(dataset, dataset)}, {MODELS.get(model, model)}" if row == 0 else "")
            if column == 0:
                axis.set_ylabel(NUMBERS[name])
            if row == len(rows) - 1:
                axis.set_xlabel("negatives per positive, n")
    handles: dict[str, Any] = {}
    for axis in axes.flat:
        handles |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    drawing.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False)


def draw_cdf(curves: dict[str, dict[int, list[float]]], drawing: Any) -> None:
    """A panel per method, a line per step, on one scale."""
    axes = drawing.subplots(1, len(curves), squeeze=False, sharey=True)[0]
    for axis, (method, steps) in zip(axes, curves.items(), strict=True):
        for place, (step, values) in enumerate(steps.items()):
            axis.plot(range(1, len(values) + 1), values, color=COLOURS[place % len(COLOURS)], label=f"step {step:,}")
        most = max(len(values) for values in steps.values())
        axis.plot([0, most], [0, 1], color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), label="all alike")
        axis.set(xlim=(0, most), ylim=(0, 1), xlabel="negatives, highest score first")
        axis.set_title(LINES[method][0])
        axis.grid(**GRID)
        axis.legend(loc="lower right", frameon=False)
    axes[0].set_ylabel("share of the softmax weight")


def draw_substitution(data: dict[str, list[float]], drawing: Any) -> None:
    """One panel; each group's shares sum to one, so that rare groups can be seen."""
    edges = data["edges"]
    axis = drawing.subplots()
    for group, (label, colour) in FILLS.items():
        if group in data:
            shares = [100.0 * share for share in data[group]]
            axis.stairs(shares, edges, color=colour, fill=True, alpha=0.25)
            axis.stairs(shares, edges, color=colour, linewidth=1.4, label=label)
    axis.set(xlim=(edges[0], edges[-1]), xlabel="sigmoid of the substitution score", ylabel="% of the group")
    axis.set_ylim(bottom=0)
    axis.set_axisbelow(True)
    axis.grid(axis="y", **GRID)
    axis.legend(frameon=False)


def draw_order(data: dict[str, Any], drawing: Any) -> None:
    """Entities in the plane of their first principal components, and the similarity of parts of the line."""
    positions, x, y = zip(*data["points"], strict=True)
    entities = data["entities"]
    left, right = drawing.subplots(1, 2)
    dots = left.scatter(x, y, c=positions, s=5, cmap="viridis", vmin=0, vmax=entities - 1, linewidths=0)
    first, second = (100.0 * share for share in data["explained"])
    left.set(xlabel=f"first component ({first:.1f} % of the variance)", ylabel=f"second ({second:.1f} %)")
    left.set_title("entities, coloured by place in the line")
    left.set_xticks([])
    left.set_yticks([])
    drawing.colorbar(dots, ax=left, shrink=0.85)  # the title says what of
    most = max(abs(value) for row in data["similarity"] for value in row) or 1.0
    extent = (0, entities, entities, 0)
    picture = right.imshow(data["similarity"], cmap="RdBu_r", vmin=-most, vmax=most, extent=extent)
    right.set(xlabel="place in the line", ylabel="place in the line")
    right.locator_params(nbins=4)
    right.set_title("mean cosine similarity")
    right.spines[["left", "bottom"]].set_visible(False)
    drawing.colorbar(picture, ax=right, shrink=0.85)


class Drawer(NamedTuple):
    """How a figure is drawn: its width and height in inches, both from the data, and what is on it."""

    size: Callable[[Any], tuple[float, float]]
    draw: Callable[[Any, Any], None]


DRAWERS = {
    # A legend in three columns needs four inches, more than one panel has.
    "small-n": Drawer(lambda panels: (max(4.4, 1.0 + 2.1 * len(panels)), 4.2), draw_small_n),
    "negative-cdf": Drawer(lambda curves: (1.2 + 2.9 * len(curves), 2.9), draw_cdf),
    "substitution-histogram": Drawer(lambda _: (5.4, 3.0), draw_substitution),
    "order": Drawer(lambda _: (7.6, 3.4), draw_order),
}
