"""Labelled triples in the forms people have them in: all give one graph, and every mistake one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import eans
from eans.errors import UsageError
from eans.graph import KnowledgeGraph
from eans.labelled import labelled, partly_labelled

ROWS = [("1", "0", "2"), ("2", "0", "7"), ("7", "3", "1")]
INTEGERS = np.array([[1, 0, 2], [2, 0, 7], [7, 3, 1]])


class Row(NamedTuple):
    head: Any
    relation: Any
    tail: Any


class Series(list[Any]):
    """A column as polars has it."""

    def to_list(self) -> list[Any]:
        return list(self)


class Frame:
    """A data frame of polars, as far as it matters: names, and columns by name."""

    def __init__(self, **columns: list[Any]) -> None:
        self.columns = list(columns)
        self.held = {name: Series(column) for name, column in columns.items()}

    def __getitem__(self, name: str) -> Series:
        return self.held[name]


def columns(rows: list[tuple[str, ...]]) -> list[list[str]]:
    return [list(column) for column in zip(*rows, strict=True)]


HEADS, RELATIONS, TAILS = columns(ROWS)
FORMS: dict[str, Callable[[], Any]] = {
    "Arrow table": lambda: pa.table({"tail": TAILS, "weight": [1.0] * 3, "head": HEADS, "relation": RELATIONS}),
    "Arrow batch": lambda: pa.record_batch([HEADS, RELATIONS, TAILS], ["a", "b", "c"]),
    "tuples": lambda: ROWS,
    "lists": lambda: [list(row) for row in ROWS],
    "named tuples": lambda: [Row(*row) for row in ROWS],
    "generator": lambda: (row for row in ROWS),
    "zip": lambda: zip(HEADS, RELATIONS, TAILS, strict=True),
    "integers": lambda: [(1, 0, 2), (2, 0, 7), (7, 3, 1)],
    "some integers": lambda: [(1, "0", "2"), ("2", 0, 7), (7, 3, "1")],
    "scalars of NumPy": lambda: [tuple(np.uint8(part) for part in row) for row in INTEGERS],
    "array": lambda: INTEGERS,
    "array, unsigned": lambda: INTEGERS.astype(np.uint64),
    "array of strings": lambda: np.array(ROWS),
    "array of objects": lambda: np.array(ROWS, dtype=object),
    "rows of arrays": lambda: list(INTEGERS),
    "tensor": lambda: torch.from_numpy(INTEGERS),
    "frame": lambda: Frame(head=HEADS, relation=RELATIONS, tail=TAILS),
    "frame, any order": lambda: Frame(weight=HEADS, tail=TAILS, Head=HEADS, relation=RELATIONS),
    "frame, subject": lambda: Frame(object=TAILS, predicate=RELATIONS, subject=HEADS),
    "frame, letters": lambda: Frame(h=HEADS, t=TAILS, r=RELATIONS),
    "frame, other names": lambda: Frame(a=HEADS, b=RELATIONS, c=TAILS),
}


@pytest.mark.parametrize("make", FORMS.values(), ids=FORMS)
def test_all_forms_give_the_same_graph(make: Callable[[], Any]) -> None:
    expected = KnowledgeGraph.from_labels(ROWS, ROWS[:1], ROWS[1:])
    graph = KnowledgeGraph.from_labels(make(), ROWS[:1], ROWS[1:])
    assert graph.sha256 == expected.sha256
    assert graph.vocabulary_sha256 == expected.vocabulary_sha256
    assert {type(label) for label in (*graph.entities, *graph.relations)} == {str}
    assert torch.equal(expected.ids(make()), expected.train)
    assert KnowledgeGraph.from_labels(ROWS, test=make()).sha256["test"] == expected.sha256["train"]


def test_nothing_in_a_split() -> None:
    for nothing in ([], (), np.array([]), np.empty((0, 3), dtype=int), Frame(head=[], relation=[], tail=[])):
        assert len(KnowledgeGraph.from_labels(ROWS, nothing).valid) == 0


WIDTH = "expected three labels, head, relation and tail, got"
FORM = "a triple is three labels, head, relation and tail, not"
KIND = "not a string or an integer"
FLOAT = f"{KIND}; a column of integers turns into floats where one is missing"
SHAPE = "expected an array of shape [n, 3], got"
FILL = "fill it in or drop the row"
WANTED = "expected columns head, relation and tail, or three in this order, got"
WRONG: dict[str, tuple[Any, str]] = {
    "two": ([*ROWS, ("a", "b")], f", row 3: {WIDTH} 2: ('a', 'b')"),
    "four": ([("a", "b", "c", "d")], f", row 0: {WIDTH} 4: ('a', 'b', 'c', 'd')"),
    "string": ([*ROWS, "abc"], f", row 3: {FORM} 'abc'"),
    "a number": ([ROWS[0], 7], f", row 1: {FORM} 7"),
    "nothing": ([None], f", row 0: {FORM} None"),
    "set": ([{"a"}], f", row 0: {FORM} {{'a'}}"),
    "dict": ({"head": HEADS}, f", row 0: {FORM} 'head'"),
    "None inside": ([*ROWS, ("a", None, "b")], f", row 3: the relation is missing (None); {FILL}"),
    "NaN inside": ([("a", "r", float("nan"))], f", row 0: the tail is missing (nan); {FILL}"),
    "empty label": ([("", "r", "b")], f", row 0: the head is missing (''); {FILL}"),
    "bool": ([("a", "r", True)], f", row 0: the tail True is of type bool, {KIND}"),
    "bool of NumPy": ([("a", "r", np.bool_(True))], f", row 0: the tail np.True_ is of type bool, {KIND}"),
    "float": ([("a", 1.5, "b")], f", row 0: the relation 1.5 is of type float, {FLOAT}"),
    "float of NumPy": (
        [("a", np.float64(2), "b")],
        f", row 0: the relation np.float64(2.0) is of type float64, {FLOAT}",
    ),
    "bytes": ([(b"a", "r", "b")], f", row 0: the head b'a' is of type bytes, {KIND}"),
    "list": ([("a", "r", ["b"])], f", row 0: the tail ['b'] is of type list, {KIND}"),
    "array inside": ([(np.arange(2), "r", "b")], f", row 0: the head array([0, 1]) is of type ndarray, {KIND}"),
    "long": ([("a", "r", ["b" * 200])], f", row 0: the tail ['{'b' * 77}… is of type list, {KIND}"),
    "array of floats": (INTEGERS / 2, f", row 0: the head 0.5 is of type float, {FLOAT}"),
    "array of bools": (INTEGERS > 1, f", row 0: the head False is of type bool, {KIND}"),
    "array, wide": (np.zeros((2, 4), dtype=int), f": {SHAPE} [2, 4]"),
    "array, flat": (np.zeros(3, dtype=int), f": {SHAPE} [3]"),
    "array, deep": (np.zeros((2, 3, 3), dtype=int), f": {SHAPE} [2, 3, 3]"),
    "scalar": (np.array(3), f": {SHAPE} []"),
    "frame, None": (Frame(h=["1", None], r=["0", "0"], t=["2", "2"]), f", row 1: the head is missing (None); {FILL}"),
    "frame, wide": (Frame(a=["a"], b=["r"], c=["b"], d=["?"]), f": {WANTED} a, b, c, d; choose three"),
    "frame, narrow": (Frame(head=["a"], tail=["b"]), f": {WANTED} head, tail; choose three"),
    "path": ("my-graph", ": expected triples, got 'my-graph'; a folder of files is opened with eans.load(...)"),
    "Path": (Path("x"), f": expected triples, got {Path('x')!r}; a folder of files is opened with eans.load(...)"),
    "number": (3, ": expected triples (a list, an array or a data frame), got 3"),
}


@pytest.mark.parametrize(("given", "message"), WRONG.values(), ids=WRONG)
def test_mistakes_are_one_line_that_names_the_row(given: Any, message: str) -> None:
    for what, call in (
        ("train", lambda: KnowledgeGraph.from_labels(given)),
        ("test", lambda: KnowledgeGraph.from_labels(ROWS, test=given)),
        ("triples", lambda: KnowledgeGraph.from_labels(ROWS).ids(given)),
    ):
        with pytest.raises(UsageError) as caught:
            call()
        assert str(caught.value) == f"{what}{message}"


def test_columns_that_cannot_be_read() -> None:
    class Lazy:
        columns = ("head", "relation", "tail")

        def __getitem__(self, name: str) -> str:
            return name

    with pytest.raises(UsageError, match="train: cannot read a Lazy; give its rows as a list or an array"):
        KnowledgeGraph.from_labels(Lazy())


ANYTHING = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=2))


@given(
    st.lists(st.one_of(ANYTHING, st.lists(ANYTHING, max_size=4), st.tuples(ANYTHING, ANYTHING, ANYTHING)), max_size=3)
)
def test_whatever_is_given_is_read_or_one_line(rows: list[Any]) -> None:
    found = []
    try:
        found += labelled(rows)
    except UsageError as error:
        message = str(error)
        assert message.startswith("triples, row ") and "\n" not in message  # noqa: PT018
    else:
        assert found == [tuple(str(part) for part in row) for row in rows]


def test_parts_may_be_missing() -> None:
    rows = [("a", "r", None), (None, "r", 7), ("a", "", "b"), (float("nan"), None, "b")]
    expected = [("a", "r", None), (None, "r", "7"), ("a", None, "b"), (None, None, "b")]
    assert list(partly_labelled(rows, "queries")) == expected
    columns = [list(column) for column in zip(*expected, strict=True)]
    arrow = pa.table(dict(zip(("head", "relation", "tail"), columns, strict=True)))
    assert list(partly_labelled(arrow, "queries")) == expected
    pandas = pytest.importorskip("pandas")
    assert list(partly_labelled(pandas.DataFrame(rows), "queries")) == expected
    with pytest.raises(UsageError, match=r"^queries, row 1: expected three labels, head, relation and tail, got 2"):
        list(partly_labelled([rows[0], ("a", "r")], "queries"))
    with pytest.raises(UsageError, match=r"^queries, row 0: the relation 1.5 is of type float"):
        list(partly_labelled([("a", 1.5, None)], "queries"))


def test_unknown_labels_name_the_row() -> None:
    graph = KnowledgeGraph.from_labels(ROWS)
    with pytest.raises(UsageError, match=r"^triples, row 1: unknown entity '77'; did you mean '7'\?$"):
        graph.ids([(1, 0, 2), (77, 0, 2)])


def test_a_run_ranks_triples_in_any_form() -> None:
    graph = KnowledgeGraph.from_labels(INTEGERS)
    run = eans.train(graph, "transe", "uniform", dim=4, steps=2)
    assert run.evaluate(INTEGERS[:1])["test"] == run.evaluate([("1", "0", "2")])["test"]


# --- pandas -------------------------------------------------------------------------------------------------------


def test_frames_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"tail": TAILS, "weight": 1.0, "head": HEADS, "relation": RELATIONS})
    expected = KnowledgeGraph.from_labels(ROWS)
    integers = pandas.DataFrame(INTEGERS)
    categories = frame.astype({"relation": "category"})
    missing_one = frame.set_index("weight")
    for form in (frame, integers, integers.astype("Int64"), categories, missing_one, frame[::-1][::-1]):
        assert KnowledgeGraph.from_labels(form).sha256 == expected.sha256
    triples = frame[["head", "relation", "tail"]]
    assert KnowledgeGraph.from_labels(triples.itertuples(index=False)).sha256 == expected.sha256
    assert KnowledgeGraph.from_labels(triples.to_numpy()).sha256 == expected.sha256
    with pytest.raises(UsageError, match=r"^train: expected an array of shape \[n, 3\], got \[3\]$"):
        KnowledgeGraph.from_labels(frame["head"])
    twice = pandas.DataFrame([ROWS[0]], columns=["head", "head", "tail"])
    with pytest.raises(UsageError, match=r"got head, head, tail; choose three$"):
        KnowledgeGraph.from_labels(twice)


@pytest.mark.parametrize(
    ("column", "dtype", "message"),
    [
        (["2", None, "1"], "str", "row 1: the tail is missing (nan)"),
        (["2", None, "1"], "object", "row 1: the tail is missing (None)"),
        ([2, None, 1], "Int64", "row 1: the tail is missing (<NA>)"),
        (
            [2, None, 1],
            "float",
            "row 0: the tail 2.0 is of type float, not a string or an integer; a column of integers",
        ),
    ],
)
def test_values_that_pandas_has_not(column: list[Any], dtype: str, message: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"head": HEADS, "relation": RELATIONS, "tail": pandas.Series(column, dtype=dtype)})
    with pytest.raises(UsageError) as caught:
        KnowledgeGraph.from_labels(frame)
    assert message in str(caught.value)


# --- columns with names -------------------------------------------------------------------------------------------


def test_tables_of_arrow_and_columns_with_names() -> None:
    expected = KnowledgeGraph.from_labels(ROWS)
    table = pa.table({"what": TAILS, "who": HEADS, "does": RELATIONS, "sure": [0.5, 0, 2], "when": ["1", "3", "2"]})
    columns = {"head": "who", "relation": "does", "tail": 1}
    graph = KnowledgeGraph.from_labels(table, columns=columns)
    assert (graph.sha256, graph.weights, graph.times) == (expected.sha256, None, None)
    graph = KnowledgeGraph.from_labels(table, test=ROWS[:1], columns=columns | {"weight": "sure", "time": "when"})
    assert graph.weights is not None and graph.weights.tolist() == [0.5, 0, 2]  # noqa: PT018
    assert graph.times is not None and graph.times.tolist() == [0, 2, 1]  # noqa: PT018
    usual = pa.table({"o": TAILS, "s": HEADS, "p": pa.array(RELATIONS).dictionary_encode()})
    for form in (usual, usual.to_batches()[0]):
        assert KnowledgeGraph.from_labels(form).sha256 == expected.sha256


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"head": "whoo"},
            "train: columns: no column 'whoo' for head; did you mean 'who'?; there are 4: who, does, what, n",
        ),
        (
            {"head": "who", "relation": "does", "tail": "what", "weight": "n"},
            "train, row 1: the weight -1 is no finite",
        ),
        ({"wait": "n"}, "columns: unknown part 'wait'; did you mean 'weight'?"),
        ("head", "columns: head is ''; give the name of a column"),
    ],
)
def test_columns_that_frames_have_not(columns: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        KnowledgeGraph.from_labels(Frame(who=HEADS, does=RELATIONS, what=TAILS, n=[1, -1, 2]), columns=columns)
    assert str(caught.value).startswith(message)


def test_columns_are_those_of_frames() -> None:
    with pytest.raises(UsageError, match="train: columns are those of a data frame, and this is a list"):
        KnowledgeGraph.from_labels(ROWS, columns={"weight": "n"})


def test_frames_of_polars() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"object": TAILS, "subject": HEADS, "predicate": RELATIONS, "n": [1.0, 2.0, 0.0]})
    graph = KnowledgeGraph.from_labels(frame, columns={"weight": "n"})
    assert graph.sha256 == KnowledgeGraph.from_labels(ROWS).sha256
    assert graph.weights is not None and graph.weights.tolist() == [1, 2, 0]  # noqa: PT018
