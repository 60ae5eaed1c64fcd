"""The Python interface, as a user writes it."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import eans
from eans.errors import Interrupted, UsageError
from helpers_runs import environment, ring_graph, write_graph

SMALL: dict[str, Any] = {"dim": 8, "steps": 20, "batch_size": 32, "negatives": 4}


def test_several_processes_are_for_the_command_line(graph, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(eans.UsageError, match="several are for: torchrun"):
        eans.train(graph, "transe", "uniform")
    with pytest.raises(eans.UsageError, match="several are for: torchrun"):
        eans.resume("runs/none")


def test_public_names() -> None:
    assert len(eans.__all__) == len(set(eans.__all__))
    assert all(getattr(eans, name) is not None for name in eans.__all__)
    assert dir(eans) == sorted(eans.__all__)
    documented = [getattr(eans, name) for name in eans.__all__ if callable(getattr(eans, name))]
    assert all(thing.__doc__ for thing in documented)
    with pytest.raises(AttributeError, match="module 'eans' has no attribute 'tran'"):
        eans.tran  # noqa: B018
    assert (Path(eans.__file__).parent / "py.typed").is_file()


def test_import_is_light() -> None:
    program = "import sys, eans; from eans import cli; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"


def test_adagrad_learns() -> None:
    settings = {"dim": 16, "steps": 300, "batch_size": 64, "negatives": 8, "seed": 3}
    run = eans.train(ring_graph(), model="rotate", sampler="eans", optimizer="adagrad", lr=0.3, **settings)
    assert run.recipe.train.optimizer == "adagrad"
    assert run.metrics["test"]["both"]["mrr"] > 0.7


@pytest.mark.parametrize("out", [None, "run"])
def test_training_may_leave_the_test_triples_alone(out: str | None, tmp_path: Path) -> None:
    folder = tmp_path / out if out else None
    run = eans.train(ring_graph(), "transe", "uniform", out=folder, test=False, **SMALL)
    assert set(run.metrics) == {"valid", "protocol", "training"}
    assert (
        run.evaluate("test")["test"]["both"]
        == eans.train(ring_graph(), "transe", "uniform", **SMALL).metrics["test"]["both"]
    )


def test_readme_example(tmp_path: Path) -> None:
    kg = eans.load(write_graph(ring_graph(), tmp_path / "ring"))
    run = eans.train(kg, model="rotate", sampler="eans", dim=16, steps=300, lr=0.02, batch_size=64, negatives=8, seed=3)
    assert run.recipe.name == "default/rotate/eans"
    assert (run.recipe.model.dim, run.recipe.train.seed, run.recipe.sampler.name) == (16, 3, "eans")
    assert run.metrics["test"]["both"]["mrr"] > 0.3
    assert run.folder is None
    assert [record["step"] for record in run.history if "loss" in record] == [100, 200, 300]
    assert [record["step"] for record in run.history if "valid" in record] == [100, 200, 300]
    assert repr(run).startswith("Run('default/rotate/eans' on ring, test MRR 0.")
    predictions = run.predict(head="e7", relation="plus5", k=3)
    assert len(predictions) == 3
    assert predictions[0].score >= predictions[1].score >= predictions[2].score
    assert run.evaluate("test")["test"] == run.metrics["test"]


def test_bundled_graph_by_name() -> None:
    names = [dataset.name for dataset in eans.datasets() if dataset.bundled]
    run = eans.train(eans.load(names[0]), model="transe", sampler="uniform", **SMALL)
    assert run.recipe.name == f"{names[0]}/transe/uniform"


def test_docstring_example_name() -> None:
    (name,) = re.findall(r'eans\.load\("([^"]+)"\)', eans.__doc__ or "")
    assert eans.load(name).name == name


def test_in_memory_and_in_a_folder_are_the_same(tmp_path: Path) -> None:
    settings = SMALL | {"valid_every": 5, "keep": "best", "checkpoint_every": 3}
    memory = eans.train(ring_graph(), "transe", "eans+adv", **settings)
    folder = eans.train(ring_graph(), "transe", "eans+adv", out=tmp_path / "run", **settings)
    loaded = eans.Run.load(tmp_path / "run")
    assert folder.folder == loaded.folder == tmp_path / "run"
    for run in (folder, loaded):
        assert torch.equal(run.model.entity, memory.model.entity)
        assert run.metrics["test"] == memory.metrics["test"]
        assert run.recipe == memory.recipe
        assert [record["step"] for record in run.history] == [record["step"] for record in memory.history]
        assert run.predict(head="e1", relation="plus1") == memory.predict(head="e1", relation="plus1")
    again = eans.resume(tmp_path / "run")
    assert again.metrics == folder.metrics


@pytest.mark.parametrize(
    ("arguments", "target"),
    [
        ({"head": "e1", "relation": "plus1"}, "tail"),
        ({"relation": "plus1", "tail": "e1"}, "head"),
        ({"head": "e1", "tail": "e2"}, "relation"),
    ],
)
def test_predict(arguments: dict[str, str], target: str) -> None:
    run = eans.train(ring_graph(), "transe", "uniform", **SMALL)
    filtered, marked = run.predict(**arguments, k=100), run.predict(**arguments, k=100, known="mark")
    assert filtered.target == marked.target == target
    assert len(marked) == (3 if target == "relation" else 60)
    assert [row for row in marked if not row.known] == list(filtered)
    assert any(row.known for row in marked)
    assert list(marked.to_dict()) == ["head", "relation", "tail", "score", "known"]


def test_a_model_refuses_graphs_whose_ids_mean_something_else(tmp_path: Path) -> None:
    graph = ring_graph()
    trained = eans.train(graph, "transe", "uniform", out=tmp_path / "run", **SMALL)
    labels = [tuple(line.rstrip("\n").split("\t")) for line in graph.text("train")]
    splits = {"train": graph.train, "valid": graph.valid, "test": graph.test}
    renamed = eans.Vocabulary([f"other {label}" for label in graph.entities])
    relations = eans.Vocabulary(list(graph.relations)[::-1], "relation")
    others = [
        eans.KnowledgeGraph("renamed", renamed, graph.relations, **splits),
        eans.KnowledgeGraph("relations in another order", graph.entities, relations, **splits),
        eans.KnowledgeGraph.from_labels(labels[::-1], test=labels[:9], name="in another order"),
    ]
    for run in (trained, eans.Run.load(tmp_path / "run")):
        for other in others:
            for call in (eans.evaluate, eans.rank, partial(eans.predict, head="e1", relation="plus1")):
                with pytest.raises(UsageError, match=f"built for other entities .* than those of graph '{other.name}'"):
                    call(run.model, other)
        same = eans.KnowledgeGraph("same", graph.entities, graph.relations, **splits)
        assert eans.evaluate(run.model, same)["test"] == trained.metrics["test"]


def test_graph_with_train_only(tmp_path: Path) -> None:
    graph = eans.KnowledgeGraph.from_labels([("a", "r", "b"), ("b", "r", "c")], name="bare")
    run = eans.train(graph, model="distmult", out=tmp_path / "run", **SMALL)
    assert set(run.metrics) == {"protocol", "training"}
    assert repr(run) == "Run('default/distmult/adv' on bare)"
    assert {row.tail for row in run.predict(head="a", relation="r")} <= {"a", "c"}
    assert eans.Run.load(tmp_path / "run").metrics == run.metrics


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dims": 3}, "unknown setting 'dims'; did you mean 'dim'?"),
        ({"train.step": 3}, "unknown setting 'train.step'; did you mean 'train.steps'?"),
        ({"name": "x"}, "unknown setting 'name'"),
        ({"model": "rotat"}, "unknown model 'rotat' in a recipe; did you mean 'rotate'?"),
        ({"sampler": "eanss"}, "did you mean 'eans'?"),
        ({"steps": "many"}, "recipe key 'train.steps' = 'many'"),
        ({"steps": 10.0}, "recipe key 'train.steps' = 10.0"),
        ({"recipe": "default", "model": "rotate"}, "give either a recipe, or a model and a sampler"),
        ({"recipe": "defalt"}, "unknown recipe 'defalt'; did you mean 'default'?"),
        ({"device": "gpu"}, "unknown device 'gpu' (auto, cpu or cuda)"),
        ({"device": "meta"}, "unknown device 'meta' (auto, cpu or cuda)"),
        ({"clusters": 61}, "the graph has 60 entities; choose fewer"),
    ],
)
def test_wrong_settings(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        eans.train(ring_graph(), **arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_mistakes_in_python_are_one_line_too() -> None:
    with pytest.raises(UsageError, match=r"'wordnet-core' is not a graph; make one with eans\.load"):
        eans.train("wordnet-core", "transe")  # type: ignore[arg-type]
    for triple in (("a", "b"), "abc", 1, None):
        with pytest.raises(UsageError, match=r"train, row 0: .* three labels, head, relation and tail"):
            eans.KnowledgeGraph.from_labels([triple])  # type: ignore[list-item]
    run = eans.train(ring_graph(), "transe", "uniform", dim=4, steps=2)
    with pytest.raises(UsageError, match="unknown ties 'optimstic'; did you mean 'optimistic'"):
        run.evaluate("test", "optimstic")  # type: ignore[arg-type]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="PyTorch sees no CUDA GPU; use --device cpu"):
        eans.train(ring_graph(), device="cuda")


def test_full_and_short_keys_agree() -> None:
    short = eans.train(ring_graph(), recipe="default/transe/eans", **SMALL)
    full = {"model.dim": 8, "train.steps": 20, "train.batch_size": 32, "sampler.negatives": 4}
    assert eans.train(ring_graph(), recipe="default/transe/eans", **full).recipe == short.recipe


def test_listener_and_stop(tmp_path: Path) -> None:
    seen: dict[str, list[Any]] = {"start": [], "log": [], "tick": [], "ranking": []}
    listener = eans.Listener(
        start=lambda recipe, graph, trainer: seen["start"].append((recipe.name, graph.name, trainer.completed)),
        log=seen["log"].append,
        tick=seen["tick"].append,
        ranking=lambda *place: seen["ranking"].append(place),
        stop=lambda: seen["tick"][-1] == 7,
    )
    with pytest.raises(Interrupted):
        eans.train(ring_graph(), "transe", "eans", out=tmp_path / "run", listener=listener, **SMALL)
    assert seen["tick"] == [1, 2, 3, 4, 5, 6, 7]
    eans.resume(tmp_path / "run", listener=listener)
    assert seen["start"] == [("default/transe/eans", "ring", 0), ("default/transe/eans", "ring", 7)]
    assert seen["tick"] == list(range(1, 21))
    assert [record["step"] for record in seen["log"]] == [20]
    assert {split for split, _, _ in seen["ranking"]} == {"valid", "test"}


def test_the_resolved_recipe_says_where_the_graph_is(tmp_path: Path) -> None:
    folder = write_graph(ring_graph(), tmp_path / "graphs" / "ring")
    run = eans.train(eans.load(folder), "transe", "uniform", out=tmp_path / "run", **SMALL)
    assert run.recipe.data.name == str(folder)
    again = eans.train(eans.load(run.recipe.data.name), recipe=str(tmp_path / "run" / "recipe.toml"))
    assert again.metrics["test"] == run.metrics["test"]
    assert eans.Run.load(tmp_path / "run").graph.source == str(folder)


def test_a_new_model_and_sampler_need_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(eans.MODELS["transe"]):  # type: ignore[misc]
        """TransE by another name."""

    class Lazy(eans.SAMPLERS["uniform"]):  # type: ignore[misc]
        """Uniform by another name."""

    monkeypatch.setitem(eans.MODELS, "mine", Mine)
    monkeypatch.setitem(eans.SAMPLERS, "lazy", Lazy)
    run = eans.train(ring_graph(), "mine", "lazy", **SMALL)
    assert isinstance(run.model, Mine)
    assert run.recipe.sampler.name == "lazy"


def test_stop_while_ranking_keeps_the_training(tmp_path: Path) -> None:
    ranked: list[int] = []
    listener = eans.Listener(ranking=lambda _split, done, _total: ranked.append(done), stop=lambda: bool(ranked))
    with pytest.raises(Interrupted, match="while ranking valid; training is complete"):
        eans.train(ring_graph(), "transe", "uniform", out=tmp_path / "run", listener=listener, **SMALL)
    assert "test" in eans.resume(tmp_path / "run").metrics
