"""The manifest of a run folder: one changed bit is noticed, a killed process leaves a folder that is right."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

import eans
from eans import manifest
from eans.cli.train import show_run
from eans.errors import EansWarning, RunError
from eans.inspection.page import facts
from eans.manifest import Manifest
from eans.runs import RunFolder
from eans.tensor_files import tensors_from_bytes, tensors_to_bytes
from helpers_runs import eans as command
from helpers_runs import one_line, ring_graph

SETTINGS: dict[str, Any] = {"dim": 8, "steps": 30, "batch_size": 32, "negatives": 4, "log_every": 10}
FILES = (
    "best.safetensors", "checkpoint.safetensors", "graph.safetensors", "log.jsonl", "metrics.json",
    "model.safetensors", "recipe.toml",
)  # fmt: skip
DELETED = object()
LOADED = ("graph.safetensors", "log.jsonl", "metrics.json", "model.safetensors", "recipe.toml")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "finished"
    eans.train(ring_graph(), "transe", "eans", out=out, valid_every=20, keep="best", checkpoint_every=10, **SETTINGS)
    return out


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def flip(path: Path, byte: int = -3) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1
    path.write_bytes(content)


def test_every_file_is_listed(finished: Path) -> None:
    found = json.loads((finished / "manifest.json").read_text())
    assert found["format"] == "1"
    assert tuple(found["files"]) == FILES
    for name, entry in found["files"].items():
        content = (finished / name).read_bytes()
        assert entry == {"sha256": hashlib.sha256(content).hexdigest(), "length": len(content)}


@pytest.mark.parametrize("name", LOADED)
def test_one_changed_bit_is_noticed(name: str, copy: Path) -> None:
    flip(copy / name)
    with pytest.raises(RunError) as caught:
        eans.Run.load(copy)
    assert str(caught.value).startswith(f"{copy / name} is damaged: its SHA-256 is not that in manifest.json; ")


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "best.safetensors"])
def test_one_changed_bit_of_what_resuming_needs(name: str, copy: Path) -> None:
    (copy / "metrics.json").unlink()
    flip(copy / name)
    with pytest.raises(RunError, match=f"{name} is damaged"):
        eans.resume(copy)


def test_checks_can_be_left_out(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(copy / "model.safetensors")
    monkeypatch.setenv("EANS_VERIFY", "0")
    assert eans.Run.load(copy).metrics


@pytest.mark.parametrize("name", ["metrics.json", "model.safetensors", "log.jsonl"])
def test_the_advice_helps(name: str, copy: Path, finished: Path) -> None:
    flip(copy / name)
    with pytest.raises(RunError) as caught:
        eans.Run.load(copy)
    advice = str(caught.value).partition("; ")[2]
    assert advice.startswith("delete it")
    for file in (name, "metrics.json"):
        if file == name or file in advice:
            (copy / file).unlink(missing_ok=True)
    if "--resume" in advice:
        eans.resume(copy)
        assert (copy / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()
    assert eans.Run.load(copy).metrics["test"] == eans.Run.load(finished).metrics["test"]


@pytest.mark.parametrize("name", ["recipe.toml", "checkpoint.safetensors", "best.safetensors"])
def test_a_missing_file_is_not_taken_for_one_that_never_was(name: str, copy: Path) -> None:
    """Without its checkpoint, a run would begin anew."""
    for file in (name, "metrics.json", "model.safetensors"):
        (copy / file).unlink()
    files = json.loads((copy / "manifest.json").read_text())
    for action in (eans.resume, eans.Run.load):
        if (name, action) != ("best.safetensors", eans.Run.load):
            with pytest.raises(RunError, match=f"{name} is missing; restore it from a copy or train again"):
                action(copy)
    assert json.loads((copy / "manifest.json").read_text()) == files
    if name == "recipe.toml":
        assert one_line(command("verify", copy).stderr).startswith(f"eans: error: {copy}/recipe.toml is missing")


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("metrics.json", "{}", "no training"),
        ("metrics.json", "[]", "no object with keys"),
        ("metrics.json", "3", "no object with keys"),
        ("metrics.json", '{"training": {}}', "no training.steps"),
        ("metrics.json", '{"training": {"steps": 1, "seconds": 1, "device": "cpu"}}', "no protocol"),
        ("log.jsonl", "3\n", "line 1: no object with keys"),
        ("log.jsonl", '{"step": true}\n', "line 1: no step"),
        ("log.jsonl", '{"step": 1, "valid": {"both": {}}}\n', "line 1: no valid.both.mr"),
        ("log.jsonl", 'torn\n{"step": 1, "loss": 1, "seconds": 1}\n', "line 1: no object with keys"),
        ("recipe.toml", "[model]\nname = 'transe'\n", "no model.init_range"),
        (
            "recipe.toml",
            "[model]\nname = 'transex'\n",
            f"unknown model.name 'transex'; did you mean 'transe'? (one of {', '.join(eans.MODELS)})",
        ),
    ],
)
def test_edited_by_hand(name: str, content: str, place: str, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Valid JSON without what is read from it, where nothing else notices."""
    (copy / name).write_text(content)
    monkeypatch.setenv("EANS_VERIFY", "0")
    for action in (eans.Run.load, eans.report, eans.resume):
        with pytest.raises(RunError) as caught:
            action(copy)
        assert str(caught.value).startswith(f"{copy / name} is damaged ({place})")


def test_metrics_without_any_one_value(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Deleted or something else: it is noticed on load, or nothing that shows a run needs it."""
    monkeypatch.setenv("EANS_VERIFY", "0")
    report = eans.report(copy)
    good = (copy / "metrics.json").read_text()
    noticed: list[tuple[str, str]] = []
    for place in places(json.loads(good)):
        for value in (None, "text", [], {}, DELETED):
            metrics = json.loads(good)
            holder = metrics
            for key in place[:-1]:
                holder = holder[key]
            if value is DELETED:
                del holder[place[-1]]
            else:
                holder[place[-1]] = value
            (copy / "metrics.json").write_text(json.dumps(metrics))
            try:
                run = eans.Run.load(copy)
            except RunError as error:
                noticed.append((str(error), f"{copy / 'metrics.json'} is damaged (no {place[0]}"))
                continue
            show_run(run)
            training = report["training"] | run.metrics["training"]
            facts(report | {"training": training, "protocol": run.metrics["protocol"]})
    assert len(noticed) > 100
    assert [message for message, beginning in noticed if not message.startswith(beginning)] == []
    assert "Hits@10" in capsys.readouterr().out


def places(found: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Keys and indices that lead to every value of JSON, but for those of single relations."""
    inside = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for key, value in inside:
        if "by_relation" not in place:
            yield (*place, key)
            yield from places(value, (*place, key))


@pytest.mark.parametrize("key", ["trainer", "progress", "model"])
@pytest.mark.parametrize("value", ["", "[]", "3"])
def test_metadata_edited_by_hand(key: str, value: str, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("metrics.json", "model.safetensors"):
        (copy / name).unlink()
    file = copy / "checkpoint.safetensors"
    tensors, metadata = tensors_from_bytes(file.read_bytes(), file)
    file.write_bytes(tensors_to_bytes(tensors, metadata | {key: value}))
    monkeypatch.setenv("EANS_VERIFY", "0")
    with pytest.raises(RunError, match=r"checkpoint\.safetensors does not fit its run's recipe and graph"):
        eans.resume(copy)
    if key != "model":
        with pytest.raises(RunError, match=r"checkpoint\.safetensors does not fit its run's recipe and graph"):
            eans.report(copy)


def test_a_graph_edited_by_hand(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two entities with one name; a name of a model that does not exist."""
    file = copy / "graph.safetensors"
    content = file.read_bytes()
    assert content.count(b"e11\n") == 1
    file.write_bytes(content.replace(b"e11\n", b"e12\n"))
    monkeypatch.setenv("EANS_VERIFY", "0")
    with pytest.raises(RunError, match=r"graph\.safetensors is damaged \(entity 'e12' is listed twice"):
        eans.Run.load(copy)
    file.write_bytes(content)
    recipe = copy / "recipe.toml"
    recipe.write_text(recipe.read_text().replace('"transe"', '"transx"'))
    with pytest.raises(RunError, match=r"recipe\.toml is damaged \(unknown model\.name 'transx'.*\); restore it"):
        eans.Run.load(copy)


def test_verify(copy: Path) -> None:
    result = command("verify", copy)
    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        *(f"{name}: intact" for name in FILES),
        f"all 7 files of {copy} are intact",
    ]
    flip(copy / "best.safetensors")
    (copy / "checkpoint.safetensors").unlink()
    result = command("verify", copy)
    assert result.returncode == 1
    assert one_line(result.stderr) == f"eans: error: 2 of 7 files of {copy} are damaged or missing"
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"best.safetensors: {copy}/best.safetensors is damaged: its SHA-256")
    assert lines[1].startswith(f"checkpoint.safetensors: {copy}/checkpoint.safetensors is missing; restore it")


def test_a_folder_without_a_manifest_opens_with_one_warning(copy: Path) -> None:
    (copy / "manifest.json").unlink()
    with pytest.warns(EansWarning, match="has no manifest.json") as caught:
        run = eans.Run.load(copy)
    assert len(caught) == 1
    assert run.metrics
    result = command("predict", copy, "--head", "e1", "--relation", "plus1")
    assert result.returncode == 0
    assert one_line(result.stderr).startswith(f"eans: warning: {copy} has no manifest.json")
    assert one_line(command("verify", copy).stderr).endswith("there is nothing to check by")


def test_a_resumed_run_of_an_older_version_gets_a_manifest(copy: Path) -> None:
    for name in ("manifest.json", "metrics.json", "model.safetensors"):
        (copy / name).unlink()
    with pytest.warns(EansWarning, match="has no manifest.json"):
        eans.resume(copy)
    assert set(RunFolder.open(copy).manifest.check().values()) == {""}
    assert tuple(sorted(RunFolder.open(copy).manifest.entries)) == FILES


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "manifest.json is damaged; restore it, or delete it"),
        ("[]", "manifest.json is damaged"),
        ('{"format": "1"}', "manifest.json is damaged"),
        ('{"format": "1", "files": {"model.safetensors": 3}}', "manifest.json is damaged"),
        ('{"format": "1", "files": {}, "sha256": ""}', "manifest.json is damaged"),
        ('{"format": "2", "files": {}}', "manifest.json has the format 2, and this version of eans reads 1"),
    ],
)
def test_bad_manifests(content: str, message: str, copy: Path) -> None:
    (copy / "manifest.json").write_text(content)
    with pytest.raises(RunError, match=message) as caught:
        eans.Run.load(copy)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("pattern", [rb'"sha256": "(.)', rb'"length": (\d)', rb'"(.)odel\.safetensors'])
def test_damage_to_the_manifest_is_not_taken_for_damage_to_a_file(pattern: bytes, copy: Path) -> None:
    path = copy / "manifest.json"
    found = re.search(pattern, path.read_bytes())
    assert found is not None
    flip(path, found.start(1))
    with pytest.raises(RunError, match=r"manifest\.json is damaged; restore it, or delete it"):
        eans.Run.load(copy)
    assert one_line(command("verify", copy).stderr).startswith(f"eans: error: {path} is damaged")


@pytest.mark.parametrize("name", ["model.safetensors", "graph.safetensors"])
def test_unknown_formats_are_errors(name: str, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EANS_VERIFY", "0")
    content = (copy / name).read_bytes()
    assert content.count(b'"format":"1"') == 1
    (copy / name).write_bytes(content.replace(b'"format":"1"', b'"format":"7"'))
    with pytest.raises(RunError, match=f"{name} has the format 7, and this version of eans reads 1"):
        eans.Run.load(copy)


@pytest.mark.parametrize(
    ("model", "old", "new"),
    [("transe", 'name = "transe"', 'name = "distmult"'), ("distmult", "bounded = false", "bounded = true")],
)
def test_another_model_of_the_same_shapes(
    model: str, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    options = {"bounded": False} if model == "distmult" else {}
    eans.train(ring_graph(), model, "eans", out=run, **options, **SETTINGS)
    text = (run / "recipe.toml").read_text()
    assert text.count(old) == 1
    (run / "recipe.toml").write_text(text.replace(old, new))
    with pytest.raises(RunError, match=r"recipe\.toml is damaged"):
        eans.Run.load(run)
    monkeypatch.setenv("EANS_VERIFY", "0")
    with pytest.raises(RunError, match=r"model\.safetensors does not fit its run's recipe and graph"):
        eans.Run.load(run)


def test_another_graph_of_the_same_sizes(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    triples = [tuple(f"other {part}" for part in line.split()) for line in ring_graph().text("train")]
    other = eans.KnowledgeGraph.from_labels(triples)  # type: ignore[arg-type]
    eans.train(other, "transe", "eans", out=tmp_path / "other", **SETTINGS)
    shutil.copy(tmp_path / "other" / "graph.safetensors", copy)
    monkeypatch.setenv("EANS_VERIFY", "0")
    with pytest.raises(RunError, match=r"model\.safetensors does not fit its run's recipe and graph"):
        eans.Run.load(copy)


@pytest.mark.parametrize("writes", range(1, 4))
def test_killed_while_a_file_is_replaced(writes: int, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first, second and third of the three steps; the file is there before, and then is not."""
    for there in (True, False):
        folder = RunFolder.open(copy)
        if not there:
            (copy / "new").unlink()
            files = json.loads((copy / "manifest.json").read_text())
            del files["files"]["new"], files["sha256"]
            (copy / "manifest.json").write_text(json.dumps(files))
        else:
            folder.manifest.write(copy / "new", b"old")
        _fail_after(writes, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            RunFolder.open(copy).manifest.write(copy / "new", b"new")
        monkeypatch.undo()
        fresh = RunFolder.open(copy).manifest
        assert set(fresh.check().values()) == {""}
        if writes > 1 or there:
            assert fresh.read(copy / "new") == (b"new" if writes > 1 else b"old")
        (copy / "new").write_bytes(b"neither")
        with pytest.raises(RunError, match="new is damaged"):
            fresh.read(copy / "new")


def _fail_after(writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    real_write, real_file = manifest.atomic_write, manifest.atomic_file

    def count(path: Path) -> None:
        done.append(path)
        if len(done) == writes:
            raise KeyboardInterrupt

    def write(path: Path, content: bytes) -> None:
        real_write(path, content)
        count(path)

    @contextmanager
    def file(path: Path) -> Iterator[BinaryIO]:
        with real_file(path) as opened:
            yield opened
        count(path)

    monkeypatch.setattr(manifest, "atomic_write", write)
    monkeypatch.setattr(manifest, "atomic_file", file)


def test_a_reader_beside_a_run_that_goes_on(copy: Path) -> None:
    """Its manifest may be older than the file that it reads."""
    reader = RunFolder.open(copy).manifest
    assert reader.entries
    writer: Manifest = RunFolder.open(copy).manifest
    writer.write(copy / "best.safetensors", b"newer")
    assert reader.read(copy / "best.safetensors") == b"newer"


def test_the_log_may_grow_until_the_run_is_complete(copy: Path) -> None:
    with (copy / "log.jsonl").open("a") as log:
        log.write('{"step": 40, "loss": 0.5, "seconds": 1.0}\n')
    with pytest.raises(RunError, match=r"log\.jsonl is damaged"):
        RunFolder.open(copy).log()
    (copy / "metrics.json").unlink()
    assert RunFolder.open(copy).log()[-1]["step"] == 40
    flip(copy / "log.jsonl", 5)
    with pytest.raises(RunError, match=r"log\.jsonl is damaged"):
        RunFolder.open(copy).log()
