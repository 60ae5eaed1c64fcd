"""The paper's figures from run records, and one of the entity order: PNG and SVG each.

======================  ==================================================================================
small-n                 MRR and Hits@10 against the number of negatives, EANS beside self-adversarial
negative-cdf            how evenly the negatives of a positive share the softmax weight, at three steps
substitution-histogram  substitution scores of true negatives and of two kinds of false ones
order                   entities in the plane by their place in the line; similarity along the line
======================  ==================================================================================

Where several seeds have a record, numbers are means over them; histograms are added up; the order is that of the first.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eans.figures import COLOURS, GREY, figure, require_matplotlib
from eans.reproduction.cells import Cell
from eans.reproduction.labels import DATASETS, MODELS, NUMBERS
from eans.reproduction.records import Record, RunSpec
from eans.reproduction.report import judge

Records = Mapping[RunSpec, Record]
GRID: Any = {"color": "#E5E5E5", "linewidth": 0.6}
METHODS = {"eans": ("EANS", COLOURS[0]), "adv": ("self-adversarial", COLOURS[1]), "uniform": ("uniform", COLOURS[1])}
GROUPS = {
    "true": ("true negatives", GREY),
    "train": ("false, known in train", COLOURS[3]),
    "held_out": ("false, in valid or test", COLOURS[2]),
}


def file_name(name: str) -> str:
    """The name of a figure's files, without ending."""
    return f"figure-{name}"


def can_draw(name: str, cells: Sequence[Cell], records: Records) -> bool:
    """Is there anything to draw a figure from?"""
    return bool(DATA[name](cells, records))


def draw(name: str, cells: Sequence[Cell], records: Records, folder: Path) -> bool:
    """Draw a figure of the cells into a folder; says whether there was anything to draw it from."""
    found = DATA[name](cells, records)
    if not found:
        return False
    require_matplotlib()
    DRAWERS[name](found, folder)
    return True


# --- what is drawn --------------------------------------------------------------------------------------------------

Points = dict[int, float]


def small_n_data(cells: Sequence[Cell], records: Records) -> dict[tuple[str, str], dict[str, dict[str, Points]]]:
    """By (dataset, model) and number: n -> value of ``eans``, ``adv`` and ``published``; panels with runs only."""
    panels: dict[tuple[str, str], dict[str, dict[str, Points]]] = {}
    for outcome in judge(cells, records):
        cell = outcome.cell
        panel = panels.setdefault((cell["dataset"], cell["model"]), {name: {} for name in ("mrr", "hits10")})
        for name, lines in panel.items():
            if name in cell.fields:
                lines.setdefault("published", {})[cell["negatives"]] = cell[name]
            if outcome.measured is not None:
                lines.setdefault(cell.method, {})[cell["negatives"]] = outcome.measured[name]
    return {place: panel for place, panel in panels.items() if set(panel["mrr"]) - {"published"}}


def looks(cells: Sequence[Cell], records: Records, method: str) -> dict[int, list[dict[str, Any]]]:
    """The analyses of a method's runs by step, one per seed."""
    settings = {cell.run().settings for cell in cells if cell.method == method}
    found: dict[int, list[dict[str, Any]]] = {}
    for record in records.values():
        if record.spec.settings in settings:
            for look in record.get("analysis", ()):
                found.setdefault(look["step"], []).append(look)
    return dict(sorted(found.items()))


def cdf_data(cells: Sequence[Cell], records: Records) -> dict[str, dict[int, list[float]]]:
    """By method and step: cumulative weights, averaged over the seeds."""
    curves = {
        method: {
            step: [statistics.fmean(values) for values in zip(*(look["cdf"] for look in group), strict=True)]
            for step, group in looks(cells, records, method).items()
            if all(look.get("cdf") for look in group)
        }
        for method in ("uniform", "eans")
    }
    return {method: steps for method, steps in curves.items() if steps}


def substitution_data(cells: Sequence[Cell], records: Records) -> dict[str, list[float]]:
    """Edges of the bins and, by group, its share in each bin, at the last step that was analysed."""
    found = looks(cells, records, "eans")
    last = [look["substitution"] for look in found[max(found)] if "substitution" in look] if found else []
    if not last:
        return {}
    data: dict[str, list[float]] = {"edges": list(last[0]["edges"])}
    for group in GROUPS:
        counts = [
            sum(values)
            for values in zip(*(look[group] for look in last if look["edges"] == data["edges"]), strict=True)
        ]
        if sum(counts):
            data[group] = [count / sum(counts) for count in counts]
    return data


def order_data(cells: Sequence[Cell], records: Records) -> dict[str, Any]:
    """The order that the first seed's record has."""
    settings = {cell.run().settings for cell in cells}
    for record in sorted(records.values(), key=lambda record: record.spec.seed):
        if record.spec.settings in settings and record.get("order"):
            return {**record["order"], "run": record.spec.recipe}
    return {}


# --- drawing --------------------------------------------------------------------------------------------------------


def draw_small_n(panels: dict[tuple[str, str], dict[str, dict[str, Points]]], folder: Path) -> None:
    """A column per graph and model, a row per number."""
    rows = ("mrr", "hits10")
    with figure(1.0 + 2.1 * len(panels), 4.2, folder, file_name("small-n")) as drawing:
        axes = drawing.subplots(len(rows), len(panels), squeeze=False, sharex=True)
        for column, ((dataset, model), panel) in enumerate(panels.items()):
            for row, name in enumerate(rows):
                axis, lines = axes[row][column], panel[name]
                for method in ("eans", "adv"):
                    label, colour = METHODS[method]
                    points = sorted(lines.get(method, {}).items())
                    axis.plot([n for n, _ in points], [v for _, v in points], "o-", color=colour, label=label)
                points = sorted(lines.get("published", {}).items())
                style: Any = {"mfc": "none", "mec": COLOURS[0], "ms": 8, "label": "EANS, published", "zorder": 3}
                axis.plot([n for n, _ in points], [v for _, v in points], "o", **style)
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
        handles, labels = axes[0][0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)


def draw_cdf(curves: dict[str, dict[int, list[float]]], folder: Path) -> None:
    """A panel per method, a line per step, on one scale."""
    with figure(1.2 + 2.9 * len(curves), 2.9, folder, file_name("negative-cdf")) as drawing:
        axes = drawing.subplots(1, len(curves), squeeze=False, sharey=True)[0]
        for axis, (method, steps) in zip(axes, curves.items(), strict=True):
            for place, (step, values) in enumerate(steps.items()):
                axis.plot(
                    range(1, len(values) + 1), values, color=COLOURS[place % len(COLOURS)], label=f"step {step:,}"
                )
            most = max(len(values) for values in steps.values())
            axis.plot([0, most], [0, 1], color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), label="all alike")
            axis.set(xlim=(0, most), ylim=(0, 1), xlabel="negatives, highest score first")
            axis.set_title(METHODS[method][0])
            axis.grid(**GRID)
            axis.legend(loc="lower right", frameon=False)
        axes[0].set_ylabel("share of the softmax weight")


def draw_substitution(data: dict[str, list[float]], folder: Path) -> None:
    """One panel; each group's shares sum to one, so that rare groups can be seen."""
    edges = data["edges"]
    with figure(5.4, 3.0, folder, file_name("substitution-histogram")) as drawing:
        axis = drawing.subplots()
        for group, (label, colour) in GROUPS.items():
            if group in data:
                axis.stairs([100.0 * share for share in data[group]], edges, color=colour, fill=True, alpha=0.25)
                axis.stairs([100.0 * share for share in data[group]], edges, color=colour, linewidth=1.4, label=label)
        axis.set(xlim=(edges[0], edges[-1]), xlabel="sigmoid of the substitution score", ylabel="% of the group")
        axis.set_ylim(bottom=0)
        axis.grid(axis="y", **GRID)
        axis.legend(frameon=False)


def draw_order(data: dict[str, Any], folder: Path) -> None:
    """Entities in the plane of their first principal components, and the similarity of parts of the line."""
    positions, x, y = zip(*data["points"], strict=True)
    entities = data["entities"]
    with figure(7.6, 3.4, folder, file_name("order")) as drawing:
        left, right = drawing.subplots(1, 2)
        dots = left.scatter(x, y, c=positions, s=5, cmap="viridis", vmin=0, vmax=entities - 1, linewidths=0)
        first, second = (100.0 * share for share in data["explained"])
        left.set(xlabel=f"first component ({first:.1f} % of the variance)", ylabel=f"second ({second:.1f} %)")
        left.set_title("entities, coloured by place in the line")
        left.set_xticks([])
        left.set_yticks([])
        drawing.colorbar(dots, ax=left, label="place in the line", shrink=0.85)
        most = max(abs(value) for row in data["similarity"] for value in row) or 1.0
        extent = (0, entities, entities, 0)
        picture = right.imshow(data["similarity"], cmap="RdBu_r", vmin=-most, vmax=most, extent=extent)
        right.set(xlabel="place in the line", ylabel="place in the line")
        right.locator_params(nbins=4)
        right.set_title("mean cosine similarity")
        right.spines[["left", "bottom"]].set_visible(False)
        drawing.colorbar(picture, ax=right, shrink=0.85)


DATA: dict[str, Callable[[Sequence[Cell], Records], Any]] = {
    "small-n": small_n_data,
    "negative-cdf": cdf_data,
    "substitution-histogram": substitution_data,
    "order": order_data,
}
DRAWERS: dict[str, Callable[[Any, Path], None]] = {
    "small-n": draw_small_n,
    "negative-cdf": draw_cdf,
    "substitution-histogram": draw_substitution,
    "order": draw_order,
}
