"""docs/results/reproduction.md from the records: published and measured, how, and notes written by hand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from eans.experiments import Experiment, Record, Table
from eans.files import atomic_write
from eans.progress import duration
from paper import figures, recommendation
from paper.captions import SHOWS, caption
from paper.cells import Cell
from paper.choices import question_texts
from paper.figure_data import find
from paper.labels import dataset, model
from paper.layouts import LAYOUTS, compared_with, grouped, remarks, to_markdown, wrapped
from paper.overview import not_run, overview
from paper.report import Outcome, by_table, from_paper, judge, seconds_by_company, summary
from paper.selection import FIGURES, drawn_from
from paper.tables import PAPER_TABLES, TABLES, rules_in_words

HEAD = """\
# Reproduction

<!-- Written by `python -m paper report --page docs/results/reproduction.md` from {records}; do not edit. The notes
come from paper/notes.md. -->

The tables and figures of Je, *Entity Aware Negative Sampling with Auxiliary Loss of False Negative Prediction for
Knowledge Graph Embedding* (Findings of EMNLP 2022), with what this library measures beside what the paper prints.
[What makes the difference](#what-makes-the-difference) has the findings in short. Two tables more:
[beyond the paper](#beyond-the-paper), and [what the open choices do](#what-the-open-choices-do). At the end:
[what the paper does not say](#what-the-paper-does-not-say), and [how it was measured](#how-it-was-measured), with the
commands.
"""
HOW = (
    "A run leaves one record, a small JSON file in `{records}/`: recipe, seed, commit, versions, hardware, time,"
    " metrics and learning curve."
)
JUDGED = "Numbers that the paper quotes from earlier work are judged alike and marked."
COMMANDS = """\
```sh
python -m paper reproduce main --only model=rotate,dataset=wn18rr --dry-run  # what it would run, and about how long
python -m paper reproduce main --only model=rotate,dataset=wn18rr            # run what has no record, then report
python -m paper report main --format markdown                                # report on the records there are
eans train wn18rr/rotate/eans+adv --seed 0                                   # one run by itself, to keep its model
```
"""


def render(cells: Sequence[Cell], records: Mapping[Experiment, Record], folder: Path) -> str:
    """The page as Markdown; figures are linked where there is something to draw them from."""
    outcomes = judge(cells, records)
    notes = read_notes()
    name = folder.as_posix()
    rules = " ".join([*rules_in_words(PAPER_TABLES), JUDGED])
    parts = [
        HEAD.format(records=name),
        notes["words"],
        *overview(outcomes),
        wrapped(rules),
        notes["findings"],
    ]
    for table, rows in by_table(from_paper(outcomes)).items():
        parts += section(table, rows, notes.get(table, ""))
    parts += figure_section(cells, records)
    for table, rows in by_table(outcomes).items():
        if not TABLES[table].from_paper:
            parts += section(table, rows, notes.get(table, ""))
    how = [wrapped(HOW.format(records=name)), COMMANDS, protocol(list(records.values()))]
    parts += [notes["general"], "## How it was measured", *how]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def figure_section(cells: Sequence[Cell], records: Mapping[Experiment, Record]) -> list[str]:
    """The figures that there is something to draw from, each with its caption below."""
    parts = []
    for name in FIGURES:
        chosen = drawn_from(name, cells)
        if data := find(name, chosen, records):
            file, width = f"figures/{figures.file_name(name)}.png", figures.width_on_a_page(name, data)
            image = f'<img src="{file}" width="{width}" alt="{SHOWS[name]}">'
            parts += [image, wrapped(caption(name, data, chosen, records))]
    return ["## Figures", *parts] if parts else []


def write(file: Path, cells: Sequence[Cell], records: Mapping[Experiment, Record], folder: Path) -> None:
    """Write the page, the figures that it links, and the recommendation beside it."""
    for name in FIGURES:
        figures.draw(name, drawn_from(name, cells), records, file.parent / "figures")
    atomic_write(file, render(cells, records, folder).encode())
    atomic_write(file.with_name("recommendation.md"), recommendation.render(records.values()).encode())


def section(table: str, outcomes: Sequence[Outcome], note: str) -> list[str]:
    """A table with its title, its notes, and what is known of its cells."""
    body = verdicts(table, outcomes, note) if TABLES[table].rule else answers(table, outcomes, note)
    return [f"## {TABLES[table].title}", *body]


def verdicts(table: str, outcomes: Sequence[Outcome], note: str) -> list[str]:
    """How many cells of a table pass, those that were run, and those that were not.

    What has a heading in the note stands below the cells, what comes before that above them.
    """
    shown = [outcome for outcome in outcomes if outcome.records]
    rule = "" if TABLES[table].from_paper else wrapped(" ".join(rules_in_words((table,))))
    before, heading, below = note.partition("### ")
    parts = [f"`python -m paper report {table}`: {summary(outcomes)}.", rule, before]
    if not shown:
        parts.append("No cell of it has been run yet.")
    else:
        waiting = not_run(outcomes)
        parts += [to_markdown(shown, rules=False), wrapped(f"Not run yet: {waiting}.") if waiting else ""]
    return [*parts, heading + below]


def answers(table: str, outcomes: Sequence[Outcome], note: str) -> list[str]:
    """The questions with a run besides their base, each with what it is about; then those that wait for one."""
    shown: list[Outcome] = []
    waiting: dict[str, dict[str, None]] = {}  # where, each place once
    bases = grouped(outcomes, lambda outcome: f"{outcome.cell['question']}: {compared_with(outcome)}")
    for base, *others in bases.values():
        if any(outcome.records for outcome in others):
            shown += [base, *others]
        else:
            place = f"{dataset(base.cell)} {model(base.cell)}"
            waiting.setdefault(base.cell["question"], {})[place] = None
    parts = [f"`python -m paper report {table}` shows all of them; nothing is judged.", note]
    about, texts = question_texts(), LAYOUTS[table](shown)
    for question, text in texts.items():
        parts += [f"### {question}", wrapped(about[question]), text.table.markdown()]
    parts.append(wrapped(" ".join(remarks(texts))))
    if waiting:
        names = [f"{question} ({', '.join(places)})" for question, places in waiting.items()]
        parts.append(wrapped(f"Not run yet: {'; '.join(names)}."))
    return parts


def protocol(records: Sequence[Record]) -> str:
    """How ranks were computed, which all recipes of the paper share, and what the records say: candidates, ties; times
    by hardware, and how many runs shared it; versions and commits.
    """
    if not records:
        return "Nothing has been run yet."
    ties = sorted({record["protocol"]["ties"] for record in records})
    spent: dict[str, float] = {}
    for record in records:
        seconds = record.get("total_seconds", record["seconds"]) / record.get("runs_at_a_time", 1)
        spent[record["hardware"]] = spent.get(record["hardware"], 0.0) + seconds
    device_time = ", ".join(f"{duration(seconds)} on {hardware}" for hardware, seconds in sorted(spent.items()))
    ranking = wrapped(
        "Filtered ranking of both sides of every test triple against"
        f" {' or '.join(sorted({record['protocol']['candidates'] for record in records}))}; train, valid and test"
        f" are filtered; {' and '.join(ties)} ties; the weights of the last step, unless a recipe or a setting says"
        f" otherwise. {len(records)} {'run' if len(records) == 1 else 'runs'} in the records: {device_time}, where the"
        " time of a run that shared a device is divided by the number of runs that did. Their whole times, below, are"
        " longer than those of runs alone. A number before the name of a processor counts its cores."
    )
    return "\n\n".join([ranking, training_times(records), versions(records)])


def training_times(records: Sequence[Record]) -> str:
    """Where runs were made, how many at once, and how long training took."""
    rows = []
    for (at_once, hardware), seconds in seconds_by_company(records).items():
        shortest, longest = duration(min(seconds)), duration(max(seconds))
        span = shortest if shortest == longest else f"{shortest} to {longest}"
        rows.append((hardware, at_once, len(seconds), span))
    header = ["hardware", "at once", "runs", "training time of a run"]
    return Table(header, [list(row) for row in sorted(rows)], labels=1).markdown()


def versions(records: Sequence[Record]) -> str:
    """By which commits and versions of PyTorch."""
    found: Counter[tuple[str, str]] = Counter()
    for record in records:
        commit, plus, changes = record.get("commit", "-").partition("+")
        found[f"`{commit[:12]}{plus}{changes}`", record.get("versions", {}).get("torch", "-")] += 1
    header = ["commit", "PyTorch", "runs"]
    rows = [[*place, str(count)] for place, count in sorted(found.items())]
    return Table(header, rows, labels=2).markdown()


def read_notes() -> dict[str, str]:
    """The notes by the name of their table; ``words`` and ``findings`` stand before all tables, ``general`` behind."""
    text = Path(__file__).with_name("notes.md").read_text("utf-8")
    pieces = re.split(r"^# (\S+)\n", text, flags=re.MULTILINE)
    return {name: body.strip("\n") for name, body in zip(pieces[1::2], pieces[2::2], strict=True)}
