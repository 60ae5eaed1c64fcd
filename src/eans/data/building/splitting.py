"""What a graph that is built from a package shares with others: labelled triples as sorted text, and a split of pairs.

The split does not depend on the order of its input, on the machine or on a version of a random-number generator: pairs
of entities are ordered by a SHA-256 of their names with a key.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable

from eans.graph import Split

Triple = tuple[str, str, str]
Pair = tuple[str, str]


def shuffled(items: Iterable[tuple[str, ...]], key: str) -> list[tuple[str, ...]]:
    """In the order of the SHA-256 of a key and the strings of an item."""
    return sorted(items, key=lambda item: hashlib.sha256("\t".join((key, *item)).encode()).digest())


def hold_out(triples: Iterable[Triple], share: float, key: str) -> dict[Split, list[Triple]]:
    """Valid and test get `share` of the triples each, train the rest.

    The unit is a pair of entities: all triples between two entities, whatever their relations and directions, are in
    one split, so that no triple of test is answered by its mirror image in train. A pair stays in train if without it
    an entity or a relation would not occur there.
    """
    by_pair: dict[tuple[str, ...], list[Triple]] = defaultdict(list)
    for head, relation, tail in triples:
        by_pair[min(head, tail), max(head, tail)].append((head, relation, tail))
    wanted = round(share * sum(map(len, by_pair.values())))
    left = Counter(entity for part in by_pair.values() for head, _, tail in part for entity in (head, tail))
    left_of_relation = Counter(relation for part in by_pair.values() for _, relation, _ in part)
    splits: dict[Split, list[Triple]] = {"train": [], "valid": [], "test": []}
    for pair in shuffled(by_pair, key):
        part = by_pair[pair]
        used = Counter(entity for head, _, tail in part for entity in (head, tail))
        relations = Counter(relation for _, relation, _ in part)
        target: Split = (
            "test" if len(splits["test"]) < wanted else "valid" if len(splits["valid"]) < wanted else "train"
        )
        if any(left[entity] <= count for entity, count in used.items()) or any(
            left_of_relation[relation] <= count for relation, count in relations.items()
        ):
            target = "train"
        if target != "train":
            left.subtract(used)
            left_of_relation.subtract(relations)
        splits[target].extend(part)
    return splits


def as_text(triples: Iterable[Triple]) -> bytes:
    """One line a triple, sorted."""
    return "".join("\t".join(triple) + "\n" for triple in sorted(triples)).encode()
