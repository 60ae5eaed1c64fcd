"""What the records say about each cell, beside what was published or a base measured, and whether that passes."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eans.experiments import Experiment, Record
from paper.cells import Cell
from paper.tables import TABLES

RecordsBySettings = Mapping[str, Sequence[Record]]


def seconds_by_company(records: Iterable[Record]) -> dict[tuple[int, str], list[float]]:
    """The training times of runs that can be compared, by how many there were at once, and on what hardware."""
    found: dict[tuple[int, str], list[float]] = {}
    for record in records:
        found.setdefault((round(record.get("runs_at_a_time", 1)), record["hardware"]), []).append(record["seconds"])
    return found


@dataclass(frozen=True)
class Outcome:
    """A cell and what was measured for it.

    Attributes:
        cell: what was published, or is asked.
        records: of its runs, by seed; empty when none was run.
        measured: means over the records; None when none was run.
        stderr: standard errors of these means; empty with fewer than two records.
        difference: measured less published, or less what the base of a choice measured; None when none was run.
        passed: did it pass? None when none was run, nothing was published, or ranks are of another kind.
    """

    cell: Cell
    records: tuple[Record, ...]
    measured: dict[str, float] | None
    stderr: dict[str, float]
    difference: dict[str, float] | None
    passed: bool | None

    @property
    def verdict(self) -> str:
        """In a word or two."""
        if self.passed is not None:
            return "pass" if self.passed else "fail"
        return "not judged" if self.records else "not run"

    @property
    def ranked_otherwise(self) -> bool:
        """Are some of its ranks of another kind than the published ones?"""
        return not all(map(ranked_as_usual, self.records))

    @property
    def recipes_differ(self) -> bool:
        """Were the seeds run with different recipes? Then their mean says little."""
        return len({record["recipe_hash"] for record in self.records if record.get("recipe_hash")}) > 1

    def to_dict(self) -> dict[str, Any]:
        """The cell's fields, then what was measured; ``seconds`` is the mean over runs with the least company."""
        timings = sorted(seconds_by_company(self.records).items())
        (at_a_time, _), seconds = timings[0] if timings else ((None, None), [])
        return {
            **self.cell.fields,
            "measured": self.measured,
            "difference": self.difference,
            "pass": self.passed,
            "records": [record.file for record in self.records],
            "stderr": self.stderr,
            "seeds": [record.experiment.seed for record in self.records],
            "seconds": statistics.fmean(seconds) if seconds else None,
            "runs_at_a_time": at_a_time,
            "hardware": "; ".join(dict.fromkeys(record["hardware"] for record in self.records)) or None,
        }


def judge(cells: Sequence[Cell], records: Mapping[Experiment, Record]) -> list[Outcome]:
    """Every cell with what the records say about it."""
    by_settings: dict[str, list[Record]] = {}
    for record in sorted(records.values(), key=lambda record: record.experiment.seed):
        by_settings.setdefault(record.experiment.settings, []).append(record)
    return [_judge(cell, by_settings) for cell in cells]


def _judge(cell: Cell, records: RecordsBySettings) -> Outcome:
    used, samples = _samples(cell, records.get(cell.run().settings, ()))
    if not used:
        return Outcome(cell, (), None, {}, None, None)
    measured = _means(samples)
    stderr = {name: statistics.stdev(values) / len(used) ** 0.5 for name, values in samples.items() if len(used) > 1}
    reference = _means(_samples(cell, records.get(cell["base"], ()))[1]) if "base" in cell.fields else cell.values
    # Published numbers have few digits; what floating point leaves behind the ninth is none of the difference.
    difference = {name: round(measured[name] - value, 9) for name, value in reference.items() if name in measured}
    rule = TABLES[cell.table].rule if cell.values and all(map(ranked_as_usual, used)) else None
    return Outcome(cell, used, measured, stderr, difference, rule.passes(cell.values, measured) if rule else None)


def ranked_as_usual(record: Record) -> bool:
    """Is a record's ranking that of the field? Numbers from another one say nothing about a published one."""
    protocol = record["protocol"]
    return bool(protocol["ties"] == "realistic" and protocol["candidates"].startswith("all "))


def _samples(cell: Cell, records: Sequence[Record]) -> tuple[tuple[Record, ...], dict[str, list[float]]]:
    """The records that have something for the cell, and the numbers that all of these know, one per record."""
    measure = TABLES[cell.table].measure.take
    found = [(record, numbers) for record in records if (numbers := measure(record, cell)) is not None]
    names = [name for name in found[0][1] if all(name in numbers for _, numbers in found)] if found else []
    return tuple(record for record, _ in found), {name: [numbers[name] for _, numbers in found] for name in names}


def _means(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.fmean(values) for name, values in samples.items()}


# --- all in all -----------------------------------------------------------------------------------------------------


def by_table(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes of each table that has one, in the order of the tables."""
    found = {table: [outcome for outcome in outcomes if outcome.cell.table == table] for table in TABLES}
    return {table: rows for table, rows in found.items() if rows}


def from_paper(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those of the paper's cells."""
    return [outcome for outcome in outcomes if TABLES[outcome.cell.table].from_paper]


def counted(outcomes: Sequence[Outcome]) -> Counter[str]:
    """How many cells have each verdict."""
    return Counter(outcome.verdict for outcome in outcomes)


def summary(outcomes: Sequence[Outcome]) -> str:
    """``"12 of 20 cells pass, 1 fail, 7 not run"``; and how many are not judged, if any."""
    count = counted(outcomes)
    others = f", {count['not judged']} not judged" if count["not judged"] else ""
    return f"{count['pass']} of {len(outcomes)} cells pass, {count['fail']} fail, {count['not run']} not run{others}"


def summaries(outcomes: Sequence[Outcome]) -> list[str]:
    """How many of the paper's cells pass, all together, and how many of each other table in which cells are judged."""
    paper = from_paper(outcomes)
    others = {name: rows for name, rows in by_table(outcomes).items() if not TABLES[name].from_paper}
    found = [summary(paper)] if paper else []
    return found + [f"{TABLES[name].title}: {summary(rows)}" for name, rows in others.items() if TABLES[name].rule]
