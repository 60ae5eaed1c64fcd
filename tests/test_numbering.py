"""Ids of labels in the order of first appearance, against a dictionary."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eans import numbering
from eans.graph import Vocabulary
from eans.numbering import Numbering

LABELS = st.text(st.sampled_from("ab\0é日𝄞"), max_size=20)


def blocks_of(pairs: list[tuple[str, str]], size: int) -> list[list[tuple[str, str]]]:
    return [pairs[start : start + size] for start in range(0, len(pairs), size)]


def expected(pairs: list[tuple[str, str]]) -> tuple[list[list[int]], list[str]]:
    ids: dict[str, int] = {}
    return [[ids.setdefault(label, len(ids)) for label in pair] for pair in pairs], list(ids)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(LABELS, LABELS), min_size=1, max_size=60), st.integers(1, 60), st.sampled_from([1, 3, 1 << 14])
)
def test_as_a_dictionary(pairs: list[tuple[str, str]], size: int, block: int) -> None:
    found, new = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbering, "BLOCK", block)
        numbers = Numbering("entity")
        for start, part in zip(range(0, len(pairs), size), blocks_of(pairs, size), strict=True):
            ids, first = numbers.number(*(pa.array(column) for column in zip(*part, strict=True)))
            found += ids.tolist()
            new += [pairs[start + at // 2][at % 2] for at in first.tolist()]
        vocabulary = numbers.vocabulary()
    assert (found, list(vocabulary.array.to_pylist())) == expected(pairs)
    assert new == vocabulary.array.to_pylist()


def test_many_labels_and_slices() -> None:
    generator = np.random.default_rng(0)
    pairs = [(f"/m/{a}", f"/m/{b}" * (b % 5)) for a, b in generator.integers(50_000, size=(100_000, 2)).tolist()]
    numbers = Numbering("entity")
    columns = [pa.array(column) for column in zip(*pairs, strict=True)]
    found = np.concatenate(
        [numbers.number(*(column.slice(start, 30_000) for column in columns))[0] for start in range(0, 100_000, 30_000)]
    )
    ids, labels = expected(pairs)
    assert found.tolist() == ids
    assert numbers.vocabulary().array.to_pylist() == labels


def test_labels_with_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    good = numbering._Words.hashes
    seeds = []

    def weak(words: numbering._Words, seed: int) -> numbering.Hashes:
        seeds.append(seed)
        return good(words, seed) if seed > 1 else words.sizes.astype(np.uint64) + np.uint64(seed)

    monkeypatch.setattr(numbering._Words, "hashes", weak)
    numbers = Numbering("entity")
    for labels in (["a", "bb"], ["bb", "a", "ccc"], ["b", "a", "cc", "bb"]):
        numbers.number(pa.array(labels))
    assert numbers.number(pa.array(["cc", "b", "ccc", "bb", "a"]))[0][:, 0].tolist() == [4, 3, 2, 1, 0]
    assert max(seeds) == 2


def test_labels_that_are_known_keep_their_ids() -> None:
    known = Vocabulary([f"e{i}" for i in range(40_000)])
    numbers = Numbering("entity", known.array)
    ids, new = numbers.number(pa.array(["e39999", "x", "e0"]))
    assert (ids[:, 0].tolist(), new.tolist()) == ([39_999, 40_000, 0], [1])
