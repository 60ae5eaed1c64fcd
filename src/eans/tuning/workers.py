"""How many trials a search runs at a time."""

from __future__ import annotations

import os

import torch

from eans.arguments import shown, whole
from eans.errors import UsageError
from eans.graph import KnowledgeGraph
from eans.penalties import PENALTIES
from eans.recipes.parts import REGISTRIES

AUTO = "auto"
MOST = 4  # of "auto"; more have not been measured
SHORT = 60.0  # seconds; processes take three to start, which is much of a shorter search
# Entities up to which two processes with a thread each clearly do more steps on two cores than one with two threads, as
# much of a step uses one core. Beyond, the gain is small and each trial slower. On a GPU nothing was measured.
SMALL_ON_CPU, SMALL_ON_GPU = 20_000, 5_000
# Memory of a GPU for each process, estimated: its own, and that of the largest model with a few tables of its size.
CONTEXT, WIDEST, TABLES = 2 << 30, 1600 * 4, 16
ON_GPU = 2


def workers_for(workers: int | str, graph: KnowledgeGraph, device: torch.device, seconds: float) -> int:
    """The number of trials at a time: what was asked for, or what ``"auto"`` stands for.

    Args:
        workers: a number, also as text, or ``"auto"``.
        graph: what is trained on.
        device: where.
        seconds: of the search.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(workers, str):
        if workers == AUTO:
            return _automatic(graph, device, seconds, min(cores, torch.get_num_threads()))
        try:
            workers = int(workers)
        except ValueError:
            raise UsageError(f"workers must be a whole number or auto, got {shown(workers)}") from None
    found = whole("workers", workers, 1)
    if found > cores:
        raise UsageError(f"workers is {found}, but there are {cores} cores for them; give at most {cores}")
    return found


def _automatic(graph: KnowledgeGraph, device: torch.device, seconds: float, cores: int) -> int:
    """By the size of the graph: the steps of a small one use one core, however many there are."""
    if seconds < SHORT or _own_parts():
        return 1
    if device.type == "cpu":
        return min(cores, MOST) if graph.num_entities <= SMALL_ON_CPU else 1
    free, _ = torch.cuda.mem_get_info(device)
    fits = free // (CONTEXT + TABLES * WIDEST * graph.num_entities)
    return max(1, min(ON_GPU, cores // 2, fits)) if graph.num_entities <= SMALL_ON_GPU else 1


def _own_parts() -> bool:
    """Has this process registered models, samplers or losses of its own? Another process does not know them."""
    parts = [part for registry in (*REGISTRIES.values(), PENALTIES) for part in registry.values()]
    return any(part.__module__.partition(".")[0] != "eans" for part in parts)
