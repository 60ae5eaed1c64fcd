"""How many entities SANS draws from: `python -m benchmarks.pool_sizes`.

For some settings, the mean size of a pool over the kept entities of training triples, which is what a negative meets,
and its share of all entities. A line of the record per setting.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks.cells import RECORDS, write_measured
from eans.data import load as load_graph
from eans.graph import HEAD, TAIL, KnowledgeGraph
from eans.recipes import load
from eans.recipes.build import build_sampler, resolve
from eans.samplers.sans import SANS

FILE = RECORDS / "pool-sizes.jsonl"
SETTINGS = (
    ("wn18rr/rotate/sans+adv", ()),
    ("wn18rr/rotate/sans+adv", ("sampler.walk_restart=true",)),
    ("wn18rr/transe/sans+adv", ("sampler.walks=10000", "sampler.pool_limit=41000", "sampler.pool_memory_mb=4096")),
    ("fb15k-237/rotate/sans+adv", ()),
    ("fb15k-237/rotate/sans+adv", ("sampler.hops=2",)),
    ("fb15k-237/rotate/sans+adv", ("sampler.pool_kind=walks", "sampler.hops=2", "sampler.walk_restart=false")),
    ("fb15k-237/rotate/sans+adv", ("sampler.pool_kind=walks", "sampler.hops=2")),
    ("fb15k-237/transe/sans+adv", ("sampler.pool_kind=walks", "sampler.hops=4")),
)


def sizes(sampler: SANS, graph: KnowledgeGraph) -> dict[str, Any]:
    """The mean size of a pool, over both ends of all training triples."""
    kept = graph.train[:, [HEAD, TAIL]].flatten()
    mean = float(sampler.starts.diff()[kept].double().mean())
    return {"mean_size": round(mean, 1), "share": round(mean / graph.num_entities, 4)}


def main(arguments: list[str] | None = None) -> int:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=FILE)
    options = parser.parse_args(arguments)
    lines = []
    for name, overrides in SETTINGS:
        recipe = load(name, overrides)
        graph = load_graph(recipe.data.name)
        sampler = build_sampler(resolve(recipe, graph), graph)
        assert isinstance(sampler, SANS)
        lines.append({"recipe": name, "overrides": list(overrides), **sizes(sampler, graph)})
        print(f"{' '.join([name, *overrides])}: {lines[-1]['mean_size']}", flush=True)
    write_measured(options.out, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
