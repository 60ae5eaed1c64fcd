"""Section *check* of `benchmarks.gpu`: are the fast kernels right? Nothing is timed before they are.

Scores and every gradient are compared with the float64 reference at odd sizes, and a second run must give the same
bits. The slope of an L1 distance jumps where a difference passes zero. A float32 subtraction never changes the sign of
a difference, but ``row + scalar * shift`` is rounded before it is subtracted, so a difference that is exactly zero or
tiny may come out on the other side. A modulus turns quickly there for the same reason. Which slopes are in doubt is
computed in float64; an error there is allowed up to the gradient that hangs on them, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import eans
from benchmarks.findings import Case, Finding, poison, relative_error
from benchmarks.gpu_check_step import check_step
from benchmarks.timing import Setting
from eans import kernels
from eans.kernels import Comparison
from eans.kernels.vectors.reference import modulus
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve

REFERENCE = kernels.functions("reference")
ULP = float(torch.finfo(torch.float32).eps)
TURN = 1e-4  # a modulus whose slope turns by less is not worth an allowance
MOST_NEAR = 0.05  # share of slopes that may be in doubt (some are made so on purpose)


@dataclass(frozen=True)
class Shape:
    """Sizes of a case; see `eans.kernels.compare`."""

    kind: Comparison
    count: int
    shifted: bool
    batch: int = 37
    negatives: int = 51
    dim: int = 206
    entities: int = 1001

    @property
    def label(self) -> str:
        return f"{self.kind} Q={self.count}{' shifted' if self.shifted else ''}"


# Each comparison with as many queries as training uses; shifts where TransD has them, and once elsewhere.
SHAPES = (
    Shape("dot", 2, False),
    Shape("l1", 1, False),
    Shape("l1", 3, False),
    Shape("modulus", 3, False),
    Shape("l1", 3, True),
    Shape("modulus", 2, True),
)


def make_case(shape: Shape, device: torch.device) -> Case:
    """Random arguments; in some columns the first query equals its first candidate, as far as float32 can say."""
    generator = torch.Generator().manual_seed(shape.batch + shape.dim)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator).to(device)

    count, batch, dim, num_entities = shape.count, shape.batch, shape.dim, shape.entities
    # The last two entities are never drawn. Rows are longer than what is compared, as TransD's are.
    entities = torch.randint(num_entities - 2, (batch, shape.negatives), generator=generator).to(device)
    queries, table = normal(count, batch, dim), normal(num_entities, dim + 8)[:, :dim]
    shifts, scalars = (normal(count, batch, dim), normal(num_entities)) if shape.shifted else (None, None)
    first = entities[:, 0]
    candidate = table[first]
    if shifts is not None and scalars is not None:
        candidate = candidate + scalars[first, None] * shifts[0]
    queries[0, :, ::9] = candidate[:, ::9]
    outer = normal(count, batch, shape.negatives)
    outer[2:] = outer[1:2]  # as the gradient of a mean: see `results`
    return Case(queries, table, entities, shifts, scalars, outer)


def widened(case: Case) -> Case:
    """The same in float64."""
    return Case(*(value.double() if value is not None and value.is_floating_point() else value for value in case))  # type: ignore[arg-type]


def results(compare: Callable[..., Tensor], kind: Comparison, case: Case) -> dict[str, Tensor]:
    """Scores and every gradient by name; with more than two queries, of the mean score of all but the first."""
    named = {"queries": case.queries, "table": case.table, "shifts": case.shifts, "scalars": case.scalars}
    leaves = {name: value.detach().requires_grad_() for name, value in named.items() if value is not None}
    moves, mean_rest = (leaves.get("shifts"), leaves.get("scalars")), len(case.queries) > 2
    scores = compare(kind, leaves["queries"], leaves["table"], case.entities, *moves, mean_rest)
    outer = torch.stack([case.outer[0], case.outer[1:].sum(0)]) if mean_rest else case.outer
    gradients = torch.autograd.grad(scores, list(leaves.values()), outer)
    return {"scores": scores.detach(), **dict(zip(leaves, gradients, strict=True))}


def slope_doubts(kind: Comparison, wide: Case) -> Tensor:
    """How far rounding can turn the slope at each difference, between 0 and 2: ``[Q, B, N, D]``, from a float64 case.

    Only a moved candidate is rounded before the subtraction. An L1 slope is then in doubt, entirely, where rounding
    could carry the difference across zero; a modulus turns by the rounding over its length, which matters where the
    length is tiny.
    """
    rows, queries = wide.table[wide.entities], wide.queries[:, :, None]
    if kind == "dot" or wide.shifts is None or wide.scalars is None:
        return torch.zeros(*queries.shape[:2], *rows.shape[1:], dtype=rows.dtype, device=rows.device)
    moves = wide.scalars[wide.entities][..., None] * wide.shifts[:, :, None]
    difference = queries - rows - moves
    # Half a unit in the last place each for the product, the sum and the difference, and as much again.
    bound = ULP * (moves.abs() + (rows + moves).abs() + queries.abs())
    if kind == "l1":
        return 2.0 * (difference.abs() <= bound)
    turn = 2.0 * sum(bound.chunk(2, -1)) / modulus(difference)
    return torch.where(turn > TURN, turn.clamp(max=2.0), 0.0).repeat(1, 1, 1, 2)


def allowances(wide: Case, doubts: Tensor) -> dict[str, Tensor]:
    """The largest error of each gradient that the doubts explain: the gradients that hang on them."""
    mass = wide.outer.abs()[..., None] * doubts  # [Q, B, N, D]
    flat = wide.entities.reshape(-1)

    def by_entity(values: Tensor, like: Tensor) -> Tensor:
        return torch.zeros(like.shape, dtype=like.dtype, device=like.device).index_add_(0, flat, values)

    found = {"queries": mass.sum(2), "table": by_entity(mass.sum(0).flatten(0, 1), wide.table)}
    if wide.shifts is not None and wide.scalars is not None:
        found["shifts"] = (mass * wide.scalars[wide.entities].abs()[None, ..., None]).sum(2)
        along = (mass * wide.shifts.abs()[:, :, None]).sum((0, 3))
        found["scalars"] = by_entity(along.flatten(), wide.scalars)
    return found


def check_compare(shape: Shape, device: torch.device) -> Iterator[Finding]:
    """`compare`, its gradients and `compare_all` for one shape."""
    case = make_case(shape, device)
    wide = widened(case)
    exact = results(REFERENCE.compare, shape.kind, wide)
    poison(device)
    found = results(kernels.compare, shape.kind, case)
    again = results(kernels.compare, shape.kind, case)
    doubts = slope_doubts(shape.kind, wide)
    count = int((doubts > 0).sum())
    if count > MOST_NEAR * doubts.numel():
        raise AssertionError(f"{shape.label}: {count} of {doubts.numel()} slopes are in doubt; the case checks nothing")
    allowed = allowances(wide, doubts)
    for name, value in found.items():
        error = relative_error(value, exact[name], allowed.get(name))
        yield Finding(f"{shape.label}: {name}", error, count, torch.equal(value, again[name]))

    def ranked(module: Any, case: Case) -> Tensor:
        shifts = None if case.shifts is None else case.shifts[0]
        scores: Tensor = module.compare_all(shape.kind, case.queries[0], case.table, shifts, case.scalars)
        return scores

    with torch.no_grad():
        scores = ranked(kernels, case)
        error = relative_error(scores, ranked(REFERENCE, wide))
        yield Finding(f"{shape.label}: compare_all", error, 0, torch.equal(scores, ranked(kernels, case)))


def check_replay(device: torch.device, steps: int = 12) -> Finding:
    """Recorded steps must leave the same bits as ordinary ones: a small run of the bundled graph, both ways."""
    graph = eans.load("wordnet-core")
    settings = {"model.dim": 36, "sampler.negatives": 9, "train.batch_size": 33, "train.steps": 1000}
    recipe = resolve(load("wordnet-core/transe/eans+adv", settings), graph)
    weights = []
    for recorded in (True, False):
        trainer = build_trainer(recipe, graph, device)
        if not recorded:
            trainer.stepper.work.enabled = False
        for _ in range(steps):
            trainer.step()
        weights.append(trainer.model.entity.detach().clone())
    error = relative_error(weights[0], weights[1].double())
    return Finding(f"{steps} recorded and ordinary steps", error, 0, torch.equal(*weights))


def check(setting: Setting) -> list[Finding]:
    """Comparisons at several shapes, all other operations, and recorded steps."""
    shapes = [replace(shape, batch=5, negatives=7, dim=22, entities=31) if setting.quick else shape for shape in SHAPES]
    found = [finding for shape in shapes for finding in check_compare(shape, setting.device)]
    found += check_step(setting.device, setting.quick)
    if setting.on_gpu:  # elsewhere nothing is recorded
        found.append(check_replay(setting.device))
    return found
