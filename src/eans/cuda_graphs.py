"""Training steps as CUDA graphs: one launch instead of a few hundred.

A step's shapes never change, so after a few ordinary steps the work of each side (draw, scores, loss, gradients,
update) is captured once and then replayed on new batches. What Python does in a step is then too little to keep the
GPU waiting. Replays compute the same bits as ordinary steps.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from eans.graph import Side

# Ordinary steps per side before the capture: kernels compile and buffers settle.
WARM_UP = 3


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect garbage now and none inside: freeing what an earlier trainer had on the GPU would break a capture."""
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class CapturedWork:
    """Calls `work(rows, side)` and, on a CUDA device, soon replays a graph of it instead.

    Args:
        work: must depend on the side and the rows int64 ``[B]`` of a batch, on tensors that stay where they are, and
            on `generator` alone; its result is made of tensors.
        generator: its seed may be set before every call.
        device: on anything but CUDA the calls simply go through.
        capturable: False where the work cannot be captured; its calls go through as well.
    """

    def __init__(
        self,
        work: Callable[[Tensor, Side], Any],
        generator: torch.Generator,
        device: torch.device,
        capturable: bool = True,
    ) -> None:
        self.work = work
        self.generator = generator
        self.enabled = capturable and device.type == "cuda"
        self.calls: dict[Side, int] = {}
        self.graphs: dict[Side, tuple[torch.cuda.CUDAGraph, Tensor, Any]] = {}
        self.stream = torch.cuda.Stream(device) if self.enabled else None  # type: ignore[no-untyped-call]

    def __call__(self, rows: Tensor, side: Side) -> Any:
        """Do the work for a batch. The result is valid until the next call."""
        if not self.enabled:
            return self.work(rows, side)
        if side not in self.graphs:
            self.calls[side] = self.calls.get(side, 0) + 1
            if self.calls[side] <= WARM_UP or not self._capture(rows, side):
                return self._on_side_stream(rows, side)
        graph, buffer, result = self.graphs[side]
        buffer.copy_(rows)
        graph.replay()
        return result

    def forget(self) -> None:
        """Capture anew: the work, or where its tensors are, has changed."""
        self.calls.clear()
        self.graphs.clear()

    def _on_side_stream(self, rows: Tensor, side: Side) -> Any:
        """An ordinary call, on the stream that the capture will use: gradients remember their stream."""
        assert self.stream is not None
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            result = self.work(rows, side)
        torch.cuda.current_stream().wait_stream(self.stream)
        return result

    def _capture(self, rows: Tensor, side: Side) -> bool:
        """Capture the work of one side; nothing is computed yet. False where that is impossible."""
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        buffer = rows.clone()
        pool = next((other.pool() for other, _, _ in self.graphs.values()), None)
        seed = self.generator.initial_seed()
        try:
            with _no_collection(), torch.cuda.graph(graph, pool=pool, stream=self.stream):
                result = self.work(buffer, side)
        except RuntimeError as error:
            warnings.warn(f"CUDA graphs are off, steps will be slower: {str(error).splitlines()[0]}", stacklevel=2)
            self.enabled = False
            # A capture that breaks off leaves the generator's state in the belief that it goes on.
            self.generator.graphsafe_set_state(torch.Generator(self.generator.device))
            self.generator.manual_seed(seed)
            return False
        self.graphs[side] = graph, buffer, result
        return True
