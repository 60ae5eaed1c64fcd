"""What a search leaves beside the run that it chose: a report, all trials as CSV, and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from eans.experiments.tables import Mean, Table
from eans.figures import COLOURS, GREY, figure
from eans.files import atomic_write
from eans.progress import duration
from eans.run import Run
from eans.tuning.plan import Plan
from eans.tuning.space import short
from eans.tuning.study import Entry, Study
from eans.tuning.trial import worded

REPORT, TRIALS, FIGURE = "study.md", "trials.csv", "study"
MOST_ROWS = 15


def write_report(study: Study, plan: Plan, best: Run, others: Sequence[Run], folder: Path, budget: float) -> None:
    """Write ``study.md``, ``trials.csv`` and, where matplotlib is installed, ``study.svg`` and ``study.png``.

    Args:
        study: all trials.
        plan: what was left out.
        best: the winner.
        others: runs of its recipe with other seeds.
        folder: where to.
        budget: seconds.
    """
    entries = study.entries()
    atomic_write(folder / TRIALS, trials(entries).csv().encode())
    most = study.most_tried()
    importances = study.importances(most)
    parts = [
        f"# Search on {best.graph.name}",
        f"{len(entries)} trials{_at_a_time(entries)} in {duration(study.used)} of {duration(budget)}; a trial of"
        f" rung 0, 1 and 2 takes about {', '.join(duration(seconds) for seconds in plan.seconds)}. The valid MRR"
        " decides; test was ranked for the winner alone, whose recipe is `recipe.toml` in the folder above.",
        "## Seeds\n\n" + seeds_table([best, *others]).markdown() if others else "",
        "## Methods\n\n" + methods(study, plan).markdown(),
        "## Best trials\n\n" + trials(sorted(entries, key=lambda entry: -(entry.mrr or 0.0))[:MOST_ROWS]).markdown(),
    ]
    if importances:
        rows = [[key, f"{value:.2f}"] for key, value in importances.items()]
        parts.append(f"## What mattered for {most}\n\n{Table(['key', 'importance'], rows, 1).markdown()}")
    parts.append("## Not tried\n\n" + "\n".join(f"- {line}" for line in not_tried(study, plan)))
    if find_spec("matplotlib") is not None:
        draw(entries, most, importances, folder)
        parts.insert(2, f"![Valid MRR of all trials, by method and rung]({FIGURE}.svg)")
    atomic_write(folder / REPORT, ("\n\n".join(part for part in parts if part) + "\n").encode())


def _at_a_time(entries: Sequence[Entry]) -> str:
    most = max((int(entry.facts.get("workers", 1)) for entry in entries), default=1)
    return f", {most} at a time," if most > 1 else ""


def trials(entries: Sequence[Entry]) -> Table:
    """Trials in their order."""
    rows = [
        [
            str(entry.number), entry.candidate.method, str(entry.rung), entry.candidate.text(), Mean(entry.mrr),
            entry.facts.get("steps", ""), round(entry.took, 1), entry.facts.get("reason", "complete"),
        ]
        for entry in entries
    ]  # fmt: skip
    return Table(["trial", "method", "rung", "values", "valid MRR", "steps", "seconds", "ended"], rows, 4)


def methods(study: Study, plan: Plan) -> Table:
    """Methods, best first: how many trials each had, its cost, and its best MRR by rung."""
    entries = study.entries()
    rungs = sorted({entry.rung for entry in entries})
    rows: list[list[Any]] = []
    for method, seconds in plan.step_seconds.items():
        own = [entry for entry in entries if entry.candidate.method == method]
        best = [_best([entry for entry in own if entry.rung == rung]) for rung in rungs]
        rows.append([method, len(own), f"{1e3 * seconds:.2f}", *best])
    rows.sort(key=lambda row: -max((cell.value or 0.0) for cell in row[3:]))
    return Table(["method", "trials", "ms a step", *(f"MRR, rung {rung}" for rung in rungs)], rows, 1)


def _best(entries: Sequence[Entry]) -> Mean:
    return Mean(max((entry.mrr for entry in entries if entry.mrr is not None), default=None))


def seeds_table(runs: Sequence[Run]) -> Table:
    """The runs of the winner's recipe, their mean and standard deviation."""
    splits = [split for split in ("valid", "test") if all(split in run.metrics for run in runs)]
    columns = [(split, metric) for split in splits for metric in ("mrr", "hits@1", "hits@10")]
    values = [[run.metrics[split]["both"][metric] for split, metric in columns] for run in runs]
    rows: list[list[Any]] = [
        [str(run.recipe.train.seed), *map(Mean, row)] for run, row in zip(runs, values, strict=True)
    ]
    by_column = list(zip(*values, strict=True))
    rows.append(["mean", *(Mean(fmean(column)) for column in by_column)])
    if len(runs) > 1:
        rows.append(["standard deviation", *(Mean(stdev(column)) for column in by_column)])
    return Table(["seed", *(f"{split} {metric}" for split, metric in columns)], rows, 1)


def not_tried(study: Study, plan: Plan) -> list[str]:
    """Methods that were left out, choices that no trial had, trials that failed, as lines."""
    entries = study.entries()
    lines = [f"{method}: {reason}" for method, reason in plan.left_out.items()]
    for method in plan.step_seconds:
        own = [entry.candidate.values for entry in entries if entry.candidate.method == method]
        for key, kind in study.space.ranges(method).items():
            missing = [choice for choice in kind.choices if not any(values[key] == choice for values in own)]
            if missing and own:
                lines.append(f"{method}: {key} = {', '.join(map(short, missing))}")
        if not own:
            lines.append(f"{method}: the time was over before")
    lines += [
        f"trial {entry.number} ({entry.candidate.method}) {worded(entry.facts['reason'])}"
        for entry in entries
        if entry.mrr is None and "reason" in entry.facts
    ]
    return lines or ["nothing of the space was left out"]


def draw(entries: Sequence[Entry], most: str, importances: dict[str, float], folder: Path) -> None:
    """MRR of every trial by method and rung, and what mattered for the method with most trials."""
    ended = [entry for entry in entries if entry.mrr is not None]
    names = sorted({entry.candidate.method for entry in ended}, key=lambda name: _highest(ended, name))
    heights = [0.7 + 0.3 * len(names), 0.7 + 0.25 * max(1, len(importances))]
    with figure(8, sum(heights), folder, FIGURE, "Valid MRR of the trials of a search, by method and rung") as drawing:
        axes = drawing.subplots(
            2 if importances else 1, 1, height_ratios=heights if importances else None, squeeze=False
        )
        upper = axes[0][0]
        upper.set_title("Valid MRR of each trial, by method; filled: complete, hollow: pruned")
        for rung in sorted({entry.rung for entry in ended}):
            for complete in (False, True):
                some = [entry for entry in ended if entry.rung == rung and entry.complete == complete]
                places = [names.index(entry.candidate.method) + 0.18 * (rung - 1) for entry in some]
                colour = COLOURS[rung % len(COLOURS)]
                label = f"rung {rung}" if complete else None
                face = colour if complete else "none"
                upper.plot([e.mrr for e in some], places, "o", color=colour, markerfacecolor=face, label=label)
        upper.set_yticks(range(len(names)), names)
        upper.tick_params(axis="y", length=0)
        upper.set_ylim(-0.6, len(names) - 0.4)
        upper.set_xlim(left=0)
        upper.legend(loc="lower right", frameon=False)
        if importances:
            lower = axes[1][0]
            keys = list(importances)[::-1]
            lower.set_title(f"What mattered for {most}: share of the differences in rung 0")
            lower.barh(keys, [importances[key] for key in keys], color=GREY, height=0.6)
            lower.tick_params(axis="y", length=0)


def _highest(entries: Sequence[Entry], method: str) -> float:
    return max(entry.mrr or 0.0 for entry in entries if entry.candidate.method == method)
