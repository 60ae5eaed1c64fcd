"""Debian's packages as a graph: facts of Debian 11 are train, and what Debian 12 adds to them is valid and test.

Entities are binary packages of the component main for amd64, what they provide, and, with a prefix, sections, tags,
source packages, maintainers, priorities and kinds of Multi-Arch. Relations are the fields of the package index
(deb-control(5)); of a dependency the name alone counts, not version or architecture, and each alternative is a tail.
Both releases have had their last point release, so their indexes no longer change.

The split is temporal. A fact of Debian 12 that Debian 11 does not have is held out if both its entities occur in train;
by a keyed hash, half of these facts are valid and half are test. What is new about new packages is left out.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterable, Iterator, Mapping
from io import TextIOWrapper
from pathlib import Path

from eans.data.building.sources import Sources
from eans.data.building.splitting import Triple, as_text, shuffled
from eans.errors import DataError
from eans.graph import Split

INDEX = "main/binary-amd64/Packages.xz"
TRAIN = ("bullseye", "1c3405444297ead864711c18e64bce4810db63b48340a2f9d81182d9f235ad71")
LATER = ("bookworm", "9e0b5aabb2465b3d2e7a7fe27f9913846277833f7a2826e7767acccff5b588c5")
SPLIT_KEY = "eans debian split 1"

PACKAGES = {  # fields that name packages, separated by commas and |
    "Pre-Depends": "pre_depends",
    "Depends": "depends",
    "Recommends": "recommends",
    "Suggests": "suggests",
    "Enhances": "enhances",
    "Breaks": "breaks",
    "Conflicts": "conflicts",
    "Replaces": "replaces",
    "Provides": "provides",
}
_NAME = re.compile(r"[a-z0-9][a-z0-9+.\-]*")


def build(sources: Sources, _: Mapping[Split, str]) -> dict[Split, bytes]:
    """Train from one release, valid and test from the next."""
    before, after = (read(sources.debian(f"{suite}/{INDEX}", sha256), sources) for suite, sha256 in (TRAIN, LATER))
    sources.tell("comparing the releases")
    return {part: as_text(triples) for part, triples in split(before, after).items()}


def split(before: set[Triple], after: set[Triple]) -> dict[Split, list[Triple]]:
    """See the module."""
    entities = {entity for head, _, tail in before for entity in (head, tail)}
    relations = {relation for _, relation, _ in before}
    added = {
        triple
        for triple in after - before
        if triple[0] in entities and triple[1] in relations and triple[2] in entities
    }
    order: list[Triple] = [(head, relation, tail) for head, relation, tail in shuffled(added, SPLIT_KEY)]
    half = len(order) // 2
    return {"train": list(before), "valid": order[:half], "test": order[half:]}


def read(path: Path, sources: Sources) -> set[Triple]:
    """The facts of a compressed package index."""
    triples: set[Triple] = set()
    size = path.stat().st_size
    try:
        with path.open("rb") as packed, TextIOWrapper(lzma.open(packed), encoding="utf-8") as lines:
            for number, fields in enumerate(_paragraphs(lines)):
                triples.update(facts(fields))
                if number % 1000 == 0:
                    sources.tell(f"reading {path.name}", packed.tell(), size)
    except (lzma.LZMAError, EOFError, UnicodeDecodeError, KeyError) as error:
        raise DataError(f"{sources.name}: {path.name}: is no package index ({error}); {sources.otherwise}") from None
    sources.tell(f"reading {path.name}", size, size)
    return triples


def _paragraphs(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """The fields of each package; a line that starts with a blank goes on with the field before."""
    fields: dict[str, str] = {}
    name = ""
    for line in lines:
        if line == "\n":
            if fields:
                yield fields
            fields = {}
        elif line[0] in " \t":
            fields[name] += f" {line.strip()}"
        else:
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    if fields:
        yield fields


def facts(fields: Mapping[str, str]) -> Iterator[Triple]:
    """The triples of which a package is the head."""
    package = fields["Package"]
    for field, relation in PACKAGES.items():
        for named in re.split(r"[,|]", fields.get(field, "")):
            if name := _NAME.match(named.strip()):
                yield package, relation, name.group()
    for field, relation in (("Section", "section"), ("Priority", "priority"), ("Multi-Arch", "multi_arch")):
        if value := fields.get(field):
            yield package, relation, f"{relation}:{value}"
    for tag in fields.get("Tag", "").split(","):
        if tag.strip():
            yield package, "tag", f"tag:{tag.strip()}"
    yield package, "source", f"source:{fields.get('Source', package).split()[0]}"
    if maintainer := fields.get("Maintainer", "").partition("<")[0].strip(' "'):
        yield package, "maintainer", f"maintainer:{' '.join(maintainer.split())}"
