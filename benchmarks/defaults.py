"""Which recipe a graph gets that nobody has tuned for: `python -m benchmarks.defaults --graphs small`.

Candidates are recipes ``default/MODEL/METHOD`` as they are, on graphs of different kinds: dense and sparse, with few
relations and many, real and synthetic. By default valid alone is ranked, and decides; ``--test`` ranks test as well,
once the default is chosen. Records lie in ``records/defaults``; what has one is not run again. A graph that is not on
this machine and cannot be downloaded or built is left out, and named.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.cells import RECORDS
from benchmarks.synthetic import FAMILIES
from eans import data
from eans.errors import EansError
from eans.experiments import Experiment, Mean, Record, RecordStore, Table, run_with_display, table

STORE = RecordStore(RECORDS / "defaults")
SYNTHETIC = Path("runs") / "synthetic"
GRAPHS = {
    "small": ("nations", "umls", "kinships", "wordnet-core", "ring", "types"),
    "large": ("fb15k-237", "wn18rr", "wordnet", "debian"),
}
METHODS = (
    "rotate/eans+adv",
    "rotate/adv",
    "transe/eans+adv",
    "transe/adv",
    "distmult/eans+adv",
    "distmult/adv",
    "distmult/all+n3",
    "complex/adv",
    "complex/softmax",
    "complex/all+n3",
)


def name_of(graph: str) -> str:
    """By what runs load a graph: a name, or the folder of a synthetic graph, which is made first."""
    if graph not in FAMILIES:
        data.get(graph)
        return graph
    folder = SYNTHETIC / graph
    if not folder.is_dir():
        data.save_folder(FAMILIES[graph](5_000, 20, 50_000).graph, folder)
    return str(folder)


def available(graphs: Iterable[str]) -> list[str]:
    """The names of graphs that can be had."""
    found = []
    for graph in graphs:
        try:
            found.append(name_of(graph))
        except EansError as error:
            print(f"left out: {graph}: {error}", file=sys.stderr)
    return found


def experiments(graphs: Iterable[str], methods: Iterable[str], seeds: int) -> list[Experiment]:
    """Every method on every graph."""
    return [
        Experiment(f"default/{method}", (f"data.name={graph}",), seed)
        for seed in range(seeds)
        for graph in graphs
        for method in methods
    ]


def by_graph(records: Mapping[Experiment, Record], split: str) -> Table:
    """Methods by graphs, MRR; the last column is the mean share of the best MRR of each graph."""
    graphs = list(dict.fromkeys(experiment.overrides[0].partition("=")[2] for experiment in records))
    methods = list(dict.fromkeys(experiment.recipe for experiment in records))
    found: dict[tuple[str, str], Mean] = {}
    for graph in graphs:
        of_graph = [record for experiment, record in records.items() if experiment.overrides == (f"data.name={graph}",)]
        for row in table(of_graph, ("recipe",), (f"{split}.mrr",)).rows:
            found[row[0], graph] = row[1]
    best = {
        graph: max((found[recipe, graph].value or 0.0 for recipe in methods if (recipe, graph) in found), default=0.0)
        for graph in graphs
    }
    rows: list[list[Any]] = []
    for recipe in methods:
        means = [found.get((recipe, graph), Mean(None)) for graph in graphs]
        shares = [mean.value / best[graph] for mean, graph in zip(means, graphs, strict=True) if mean.value is not None]
        rows.append([recipe, *means, Mean(fmean(shares)) if len(shares) == len(graphs) else Mean(None)])
    rows.sort(key=lambda row: -(row[-1].value or 0.0))
    return Table(["recipe", *(Path(graph).name for graph in graphs), "share of best"], rows, 1)


def main() -> None:
    """Run what has no record, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default="small", help=f"{', '.join(GRAPHS)}, or names with commas between")
    parser.add_argument("--methods", default=",".join(METHODS), help="MODEL/METHOD with commas between")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--test", action="store_true", help="rank test too")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    graphs = available(GRAPHS.get(given.graphs, given.graphs.split(",")))
    plan = experiments(graphs, given.methods.split(","), given.seeds)
    failed = run_with_display(plan, STORE, device=given.device, workers=given.workers, test=given.test)
    print(by_graph(STORE.read(plan), "test" if given.test else "valid").markdown())
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
