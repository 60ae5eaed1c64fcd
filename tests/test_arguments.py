"""Functions of the package called with what they do not take: each call works, or says in one line what is wrong.

A table of calls that work; in each of them one argument after the other is replaced by every value of another table.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import eans
from eans import arguments
from eans.errors import EansError, UsageError
from eans.graph import TripleIndex, Vocabulary
from helpers_runs import ring_graph, write_graph

SMALL: dict[str, Any] = {"dim": 4, "steps": 2, "batch_size": 16, "negatives": 2}
HUGE = 10**30
IDS = torch.zeros(2, 3, dtype=torch.int64)
VALUES: tuple[Any, ...] = (
    *(None, True, 3, 0, -1, 2.5, math.nan, math.inf, HUGE, -HUGE),
    *("", "x", "\0", "two\nlines", "x" * 300, b"x", Path("x"), "e1", "plus1"),
    *([], (), {}, {"a": 1}, {1}, [None], ["e1"], [("a", "b")], [(1, 2, 3)], [("e1", "plus1", "e2")]),
    *(np.int64(2), np.float32(0.5), np.bool_(True), np.array([1, 2]), np.array([["e1", "plus1", "e2"]])),
    *(torch.tensor(1), torch.zeros(2, 2), torch.empty(0, 3, dtype=torch.int64), IDS, torch.zeros(2, 4).long()),
    *(torch.full((2, 3), 99), torch.full((2, 3), -1), object(), iter(()), lambda: 0),
)
NAMES = "head relation tail k known"
SETTINGS = "dim steps batch_size negatives seed lr margin subsampling reciprocal keep log_every ties"

CALLED = ("progress", "report")  # what is called with something
# By name: the arguments that are replaced.
ARGUMENTS = {
    "train": f"graph model sampler recipe out device listener test progress {SETTINGS}",
    "resume": "path device listener test progress",
    "Run.load": "path device",
    "Run.predict": NAMES,
    "Run.predict_many": "queries k known out skip_unknown progress",
    "Run.score": "triples unknown",
    "Run.similar": "entity k by",
    "Run.export": "out format",
    "Run.evaluate": "split ties progress",
    "load": "name_or_path download strict progress report labels columns query literals",
    "evaluate": "model graph splits ties limit memory progress table",
    "rank": "model graph split limit memory progress table",
    "predict": f"model graph {NAMES}",
    "KnowledgeGraph": "name entities relations train valid test source also_known weights times",
    "KnowledgeGraph.from_labels": "train valid test name columns",
    "KnowledgeGraph.split": "split",
    "KnowledgeGraph.ids": "triples missing",
    "KnowledgeGraph.with_test": "test",
    "KnowledgeGraph.with_names": "names",
    "KnowledgeGraph.text": "split",
    "Vocabulary": "labels kind",
    "Vocabulary.id": "label",
    "Vocabulary.__contains__": "label",
    "Vocabulary.ids_of": "labels",
    "Vocabulary.labels_of": "ids",
    "split": "graph ratios seed how cover groups times name report",
    "TripleIndex": "triples num_entities num_relations",
    "TripleIndex.contains": "triples",
    "TripleIndex.contains_candidates": "triples side entities",
    "TripleIndex.count": "triples side",
    "TripleIndex.answers": "triples side",
    "Model.score": "triples",
    "Model.score_all": "triples side",
    "Model.score_candidates": "triples side entities",
    "Model.score_relations": "heads tails",
    "Ranks.ranks": "side ties",
    "Ranks.summary": "ties rows",
    "Ranks.metrics": "ties",
    "Metrics.of": "ranks",
    "inspect_run": "path probe device progress",
    "inspect_sampler": "graph model sampler recipe limit every probe device progress dim",
    "report": "path split device progress",
    "tune": "graph budget out methods space seeds seed device workers test listener progress",
    "Run.save": "out",
    "describe": "graph estimate device progress",
    "compare": "graph methods out seeds budget steps test device workers progress overrides",
}


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Functions by name, with arguments that are good."""
    graph = ring_graph(12)
    folder = tmp_path_factory.mktemp("runs") / "run"
    run = eans.train(graph, "transe", "uniform", out=folder, **SMALL)
    model, known, ranks = run.model, graph.known, eans.rank(run.model, graph)
    entities, relations = graph.entities, graph.relations
    splits = {"train": graph.train, "valid": graph.valid, "test": graph.test}
    trained = {"model": model, "graph": graph}
    query = {"head": "e1", "relation": "plus1"}
    side = {"triples": IDS, "side": "tail"}
    candidates = side | {"entities": torch.zeros(2, 4, dtype=torch.int64)}
    fresh = {"graph": graph, "model": "transe", "sampler": "uniform", **SMALL}
    heads = torch.zeros(2, dtype=torch.int64)
    methods = {"graph": graph, "methods": ["transe/uniform", "distmult/uniform"], "seeds": 1, "steps": 2}
    tuned = {"graph": graph, "budget": 2, "out": folder.parent / "tuned", "space": folder.parent / "space.toml"}
    keys = '"model.dim" = 4\n"train.batch_size" = 16\n"sampler.negatives" = 2'
    tuned["space"].write_text(f'[methods."transe/adv"]\n{keys}\n"train.lr" = {{ low = 0.01, high = 0.1 }}')
    folder_of_graph = write_graph(graph, folder.parent / "graph")
    with (folder_of_graph / "train.txt").open("a") as file:  # so that there is something to report
        file.write("e0\tplus1\te1\n" * 2)
    methods |= {"overrides": ["model.dim=4", "train.batch_size=16", "sampler.negatives=2"]}
    return {
        "train": (eans.train, fresh),
        "resume": (eans.resume, {"path": folder}),
        "Run.load": (eans.Run.load, {"path": folder}),
        "Run.predict": (run.predict, query),
        "Run.save": (run.save, {"out": folder.parent / "saved"}),
        "Run.predict_many": (run.predict_many, {"queries": [("e1", "plus1", None)], "progress": False}),
        "Run.score": (run.score, {"triples": [("e1", "plus1", "e2")]}),
        "Run.similar": (run.similar, {"entity": "e1"}),
        "Run.export": (run.export, {"out": folder.parent / "embeddings"}),
        "Run.evaluate": (run.evaluate, {}),
        "load": (eans.load, {"name_or_path": folder_of_graph, "download": False, "report": print}),
        "evaluate": (eans.evaluate, trained),
        "rank": (eans.rank, trained),
        "predict": (eans.predict, trained | query),
        "KnowledgeGraph": (
            eans.KnowledgeGraph, {"name": "graph", "entities": entities, "relations": relations, **splits},
        ),
        "KnowledgeGraph.from_labels": (
            eans.KnowledgeGraph.from_labels, {"train": [("a", "r", "b")], "valid": [], "test": [("b", "r", "a")]},
        ),
        "KnowledgeGraph.split": (graph.split, {"split": "test"}),
        "KnowledgeGraph.ids": (graph.ids, {"triples": []}),
        "KnowledgeGraph.with_test": (graph.with_test, {"test": IDS}),
        "KnowledgeGraph.with_names": (graph.with_names, {"names": {"e1": "one"}}),
        "KnowledgeGraph.text": (lambda split: list(graph.text(split)), {"split": "test"}),
        "Vocabulary": (Vocabulary, {"labels": ["a", "b"]}),
        "Vocabulary.id": (entities.id, {"label": "e1"}),
        "Vocabulary.__contains__": (entities.__contains__, {"label": "e1"}),
        "Vocabulary.ids_of": (entities.ids_of, {"labels": ["e1", "e2"]}),
        "Vocabulary.labels_of": (entities.labels_of, {"ids": [1, 2]}),
        "split": (eans.split, {"graph": [(f"a{i % 5}", "r", f"b{i % 7}") for i in range(36)], "report": print}),
        "TripleIndex": (TripleIndex, {"triples": graph.train, "num_entities": 12, "num_relations": 3}),
        "TripleIndex.contains": (known.contains, {"triples": IDS}),
        "TripleIndex.contains_candidates": (known.contains_candidates, candidates),
        "TripleIndex.count": (known.count, side),
        "TripleIndex.answers": (known.answers, side),
        "Model.score": (model.score, {"triples": IDS}),
        "Model.score_all": (model.score_all, side),
        "Model.score_candidates": (model.score_candidates, candidates),
        "Model.score_relations": (model.score_relations, {"heads": heads, "tails": heads}),
        "Ranks.ranks": (ranks.ranks, {"side": "tail"}),
        "Ranks.summary": (ranks.summary, {}),
        "Ranks.metrics": (ranks.metrics, {}),
        "Metrics.of": (eans.Metrics.of, {"ranks": torch.ones(3)}),
        "inspect_run": (eans.inspect_run, {"path": folder, "probe": 8}),
        "inspect_sampler": (eans.inspect_sampler, fresh | {"limit": 2, "probe": 8}),
        "report": (eans.report, {"path": folder}),
        "tune": (eans.tune, tuned),
        "describe": (eans.describe, {"graph": graph, "estimate": False, "device": "cpu"}),
        "compare": (eans.compare, methods | {"out": folder.parent / "comparison"}),
    }  # fmt: skip


def too_much(name: str, value: Any) -> bool:
    """Would the call be right, and take all the memory or time there is?"""
    return name in ("dim", "steps", "negatives", "batch_size", "seeds") and isinstance(value, int) and value > 1000


@pytest.mark.parametrize(("name", "argument"), [(n, a) for n, given in ARGUMENTS.items() for a in given.split()])
def test_one_argument_is_something_else(
    name: str, argument: str, calls: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    warnings.simplefilter("ignore")
    function, good = calls[name]
    if argument == "recipe":
        good = {key: value for key, value in good.items() if key not in ("model", "sampler")}
    wrong = []
    for value in VALUES:
        if too_much(argument, value):
            continue
        try:
            function(**good | {argument: value})
        except EansError as error:
            if len(str(error).splitlines()) != 1:
                wrong.append((value, str(error)))
        except Exception as error:
            if argument in CALLED and callable(value):  # with other arguments than it has
                continue
            wrong.append((value, f"{type(error).__name__}: {error}"))
    assert not wrong


def test_the_table_has_every_function(calls: Any) -> None:
    assert set(ARGUMENTS) == set(calls)
    for name, (function, good) in calls.items():
        function(**good)
        parameters = inspect.signature(function).parameters.values()
        named = {parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD}
        assert named <= set(ARGUMENTS[name].split()), name
    tested = {name.partition(".")[0] for name in ARGUMENTS}
    registries = {"LOSSES", "MODELS", "PENALTIES", "SAMPLERS"}
    others = {*registries, "Loss", "Objective", "Sampler", "Term", "Trainer", "Recipe", "datasets", "__version__"}
    errors = {"DataError", "EansError", "EansWarning", "RunError", "UsageError"}
    returned = {"Comparison", "Description", "Inspection", "Listener", "ManyPredictions", "Measurement", "Prediction"}
    returned |= {"Predictions", "Similar"}
    assert set(eans.__all__) == tested | others | errors | returned


def test_numbers_of_numpy_and_pytorch_are_numbers() -> None:
    given = {"dim": np.int64(4), "steps": np.int32(3), "lr": np.float32(0.5), "reciprocal": np.bool_(True)}
    given |= {"batch_size": torch.tensor(16), "negatives": np.array(2), "margin": np.float64(3.0)}
    run = eans.train(ring_graph(12), "transe", "uniform", **given)
    section = run.recipe.model
    assert (section.dim, section.reciprocal, run.recipe.train.lr, run.recipe.loss.margin) == (4, True, 0.5, 3.0)
    assert run.recipe.train.steps == 3
    assert len(run.predict(head="e1", relation="plus1", k=np.int64(2))) == 2
    assert eans.evaluate(run.model, run.graph, "test")["test"] == run.metrics["test"]


WRONG_TRIPLES = (
    (torch.zeros(2, 4, dtype=torch.int64), r"shape \[n, 3\], got torch.int64 \[2, 4\]"),
    (torch.zeros(3, dtype=torch.int64), r"shape \[n, 3\], got torch.int64 \[3\]"),
    (torch.zeros(2, 3), r"shape \[n, 3\], got torch.float32 \[2, 3\]"),
    (torch.tensor([[0, 0, 0], [12, 0, 0]]), r"outside the model's 12 entities or \d relation rows"),
    (torch.tensor([[0, 7, 0]]), r"outside the model's 12 entities or \d relation rows"),
    (torch.tensor([[0, 0, -1]]), r"outside the model's 12 entities or \d relation rows"),
)


@pytest.mark.parametrize("name", eans.MODELS)
def test_what_a_model_cannot_score(name: str) -> None:
    """An error, and not the score of something else."""
    model = eans.train(ring_graph(12), name, "uniform", progress=False, **SMALL).model
    for triples, message in WRONG_TRIPLES:
        for score in (
            model.score,
            lambda triples: model.score_all(triples, "tail"),
            lambda triples: model.score_candidates(triples, "head", IDS[:1, :1]),
        ):
            with pytest.raises(UsageError, match=message):
                score(triples)
    for side in ("left", "Tail", "relation", 0):
        with pytest.raises(UsageError, match="unknown side"):
            model.score_all(IDS, side)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="unknown side"):
            model.score_candidates(IDS, side, IDS)  # type: ignore[arg-type]
    for entities in (IDS + 12, IDS - 1):
        with pytest.raises(UsageError, match="outside the model's 12 entities"):
            model.score_candidates(IDS, "tail", entities)
    with pytest.raises(UsageError, match="outside the model's 12 entities"):
        model.score_relations(torch.tensor([12]), torch.tensor([0]))


def test_messages() -> None:
    with pytest.raises(UsageError) as caught:
        arguments.choice("side", "Tail", ("head", "tail"))
    assert str(caught.value) == "unknown side 'Tail'; did you mean 'tail'? (one of head, tail)"
    with pytest.raises(UsageError) as caught:
        arguments.whole("k", 2.5)
    assert str(caught.value) == "k must be a whole number, got 2.5"
    with pytest.raises(UsageError) as caught:
        arguments.several("splits", torch.tensor(1), "splits")
    assert str(caught.value) == "splits must be a list of splits, got tensor(1)"
    assert arguments.shown(np.zeros((2, 3))) == "float64 [2, 3]"
    assert len(arguments.shown("x" * 300)) == arguments.LONGEST
