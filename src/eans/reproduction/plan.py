"""What has to be run: the runs that the chosen tables and figures need, less those that have a record."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from eans.reproduction.cells import Cell
from eans.reproduction.records import Record, RunSpec
from eans.reproduction.selection import Selection

ANALYSED_FIGURES = ("negative-cdf", "substitution-histogram", "order")


@dataclass(frozen=True)
class PlannedRun:
    """One run of a plan.

    Attributes:
        spec: what to run.
        uses: the tables and figures that need it.
        analyse: keep the scores of its negatives on the way, which a table or a figure of the paper shows.
        record: it has one that serves; None if it has to be run.
        reason: why a record that is there does not serve.
    """

    spec: RunSpec
    uses: tuple[str, ...]
    analyse: bool
    record: Record | None
    reason: str = ""


class Estimate(NamedTuple):
    """Seconds that a run takes when it has the device to itself, and whether they are those of a similar run."""

    seconds: float
    similar: bool


def make_plan(
    selection: Selection, cells: Sequence[Cell], seeds: int, records: Mapping[RunSpec, Record]
) -> list[PlannedRun]:
    """Every run of the selection, once each, seed by seed.

    Args:
        selection: what was asked for.
        cells: all there are: a run that a table not asked for needs analysed is analysed too, and serves it later.
        seeds: 0 up to this number.
        records: of the runs that were made before.
    """
    uses: dict[RunSpec, list[str]] = {}
    analysed = {cell.run().settings for cell in cells if cell.table == "score-gap"}
    for cell in selection.cells:
        uses.setdefault(cell.run(), []).append(cell.table)
    for figure in selection.figures:
        for cell in selection.drawn[figure]:
            uses.setdefault(cell.run(), []).append(figure)
    plan = []
    for seed in range(seeds):
        for first, names in uses.items():
            spec = RunSpec(first.recipe, first.overrides, seed)
            analyse = spec.settings in analysed
            record, reason = records.get(spec), ""
            if record is not None and not record.is_analysed and set(names) & {"score-gap", *ANALYSED_FIGURES}:
                record, reason = None, "its record has no analysis"
            plan.append(PlannedRun(spec, tuple(dict.fromkeys(names)), analyse, record, reason))
    return plan


def missing(plan: Sequence[PlannedRun]) -> list[PlannedRun]:
    """What has to be run."""
    return [run for run in plan if run.record is None]


def estimate(spec: RunSpec, records: Mapping[RunSpec, Record], hardware: str) -> Estimate | None:
    """How long a run takes, from records of this hardware; None where they say nothing.

    The same settings with another seed take as long. Failing that, the same model on the same graph with another method
    or number of negatives gives the scale. Runs that shared the device count by their share of it.
    """
    here = [record for record in records.values() if record["hardware"] == hardware]
    same = [record for record in here if record.spec.settings == spec.settings]
    if same:
        return Estimate(statistics.fmean(record.total_seconds / record.beside for record in same), False)
    place = spec.recipe.rpartition("/")[0]
    near = [record for record in here if record.spec.recipe.rpartition("/")[0] == place]
    if near:
        return Estimate(statistics.fmean(record.total_seconds / record.beside for record in near), True)
    return None


def working_folder(records: Path) -> Path:
    """Where runs that are not finished keep their state: beside the records, not among them."""
    return records.parent / ".running" / records.name
