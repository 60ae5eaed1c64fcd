"""Section *all-entities* of `benchmarks.gpu`: the softmax over all entities, beside plain PyTorch."""

from __future__ import annotations

import statistics

import torch

from benchmarks.gpu_steps import graph_of
from benchmarks.speed_record import Record, table
from benchmarks.timing import Setting, copy_bandwidth, median_ms, window_ms
from eans import kernels
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve

CELLS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("fb15k-237/complex/best", ("train.batch_size=512",)),
    ("fb15k-237/complex/best", ()),
    ("fb15k-237/distmult/best", ()),
    ("wn18rr/complex/best", ()),
    ("wn18rr/distmult/best", ()),
)
EXACT, ROUNDED = "train.rows=float32", "train.rows=bfloat16"
# Passes over numbers of four bytes, as many as the table has: the gradient is written and read, the table and the sums
# of its squares are read and written.
PASSES = 6


def product_rate(setting: Setting) -> float:
    """Multiply-adds per second of a large product of factors in bfloat16."""
    width = 256 if setting.quick else 8192
    left = torch.randn(width, width, device=setting.device, dtype=torch.bfloat16 if setting.on_gpu else None)
    return width**3 / (median_ms(lambda: left @ left, setting) / 1e3)


def step_ms(name: str, overrides: list[str], setting: Setting) -> tuple[float, Record]:
    """Median milliseconds of a step, and its sizes."""
    recipe = load(name, [*(["model.dim=8", "train.batch_size=16"] if setting.quick else []), *overrides], strict=False)
    graph = graph_of(recipe.data.name, setting.quick)
    trainer = build_trainer(resolve(recipe, graph), graph, setting.device)
    warm_up, windows, length = (2, 2, 2) if setting.quick else (20, 5, 40)
    for _ in range(warm_up):
        trainer.step()
    times = window_ms(trainer.step, setting, windows, length)
    trainer.check()
    entities, width = trainer.model.entity.shape
    sizes = {"batch": trainer.stream.batch_size, "entities": entities, "width": width}
    return statistics.median(times), sizes


def measure_all_entities(setting: Setting) -> Record:
    """Every cell with rows in float32, rounded, and in plain PyTorch, whose products are in float32 throughout."""
    bandwidth, rate = copy_bandwidth(setting), product_rate(setting)
    cells: dict[str, Record] = {}
    for name, overrides in CELLS:
        ms, sizes = step_ms(name, [*overrides, EXACT], setting)
        rounded_ms, _ = step_ms(name, [*overrides, ROUNDED], setting)
        with kernels.chosen("reference"):
            plain_ms, _ = step_ms(name, [*overrides, EXACT], setting)
        numbers = sizes["entities"] * sizes["width"]
        floor = 1e3 * (3 * sizes["batch"] * numbers / rate + PASSES * 4 * numbers / bandwidth)
        cells[" ".join([name, *overrides])] = {
            "recipe": name, **sizes, "ms": ms, "rounded_ms": rounded_ms, "plain_ms": plain_ms, "floor_ms": floor,
        }  # fmt: skip
    columns = ("ms", "rounded_ms", "plain_ms", "floor_ms")
    rows = [[name, *(f"{cell[column]:.3f}" for column in columns)] for name, cell in cells.items()]
    print(table(["all entities", "float32 ms", "bfloat16 ms", "PyTorch ms", "floor ms"], rows), flush=True)
    return {"bandwidth": bandwidth, "multiply_adds": rate, "cells": cells}
