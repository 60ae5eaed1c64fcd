"""The names of entities and of relations: one Arrow buffer of UTF-8 for all of them, and the way from labels to ids.

A Python string takes some 60 bytes more than its letters; here a label takes 8.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from eans.arguments import described, several, shown
from eans.errors import DataError, UsageError
from eans.misspelt import nearest

LABELS = pa.large_string()  # 64-bit offsets: the labels of one graph may take more than 2 GB
LISTED = 10  # labels of one name in a message


class Vocabulary(Sequence[str]):
    """An ordered set of labels; a label's id is its position.

    Args:
        labels: texts, or an Arrow array of them.
        kind: what messages call one of them.

    Attributes:
        array: the labels as ``pyarrow.LargeStringArray``, in the order of their ids.
        names: readable names in the same order, null where there is none; None if no label has one. They are shown
            beside labels and asked for like labels, and need not be different.
    """

    def __init__(self, labels: Iterable[str] | pa.Array, kind: str = "entity") -> None:
        self.kind = kind
        self.array: pa.LargeStringArray = _as_array(labels, kind)
        self.names: pa.LargeStringArray | None = None
        _check(self.array, kind)

    @classmethod
    def of_different(cls, labels: pa.LargeStringArray, kind: str) -> Vocabulary:
        """A vocabulary of labels that are known to be good: different, not empty, without tabs and line breaks."""
        made = cls.__new__(cls)
        made.kind, made.array, made.names = kind, labels, None
        return made

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """All labels as Python strings, which are made when first asked for: prefer `labels_of` for a few."""
        return tuple(self.array.to_pylist())

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """Label to id, as a dictionary that is made when first asked for: prefer `ids_of` for a few."""
        return {label: index for index, label in enumerate(self.labels)}

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        place = operator.index(index)
        if not -len(self) <= place < len(self):
            raise IndexError(f"no {self.kind} has the id {place}")
        return str(self.array[place].as_py())

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), 65536):
            yield from self.array[start : start + 65536].to_pylist()

    def __contains__(self, label: object) -> bool:
        return self._find(label) >= 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and bool(self.array.equals(other.array))

    def __hash__(self) -> int:
        return hash((len(self), *([self[0], self[-1]] if len(self) else [])))

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} {self.kind} labels)"

    def named(self, labels: pa.Array, names: pa.Array) -> Vocabulary:
        """The vocabulary with readable names of some labels; the others keep theirs.

        Args:
            labels, names: Arrow arrays ``[n]``. Labels that it does not have are passed over; of several names for one
                the first is taken, and an empty one is none.
        """
        if len(labels) != len(names):
            raise DataError(f"{len(labels)} {self.kind} labels have {len(names)} names")
        places = indices(labels, self.array)
        known = np.flatnonzero(places >= 0)[::-1]
        rows = np.full(len(self), -1)
        rows[places[known]] = known  # of equal places the last counts, which is the first before they were turned round
        plain = pc.replace_substring_regex(names.cast(LABELS), r"[\t\n\r]+", " ")
        found = pc.if_else(pc.equal(plain, ""), None, plain).take(pa.array(rows, mask=rows < 0))
        found = found if self.names is None else pc.coalesce(found, self.names)
        result = copy(self)
        result.names = found if found.null_count < len(found) else None
        return result

    def take(self, ids: Tensor) -> Vocabulary:
        """The vocabulary of these labels alone, with their names."""
        result = Vocabulary(self.labels_of(ids), self.kind)
        result.names = None if self.names is None else self.names.take(pa.array(ids.numpy()))
        return result

    def name(self, index: int) -> str | None:
        """The readable name of an id, if it has one that says more than its label."""
        found = None if self.names is None else self.names[index].as_py()
        return None if found == self[index] else found

    def shown(self, index: int) -> str:
        """An id for people: ``name (label)``, or the label."""
        return readable(self[index], self.name(index))

    def names_of(self, labels: Iterable[str]) -> dict[str, str]:
        """Label to readable name, for those of these labels that have one."""
        if self.names is None:
            return {}
        asked = pc.is_in(self.array, value_set=pa.array(set(labels), LABELS))  # no table of all labels for a few
        found = pc.and_(asked, pc.fill_null(pc.not_equal(self.names, self.array), False))
        return dict(zip(self.array.filter(found).to_pylist(), self.names.filter(found).to_pylist(), strict=True))

    def id(self, label: str) -> int:
        """The id of a label, or of a readable name that only one label has.

        What is neither is a `UsageError` that names the nearest known one; so is a name of several labels, which lists
        them.
        """
        found = self._find(label)
        found = self._named(label) if found < 0 else found
        if found < 0:
            raise UsageError(f"unknown {self.kind} {shown(label)}{self.nearest(label)}")
        return found

    def _find(self, label: object) -> int:
        """Where a label is, -1 if nowhere: one pass over the buffer, 5 ms for a million labels."""
        text = _text(label)
        return int(pc.index(self.array, text).as_py()) if text is not None else -1

    def _named(self, text: object) -> int:
        """The id that has this name, or is shown as this text; -1 for none."""
        if self.names is None or _text(text) is None:
            return -1
        found = np.flatnonzero(pc.fill_null(pc.equal(self.names, text), False).to_numpy(zero_copy_only=False)).tolist()
        if len(found) > 1:
            labels = ", ".join(self[index] for index in found[:LISTED]) + (", ..." if len(found) > LISTED else "")
            raise UsageError(
                f"{self.kind} {shown(text)} is the name of {len(found)}: {labels}; give one of these labels"
            )
        shown_as = re.fullmatch(r"(?s)(.*) \((.+)\)", str(text))
        if not found and shown_as:
            index = self._find(shown_as[2])
            return index if index >= 0 and self.name(index) == shown_as[1] else -1
        return found[0] if found else -1

    def ids_of(self, labels: Iterable[str] | pa.Array | pa.ChunkedArray) -> Tensor:
        """The ids of many labels, int64 ``[n]``, with -1 for one that is not known.

        A call takes some 0.1 s for each million labels of the vocabulary, and as much for each million asked for.

        Args:
            labels: texts, or an Arrow array of them, which may be dictionary-encoded.
        """
        if isinstance(labels, (pa.Array, pa.ChunkedArray)):
            asked = labels
        else:
            texts = list(labels) if isinstance(labels, str) else several("labels", labels, "texts")
            for text in texts:
                if _text(text) is None:
                    raise UsageError(f"{self.kind} label {shown(text)} is no text")
            asked = array_of(texts)
        return torch.from_numpy(indices(asked, self.array))

    def labels_of(self, ids: Tensor | NDArray[np.integer[Any]] | Sequence[int]) -> pa.LargeStringArray:
        """The labels of many ids as an Arrow array; ``.to_pylist()`` makes Python strings of them.

        Args:
            ids: of any integer type, ``[n]``; one that no label has is a `UsageError`.
        """
        if isinstance(ids, Tensor):
            ids = ids.detach().cpu().numpy()
        try:
            places = np.asarray(ids)
        except (TypeError, ValueError):
            places = np.array(None)
        if places.ndim != 1 or (len(places) and places.dtype.kind not in "iu"):
            raise UsageError(f"ids must be whole numbers [n], got {described(ids)}")
        wrong = np.flatnonzero((places < 0) | (places >= len(self)))
        if len(wrong):
            raise UsageError(f"no {self.kind} has the id {places[wrong[0]]}; there are {len(self)}")
        return self.array.take(ids_array(places))

    def nearest(self, label: object) -> str:
        """``"; did you mean 'x'?"`` for the known label that is most like this one, or ``""``.

        Where there are very many labels, it is looked for among those that share most letters with it.
        """
        if _text(label) is None:
            return ""
        names = None if self.names is None else self.names.drop_null()
        return nearest(str(label), self.array) or (nearest(str(label), names) if names is not None else "")


def readable(label: str, name: str | None) -> str:
    """``name (label)``, or the label where there is no name."""
    return label if name is None else f"{name} ({label})"


def indices(asked: pa.Array | pa.ChunkedArray, known: pa.Array) -> NDArray[np.int64]:
    """Where each asked label is among the known ones, int64 ``[n]``; -1 for nowhere."""
    if isinstance(asked, pa.ChunkedArray):
        parts = [indices(chunk, known) for chunk in asked.chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)
    if pa.types.is_dictionary(asked.type):
        places = indices(asked.dictionary, known)
        codes = pc.fill_null(asked.indices, -1).to_numpy(zero_copy_only=False)
        found: NDArray[np.int64] = np.append(places, -1)[codes]
        return found
    rows = pc.index_in(asked.cast(known.type), value_set=known, skip_nulls=True)
    return np.asarray(pc.fill_null(rows, -1).to_numpy(zero_copy_only=False), np.int64)


def _text(label: object) -> str | None:
    """The label if it is a text that UTF-8 can hold."""
    try:
        return label if isinstance(label, str) and label.encode() is not None else None
    except UnicodeEncodeError:
        return None


def _as_array(labels: Iterable[str] | pa.Array, kind: str) -> pa.LargeStringArray:
    if isinstance(labels, pa.Array):
        if labels.null_count:
            raise DataError(f"{kind} label {pc.index(labels.is_null(), True)} is missing")
        return labels.cast(LABELS)
    texts = list(labels) if isinstance(labels, str) else several("labels", labels, "texts")
    for label in texts:
        if not isinstance(label, str):
            raise DataError(f"{kind} label {shown(label)} is no text")
    try:
        return array_of(texts)
    except UnicodeEncodeError as error:
        raise DataError(f"{kind} label {shown(error.object)} is no text that UTF-8 can hold") from None


def array_of(texts: Sequence[str]) -> pa.LargeStringArray:
    """An Arrow array of texts. `pa.array` would load pandas where that is installed, which takes a while."""
    encoded = [text.encode() for text in texts]
    bounds = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=bounds[1:])
    return pa.LargeStringArray.from_buffers(len(encoded), pa.py_buffer(bounds), pa.py_buffer(b"".join(encoded)))


def ids_array(ids: NDArray[np.integer[Any]]) -> pa.Int64Array:
    """An Arrow array of ids ``[n]``, as `array_of`."""
    values = pa.py_buffer(np.ascontiguousarray(ids, np.int64))
    return pa.Array.from_buffers(pa.int64(), len(ids), [None, values])


def joined(separator: str, *parts: pa.LargeStringArray | str) -> pa.LargeStringArray:
    """Texts side by side, ``[n]`` each or one for all, with a separator between them."""
    texts = [array_of([part])[0] if isinstance(part, str) else part for part in (*parts, separator)]
    return pc.binary_join_element_wise(*texts)


def bytes_of(texts: pa.LargeStringArray) -> bytes:
    """All texts of an array, one after the other."""
    _, offsets, letters = texts.buffers()
    if letters is None or not len(texts):
        return b""
    bounds = np.frombuffer(offsets, np.int64)[texts.offset :]
    return bytes(memoryview(letters)[bounds[0] : bounds[len(texts)]])


def _check(array: pa.LargeStringArray, kind: str) -> None:
    """Labels are different, not empty, and can stand in a text file."""
    if not len(array):
        return
    if len(array.dictionary_encode().dictionary) != len(array):
        first = pc.index_in(array, value_set=array).to_numpy(zero_copy_only=False)
        twice = array[int(np.flatnonzero(first != np.arange(len(array)))[0])]
        raise DataError(f"{kind} '{twice}' is listed twice; labels must be unique")
    letters = np.frombuffer(bytes_of(array), np.uint8)
    if pc.min(pc.binary_length(array)).as_py() and not any((letters == code).any() for code in b"\t\n\r"):
        return
    bad = pc.or_(pc.equal(pc.binary_length(array), 0), pc.match_substring_regex(array, r"[\t\n\r]"))
    label = array[pc.index(bad, True).as_py()].as_py()
    raise DataError(f"{kind} label {label!r} is empty or contains a tab or line break")
