"""The names of entities and of relations: one Arrow buffer of UTF-8 for all of them, and the way from labels to ids.

A Python string takes some 60 bytes more than its letters; here a label takes 8.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from eans.arguments import described, several, shown
from eans.errors import DataError, UsageError, did_you_mean

LABELS = pa.large_string()  # 64-bit offsets: the labels of one graph may take more than 2 GB
COMPARED = 20_000  # labels among which a misspelt one is looked for; comparing one takes some 5 us


class Vocabulary(Sequence[str]):
    """An ordered set of labels; a label's id is its position.

    Args:
        labels: texts, or an Arrow array of them.
        kind: what messages call one of them.

    Attributes:
        array: the labels as ``pyarrow.LargeStringArray``, in the order of their ids.
    """

    def __init__(self, labels: Iterable[str] | pa.Array, kind: str = "entity") -> None:
        self.kind = kind
        self.array: pa.LargeStringArray = _as_array(labels, kind)
        _check(self.array, kind)

    @classmethod
    def of_different(cls, labels: pa.LargeStringArray, kind: str) -> Vocabulary:
        """A vocabulary of labels that are known to be good: different, not empty, without tabs and line breaks."""
        made = cls.__new__(cls)
        made.kind, made.array = kind, labels
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

    def id(self, label: str) -> int:
        """The id of `label`; an unknown label is a `UsageError` that names the nearest known one."""
        found = self._find(label)
        if found < 0:
            raise UsageError(f"unknown {self.kind} {shown(label)}{self.nearest(label)}")
        return found

    def _find(self, label: object) -> int:
        """Where a label is, -1 if nowhere: one pass over the buffer, 5 ms for a million labels."""
        text = _text(label)
        return int(pc.index(self.array, text).as_py()) if text is not None else -1

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
            asked = pa.array(texts, LABELS)
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
        return self.array.take(pa.array(places.astype(np.int64)))

    def nearest(self, label: object) -> str:
        """``"; did you mean 'x'?"`` for the known label that is most like this one, or ``""``.

        Where there are very many labels, it is looked for among those that begin alike, whatever their case.
        """
        if _text(label) is None:
            return ""
        if len(self) <= COMPARED:
            return did_you_mean(label, self)
        lowered, wanted = pc.utf8_lower(self.array), str(label).lower()
        alike = self.array.filter(pc.equal(lowered, wanted))
        for length in range(min(4, len(wanted)), 0, -1):
            if len(alike):
                break
            alike = self.array.filter(pc.starts_with(lowered, wanted[:length]))
        return did_you_mean(label, alike[:COMPARED].to_pylist())


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
        return pa.array(texts, LABELS)
    except UnicodeEncodeError as error:
        raise DataError(f"{kind} label {shown(error.object)} is no text that UTF-8 can hold") from None


def joined(separator: str, *parts: pa.LargeStringArray | str) -> pa.LargeStringArray:
    """Texts side by side, ``[n]`` each or one for all, with a separator between them."""
    texts = [pa.scalar(part, LABELS) if isinstance(part, str) else part for part in (*parts, separator)]
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
