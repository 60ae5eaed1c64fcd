"""What is probably wrong with a graph of one's own although its files can be read.

A finding is one line: where the first example is (``file:line``), what and how often, what it does to training or
ranking, and how to mend it. Nothing is changed: duplicates stay, labels stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eans.data.findings import Finding, Ints, Rows, be, listed, many, such
from eans.data.formats.source import FileSource
from eans.data.label_checks import ignored_files, labels
from eans.graph import HEAD, RELATION, SPLITS, TAIL, KnowledgeGraph, Split

BLOCK = 1 << 18  # triples that are looked at together
KEYS = 1 << 21  # keys that are sorted together
FEWEST = 10  # triples without which no order of columns can be told
LARGEST = 2**63 - 1  # number that stands for a triple


def check(graph: KnowledgeGraph, folder: Path, files: Mapping[Split, Path | FileSource]) -> list[Finding]:
    """All findings on a graph that was read from `files` in `folder`."""
    rows = Rows(graph, folder, files)
    return [finding for find in CHECKS for finding in find(rows)]


def check_test(graph: KnowledgeGraph, file: Path) -> list[Finding]:
    """Findings on triples of a file that have taken the place of a graph's test split."""
    return list(_repeated(Rows(graph, file.parent, {"test": file})))


def _header(rows: Rows) -> Iterator[Finding]:
    if rows.headers:
        place = rows.place(rows.headers[0], 0)
        yield Finding(
            "header",
            len(rows.headers),
            place,
            f"{place}: {rows.shown(rows.headers[0], 0)} is probably a header, and was read as a triple; delete the"
            f" first line of {listed([rows.files[split].name for split in rows.headers])}",
        )


def _column_order(rows: Rows) -> Iterator[Finding]:
    """Columns in the order head, tail, relation: more "relations" than tails.

    Small dense graphs may have more relations than entities. Their relations are no heads, though: what stands in the
    middle is taken for entities if half of it occurs as heads too, or if there is very much more of it than of tails.
    """
    if sum(map(len, rows.triples.values())) < FEWEST:
        return
    entities, relations = rows.graph.entities, rows.graph.relations
    middle, last = (_occurring(rows, column) for column in (RELATION, TAIL))
    second, third = int(middle.sum()), int(last.sum())
    if second < 2 * third:
        return
    heads = _occurring(rows, HEAD)
    ids = entities.ids_of(relations.labels_of(np.flatnonzero(middle))).numpy()
    shared = int(heads[ids[ids >= 0]].sum())
    if 2 * shared >= second or (second >= 50 and second >= 10 * third):
        place = rows.place("train", 0)
        yield Finding(
            "column-order",
            second,
            place,
            f"{place}: the second column has {second:,} different labels and the third {third:,}: the columns are"
            " probably head, tail, relation; write them as head<TAB>relation<TAB>tail",
        )


def _occurring(rows: Rows, column: int) -> NDArray[np.bool_]:
    """Which ids a column has in any split."""
    size = rows.graph.num_relations if column == RELATION else rows.graph.num_entities
    found = np.zeros(size, dtype=bool)
    for triples in rows.triples.values():
        found[triples[:, column]] = True
    return found


def _repeated(rows: Rows) -> Iterator[Finding]:
    """Triples that occur again, in their split or in another one."""
    shares = -(-sum(map(len, rows.triples.values())) // KEYS)
    repeated = np.sort(np.concatenate([_twice(rows, share, shares) for share in range(shares)]))
    if not len(repeated):
        return
    # From here on, only the triples that occur more than once, as a rule few: their rows, and their keys.
    again = {split: _rows_with(rows, split, repeated) for split in rows.triples}
    keys = {split: _keys(rows, split, at) for split, at in again.items()}
    for split in rows.read:
        yield from _duplicates(rows, split, again[split], keys[split])
    for earlier, later in combinations(SPLITS, 2):
        if later in rows.files:
            yield from _leakage(rows, earlier, later, again, keys)


def _keys(rows: Rows, split: Split, at: Ints | slice) -> Ints:
    """A number for each triple of some rows, the same for equal ones; headers, which are told elsewhere, equal none."""
    part, entities, relations = rows.triples[split][at], rows.graph.num_entities, rows.graph.num_relations
    if entities * relations * entities <= LARGEST:
        keys: Ints = (part[:, HEAD] * relations + part[:, RELATION]) * entities + part[:, TAIL]
    else:  # their numbers would be too large
        keys = rows.numbers[split][at].copy()
    if split in rows.headers and len(keys) and (at.start == 0 if isinstance(at, slice) else at[0] == 0):
        keys[0] = -1 - rows.headers.index(split)
    return keys


def _twice(rows: Rows, share: int, shares: int) -> Ints:
    """The keys that occur more than once, of one share of all keys: few are in memory at a time."""
    ordered, size = np.empty(2 * KEYS, np.int64), 0
    for split, part in rows.triples.items():
        for start in range(0, len(part), BLOCK):
            keys = _keys(rows, split, slice(start, start + BLOCK))
            keys = keys[part[start : start + BLOCK, TAIL] % shares == share] if shares > 1 else keys
            if size + len(keys) > len(ordered):
                ordered.resize(2 * len(ordered), refcheck=False)
            ordered[size : size + len(keys)] = keys
            size += len(keys)
    ordered = ordered[:size]
    ordered.sort()
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def _rows_with(rows: Rows, split: Split, wanted: Ints) -> Ints:
    """The rows of a split whose keys are wanted."""
    size = len(rows.triples[split])
    found = [
        start + np.flatnonzero(_among(_keys(rows, split, slice(start, start + BLOCK)), wanted))
        for start in range(0, size, BLOCK)
    ]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _among(values: Ints, wanted: Ints) -> NDArray[np.bool_]:
    """Which values are in the ascending `wanted`; not as `np.isin`, which would sort the values."""
    at = np.searchsorted(wanted, values).clip(max=len(wanted) - 1)
    found: NDArray[np.bool_] = wanted[at] == values
    return found


def _duplicates(rows: Rows, split: Split, at: Ints, keys: Ints) -> Iterator[Finding]:
    """Triples of a split whose key an earlier one has: of the rows `at`, with their keys."""
    values, firsts = np.unique(keys, return_index=True)
    count, total = len(keys) - len(values), len(rows.triples[split])
    if not count:
        return
    later = np.ones(len(keys), dtype=bool)
    later[firsts] = False
    example = int(later.argmax())
    before = int(at[firsts[np.searchsorted(values, keys[example])]])
    row = int(at[example])
    place = rows.place(split, row)
    effect = "trained on" if split == "train" else "ranked"
    yield Finding(
        "duplicates",
        count,
        place,
        f"{place}: {rows.shown(split, row)} repeats {rows.near(split, before, split)}; {count:,} of {total:,}"
        f" {split} triples {'repeats' if count == 1 else 'repeat'} an earlier one and {be(count)} {effect} again;"
        f" delete {'it' if count == 1 else 'them'} if that is not meant",
    )


def _leakage(
    rows: Rows, earlier: Split, later: Split, at: Mapping[Split, Ints], keys: Mapping[Split, Ints]
) -> Iterator[Finding]:
    """Triples of a split that another one has too."""
    shared = np.isin(keys[later], keys[earlier])
    count, total = int(shared.sum()), len(rows.triples[later])
    if not count:
        return
    example = int(shared.argmax())
    row = int(at[later][example])
    before = int(at[earlier][(keys[earlier] == keys[later][example]).argmax()])
    place = rows.place(later, row)
    effect = (
        f"the {later} metrics are higher for it; delete them from one of the two"
        if earlier == "train"
        else "the best weights are chosen by valid; delete them from one of the two"
    )
    yield Finding(
        "leakage",
        count,
        place,
        f"{place}: {rows.shown(later, row)} is in {rows.near(earlier, before, later)} too; {count:,} of {total:,}"
        f" {later} triples {be(count)} in {earlier}: {effect}",
    )


def _unseen(rows: Rows) -> Iterator[Finding]:
    """Relations and entities of valid and test that train does not have: nothing is learned about them."""
    train = rows.triples["train"]
    graph = rows.graph
    for columns, vocabulary in (([RELATION], graph.relations), ([HEAD, TAIL], graph.entities)):
        known = np.zeros(len(vocabulary), dtype=bool)
        for column in columns:
            known[train[:, column]] = True
        missing = ~known
        found = np.zeros(len(vocabulary), dtype=bool)
        triples, example = 0, None
        for split in rows.read if missing.any() else ():
            concerned: NDArray[np.bool_] = np.zeros(len(rows.triples[split]), dtype=bool)
            for column in columns:
                concerned |= missing[rows.triples[split][:, column]]
            concerned[0] &= split not in rows.headers
            if concerned.any():
                triples += int(concerned.sum())
                ids = rows.triples[split][concerned][:, columns]
                found[ids[missing[ids]]] = True
                example = example or (split, int(concerned.argmax()))
        if example is None:
            continue
        split, row = example
        name = next(vocabulary[i] for i in rows.triples[split][row, columns].tolist() if missing[i])
        count, place = int(found.sum()), rows.place(split, row)
        never, them = ("never occurs", "it") if count == 1 else ("never occur", "them")
        yield Finding(
            f"unseen-{vocabulary.kind}",
            count,
            place,
            f"{place}: {such(count, vocabulary.kind, name)} {never} in train, so nothing is learned about {them};"
            f" {many(triples, 'triple')} of valid and test {'has' if triples == 1 else 'have'} {them}, and"
            f" {be(triples)} ranked all the same: move some to train if that is not meant",
        )


CHECKS = (_header, _column_order, _repeated, _unseen, labels, ignored_files)
