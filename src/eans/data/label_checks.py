"""Labels that are easily confused or mistyped, and files in a graph's folder that nothing is read from.

Labels are joined into long strings; they are taken one by one only if these have something unusual.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from eans.data.findings import Finding, Rows, be, brief, listed, many, such
from eans.graph import HEAD, RELATION, TAIL, Vocabulary

# Invisible, and no part of any script: joiners such as U+200D are.
INVISIBLE = "\u00ad\u200b\u2028\u2029\u2060\ufeff"
LABEL_FILE = re.compile(
    r"(ent|entit(y|ies)|rels?|relations?|nodes?|labels?|vocab(ulary)?|types?|id2\w+|mid2\w+)"
    r"([-_ .]?(2|to|names?|ids?|labels?|texts?|types?|map|dict|list|vocab)\w*)*\.(txt|tsv|csv|dict|json|map|pkl|del)"
)
TRIPLE_FILE = re.compile(
    r"(train|valid|test)([-_.]?2id)?\.(txt|tsv|csv|del|nt|ttl|json)|(dev|val|validation)\.(txt|tsv|csv)"
)
DICT_FILES = frozenset(f"{stem}.dict{suffix}" for stem in ("entities", "relations") for suffix in ("", ".gz"))
MOST_NAMES = 4
BLOCK = 1 << 16  # labels that are joined


def labels(rows: Rows) -> Iterator[Finding]:
    """Labels that look the same, and labels with characters that do not show."""
    for vocabulary, columns in ((rows.graph.entities, [HEAD, TAIL]), (rows.graph.relations, [RELATION])):
        plain, unusual = True, False
        for start in range(0, len(vocabulary), BLOCK):
            whole = "\n".join(("", *vocabulary.array[start : start + BLOCK].to_pylist(), ""))
            printable = whole.replace("\n", "").isprintable()
            plain = plain and printable
            spaces = not printable or "  " in whole or " \n" in whole or "\n " in whole
            unusual = unusual or spaces or not (whole.isascii() or unicodedata.is_normalized("NFC", whole))
        if not plain:
            yield from _control_characters(rows, vocabulary, columns)
        if unusual:
            yield from _alike(rows, vocabulary, columns)


def _control_characters(rows: Rows, vocabulary: Vocabulary, columns: list[int]) -> Iterator[Finding]:
    found = [i for i, label in enumerate(vocabulary) if not label.isprintable() and any(map(_is_control, label))]
    if found:
        label = vocabulary[found[0]]
        place = _place_of(rows, columns, found[0])
        code = next(ord(character) for character in label if _is_control(character))
        yield Finding(
            "control-characters",
            len(found),
            place,
            f"{place}: {such(len(found), vocabulary.kind, label)} {'has' if len(found) == 1 else 'have'} invisible"
            f" characters (U+{code:04X}), which every query must spell too; remove them from the files",
        )


def _is_control(character: str) -> bool:
    return unicodedata.category(character) == "Cc" or character in INVISIBLE


def _alike(rows: Rows, vocabulary: Vocabulary, columns: list[int]) -> Iterator[Finding]:
    """Labels that are equal once white space is reduced and accents are composed."""
    first: dict[str, int] = {}
    pairs = []
    for index, label in enumerate(vocabulary):
        before = first.setdefault(unicodedata.normalize("NFC", " ".join(label.split())), index)
        if before != index:
            pairs.append((before, index))
    if pairs:
        before, index = pairs[0]
        one, other = vocabulary[before], vocabulary[index]
        spaces = " ".join(one.split()) == " ".join(other.split())
        difference = "white space" if spaces else "the Unicode form of its letters"
        place = _place_of(rows, columns, index)
        yield Finding(
            "labels-alike",
            len(pairs),
            place,
            f"{place}: {vocabulary.kind} {brief(other)} differs from {brief(one)} only by {difference}"
            f" ({many(len(pairs), 'such pair')}); each is learned on its own: write them the same",
        )


def _place_of(rows: Rows, columns: list[int], index: int) -> str:
    at = rows.first(columns, index)
    return rows.place(*at) if at is not None else str(rows.folder)  # only in a dict file


def ignored_files(rows: Rows) -> Iterator[Finding]:
    """Files of labels or triples in the folder that are not read."""
    read = {*(path.name for path in rows.files.values()), *DICT_FILES}
    try:
        others = sorted(path.name for path in rows.folder.iterdir() if path.name not in read)
    except OSError:  # its files can be read, but not listed
        return
    for pattern, code, advice in (
        (LABEL_FILE, "ignored-labels", "labels come from the triples, ids from entities.dict and relations.dict"),
        (TRIPLE_FILE, "ignored-triples", "splits are read from train, valid and test, .txt or .tsv, also .gz"),
    ):
        names = [name for name in others if pattern.fullmatch(name.lower().removesuffix(".gz"))]
        if names:
            place = str(rows.folder)
            shown = listed(names if len(names) <= MOST_NAMES else [*names[: MOST_NAMES - 1], "others"])
            yield Finding(
                code,
                len(names),
                place,
                f"{place}: {shown} {be(len(names))} not read: {advice}; rename or move what is in the wrong place",
            )
