"""Figures of docs/explanation/performance.md: `python -m benchmarks.plots` (needs the extra ``figures``).

==============  ==========================================================================================
step-time       milliseconds per training step against n and against d, from ``records/gpu-speed.json``
time-to-mrr     validation MRR against training seconds, from ``records/fast.jsonl`` and ``paper/records/``
cpu-ratios      how many times faster than PyKEEN on a CPU, from ``records/cpu-speed.json``
==============  ==========================================================================================

A figure whose record is missing is left out. Each is written as SVG and PNG into ``docs/explanation/figures/``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cells import RECORDS, negatives_of, published, read_records, recipe_of
from eans.errors import UsageError
from eans.experiments import Experiment, RecordStore
from eans.figures import COLOURS, GREY, figure, require_matplotlib, spread_apart

FIGURES = RECORDS.parent / "docs" / "explanation" / "figures"
# The paper's recipes that the fast ones are derived from, and one negative, of which self-adversarial weights are none;
# all with the warm start of the fast ones.
BESIDE_FAST = (
    Experiment("fb15k-237/transe/eans+adv", ("sampler.warm_start=true",)),
    Experiment("fb15k-237/rotate/eans+adv", ("sampler.warm_start=true",)),
    Experiment("fb15k-237/transe/eans", ("sampler.negatives=1", "sampler.warm_start=true")),
)
TITLES = {"transe": "TransE", "transd": "TransD", "distmult": "DistMult", "complex": "ComplEx", "rotate": "RotatE"}


class Line(NamedTuple):
    """A named curve."""

    label: str
    x: list[float]
    y: list[float]


def sweep(record: dict[str, Any], over: str) -> list[Line]:
    """Milliseconds per step against ``negatives`` or ``dim``, one line per model, the other at the paper's value."""
    fixed, value = ("dim", 1000) if over == "negatives" else ("negatives", 256)
    points: dict[str, dict[float, float]] = {}
    for key, cell in record.get("sections", {}).get("steps", {}).get("cells", {}).items():
        if cell["recipe"].startswith("fb15k-237/") and cell[fixed] == value and "train.rows" not in key:
            points.setdefault(cell["model"], {})[cell[over]] = cell["ms"]
    return [
        Line(TITLES[model], sorted(found), [found[x] for x in sorted(found)])
        for model, found in points.items()
        if len(found) > 1
    ]


def quality_curves(runs: list[dict[str, Any]]) -> list[Line]:
    """Training seconds against validation MRR of the FB15k-237 runs that were validated on the way, longest first.

    Runs that shared the device with others are left out: their seconds say little. Of several seeds the first is drawn.
    """
    lines = []
    for run in runs:
        dataset, model, method = recipe_of(run).split("/")
        if dataset != "fb15k-237" or len(run["curve"]) < 2 or run.get("runs_at_a_time", 1) > 1 or run["seed"]:
            continue
        plain = "sampler.negatives", "sampler.warm_start", "train.valid_"
        extra = [text for text in run["overrides"] if not text.startswith(plain)]
        if extra and method != "fast":
            continue  # a trial on the way to the fast recipe
        label = f"{TITLES[model]}, {'fast recipe' if method == 'fast' else f'n = {negatives_of(run)}'}"
        lines.append(Line(label, [p["seconds"] for p in run["curve"]], [p["mrr"] for p in run["curve"]]))
    return sorted(lines, key=lambda line: -line.x[-1])


def cpu_ratios(record: dict[str, Any]) -> dict[str, list[tuple[str, float]]]:
    """PyKEEN's seconds over ours: for training steps and for ranking, (what, ratio) each."""
    found: dict[str, list[tuple[str, float]]] = {"Training step": [], "Filtered ranking": []}
    for row in record.get("steps", []):
        label = f"{TITLES[row['model']]}, d = {row['dim']}, n = {row['negatives']}"
        found["Training step"].append((label, row["pykeen"]["seconds"] / row["eans adv"]["seconds"]))
    for row in record.get("ranking", []):
        label = f"{TITLES[row['model']]}, d = {row['dim']}"
        found["Filtered ranking"].append((label, row["pykeen"]["seconds"] / row["eans"]["seconds"]))
    return {title: rows for title, rows in found.items() if rows}


def plain_ticks(axis: Any, ticks: list[float]) -> None:
    """Label a logarithmic axis with these numbers as people write them."""
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)


def decimal_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten that cover a range."""
    ticks = [digit * 10.0**power for power in range(-4, 7) for digit in (1, 2, 5)]
    below = max(tick for tick in ticks if tick <= low)
    above = min(tick for tick in ticks if tick >= high)
    return [tick for tick in ticks if below <= tick <= above]


def draw_steps(record: dict[str, Any], folder: Path) -> bool:
    """Two panels on one vertical scale."""
    panels = [("negatives", "negatives per positive, n   (d = 1000)"), ("dim", "width, d   (n = 256)")]
    data = [(title, sweep(record, over)) for over, title in panels]
    if not all(lines for _, lines in data):
        return False
    every = [value for _, lines in data for line in lines for value in line.y]
    with figure(7.0, 2.9, folder, "step-time") as drawing:
        axes = drawing.subplots(1, 2, sharey=True)
        for axis, (title, lines) in zip(axes, data, strict=True):
            axis.set(xscale="log", yscale="log", xlabel=title)
            for line, colour in zip(lines, COLOURS, strict=False):
                axis.plot(line.x, line.y, "o-", color=colour)
                axis.annotate(
                    line.label, (line.x[-1], line.y[-1]), (6, 0), textcoords="offset points", color=colour, va="center"
                )
            plain_ticks(axis.xaxis, sorted({x for line in lines for x in line.x}))
            ticks = decimal_ticks(min(every), max(every))
            plain_ticks(axis.yaxis, ticks)
            axis.set_ylim(ticks[0], ticks[-1])
            axis.grid(axis="y", color="#E5E5E5", linewidth=0.6)
            axis.margins(x=0.06)
        axes[0].set_title("ms per training step, FB15k-237, b = 1024")
        axes[1].set_title(record["sections"]["steps"]["hardware"]["name"], color=GREY)
    return True


def draw_quality(fast: list[dict[str, Any]], paper: list[dict[str, Any]], folder: Path) -> bool:
    """One panel, time on a logarithmic scale; labels beside the ends of the curves."""
    lines = quality_curves([*fast, *paper])
    if not lines:
        return False
    target = published()["fb15k-237/transe/eans+adv"][0]
    with figure(7.0, 3.6, folder, "time-to-mrr") as drawing:
        axis = drawing.subplots()
        axis.set(xscale="log", xlabel="training time, seconds")
        lowest, highest = min(min(line.y) for line in lines), max(max(line.y) for line in lines)
        span = max(highest, target) - lowest
        least = 0.06 * span
        # Labels stand in a column at the right end; where curves end close together they are moved apart.
        heights = spread_apart([line.y[-1] for line in lines], least)
        right = max(line.x[-1] for line in lines)
        for line, colour, height in zip(lines, (COLOURS * len(lines)), heights, strict=False):
            axis.plot(line.x, line.y, "-", color=colour)
            axis.plot(line.x[-1:], line.y[-1:], "o", color=colour)
            label = f"{line.label}: {line.x[-1]:.0f} s"
            axis.annotate(
                label,
                (line.x[-1], line.y[-1]),
                (right * 1.15, height),
                color=colour,
                va="center",
                annotation_clip=False,
                arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 2, "shrinkB": 3},
            )
        axis.axhline(target, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
        left = min(line.x[0] for line in lines)
        # Curves come near the line from below, and late: above its left end there is room.
        axis.text(left, target + 0.015 * span, f"paper, TransE (test): {target:.3f}", color=GREY, va="bottom")
        ticks = [tick for tick in decimal_ticks(left, right) if left * 0.7 <= tick <= right * 1.1]
        plain_ticks(axis.xaxis, ticks)
        axis.set_xlim(left * 0.85, right * 1.1)
        axis.set_title("validation MRR, FB15k-237")
    return True


def draw_cpu(record: dict[str, Any], folder: Path) -> bool:
    """Bars, a panel for training and one for ranking."""
    panels = cpu_ratios(record)
    if not panels:
        return False
    rows = max(len(bars) for bars in panels.values())
    largest = max(ratio for bars in panels.values() for _, ratio in bars)
    with figure(7.0, 0.9 + 0.24 * rows, folder, "cpu-ratios") as drawing:
        axes = drawing.subplots(1, len(panels), squeeze=False)[0]
        for axis, (title, bars) in zip(axes, panels.items(), strict=True):
            places = list(range(len(bars)))
            axis.barh(places, [ratio for _, ratio in bars], color=COLOURS[0], height=0.65)
            axis.set_yticks(places, [label for label, _ in bars])
            axis.set_ylim(rows - 0.5, -0.5)
            for place, (_, ratio) in zip(places, bars, strict=True):
                axis.annotate(f"{ratio:.1f}x", (ratio, place), (3, 0), textcoords="offset points", va="center")
            axis.set_title(title)
            axis.set_xlim(0, 1.2 * largest)  # one scale for both panels
            axis.axvline(1.0, color="white", linewidth=0.8)  # as fast
            axis.set_xticks([])
            axis.tick_params(axis="y", length=0)
            axis.spines[["bottom", "left"]].set_visible(False)
        drawing.supxlabel(f"times as fast as PyKEEN; {record['hardware']}", fontsize=9, color=GREY)
    return True


def draw_all(records: Path, folder: Path) -> dict[str, bool]:
    """Draw what there are records for; says which figures were drawn."""

    def read(name: str) -> dict[str, Any]:
        file = records / name
        content: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
        return content

    fast = read_records(records / "fast.jsonl")
    store = RecordStore(records.parent / "paper" / "records")
    paper = [dict(record.content) for record in store.read(BESIDE_FAST).values()]
    return {
        "step-time": draw_steps(read("gpu-speed.json"), folder),
        "time-to-mrr": draw_quality(fast, paper, folder),
        "cpu-ratios": draw_cpu(read("cpu-speed.json"), folder),
    }


def main() -> None:
    """Draw all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--out", type=Path, default=FIGURES)
    options = parser.parse_args()
    try:
        require_matplotlib()
    except UsageError as error:
        raise SystemExit(str(error)) from None
    for name, drawn in draw_all(options.records, options.out).items():
        print(f"{name}: {'drawn' if drawn else 'no records'}")


if __name__ == "__main__":
    main()
