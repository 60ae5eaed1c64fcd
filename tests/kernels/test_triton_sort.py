"""Where each row of a table is used, by Triton."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import Implementation, only_triton


@only_triton
@pytest.mark.parametrize(("num_entities", "few"), [(6, 0), (2**15 - 1, 0), (2**15, 0), (6, 10), (50, 10)])
def test_sorted_ids(ops: Implementation, num_entities: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted, and counted where there are few."""
    from eans.kernels import triton_sort

    monkeypatch.setattr(triton_sort, "FEW", few)
    monkeypatch.setattr(triton_sort, "BLOCK", 4)
    monkeypatch.setattr(triton_sort, "OTHERS", 4)
    ids = torch.tensor([5, 0, num_entities - 1, 0, 5, 2])
    order, starts = triton_sort.sorted_ids(ops.put(ids), num_entities)
    assert starts[0] == 0
    assert starts[-1] == len(ids)
    for one in (0, 1, 2, 5, num_entities - 1):
        assert order[starts[one] : starts[one + 1]].tolist() == (ids == one).nonzero()[:, 0].tolist()
