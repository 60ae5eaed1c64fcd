"""The run folder: what is in it, and one clear line for whatever is missing, damaged or foreign."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import eans
from eans.errors import RunError, UsageError
from eans.graph import KnowledgeGraph
from eans.recipes import load
from eans.runs import RunFolder
from eans.tensor_files import graph_from_bytes, graph_to_bytes, tensors_from_bytes
from helpers_runs import ring_graph

METRICS = ["mr", "mrr", "hits@1", "hits@3", "hits@10"]
SETTINGS: dict[str, Any] = {"dim": 8, "steps": 30, "batch_size": 32, "negatives": 4, "log_every": 10}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    out = tmp_path_factory.mktemp("runs") / "finished"
    eans.train(ring_graph(), "transe", "eans", out=out, valid_every=20, keep="best", checkpoint_every=10, **SETTINGS)
    return out


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run to damage."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_files(finished: Path) -> None:
    expected = "best.safetensors checkpoint.safetensors graph.safetensors log.jsonl"
    expected += " manifest.json metrics.json model.safetensors recipe.toml"
    assert sorted(path.name for path in finished.iterdir()) == [".lock", *expected.split()]
    assert sorted(load_file(finished / "model.safetensors")) == ["entity", "relation"]
    tensors = load_file(finished / "checkpoint.safetensors")
    assert {name.split(".")[0] for name in tensors} == {"model", "optimizer", "sampler", "loss_sums"}
    recipe = load(str(finished / "recipe.toml"))
    assert "auto" not in (finished / "recipe.toml").read_text()
    assert (recipe.model.dim, recipe.train.steps, recipe.sampler.clusters) == (8, 30, 7)


def test_log(finished: Path) -> None:
    records = [json.loads(line) for line in (finished / "log.jsonl").read_text().splitlines()]
    losses = [record for record in records if "loss" in record]
    validations = [record for record in records if "valid" in record]
    assert [record["step"] for record in losses] == [10, 20, 30]
    assert [record["step"] for record in validations] == [20, 30]
    for record in losses:
        names = ("loss", "positive", "negative", "substitution", "lr", "seconds", "triples_per_second")
        assert all(isinstance(record[name], float) for name in names)
    for record in validations:
        assert list(record["valid"]) == ["both", "head", "tail"]
        assert all(list(side) == METRICS for side in record["valid"].values())


def test_metrics(finished: Path) -> None:
    metrics = json.loads((finished / "metrics.json").read_text())
    graph = ring_graph()
    assert list(metrics) == ["valid", "protocol", "test", "training"]
    for split in ("valid", "test"):
        result = metrics[split]
        assert result["triples"] == len(graph.split(split))
        assert all(list(result[side]) == METRICS for side in ("both", "head", "tail"))
        assert set(result["by_relation"]) == {"plus1", "plus2", "plus5"}
        assert all(list(entry) == ["triples", *METRICS] for entry in result["by_relation"].values())
        assert sum(entry["triples"] for entry in result["by_category"].values()) == result["triples"]
    assert metrics["protocol"]["split_sha256"] == dict(graph.sha256)
    assert metrics["training"]["steps"] == 30
    assert metrics["training"]["recipe"] == "default/transe/eans"
    assert metrics["training"]["torch_version"] == torch.__version__


def test_graph_round_trip() -> None:
    labels = [("a b", "r,s", "ü"), ("日本", "[r]", '"q"'), ("ü", "r,s", "\\"), ("\u2028", "\x85", "😀")]
    graph = KnowledgeGraph.from_labels(labels, labels[:1], name="naïve")
    back = graph_from_bytes(graph_to_bytes(graph), Path("graph.safetensors"))
    assert (back.name, back.entities, back.relations) == (graph.name, graph.entities, graph.relations)
    assert back.relations.kind == "relation"
    assert all(torch.equal(back.split(split), graph.split(split)) for split in ("train", "valid", "test"))
    assert (back.weights, back.times, len(back.also_known)) == (None, None, 0)


def test_a_run_keeps_whatever_its_graph_has(tmp_path: Path) -> None:
    plain = ring_graph()
    shown = plain.with_test(plain.ids([("e1", "plus1", "e2")]))  # what was test stays known
    graph = replace(shown, weights=torch.rand(len(plain.train)), times=torch.arange(len(plain.train)))
    run = eans.train(graph, "transe", "uniform", out=tmp_path / "run", dim=4, steps=2, progress=False)
    back = eans.Run.load(run.folder).graph
    assert torch.equal(back.also_known, plain.test)
    assert torch.equal(back.weights, graph.weights)
    assert torch.equal(back.times, graph.times)
    assert back.times.dtype == torch.int64


@pytest.mark.parametrize(
    ("prepare", "kind", "message"),
    [
        (lambda path: path.write_text("a file"), UsageError, "{path} exists already; choose another --out"),
        (
            lambda path: (path.mkdir(), (path / "notes").touch()),
            UsageError,
            "{path} exists already; choose another --out",
        ),
        (
            lambda path: (path.mkdir(), (path / "recipe.toml").touch()),
            UsageError,
            "{path} exists already; choose another --out, or continue it with: eans train --resume {path}",
        ),
        (
            lambda path: path.parent.write_text("a file"),
            RunError,
            "cannot create folder {path}: Not a directory; choose another --out",
        ),
    ],
    ids=["file", "full folder", "run folder", "below a file"],
)
def test_create_raises(prepare: Callable[[Path], Any], kind: type[Exception], message: str, tmp_path: Path) -> None:
    path = tmp_path / "out" / "run"
    if kind is not RunError:
        path.parent.mkdir()
    prepare(path)
    with pytest.raises(kind) as caught:
        eans.train(ring_graph(), "transe", "eans", out=path, **SETTINGS)
    assert str(caught.value) == message.format(path=path)


def test_create_takes_an_empty_folder_and_makes_parents(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "a" / "b" / "c"):
        assert eans.train(ring_graph(), "transe", "uniform", out=path, **SETTINGS).folder == path


def test_kernel_that_refuses() -> None:
    with pytest.raises(RunError, match=r"^cannot create folder /proc/eans: .*choose another --out$"):
        eans.train(ring_graph(), "transe", "eans", out="/proc/eans", **SETTINGS)


def test_a_recipe_that_cannot_be_built_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        eans.train(ring_graph(), "transe", "eans", out=tmp_path / "run", clusters=1000, **SETTINGS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (lambda run: (run / "recipe.toml").unlink(), UsageError, "is not a run folder"),
        (lambda run: (run / "graph.safetensors").unlink(), RunError, "graph.safetensors is missing"),
        (lambda run: (run / "graph.safetensors").write_bytes(b"garbage"), RunError, "graph.safetensors is damaged"),
        (
            lambda run: shutil.copy(run / "model.safetensors", run / "graph.safetensors"),
            RunError,
            "graph.safetensors is not the graph of a run",
        ),
        (lambda run: (run / "model.safetensors").write_bytes(b""), RunError, "model.safetensors is damaged"),
        (lambda run: _edit(run, "dim = 8", "dim = 9"), RunError, "model.safetensors does not fit"),
        (
            lambda run: _edit(run, "dim = 8", "dim = 'x'"),
            RunError,
            "recipe.toml is damaged (recipe key 'model.dim' = 'x'",
        ),
        (lambda run: (run / "recipe.toml").write_text("name ="), RunError, "recipe.toml is damaged (not a TOML recipe"),
        (lambda run: (run / "metrics.json").write_text('{"test": '), RunError, "metrics.json is damaged"),
        (lambda run: (run / "recipe.toml").write_text(""), RunError, "recipe.toml is damaged (no model.init_range)"),
        (
            lambda run: (run / "model.safetensors").unlink(),
            RunError,
            "model.safetensors is missing; delete metrics.json, then",
        ),
        (
            lambda run: [
                (run / name).unlink() for name in ("metrics.json", "model.safetensors", "checkpoint.safetensors")
            ],
            RunError,
            "holds no weights yet; continue it with: eans train --resume",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damaged_run(
    damage: Callable[[Path], Any], kind: type[Exception], message: str, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is noticed without the manifest."""
    monkeypatch.setenv("EANS_VERIFY", "0")
    damage(copy)
    with pytest.raises(kind) as caught:
        eans.Run.load(copy)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def _edit(run: Path, old: str, new: str) -> None:
    text = (run / "recipe.toml").read_text()
    assert old in text
    (run / "recipe.toml").write_text(text.replace(old, new))


@pytest.mark.parametrize(
    "foreign",
    [
        lambda run: shutil.copy(run / "model.safetensors", run / "checkpoint.safetensors"),
        lambda run: _edit(run, "dim = 8", "dim = 9"),
        lambda run: _edit(run, 'name = "eans"', 'name = "uniform"'),
    ],
    ids=["another file", "another width", "another sampler"],
)
def test_foreign_checkpoint(foreign: Callable[[Path], Any], copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EANS_VERIFY", "0")
    (copy / "metrics.json").unlink()
    foreign(copy)
    with pytest.raises(RunError, match=r"checkpoint\.safetensors does not fit its run's recipe and graph"):
        eans.resume(copy)


def test_weights_of_an_unfinished_run(copy: Path, finished: Path) -> None:
    (copy / "metrics.json").unlink()
    (copy / "model.safetensors").unlink()
    run = eans.Run.load(copy)
    assert run.metrics == {}
    file = finished / "checkpoint.safetensors"
    checkpoint, _ = tensors_from_bytes(file.read_bytes(), file)
    assert torch.equal(run.model.entity.detach(), checkpoint["model.entity"])


def test_lock_is_exclusive_and_clears_leftovers(copy: Path) -> None:
    (copy / ".model.safetensors.abc.tmp").touch()
    folder = RunFolder.open(copy)
    with folder.lock():
        assert not list(copy.glob(".*.tmp"))
        with pytest.raises(RunError, match="another process is training in"), RunFolder.open(copy).lock():
            pass
    with folder.lock():
        pass


def test_resume_command_can_be_pasted() -> None:
    assert RunFolder(Path("runs/a")).resume_command == "eans train --resume runs/a"
    assert RunFolder(Path("my runs/a's")).resume_command == """eans train --resume 'my runs/a'"'"'s'"""


def test_torn_log(copy: Path) -> None:
    whole = RunFolder.open(copy).log()
    (copy / "metrics.json").unlink()  # of a run that is complete nothing is added to the log
    with (copy / "log.jsonl").open("a") as log:
        log.write('{"step": 40, "loss": 0.')
    assert RunFolder.open(copy).log() == whole
