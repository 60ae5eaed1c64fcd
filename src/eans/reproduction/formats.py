"""A report as text: Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from eans.reproduction.columns import Text
from eans.reproduction.labels import NUMBERS
from eans.reproduction.layouts import LAYOUTS
from eans.reproduction.report import Outcome, by_table
from eans.reproduction.tables import TABLES

FORMATS = ("table", "markdown", "latex", "csv", "json")
LATEX = str.maketrans({"%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "±": r"$\pm$"})


def in_full(outcomes: Sequence[Outcome]) -> dict[str, Text]:
    """The outcomes of one table as text, by the titles of its parts; one without a title if it is not divided."""
    return LAYOUTS[outcomes[0].cell.table].full(outcomes)


def to_markdown(outcomes: Sequence[Outcome]) -> str:
    """The outcomes of one table in Markdown; its parts have headings of the third level."""
    parts = [(f"### {title}\n\n" if title else "") + markdown_table(text) for title, text in in_full(outcomes).items()]
    return "\n\n".join(parts)


def markdown_table(text: Text) -> str:
    """A Markdown table."""
    marks = ["---" if text.is_left(place) else "---:" for place in range(len(text.header))]
    lines = [f"| {' | '.join(cells)} |" for cells in (text.header, *text.rows)]
    return "\n".join([lines[0], f"|{'|'.join(marks)}|", *lines[1:]])


def to_latex(outcomes: Sequence[Outcome]) -> str:
    """The outcomes of one table in LaTeX; titles of its parts are comments."""
    parts = [(f"% {title}\n" if title else "") + latex_table(text) for title, text in in_full(outcomes).items()]
    return "\n\n".join(parts)


def latex_table(text: Text) -> str:
    """A LaTeX ``tabular``; the rules are those of the package ``booktabs``."""
    shape = "".join("l" if text.is_left(place) else "r" for place in range(len(text.header)))
    lines = [f"{' & '.join(cell.translate(LATEX) for cell in cells)} \\\\" for cells in (text.header, *text.rows)]
    body = ["\\toprule", lines[0], "\\midrule", *lines[1:], "\\bottomrule"]
    return "\n".join([f"\\begin{{tabular}}{{{shape}}}", *body, "\\end{tabular}"])


def to_csv(outcomes: Sequence[Outcome]) -> str:
    """One line per cell, all numbers in full; empty where there is none."""
    measured = {name for outcome in outcomes for name in TABLES[outcome.cell.table].measure.names}
    names = [name for name in NUMBERS if name in measured]
    fields = list(dict.fromkeys(key for outcome in outcomes for key in outcome.cell.fields))
    beside = [f"{kind}_{name}" for name in names for kind in ("measured", "stderr", "difference")]
    out = io.StringIO()
    writer = csv.DictWriter(
        out, [*fields, *beside, "seeds", "pass", "seconds", "hardware", "records"], lineterminator="\n"
    )
    writer.writeheader()
    for outcome in outcomes:
        given = outcome.cell.fields.items()
        row = {key: " ".join(value) if isinstance(value, list) else value for key, value in given}
        for kind in ("measured", "stderr", "difference"):
            row |= {f"{kind}_{name}": value for name, value in (getattr(outcome, kind) or {}).items()}
        row |= {"seeds": len(outcome.records), "seconds": outcome.seconds, "hardware": outcome.hardware}
        row |= {"pass": outcome.passed, "records": " ".join(record.file for record in outcome.records)}
        writer.writerow(row)
    return out.getvalue()


def to_json(outcomes: Sequence[Outcome]) -> str:
    """A list of cells: their fields, then measured, difference, pass and records."""
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
