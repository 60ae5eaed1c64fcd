"""Section *check* of `benchmarks.gpu`, second part: everything that a step, a ranking and K-means do besides comparing.

Operations that make whole numbers or copies must equal their definitions; the others are compared in float32 with the
definition in float64. All of them run twice and must give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.findings import Finding, equality, poison, relative_error
from eans import kernels
from eans.kernels import COMPARISONS, Comparison
from eans.kernels.deferred_gradients import DeferredGradients
from eans.optimizer import Adagrad, Adam, Optimizer

REFERENCE = kernels.functions("reference")
# Exponentials and logarithms are a few units in the last place off, and their arguments are rounded.
LOSS_TOLERANCE = 5e-6
# Squared distances are differences of larger numbers.
NEAREST_TOLERANCE = 3e-6
# A number in bfloat16 is off by up to 2^-9; differences near zero change their sign, so slopes suffer more than sums.
ROUNDED_TOLERANCE = 0.1
# Ten bits behind the point: a factor is off by up to 2^-11, a sum of many products by less.
TF32_TOLERANCE = 2e-3
STEPS = 3


class Extent(NamedTuple):
    """Odd sizes, so that every kernel has an end that is not full."""

    batch: int = 37
    negatives: int = 51
    dim: int = 206
    entities: int = 1001
    long: int = 40_001  # more scores than one program counts


TINY = Extent(5, 7, 22, 31, 50)


class Source:
    """Random tensors, the same for every call in the same order."""

    def __init__(self, device: torch.device, seed: int = 0) -> None:
        self.device = device
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *size: int) -> Tensor:
        return torch.randn(size, generator=self.generator).to(self.device)

    def whole(self, below: int, *size: int) -> Tensor:
        return torch.randint(below, size, generator=self.generator).to(self.device)

    def line(self, size: int) -> tuple[Tensor, Tensor]:
        """A random order, and the place of each."""
        order = torch.randperm(size, generator=self.generator)
        return order.to(self.device), torch.argsort(order).to(self.device)


def with_gradients(function: Callable[..., Tensor], inputs: list[Tensor], outer: Tensor) -> list[Tensor]:
    """The result and the gradient of every input."""
    leaves = [value.detach().clone().requires_grad_() for value in inputs]
    result = function(*leaves)
    return [result.detach(), *torch.autograd.grad(result, leaves, outer.to(result.dtype))]


def differentiable(
    name: str,
    fast: Callable[..., Tensor],
    definition: Callable[..., Tensor],
    inputs: list[Tensor],
    tolerance: float = 1e-6,
) -> Finding:
    """Result and gradients of one operation: the largest error of them."""
    with torch.no_grad():
        shape = definition(*inputs).shape
    outer = Source(inputs[0].device, 7).normal(*shape)
    poison(inputs[0].device, 16)
    found, again = (with_gradients(fast, inputs, outer) for _ in range(2))
    exact = with_gradients(definition, [value.double() for value in inputs], outer)
    error = max(relative_error(one, other) for one, other in zip(found, exact, strict=True))
    return Finding(name, error, 0, all(map(torch.equal, found, again)), tolerance)


def check_vectors(source: Source, extent: Extent) -> Iterator[Finding]:
    """Rows against rows, complex products, projections; once with one row for all."""
    batch, dim = extent.batch, extent.dim
    left, right = source.normal(batch, dim), source.normal(batch, dim)
    for kind in COMPARISONS:

        def rows(module: Any, kind: Comparison = kind) -> Callable[..., Tensor]:
            return lambda query, row: module.compare_rows(kind, query, row)

        yield differentiable(f"compare_rows {kind}", rows(kernels), rows(REFERENCE), [left, right])

    for conjugate, other in ((False, right), (True, right[:1])):

        def product(module: Any, conjugate: bool = conjugate) -> Callable[..., Tensor]:
            return lambda one, two: module.complex_product(one, two, conjugate)

        name = f"complex_product{' conjugate, one for all' if conjugate else ''}"
        yield differentiable(name, product(kernels), product(REFERENCE), [left, other])
    for size in (batch, 1):
        name = f"project{'' if size > 1 else ', one for all'}"
        direction = right[:size, : dim // 2].contiguous()
        yield differentiable(name, kernels.project, REFERENCE.project, [left, direction])


def check_rounded(source: Source, extent: Extent) -> Iterator[Finding]:
    """What reading rows in bfloat16 costs: errors of scores and of their queries' gradients against exact rows."""
    for kind in COMPARISONS:
        table = nn.Parameter(source.normal(extent.entities, extent.dim))
        optimizer = Adam([table], torch.tensor(0.1, device=table.device), rounded=True)
        if not optimizer.kernels.ROUNDS:
            return
        entities = source.whole(extent.entities, extent.batch, extent.negatives)
        queries, outer = source.normal(1, extent.batch, extent.dim), source.normal(1, extent.batch, extent.negatives)

        def compare(
            module: Any, rows: Tensor, kind: Comparison = kind, ids: Tensor = entities
        ) -> Callable[..., Tensor]:
            return lambda wanted: module.compare(kind, wanted, rows, ids)

        rounded = deferring(optimizer.sink(table))
        found, again = (with_gradients(compare(rounded, table), [queries], outer) for _ in range(2))
        exact = with_gradients(compare(REFERENCE, table.detach().double()), [queries.double()], outer)
        same = all(torch.equal(one, two) for one, two in zip(found, again, strict=True))
        for name, one, two in zip(("scores", "query gradient"), found, exact, strict=True):
            yield Finding(f"{kind} with bfloat16 rows: {name}", relative_error(one, two), 0, same, ROUNDED_TOLERANCE)


def check_loss(source: Source, extent: Extent) -> Iterator[Finding]:
    """The loss with and without substitution, and once with equal weights."""
    batch, negatives = extent.batch, extent.negatives
    scores = [source.normal(batch), source.normal(batch, negatives), source.normal(batch, negatives)]
    known = source.normal(batch, negatives) > 0.5
    known[1] = True  # nothing left to push down
    weight = source.normal(batch).abs() + 0.1
    for substitution, temperature in ((True, 0.7), (False, 0.7), (False, 0.0)):

        def terms(module: Any, temperature: float = temperature) -> Callable[..., Tensor]:
            def call(positive: Tensor, negative: Tensor, other: Tensor | None = None) -> Tensor:
                numbers = known, weight.to(negative.dtype), 2.0, temperature, 0.5, 0.1
                result: Tensor = module.loss_terms(positive, negative, other, *numbers)
                return result

            return call

        name = f"loss_terms{' substitution' if substitution else ''} temperature={temperature}"
        inputs = scores if substitution else scores[:2]
        yield differentiable(name, terms(kernels), terms(REFERENCE), inputs, LOSS_TOLERANCE)


def check_all_entities(source: Source, extent: Extent) -> Iterator[Finding]:
    """Products with a whole table, N3, and the softmax over all rows, of which one is masked but for the positive."""
    batch, entities = extent.batch, extent.entities
    factors = [source.normal(batch, extent.dim), source.normal(entities, extent.dim)]
    yield differentiable("products", kernels.products, REFERENCE.products, factors, TF32_TOLERANCE)
    yield from check_rounded_products(factors[0], factors[1], source.normal(batch, entities))
    for parts in (1, 2):
        coordinates = [source.normal(batch, parts, extent.dim)]
        name = f"sum_moduli_cubed of {parts} part{'s' if parts > 1 else ''}"
        yield differentiable(name, kernels.sum_moduli_cubed, REFERENCE.sum_moduli_cubed, coordinates)
    scores = [source.normal(batch), 3.0 * source.normal(batch, entities)]
    known = source.normal(batch, entities) > 1.0
    known[1] = True
    for proposal in (None, source.normal(batch, entities) - 7.0):

        def nll(module: Any, proposal: Tensor | None = proposal) -> Callable[..., Tensor]:
            return lambda positive, negative: module.softmax_nll(positive, negative, known, proposal)

        name = f"softmax_nll{'' if proposal is None else ' with a proposal'}"
        yield differentiable(name, nll(kernels), nll(REFERENCE), scores, LOSS_TOLERANCE)


def check_rounded_products(queries: Tensor, rows: Tensor, outer: Tensor) -> Iterator[Finding]:
    """What factors in bfloat16 cost: errors of scores and of both gradients against exact ones."""
    table = nn.Parameter(rows)
    optimizer = Adam([table], torch.tensor(0.1, device=table.device), rounded=True)
    sink = optimizer.sink(table)
    if not optimizer.kernels.ROUNDS or sink is None:
        return
    parts = []
    for _ in range(2):
        optimizer.zero_grad()
        found = with_gradients(lambda wanted: kernels.products(wanted, table, sink), [queries], outer)
        parts.append([*found, sink.leading[0]])
    exact = with_gradients(REFERENCE.products, [queries.double(), rows.double()], outer)
    same = all(torch.equal(one, two) for one, two in zip(*parts, strict=True))
    for name, one, two in zip(("scores", "query gradient", "table gradient"), parts[0], exact, strict=True):
        yield Finding(f"products of bfloat16: {name}", relative_error(one, two), 0, same, ROUNDED_TOLERANCE)


def check_sampling(source: Source, extent: Extent) -> Iterator[Finding]:
    """Draws and labels equal their definitions; a batch has the right triples, in whatever order."""
    batch, entities = extent.batch, extent.entities
    line, places = source.line(entities)
    start, noise = source.whole(entities, batch), source.normal(batch, extent.negatives)
    arguments = line, start, noise, 0.4 * entities
    found, again = (kernels.step_along(*arguments) for _ in range(2))
    yield equality("step_along", [found], [REFERENCE.step_along(*arguments)], [again])

    starts = source.whole(4, entities + 1).cumsum(0)  # pools of up to three entities, many empty
    members = source.whole(entities, int(starts[-1])).int()
    uniforms = source.normal(batch, extent.negatives).sigmoid()
    found, again = (kernels.pick(members, starts, start, uniforms, entities) for _ in range(2))
    yield equality("pick", [found], [REFERENCE.pick(members, starts, start, uniforms, entities)], [again])

    queries = 11
    keys = torch.unique(source.whole(entities * queries, entities * queries // 3))
    prefix, drawn = source.whole(queries, batch), source.whole(entities, batch, extent.negatives)
    drawn[:, ::3] = drawn[:, 1:2]  # some repeat
    for repeats_from in (None, entities / 3):
        labels = keys, prefix, drawn, entities, repeats_from
        found, again = (kernels.label(*labels) for _ in range(2))
        exact = REFERENCE.label(*labels)
        yield equality(f"label{'' if repeats_from is None else ' repeats'}", [found], [exact], [again])
    chances = keys, prefix, drawn, source.whole(entities, 4, batch, extent.negatives), entities
    yield equality("redraw", *(list(run(*chances)) for run in (kernels.redraw, REFERENCE.redraw, kernels.redraw)))

    triples, weights = source.whole(entities, 4 * batch, 3), source.normal(4 * batch)
    rows = source.whole(4 * batch, batch)
    taken, again_taken = (kernels.take(triples, weights, rows, places, 2) for _ in range(2))
    plain = REFERENCE.take(triples, weights, rows, places, 2)
    yield equality("take", in_order(*taken), in_order(*plain), in_order(*again_taken))


def in_order(triples: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of a batch, sorted by all of their columns."""
    order = torch.argsort(weights, stable=True)
    for column in range(3):
        order = order[torch.argsort(triples[order, column], stable=True)]
    return triples[order], weights[order]


def check_counts(source: Source, extent: Extent) -> Finding:
    """Counts in a ranking with many ties and long lists of known answers."""
    batch, entities, queries = 7, extent.long, 5
    scores = source.whole(100, batch, entities).float()
    keys = torch.unique(source.whole(entities * queries, entities))
    asked = source.whole(queries, batch) * entities
    start, stop = torch.searchsorted(keys, asked), torch.searchsorted(keys, asked + entities)
    arguments = scores, source.whole(entities, batch), keys, start, stop
    found, again = (kernels.count_better(*arguments) for _ in range(2))
    return equality("count_better", found, REFERENCE.count_better(*arguments), again)


def check_kmeans(source: Source, extent: Extent) -> Iterator[Finding]:
    """`nearest`: the error is how much farther the chosen centroid is than the nearest one. Means and sizes."""
    points, centroids = source.normal(5 * extent.entities, extent.dim + 1), source.normal(29, extent.dim + 1)
    labels, distances = kernels.nearest(points, centroids)
    again = kernels.nearest(points, centroids)
    exact = torch.cdist(points.double(), centroids.double()).square()
    chosen = exact.gather(1, labels[:, None])[:, 0]
    error = max(relative_error(chosen, exact.min(1).values), relative_error(distances, chosen))
    same = torch.equal(labels, again[0]) and torch.equal(distances, again[1])
    yield Finding("nearest", error, 0, same, NEAREST_TOLERANCE)

    labels[labels == 7] = 8  # an empty group
    poison(points.device, 16)
    means, sizes = kernels.group_means(points, labels, len(centroids))
    second = kernels.group_means(points, labels, len(centroids))
    exact_means, exact_sizes = REFERENCE.group_means(points.double(), labels, len(centroids))
    error = relative_error(means, exact_means) if torch.equal(sizes, exact_sizes) else float("inf")
    yield Finding("group_means", error, 0, torch.equal(means, second[0]) and torch.equal(sizes, second[1]))


# --- optimizers -----------------------------------------------------------------------------------------------------


class Definitions:
    """The operations on tables, in plain PyTorch; `eans.kernels` has the same names."""

    compare = staticmethod(REFERENCE.compare)
    gather = staticmethod(REFERENCE.gather)
    sum_abs_cubed = staticmethod(REFERENCE.sum_abs_cubed)
    half_products = staticmethod(REFERENCE.half_products)


def deferring(sink: DeferredGradients | None) -> SimpleNamespace:
    """The operations on a table by the chosen kernels, which leave its gradient in `sink`."""
    names = ("compare", "gather", "half_products", "sum_abs_cubed")
    return SimpleNamespace(**{name: partial(getattr(kernels, name), deferred=sink) for name in names})


Loss = Callable[[Any, Tensor], Tensor]


def candidates_and_rows(source: Source, extent: Extent, kind: Comparison) -> list[Loss]:
    """A loss for each step: of scores and of the rows of the positives, as in training."""
    batch, dim, count = extent.batch, extent.dim, 2 if kind == "dot" else 3
    losses: list[Loss] = []
    for _ in range(STEPS):
        queries, outer = source.normal(count, batch, dim), source.normal(2, batch, extent.negatives)
        drawn, ends = (
            source.whole(extent.entities - 2, batch, extent.negatives),
            source.whole(extent.entities, 2, batch),
        )
        rows = source.normal(2, batch, dim)

        def loss(
            ops: Any,
            table: Tensor,
            queries: Tensor = queries,
            outer: Tensor = outer,
            drawn: Tensor = drawn,
            ends: Tensor = ends,
            rows: Tensor = rows,
        ) -> Tensor:
            gathered = ops.gather(table, ends)
            scores = ops.compare(kind, queries.to(table.dtype), table, drawn, None, None, True)
            total: Tensor = (scores * outer).sum() + (gathered * rows).sum()
            return total

        losses.append(loss)
    return losses


def all_parts(source: Source, extent: Extent) -> list[Loss]:
    """A loss with everything that can have a part in the gradient of a table: TransD's, and two penalties."""
    batch, half = extent.batch, extent.dim // 2
    # No slope of these shifted candidates may be in doubt by rounding, so they are compared by products.
    queries, shifts = source.normal(2, batch, half), source.normal(2, batch, half)
    outer, drawn = source.normal(2, batch, extent.negatives), source.whole(extent.entities, batch, extent.negatives)
    ends, rows = source.whole(extent.entities, 2, batch), source.normal(2, batch, extent.dim)

    def loss(ops: Any, table: Tensor) -> Tensor:
        kind = table.dtype
        gathered, scalars = ops.gather(table, ends), ops.half_products(table)
        scores = ops.compare("dot", queries.to(kind), table[:, :half], drawn, shifts.to(kind), scalars, True)
        parts: Tensor = (scores * outer).sum() + (gathered * rows).sum() + 0.1 * ops.sum_abs_cubed(table)
        return parts + table.square().sum()  # what no kernel knows of

    return [loss] * STEPS


def optimizer_steps(
    rule: type[Optimizer], losses: list[Loss], source: Source, extent: Extent, line: tuple[Tensor, Tensor] | None
) -> tuple[list[Tensor], float]:
    """Steps of our optimizer; the table and its state after them, and the largest error of one step.

    Every step is compared with one of PyTorch's in float64 from where ours stands: both see the same numbers, so no
    rounding of an earlier step can turn the sign of a difference. The moments do not start at zero, where a step would
    depend on the sign of a gradient alone.
    """
    size = extent.entities, extent.dim
    rate = torch.tensor(0.01, device=source.device)
    table = nn.Parameter(source.normal(*size))
    optimizer = rule([table], rate, line)
    ours = {"step": torch.full((), 4.0, device=source.device)}
    if rule.averages is not None:
        ours[rule.averages] = source.normal(*size)
    ours[rule.squares] = source.normal(*size).abs() + 0.5
    optimizer.state[table] = ours
    worst = 0.0
    for loss in losses:
        wide = nn.Parameter(table.detach().double())
        exact = getattr(torch.optim, rule.__name__)([wide], lr=float(rate))
        exact.state[wide] = {name: value.double() for name, value in ours.items()}
        exact.state[wide]["step"] = ours["step"].cpu().clone()
        loss(Definitions, wide).backward()  # type: ignore[no-untyped-call]
        exact.step()
        optimizer.zero_grad()
        loss(deferring(optimizer.sink(table)), table).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        pairs = [(table.detach(), wide.detach())]
        pairs += [(ours[name], exact.state[wide][name]) for name in rule.names() if name != "step"]
        worst = max(worst, *(relative_error(one, other) for one, other in pairs))
    return [table.detach(), *ours.values()], worst


def check_update(device: torch.device, extent: Extent) -> Iterator[Finding]:
    """Adam with each comparison, in the table's order and along a line; both optimizers with all parts at once."""

    def run(rule: type[Optimizer], make: Callable[[Source], list[Loss]], along: bool) -> tuple[list[Tensor], float]:
        source = Source(device)
        line = source.line(extent.entities)
        return optimizer_steps(rule, make(source), source, extent, line if along else None)

    cases: list[tuple[type[Optimizer], str, Callable[[Source], list[Loss]], bool]] = [
        (
            Adam,
            f"{kind}{' along a line' if along else ''}",
            partial(candidates_and_rows, extent=extent, kind=kind),
            along,
        )
        for kind in COMPARISONS
        for along in (False, True)
    ]
    cases += [(rule, "with all parts", partial(all_parts, extent=extent), True) for rule in (Adam, Adagrad)]
    for rule, name, make, along in cases:
        poison(device, 16)
        (found, error), (again, _) = run(rule, make, along), run(rule, make, along)
        yield Finding(f"{rule.__name__} {name}, {STEPS} steps", error, 0, all(map(torch.equal, found, again)))


def check_step(device: torch.device, quick: bool) -> list[Finding]:
    """All of the above; an operation that is added gets a line here."""
    extent, source = TINY if quick else Extent(), Source(device)
    return [
        *check_vectors(source, extent),
        *check_rounded(source, extent),
        *check_loss(source, extent),
        *check_all_entities(source, extent),
        *check_sampling(source, extent),
        check_counts(source, extent),
        *check_kmeans(source, extent),
        *check_update(device, extent),
    ]
