"""Section *kernels* of `benchmarks.gpu`: each kernel alone, at the paper's sizes, held against its floor.

A kernel that is added gets one `KernelCase` in `kernel_cases`. A case that fails is reported as such and does not keep
the others from being measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks import kernel_costs
from benchmarks.gpu_steps import graph_of
from benchmarks.kernel_costs import Cost, Sizes
from benchmarks.speed_record import Record, table
from benchmarks.timing import Call, Setting, copy_bandwidth, median_ms, multiply_add_rate, replayed_ms
from eans import kernels
from eans.batches import BatchStream
from eans.data import info
from eans.graph import HEAD, TAIL, KnowledgeGraph
from eans.kernels.deferred_gradients import CandidateGradient, DeferredGradients, RowGradient
from eans.kernels.side_stream import SideStream
from eans.models import MODELS
from eans.optimizer import Adam
from eans.recipes import load
from eans.samplers import EANS

CLUSTERS = 100
# ComplEx stands for DistMult too: the recipes give both rows of the same width.
RECIPES = (
    *(f"fb15k-237/{model}/eans+adv" for model in ("transe", "rotate", "complex", "transd")),
    *(f"wn18rr/{model}/eans+adv" for model in ("rotate", "complex")),
)


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
        return replace(sizes, batch=4, negatives=6, dim=24, stride=sizes.stride // sizes.dim * 24, sigma=5)
    return sizes


def uses_triton(device: torch.device) -> bool:
    """Are there kernels for the parts of a step, rather than operations of PyTorch?"""
    return kernels.optimizer_kernels(device).__name__.endswith("updates.triton")


@dataclass(frozen=True)
class Step:
    """The tensors of one training step at a recipe's sizes, as the trainer has them; see `eans.kernels`.

    Attributes:
        sizes: with what was found out by drawing.
        sampler, stream: of the graph; the sampler's line is a random one.
        rows: which training triples the batch has.
        triples, weights: the batch, in the order of the line.
        noise, candidates: what was drawn.
        table: all entity rows ``[E, F]``.
        queries, outer: random; `outer` is the gradient of the scores.
        shifts, scalars: of TransD.
    """

    sizes: Sizes
    graph: KnowledgeGraph
    sampler: EANS
    stream: BatchStream
    rows: Tensor
    triples: Tensor
    weights: Tensor
    noise: Tensor
    candidates: Tensor
    table: Tensor
    queries: Tensor
    outer: Tensor
    shifts: Tensor | None
    scalars: Tensor | None

    @property
    def compared(self) -> Tensor:
        """The columns that are compared."""
        return self.table[:, : self.sizes.dim]

    @property
    def ends(self) -> Tensor:
        """The entities of the positives: int64 ``[2 B]``."""
        return torch.cat((self.triples[:, HEAD], self.triples[:, TAIL]))

    @property
    def places(self) -> Tensor:
        """Where each entity stands along the line."""
        return self.sampler.real_to_virtual


def make_step(recipe: str, setting: Setting) -> Step:
    """Random numbers around a real batch of the recipe's graph."""
    sizes, device = sizes_of(recipe, setting.quick), setting.device
    graph = graph_of(load(recipe).data.name, setting.quick)
    sampler = EANS(
        graph, sizes.negatives, clusters=min(CLUSTERS, graph.num_entities), sigma=sizes.sigma, known_true="repeats"
    )
    sampler.virtual_to_real = torch.randperm(graph.num_entities)
    sampler.real_to_virtual = torch.argsort(sampler.virtual_to_real)
    sampler.place(device)
    stream = BatchStream(graph, sizes.batch, seed=0, device=device)
    rows, _ = stream.rows(0)
    triples, _, weights = stream.batch(rows, "tail", sampler.real_to_virtual)
    noise = torch.randn(sizes.batch, sizes.negatives, device=device)
    start = sampler.real_to_virtual[triples[:, TAIL]]
    candidates = kernels.step_along(sampler.virtual_to_real, start, noise, sizes.sigma)
    queries = torch.randn(sizes.count, sizes.batch, sizes.dim, device=device)
    return Step(
        replace(
            sizes,
            entities=graph.num_entities,
            distinct=len(torch.unique(candidates)),
            answers=int(sampler.known.count(triples, "tail").sum()),
        ),
        graph,
        sampler,
        stream,
        rows,
        triples,
        weights,
        noise,
        candidates,
        torch.randn(graph.num_entities, sizes.stride, device=device),
        queries,
        torch.randn(2, sizes.batch, sizes.negatives, device=device),
        torch.randn_like(queries) if sizes.shifted else None,
        torch.randn(graph.num_entities, device=device) if sizes.shifted else None,
    )


def make_deferred(step: Step) -> DeferredGradients:
    """The parts of the entity table's gradient as a backward pass leaves them, along the line, the uses sorted."""
    sizes, ids, device = step.sizes, step.ends, step.table.device
    # Nothing runs concurrently here: a kernel is timed alone.
    deferred = DeferredGradients(step.sampler.ordering(), SideStream(torch.device("cpu")))
    ticket = deferred.gather(ids)
    import_module("eans.kernels.triton_sort").plan(deferred, step.candidates, sizes.entities)
    deferred.rows.append(RowGradient(ticket, ids, torch.randn(len(ids), sizes.stride, device=device)))
    if sizes.shifted:
        deferred.leading.append(torch.randn(sizes.entities, sizes.dim, device=device))
        deferred.products.append(torch.randn(sizes.entities, device=device))
    else:
        deferred.candidates.append(CandidateGradient(sizes.kind, True, step.outer, step.queries, step.candidates))
    if sizes.kind == "dot":  # the recipes have an L3 penalty
        deferred.cubed.append(torch.full((), 1e-5, device=device))
    return deferred


def update_case(step: Step, deferred: DeferredGradients, dense: bool) -> Call:
    """A step of Adam on a copy of the table, from parts of the gradient or from a whole one."""
    module = import_module("eans.kernels.updates.triton")
    copy = step.table.clone()
    moments = torch.zeros_like(copy), torch.ones_like(copy)
    gradient = torch.randn_like(copy) if dense else None
    factors = torch.tensor([1e-4, 1.0], device=copy.device)
    return partial(module.update, copy, *moments, factors, deferred, gradient, Adam.betas, Adam.epsilon)


def comparison_cases(step: Step) -> Iterator[KernelCase]:
    """The kernels of a comparison: forwards, backwards, and Adam."""
    sizes = step.sizes
    arguments = (step.queries, step.compared, step.candidates, step.shifts, step.scalars)
    if not uses_triton(step.table.device):
        call = partial(kernels.compare, sizes.kind, *arguments, mean_rest=True)
        yield KernelCase("forward", call, kernel_costs.forward(sizes))
        return
    forward, query, candidates, sort = (
        getattr(import_module(f"eans.kernels.{module}"), name)
        for module, name in (
            ("comparison.triton", "forward_scores"),
            ("comparison.triton_queries", "query_gradients"),
            ("comparison.triton_candidates", "candidate_gradients"),
            ("triton_sort", "sorted_ids"),
        )
    )
    given = import_module("eans.kernels.comparison.triton_arguments").Arguments(sizes.kind, *arguments, True)
    deferred = make_deferred(step)
    yield KernelCase("forward", partial(forward, given), kernel_costs.forward(sizes))
    yield KernelCase("query gradient", partial(query, step.outer, given), kernel_costs.query_gradient(sizes))
    uses = step.places[torch.cat((step.candidates.flatten(), step.ends))]
    yield KernelCase("sort", partial(sort, uses, sizes.entities), kernel_costs.sort(sizes))
    yield KernelCase(
        "entity gradient", partial(candidates, step.outer, given, deferred), kernel_costs.entity_gradient(sizes)
    )
    name = "parts + Adam" if sizes.shifted else "entity gradient + Adam"
    yield KernelCase(name, update_case(step, deferred, False), kernel_costs.update(sizes))
    nothing = DeferredGradients(None, deferred.side_stream)
    yield KernelCase("Adam", update_case(step, nothing, True), kernel_costs.adam(sizes))


def sampling_cases(step: Step) -> Iterator[KernelCase]:
    """What comes before the scores: the batch, the draw, the labels."""
    sizes, sampler = step.sizes, step.sampler
    take = partial(kernels.take, step.stream.triples, step.stream.weights["tail"], step.rows, step.places, TAIL)
    yield KernelCase("take", take, kernel_costs.take(sizes))
    start = step.places[step.triples[:, TAIL]]
    draw = partial(kernels.step_along, sampler.virtual_to_real, start, step.noise, sizes.sigma)
    yield KernelCase("step_along", draw, kernel_costs.step_along(sizes))
    keys, prefix = sampler.known.keys["tail"], sampler.known.prefix(step.triples, "tail")
    label = partial(kernels.label, keys, prefix, step.candidates, sizes.entities, sampler.repeats_from)
    yield KernelCase("label", label, kernel_costs.label(sizes))


def loss_case(step: Step) -> KernelCase:
    """The loss and its gradients, with self-adversarial weights and substitution."""
    known = torch.rand(step.candidates.shape, device=step.table.device) < 0.05
    positive = torch.randn(step.sizes.batch, device=step.table.device).requires_grad_()
    negative, substitution = (scores.clone().requires_grad_() for scores in step.outer)

    def passes() -> object:
        terms = kernels.loss_terms(positive, negative, substitution, known, step.weights, 9.0, 1.0, 0.5, 0.1)
        return torch.autograd.grad(terms.sum(), (positive, negative, substitution))

    return KernelCase("loss, both passes", passes, kernel_costs.loss_terms(step.sizes))


def ranking_cases(step: Step) -> Iterator[KernelCase]:
    """A block of a ranking, and the halves of a K-means iteration."""
    sizes, points = step.sizes, step.table
    shift = None if step.shifts is None else step.shifts[0]
    rank_all = partial(kernels.compare_all, sizes.kind, step.queries[0], step.compared, shift, step.scalars)
    yield KernelCase("compare_all", rank_all, kernel_costs.rank_all(sizes))
    known = step.graph.known.to(points.device)
    start, stop = known.run(step.triples, "tail")
    scores = torch.randn(sizes.batch, sizes.entities, device=points.device)
    count = partial(kernels.count_better, scores, step.triples[:, TAIL], known.keys["tail"], start, stop)
    answers = int((stop - start).sum())
    yield KernelCase("count_better", count, kernel_costs.count_better(replace(sizes, answers=answers)))
    clusters = min(CLUSTERS, sizes.entities)
    centroids = points[:clusters].clone()
    extent = sizes.entities, sizes.stride, clusters
    yield KernelCase("nearest", partial(kernels.nearest, points, centroids), kernel_costs.nearest(*extent))
    labels, _ = kernels.nearest(points, centroids)
    means = partial(kernels.group_means, points, labels, clusters)
    yield KernelCase("group_means", means, kernel_costs.group_means(*extent))


def kernel_cases(step: Step) -> Iterator[KernelCase]:
    """Everything that is timed for one recipe, made only when it is asked for."""
    yield from sampling_cases(step)
    yield from comparison_cases(step)
    yield loss_case(step)
    yield from ranking_cases(step)


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
        torch.manual_seed(0)
        step = make_step(recipe, setting)
        sizes = step.sizes
        cases[sizes.label] = [row_of(case, setting, bandwidth, rate) for case in kernel_cases(step)]
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
