"""Published and measured side by side: what the records say about each cell, and whether that passes."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eans.reproduction.published import Cell
from eans.reproduction.records import Record, RunSpec

# How far below the published number a mean over seeds may be. Better is a pass.
TOLERANCE = {"mrr": 0.003, "hits10": 0.004}
# Mean scores may differ either way, by so much or by so large a share of the published one.
SCORE_TOLERANCE, SCORE_SHARE = 0.05, 0.05
ROUNDING = 1e-9  # .338 - .003 is not .335 in binary
RULE = (
    "Pass: mean MRR at least the published one less .003, and mean Hits@10 at least the published one less .004; better"
    " is a pass, and rounding comes after. Mean scores of the score-gap table: each within .05, or within five percent,"
    " of the published one."
)


@dataclass(frozen=True)
class Outcome:
    """A published cell and what was measured for it.

    Attributes:
        cell: the published one.
        records: of its runs, by seed; empty when none was run.
        measured: means over the records under the names of the cell's numbers; None when none was run.
        stderr: standard errors of these means; empty with fewer than two records.
        difference: measured less published; None when none was run.
        passed: the verdict; None when none was run.
    """

    cell: Cell
    records: tuple[Record, ...]
    measured: dict[str, float] | None
    stderr: dict[str, float]
    difference: dict[str, float] | None
    passed: bool | None

    @property
    def seconds(self) -> float | None:
        """Mean training time of a run."""
        return statistics.fmean(record["seconds"] for record in self.records) if self.records else None

    @property
    def hardware(self) -> str:
        """Where the runs were made, and how many at a time if several shared the device."""
        found = dict.fromkeys(
            record["hardware"] + (f", {record.beside:.0f} at a time" if round(record.beside) > 1 else "")
            for record in self.records
        )
        return "; ".join(found)

    @property
    def verdict(self) -> str:
        """One word."""
        return {True: "pass", False: "fail", None: "not run"}[self.passed]

    @property
    def recipes_differ(self) -> bool:
        """Were the seeds run with different recipes? Then their mean says little."""
        return len({record["recipe_hash"] for record in self.records if record.get("recipe_hash")}) > 1

    def to_dict(self) -> dict[str, Any]:
        """The published fields, then what was measured."""
        return {
            **self.cell.fields,
            "measured": self.measured,
            "difference": self.difference,
            "pass": self.passed,
            "records": [record.file for record in self.records],
        }


def judge(cells: Sequence[Cell], records: Mapping[RunSpec, Record]) -> list[Outcome]:
    """Every cell with what the records say about it."""
    by_settings: dict[str, list[Record]] = {}
    for record in sorted(records.values(), key=lambda record: record.spec.seed):
        by_settings.setdefault(record.spec.settings, []).append(record)
    return [_judge(cell, by_settings.get(cell.run().settings, [])) for cell in cells]


def _judge(cell: Cell, records: Sequence[Record]) -> Outcome:
    found = [(record, values) for record in records if (values := measured_in(record, cell)) is not None]
    if not found:
        return Outcome(cell, (), None, {}, None, None)
    used = tuple(record for record, _ in found)
    columns = {name: [values[name] for _, values in found] for name in found[0][1]}
    measured = {name: statistics.fmean(values) for name, values in columns.items()}
    stderr = {name: statistics.stdev(values) / len(used) ** 0.5 for name, values in columns.items() if len(used) > 1}
    difference = {name: measured[name] - value for name, value in cell.values.items()}
    return Outcome(cell, used, measured, stderr, difference, passes(cell.values, measured))


def measured_in(record: Record, cell: Cell) -> dict[str, float] | None:
    """What a record says under the names of the cell's numbers; None if it has nothing for the cell."""
    if cell.table != "score-gap":
        return record.test
    for look in record.get("analysis", ()):
        if look["step"] == cell["step"] and look.get("negative_score") is not None:
            return {name: float(look[name]) for name in ("positive_score", "negative_score")}
    return None


def passes(published: Mapping[str, float], measured: Mapping[str, float]) -> bool:
    """Is the measurement as good as the published numbers, give or take? See `RULE`."""
    if "mrr" in published:
        return all(measured[name] >= published[name] - slack - ROUNDING for name, slack in TOLERANCE.items())
    return all(
        abs(measured[name] - value) <= max(SCORE_TOLERANCE, SCORE_SHARE * abs(value)) + ROUNDING
        for name, value in published.items()
    )


def summary(outcomes: Sequence[Outcome]) -> str:
    """``"12 of 20 cells pass, 1 fail, 7 not run"``."""
    count = {verdict: sum(outcome.passed is verdict for outcome in outcomes) for verdict in (True, False, None)}
    cells = "cell" if len(outcomes) == 1 else "cells"
    return f"{count[True]} of {len(outcomes)} {cells} pass, {count[False]} fail, {count[None]} not run"
