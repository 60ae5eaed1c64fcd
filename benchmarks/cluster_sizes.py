"""How even the clusters are in which EANS puts entities: `python -m benchmarks.cluster_sizes`.

Each of the paper's models is trained for a short while with one negative on FB15k-237, a tenth as wide as the paper's
(RotatE a twentieth), and its entities are put into a hundred clusters: as EANS does it, from one start, and as
scikit-learn long did it, the best of ten starts of up to 300 iterations. A line of the record per model and way.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.cells import RECORDS, write_measured
from eans.data import load as load_graph
from eans.ordering import kmeans
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve

FILE = RECORDS / "cluster-sizes.jsonl"
STEPS = 6_000
# Narrow distance models learn faster than wide ones may.
OVERRIDES = {
    "transe": ("model.dim=100", "train.lr=0.001"),
    "transd": ("model.dim=100", "train.lr=0.001", "sampler.inside=id", "sampler.order_epoch=0"),
    "distmult": ("model.dim=200",),
    "complex": ("model.dim=100",),
    "rotate": ("model.dim=50", "train.lr=0.001"),
}
WAYS = ((1, 25), (10, 300))  # starts, and iterations of each at most


def trained(model: str, steps: int) -> tuple[Tensor, dict[str, Any]]:
    """Features ``[E, F]`` of the entities after some steps, and what was trained."""
    overrides = ["sampler.negatives=1", f"train.steps={steps}", *OVERRIDES[model]]
    recipe = load(f"fb15k-237/{model}/eans", overrides)
    graph = load_graph("fb15k-237")
    trainer = build_trainer(resolve(recipe, graph), graph)
    for _ in range(steps):
        trainer.step()
    about = {"recipe": f"fb15k-237/{model}/eans", "overrides": overrides, "seed": recipe.train.seed, "step": steps}
    return trainer.model.entity_features().detach(), about


def sizes(features: Tensor, clusters: int, starts: int, iterations: int) -> dict[str, Any]:
    """Of the clusters with the least sum of squares: the largest ones, the median, and a random entity's on average."""
    generator = torch.Generator().manual_seed(0)
    found = [kmeans(features, clusters, generator, iterations=iterations) for _ in range(starts)]
    squares = [float((features - centroids[labels]).square().sum()) for labels, centroids in found]
    labels, _ = found[squares.index(min(squares))]
    counts = torch.bincount(labels, minlength=clusters).sort(descending=True).values.double()
    return {
        "clusters": clusters,
        "starts": starts,
        "iterations": iterations,
        "squares": round(min(squares), 1),
        "largest": counts[:6].int().tolist(),
        "median": int(counts[clusters // 2]),
        "of_a_random_entity": round(float(counts.square().sum() / counts.sum())),
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=OVERRIDES, default=list(OVERRIDES))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path, default=FILE)
    options = parser.parse_args(arguments)
    lines = []
    for model in options.models:
        features, about = trained(model, options.steps)
        for starts, iterations in WAYS:
            lines.append({**about, **sizes(features, 100, starts, iterations)})
            print(f"{model}: {lines[-1]['of_a_random_entity']} with {starts} starts", flush=True)
    write_measured(options.out, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
