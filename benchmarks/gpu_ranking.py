"""Ranking and K-means on a CUDA GPU, checked and timed: `python -m benchmarks.gpu_ranking [check rank kmeans sweep]`.

Without arguments everything runs, in a minute or two. The graph has the size of FB15k-237 and a few hubs; with
``--data FOLDER`` the one in that folder is taken.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from eans import evaluation, kernels, ordering
from eans.data.readers import load_folder
from eans.graph import SIDES, KnowledgeGraph, Vocabulary
from eans.kernels import Comparison, reference
from eans.models import MODELS

# (queries, entities, columns, warps, stages) to try in place of `triton_rank.RANK_BLOCKS`.
RANK_BLOCKS: dict[Comparison, list[tuple[int, int, int, int, int]]] = {
    "l1": [
        (32, 64, 8, 4, 3),
        (32, 64, 8, 4, 4),
        (32, 128, 4, 4, 3),
        (16, 128, 8, 4, 3),
        (16, 64, 16, 4, 3),
        (16, 64, 8, 2, 3),
        (32, 64, 16, 8, 3),
        (16, 32, 32, 4, 3),
        (16, 32, 32, 4, 1),
    ],
    "modulus": [
        (32, 64, 8, 4, 3),
        (32, 64, 8, 4, 4),
        (32, 64, 8, 8, 3),
        (16, 64, 8, 4, 3),
        (32, 32, 8, 4, 3),
        (16, 32, 16, 4, 3),
        (16, 32, 8, 2, 3),
        (16, 16, 32, 4, 3),
        (16, 16, 32, 4, 1),
    ],
}
# (points, centroids, columns, warps, stages) to try in place of `triton_nearest.NEAREST_BLOCK`.
NEAREST_BLOCKS = [
    (128, 128, 32, 8, 3),
    (128, 128, 32, 8, 2),
    (64, 128, 32, 8, 3),
    (64, 128, 32, 4, 3),
    (32, 128, 32, 4, 3),
]
# (rows, columns, warps) to try in `group_means`.
MEAN_TILES = [(8, 256, 4), (16, 128, 4), (4, 512, 4), (8, 512, 8)]


def timed(work: Callable[..., Any], *arguments: Any, repeat: int = 7) -> float:
    """Median milliseconds, the device idle before and after."""
    work(*arguments)
    times = []
    for _ in range(repeat):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work(*arguments)
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    return median(times)


@contextmanager
def waits() -> Iterator[list[str]]:
    """Where the host waits for the device, as far as PyTorch notices."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        yield found
        torch.cuda.set_sync_debug_mode("default")
    found += [f"{Path(one.filename).name}:{one.lineno}" for one in caught if "synchroniz" in str(one.message)]


def fb_sized(entities: int = 14_541, relations: int = 237) -> KnowledgeGraph:
    """Random triples whose ends are drawn by Zipf's law, so that some queries have thousands of answers."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.arange(1, entities + 1).double().pow(-0.8)

    def triples(size: int) -> Tensor:
        ends = torch.multinomial(weights, 2 * size, replacement=True, generator=generator).view(size, 2)
        kinds = torch.multinomial(weights[:relations], size, replacement=True, generator=generator)
        return torch.stack([ends[:, 0], kinds, ends[:, 1]], 1)

    names = Vocabulary(map(str, range(entities))), Vocabulary(map(str, range(relations)), "relation")
    return KnowledgeGraph("fb-sized", *names, triples(272_115), triples(17_535), triples(20_466))


def check(graph: KnowledgeGraph) -> None:
    """The kernels against float64, ranks against those of the CPU, and who waits for the device."""
    from eans.kernels import triton_nearest, triton_rank

    generator = torch.Generator("cuda").manual_seed(0)
    kinds: tuple[Comparison, ...] = ("l1", "modulus")
    for kind in kinds:
        queries, table = (torch.randn(n, 1000, device="cuda", generator=generator) for n in (300, 14_541))
        scores = triton_rank.compare_all(kind, queries, table)
        exact = torch.stack([kernels.compare_rows(kind, query.double(), table.double()) for query in queries])
        error = float((scores - exact).norm() / exact.norm())
        print(f"compare_all {kind}: relative error {error:.1e}")
        assert error < 1e-6

    known = graph.known.to("cuda")
    batch = graph.test[:512].to("cuda")
    for side in SIDES:
        start, stop = known.run(batch, side)
        truth = batch[:, 0 if side == "head" else 2]
        scores = torch.randint(-50, 50, (512, graph.num_entities), device="cuda", generator=generator).float()
        for chunk in (triton_rank.COUNT_CHUNK, 4096):
            triton_rank.COUNT_CHUNK, before = chunk, triton_rank.COUNT_CHUNK
            fast = triton_rank.count_better(scores, truth, known.keys[side], start, stop)
            triton_rank.COUNT_CHUNK = before
            plain = reference.count_better(scores, truth, known.keys[side], start, stop)
            assert all(torch.equal(a, b) for a, b in zip(fast, plain, strict=True))
    print(f"count_better: equal; most answers of a query: {int((stop - start).max())}")

    points, centroids = (torch.randn(n, 1000, device="cuda", generator=generator) for n in (20_000, 100))
    labels, distances = triton_nearest.nearest(points, centroids)
    exact_labels, exact_distances = reference.nearest(points.double(), centroids.double())
    error = float(((distances - exact_distances) / exact_distances).abs().max())
    differ = int((labels != exact_labels).sum())
    print(f"nearest: {differ} of 20,000 labels differ from float64, distances by at most {error:.1e}")
    assert differ <= 20 and error < 1e-5  # noqa: PT018
    labels[labels == 7] = 8
    means, sizes = triton_nearest.group_means(points, labels, 100)
    again, _ = triton_nearest.group_means(points, labels, 100)
    exact_means, exact_sizes = reference.group_means(points.double(), labels, 100)
    assert torch.equal(means, again)
    assert torch.equal(sizes, exact_sizes)
    print(f"group_means: error {float((means - exact_means).norm() / exact_means.norm()):.1e}")

    for name, model_class in MODELS.items():
        model = model_class(graph.num_entities, graph.num_relations, 100, generator=torch.Generator().manual_seed(0))
        slow = evaluation.rank(model, graph, limit=300)
        model = model.cuda()
        evaluation.rank(model, graph, limit=300)
        with waits() as found:
            fast_ranks = evaluation.rank(model, graph, limit=300, memory=60 * evaluation.bytes_per_query(model))
        moved = sum(int((slow.greater[side] != fast_ranks.greater[side]).sum()) for side in SIDES)
        print(f"rank {name}: {moved} of 600 ranks differ from the CPU's (rounding); waits at {sorted(set(found))}")
    draw = torch.Generator("cuda").manual_seed(1)
    one = ordering.kmeans(points, 100, torch.Generator("cuda").manual_seed(1))
    with waits() as found:
        two = ordering.kmeans(points, 100, draw)
    print(f"kmeans: waits at {found}")
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def rank(graph: KnowledgeGraph) -> None:
    """Seconds for all of test, both sides, d = 1000, and the parts of one block."""
    known = graph.known.to("cuda")
    for name, model_class in MODELS.items():
        model = model_class(graph.num_entities, graph.num_relations, 1000).cuda()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        whole = timed(evaluation.rank, model, graph, repeat=3)
        peak = (torch.cuda.max_memory_allocated() - held) / 2**20
        batch = graph.test[:4096].to("cuda")
        scores = model.score_all(batch, "tail")
        start, stop = known.run(batch, "tail")
        score = timed(model.score_all, batch, "tail")
        count = timed(kernels.count_better, scores, batch[:, 2], known.keys["tail"], start, stop)
        run = timed(known.run, batch, "tail")
        print(
            f"rank {name:9}: {whole / 1e3:.3f} s, peak {peak:.0f} MiB; "
            f"4096 queries: score {score:.2f}, count {count:.2f}, look up {run:.2f} ms"
        )


def sweep(graph: KnowledgeGraph) -> None:
    """Milliseconds for 4096 queries against all entities, and for the halves of a K-means iteration, by tile."""
    from eans.kernels import triton_nearest, triton_rank

    for kind, blocks in RANK_BLOCKS.items():
        width = 2000 if kind == "modulus" else 1000
        queries, table = (torch.randn(n, width, device="cuda") for n in (4096, graph.num_entities))
        ideal = 4096 * graph.num_entities * 1000 * (2 / 128 if kind == "l1" else 1 / 16) / (132 * 1.98e9) * 1e3
        for block in blocks:
            triton_rank.RANK_BLOCKS[kind] = triton_rank.Block(*block)
            spent = timed(triton_rank.compare_all, kind, queries, table)
            print(f"{kind} {block}: {spent:.2f} ms (arithmetic alone {ideal:.2f})")
    points, centroids = torch.randn(graph.num_entities, 1000, device="cuda"), torch.randn(100, 1000, device="cuda")
    for block in NEAREST_BLOCKS:
        triton_nearest.NEAREST_BLOCK = triton_nearest.Block(*block)
        print(f"nearest {block}: {timed(triton_nearest.nearest, points, centroids):.3f} ms")
    print(f"nearest, plain PyTorch: {timed(reference.nearest, points, centroids):.3f} ms")
    labels, _ = triton_nearest.nearest(points, centroids)
    for tile in MEAN_TILES:
        triton_nearest.ROWS, triton_nearest.COLUMNS, triton_nearest.WARPS = tile
        print(f"group_means {tile}: {timed(triton_nearest.group_means, points, labels, 100):.3f} ms")
    print(f"group_means, plain PyTorch: {timed(reference.group_means, points, labels, 100):.3f} ms")


def kmeans(graph: KnowledgeGraph) -> None:
    """Milliseconds of an ordering at three sizes: fresh seeds, warm start, the parts of an iteration, chain, order."""
    for entities in (graph.num_entities, 150_000, 1_500_000):
        points = torch.randn(entities, 1000, device="cuda")
        _, start = ordering.kmeans(points, 100, torch.Generator("cuda").manual_seed(0), iterations=2)

        def run(work: Callable[..., Any], *arguments: Any, points: Tensor = points) -> Any:
            return work(points, 100, torch.Generator("cuda").manual_seed(0), *arguments)

        labels, distances = kernels.nearest(points, start)
        sizes = kernels.group_means(points, labels, 100)[1]
        parts: dict[str, tuple[Any, ...]] = {
            "seeds": (run, ordering.seed_centroids),
            "fresh": (run, ordering.kmeans),
            "warm": (run, ordering.kmeans, start),
            "nearest": (kernels.nearest, points, start),
            "means": (kernels.group_means, points, labels, 100),
            "restart": (ordering._restart_empty, start, sizes, points, distances),
            "chain": (ordering.chain, start),
            "order": (ordering.order, labels, torch.arange(100, device="cuda")),
        }
        times = ", ".join(f"{name} {timed(*part, repeat=3):.3f}" for name, part in parts.items())
        print(f"K-means, {entities} x 1000: {times} ms")
        del points, parts
        torch.cuda.empty_cache()


def main() -> None:
    """Run the parts that are named, or all."""
    parts = {"check": check, "rank": rank, "kmeans": kmeans, "sweep": sweep}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=", ".join(parts))
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    graph = load_folder(options.data) if options.data else fb_sized()
    assert graph.known is not None
    for part in options.parts or parts:
        parts[part](graph)


if __name__ == "__main__":
    main()
