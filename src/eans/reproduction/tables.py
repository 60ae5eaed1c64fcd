"""A report as text: Markdown, LaTeX, CSV or JSON, from the same columns."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import NamedTuple

from eans.reproduction.published import Cell
from eans.reproduction.report import Outcome
from eans.wording import duration

FORMATS = ("table", "markdown", "latex", "csv", "json")
TITLES = {
    "main": "Main results",
    "variance": "Variance over seeds",
    "small-n": "Few negatives",
    "one-negative": "One negative",
    "ablation": "Ablation",
    "score-gap": "Scores of positives and negatives",
}
DATASETS = {"fb15k-237": "FB15k-237", "wn18rr": "WN18RR"}
MODELS = {"transe": "TransE", "transd": "TransD", "distmult": "DistMult", "complex": "ComplEx", "rotate": "RotatE"}
SAMPLERS = {"uniform": "uniform", "kbgan": "KBGAN", "nscaching": "NSCaching", "sans": "SANS", "eans": "EANS"}
NUMBERS = {"mr": "MR", "mrr": "MRR", "hits10": "Hits@10", "positive_score": "positive", "negative_score": "negative"}
QUOTED, MIXED = "numbers that the paper takes from earlier work", "means over seeds whose recipes differ"
MARKS = {"quoted": QUOTED, "*": QUOTED, "recipes differ": MIXED, "!": MIXED}
LATEX = str.maketrans({"%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "±": r"$\pm$"})


class Text(NamedTuple):
    """A table of strings; the first columns, which say what was run, stand flush left."""

    header: list[str]
    rows: list[list[str]]
    labels: int


def label(cell: Cell) -> str:
    """The method as a table names it."""
    if "sampler" not in cell.fields:
        halves = [name for key, name in (("gaussian", "Gaussian"), ("substitution", "substitution")) if cell[key]]
        return " + ".join(halves) or "uniform"
    name = SAMPLERS.get(cell["sampler"], str(cell["sampler"]))
    if not cell.get("self_adversarial"):
        return name
    return "self-adversarial" if cell["sampler"] == "uniform" else f"{name} + self-adv."


def number(name: str, value: float | None) -> str:
    """A metric as people write it; a dash where there is none."""
    if value is None:
        return "-"
    return f"{value:.0f}" if name == "mr" else f"{value:.4f}"


def target(name: str, value: float | None) -> str:
    """A published number, to the places that the paper prints."""
    if value is None:
        return "-"
    return f"{value:.0f}" if name == "mr" else f"{value:.3f}"


def signed(name: str, value: float | None) -> str:
    """A difference with its sign."""
    if value is None:
        return "-"
    return f"{value:+.0f}" if name == "mr" else f"{value:+.4f}"


def columns(outcomes: Sequence[Outcome]) -> list[str]:
    """The names of the numbers that a table of these cells has, in their order."""
    return [name for name in NUMBERS if any(name in outcome.cell.fields for outcome in outcomes)]


def text_table(outcomes: Sequence[Outcome]) -> Text:
    """One table for people: published, measured with its standard error, and difference for each number."""
    names, extra = columns(outcomes), counts(outcomes)
    header = ["dataset", "model", "negatives", *extra.values()]
    labels = len(header)
    for name in names:
        header += [f"{NUMBERS[name]} published", "measured", "difference"]
    header += ["seeds", "verdict", "time", "hardware"]
    rows = []
    for outcome in outcomes:
        cell, difference = outcome.cell, outcome.difference or {}
        row = [*place(cell), label(cell), *(f"{cell[key]:,}" if key in cell.fields else "" for key in extra)]
        for name in names:
            row += [target(name, cell.get(name)), measured(name, outcome), signed(name, difference.get(name))]
        rows.append([*row, seeds(outcome), verdict(outcome), duration(outcome.seconds), outcome.hardware or "-"])
    return Text(header, rows, labels)


def brief_tables(outcomes: Sequence[Outcome]) -> dict[str, Text]:
    """Tables for a narrow screen, 80 columns or so: one per dataset, by a title that says what all its rows share.

    They leave out mean ranks, differences, times and hardware.
    """
    found = {}
    for dataset in dict.fromkeys(outcome.cell["dataset"] for outcome in outcomes):
        group = [outcome for outcome in outcomes if outcome.cell["dataset"] == dataset]
        names, extra = [name for name in columns(group) if name != "mr"], counts(group)
        title, model = place(group[0].cell)
        several = len({outcome.cell["model"] for outcome in group}) > 1
        header = [*(["model"] if several else []), "negatives", *extra.values()]
        labels = len(header)
        for name in names:
            header += [f"{NUMBERS[name]} paper", "ours"]
        rows = []
        for outcome in group:
            cell = outcome.cell
            row = [*place(cell)[1:]] if several else []
            row += [label(cell).replace("adversarial", "adv.").replace(" + ", "+")]
            row += [f"{cell[key]:,}" if key in cell.fields else "" for key in extra]
            for name in names:
                row += [target(name, cell.get(name)), measured(name, outcome).replace(" ", "")]
            rows.append([*row, seeds(outcome), verdict(outcome, brief=True)])
        found[title if several else f"{title}, {model}"] = Text([*header, "seeds", "verdict"], rows, labels)
    return found


def place(cell: Cell) -> list[str]:
    """Dataset and model as a table names them."""
    return [DATASETS.get(cell["dataset"], cell["dataset"]), MODELS.get(cell["model"], cell["model"])]


def counts(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """The numbers that say what was run in some of the cells, and their headings."""
    headings = {"negatives": "n", "step": "step"}
    return {key: text for key, text in headings.items() if any(key in outcome.cell.fields for outcome in outcomes)}


def measured(name: str, outcome: Outcome) -> str:
    """A measured mean with its standard error, where there is one."""
    error = f" ± {outcome.stderr[name]:.{0 if name == 'mr' else 4}f}" if name in outcome.stderr else ""
    return number(name, (outcome.measured or {}).get(name)) + error


def seeds(outcome: Outcome) -> str:
    """``0-2`` for three seeds in a row, ``0, 5`` otherwise; a dash without runs."""
    found = sorted(record["seed"] for record in outcome.records)
    if len(found) > 1 and found == list(range(found[0], found[-1] + 1)):
        return f"{found[0]}-{found[-1]}"
    return ", ".join(map(str, found)) or "-"


def verdict(outcome: Outcome, brief: bool = False) -> str:
    """Pass, fail or not run; `MARKS` says what is marked."""
    if brief:
        return outcome.verdict + ("" if outcome.cell["own"] else "*") + ("!" if outcome.recipes_differ else "")
    marks = [*([] if outcome.cell["own"] else ["quoted"]), *(["recipes differ"] if outcome.recipes_differ else [])]
    return outcome.verdict + (f" ({', '.join(marks)})" if marks else "")


def to_markdown(outcomes: Sequence[Outcome]) -> str:
    """A Markdown table."""
    text = text_table(outcomes)
    marks = ["---" if place < text.labels else "---:" for place in range(len(text.header) - 1)] + ["---"]
    lines = [f"| {' | '.join(cells)} |" for cells in (text.header, *text.rows)]
    return "\n".join([lines[0], f"|{'|'.join(marks)}|", *lines[1:]])


def to_latex(outcomes: Sequence[Outcome]) -> str:
    """A LaTeX ``tabular``; the rules are those of the package ``booktabs``."""
    text = text_table(outcomes)
    shape = "l" * text.labels + "r" * (len(text.header) - text.labels - 1) + "l"
    lines = [f"{' & '.join(cell.translate(LATEX) for cell in cells)} \\\\" for cells in (text.header, *text.rows)]
    body = ["\\toprule", lines[0], "\\midrule", *lines[1:], "\\bottomrule"]
    return "\n".join([f"\\begin{{tabular}}{{{shape}}}", *body, "\\end{tabular}"])


def to_csv(outcomes: Sequence[Outcome]) -> str:
    """One line per cell, all numbers in full; empty where there is none."""
    names = columns(outcomes)
    fields = list(dict.fromkeys(key for outcome in outcomes for key in outcome.cell.fields))
    beside = [f"{kind}_{name}" for name in names for kind in ("measured", "stderr", "difference")]
    out = io.StringIO()
    writer = csv.DictWriter(
        out, [*fields, *beside, "seeds", "pass", "seconds", "hardware", "records"], lineterminator="\n"
    )
    writer.writeheader()
    for outcome in outcomes:
        row: dict[str, object] = dict(outcome.cell.fields)
        for kind in ("measured", "stderr", "difference"):
            row |= {f"{kind}_{name}": value for name, value in (getattr(outcome, kind) or {}).items() if name in names}
        row |= {"seeds": len(outcome.records), "seconds": outcome.seconds, "hardware": outcome.hardware}
        row |= {"pass": outcome.passed, "records": " ".join(record.file for record in outcome.records)}
        writer.writerow(row)
    return out.getvalue()


def to_json(outcomes: Sequence[Outcome]) -> str:
    """A list of cells: the published fields, then measured, difference, pass and records."""
    return json.dumps([outcome.to_dict() for outcome in outcomes], indent=2)


def by_table(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes of each table that has one, in the paper's order."""
    found = {table: [outcome for outcome in outcomes if outcome.cell.table == table] for table in TITLES}
    return {table: rows for table, rows in found.items() if rows}


def render(outcomes: Sequence[Outcome], format_: str) -> str:
    """The whole report in one of the formats for programs and pages."""
    if format_ == "json":
        return to_json(outcomes)
    if format_ == "csv":
        return to_csv(outcomes).rstrip("\n")
    if format_ == "latex":
        return "\n\n".join(f"% {TITLES[name]}\n{to_latex(rows)}" for name, rows in by_table(outcomes).items())
    return "\n\n".join(f"## {TITLES[name]}\n\n{to_markdown(rows)}" for name, rows in by_table(outcomes).items())
