"""docs/reproduction.md from the records: published and measured, how it was measured, and notes written by hand."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from eans.files import atomic_write
from eans.reproduction import figures
from eans.reproduction.cells import Cell
from eans.reproduction.choices import question_texts
from eans.reproduction.columns import grouped
from eans.reproduction.formats import in_full, markdown_table, to_markdown
from eans.reproduction.labels import dataset, model
from eans.reproduction.records import Record, RunSpec
from eans.reproduction.report import Outcome, by_table, from_paper, judge, summary
from eans.reproduction.selection import FIGURES, drawn_from
from eans.reproduction.tables import PAPER_TABLES, TABLES, rules_in_words
from eans.wording import duration

HEAD = """\
# Reproduction

<!-- Written by `eans report --page docs/reproduction.md` from {records}; do not edit. The notes come from
src/eans/reproduction/notes.md. -->

The tables and figures of Je, *Entity Aware Negative Sampling with Auxiliary Loss of False Negative Prediction for
Knowledge Graph Embedding* (Findings of EMNLP 2022), with what this library measures beside what the paper prints.
Two tables more: [beyond the paper](#beyond-the-paper), and [what the open choices do](#what-the-open-choices-do).

```sh
eans reproduce main --only model=rotate,dataset=wn18rr --dry-run   # what it would run, and for how long
eans reproduce main --only model=rotate,dataset=wn18rr             # run what has no record yet, then report
eans report main --format markdown                                 # report on the records there are
```
"""
HOW = (
    "A run leaves one record, a small JSON file in `{records}/`: recipe, seed, commit, versions, hardware, time,"
    " metrics and learning curve. {rule} Numbers that the paper quotes from earlier work are judged alike and marked."
)
WIDTH = 120
FIGURE_TEXT = {
    "small-n": "MRR and Hits@10 against the number of negatives.",
    "negative-cdf": "How the negatives of a positive share the softmax weight.",
    "substitution-histogram": "Substitution scores of true and false negatives.",
    "order": "The line of entities of TransE with EANS after the last step.",
}


def render(cells: Sequence[Cell], records: Mapping[RunSpec, Record], folder: Path) -> str:
    """The page as Markdown; figures are linked where there is something to draw them from."""
    outcomes = judge(cells, records)
    notes = read_notes()
    name = folder.as_posix()
    parts = [HEAD.format(records=name), wrapped(HOW.format(records=name, rule=" ".join(rules_in_words(PAPER_TABLES))))]
    parts += [f"All in all: {summary(from_paper(outcomes))}.", notes["general"]]
    parts += ["## How it was measured", protocol(list(records.values()))]
    for table, rows in by_table(from_paper(outcomes)).items():
        parts += section(table, rows, notes.get(table, ""))
    parts += figure_section(cells, records)
    for table, rows in by_table(outcomes).items():
        if not TABLES[table].from_paper:
            parts += section(table, rows, notes.get(table, ""))
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def figure_section(cells: Sequence[Cell], records: Mapping[RunSpec, Record]) -> list[str]:
    """The figures that there is something to draw from."""
    drawable = [name for name in FIGURES if figures.can_draw(name, drawn_from(name, cells), records)]
    parts = ["## Figures"] if drawable else []
    for name in drawable:
        parts += [FIGURE_TEXT[name], f"![{FIGURE_TEXT[name]}](figures/{figures.file_name(name)}.png)"]
    return parts


def write(file: Path, cells: Sequence[Cell], records: Mapping[RunSpec, Record], folder: Path) -> None:
    """Write the page, and the figures that it links."""
    for name in FIGURES:
        figures.draw(name, drawn_from(name, cells), records, file.parent / "figures")
    atomic_write(file, render(cells, records, folder).encode())


def wrapped(text: str) -> str:
    """A paragraph in lines as long as those of the other pages."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def section(table: str, outcomes: Sequence[Outcome], note: str) -> list[str]:
    """A table with its title, its notes, what is known of its cells, and how to run one or some of them."""
    body = verdicts(table, outcomes, note) if TABLES[table].rule else answers(table, outcomes, note)
    return [f"## {TABLES[table].title}", *body]


def verdicts(table: str, outcomes: Sequence[Outcome], note: str) -> list[str]:
    """How many cells of a table pass, those that were run, and how to run one."""
    shown = [outcome for outcome in outcomes if outcome.records]
    rule = "" if TABLES[table].from_paper else wrapped(" ".join(rules_in_words((table,))))
    found = to_markdown(shown) if shown else "No cell of it has been run yet."
    one = f"One cell by itself:\n\n```sh\n{command(shown[0] if shown else outcomes[0])}\n```"
    return [f"`eans report {table}`: {summary(outcomes)}.", rule, note, found, one]


def answers(table: str, outcomes: Sequence[Outcome], note: str) -> list[str]:
    """The questions with a run besides their base, each with what it is about; then those that wait for one."""
    shown: list[Outcome] = []
    waiting: dict[str, list[str]] = {}
    for base, *others in grouped(outcomes, compared_with).values():
        if any(outcome.records for outcome in others):
            shown += [base, *others]
        else:
            place = f"{dataset(base.cell)} {model(base.cell)}"
            waiting.setdefault(base.cell["question"], []).append(place)
    parts = [f"`eans report {table}` shows all of them; nothing is judged.", note]
    texts = question_texts()
    for question, text in in_full(shown).items() if shown else ():
        parts += [f"### {question}", wrapped(texts[question]), markdown_table(text)]
    if waiting:
        names = [f"{question} ({', '.join(places)})" for question, places in waiting.items()]
        parts.append(wrapped(f"Not run yet: {'; '.join(names)}."))
    cell = (shown or outcomes)[0].cell
    only = f"dataset={cell['dataset']},model={cell['model']}"
    return [*parts, f"Those of one graph and model:\n\n```sh\neans reproduce {table} --only {only}\n```"]


def compared_with(outcome: Outcome) -> str:
    """What an alternative shares with its base: the question, and the base's settings."""
    cell = outcome.cell
    return f"{cell['question']}: {cell.get('base', cell.run().settings)}"


def command(outcome: Outcome) -> str:
    """What to type for one cell. Only `eans reproduce` analyses a run on the way, which scores come from."""
    cell, seed = outcome.cell, outcome.records[0].spec.seed if outcome.records else 0
    if cell.table == "score-gap":
        return f"eans reproduce score-gap --only sampler={cell['sampler']},step={cell['step']} --seeds {seed + 1}"
    return cell.run(seed).command


def protocol(records: Sequence[Record]) -> str:
    """How ranks were computed, which all recipes of the paper share, and what the records say: candidates, ties, device
    time, hardware, versions and commits.
    """
    if not records:
        return "Nothing has been run yet."
    ties = sorted({record["protocol"]["ties"] for record in records})
    device_time = duration(sum(record.total_seconds / record.beside for record in records))
    lines = [
        wrapped(
            "Filtered ranking of both sides of every test triple against"
            f" {' or '.join(sorted({record['protocol']['candidates'] for record in records}))}; train, valid and test"
            f" are filtered; {' and '.join(ties)} ties; the weights of the last step."
            f" {len(records)} {'run' if len(records) == 1 else 'runs'} in the records, {device_time} of device time."
        ),
        "",
        "| hardware | PyTorch | commit | runs |",
        "|---|---|---|---:|",
    ]
    rows: dict[tuple[str, str, str], int] = {}
    for record in records:
        torch = record.get("versions", {}).get("torch", "-")
        commit, plus, changes = record.get("commit", "-").partition("+")
        place = (record["hardware"], torch, f"`{commit[:12]}{plus}{changes}`")
        rows[place] = rows.get(place, 0) + 1
    return "\n".join([*lines, *(f"| {' | '.join(place)} | {count} |" for place, count in sorted(rows.items()))])


def read_notes() -> dict[str, str]:
    """The notes by the name of their table; ``general`` stands first on the page."""
    text = resources.files("eans.reproduction").joinpath("notes.md").read_text("utf-8")
    pieces = re.split(r"^# (\S+)\n", text, flags=re.MULTILINE)
    return {name: body.strip("\n") for name, body in zip(pieces[1::2], pieces[2::2], strict=True)}
