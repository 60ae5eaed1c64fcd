"""Section *kernels* of `benchmarks.gpu`: each kernel alone, at the paper's sizes, held against its floor.

A kernel that is added gets one `KernelCase` in `kernel_cases`. A case that fails is reported as such and does not keep
the others from being measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks import kernel_costs
from benchmarks.kernel_costs import Cost, Sizes
from benchmarks.speed_record import Record, table
from benchmarks.timing import Call, Setting, copy_bandwidth, median_ms, multiply_add_rate, replayed_ms
from eans import kernels
from eans.data import info
from eans.models import MODELS
from eans.recipes import load

CLUSTERS = 100


class KernelCase(NamedTuple):
    """Something to time, and what it must move and compute."""

    name: str
    call: Call
    cost: Cost


def sizes_of(recipe: str, quick: bool = False) -> Sizes:
    """The comparison in a training step of a recipe, by its published graph."""
    settings = load(recipe)
    model = MODELS[settings.model.name]
    published = info(settings.data.name).sizes
    sigma = settings.sampler.sigma
    sizes = Sizes(
        label="/".join(recipe.split("/")[:2]),
        kind=model.comparison,
        count=2 if model.comparison == "dot" else 3,  # the query, and the substitution score's one or two
        batch=int(settings.train.batch_size),
        negatives=settings.sampler.negatives,
        dim=model.candidate_width * settings.model.dim,
        stride=model.entity_width * settings.model.dim,
        entities=published.entities,
        sigma=float(sigma),
        shifted=settings.model.name == "transd",
    )
    if quick:
        return replace(sizes, batch=4, negatives=6, dim=24, stride=sizes.stride // sizes.dim * 24, entities=50, sigma=5)
    return sizes


# ComplEx stands for DistMult too: the recipes give both rows of the same width.
RECIPES = tuple(
    f"{dataset}/{model}/eans+adv"
    for dataset in ("fb15k-237", "wn18rr")
    for model in ("transe", "rotate", "complex", "transd")
)


def draw(sizes: Sizes, device: torch.device) -> Tensor:
    """Candidates ``[B, N]`` as EANS draws them: a Gaussian around the positive on a line of all entities."""
    line = torch.randperm(sizes.entities, device=device)
    positive = torch.randint(sizes.entities, (sizes.batch, 1), device=device)
    offset = (torch.randn(sizes.batch, sizes.negatives, device=device) * sizes.sigma).round().long()
    return line[(positive + offset).remainder(sizes.entities)]


def adam_case(table: Tensor) -> Call:
    """A step of dense Adam on one table."""
    parameter = torch.nn.Parameter(table.clone())
    parameter.grad = torch.randn_like(parameter)
    on_gpu = table.device.type == "cuda"
    rate = torch.tensor(1e-4, device=table.device)
    optimizer = torch.optim.Adam([parameter], lr=rate, fused=True, capturable=on_gpu)
    return optimizer.step


def kernel_cases(sizes: Sizes, device: torch.device) -> Iterator[KernelCase]:
    """Everything that is timed for one model and graph, made only when it is asked for."""
    rows = torch.randn(sizes.entities, sizes.stride, device=device)
    compared = rows[:, : sizes.dim]
    queries = torch.randn(sizes.count, sizes.batch, sizes.dim, device=device)
    entities = draw(sizes, device)
    outer = torch.randn(sizes.count, sizes.batch, sizes.negatives, device=device)
    shifts = torch.randn_like(queries) if sizes.shifted else None
    scalars = torch.randn(sizes.entities, device=device) if sizes.shifted else None
    sizes = replace(sizes, distinct=len(torch.unique(entities)))
    arguments = (sizes.kind, queries, compared, entities, shifts, scalars)
    graded = (sizes.kind, outer, queries, compared, entities, shifts, scalars)

    given = {"queries": queries, "table": compared, "shifts": shifts, "scalars": scalars}
    leaves = {name: value.detach().requires_grad_() for name, value in given.items() if value is not None}

    def passes() -> object:
        scores = kernels.compare(sizes.kind, entities=entities, **leaves)
        return torch.autograd.grad(scores, list(leaves.values()), outer)

    if kernels.current() == "triton" or (kernels.current() == "auto" and device.type == "cuda"):
        compare, gradients = (import_module(f"eans.kernels.triton_{name}") for name in ("compare", "gradients"))
        yield KernelCase("forward", lambda: compare.forward_scores(*arguments), kernel_costs.forward(sizes))
        query = kernel_costs.query_gradient(sizes)
        yield KernelCase("query gradient", lambda: gradients.query_gradients(*graded), query)
        yield KernelCase("sort", lambda: gradients.pairs_by_entity(entities, sizes.entities), kernel_costs.sort(sizes))
        entity, sorting = kernel_costs.entity_gradient(sizes), kernel_costs.sort(sizes)
        cost = Cost(*(one + other for one, other in zip(entity, sorting, strict=True)))
        yield KernelCase("entity gradient with sort", lambda: gradients.entity_gradients(*graded), cost)
    else:
        yield KernelCase("forward", lambda: kernels.compare(*arguments), kernel_costs.forward(sizes))
    yield KernelCase("compare, both passes", passes, kernel_costs.both_passes(sizes))
    yield KernelCase("Adam", adam_case(rows), kernel_costs.adam(sizes))
    shift = None if shifts is None else shifts[0]
    rank_all = partial(kernels.compare_all, sizes.kind, queries[0], compared, shift, scalars)
    yield KernelCase("compare_all", rank_all, kernel_costs.rank_all(sizes))
    clusters = min(CLUSTERS, sizes.entities)
    centroids = rows[:clusters].clone()
    cost = kernel_costs.nearest(sizes.entities, sizes.stride, clusters)
    yield KernelCase("nearest", partial(kernels.nearest, rows, centroids), cost)


def row_of(
    case: KernelCase, setting: Setting, bandwidth: float, rate: float, clock: Callable[..., float] = median_ms
) -> Record:
    """Time one case."""
    floor = 1e3 * case.cost.floor_seconds(bandwidth, rate)
    row: Record = {"name": case.name, **case.cost._asdict(), "floor_ms": floor}
    try:
        row["ms"] = clock(case.call, setting)
    except Exception as problem:
        return {**row, "error": f"{type(problem).__name__}: {str(problem).splitlines()[0] if str(problem) else ''}"}
    row["replayed_ms"] = replayed_ms(case.call, setting)
    row["distinct_gb_per_s"] = case.cost.distinct / row["ms"] / 1e6
    row["gathered_gb_per_s"] = case.cost.gathered / row["ms"] / 1e6
    row["percent_of_floor"] = 100.0 * floor / row["ms"]
    return row


def measure(setting: Setting) -> Record:
    """All cases of all recipes; results are printed as they come."""
    bandwidth, rate = copy_bandwidth(setting), multiply_add_rate(setting)
    print(f"copy {bandwidth / 1e12:.2f} TB/s, float32 {rate / 1e12:.1f} T multiply-adds/s", flush=True)
    cases: dict[str, list[Record]] = {}
    for recipe in RECIPES:
        sizes = sizes_of(recipe, setting.quick)
        torch.manual_seed(0)
        cases[sizes.label] = [row_of(case, setting, bandwidth, rate) for case in kernel_cases(sizes, setting.device)]
        print(f"\n{sizes.label}: {sizes.kind} Q={sizes.count} b={sizes.batch} n={sizes.negatives} D={sizes.dim}")
        print(text(cases[sizes.label]), flush=True)
    return {"copy_bytes_per_s": bandwidth, "multiply_adds_per_s": rate, "cases": cases}


def text(rows: list[Record]) -> str:
    """The rows of one recipe as a table."""

    def number(row: dict[str, Any], key: str, digits: int, scale: float = 1.0) -> str:
        return "-" if row.get(key) is None else f"{row[key] * scale:.{digits}f}"

    header = ["kernel", "ms", "replayed", "floor", "% of floor", "MB", "MB gathered", "GB/s", "GB/s gathered"]
    lines = [
        [
            row["name"],
            number(row, "ms", 3),
            number(row, "replayed_ms", 3),
            number(row, "floor_ms", 3),
            number(row, "percent_of_floor", 0),
            number(row, "distinct", 0, 1e-6),
            number(row, "gathered", 0, 1e-6),
            number(row, "distinct_gb_per_s", 0),
            number(row, "gathered_gb_per_s", 0),
        ]
        for row in rows
    ]
    failed = [f"{row['name']} FAILED: {row['error']}" for row in rows if "error" in row]
    return "\n".join([table(header, lines), *failed])
