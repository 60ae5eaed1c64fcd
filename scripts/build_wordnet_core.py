"""Build ``wordnet-core``, the knowledge graph that is bundled with the package, from WordNet 3.0.

Source
    Debian package ``wordnet-base``, version ``1:3.0-37``.  The script needs its six files ``data.POS`` and
    ``index.POS`` for POS in noun, verb and adj.  Either install the package, which puts them into
    ``/usr/share/wordnet`` (``apt-get install wordnet-base``), or unpack it without installing it::

        apt-get download wordnet-base
        dpkg-deb -x wordnet-base_*.deb unpacked
        python scripts/build_wordnet_core.py --source unpacked/usr/share/wordnet

    The SHA-256 of each file is checked, since another edition of WordNet would give another graph.

Graph
    Entities are synsets of nouns, verbs and adjectives, named after their first word as in ``dog.n.01``.
    Relations are WordNet's pointers, one of each inverse pair (hypernym is kept, hyponym is not).  Pointers
    between words are lifted to their synsets.  Pertainyms are left out: most repeat a derivation.  A derivation
    between parts of speech is a directed relation (adjective to noun, adjective to verb, noun to verb), one within
    a part of speech is symmetric.  Two synsets have at most one link; where WordNet gives several, the first in the
    order of ``RELATIONS`` is kept.  Synsets whose definition says that they are offensive words are left out, and so
    are usage domains, which describe words (slang, trade name) rather than what the words mean.

Selection
    WordNet is sparse and mostly a tree, so that most of its links cannot be inferred from the others.  Entities are
    therefore chosen in three steps: keep the links whose two ends are joined by another path of at most three links;
    take the 3-core of what they form; take the largest connected component.  All links among the entities so
    chosen are part of the graph, supported or not.

Split
    The unit of the split is a link, that is, an unordered pair of entities.  A link of a symmetric relation is written
    as two triples, one for each direction, and both are in the same split.  Each relation gives 5 % of its links to
    test and 5 % to valid, in the order of a keyed SHA-256 of the two names.  A link stays in train if without it
    one of its ends would have fewer than two training links.

The result depends on the source files alone.  Its properties are verified before anything is written.

Usage::

    python scripts/build_wordnet_core.py [--source /usr/share/wordnet] [--out src/eans/data/bundled]
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from eans.data.building.splitting import Pair, Triple
from eans.data.building.wordnet_files import (
    RELATIONS,
    Synset,
    SynsetId,
    directions,
    entity_names,
    pair_of,
    read_sense_numbers,
    read_synsets,
    synset_links,
)

NAME = "wordnet-core"

SOURCE_SHA256 = {
    "data.noun": "fea17d2f9656611334eac790e5d69e47645fa180c4aa481fb4cd9b3520754ca2",
    "data.verb": "adcf43e35b581e8036d8b5a52d63d9cd3d3b4870b2720d3c03c799df44777bc2",
    "data.adj": "c89120dfc1f046ddff4a631bf9b7e9fa1a36b5e86565a23bf82dbe14f30b88a7",
    "index.noun": "a490d99d93d017bf4822fe2f0ffa51fd73911ce271dc7535fade21f8814b5a04",
    "index.verb": "e2ac24816c3a8289dcb72aaa9cf8db81fdf25ec34d792bfc96ac5b7a20c8b4ae",
    "index.adj": "c9865d7b4d1f805bdef82ccdcea5282436e23083e6f6f1b33e716327c4eda810",
}

SYNSET_TYPES = {"noun": "n", "verb": "v", "adj": "a"}


# Where a pair of synsets has several links it keeps the one whose symbol comes first: the more specific ones come
# first, derivation, the broadest, comes last.
RANKS = {symbol: rank for rank, symbol in enumerate(RELATIONS)}
SYMMETRIC = frozenset(relation.name for relation in RELATIONS.values() if relation.symmetric)

# The wordings by which definitions mark slurs and insults.
OFFENSIVE = re.compile(
    r"ethnic slur|regarded as offensive"
    r"|\b(offensive|derogatory|disparaging|obscene|insulting|vulgar|abusive)\b"
    r"[^;]{0,25}\b(terms?|names?|words?|slang)\b"
)

CORE = 3
HELD_OUT_SHARE = 0.05
MIN_TRAINING_LINKS = 2
SPLIT_KEY = "eans wordnet_core split 1"

Adjacency = dict[str, set[str]]
Links = dict[Pair, Triple]
Splits = dict[str, list[Triple]]


# --- Reading WordNet -------------------------------------------------------------------------------------------------


def check_source(source: Path) -> None:
    """Raise ValueError unless the files in ``source`` are those of the expected edition."""
    for name, expected in SOURCE_SHA256.items():
        digest = hashlib.sha256((source / name).read_bytes()).hexdigest()
        if digest != expected:
            raise ValueError(f"{source / name} is not the file of wordnet-base 1:3.0-37 (SHA-256 {digest})")


def licence_text(source: Path) -> str:
    """Return the licence that heads each WordNet file, without the line numbers."""
    with (source / "data.noun").open(encoding="ascii", newline="\n") as file:
        header = [line.split(maxsplit=1) for line in file if line.startswith("  ")]
    return "".join((fields[1].rstrip() if len(fields) > 1 else "") + "\n" for fields in header)


def without_offensive(synsets: Mapping[SynsetId, Synset]) -> dict[SynsetId, Synset]:
    """Return the synsets whose definition does not call them offensive."""
    return {key: synset for key, synset in synsets.items() if not OFFENSIVE.search(synset.definition)}


def read_links(synsets: Mapping[SynsetId, Synset], names: Mapping[SynsetId, str]) -> Links:
    """Return one link for each pair of related synsets; symmetric ones have the smaller name as head."""
    candidates = {
        (RANKS[symbol], triple)
        for synset in synsets.values()
        for symbol, triple in synset_links(synset, names, RELATIONS)
    }
    links: Links = {}
    for _, triple in sorted(candidates):
        links.setdefault(pair_of(triple[0], triple[2]), triple)
    return links


# --- Choosing the entities -------------------------------------------------------------------------------------------


def adjacency(pairs: Iterable[Pair]) -> Adjacency:
    """Return the neighbours of each entity."""
    neighbours: Adjacency = defaultdict(set)
    for left, right in pairs:
        neighbours[left].add(right)
        neighbours[right].add(left)
    return neighbours


def is_supported(pair: Pair, neighbours: Adjacency) -> bool:
    """Tell whether a path of two or three other links joins the two ends of a link."""
    left, right = pair
    beside_right = neighbours[right] - {left}
    return any(middle in beside_right or neighbours[middle] & beside_right for middle in neighbours[left] - {right})


def core(pairs: Iterable[Pair], order: int) -> set[str]:
    """Return the entities of the k-core: the largest part where each has at least ``order`` neighbours in it."""
    neighbours = adjacency(pairs)
    loose = [entity for entity, others in neighbours.items() if len(others) < order]
    while loose:
        entity = loose.pop()
        for other in neighbours.pop(entity, ()):
            neighbours[other].discard(entity)
            # Exactly at the step below the order, so that each entity is queued once.
            if len(neighbours[other]) == order - 1:
                loose.append(other)
    return set(neighbours)


def largest_component(pairs: Iterable[Pair]) -> set[str]:
    """Return the entities of the largest connected component."""
    neighbours = adjacency(pairs)
    components: list[set[str]] = []
    unseen = set(neighbours)
    while unseen:
        component, frontier = set(), {unseen.pop()}
        while frontier:
            component |= frontier
            frontier = {other for entity in frontier for other in neighbours[entity]} - component
        unseen -= component
        components.append(component)
    return max(components, key=lambda component: (len(component), min(component)))


def induced(links: Links, entities: set[str]) -> Links:
    """Return all links among ``entities``."""
    return {pair: triple for pair, triple in links.items() if pair[0] in entities and pair[1] in entities}


def select(links: Links) -> Links:
    """Return the part of WordNet where links can be inferred from other links (see the module's docstring)."""
    neighbours = adjacency(links)
    dense = induced(links, core((pair for pair in links if is_supported(pair, neighbours)), CORE))
    return induced(dense, largest_component(dense))


# --- Splitting -------------------------------------------------------------------------------------------------------


def shuffle_key(pair: Pair) -> bytes:
    """Return a sort key that shuffles the links in the same way on every machine."""
    return hashlib.sha256("\t".join((SPLIT_KEY, *pair)).encode()).digest()


def split(links: Links) -> Splits:
    """Deal the links to train, valid and test, relation by relation."""
    training_links = Counter(entity for pair in links for entity in pair)
    by_relation: dict[str, list[Pair]] = defaultdict(list)
    for pair in sorted(links, key=shuffle_key):
        by_relation[links[pair][1]].append(pair)
    splits: Splits = {"train": [], "valid": [], "test": []}
    for _, pairs in sorted(by_relation.items()):
        wanted = round(HELD_OUT_SHARE * len(pairs))
        quota = {"test": wanted, "valid": wanted}
        for pair in pairs:
            target = next((name for name, left in quota.items() if left), "train")
            if any(training_links[entity] <= MIN_TRAINING_LINKS for entity in pair):
                target = "train"
            if target != "train":
                quota[target] -= 1
                training_links.subtract(pair)
            splits[target].extend(directions(links[pair], SYMMETRIC))
    return {name: sorted(triples) for name, triples in splits.items()}


# --- Verifying -------------------------------------------------------------------------------------------------------


def require(condition: bool, message: str) -> None:
    """Raise ValueError with ``message`` unless ``condition`` holds."""
    if not condition:
        raise ValueError(f"the graph is not fit to be written: {message}")


def verify(splits: Splits) -> None:
    """Raise ValueError unless the splits have the promised size and leak nothing from train to valid or test."""
    verify_size(splits)
    verify_names(splits)
    verify_no_leakage(splits)
    verify_seen_in_train(splits)


def verify_size(splits: Splits) -> None:
    """Check the bounds on entities, relations, triples and held-out shares."""
    triples = [triple for part in splits.values() for triple in part]
    require(2_000 <= len(entities_of(triples)) <= 8_000, "number of entities")
    require(len(relations_of(triples)) >= 8, "number of relations")
    require(len(triples) >= 15_000, "number of triples")
    for name in ("valid", "test"):
        require(0.04 <= len(splits[name]) / len(triples) <= 0.06, f"share of {name}")


def verify_names(splits: Splits) -> None:
    """Check that names can be written as fields of a line."""
    names = {name for part in splits.values() for triple in part for name in triple}
    require(all(name and not any(char.isspace() for char in name) for name in names), "name with white space")


def verify_no_leakage(splits: Splits) -> None:
    """Check that no pair of entities, in either direction, has links in two splits or links of two relations."""
    triples = [triple for part in splits.values() for triple in part]
    known = set(triples)
    require(len(known) == len(triples), "repeated triple")
    seen: dict[Pair, tuple[str, str]] = {}
    for name, part in splits.items():
        for head, relation, tail in part:
            require(head != tail, f"loop at {head}")
            first = seen.setdefault(pair_of(head, tail), (name, relation))
            require(first[0] == name, f"{head} and {tail} are linked in {first[0]} and in {name}")
            require(first[1] == relation, f"{head} and {tail} are linked by {first[1]} and by {relation}")
            mirrored = (tail, relation, head) in known
            require(mirrored == (relation in SYMMETRIC), f"mirror image of {head} {relation} {tail}")


def verify_seen_in_train(splits: Splits) -> None:
    """Check that train has all entities and relations, and valid and test have all relations."""
    entities, relations = entities_of(splits["train"]), relations_of(splits["train"])
    for name in ("valid", "test"):
        require(entities_of(splits[name]) <= entities, f"{name} has an entity that train has not")
        require(relations_of(splits[name]) == relations, f"{name} and train have different relations")


def entities_of(triples: Iterable[Triple]) -> set[str]:
    """Return the entities of the triples."""
    return {entity for head, _, tail in triples for entity in (head, tail)}


def relations_of(triples: Iterable[Triple]) -> set[str]:
    """Return the relations of the triples."""
    return {relation for _, relation, _ in triples}


# --- Writing ---------------------------------------------------------------------------------------------------------

NOTICE = """\
wordnet-core is a knowledge graph derived from WordNet 3.0 of Princeton University,
as shipped by the Debian package wordnet-base 1:3.0-37.

WordNet's licence, which also covers this derived database, is in the file LICENSE.

Modifications: a subset of the synsets and of the pointers between them was selected,
renamed, rewritten as triples and split into train, valid and test. Definitions,
examples and all other content were left out.
scripts/build_wordnet_core.py in the source repository makes these changes.

Princeton University neither made nor endorses this derived database.

WordNet 3.0 Copyright 2006 by Princeton University. All rights reserved.
"""


DESCRIPTION = """\
English word meanings and their links, from WordNet 3.0; ships with the package
WordNet 3.0 licence, Princeton University (the file LICENSE beside the data)
"""


def to_bytes(triples: Iterable[Triple]) -> bytes:
    """Return the triples as lines of tab-separated fields."""
    return "".join("\t".join(triple) + "\n" for triple in triples).encode()


def write(splits: Splits, licence: str, folder: Path) -> None:
    """Write the splits, the licence, the notice and the description into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, triples in splits.items():
        # Without time stamp and file name, so that equal graphs are equal files.
        (folder / f"{name}.txt.gz").write_bytes(gzip.compress(to_bytes(triples), compresslevel=9, mtime=0))
    (folder / "LICENSE").write_text(licence, encoding="utf-8", newline="\n")
    (folder / "NOTICE").write_text(NOTICE, encoding="utf-8", newline="\n")
    (folder / "DESCRIPTION").write_text(DESCRIPTION, encoding="utf-8", newline="\n")


def report(splits: Splits) -> None:
    """Print the numbers of the graph."""
    for name, triples in splits.items():
        digest = hashlib.sha256(to_bytes(triples)).hexdigest()
        print(f"{name:5s} {len(triples):6d} triples {len(entities_of(triples)):5d} entities  sha256 {digest}")
    counts = {name: Counter(relation for _, relation, _ in triples) for name, triples in splits.items()}
    for relation, _ in sum(counts.values(), Counter()).most_common():
        print(f"{relation:28s}" + "".join(f"{counts[name][relation]:7d}" for name in splits))


def build(source: Path) -> Splits:
    """Return the splits of the graph made from the WordNet files in ``source``."""
    synsets = without_offensive(read_synsets(source, SYNSET_TYPES))
    names = entity_names(synsets, read_sense_numbers(source, SYNSET_TYPES))
    splits = split(select(read_links(synsets, names)))
    verify(splits)
    return splits


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Build the bundled graph wordnet-core from WordNet 3.0.")
    parser.add_argument("--source", type=Path, default=Path("/usr/share/wordnet"), help="folder of the WordNet files")
    parser.add_argument("--out", type=Path, default=Path("src/eans/data/bundled"), help="folder of bundled graphs")
    arguments = parser.parse_args()
    check_source(arguments.source)
    splits = build(arguments.source)
    write(splits, licence_text(arguments.source), arguments.out / NAME)
    report(splits)


if __name__ == "__main__":
    main()
