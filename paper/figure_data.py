"""What the figures show: numbers from run records, ready to be drawn, and a fingerprint of them.

Where several seeds have a record, numbers are means over them; histograms are added up; the order is that of the first.
"""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eans.experiments import Experiment, Record
from paper.cells import Cell
from paper.report import judge
from paper.schema import GROUPS

Records = Mapping[Experiment, Record]
Points = dict[int, float]
Panels = dict[tuple[str, str], dict[str, dict[str, Points]]]
METHODS = {"small-n": ("eans", "adv"), "negative-cdf": ("uniform", "adv", "eans", "eans+adv")}  # compared


def find(name: str, cells: Sequence[Cell], records: Records) -> Any:
    """What a figure of the cells shows; empty if there is nothing to draw it from."""
    return DATA[name](shown(name, cells), records)


def shown(name: str, cells: Sequence[Cell]) -> list[Cell]:
    """The cells that a figure shows.

    In small-n each graph and model has a panel. The others show one graph and model, those of the first cell, and one
    run of a method, with all its seeds: curves of different runs would not add up to anything.
    """
    methods = METHODS.get(name) or [cell.method for cell in cells[:1]]
    found = [cell for cell in cells if cell.method in methods]
    if name == "small-n":
        return found
    settings: dict[str, str] = {}
    for cell in found:
        if (cell["dataset"], cell["model"]) == (found[0]["dataset"], found[0]["model"]):
            settings.setdefault(cell.method, cell.run().settings)
    return [cell for cell in found if cell.run().settings in settings.values()]


def fingerprint(data: Any) -> str:
    """A few letters that change with the data, by which a file tells what it was drawn from."""
    return hashlib.sha256(repr(data).encode()).hexdigest()[:16]


def small_n_data(cells: Sequence[Cell], records: Records) -> Panels:
    """By (dataset, model) and number: n -> value of a method, or of EANS as ``published``; panels with runs only."""
    panels: Panels = {}
    for outcome in judge(cells, records):
        cell = outcome.cell
        panel = panels.setdefault((cell["dataset"], cell["model"]), {name: {} for name in ("mrr", "hits10")})
        for name, lines in panel.items():
            if cell.method == "eans" and name in cell.fields:
                lines.setdefault("published", {})[cell["negatives"]] = cell[name]
            if outcome.measured is not None:
                lines.setdefault(cell.method, {})[cell["negatives"]] = outcome.measured[name]
    return {place: panel for place, panel in panels.items() if set(panel["mrr"]) - {"published"}}


def analyses(cells: Sequence[Cell], records: Records) -> dict[int, list[dict[str, Any]]]:
    """The analyses of the cells' runs by step, one per seed."""
    settings = {cell.run().settings for cell in cells}
    found: dict[int, list[dict[str, Any]]] = {}
    for record in records.values():
        if record.experiment.settings in settings:
            for analysis in record.get("analysis", ()):
                found.setdefault(analysis["step"], []).append(analysis)
    return dict(sorted(found.items()))


def cdf_data(cells: Sequence[Cell], records: Records) -> dict[str, dict[int, list[float]]]:
    """By method and step: cumulative weights, averaged over the seeds that have as many as most do."""
    curves: dict[str, dict[int, list[float]]] = {}
    for method in METHODS["negative-cdf"]:
        for step, group in analyses([cell for cell in cells if cell.method == method], records).items():
            if found := [analysis["cdf"] for analysis in group if analysis.get("cdf")]:
                usual = Counter(map(len, found)).most_common(1)[0][0]
                alike = zip(*(weights for weights in found if len(weights) == usual), strict=True)
                curves.setdefault(method, {})[step] = list(map(statistics.fmean, alike))
    return curves


def substitution_data(cells: Sequence[Cell], records: Records) -> dict[str, list[float]]:
    """Edges of the bins and, by group, its share in each bin, at the last step that was analysed."""
    found = analyses(cells, records)
    last = [analysis["substitution"] for analysis in found[max(found)] if "substitution" in analysis] if found else []
    if not last:
        return {}
    data: dict[str, list[float]] = {"edges": list(last[0]["edges"])}
    alike = [analysis for analysis in last if analysis["edges"] == data["edges"]]
    for group in GROUPS:
        counts = [sum(values) for values in zip(*(analysis[group] for analysis in alike), strict=True)]
        if sum(counts):
            data[group] = [count / sum(counts) for count in counts]
    return data


def order_data(cells: Sequence[Cell], records: Records) -> dict[str, Any]:
    """The order that the first seed's record has."""
    settings = {cell.run().settings for cell in cells}
    for record in sorted(records.values(), key=lambda record: record.experiment.seed):
        if record.experiment.settings in settings and record.get("order"):
            return {**record["order"], "seed": record.experiment.seed}
    return {}


DATA: dict[str, Callable[[Sequence[Cell], Records], Any]] = {
    "small-n": small_n_data,
    "negative-cdf": cdf_data,
    "substitution-histogram": substitution_data,
    "order": order_data,
}
