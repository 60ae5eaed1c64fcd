"""Exported embeddings, read back by hand: they are the model's, under their labels."""

from __future__ import annotations

import math
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import eans
from eans import export as module
from eans.errors import RunError, UsageError
from eans.export import export
from eans.graph import KnowledgeGraph
from eans.models import MODELS, Model
from helpers_runs import eans as command
from helpers_runs import one_line, ring_graph

LABELS = ["a b", "50%", "%20", "x\u00a0y", "plain", "東京 2"]
GRAPH = KnowledgeGraph.from_labels([(LABELS[i], f"r {i % 2}", LABELS[i - 1]) for i in range(6)])
PARTS = {
    "transe": (["vector"], ["vector"]),
    "transd": (["vector", "projection"], ["vector", "projection"]),
    "transh": (["vector"], ["vector", "normal"]),
    "transr": (["vector"], ["vector", "matrix"]),
    "distmult": (["vector"], ["vector"]),
    "complex": (["re", "im"], ["re", "im"]),
    "rotate": (["re", "im"], ["angle"]),
    "rescal": (["vector"], ["matrix"]),
    "simple": (["head", "tail"], ["vector", "inverse"]),
    "conve": (["vector", "bias"], ["vector"]),
}
models = pytest.mark.parametrize("name", MODELS)


def make(name: str, reciprocal: bool = False) -> Model:
    generator = torch.Generator().manual_seed(5)
    reciprocal = reciprocal or MODELS[name].tails_only
    return MODELS[name](GRAPH.num_entities, GRAPH.num_relations, 3, 1.0, generator, reciprocal=reciprocal)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NUMBERS", 14)


def tables(model: Model) -> dict[str, tuple[list[str], np.ndarray]]:
    """Labels and rows by table, straight from the parameters."""
    relation = model.relation.detach().numpy()
    if type(model).__name__ == "RotatE":
        relation = relation * np.float32(math.pi / model.init_range)
    size, names = GRAPH.num_relations, list(GRAPH.relations)
    found = {"entities": (list(GRAPH.entities), model.entity.detach().numpy()), "relations": (names, relation[:size])}
    if model.reciprocal:
        found["inverse_relations"] = names, relation[size : 2 * size]
    return found | {"substitution": (["substitution"], relation[-1:])}


@models
@pytest.mark.parametrize("reciprocal", [False, True])
def test_parquet(name: str, reciprocal: bool, tmp_path: Path) -> None:
    model = make(name, reciprocal)
    expected = tables(model)
    assert [path.name for path in export(model, GRAPH, tmp_path, "parquet", True)] == [f"{t}.parquet" for t in expected]
    for table, (labels, rows) in expected.items():
        read = pq.read_table(tmp_path / f"{table}.parquet")
        assert read.column_names == ["label", *PARTS[name][table != "entities"]]
        assert read.column("label").to_pylist() == labels
        parts = [np.array(read.column(part).to_pylist(), np.float32) for part in read.column_names[1:]]
        assert np.array_equal(np.concatenate(parts, 1), rows)


@models
def test_numpy(name: str, tmp_path: Path) -> None:
    model = make(name, True)
    export(model, GRAPH, tmp_path / "new", "numpy", True)
    arrays = np.load(tmp_path / "new" / "embeddings.npz", allow_pickle=False)
    expected = tables(model)
    for table, (labels, rows) in expected.items():
        parts = [arrays[f"{table}_{part}"] for part in PARTS[name][table != "entities"]]
        assert np.array_equal(np.concatenate(parts, 1), rows)
        assert parts[0].dtype == np.float32
        if table in ("entities", "relations"):
            assert (tmp_path / "new" / f"{table}.txt").read_text("utf-8").split("\n") == [*labels, ""]
    assert len(arrays.files) == sum(len(PARTS[name][table != "entities"]) for table in expected)


@models
def test_word2vec(name: str, tmp_path: Path) -> None:
    """A label is one word, and `unquote` gives it back."""
    model = make(name)
    for path, (labels, rows) in zip(
        export(model, GRAPH, tmp_path, "word2vec", True), tables(model).values(), strict=True
    ):
        first, *lines = path.read_text("utf-8").splitlines()
        assert first == f"{len(rows)} {rows.shape[1]}"
        words = [line.split() for line in lines]
        assert [unquote(word[0]) for word in words] == labels
        assert np.array_equal(np.array([word[1:] for word in words], np.float32), rows)


def test_the_rotation_is_that_of_the_score(tmp_path: Path) -> None:
    model = make("rotate")
    export(model, GRAPH, tmp_path, "numpy")
    arrays = np.load(tmp_path / "embeddings.npz")
    assert "substitution_angle" not in arrays
    entities = arrays["entities_re"] + 1j * arrays["entities_im"]
    turned = entities[0] * np.exp(1j * arrays["relations_angle"][1])
    score = -np.abs(turned - entities[2]).sum()
    assert model.score(torch.tensor([[0, 1, 2]])).item() == pytest.approx(score, rel=1e-5)


def test_the_index_mix_up_of_transd_is_exported_as_it_is_used(tmp_path: Path) -> None:
    model = MODELS["transd"](6, 2, 3, projection="entity-table")
    export(model, GRAPH, tmp_path, "numpy")
    arrays = np.load(tmp_path / "embeddings.npz")
    assert np.array_equal(arrays["relations_projection"], arrays["entities_projection"][:2])


def test_a_model_with_biases(tmp_path: Path) -> None:
    class Biased(MODELS["distmult"]):  # type: ignore[misc,name-defined]
        entity_bias = True

    export(Biased(6, 2, 3), GRAPH, tmp_path, "numpy")
    arrays = np.load(tmp_path / "embeddings.npz")
    assert (arrays["entities_vector"].shape, arrays["entities_bias"].shape) == ((6, 3), (6, 1))


def test_mistakes(tmp_path: Path) -> None:
    model = make("transe")
    with pytest.raises(UsageError, match=r"unknown format 'csv' .*\(one of parquet, numpy, word2vec\)"):
        export(model, GRAPH, tmp_path, "csv")  # type: ignore[arg-type]
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot create folder"):
        export(model, GRAPH, tmp_path / "file")


def test_the_command(tmp_path: Path) -> None:
    options = {"dim": 4, "steps": 2, "batch_size": 16, "negatives": 2, "out": tmp_path / "run"}
    run = eans.train(ring_graph(12), "transe", "eans", **options)  # type: ignore[arg-type]
    done = command("export", tmp_path / "run", "--format", "numpy", "--out", tmp_path / "numpy")
    names = ("embeddings.npz", "entities.txt", "relations.txt")
    assert done.stdout.splitlines() == [str(tmp_path / "numpy" / name) for name in names]
    arrays = np.load(tmp_path / "numpy" / "embeddings.npz")
    assert np.array_equal(arrays["entities_vector"], run.model.entity.detach().numpy())
    assert arrays["substitution_vector"].shape == (1, 4)
    paths = run.export(tmp_path / "parquet")
    assert [path.name for path in paths] == ["entities.parquet", "relations.parquet", "substitution.parquet"]
    done = command("export", tmp_path / "run", "--format", "csv", "--out", tmp_path / "csv")
    assert done.returncode == 2
    assert "--format 'csv' is not one of parquet, numpy, word2vec" in one_line(done.stderr)
    assert not (tmp_path / "csv").exists()
