"""Clocks for measurements on a GPU, with plain stand-ins on a CPU so that every path can be tried without one."""

from __future__ import annotations

import gc
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import torch

Call = Callable[[], object]


@dataclass(frozen=True)
class Setting:
    """Where and how long to measure.

    Attributes:
        device: what is measured.
        quick: sizes and repeats so small that the numbers mean nothing; for trying the code.
    """

    device: torch.device
    quick: bool = False

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def synchronize(self) -> None:
        """Wait until the device has nothing left to do."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)


def seconds_of(call: Call, setting: Setting, repeats: int) -> list[float]:
    """Wall-clock seconds of each of several calls, the device idle before and after."""
    found = []
    for _ in range(repeats):
        setting.synchronize()
        began = time.perf_counter()
        call()
        setting.synchronize()
        found.append(time.perf_counter() - began)
    return found


def median_ms(call: Call, setting: Setting) -> float:
    """Median milliseconds of a call between CUDA events, the L2 cache flushed before each."""
    if not setting.on_gpu:
        return 1e3 * statistics.median(seconds_of(call, setting, 1 if setting.quick else 5))
    bench = import_module("triton.testing").do_bench
    return float(bench(call, warmup=10, rep=40, return_mode="median"))


def replayed_ms(call: Call, setting: Setting) -> float | None:
    """Median milliseconds of a call inside a CUDA graph of many: no launch cost, the cache as the last call left it.

    None where the call cannot be recorded, and on a CPU.
    """
    if not setting.on_gpu:
        return None
    bench = import_module("triton.testing").do_bench_cudagraph
    try:
        return float(bench(call, rep=20, return_mode="median"))
    except RuntimeError:
        return None


def window_ms(step: Call, setting: Setting, windows: int, length: int) -> list[float]:
    """Milliseconds per step in each of several windows of `length` steps; nothing waits between windows."""
    if not setting.on_gpu:
        return [1e3 * statistics.mean(seconds_of(step, setting, length)) for _ in range(windows)]
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(windows + 1)]  # type: ignore[no-untyped-call]
    setting.synchronize()
    marks[0].record()
    for mark in marks[1:]:
        for _ in range(length):
            step()
        mark.record()
    setting.synchronize()
    return [float(a.elapsed_time(b)) / length for a, b in pairwise(marks)]


@contextmanager
def waits(setting: Setting) -> Iterator[list[str]]:
    """Where the program waits for the device inside the block, as far as PyTorch notices; filled at its end."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if setting.on_gpu:
            torch.cuda.set_sync_debug_mode("warn")
        try:
            yield found
        finally:
            if setting.on_gpu:
                torch.cuda.set_sync_debug_mode("default")
    # PyTorch also warns, once, that it may overlook some.
    waited = [one for one in caught if "called a synchronizing" in str(one.message)]
    found += [f"{Path(one.filename).name}:{one.lineno}" for one in waited]


@dataclass
class Peak:
    """Peak device memory of a `memory` block in bytes; 0 on a CPU."""

    allocated: int = 0
    reserved: int = 0


@contextmanager
def memory(setting: Setting, fresh: bool = True) -> Iterator[Peak]:
    """Measure peak memory inside the block; `fresh` gives back first what nobody uses any more."""
    peak = Peak()
    if setting.on_gpu:
        if fresh:
            gc.collect()
            torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(setting.device)
    yield peak
    if setting.on_gpu:
        setting.synchronize()
        peak.allocated = peak_so_far(setting)
        peak.reserved = torch.cuda.max_memory_reserved(setting.device)


def peak_so_far(setting: Setting) -> int:
    """The largest number of bytes allocated since the last `memory` began."""
    return torch.cuda.max_memory_allocated(setting.device) if setting.on_gpu else 0


def copy_bandwidth(setting: Setting) -> float:
    """Bytes per second, read plus written, of a large copy: what counts as this device's memory speed."""
    source = torch.ones((1 << 20) if setting.quick else (1 << 28), device=setting.device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / (median_ms(lambda: target.copy_(source), setting) / 1e3)


def multiply_add_rate(setting: Setting) -> float:
    """float32 multiply-adds per second of a large matrix product outside the tensor cores.

    A distance needs separate subtractions and additions, each as slow as a multiply-add, so this is the rate at which
    any float32 instruction can be issued.
    """
    width = 256 if setting.quick else 8192
    left = torch.ones(width, width, device=setting.device)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        return width**3 / (median_ms(lambda: left @ left, setting) / 1e3)
    finally:
        torch.set_float32_matmul_precision(before)
