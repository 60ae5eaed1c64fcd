"""Vocabulary, KnowledgeGraph, TripleIndex and subsampling weights: against brute force and hand numbers."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections import Counter
from dataclasses import FrozenInstanceError

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from eans import triple_index, weights
from eans.errors import DataError, UsageError
from eans.graph import (
    SIDES,
    SPLITS,
    KnowledgeGraph,
    TripleIndex,
    Vocabulary,
    column,
    opposite,
)
from eans.weights import answer_weights, query_weights, subsampling_weights

E, R = 5, 3
TRAIN = [("anna", "knows", "ben"), ("ben", "knows", "cleo"), ("anna", "likes", "anna")]
VALID = [("dora", "likes", "ben")]
TEST = [("cleo", "sees", "anna"), ("cleo", "sees", "anna")]


def triples(max_size: int = 30, min_size: int = 1) -> st.SearchStrategy[list[tuple[int, int, int]]]:
    one = st.tuples(st.integers(0, E - 1), st.integers(0, R - 1), st.integers(0, E - 1))
    return st.lists(one, min_size=min_size, max_size=max_size)


def tensor(rows: list[tuple[int, int, int]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, 3)


@pytest.fixture
def people() -> KnowledgeGraph:
    return KnowledgeGraph.from_labels(TRAIN, VALID, TEST, name="people")


# --- sides --------------------------------------------------------------------------------------------------------


def test_sides():
    assert [column(side) for side in ("head", "tail")] == [0, 2]
    assert [opposite(side) for side in ("head", "tail")] == ["tail", "head"]
    assert SIDES == ("head", "tail")


# --- vocabulary ---------------------------------------------------------------------------------------------------


def test_vocabulary_is_a_sequence_of_labels():
    words = Vocabulary(["a", "b", "c"], "relation")
    assert (len(words), words[1], words[-1], list(words)) == (3, "b", "c", ["a", "b", "c"])
    assert "b" in words
    assert "z" not in words
    assert 1 not in words
    assert [words.id(label) for label in words] == [0, 1, 2]
    assert words.ids == {"a": 0, "b": 1, "c": 2}
    assert repr(words) == "Vocabulary(3 relation labels)"
    assert words == Vocabulary("abc")
    assert words != Vocabulary("acb")
    assert words != ["a", "b", "c"]
    assert hash(words) == hash(Vocabulary("abc"))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("Amsterdm", "unknown entity 'Amsterdm'; did you mean 'Amsterdam'?"),
        ("BERLIN", "unknown entity 'BERLIN'; did you mean 'Berlin'?"),
        ("zzzzzz", "unknown entity 'zzzzzz'"),
        ("", "unknown entity ''"),
    ],
)
def test_unknown_label(asked, message):
    with pytest.raises(UsageError) as caught:
        Vocabulary(["Amsterdam", "Berlin"]).id(asked)
    assert str(caught.value) == message


@given(
    st.lists(st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=("Cs",)), min_size=1), unique=True)
)
def test_many_labels_at_once(labels):
    words = Vocabulary(labels)
    asked = [*reversed(labels), "no\tlabel", *labels]
    expected = [labels.index(label) if label in labels else -1 for label in asked]
    for given_as in (asked, pa.array(asked, pa.string()), pa.chunked_array([asked, asked[:0]], pa.large_string())):
        assert words.ids_of(given_as).tolist() == expected
    encoded = pa.array([*asked, None], pa.string()).dictionary_encode()
    assert words.ids_of(encoded).tolist() == [*expected, -1]
    ids = torch.tensor([index for index in expected if index >= 0], dtype=torch.int32)
    assert words.labels_of(ids).to_pylist() == [labels[index] for index in ids]
    assert words.labels_of(ids.numpy()).equals(words.labels_of(ids.tolist()))
    assert Vocabulary(words.array) == words


def test_many_labels_that_are_wrong():
    words = Vocabulary(["a", "b"], "relation")
    with pytest.raises(UsageError, match="relation label 3 is no text"):
        words.ids_of(["a", 3])
    with pytest.raises(UsageError, match="no relation has the id 2; there are 2"):
        words.labels_of([0, 2])
    with pytest.raises(UsageError, match=r"ids must be whole numbers \[n\], got float64 \[1\]"):
        words.labels_of(np.array([1.0]))
    with pytest.raises(DataError, match="label 1 is missing"):
        Vocabulary(pa.array(["a", None]))
    with pytest.raises(DataError, match="no text that UTF-8 can hold"):
        Vocabulary(["\ud800"])
    assert "\ud800" not in words


def test_a_misspelt_label_among_very_many():
    words = Vocabulary([f"City {number:06}" for number in range(30_000)] + ["Amsterdam", "Berlin"])
    assert words.nearest("AMSTERDAM") == "; did you mean 'Amsterdam'?"
    assert words.nearest("berlim") == "; did you mean 'Berlin'?"
    assert words.nearest("Zzz") == words.nearest("") == ""


@pytest.mark.parametrize(
    "asked", ["msterdam", "Amsetrdam", "xAmsterdam", "mAsterdam", "Amstrdm", "AMSTERDÁM", "amster dam"]
)
@pytest.mark.parametrize("named", [False, True])
def test_wherever_a_letter_is_wrong(asked, named):
    """Also in front; among labels that repeat its letters, and among names."""
    others = [f"{part}{number:05}" for number in range(10_001) for part in ("Amamamstst ", "Rotterdam ", "München ")]
    words = Vocabulary([*others[:20_000], "Amsterdam", *others[20_000:]])
    if named:
        labels = pa.array([f"Q{number}" for number in range(len(words))])
        words = Vocabulary(labels).named(labels, words.array)
    assert words.nearest(asked) == "; did you mean 'Amsterdam'?"


@pytest.mark.parametrize("bad", ["", "a\tb", "a\nb", "a\rb", "\n"])
def test_labels_that_a_file_cannot_hold(bad):
    with pytest.raises(DataError, match=r"relation label .* is empty or contains a tab or line break"):
        Vocabulary(["fine", bad], "relation")


def test_labels_are_unique():
    with pytest.raises(DataError, match="entity 'b' is listed twice"):
        Vocabulary(["a", "b", "c", "b"])


# --- graph --------------------------------------------------------------------------------------------------------


def test_from_labels(people):
    assert people.entities.labels == ("anna", "ben", "cleo", "dora")
    assert people.relations.labels == ("knows", "likes", "sees")
    assert (people.entities.kind, people.relations.kind) == ("entity", "relation")
    assert people.train.tolist() == [[0, 0, 1], [1, 0, 2], [0, 1, 0]]
    assert people.valid.tolist() == [[3, 1, 1]]
    assert people.test.tolist() == [[2, 2, 0], [2, 2, 0]]
    assert (people.num_entities, people.num_relations) == (4, 3)
    assert people.unseen_entities() == 1
    assert repr(people) == "KnowledgeGraph('people', 4 entities, 3 relations, train 3, valid 1, test 2)"


def test_empty_splits_keep_their_shape():
    graph = KnowledgeGraph.from_labels(TRAIN)
    assert graph.valid.shape == graph.test.shape == (0, 3)
    assert graph.valid.dtype == torch.int64


def test_frozen(people):
    with pytest.raises(FrozenInstanceError):
        people.name = "other"


def test_splits(people):
    assert all(people.split(split) is getattr(people, split) for split in SPLITS)
    with pytest.raises(UsageError, match=r"unknown split 'tets'; did you mean 'test'\? \(one of train, valid, test\)"):
        people.split("tets")
    with pytest.raises(UsageError, match="unknown split 'name'"):
        people.split("name")


def test_text_and_sha256(people):
    for split, rows in zip(SPLITS, (TRAIN, VALID, TEST), strict=True):
        text = "".join("\t".join(row) + "\n" for row in rows)
        assert "".join(people.text(split)) == text
        assert people.sha256[split] == hashlib.sha256(text.encode("utf-8")).hexdigest()
    assert set(people.sha256) == set(SPLITS)


def test_sha256_of_an_empty_split_and_of_other_scripts():
    graph = KnowledgeGraph.from_labels([("東京", "in", "日本")])
    assert graph.sha256["valid"] == hashlib.sha256(b"").hexdigest()
    assert graph.sha256["train"] == hashlib.sha256("東京\tin\t日本\n".encode()).hexdigest()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (torch.tensor([[0, 0, 5]]), "outside the 5 entities or 2 relations"),
        (torch.tensor([[5, 0, 0]]), "outside the 5 entities"),
        (torch.tensor([[0, 2, 0]]), "outside the 5 entities"),
        (torch.tensor([[0, -1, 0]]), "outside the 5 entities"),
        (torch.tensor([[-1, 0, 0]]), "outside the 5 entities"),
        (torch.tensor([[0, 0, 0]], dtype=torch.int32), "expected int64 triples of shape"),
        (torch.tensor([0, 0, 0]), "expected int64 triples of shape"),
        (torch.tensor([[0, 0]]), "expected int64 triples of shape"),
        (torch.empty(0, 3), "expected int64 triples of shape"),
    ],
)
@pytest.mark.parametrize("split", SPLITS)
def test_validation(rows, message, split):
    splits = dict.fromkeys(SPLITS, torch.tensor([[4, 1, 4]])) | {split: rows}
    with pytest.raises(DataError, match=f"{split}: .*{message}"):
        KnowledgeGraph("g", Vocabulary("abcde"), Vocabulary("rs", "relation"), **splits)


def test_no_training_triples():
    with pytest.raises(DataError, match="graph 'g' has no training triples"):
        KnowledgeGraph.from_labels([], valid=TRAIN, name="g")


def test_known_covers_all_splits_and_train_covers_train(people):
    everything = torch.cat([people.train, people.valid, people.test])
    assert people.known.contains(everything).all()
    assert people.known_train.contains(everything).tolist() == [True, True, True, False, False, False]
    assert (len(people.known), len(people.known_train)) == (5, 3)
    assert people.known is people.known


# --- index --------------------------------------------------------------------------------------------------------


@given(triples(), triples(min_size=0))
def test_contains(known, asked):
    index = TripleIndex(tensor(known), E, R)
    assert len(index) == len(set(known))
    assert index.contains(tensor(asked)).tolist() == [row in set(known) for row in asked]
    every = torch.cartesian_prod(torch.arange(E), torch.arange(R), torch.arange(E))
    assert index.contains(every).sum() == len(set(known))
    grid = every.reshape(E, R, E, 3)
    assert torch.equal(index.contains(grid), index.contains(every).reshape(E, R, E))


@given(triples(), triples(max_size=8), st.sampled_from(SIDES))
def test_candidates_counts_and_answers(known, queries, side):
    index, asked, at = TripleIndex(tensor(known), E, R), tensor(queries), column(side)

    def completed(query: tuple[int, int, int], entity: int) -> tuple[int, ...]:
        return (*query[:at], entity, *query[at + 1 :])

    brute = [{e for e in range(E) if completed(query, e) in set(known)} for query in queries]
    every_entity = torch.arange(E).repeat(len(queries), 1)
    found = index.contains_candidates(asked, side, every_entity)
    assert [set(torch.nonzero(row).flatten().tolist()) for row in found] == brute
    assert index.count(asked, side).tolist() == [len(answers) for answers in brute]
    rows, entities = index.answers(asked, side)
    assert rows.dtype == entities.dtype == torch.int64
    pairs = list(zip(rows.tolist(), entities.tolist(), strict=True))
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == {(row, entity) for row, answers in enumerate(brute) for entity in answers}


def test_queries_without_answers():
    index = TripleIndex(tensor([(0, 0, 1), (0, 0, 1)]), E, R)
    rows, entities = index.answers(tensor([(4, 2, 4), (0, 1, 0), (1, 0, 0)]), "tail")
    assert rows.tolist() == entities.tolist() == []
    assert index.count(tensor([(4, 2, 4), (0, 0, 3)]), "tail").tolist() == [0, 1]
    rows, entities = index.answers(tensor([]), "head")
    assert rows.shape == entities.shape == (0,)


def test_index_of_no_triples():
    index = TripleIndex(tensor([]), E, R)
    asked = tensor([(0, 0, 0), (4, 2, 4)])
    assert len(index) == 0
    assert index.count(asked, "tail").tolist() == [0, 0]
    assert [part.tolist() for part in index.answers(asked, "head")] == [[], []]
    assert index.contains(asked).tolist() == [False, False]
    assert index.contains_candidates(asked, "head", torch.zeros(2, 3, dtype=torch.int64)).any().item() is False


@given(st.lists(st.integers(-3, 12), max_size=40), st.integers(1, 9))
def test_distinct_values_in_blocks(values, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triple_index, "BLOCK", block)
        found = triple_index.distinct(np.array(values, np.int64))
    assert found.tolist() == sorted(set(values))


@pytest.mark.parametrize("entities", [E, 2**31])  # queries in the keys, and numbered
def test_an_index_of_several_parts(monkeypatch, entities):
    monkeypatch.setattr(triple_index, "BLOCK", 7)
    every = torch.cartesian_prod(torch.arange(E), torch.arange(R), torch.arange(E))
    known = every[torch.randint(len(every), (50,), generator=torch.Generator().manual_seed(0))]
    whole, parts = (TripleIndex(given, entities, R) for given in (known, [known[:20], known[:0], known[20:]]))
    reference = TripleIndex(known, E, R)
    for side in SIDES:
        assert torch.equal(whole.keys[side], parts.keys[side])
        assert torch.equal(whole.count(every, side), reference.count(every, side))
    assert torch.equal(parts.contains(every), reference.contains(every))


@pytest.mark.parametrize("wrong", [[[0, 0, 1]], torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2, 3)])
def test_triples_that_are_none(wrong):
    with pytest.raises(UsageError, match=r"triples must be an int64 tensor of shape \[n, 3\], got "):
        TripleIndex(wrong, E, R)


def taken_by(call) -> int:
    """The most bytes that NumPy holds meanwhile."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_of_an_index_and_of_weights(monkeypatch):
    """An index takes what is kept of it; weights 5 bytes for each triple of a side, and what a share takes."""
    monkeypatch.setattr(triple_index, "BLOCK", 1 << 12)
    monkeypatch.setattr(weights, "SHARE", 1 << 12)
    size = 1 << 18
    columns = [torch.randint(high, (size,)) for high in (5_000, 7, 5_000)]
    large = torch.stack(columns, dim=1)
    assert taken_by(lambda: TripleIndex(large, 5_000, 7)) < 1.2 * 16 * size
    assert taken_by(lambda: subsampling_weights(large, 7)) < 1.4 * 9 * size


def test_without_held_out_triples_one_index_is_enough(people):
    alone = KnowledgeGraph("alone", people.entities, people.relations, people.train, people.valid[:0], people.test[:0])
    assert alone.known is alone.known_train


def test_the_first_and_the_last_key():
    corners = tensor([(0, 0, 0), (E - 1, R - 1, E - 1)])
    for present in corners:
        index = TripleIndex(present[None], E, R)
        assert index.contains(corners).tolist() == [torch.equal(present, corner) for corner in corners]
        for side in SIDES:
            assert index.count(present[None], side).tolist() == [1]
            assert index.answers(present[None], side)[1].tolist() == [present[column(side)]]


def test_large_ids_do_not_collide():
    entities, relations = 2_000_000, 1_000_000  # keys up to 4e18, near the limit of 9.2e18
    known = torch.tensor([[1_999_999, 999_999, 1_999_999], [1_999_999, 999_999, 0], [0, 0, 1_999_999]])
    index = TripleIndex(known, entities, relations)
    assert index.contains(known).all()
    near = known.clone()
    near[:, 2] = (near[:, 2] + 2) % entities
    assert not index.contains(near).any()
    assert sorted(index.answers(known[:1], "tail")[1].tolist()) == [0, 1_999_999]
    assert index.answers(known[:1], "head")[1].tolist() == [1_999_999]


@given(triples(), triples(max_size=8), st.sampled_from(SIDES))
def test_keys_that_do_not_fit_64_bits(known, asked, side):
    """The same answers, whether queries are numbered by what they are or by their place among the known ones."""
    most = torch.tensor([2**31 - 1, 2**20 - 1, 2**31 - 1])  # E * R * E = 2 ** 82
    last = torch.tensor([E - 1, R - 1, E - 1])
    small = TripleIndex(tensor(known), E, R)
    known, queries = tensor(known), tensor(asked)
    large = TripleIndex(most - last + known, 2**31, 2**20)
    far = most - last + queries
    assert large.queries is not None
    assert torch.equal(large.contains(far), small.contains(queries))
    assert torch.equal(large.count(far, side), small.count(queries, side))
    rows, entities = large.answers(far, side)
    answers = small.answers(queries, side)
    assert torch.equal(rows, answers[0])
    assert torch.equal(entities, answers[1] + 2**31 - E)
    candidates = torch.arange(E).repeat(len(queries), 1)
    found = large.contains_candidates(far, side, candidates + 2**31 - E)
    assert torch.equal(found, small.contains_candidates(queries, side, candidates))
    anchors = large.pairs(side) // 2**20 - (2**31 - E)
    assert torch.equal(anchors, small.pairs(side) // R)
    assert torch.equal(large.to("cpu").prefix(far, side), large.prefix(far, side))


@pytest.mark.parametrize(("entities", "relations", "fits"), [(2**31, 1, True), (2**31, 2, True), (2**62, 2, False)])
def test_pairs_must_fit_64_bits(entities, relations, fits):
    one = torch.tensor([[entities - 1, 0, entities - 1]])
    if fits:
        index = TripleIndex(one, entities, relations)
        assert index.contains(one).all()
        assert not index.contains(one - torch.tensor([0, 0, 1])).any()
        assert not TripleIndex(one[:0], entities, relations).contains(one).any()
    else:
        with pytest.raises(DataError, match="do not fit 64-bit keys"):
            TripleIndex(one, entities, relations)


def test_moving_to_the_same_device_shares_the_keys():
    index = TripleIndex(tensor([(0, 0, 1)]), E, R)
    moved = index.to("cpu")
    assert moved.keys["tail"].data_ptr() == index.keys["tail"].data_ptr()
    assert moved.contains(tensor([(0, 0, 1)])).all()


# --- weights ------------------------------------------------------------------------------------------------------


def test_subsampling_weights_by_hand():
    """(c(h, r) + c(r, t)) ** -0.5 where c counts triples with the pair, plus 3."""
    rows = [(0, 0, 1), (0, 0, 2), (0, 0, 3), (1, 0, 3), (0, 1, 3), (4, 2, 4)]
    counts = [(3, 1), (3, 1), (3, 2), (1, 2), (1, 1), (1, 1)]
    expected = [((a + 3) + (b + 3)) ** -0.5 for a, b in counts]
    assert expected[0] == 10**-0.5
    found = subsampling_weights(tensor(rows), R)
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx(expected, rel=1e-6)


POWERS = st.sampled_from([0.5, 0.0, 0.25, 1.0, 2.0])


@given(triples(), POWERS)
def test_query_weights(rows, power):
    tails = [(sum((h, r) == (a, b) for a, b, _ in rows) + 3) ** -power for h, r, _ in rows]
    heads = [(sum((r, t) == (b, c) for _, b, c in rows) + 3) ** -power for _, r, t in rows]
    assert query_weights(tensor(rows), R, "tail", power).tolist() == pytest.approx(tails, rel=1e-6)
    assert query_weights(tensor(rows), R, "head", power).tolist() == pytest.approx(heads, rel=1e-6)
    assert torch.equal(query_weights(tensor(rows), R, "tail", 0.5), query_weights(tensor(rows), R, "tail"))


@given(triples(), POWERS)
def test_answer_weights(rows, power):
    count = Counter(end for h, _, t in rows for end in (h, t))
    most = max(count.values())
    for side, end in (("head", 0), ("tail", 2)):
        expected = [0.1 + 0.9 * (count[row[end]] / most) ** power for row in rows]
        assert answer_weights(tensor(rows), side, power).tolist() == pytest.approx(expected, rel=1e-6)
    assert torch.equal(answer_weights(tensor(rows), "tail", 0.5), answer_weights(tensor(rows), "tail"))


def test_answer_weights_by_hand():
    """Entity 0 occurs four times, 1 twice: as answers they weigh 1 and .55, and one that occurs once .325."""
    rows = [(0, 0, 1), (0, 0, 2), (0, 1, 1), (3, 0, 0)]
    assert answer_weights(tensor(rows), "tail", 1.0).tolist() == pytest.approx([0.55, 0.325, 0.55, 1.0])
    assert answer_weights(tensor(rows), "head", 1.0).tolist() == pytest.approx([1.0, 1.0, 1.0, 0.325])


@given(triples(max_size=60), st.integers(1, 9), st.sampled_from(SIDES))
def test_queries_are_counted_share_by_share(rows, share, side):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "SHARE", share)
        patch.setattr(weights, "MOST_SHARES", 4)
        found = query_weights(tensor(rows), R, side)
    assert torch.equal(found, query_weights(tensor(rows), R, side))


@given(triples(), POWERS)
def test_subsampling_weights(rows, power):
    expected = [
        (sum((h, r) == (a, b) for a, b, _ in rows) + sum((r, t) == (b, c) for _, b, c in rows) + 6) ** -power
        for h, r, t in rows
    ]
    assert subsampling_weights(tensor(rows), R, power).tolist() == pytest.approx(expected, rel=1e-6)
    assert torch.equal(subsampling_weights(tensor(rows), R, 0.5), subsampling_weights(tensor(rows), R))
