"""Batches, draws and labels of every implementation equal the definition, exactly."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_cases import REFERENCE, Implementation, normal, only_numba, only_triton
from torch import Tensor

anything = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def keys_of(known: int, size: int, queries: int, generator: torch.Generator) -> Tensor:
    """So many known answers of all queries with all entities, sorted."""
    return torch.randperm(size * queries, generator=generator)[:known].sort().values


# --- batches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("column", [0, 2])
def test_take(ops: Implementation, rows: int, column: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    triples, weights = torch.randint(5, (20, 3), generator=generator), normal(20)
    chosen = torch.randint(20, (rows,), generator=generator)
    found = ops.take(ops.put(triples), ops.put(weights), ops.put(chosen), None, column)
    assert torch.equal(found[0].cpu(), triples[chosen])
    assert torch.equal(found[1].cpu(), weights[chosen])


@only_triton
@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("column", [0, 2])
def test_take_along_a_line(ops: Implementation, rows: int, column: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same triples, along the line, equal ones in their order; too many stay in the order of the rows."""
    generator = torch.Generator().manual_seed(rows)
    triples, weights = torch.randint(5, (20, 3), generator=generator), normal(20)
    chosen, places = torch.randint(20, (rows,), generator=generator), torch.tensor([3, 0, 4, 1, 2])
    order = torch.argsort(places[triples[chosen][:, column]], stable=True)
    given = ops.put(triples), ops.put(weights), ops.put(chosen), ops.put(places), column
    for rank in (chosen[order], chosen):
        found = ops.take(*given)
        assert torch.equal(found[0].cpu(), triples[rank])
        assert torch.equal(found[1].cpu(), weights[rank])
        monkeypatch.setattr("eans.kernels.sampling.triton.FEW", 0)


# --- negatives ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.4, 3.0, 500.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_step_along(ops: Implementation, sigma: float, dtype: torch.dtype) -> None:
    line = torch.randperm(11, generator=torch.Generator().manual_seed(0))
    start, noise = torch.tensor([0, 10, 4]), normal(3, 9, dtype=dtype)
    found = ops.step_along(ops.put(line), ops.put(start), ops.put(noise), sigma)
    places = (start[:, None] + torch.round(noise * sigma).long()).tolist()
    assert found.tolist() == [[int(line[place % 11]) for place in row] for row in places]


@anything
@given(
    sizes=st.lists(st.integers(0, 5), min_size=1, max_size=8).filter(any),
    batch=st.integers(1, 6),
    negatives=st.integers(1, 12),
    dtype=st.sampled_from([torch.int32, torch.int64]),
    seed=st.integers(0, 99),
)
def test_pick(ops: Implementation, sizes: list[int], batch: int, negatives: int, dtype: torch.dtype, seed: int) -> None:
    """Pools of several sizes, empty ones among them; random numbers that round up to the size."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.tensor([0, *sizes]).cumsum(0)
    ids = torch.randint(len(sizes), (sum(sizes),), generator=generator).to(dtype)
    kept = torch.randint(len(sizes), (batch,), generator=generator)
    uniforms = torch.rand(batch, negatives, generator=generator)
    uniforms[:, :1] = 1.0 - 2.0**-24
    found = ops.pick(*(ops.put(value) for value in (ids, starts, kept, uniforms)), len(sizes))
    assert found.dtype == torch.int64
    for row, entity in enumerate(kept.tolist()):
        pool = ids[starts[entity] : starts[entity + 1]].tolist() or list(range(len(sizes)))
        places = [min(int(uniform * len(pool)), len(pool) - 1) for uniform in uniforms[row]]
        assert found[row].tolist() == [pool[place] for place in places]


@pytest.mark.parametrize(("batch", "negatives"), [(0, 3), (3, 0)])
def test_nothing_to_draw(ops: Implementation, batch: int, negatives: int) -> None:
    if ops.name != "triton":  # a sampler draws for some triples
        pools = torch.arange(4), torch.tensor([0, 1, 4]), torch.zeros(batch, dtype=torch.int64)
        assert ops.pick(*pools, torch.zeros(batch, negatives), 2).shape == (batch, negatives)
    keys, prefix = torch.tensor([1, 5]), torch.zeros(batch, dtype=torch.int64)
    entities = torch.zeros(batch, negatives, dtype=torch.int64)
    assert ops.label(ops.put(keys), ops.put(prefix), ops.put(entities), 4, 0.0).shape == (batch, negatives)


@anything
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
    ops: Implementation,
    size: int,
    queries: int,
    share: float,
    batch: int,
    negatives: int,
    repeats_from: float | None,
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    keys = keys_of(round(share * size * queries), size, queries, generator)
    prefix = torch.randint(queries, (batch,), generator=generator)
    entities = torch.randint(size, (batch, negatives), generator=generator)
    found = ops.label(ops.put(keys), ops.put(prefix), ops.put(entities), size, repeats_from)
    answers = set(keys.tolist())
    for row, query in enumerate(prefix.tolist()):
        drawn = entities[row].tolist()
        count = sum(key // size == query for key in answers)
        again = repeats_from is not None and count >= repeats_from
        expected = [
            query * size + entity in answers or (again and entity in drawn[place + 1 :])
            for place, entity in enumerate(drawn)
        ]
        assert found[row].tolist() == expected


@pytest.mark.parametrize(
    "shape", [(0, 4, 9), (1, 4, 9), (5, 4, 9), (1, 1, 9), (3, 1, 1), (2, 3, 40), (2, 0, 3)], ids=str
)
@pytest.mark.parametrize("known", [0, 1, 40, 42])  # of 42: in the end every entity answers every query
def test_redraw(ops: Implementation, shape: tuple[int, int, int], known: int) -> None:
    generator = torch.Generator().manual_seed(known)
    size, queries = 7, 6
    keys = keys_of(known, size, queries, generator)
    prefix = torch.tensor([0, 5, 3, 3])[: shape[1]]
    entities = torch.randint(size, shape[1:], generator=generator)
    others = torch.randint(size, shape, generator=generator)
    found = ops.redraw(ops.put(keys), ops.put(prefix), ops.put(entities), ops.put(others), size)
    assert [part.dtype for part in found] == [torch.int64, torch.bool]
    tried = torch.cat([entities[None], others]) + prefix[:, None] * size
    true = torch.isin(tried, keys)
    first = torch.where(true.all(0), len(others), true.long().argmin(0))
    exact = tried.gather(0, first[None])[0] - prefix[:, None] * size
    assert torch.equal(found[0].cpu(), exact)
    assert torch.equal(found[1].cpu(), true.all(0))


@only_numba
def test_what_would_be_read_wrongly(ops: Implementation) -> None:
    keys, prefix = torch.tensor([1, 5]), torch.tensor([0])
    with pytest.raises(IndexError, match="entities from 0 to 4 among 4"):
        ops.label(keys, prefix, torch.tensor([[0, 4]]), 4, None)
    with pytest.raises(IndexError, match="entities from 2 to 2 among 2"):
        ops.pick(keys, torch.tensor([0, 1, 2]), torch.tensor([2]), torch.zeros(1, 3), 2)


@only_triton
@pytest.mark.parametrize("negatives", [1, 9, 300])
def test_pick_with_many_candidates(ops: Implementation, negatives: int) -> None:
    starts, ids = torch.tensor([0, 3, 3, 4, 11, 11]), torch.arange(11).flip(0) % 5
    kept = torch.tensor([0, 1, 2, 3, 4, 4])
    uniforms = torch.rand(6, negatives, generator=torch.Generator().manual_seed(negatives))
    given = ids, starts, kept, uniforms
    found = ops.pick(*(ops.put(value) for value in given), 5)
    assert torch.equal(found.cpu(), REFERENCE.pick(*given, 5))
