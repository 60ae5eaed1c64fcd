"""Work that may run concurrently with the main work of a step, because its result is needed only later."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

import torch


class SideStream:
    """``with side_stream: ...`` queues work beside what follows; call `join` before its results are used.

    On a CUDA device the work goes to a second stream, also while a CUDA graph is captured. Elsewhere nothing changes.
    Inputs must stay alive until `join`.
    """

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._context: AbstractContextManager[None] | None = None
        self._busy = False

    def __enter__(self) -> SideStream:
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
            self._context = torch.cuda.stream(self.stream)
            self._context.__enter__()  # type: ignore[no-untyped-call]
            self._busy = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._context is not None:
            self._context.__exit__(kind, error, trace)
            self._context = None

    def join(self) -> None:
        """Let what follows wait for the work, if there is any.

        A captured graph may wait only for streams that were given work while it was captured.
        """
        if self.stream is not None and self._busy:
            self._busy = False
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
