"""A report as text: Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import textwrap
from collections.abc import Mapping, Sequence

from eans.reproduction import latex
from eans.reproduction.cells import BEHIND, VALUES
from eans.reproduction.columns import Text
from eans.reproduction.labels import NUMBERS
from eans.reproduction.layouts import LAYOUTS, PAGE, PRINTED
from eans.reproduction.report import Outcome, by_table
from eans.reproduction.tables import TABLES, rules_in_words

FORMATS = ("table", "markdown", "latex", "csv", "json")
WIDTH = 120
KINDS = ("measured", "stderr", "difference")  # of a number, one column each in a CSV


def to_markdown(outcomes: Sequence[Outcome], *, rules: bool = True) -> str:
    """The outcomes of one table in Markdown; its parts have headings of the third level, and notes stand below."""
    name = outcomes[0].cell.table
    texts = LAYOUTS[name](PAGE, outcomes)
    parts = [(f"### {title}\n\n" if title else "") + markdown_table(text) for title, text in texts.items()]
    notes = remarks(texts, (name,) if rules else ())
    return "\n\n".join([*parts, *([wrapped(" ".join(notes))] if notes else [])])


def markdown_table(text: Text) -> str:
    """A Markdown table."""
    marks = ["---" if text.is_left(place) else "---:" for place in range(len(text.header))]
    lines = [f"| {' | '.join(cells)} |" for cells in (text.headings, *text.rows)]
    return "\n".join([lines[0], f"|{'|'.join(marks)}|", *lines[1:]])


def remarks(texts: Mapping[str, Text], judged: tuple[str, ...] = ()) -> list[str]:
    """The rules of the judged tables, and what is to be read with texts; each once."""
    return list(dict.fromkeys([*rules_in_words(judged), *(note for text in texts.values() for note in text.notes)]))


def wrapped(text: str) -> str:
    """A paragraph in lines as long as those of the other pages."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def to_latex(outcomes: Sequence[Outcome]) -> str:
    """The outcomes of one table in LaTeX: a ``tabular`` for each of its parts, with notes below the last."""
    name = outcomes[0].cell.table
    texts = LAYOUTS[name](PRINTED, outcomes)
    notes = remarks(texts, (name,))
    parts = [latex.tabular(title, text) for title, text in texts.items()]
    return f"{latex.NEEDS}\n" + "\n\n".join([*parts, *([latex.remarks(notes)] if notes else [])])


def to_csv(outcomes: Sequence[Outcome]) -> str:
    """One line per cell, all numbers in full; empty where there is none. What was published is called so."""
    measured = {name for outcome in outcomes for name in TABLES[outcome.cell.table].measure.names}
    names = [name for name in NUMBERS if name in measured]
    fields = list(dict.fromkeys(key for outcome in outcomes for key in outcome.cell.fields))
    beside = [f"{kind}_{name}" for name in names for kind in KINDS]
    runs = ["seeds", "pass", "seconds", "runs_at_a_time", "hardware", "records"]
    out = io.StringIO()
    called = {key: f"published_{key}" if key in (*VALUES, *BEHIND) else key for key in (*fields, *beside, *runs)}
    writer = csv.DictWriter(out, list(called), lineterminator="\n")
    writer.writerow(called)
    for outcome in outcomes:
        found = outcome.to_dict()
        row = {key: found[key] for key in (*outcome.cell.fields, *runs)}
        for kind in KINDS:
            row |= {f"{kind}_{name}": value for name, value in (found[kind] or {}).items()}
        writer.writerow(
            {key: " ".join(map(str, value)) if isinstance(value, list) else value for key, value in row.items()}
        )
    return out.getvalue()


def to_json(outcomes: Sequence[Outcome]) -> str:
    """A list of cells: their fields, then measured, difference, pass, records, and how these came about."""
    return json.dumps([outcome.to_dict() for outcome in outcomes], indent=2)


def render(outcomes: Sequence[Outcome], format_: str) -> str:
    """The whole report in one of the formats for programs and pages."""
    if format_ == "json":
        return to_json(outcomes)
    if format_ == "csv":
        return to_csv(outcomes).rstrip("\n")
    tables = by_table(outcomes).items()
    if format_ == "latex":
        return "\n\n".join(f"% {TABLES[name].title}\n{to_latex(rows)}" for name, rows in tables)
    return "\n\n".join(f"## {TABLES[name].title}\n\n{to_markdown(rows)}" for name, rows in tables)
