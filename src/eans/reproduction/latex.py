"""Tables in LaTeX, for a paper: each a ``tabular`` with the rules of the package ``booktabs``."""

from __future__ import annotations

import re
from itertools import groupby

from eans.reproduction.columns import Text

SPECIAL = str.maketrans(
    {**{sign: f"\\{sign}" for sign in "%_&#${}"}, "\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}
    | {"^": r"\textasciicircum{}", "±": r"$\pm$"}
)


NEEDS = "% needs \\usepackage{booktabs}"


def tabular(title: str, text: Text) -> str:
    """A table; its title, if it has one, stands in its first row."""
    columns = len(text.header)
    shape = "".join("l" if text.is_left(place) else "r" for place in range(columns))
    head = [row([f"\\multicolumn{{{columns}}}{{l}}{{{escaped(title)}}}"]), "\\midrule"] if title else []
    body = [row(typeset(cells)) for cells in text.rows]
    lines = ["\\toprule", *head, *group_rows(text.groups), row(typeset(text.header)), "\\midrule", *body]
    return "\n".join([f"\\begin{{tabular}}{{{shape}}}", *lines, "\\bottomrule", "\\end{tabular}"])


def group_rows(groups: list[str]) -> list[str]:
    """A row that names the groups of columns, and the rules under their names; nothing where there are none."""
    cells, rules, place = [], [], 1
    for group, columns in groupby(groups):
        width = len(list(columns))
        cells += [f"\\multicolumn{{{width}}}{{c}}{{{escaped(group)}}}"] if group else [""] * width
        rules += [f"\\cmidrule(lr){{{place}-{place + width - 1}}}"] if group else []
        place += width
    return [row(cells), " ".join(rules)] if rules else []


def row(cells: list[str]) -> str:
    """One line of a table."""
    return f"{' & '.join(cells)} \\\\"


def typeset(cells: list[str]) -> list[str]:
    """Cells with signs as mathematics has them, and a longer dash for nothing."""
    return ["--" if cell == "-" else re.sub(r"(?<!\w)([-+])(?=[\d.])", r"$\1$", escaped(cell)) for cell in cells]


def escaped(words: str) -> str:
    """Text that LaTeX shows as it is, with quotation marks that open and close."""
    return re.sub(r"(?<!\w)'([^']+)'(?!\w)", r"`\1'", words.translate(SPECIAL))


def remarks(notes: list[str]) -> str:
    """Sentences to be read with a table, in small print below it."""
    return f"\\par\\smallskip\n{{\\footnotesize {escaped(' '.join(notes))}\\par}}"
