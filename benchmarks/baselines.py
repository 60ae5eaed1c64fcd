"""Metrics of the baselines that need no model, on graphs with a name: `python -m benchmarks.baselines`.

A record a graph in ``records/baselines.jsonl``, as a whole: valid and test, both sides and each, and the relations that
rules come from.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from benchmarks.cells import RECORDS
from eans.baselines import LEAST_SHARE
from eans.data import load
from eans.evaluation import baselines, protocol
from eans.experiments import current_commit
from eans.files import atomic_write
from eans.graph import Split
from eans.relation_patterns import overlaps

FILE = RECORDS / "baselines.jsonl"
GRAPHS = ("wordnet-core", "fb15k-237", "wn18rr")
HELD_OUT: tuple[Split, ...] = ("valid", "test")


def record(name: str) -> dict[str, Any]:
    """What `eans evaluate` would show beside a model, and the patterns behind the inverse rule."""
    graph = load(name)
    patterns = [
        {
            "pattern": found.pattern,
            "relations": [graph.relations[found.first], graph.relations[found.second]],
            "shares": [found.first_share, found.second_share],
        }
        for found in overlaps(graph.train, graph.num_entities, graph.num_relations, LEAST_SHARE)
    ]
    return {
        "graph": name,
        "commit": current_commit(),
        **{split: baselines(graph, split) for split in HELD_OUT},
        "patterns": patterns,
        "protocol": protocol(graph),
    }


def main(arguments: list[str] | None = None) -> None:
    """Write the records, and print the MRR on test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args(arguments)
    found = [record(name) for name in GRAPHS]
    atomic_write(FILE, "".join(json.dumps(line) + "\n" for line in found).encode())
    for line in found:
        print(line["graph"], {name: round(metrics["both"]["mrr"], 4) for name, metrics in line["test"].items()})


if __name__ == "__main__":
    main()
