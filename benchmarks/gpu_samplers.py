"""Section *samplers* of `benchmarks.gpu`: a step of each sampler beside a uniform one that scores as many."""

from __future__ import annotations

import statistics
from functools import cache

from benchmarks.gpu_steps import NEVER, QUICK, graph_of
from benchmarks.speed_record import Record, table
from benchmarks.timing import Setting, window_ms
from eans.recipes import Recipe, load
from eans.recipes.build import build_trainer, resolve

PLACE = "fb15k-237/transe"
# How pools are built takes long and changes no step; a generator that only learns the graph would be timed otherwise.
COMMON = (f"sampler.reorder_every={NEVER}", "sampler.pretrain_steps=0", "sampler.walks=50", "sampler.hops=2")
# What is timed: the method of the recipes, and what it is set to.
METHODS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("uniform", ()),
    ("adv", ()),
    ("bernoulli", ()),
    ("nscaching", ()),
    ("nscaching", ("sampler.negatives=256",)),
    ("nscaching", ("sampler.negatives=256", "sampler.cache_lazy=3")),
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


def scored(recipe: Recipe) -> int:
    """Candidates that a step scores per positive, by the model, a cache or KBGAN's generator; not IGAN's softmax."""
    sampler, extra = recipe.sampler, 0
    if sampler.name == "nscaching":  # what is cached and newcomers, at each renewal
        extra = round((sampler.cache_size + sampler.cache_candidates) / (sampler.cache_lazy + 1))
    elif sampler.name == "kbgan":  # the generator scores its pool to draw, and to learn
        extra = 2 * sampler.pool
    return sampler.negatives + extra


def step_ms(method: str, overrides: tuple[str, ...], setting: Setting) -> tuple[Recipe, float, bool]:
    """The recipe, the median milliseconds of a step, and whether steps were recorded."""
    recipe = load(f"{PLACE}/{method}", [*(QUICK if setting.quick else ()), *COMMON, *overrides])
    graph = graph_of(recipe.data.name, setting.quick)
    trainer = build_trainer(resolve(recipe, graph), graph, setting.device)
    warm_up, windows, length = (2, 2, 2) if setting.quick else (20, 7, 30)
    for _ in range(warm_up):
        trainer.step()
    times = window_ms(trainer.step, setting, windows, length)
    trainer.check()
    return recipe, statistics.median(times), len(trainer.work.recordings) == 2


def measure_samplers(setting: Setting) -> Record:
    """Every method; the uniform steps beside them treat known answers alike, by masking or by drawing again."""

    @cache
    def uniform(negatives: int, false_negatives: str) -> float:
        settings = (f"sampler.negatives={negatives}", f"sampler.false_negatives={false_negatives}")
        return step_ms("uniform", settings, setting)[1]

    cells: dict[str, Record] = {}
    for method, overrides in METHODS:
        recipe, ms, recorded = step_ms(method, overrides, setting)
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
    return {"cells": cells}
