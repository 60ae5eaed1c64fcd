"""A permutation that is computed by position: that it is one, that it looks random, and what it takes."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from eans.permutation import Permutation

SIZES = st.one_of(st.integers(1, 40), st.integers(1, 5_000))


@given(SIZES, st.integers(0, 2**63 - 1))
def test_every_number_once(size, seed):
    found = Permutation(size, seed).between(0, size)
    assert found.dtype == torch.int64
    assert torch.equal(found.sort().values, torch.arange(size))


@given(SIZES, st.integers(0, 9), st.data())
def test_any_part_of_it(size, seed, data):
    start = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(start, size))
    assert torch.equal(
        Permutation(size, seed).between(start, stop), Permutation(size, seed).between(0, size)[start:stop]
    )


def test_the_first_of_very_many():
    """Of numbers that no memory could hold, too."""
    size = (1 << 61) + 12_345
    found = Permutation(size, 1).between(size - 1_000, size)
    assert len(found.unique()) == 1_000
    assert int(found.min()) >= 0
    assert int(found.max()) < size
    assert found.double().mean() / size == pytest.approx(0.5, abs=0.05)


def excess(counts: torch.Tensor) -> float:
    """By how many standard deviations chi-squared exceeds what equally likely cells give."""
    expected = counts.double().mean()
    freedom = counts.numel() - 1
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / (2 * freedom) ** 0.5)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_order_is_as_likely(size):
    orders = {order: place for place, order in enumerate(permutations(range(size)))}
    found = [orders[tuple(Permutation(size, seed).between(0, size).tolist())] for seed in range(100 * len(orders))]
    assert abs(excess(torch.bincount(torch.tensor(found), minlength=len(orders)))) < 4


@pytest.mark.parametrize("size", [1_000_003, 1 << 20])
def test_parts_of_a_permutation_look_drawn(size):
    """The numbers at neighbouring positions, and a digit apart, lie in all cells of a square alike."""
    permutation = Permutation(size, seed=7)
    found = permutation.between(0, 200_000) * 16 // size
    for apart in (1, 2, permutation.width):
        cells = torch.bincount(found[:-apart] * 16 + found[apart:], minlength=256)
        assert abs(excess(cells)) < 5, apart


def test_other_seeds_are_other_permutations():
    first, second = (Permutation(10_000, seed).between(0, 10_000) for seed in (0, 1))
    assert int((first == second).sum()) < 10  # one is expected
