"""Named tensors as safetensors files, and the graph among them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from eans.errors import DataError, RunError
from eans.files import cannot_read
from eans.graph import SPLITS, KnowledgeGraph, Vocabulary
from eans.manifest import FORMAT, RESTORE, check_format
from eans.vocabulary import LABELS, bytes_of, joined

KINDS = {"entities": "entity", "relations": "relation"}
OF_TRAIN = ("weights", "times")  # of each triple of train, where the graph has them


def tensors_to_bytes(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    """Named tensors, from any device, and text about them; the same bytes for the same tensors and text."""
    local = {name: value.detach().to("cpu").contiguous() for name, value in tensors.items()}
    content = save_tensors(local)
    # With metadata of its own safetensors would write them in another order each time.
    header, start = _header(content)
    text = json.dumps({"__metadata__": {"format": FORMAT, **metadata}, **header}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors are aligned
    return b"".join((len(text).to_bytes(8, "little"), text, memoryview(content)[start:]))


def _header(content: bytes) -> tuple[dict[str, Any], int]:
    """What precedes the tensors of a safetensors file, and where they start."""
    start = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:start]), start


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
