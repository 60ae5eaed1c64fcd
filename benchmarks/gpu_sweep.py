"""Section *sweep* of `benchmarks.gpu`: other tiles for the Triton kernels, each timed in the place of the chosen one.

For choosing tiles anew on other hardware or after a kernel has changed. The tiles in `eans.kernels` stay as they are;
the winner is for a person to write down there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

import torch

from benchmarks.gpu_kernels import KernelCase, kernel_cases, make_step, uses_triton
from benchmarks.speed_record import Record, table
from benchmarks.timing import Setting, median_ms, replayed_ms
from eans.errors import UsageError

RECIPES = tuple(f"fb15k-237/{model}/eans+adv" for model in ("transe", "rotate", "complex"))


class Sweep(NamedTuple):
    """What to try for one kernel.

    Attributes:
        case: the name of its `KernelCase`.
        module, name: where its tile is; in a dictionary by comparison, or on its own.
        tiles: to try; the chosen one is tried too.
    """

    case: str
    module: str
    name: str
    tiles: tuple[tuple[int, ...], ...]


SWEEPS = (
    # Rows, columns, warps.
    Sweep(
        "forward", "comparison.triton", "FORWARD_TILES",
        ((2, 128, 1), (4, 64, 1), (4, 128, 1), (8, 64, 1), (8, 128, 1), (2, 256, 2), (4, 256, 2), (8, 256, 2)),
    ),
    Sweep(
        "query gradient", "comparison.triton_queries", "QUERY_TILES",
        ((1, 128, 1), (2, 128, 1), (4, 128, 1), (8, 128, 1), (4, 64, 1), (2, 256, 2), (4, 256, 2)),
    ),
    Sweep(
        "entity gradient + Adam", "comparison.triton_candidates", "CANDIDATE_TILES",
        ((1, 128, 1), (2, 128, 1), (4, 128, 1), (2, 64, 1), (1, 256, 1), (1, 256, 2), (2, 256, 2), (1, 512, 2)),
    ),
    # Queries, entities, columns, warps, stages.
    Sweep(
        "compare_all", "rank.triton", "RANK_BLOCKS",
        (
            (32, 64, 8, 4, 3), (32, 64, 8, 4, 4), (32, 64, 8, 8, 3), (32, 64, 16, 8, 3), (16, 64, 8, 4, 3),
            (16, 64, 16, 4, 3), (32, 32, 8, 4, 3), (16, 32, 16, 4, 3), (16, 32, 32, 4, 3),
        ),
    ),
    # Points, centroids, columns, warps, stages.
    Sweep(
        "nearest", "kmeans.triton", "NEAREST_BLOCK",
        ((128, 128, 32, 8, 3), (128, 128, 32, 8, 2), (64, 128, 32, 8, 3), (64, 128, 32, 4, 3), (32, 128, 32, 4, 3)),
    ),
)  # fmt: skip


class Place:
    """Where a kernel's tile is."""

    def __init__(self, sweep: Sweep, kind: str) -> None:
        self.module = import_module(f"eans.kernels.{sweep.module}")
        self.name = sweep.name
        held = getattr(self.module, sweep.name)
        self.tiles: dict[str, Any] | None = held if isinstance(held, dict) else None
        self.kind = kind
        self.chosen: Any = held if self.tiles is None else self.tiles.get(kind)

    def put(self, tile: Any) -> None:
        """Let the kernel use another tile."""
        if self.tiles is None:
            setattr(self.module, self.name, tile)
        else:
            self.tiles[self.kind] = tile

    @contextmanager
    def holding(self, tile: Any) -> Iterator[None]:
        """Use another tile inside the block."""
        self.put(tile)
        try:
            yield
        finally:
            self.put(self.chosen)


def rows_of(case: KernelCase, sweep: Sweep, kind: str, setting: Setting) -> list[Record]:
    """One kernel with each of its tiles, the fastest first; none where PyTorch does the work (`compare_all` of dot)."""
    place = Place(sweep, kind)
    if place.chosen is None:
        return []
    rows: list[Record] = []
    for tile in dict.fromkeys((tuple(place.chosen), *sweep.tiles)):
        row: Record = {"kernel": case.name, "kind": kind, "tile": list(tile), "chosen": tile == tuple(place.chosen)}
        with place.holding(type(place.chosen)(*tile)):
            try:
                row |= {"ms": median_ms(case.call, setting), "replayed_ms": replayed_ms(case.call, setting)}
            except Exception as problem:  # too large for the hardware, mostly
                row["error"] = type(problem).__name__
        rows.append(row)
    return sorted(rows, key=lambda row: float(row.get("ms", float("inf"))))


def measure_sweep(setting: Setting) -> Record:
    """Every kernel with a tile for every comparison; results are printed as they come."""
    if not uses_triton(setting.device):
        raise UsageError("tiles belong to the Triton kernels, which do not run here")
    found: list[Record] = []
    done: set[tuple[str, str]] = set()
    for recipe in RECIPES:
        torch.manual_seed(0)
        step = make_step(recipe, setting)
        cases = {case.name: case for case in kernel_cases(step)}
        for sweep in SWEEPS:
            kind = "any" if sweep.name == "NEAREST_BLOCK" else step.sizes.kind
            if (sweep.case, kind) in done:
                continue
            done.add((sweep.case, kind))
            rows = rows_of(cases[sweep.case], sweep, kind, setting)
            found += rows
            if rows:
                print(f"\n{sweep.case}, {kind}\n{text(rows)}", flush=True)
    return {"rows": found}


def text(rows: list[Record]) -> str:
    """The tiles of one kernel as a table."""

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    lines = [
        [
            ", ".join(map(str, row["tile"])),
            number(row.get("ms")),
            number(row.get("replayed_ms")),
            row.get("error", "chosen" if row["chosen"] else ""),
        ]
        for row in rows
    ]
    return table(["tile", "ms", "replayed", ""], lines)
