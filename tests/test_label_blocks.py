"""Labels as Arrow arrays: what the rows say, from all that has columns, and the same errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from eans import label_blocks
from eans.errors import DataError, UsageError
from eans.graph import KnowledgeGraph
from eans.labelled import labelled

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
ROWS = [("10", "0", "é日"), ("é日", "0", "7"), ("7", "3", "10"), ("x y", "0", "x y"), ("10", "3", "x y")]
COLUMNS = dict(zip(("head", "relation", "tail"), map(list, zip(*ROWS, strict=True)), strict=True))
INTEGERS = {name: [7, -2, 300, 0, 7] for name in COLUMNS}
FORMS: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pandas.DataFrame(COLUMNS),
    "pandas, objects": lambda: pandas.DataFrame(COLUMNS, dtype=object),
    "pandas, categories": lambda: pandas.DataFrame(COLUMNS, dtype="category"),
    "pandas, integers": lambda: pandas.DataFrame(INTEGERS),
    "pandas, integers that may be missing": lambda: pandas.DataFrame(INTEGERS, dtype="Int64"),
    "pandas, one column of integers": lambda: pandas.DataFrame({**COLUMNS, "relation": [0, 0, 3, 0, 3]}),
    "pandas, rows left out": lambda: pandas.DataFrame(COLUMNS)[[True, False, True, True, False]],
    "polars": lambda: polars.DataFrame(COLUMNS),
    "polars, categories": lambda: polars.DataFrame(COLUMNS).cast(polars.Categorical),
    "polars, integers": lambda: polars.DataFrame(INTEGERS),
    "Arrow": lambda: pa.concat_tables([pa.table(COLUMNS).slice(0, 2), pa.table(COLUMNS).slice(2)]),
    "Arrow, dictionaries": lambda: pa.table({name: pa.array(v).dictionary_encode() for name, v in COLUMNS.items()}),
    "NumPy, objects": lambda: np.array(ROWS, object),
    "NumPy, texts": lambda: np.array(ROWS),
    "NumPy, unsigned": lambda: np.array([[2**64 - 1, 0, 1]], np.uint64),
    "rows": lambda: ROWS,
    "nothing": lambda: pandas.DataFrame({name: [] for name in COLUMNS}, dtype=str),
}


SLOW = "polars, categories"  # of a type that Arrow has no conversion for


@pytest.mark.parametrize("make", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("block", [1, 2, 100])
def test_the_same_labels_as_row_by_row(monkeypatch: pytest.MonkeyPatch, make: Callable[[], Any], block: int) -> None:
    monkeypatch.setattr(label_blocks, "BLOCK", block)
    found = list(label_blocks.label_blocks(make(), "train", {}))
    assert all(1 <= len(part) <= block for parts in found for part in parts)
    assert [row for parts in found for row in zip(*(part.to_pylist() for part in parts), strict=True)] == list(
        labelled(make())
    )


@pytest.mark.parametrize("name", [name for name in FORMS if name not in {"rows", "nothing", SLOW}])
def test_columns_are_not_read_row_by_row(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(label_blocks, "labelled", None)
    assert list(label_blocks.label_blocks(FORMS[name](), "train", {}))


FRAMES = (
    pandas.DataFrame,
    lambda columns: pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()}),
    lambda columns: np.array(list(columns.values()), object).T,
)
MISSING = "train, row 1: the relation is missing ("
WRONG: dict[str, tuple[Any, str]] = {
    "None": (["a", None, "b"], MISSING),
    "NaN": (["a", float("nan"), "b"], MISSING),
    "empty": (["a", "", "b"], MISSING),
    "float": ([1.5, 2.5, 3.0], "train, row 0: the relation 1.5 is of type float, not a string or an integer"),
    "bool": ([True, False, True], "train, row 0: the relation True is of type bool"),
    "bytes": ([b"a", b"b", b"c"], "train, row 0: the relation b'a' is of type bytes"),
}


@pytest.mark.parametrize(("values", "message"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("frame", FRAMES)
def test_what_is_no_label_is_told_with_its_row(frame: Any, values: list[Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        KnowledgeGraph.from_labels(frame({"head": ["a"] * 3, "relation": values, "tail": ["b"] * 3}))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("make", [list, lambda rows: np.array(rows, object)])
def test_what_utf8_cannot_hold(make: Any) -> None:
    with pytest.raises(DataError, match=r"label '.*ud800' is no text that UTF-8 can hold"):
        KnowledgeGraph.from_labels(make([("a", "r", "\ud800")]))
