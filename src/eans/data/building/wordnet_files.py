"""WordNet's database files, and which of their pointers become relations of a graph (formats: wndb(5WN))."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from eans.data.building.splitting import Pair, Triple

SynsetId = tuple[str, str]  # part of speech, offset in the data file
Senses = dict[tuple[str, SynsetId], int]


@dataclass(frozen=True)
class Relation:
    """A WordNet pointer that becomes a relation of a graph."""

    name: str
    symmetric: bool = False


# WordNet's symbol of each pointer.  Of two inverse pointers one is listed.
RELATIONS = {
    ">": Relation("cause"),
    "*": Relation("entailment"),
    "=": Relation("attribute"),
    "#s": Relation("substance_holonym"),
    "#m": Relation("member_holonym"),
    "#p": Relation("part_holonym"),
    "!": Relation("antonym", symmetric=True),
    "$": Relation("verb_group", symmetric=True),
    "@i": Relation("instance_hypernym"),
    "@": Relation("hypernym"),
    "&": Relation("similar_to", symmetric=True),
    ";r": Relation("region_domain"),
    ";c": Relation("topic_domain"),
    "^": Relation("also_see", symmetric=True),
    "+": Relation("derivationally_related_form", symmetric=True),
}
ATTRIBUTE, DERIVATION = RELATIONS["="], RELATIONS["+"]
DERIVATION_TO = {
    "n": Relation("derivationally_related_noun"),
    "r": Relation("derivationally_related_adverb"),
    "v": Relation("derivationally_related_verb"),
}


@dataclass(frozen=True)
class Synset:
    """A line of a WordNet data file."""

    id: SynsetId
    kind: str  # n, v, a, r, or s for a satellite adjective
    first_word: str
    pointers: list[tuple[str, SynsetId]]
    definition: str


def content_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a WordNet file after its licence header, whose lines start with two spaces."""
    with path.open(encoding="ascii", newline="\n") as file:
        yield from (line for line in file if not line.startswith("  "))


def parse_synset(line: str) -> Synset:
    """Parse a line of a data file."""
    entry, definition = line.split(" | ", maxsplit=1)
    fields = entry.split()
    offset, kind, word_count = fields[0], fields[2], int(fields[3], 16)
    pointer_start = 4 + 2 * word_count
    pointer_count = int(fields[pointer_start])
    pointers = []
    for index in range(pointer_count):
        start = pointer_start + 1 + 4 * index
        symbol, target_offset, target_kind = fields[start : start + 3]
        pointers.append((symbol, (part_of_speech(target_kind), target_offset)))
    # An adjective may carry its syntactic position, as in "awake(p)".
    first_word = fields[4].split("(")[0].lower()
    return Synset((part_of_speech(kind), offset), kind, first_word, pointers, definition)


def part_of_speech(kind: str) -> str:
    """Return the part of speech of a synset kind: satellites share the files of the other adjectives."""
    return "a" if kind == "s" else kind


def read_synsets(source: Path, suffixes: Iterable[str]) -> dict[SynsetId, Synset]:
    """Read the synsets of ``data.noun`` and so on."""
    synsets = (parse_synset(line) for suffix in suffixes for line in content_lines(source / f"data.{suffix}"))
    return {synset.id: synset for synset in synsets}


def read_sense_numbers(source: Path, suffixes: Mapping[str, str]) -> Senses:
    """Map (word, synset) to the number of that sense of the word; `suffixes` maps those of files to parts of speech."""
    numbers = {}
    for suffix, pos in suffixes.items():
        for line in content_lines(source / f"index.{suffix}"):
            fields = line.split()
            for number, offset in enumerate(fields[6 + int(fields[3]) :], start=1):
                numbers[fields[0], (pos, offset)] = number
    return numbers


def entity_names(synsets: Mapping[SynsetId, Synset], senses: Senses) -> dict[SynsetId, str]:
    """Name each synset by first word, kind and sense number, as in ``dog.n.01``."""
    names = {
        synset.id: f"{synset.first_word}.{synset.kind}.{senses[synset.first_word, synset.id]:02d}"
        for synset in synsets.values()
    }
    if len(set(names.values())) != len(names):
        raise ValueError("two synsets have the same name")
    return names


def pair_of(head: str, tail: str) -> Pair:
    """Return the unordered pair of two entities."""
    return (head, tail) if head < tail else (tail, head)


def synset_links(
    synset: Synset, names: Mapping[SynsetId, str], relations: Mapping[str, Relation]
) -> Iterator[tuple[str, Triple]]:
    """Yield the symbol and the triple of each link that starts at a synset.

    Pointers between words are lifted to their synsets; a symmetric relation has the smaller name as head.
    """
    for symbol, target in synset.pointers:
        # What was left out has no name.  A word may derive from another word of its own synset.
        if symbol not in relations or target not in names or target == synset.id:
            continue
        relation = directed(relations[symbol], synset.id[0], target[0])
        if relation is None:
            continue
        head, tail = names[synset.id], names[target]
        if relation.symmetric:
            head, tail = pair_of(head, tail)
        yield symbol, (head, relation.name, tail)


def directed(relation: Relation, head_pos: str, tail_pos: str) -> Relation | None:
    """Return the relation between two parts of speech, or None if it is kept in the other direction only.

    WordNet has attributes and derivations in both directions.  Where the parts of speech differ they tell head from
    tail, and one direction says all.
    """
    if relation not in (ATTRIBUTE, DERIVATION) or head_pos == tail_pos:
        return relation
    if head_pos > tail_pos:  # the order kept is adjective, noun, verb: their letters in alphabetical order
        return None
    return relation if relation == ATTRIBUTE else DERIVATION_TO[tail_pos]


def directions(link: Triple, symmetric: Iterable[str]) -> list[Triple]:
    """Return the triples that state a link: two for a symmetric relation, else one."""
    head, relation, tail = link
    return [link, (tail, relation, head)] if relation in symmetric else [link]
