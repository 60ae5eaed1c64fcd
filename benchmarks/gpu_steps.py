"""Sections *steps*, *kmeans* and *ranking* of `benchmarks.gpu`: the work as users get it, through real recipes."""

from __future__ import annotations

import statistics
from functools import cache, partial
from typing import NamedTuple

import torch

from benchmarks.speed_record import Record, table
from benchmarks.timing import Setting, memory, peak_so_far, seconds_of, waits, window_ms
from eans import load as load_graph
from eans.data import info
from eans.errors import DataError
from eans.evaluation import rank
from eans.graph import KnowledgeGraph, Vocabulary
from eans.recipes import load
from eans.recipes.build import build_model, build_trainer, resolve
from eans.samplers import EANS

DATASETS = ("fb15k-237", "wn18rr")
MODEL_NAMES = ("transe", "transd", "distmult", "complex", "rotate")  # the paper's
SWEEP_MODELS = ("transe", "rotate")
SWEEP_NEGATIVES = (1, 4, 16, 64, 256, 1024)
SWEEP_DIMS = (250, 500, 1000, 2000)
# Orderings are timed on their own, so none may fall into a window (but for the first, in the warm-up).
NEVER = 10**9
QUICK = ("model.dim=8", "sampler.negatives=4", "train.batch_size=16", "sampler.clusters=5", "sampler.sigma=10.0")


class StepCell(NamedTuple):
    """A recipe with overrides; a sweep is timed with fewer steps."""

    recipe: str
    overrides: tuple[str, ...] = ()
    sweep: bool = False

    @property
    def key(self) -> str:
        return " ".join([self.recipe, *self.overrides])


def step_cells() -> list[StepCell]:
    """Every model on both graphs, TransE with few negatives, rounded rows, and the sweeps; each cell once."""
    cells = [StepCell(f"{dataset}/{model}/eans+adv") for dataset in DATASETS for model in MODEL_NAMES]
    cells += [StepCell("fb15k-237/transe/eans+adv", (f"sampler.negatives={n}",)) for n in (16, 1)]
    cells += [StepCell(f"fb15k-237/{model}/eans+adv", ("train.rows=bfloat16",)) for model in MODEL_NAMES]
    for model in SWEEP_MODELS:
        name = f"fb15k-237/{model}/eans+adv"
        cells += [StepCell(name, (f"sampler.negatives={n}",), True) for n in SWEEP_NEGATIVES if n != 256]
        cells += [StepCell(name, (f"model.dim={d}",), True) for d in SWEEP_DIMS if d != 1000]
    return list({cell.key: cell for cell in reversed(cells)}.values())[::-1]


@cache
def graph_of(name: str, quick: bool) -> KnowledgeGraph:
    """The graph, or random triples of the same sizes where its files are missing."""
    sizes = info(name).sizes
    if quick:
        return synthetic(name, 300, min(sizes.relations, 20), 900, 40)
    try:
        return load_graph(name, download=False)
    except DataError as problem:
        print(f"NOTE: random triples of the size of {name} instead of the graph ({problem})", flush=True)
        return synthetic(name, sizes.entities, sizes.relations, sizes.train, sizes.test)


def synthetic(name: str, entities: int, relations: int, train: int, test: int) -> KnowledgeGraph:
    """Random triples in which some entities are far more frequent than others, as in real graphs."""
    generator = torch.Generator().manual_seed(0)

    def triples(count: int) -> torch.Tensor:
        ends = (torch.rand(count, 2, generator=generator) ** 3 * entities).long()
        return torch.stack([ends[:, 0], torch.randint(relations, (count,), generator=generator), ends[:, 1]], dim=1)

    names = Vocabulary(map(str, range(entities)))
    kinds = Vocabulary(map(str, range(relations)), "relation")
    return KnowledgeGraph(f"synthetic {name}", names, kinds, triples(train), triples(test), triples(test))


def time_steps(cell: StepCell, setting: Setting) -> Record:
    """Train for a few hundred steps and time them in windows; then time orderings."""
    overrides = [*(QUICK if setting.quick else ()), *cell.overrides, f"sampler.reorder_every={NEVER}"]
    warm_up, windows, length, orders = (20, 5, 20, 1) if cell.sweep else (20, 10, 50, 3)
    if setting.quick:
        warm_up, windows, length = 2, 2, 2
    recipe = load(cell.recipe, overrides, strict=False)
    graph = graph_of(recipe.data.name, setting.quick)
    with memory(setting) as rest:
        trainer = build_trainer(resolve(recipe, graph), graph, setting.device)
        for _ in range(warm_up):
            trainer.step()
        beginning = peak_so_far(setting)
        with memory(setting, fresh=False) as steady:
            times = window_ms(trainer.step, setting, windows, length)
        with waits(setting) as waited:
            for _ in range(4):
                trainer.step()
        sampler, generator = trainer.sampler, trainer.stepper.generator
        assert isinstance(sampler, EANS)
        features = trainer.model.entity_features()
        reorder = seconds_of(lambda: sampler.reorder(features, generator), setting, orders)
    trainer.check()
    return {
        "recipe": cell.recipe,
        "graph": graph.name,
        "model": recipe.model.name,
        "dim": recipe.model.dim,
        "negatives": recipe.sampler.negatives,
        "batch": recipe.train.batch_size,
        "ms": statistics.median(times),
        "ms_windows": times,
        "recorded": len(trainer.stepper.work.graphs) == 2,
        "waits": waited,
        "reorder_ms": 1e3 * statistics.median(reorder),
        "steady_bytes": steady.allocated,
        # From the building of the model on: ordinary steps, recording, replays and re-ordering.
        "peak_bytes": max(beginning, rest.allocated),
        "reserved_bytes": rest.reserved,
    }


def measure_steps(setting: Setting) -> Record:
    """Every cell; results are printed as they come."""
    cells: dict[str, Record] = {}
    for cell in step_cells():
        found = cells[cell.key] = time_steps(cell, setting)
        print(
            f"{cell.key}: {found['ms']:.3f} ms/step ({min(found['ms_windows']):.3f} to {max(found['ms_windows']):.3f}),"
            f" re-order {found['reorder_ms']:.1f} ms, peak {found['peak_bytes'] / 2**30:.2f} GiB"
            + ("" if found["recorded"] else ", NOT RECORDED")
            + (f", WAITS at {', '.join(found['waits'])}" if found["waits"] else ""),
            flush=True,
        )
    return {"cells": cells}


def clustered(entities: int, width: int, device: torch.device) -> torch.Tensor:
    """Random features ``[E, F]`` around a few hundred centres, made block by block on the device."""
    generator = torch.Generator(device).manual_seed(0)
    centres = torch.randn(300, width, generator=generator, device=device)
    features = torch.empty(entities, width, device=device)
    for start in range(0, entities, 1 << 16):
        block = features[start : start + (1 << 16)]
        block.normal_(generator=generator)
        block += 0.5 * centres[torch.randint(300, (len(block),), generator=generator, device=device)]
    return features


def from_seeds(sampler: EANS, features: torch.Tensor, generator: torch.Generator) -> None:
    """A re-ordering that forgets the last one."""
    sampler.centroids = sampler.centroids.new_empty(0, 0)
    sampler.reorder(features, generator)


def measure_kmeans(setting: Setting) -> Record:
    """A whole re-ordering: from fresh seeds, and from the last centroids after the features have moved a little."""
    sizes, width, clusters = ((60, 600), 16, 5) if setting.quick else ((15_000, 150_000, 1_500_000), 1000, 100)
    found: dict[str, Record] = {}
    for entities in sizes:
        names, kinds = Vocabulary(map(str, range(entities))), Vocabulary(["relation"], "relation")
        none = torch.empty(0, 3, dtype=torch.int64)
        graph = KnowledgeGraph("line", names, kinds, torch.tensor([[0, 0, 1]]), none, none)
        with memory(setting) as peak:
            features = clustered(entities, width, setting.device)
            sampler = EANS(graph, 1, clusters=clusters)
            sampler.place(setting.device)
            generator = torch.Generator(setting.device).manual_seed(0)

            cold, warm = (
                partial(from_seeds, sampler, features, generator),
                partial(sampler.reorder, features, generator),
            )
            cold()  # compiles and tunes what is compiled and tuned on first use
            cold_seconds = seconds_of(cold, setting, 3)
            warm_seconds = []
            for _ in range(3):
                features *= 1.0 + 0.02 * torch.rand(width, generator=generator, device=setting.device)
                warm_seconds += seconds_of(warm, setting, 1)
            with waits(setting) as waited:
                warm()
        found[str(entities)] = {
            "entities": entities,
            "width": width,
            "clusters": clusters,
            "cold_ms": 1e3 * statistics.median(cold_seconds),
            "warm_ms": 1e3 * statistics.median(warm_seconds),
            "waits": len(waited),
            "feature_bytes": features.nbytes,
            "peak_bytes": peak.allocated,
        }
    rows = [
        [
            f"{r['entities']:,}",
            f"{r['cold_ms']:.1f}",
            f"{r['warm_ms']:.1f}",
            f"{r['peak_bytes'] / 2**30:.2f}",
            str(r["waits"]),
        ]
        for r in found.values()
    ]
    print(table(["entities", "cold ms", "warm ms", "peak GiB", "waits"], rows), flush=True)
    return {"cells": found}


def ranking_recipes() -> list[str]:
    """Every model on FB15k-237, and RotatE on WN18RR."""
    return [*(f"fb15k-237/{model}/eans+adv" for model in MODEL_NAMES), "wn18rr/rotate/eans+adv"]


def measure_ranking(setting: Setting) -> Record:
    """Filtered ranking of the whole test set, both sides, with the initial weights."""
    found: dict[str, Record] = {}
    for name in ranking_recipes():
        recipe = load(name, QUICK if setting.quick else (), strict=False)
        graph = graph_of(recipe.data.name, setting.quick)
        with memory(setting) as peak:
            model = build_model(resolve(recipe, graph), graph).to(setting.device)
            rank(model, graph, "test", limit=2048)  # compiles, and builds the filter
            times = seconds_of(partial(rank, model, graph, "test"), setting, 1 if setting.quick else 3)
            with waits(setting) as waited:
                rank(model, graph, "test")
        found[name] = {
            "graph": graph.name,
            "queries": 2 * len(graph.test),
            "seconds": statistics.median(times),
            "waits": len(waited),
            "peak_bytes": peak.allocated,
        }
    rows = [
        [
            name,
            f"{r['seconds']:.3f}",
            f"{r['queries'] / r['seconds']:,.0f}",
            f"{r['peak_bytes'] / 2**30:.2f}",
            str(r["waits"]),
        ]
        for name, r in found.items()
    ]
    print(table(["ranking", "seconds", "queries/s", "peak GiB", "waits"], rows), flush=True)
    return {"cells": found}
