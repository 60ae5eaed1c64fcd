"""Every suite here runs for all implementations: Triton on a GPU if there is one, else in its interpreter."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is decorated: before the kernels are imported

from kernel_cases import Implementation, prepared


@pytest.fixture(params=["reference", "numba", "triton"])
def ops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Implementation]:
    """The operations of one implementation, which cuts its work into many parts already for small shapes."""
    with prepared(request.param, monkeypatch) as found:
        yield found
