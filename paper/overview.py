"""What the page says before all tables: how many cells pass, which do not, and how many runs that is from."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from eans.experiments import Table
from paper import labels
from paper.layouts import Column, compared, grouped, in_order, marked, wrapped
from paper.report import Outcome, by_table, counted, from_paper
from paper.tables import TABLES

# What cells are told apart by, the coarsest first.
LEVELS: tuple[Callable[[Outcome], str], ...] = (
    lambda outcome: labels.dataset(outcome.cell),
    lambda outcome: labels.model(outcome.cell),
    lambda outcome: labels.method(outcome.cell),
    lambda outcome: labels.count(outcome.cell),
)


def overview(outcomes: Sequence[Outcome]) -> list[str]:
    """The paragraphs about all judged cells."""
    judged = [outcome for outcome in outcomes if TABLES[outcome.cell.table].rule]
    return [totals(judged), wrapped(evidence(judged)), *misses(judged)]


def totals(outcomes: Sequence[Outcome]) -> str:
    """How many cells of each table have each verdict, the paper's counted together."""
    otherwise = ["not judged"] if counted(outcomes)["not judged"] else []
    header = ["table", "cells", "pass", "fail", "not run", *otherwise]

    def row(name: str, cells: Sequence[Outcome]) -> list[str]:
        count = counted(cells)
        return [name, str(len(cells)), *(str(count[verdict]) for verdict in header[2:])]

    tables = {name: row(link(name), cells) for name, cells in by_table(outcomes).items()}
    paper = [cells for name, cells in tables.items() if TABLES[name].from_paper]
    beyond = [cells for name, cells in tables.items() if not TABLES[name].from_paper]
    rows = [*paper, row("**the paper, all in all**", from_paper(outcomes)), *beyond]
    return Table(header, rows, labels=1).markdown()


def evidence(outcomes: Sequence[Outcome]) -> str:
    """How many runs the verdicts rest on, and how many verdicts on a single one."""
    run = [outcome for outcome in outcomes if outcome.passed is not None]
    if not run:
        return "Nothing has been run yet." if not any(outcome.records for outcome in outcomes) else "Nothing is judged."
    runs = len({record.file for outcome in run for record in outcome.records})
    rest_on = f"{runs} {'run' if runs == 1 else 'runs'}"
    if len(run) == 1:
        return f"The verdict on 1 cell rests on {rest_on}."
    single = sum(len(outcome.records) == 1 for outcome in run)
    return (
        f"The verdicts on {len(run)} cells rest on {rest_on}, as tables share them;"
        f" {single or 'none'} of these cells {'has' if single == 1 else 'have'} been run with one seed only."
    )


def misses(outcomes: Sequence[Outcome]) -> list[str]:
    """The cells that fail, with the numbers that they are judged by."""
    missed = [outcome for outcome in outcomes if outcome.passed is False]
    if not missed:
        return []
    lines, name_of = [], marked(Column("cell", cell_name))
    for name, group in by_table(missed).items():
        rule = TABLES[name].rule
        columns = {number: compared(number) for number in (rule.judged if rule else ())}
        for outcome in in_order(group):
            found = [f"{labels.NUMBERS[number]} {column.write(outcome)}" for number, column in columns.items()]
            lines.append(f"- {link(name)}, {name_of.write(outcome)}: {', '.join(found)}")
    return ["Cells that fail, published → measured (difference):", "\n".join(lines)]


def cell_name(outcome: Outcome) -> str:
    """A cell by what it is told apart by."""
    dataset, model, *others = (level(outcome) for level in LEVELS)
    return ", ".join(filter(None, [f"{dataset} {model}", *others]))


def link(table: str) -> str:
    """A link to a table's section of the page."""
    title = TABLES[table].title
    return f"[{title}](#{anchor(title)})"


def anchor(title: str) -> str:
    """The name that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def not_run(outcomes: Sequence[Outcome]) -> str:
    """Which cells have no run: ``FB15k-237: TransD, RotatE (uniform); WN18RR``; nothing where all have one.

    Where everything below a name is missing, the name alone says so; what all cells share is not said.
    """
    return _not_run(in_order(outcomes), 0)


def _not_run(outcomes: Sequence[Outcome], depth: int) -> str:
    groups = grouped(outcomes, LEVELS[depth])
    found = []
    for name, group in groups.items():
        if all(outcome.records for outcome in group):
            continue
        some = any(outcome.records for outcome in group)
        below = _not_run(group, depth + 1) if some else ""
        if below and len(groups) == 1:
            return below
        found.append((f"{name}: {below}" if depth == 0 else f"{name} ({below})") if below else name)
    # n = 4, 8, 16: the sign is not repeated
    return ("; " if depth == 0 else ", ").join([*found[:1], *(name.removeprefix("n = ") for name in found[1:])])
