"""Named tensors as safetensors files, a block at a time whatever their size, and the graph among them.

A file is eight bytes with the length of a header, the header (JSON: text, and of each tensor its type, shape and
place), and the tensors' numbers. The library of this name writes and reads files as a whole.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_tensors
from torch import Tensor, nn

from eans.errors import DataError, RunError
from eans.files import cannot_read
from eans.graph import SPLITS, KnowledgeGraph, Vocabulary
from eans.huge_pages import on_huge_pages
from eans.manifest import FORMAT, RESTORE, check_format
from eans.vocabulary import LABELS, bytes_of, joined

KINDS = {"entities": "entity", "relations": "relation"}
OF_TRAIN = ("weights", "times")  # of each triple of train, where the graph has them


TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {kind: name for name, kind in TYPES.items()}
BLOCK_BYTES = 1 << 24  # of a tensor that are written, or copied from one device to another, at a time
LONGEST_HEADER = 100_000_000  # as the format has it


def tensor_blocks(tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> Iterator[bytes | memoryview]:
    """A file of named tensors, from any device, and text about them; the same bytes for the same tensors and text.

    On a CPU nothing of a tensor's size is copied; of one on another device a block at a time.
    """
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # so each is aligned
    header: dict[str, Any] = {"__metadata__": {"format": FORMAT, **metadata}}
    place = 0
    for name in names:
        value, start = tensors[name], place
        place += value.numel() * value.element_size()
        header[name] = {"dtype": NAMES[value.dtype], "shape": list(value.shape), "data_offsets": [start, place]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        for part in _parts(tensors[name].detach().contiguous()):
            yield part.cpu().numpy().data


def _parts(tensor: Tensor) -> Iterator[Tensor]:
    """The bytes of a contiguous tensor, uint8 ``[n]``, a block at a time: views."""
    return iter(torch.split(tensor.reshape(-1).view(torch.uint8), BLOCK_BYTES) if tensor.numel() else ())


def tensors_to_bytes(tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> bytes:
    """`tensor_blocks` in one."""
    return b"".join(tensor_blocks(tensors, metadata))


def _header(content: bytes) -> tuple[dict[str, Any], int]:
    """What precedes the tensors of a safetensors file, and where they start."""
    start = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:start]), start


class _Stored(NamedTuple):
    """Type and shape of a tensor in a file, and where its bytes begin."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of an open file by name. One is read when it is asked for, each time again.

    Args:
        file: at its beginning.
        path: what messages call it.

    Attributes:
        metadata: the text about them.
    """

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file, self.path = file, path
        try:
            size = file.seek(0, 2)
            file.seek(0)
            length = int.from_bytes(file.read(8), "little")
            if length > min(size - 8, LONGEST_HEADER):
                raise ValueError("its header is cut off")
            header = json.loads(file.read(length))
            self.metadata: dict[str, str] = dict(header.pop("__metadata__", {}))
            self._stored = _placed(header, 8 + length, size)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise unreadable(path, error) from error
        check_format(self.metadata.get("format"), path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def __getitem__(self, name: str) -> Tensor:
        return self.read(name, "cpu")

    def read(self, name: str, device: torch.device | str) -> Tensor:
        """A tensor of its own on a device."""
        stored = self._stored[name]
        out = on_huge_pages(torch.empty(stored.shape, dtype=stored.dtype, device=device))
        self.fill(name, out)
        return out

    def fits(self, name: str, out: Tensor) -> bool:
        """Can it be read into a tensor as that is?"""
        stored = self._stored[name]
        return out.is_contiguous() and (stored.dtype, stored.shape) == (out.dtype, tuple(out.shape))

    def fill(self, name: str, out: Tensor) -> None:
        """Read a tensor into one that it `fits`, straight into its memory on a CPU."""
        self.file.seek(self._stored[name].start)
        for part in _parts(out.detach()):
            block = part if part.device.type == "cpu" else torch.empty(len(part), dtype=torch.uint8)
            if self.file.readinto(block.numpy()) != len(block):  # type: ignore[attr-defined]
                raise unreadable(self.path, ValueError("it is cut off"))
            if block is not part:
                part.copy_(block)


def _placed(header: dict[str, Any], start: int, size: int) -> dict[str, _Stored]:
    """The tensors of a header: they follow each other from `start` on and fill the file."""
    found, place = {}, start
    for name, about in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape = TYPES[about["dtype"]], tuple(int(number) for number in about["shape"])
        found[name] = _Stored(dtype, shape, place)
        end = place + math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or about["data_offsets"] != [place - start, end - start]:
            raise ValueError(f"tensor {name} is not where it should be")
        place = end
    if place != size:
        raise ValueError("its length is not that of its tensors")
    return found


def copy_of(tensors: Mapping[str, Tensor], name: str, device: torch.device) -> Tensor:
    """One of some tensors as one of its own on a device: read there if they are stored."""
    if isinstance(tensors, StoredTensors):
        return tensors.read(name, device)
    return tensors[name].to(device, copy=True)


def load_module(module: nn.Module, tensors: Mapping[str, Tensor], prefix: str = "") -> None:
    """`load_state_dict` of the tensors with a prefix; stored ones are read straight into the memory of the module's."""
    own, found = module.state_dict(), {}
    for key in (key for key in tensors if key.startswith(prefix)):
        name = key.removeprefix(prefix)
        here = own.get(name)
        if isinstance(tensors, StoredTensors) and here is not None and tensors.fits(key, here):
            tensors.fill(key, here)
            found[name] = here
        else:
            found[name] = tensors[key]
    module.load_state_dict(found)


def tensors_from_bytes(content: bytes, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The inverse of `tensors_to_bytes`; `path` is where the content comes from."""
    try:
        tensors = load_tensors(content)
        header, _ = _header(content)
    except (SafetensorError, ValueError) as error:
        raise unreadable(path, error) from error
    metadata = dict(header.get("__metadata__", {}))
    check_format(metadata.get("format"), path)
    return tensors, metadata


def read_metadata(path: Path) -> dict[str, str]:
    """The text of a file without its tensors."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
    except OSError as error:
        raise cannot_read(path, error) from error
    except SafetensorError as error:
        raise unreadable(path, error) from error
    check_format(metadata.get("format"), path)
    return metadata


def unreadable(path: Path, error: Exception) -> RunError:
    """The one line for a file that is none of tensors."""
    return RunError(f"{path} is damaged ({error}); {RESTORE}")


def graph_to_bytes(graph: KnowledgeGraph) -> bytes:
    """The graph: int32 triples, labels as UTF-8 lines, and what else it has."""
    tensors: dict[str, Tensor] = {split: graph.split(split).to(torch.int32) for split in SPLITS}
    if len(graph.also_known):
        tensors["also_known"] = graph.also_known.to(torch.int32)
    tensors |= {name: value for name in OF_TRAIN if (value := getattr(graph, name)) is not None}
    for key in KINDS:
        vocabulary: Vocabulary = getattr(graph, key)
        tensors[key] = _lines(vocabulary.array)
        if vocabulary.names is not None:
            tensors[f"{key}_names"] = _lines(pc.fill_null(vocabulary.names, ""))
    return tensors_to_bytes(tensors, {"name": graph.name, "source": graph.source})


def _lines(texts: pa.LargeStringArray) -> Tensor:
    """Texts as UTF-8, uint8 ``[bytes]``, with a line feed between them."""
    return torch.frombuffer(bytearray(bytes_of(joined("\n", texts, ""))[:-1]), dtype=torch.uint8)


def _vocabulary(tensors: dict[str, Tensor], key: str, kind: str) -> Vocabulary:
    """The labels of one kind, with their names if there are any."""
    vocabulary = Vocabulary(bytes(tensors[key].numpy()).decode().split("\n"), kind)
    if (names := tensors.get(f"{key}_names")) is None:
        return vocabulary
    return vocabulary.named(vocabulary.array, pa.array(bytes(names.numpy()).decode().split("\n"), LABELS))


def graph_from_bytes(content: bytes, path: Path) -> KnowledgeGraph:
    """The inverse of `graph_to_bytes`; `path` is where the content comes from."""
    tensors, metadata = tensors_from_bytes(content, path)
    try:
        train, valid, test = (tensors[split].to(torch.int64) for split in SPLITS)
        entities, relations = (_vocabulary(tensors, key, kind) for key, kind in KINDS.items())
        more = {name: tensors[name] for name in OF_TRAIN if name in tensors}
        if "also_known" in tensors:
            more["also_known"] = tensors["also_known"].to(torch.int64)
        source = metadata["source"]
        return KnowledgeGraph(metadata["name"], entities, relations, train, valid, test, source=source, **more)
    except (KeyError, UnicodeDecodeError) as error:
        raise RunError(f"{path} is not the graph of a run; {RESTORE}") from error
    except DataError as error:
        raise RunError(f"{path} is damaged ({error}); {RESTORE}") from error
