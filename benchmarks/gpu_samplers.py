"""Section *samplers* of `benchmarks.gpu`: a step of each sampler beside a uniform one that scores as many, and steps
with candidates that are sorted and that are not.
"""

from __future__ import annotations

import statistics
from functools import cache
from typing import NamedTuple

from benchmarks.gpu_steps import NEVER, QUICK, graph_of
from benchmarks.speed_record import Record, table
from benchmarks.timing import Setting, window_ms
from eans.recipes import Recipe, load
from eans.recipes.build import build_trainer, resolve

PLACE = "fb15k-237/transe"
# How pools are built takes long and changes no step; a generator that only learns the graph would be timed otherwise.
WALKS = ("sampler.kind=walks", "sampler.walks=50", "sampler.hops=2")
COMMON = (f"sampler.reorder_every={NEVER}", "sampler.pretrain_steps=0", *WALKS)
# What is timed: the method of the recipes, and what it is set to.
METHODS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("uniform", ()),
    ("adv", ()),
    ("bernoulli", ()),
    ("frequency", ()),
    ("frequency", ("sampler.counted_in=place",)),
    ("nscaching", ()),
    ("nscaching", ("sampler.negatives=256",)),
    ("nscaching", ("sampler.negatives=256", "sampler.lazy=3")),
    ("sans", ()),
    ("sans+adv", ()),
    ("kbgan", ()),
    ("igan", ()),
    ("gaussian", ()),
    ("eans", ()),
    ("eans", ("sampler.proposal=block",)),
    ("eans", ("sampler.proposal=student",)),
    ("eans", ("sampler.orders=4",)),
    ("eans+adv", ()),
)
# Tables of 58 MB, 116 MB, and twice 164 MB: where sorting the candidates of a positive may pay, and where not.
SORTING = ("fb15k-237/transe/adv", "fb15k-237/complex/adv", "wn18rr/complex/adv", "wn18rr/rotate/adv")


def scored(recipe: Recipe) -> int:
    """Candidates that a step scores per positive, by the model, a cache or KBGAN's generator; not IGAN's softmax."""
    sampler, extra = recipe.sampler, 0
    if sampler.name == "nscaching":  # what is cached and newcomers, at each renewal
        extra = round((sampler.size + sampler.candidates) / (sampler.lazy + 1))
    elif sampler.name == "kbgan":  # the generator scores its pool to draw, and to learn
        extra = 2 * sampler.pool
    return int(sampler.negatives + extra)


class Timing(NamedTuple):
    """The recipe, the median milliseconds of a step, whether steps were recorded, and candidates sorted."""

    recipe: Recipe
    ms: float
    recorded: bool
    sorts: bool


def step_ms(name: str, overrides: tuple[str, ...], setting: Setting, sorts: bool | None = None) -> Timing:
    """Time steps of a recipe; candidates are sorted if `sorts` says so, or by default where the trainer does."""
    recipe = load(name, [*(QUICK if setting.quick else ()), *COMMON, *overrides], strict=False)
    graph = graph_of(recipe.data.name, setting.quick)
    trainer = build_trainer(resolve(recipe, graph), graph, setting.device)
    usual = trainer.sampler.sorts
    if sorts is not None:
        trainer.execution.sort_candidates(sorts)
    warm_up, windows, length = (2, 2, 2) if setting.quick else (20, 7, 30)
    for _ in range(warm_up):
        trainer.step()
    times = window_ms(trainer.step, setting, windows, length)
    trainer.check()
    return Timing(recipe, statistics.median(times), len(trainer.stepper.work.graphs) == 2, usual)


def measure_samplers(setting: Setting) -> Record:
    """Both parts."""
    return {"cells": measure_methods(setting), "sorting": measure_sorting(setting)}


def measure_sorting(setting: Setting) -> dict[str, Record]:
    """Steps whose candidates are sorted, and not; ``sorts`` says what the trainer does by itself."""
    cells: dict[str, Record] = {}
    for name in SORTING:
        plain, ordered = (step_ms(name, (), setting, sorts) for sorts in (False, True))
        cells[name] = {"unsorted_ms": plain.ms, "sorted_ms": ordered.ms, "sorts": plain.sorts}
    rows = [
        [name, f"{r['unsorted_ms']:.3f}", f"{r['sorted_ms']:.3f}", "yes" if r["sorts"] else "no"]
        for name, r in cells.items()
    ]
    print(table(["candidates", "unsorted ms", "sorted ms", "sorts"], rows), flush=True)
    return cells


def measure_methods(setting: Setting) -> dict[str, Record]:
    """Every method; the uniform steps beside them treat known answers alike, by masking or by drawing again."""

    @cache
    def uniform(negatives: int, false_negatives: str) -> float:
        settings = (f"sampler.negatives={negatives}", f"sampler.false_negatives={false_negatives}")
        return step_ms(f"{PLACE}/uniform", settings, setting).ms

    cells: dict[str, Record] = {}
    for method, overrides in METHODS:
        recipe, ms, recorded, _ = step_ms(f"{PLACE}/{method}", overrides, setting)
        beside = uniform(scored(recipe), recipe.sampler.false_negatives)
        cells[" ".join([method, *overrides])] = {
            "negatives": recipe.sampler.negatives,
            "scored": scored(recipe),
            "ms": ms,
            "uniform_ms": beside,
            "ratio": ms / beside,
            "recorded": recorded,
        }
    rows = [
        [name, str(r["negatives"]), str(r["scored"]), f"{r['ms']:.3f}", f"{r['uniform_ms']:.3f}", f"{r['ratio']:.2f}x"]
        for name, r in cells.items()
    ]
    print(table(["sampler", "n", "scored", "ms", "uniform ms", "ratio"], rows), flush=True)
    return cells
