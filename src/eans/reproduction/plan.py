"""What has to be run: the runs that the chosen tables and figures need, less those that have a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eans.reproduction.cells import Cell
from eans.reproduction.records import Record, RunSpec
from eans.reproduction.selection import Selection

# What a record must have, besides metrics, for the tables and figures that show it.
NEEDS: dict[str, tuple[str, Callable[[Record], bool]]] = {
    "score-gap": ("analysis", lambda record: record.is_analysed),
    "negative-cdf": ("analysis", lambda record: any(look.get("cdf") for look in record.get("analysis", ()))),
    "substitution-histogram": (
        "analysis of substitution scores",
        lambda record: any("substitution" in look for look in record.get("analysis", ())),
    ),
    "order": ("order of entities", lambda record: bool(record.get("order"))),
}
OF_ONE_RUN = ("order",)  # drawn from the first seed alone


@dataclass(frozen=True)
class PlannedRun:
    """One run of a plan.

    Attributes:
        spec: what to run.
        uses: the tables and figures that need it.
        looks: steps at which the scores of its negatives are kept, for a table or a figure; none: they are not kept.
        record: it has one that serves; None if it has to be run.
        reason: why a record that is there does not serve.
        saved: the step that it goes on from, if it was begun before.
        at_a_time: how many runs, this one included, may share the device.
        questions: the ids of those that it answers, of the table ``choices``.
    """

    spec: RunSpec
    uses: tuple[str, ...]
    looks: tuple[int, ...]
    record: Record | None
    reason: str = ""
    saved: int = 0
    at_a_time: int = 1
    questions: tuple[str, ...] = ()

    @property
    def purposes(self) -> tuple[str, ...]:
        """The tables and figures that need it, with the questions that it answers: ``"choices (keep)"``."""
        asked = f" ({', '.join(self.questions)})" if self.questions else ""
        return tuple(f"{use}{asked}" if use == "choices" else use for use in self.uses)


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
    looks: dict[str, list[int]] = {}
    for cell in cells:
        if cell.table == "score-gap":
            looks.setdefault(cell.run().settings, []).append(cell["step"])
    questions: dict[RunSpec, list[str]] = {}
    for cell in selection.cells:
        uses.setdefault(cell.run(), []).append(cell.table)
        if cell.table == "choices":
            questions.setdefault(cell.run(), []).append(cell["question_id"])
    for figure in selection.figures:
        for cell in selection.drawn[figure]:
            uses.setdefault(cell.run(), []).append(figure)
    plan = []
    for seed in range(seeds):
        for first, names in uses.items():
            needed_by = tuple(dict.fromkeys(name for name in names if seed == 0 or name not in OF_ONE_RUN))
            if not needed_by:
                continue
            spec = RunSpec(first.recipe, first.overrides, seed)
            steps = tuple(sorted(set(looks.get(spec.settings, ()))))
            record, reason = records.get(spec), ""
            if record is not None and (reason := lacks(record, needed_by, steps)):
                record = None
            asked = tuple(dict.fromkeys(questions.get(first, ())))
            plan.append(PlannedRun(spec, needed_by, steps, record, reason, questions=asked))
    return plan


def lacks(record: Record, uses: Sequence[str], looks: Sequence[int] = ()) -> str:
    """Why a record does not serve tables and figures, in words; nothing if it does."""
    absent = [what for name in uses if name in NEEDS for what, there in (NEEDS[name],) if not there(record)]
    kept = [name for table, name in (("score-gap", "logged"), ("negative-cdf", "cdf")) if table in uses]
    if kept:
        seen = {look["step"] for look in record.get("analysis", ()) if all(look.get(name) for name in kept)}
        # A step that the run does not come to would be missed for ever.
        asked = [step for step in looks if step <= record.get("steps", step)]
        absent += [f"analysis at step {step:,}" for step in asked if step not in seen]
    return f"its record has no {absent[0]}" if absent else ""


def missing(plan: Sequence[PlannedRun]) -> list[PlannedRun]:
    """What has to be run."""
    return [run for run in plan if run.record is None]


def working_folder(records: Path) -> Path:
    """Where runs that are not finished keep their state: beside the records, not among them."""
    return records.parent / ".running" / records.name
