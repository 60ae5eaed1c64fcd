"""Labels and draws from pools on a CPU equal the reference, whatever the threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("numba")

from kernel_cases import two_threads

from eans.kernels import numba_sampling, reference_step


@pytest.fixture(autouse=True)
def _several_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with two_threads(monkeypatch):
        yield


@given(
    size=st.integers(1, 9),
    queries=st.integers(1, 6),
    share=st.floats(0.0, 1.0),
    batch=st.integers(0, 7),
    negatives=st.integers(0, 12),
    repeats_from=st.sampled_from([None, 0.0, 2.5, 100.0]),
    seed=st.integers(0, 99),
)
def test_label(
    size: int, queries: int, share: float, batch: int, negatives: int, repeats_from: float | None, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    keys = (torch.rand(size * queries, generator=generator) < share).nonzero()[:, 0]
    prefix = torch.randint(queries, (batch,), generator=generator)
    entities = torch.randint(size, (batch, negatives), generator=generator)
    found = numba_sampling.label(keys, prefix, entities, size, repeats_from)
    assert torch.equal(found, reference_step.label(keys, prefix, entities, size, repeats_from))


@given(
    sizes=st.lists(st.integers(0, 5), min_size=1, max_size=8).filter(any),
    batch=st.integers(0, 6),
    negatives=st.integers(0, 12),
    dtype=st.sampled_from([torch.int32, torch.int64]),
    seed=st.integers(0, 99),
)
def test_pick(sizes: list[int], batch: int, negatives: int, dtype: torch.dtype, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    starts = torch.tensor([0, *sizes]).cumsum(0)
    ids = torch.randint(len(sizes), (sum(sizes),), generator=generator).to(dtype)
    kept = torch.randint(len(sizes), (batch,), generator=generator)
    lots = torch.rand(batch, negatives, generator=generator)
    lots[:, :1] = 1.0 - 2.0**-24  # times the size, this may round up to it
    found = numba_sampling.pick(ids, starts, kept, lots, len(sizes))
    assert found.dtype == torch.int64
    assert torch.equal(found, reference_step.pick(ids, starts, kept, lots, len(sizes)))


def test_what_would_be_read_wrongly_is_refused() -> None:
    keys, prefix = torch.tensor([1, 5]), torch.tensor([0])
    with pytest.raises(IndexError, match="entities from 0 to 4 among 4"):
        numba_sampling.label(keys, prefix, torch.tensor([[0, 4]]), 4, None)
    with pytest.raises(IndexError, match="entities from 2 to 2 among 2"):
        numba_sampling.pick(keys, torch.tensor([0, 1, 2]), torch.tensor([2]), torch.zeros(1, 3), 2)
