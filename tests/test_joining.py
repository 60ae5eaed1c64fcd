"""How the processes of one start tell each other from those before them."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import HashStore

from eans.distributed import joining
from eans.errors import RunError, UsageError


def together(store: HashStore, size: int) -> list[list[bytes]]:
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: joining._come(store, rank, size), range(size)))


def test_all_ranks_have_the_same_name_and_each_start_another():
    store = HashStore()
    names = []
    for _ in range(2):
        found = together(store, 3)
        assert found[0] == found[1] == found[2]
        names.append(joining._name_of_start(found[0]))
    assert names[0] != names[1]


def test_a_rank_waits_for_the_new_process_of_another_one(monkeypatch):
    """The number of the one that was there before is still in the store."""
    store = HashStore()
    before = together(store, 2)[0]
    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(joining, "MEET_SECONDS", 0)
        first = pool.submit(joining._come, store, 0, 2)
        while store.get("eans/came/0") == before[0]:
            pass
        threading.Event().wait(0.1)
        assert not first.done()
        second = joining._come(store, 1, 2)
        assert first.result(30) == second
    assert not set(second) & set(before)


def test_a_rank_that_does_not_come_is_named(monkeypatch):
    monkeypatch.setattr(joining, "JOIN_SECONDS", 0.1)
    store = HashStore()
    store.set("eans/came/2", "gone/0")
    with pytest.raises(RunError, match=r"rank 1 of 3 did not come within 0\.1 s"):
        joining._come(store, 0, 3)
    store.set("eans/came/1", "gone/0")
    with pytest.raises(RunError, match=r"rank 1, 2 of 3 did not come within 0\.1 s"):
        joining._come(store, 0, 3)


@pytest.mark.parametrize("given", ["soon", "0", "-1", "inf", "nan", ""])
def test_a_time_to_answer_that_is_none_is_refused(monkeypatch, given):
    monkeypatch.setitem(os.environ, "EANS_ANSWER_SECONDS", given)
    with pytest.raises(UsageError, match=r"EANS_ANSWER_SECONDS is .*; give seconds, such as 600, or unset it"):
        joining._answer_seconds()


def test_the_time_to_answer(monkeypatch):
    monkeypatch.delenv("EANS_ANSWER_SECONDS", raising=False)
    assert joining._answer_seconds() == 600
    monkeypatch.setenv("EANS_ANSWER_SECONDS", "2.5")
    assert joining._answer_seconds() == 2.5
