"""Shared by all suites: tiny random graphs, and a meter of the memory that tensors take."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch
from hypothesis import settings

from eans import kernels
from eans.graph import KnowledgeGraph
from helpers_graphs import Meter, NoWaiting, random_graph

settings.register_profile("eans", deadline=None, derandomize=True)
settings.load_profile("eans")


@pytest.fixture
def make_graph() -> Callable[..., KnowledgeGraph]:
    return random_graph


@pytest.fixture
def graph() -> KnowledgeGraph:
    return random_graph()


@pytest.fixture
def meter() -> Meter:
    return Meter()


@pytest.fixture
def no_waiting() -> NoWaiting:
    return NoWaiting()


@pytest.fixture
def gpu_must_not_wait() -> Callable[[], AbstractContextManager[None]]:
    """A context in which whatever waits for the GPU is an error; tests that ask for it need one."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")

    @contextmanager
    def watched() -> Iterator[None]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype")
            torch.cuda.set_sync_debug_mode("error")
            try:
                yield
            finally:
                torch.cuda.set_sync_debug_mode("default")

    return watched


@pytest.fixture
def plain_kernels() -> Iterator[None]:
    """Operations of PyTorch: every gradient of a step arrives as one table, to be looked at."""
    before = kernels.choose("reference")
    yield
    kernels.choose(before)
