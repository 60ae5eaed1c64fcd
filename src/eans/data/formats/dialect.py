"""How a delimited text file is written: found from its first lines, or said by the user."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eans.data.formats.base import PARTS
from eans.data.formats.columns import places_of
from eans.data.formats.source import FileSource
from eans.labelled import part_places

DELIMITERS = ("\t", ",", "|", ";")
BY_SUFFIX = {".tsv": "\t", ".tab": "\t", ".csv": ",;\t|", ".psv": "|"}


@dataclass(frozen=True)
class Dialect:
    """How the lines of a file are read.

    Attributes:
        delimiter: between two fields.
        quoted: fields may be in double quotes.
        names: of the columns; where the file does not say, their parts or numbers.
        places: part to the number of its column, from 0.
        lines, skipped: how many lines, and how many bytes, come before the first triple.
        blank: how many of these lines are blank.
    """

    delimiter: str = "\t"
    quoted: bool = False
    names: Sequence[str] = PARTS
    places: Mapping[str, int] = field(default_factory=lambda: {part: at for at, part in enumerate(PARTS)})
    lines: int = 0
    skipped: int = 0
    blank: int = 0


STRICT = Dialect()
"""``head<TAB>relation<TAB>tail``: no header, no quotes."""


def detect(start: bytes, whole: bool, source: FileSource, suffix: str) -> Dialect:
    """The dialect of a file from its first bytes, or the `whole` of it."""
    text = start.decode(errors="replace")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    lines = lines if whole or len(lines) < 2 else lines[:-1]
    blank = next((number for number, line in enumerate(lines) if line), 0)
    best: tuple[float, str, bool, list[list[str]]] | None = None
    for delimiter in BY_SUFFIX.get(suffix, DELIMITERS):
        quoted, rows = _rows(lines[blank:], delimiter, whole)
        if rows and len(rows[0]) >= len(PARTS):
            alike = sum(len(row) == len(rows[0]) for row in rows) / len(rows)
            if best is None or alike > best[0]:
                best = alike, delimiter, quoted, rows
    if best is None:
        delimiter = BY_SUFFIX.get(suffix, "\t")[0]
        return Dialect(delimiter, quoted=delimiter != "\t")  # whose errors say what is missing
    _, delimiter, quoted, rows = best
    return _with_columns(rows, delimiter, quoted, blank, start, source)


def _rows(lines: list[str], delimiter: str, whole: bool) -> tuple[bool, list[list[str]]]:
    """The fields of lines. Between tabs, quotes are letters, unless each field has them at both ends."""
    lines = [line for line in lines if line]
    if delimiter == "\t":
        rows = [line.split("\t") for line in lines]
        fields = [field for row in rows for field in row]
        if not all(len(field) > 1 and field[0] == field[-1] == '"' for field in fields):
            return False, rows
    try:
        rows = list(csv.reader((f"{line}\n" for line in lines), delimiter=delimiter))
    except csv.Error:
        return True, []
    return True, rows if whole or len(rows) < 3 else rows[:-1]


def _with_columns(
    rows: list[list[str]], delimiter: str, quoted: bool, blank: int, start: bytes, source: FileSource
) -> Dialect:
    asked = source.options.columns
    first, place = rows[0], f"{source.path}:{blank + 1}"
    names = [name.strip().lstrip("\ufeff") for name in first]
    by_name = any(not (name.isascii() and name.isdigit()) for name in asked.values())
    header = by_name or _is_header(names, rows[1:])
    names = names if header else [str(number + 1) for number in range(len(first))]
    places = places_of(names, source, place, titles=header)
    if not header:
        names = [next((part for part, place in places.items() if place == at), name) for at, name in enumerate(names)]
    lines = blank + header
    skipped = len(b"".join(start.splitlines(keepends=True)[:lines])) if header else 0
    return Dialect(delimiter, quoted, names, places, lines if header else 0, skipped, blank if header else 0)


def _is_header(names: list[str], rows: list[list[str]]) -> bool:
    """Whether the first line has the usual names of the three columns, none of which is a label further down."""
    places = part_places(names, {}, positional=False)
    if places is None:
        return False
    relation = names[places["relation"]]
    ends = {names[places["head"]], names[places["tail"]]}
    for row in rows:
        if len(row) == len(names) and (
            row[places["relation"]] == relation or row[places["head"]] in ends or row[places["tail"]] in ends
        ):
            return False
    return True
