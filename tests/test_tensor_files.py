"""Tensors as files: what is written is what the safetensors library reads, nothing is copied, damage is one line."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from eans import tensor_files
from eans.errors import RunError
from eans.tensor_files import TYPES, StoredTensors, copy_of, load_module, tensor_blocks, tensors_to_bytes
from helpers_graphs import Meter


def some_tensors() -> dict[str, Tensor]:
    """One of each type, a scalar, an empty one and one that lies across."""
    generator = torch.Generator().manual_seed(0)
    found = {f"of.{name}": torch.randint(0, 2, (3, 5), generator=generator).to(dtype) for name, dtype in TYPES.items()}
    across = torch.randn(4, 6, generator=generator).T
    return {**found, "scalar": torch.tensor(7), "empty": torch.empty(0, 3), "across": across, "long": torch.randn(1000)}


def stored(tensors: dict[str, Tensor], **metadata: str) -> StoredTensors:
    return StoredTensors(io.BytesIO(tensors_to_bytes(tensors, metadata)), Path("some.safetensors"))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_files, "BLOCK_BYTES", 1024)


def test_the_library_reads_what_is_written(tmp_path: Path) -> None:
    tensors = some_tensors()
    file = tmp_path / "some.safetensors"
    file.write_bytes(tensors_to_bytes(tensors, {"about": "nothing"}))
    found = load_file(file)
    assert found.keys() == tensors.keys()
    for name, value in tensors.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)


def test_the_same_tensors_are_the_same_bytes() -> None:
    tensors = some_tensors()
    other = dict(reversed(tensors.items()))
    assert tensors_to_bytes(tensors, {"a": "b"}) == tensors_to_bytes(other, {"a": "b"})


def test_tensors_come_back() -> None:
    tensors = some_tensors()
    found = stored(tensors, about="nothing")
    assert found.metadata["about"] == "nothing"
    assert set(found) == set(tensors)
    for name, value in tensors.items():
        read, copy = found[name], copy_of(found, name, torch.device("cpu"))
        assert (read.dtype, read.shape) == (value.dtype, value.shape)
        assert torch.equal(read, value)
        assert torch.equal(copy, value)
        assert copy.data_ptr() != read.data_ptr() or not read.numel()


def test_a_module_is_loaded_in_place() -> None:
    first, second = nn.Linear(300, 70), nn.Linear(300, 70)
    places = [value.data_ptr() for value in second.parameters()]
    file = stored({f"model.{name}": value for name, value in first.state_dict().items()} | {"else": torch.ones(3)})
    with Meter() as meter:
        load_module(second, file, "model.")
    assert meter.peak <= 1024
    assert [value.data_ptr() for value in second.parameters()] == places
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name])


@pytest.mark.parametrize(
    "given", [{"weight": torch.zeros(2, 3)}, {"weight": torch.zeros(3, 3), "bias": torch.zeros(2)}, {}], ids=str
)
def test_a_module_with_other_shapes_or_names_is_refused(given: dict[str, Tensor]) -> None:
    with pytest.raises(RuntimeError, match="Linear"):
        load_module(nn.Linear(3, 2), stored(given))


def test_writing_copies_nothing() -> None:
    tensors = {"a": torch.randn(64, 1000), "b": torch.randn(1000)}
    with Meter() as meter:
        for block in tensor_blocks(tensors, {}):
            assert len(block) <= 1024
    assert meter.peak == 0


def rewritten(change: str) -> bytes:
    """A file whose header says something else."""
    content = tensors_to_bytes({"a": torch.zeros(2, 3), "b": torch.zeros(4)}, {})
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    if change == "type":
        header["a"]["dtype"] = "F64"
    elif change == "unknown type":
        header["a"]["dtype"] = "X1"
    elif change == "shape":
        header["a"]["shape"] = [3, 3]
    elif change == "gap":
        header["b"]["data_offsets"] = [28, 44]
    elif change == "no header":
        header = []
    text = json.dumps(header).encode()
    end = content[start:-1] if change == "cut off" else content[start:]
    return len(text).to_bytes(8, "little") + text + end


@pytest.mark.parametrize("change", ["type", "unknown type", "shape", "gap", "no header", "cut off"])
def test_damage_is_one_line(change: str) -> None:
    with pytest.raises(RunError, match=r"some\.safetensors is damaged") as caught:
        StoredTensors(io.BytesIO(rewritten(change)), Path("some.safetensors"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"1234", (1 << 40).to_bytes(8, "little"), (2).to_bytes(8, "little") + b"{"])
def test_what_is_no_file_of_tensors(content: bytes) -> None:
    with pytest.raises(RunError, match=r"some\.safetensors"):
        StoredTensors(io.BytesIO(content), Path("some.safetensors"))
