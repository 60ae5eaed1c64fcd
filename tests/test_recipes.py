"""Recipes: the paper's tables as shipped, automatic values, overrides, files, and TOML there and back."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import eans
from eans.errors import UsageError
from eans.fitting import Plan
from eans.graph import SIDES, KnowledgeGraph, Vocabulary
from eans.recipes import Recipe, all_keys, default_for, key_groups, load, names, to_toml
from eans.recipes.build import (
    AUTO_STEPS,
    LARGEST_BATCH,
    LEAST_PASSES,
    automatic_batch_size,
    build_trainer,
    resolve,
)
from eans.samplers import SAMPLERS, Sampler
from eans.weights import query_weights
from helpers_graphs import random_graph
from helpers_runs import ring_graph

DATASETS = ("default", "fb15k-237", "wn18rr", "wordnet-core")
MODELS = tuple(eans.MODELS)
METHODS = ("uniform", "adv", "eans", "eans+adv", "gaussian", "substitution", "softmax")
# Methods that are not the paper's; those with a list of models are for these alone.
MORE_METHODS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("bernoulli", "frequency", "nscaching", "kbgan", "igan", "sans", "sans+adv"), MODELS),
    "stay-positive": ("distmult", "simple"),
    "all": ("distmult", "complex", "simple", "rescal", "conve"),
    "all+bce": ("conve",),
    "all+n3": ("distmult", "complex"),
}

# The appendix of the paper, column by column: d, b, n, lr, gamma, alpha, lambda_1, lambda_2.
PAPER = {
    ("fb15k-237", "transe"): (1000, 1024, 256, 5e-5, 9.0, 1.0, 0.1, 1.0),
    ("fb15k-237", "transd"): (1000, 1024, 256, 5e-5, 9.0, 1.0, 0.1, 1.0),
    ("fb15k-237", "distmult"): (1000, 1024, 256, 1e-3, 200.0, 1.0, 0.05, 1.0),
    ("fb15k-237", "complex"): (1000, 1024, 256, 1e-3, 200.0, 1.0, 0.05, 1.0),
    ("fb15k-237", "rotate"): (1000, 1024, 256, 5e-5, 9.0, 1.0, 0.1, 1.0),
    ("wn18rr", "transe"): (500, 512, 1024, 5e-5, 6.0, 0.5, 0.01, 0.05),
    ("wn18rr", "transd"): (500, 512, 1024, 5e-5, 6.0, 0.5, 0.01, 0.05),
    ("wn18rr", "distmult"): (500, 512, 1024, 2e-3, 200.0, 1.0, 0.01, 0.05),
    ("wn18rr", "complex"): (500, 512, 1024, 2e-3, 200.0, 1.0, 0.01, 0.05),
    ("wn18rr", "rotate"): (500, 512, 1024, 5e-5, 6.0, 0.5, 0.01, 0.05),
}
# What only the authors' scripts and code reveal: steps, sigma, weight of the L3 penalty on the dot products.
SCRIPTS = {"fb15k-237": (100_000, 290.0, 1e-5), "wn18rr": (80_000, 800.0, 5e-6)}


def empty_graph(entities: int, name: str = "graph") -> KnowledgeGraph:
    """A chain over so many entities."""
    triples = [(f"e{i}", "next", f"e{i + 1}") for i in range(entities - 1)]
    return KnowledgeGraph.from_labels(triples, triples[:2], triples[-2:], name)


def test_names() -> None:
    methods = dict.fromkeys(METHODS, MODELS) | MORE_METHODS
    general = {f"{d}/{model}/{method}" for d in DATASETS for method, models in methods.items() for model in models}
    fast = {"fb15k-237/transe/fast", "fb15k-237/rotate/fast", "wn18rr/rotate/fast"}
    best = {f"{d}/{model}/best" for d, model in PAPER}
    assert set(names()) == general | fast | best
    assert len(names()) == len(set(names()))
    assert {d: default_for(d) for d in DATASETS} == {
        "default": "default/rotate/eans+adv",
        "fb15k-237": "fb15k-237/transe/eans+adv",
        "wn18rr": "wn18rr/rotate/eans+adv",
        "wordnet-core": "wordnet-core/rotate/eans+adv",
    }
    assert default_for("my own graph") == "default/rotate/eans+adv"


def test_a_method_of_one_dataset() -> None:
    """It takes what it is based on, in that dataset, and is there for the models it was tuned for."""
    fast, basis = load("fb15k-237/rotate/fast"), load("fb15k-237/rotate/eans+adv")
    assert (fast.sampler.negatives, fast.train.lr_decay, fast.train.steps) == (64, "linear", 10_000)
    assert (fast.sampler.known_true, fast.loss, fast.model) == (basis.sampler.known_true, basis.loss, basis.model)
    with pytest.raises(UsageError, match="unknown method 'fast' in a recipe; fb15k-237 has it for transe, rotate"):
        load("fb15k-237/complex/fast")
    with pytest.raises(UsageError, match="unknown method 'fast'"):
        load("wordnet-core/rotate/fast")


@pytest.mark.parametrize("name", names())
def test_every_recipe_builds(name: str) -> None:
    graph = ring_graph()
    sampler = load(name).sampler.name
    few = {"sampler.negatives": 4 if SAMPLERS[sampler].draws else 0} | (
        {"sampler.clusters": 5} if sampler == "eans" else {}
    )
    recipe = load(name, {"model.dim": 4, "train.batch_size": 8, **few})
    assert recipe.name == name
    resolved = resolve(recipe, graph)
    assert "auto" not in to_toml(resolved)
    assert resolve(resolved, graph) == resolved
    Plan.of(resolved)
    build_trainer(resolved, graph).step()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("dataset", "model"), PAPER)
def test_the_papers_tables(dataset: str, model: str, method: str) -> None:
    d, b, n, lr, gamma, alpha, lambda_1, lambda_2 = PAPER[dataset, model]
    steps, sigma, penalty = SCRIPTS[dataset]
    recipe = load(f"{dataset}/{model}/{method}")
    dot = model in ("distmult", "complex")
    if model == "distmult":  # twice the table's width, for as many parameters as the complex models
        d *= 2
    assert recipe.data.name == dataset
    assert (recipe.model.name, recipe.model.dim) == (model, d)
    assert (recipe.train.batch_size, recipe.sampler.negatives, recipe.train.lr) == (b, n, lr)
    if method in ("eans", "eans+adv", "substitution"):
        assert (recipe.loss.substitution_regularization, recipe.loss.substitution_weight) == (lambda_1, lambda_2)
        assert recipe.loss.form == "reference"
    if method != "softmax":
        assert recipe.loss.adversarial_temperature == (alpha if "adv" in method else 0.0)
    # The gamma of dot products sets nothing but the initial range.
    assert recipe.loss.margin == (0.0 if dot else gamma)
    graph = ring_graph(110)
    assert resolve(recipe, graph).model.init_range == pytest.approx((gamma + 2) / d)
    if dot and method == "uniform":  # which bears a tenth of what hard negatives do
        penalty /= 10
    assert recipe.loss.penalty == ("l3" if dot else "none")
    if dot:
        assert recipe.loss.penalty_weight == pytest.approx(penalty)
    if recipe.sampler.name == "eans":
        assert (recipe.sampler.clusters, recipe.sampler.sigma, recipe.sampler.reorder_every) == (100, sigma, 1000)
    assert recipe.sampler.name == ("eans" if method in ("eans", "eans+adv", "gaussian") else "uniform")
    special = {"eans": "substitution", "eans+adv": "substitution", "substitution": "substitution", "softmax": "softmax"}
    assert recipe.loss.name == special.get(method, "logsigmoid")
    repeats = method in ("eans", "eans+adv", "substitution")
    assert recipe.sampler.known_true == ("repeats" if repeats else "exact")
    resampled = method in ("uniform", "adv")
    assert recipe.sampler.false_negatives == ("resample" if resampled else "mask")
    assert model != "transd" or recipe.model.projection == "entity-table"
    codes_line = (dataset, model, method) == ("fb15k-237", "transd", "eans")
    if recipe.sampler.name == "eans":
        assert (recipe.sampler.inside, recipe.sampler.order_epoch) == (("inherited", 532) if codes_line else ("id", 0))
    train = recipe.train
    assert (train.steps, train.lr_drop, train.lr_drop_at, train.reset_optimizer) == (steps, 0.1, 0.5, True)
    stops_early = (dataset, model, method) == ("wn18rr", "transd", "uniform")
    assert (train.subsampling, train.keep, train.patience) == (True, *(("best", 3) if stops_early else ("last", 0)))


@pytest.mark.parametrize(
    ("entities", "clusters", "sigma"),
    [(2, 1, 4.0), (3, 1, 6.0), (100, 10, 20.0), (6_481, 80, 162.025), (10_000, 100, 200.0), (40_943, 100, 818.86)],
)
def test_clusters_and_sigma_follow_the_number_of_entities(entities: int, clusters: int, sigma: float) -> None:
    graph = ring_graph()
    labels = Vocabulary(f"e{i}" for i in range(max(entities, 60)))
    graph = (
        KnowledgeGraph("large", labels, graph.relations, graph.train, graph.valid, graph.test)
        if entities >= 60
        else empty_graph(entities)
    )
    sampler = resolve(load("default"), graph).sampler
    assert (sampler.clusters, sampler.sigma) == (clusters, pytest.approx(sigma))


@pytest.mark.parametrize(
    ("model", "dim", "margin", "init_range"),
    [("transe", 10, 9.0, 1.1), ("transd", 10, 9.0, 1.1), ("rotate", 44, 9.0, 0.25), ("distmult", 10, 0.0, None)],
)
def test_margin_and_range_follow_the_model(model: str, dim: int, margin: float, init_range: float | None) -> None:
    recipe = resolve(load(f"default/{model}/eans", {"model.dim": dim}), ring_graph())
    assert recipe.loss.margin == margin
    assert recipe.model.init_range == (pytest.approx(init_range) if init_range else recipe.model.init_range)


@pytest.mark.parametrize(
    ("triples", "batch"),
    [
        *((1, 16), (157, 39), (2_048, 512), (272_115, 512), (730_598, 512), (1_280_000, 512), (1_280_001, 1_024)),
        *((10_000_000, 4_096), (40_960_000, 16_384), (300_000_000, 16_384)),
    ],
)
def test_batches_grow_where_steps_may_not(triples: int, batch: int) -> None:
    """As many for all graphs of up to 1.28 million triples as there were; then 20 passes for each side at least."""
    assert automatic_batch_size(triples) == batch
    if batch < LARGEST_BATCH:
        assert AUTO_STEPS[1] * batch >= 2 * LEAST_PASSES * triples or triples < 1_000_000


@pytest.mark.parametrize(
    ("triples", "batch", "steps"), [(157, 512, 2000), (157, 1, 31_400), (157, 4, 8000), (157, 100, 2000)]
)
def test_steps_follow_the_number_of_triples(triples: int, batch: int, steps: int) -> None:
    graph = ring_graph()
    assert len(graph.train) == triples
    assert resolve(load("default", {"train.batch_size": batch}), graph).train.steps == steps


@pytest.mark.parametrize("entities", [2, 3, 100])
@pytest.mark.parametrize("sampler", ["uniform", "eans+adv", "sans"])
def test_small_graphs_train(entities: int, sampler: str) -> None:
    run = eans.train(empty_graph(entities), sampler=sampler, dim=4, steps=5)
    assert 1.0 <= run.metrics["test"]["both"]["mr"] <= entities


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train.steps=10", 10),
        (" train.steps = 10 ", 10),
        ("train.steps=1_000", 1000),
        ("train.steps=auto", "auto"),
        ('train.steps="auto"', "auto"),
        ("train.lr=1e-4", 1e-4),
        ("train.lr=1", 1.0),
        ("train.reset_optimizer=false", False),
        ("train.optimizer=adagrad", "adagrad"),
        ("model.name=transe", "transe"),
        ("data.name=a=b", "a=b"),
        ("data.name=my folder/x", "my folder/x"),
        ("sampler.sigma=12", 12.0),
    ],
)
def test_overrides(text: str, expected: Any) -> None:
    key = text.partition("=")[0].strip()
    section, _, name = key.partition(".")
    for overrides in ([text], {key: expected}):
        assert getattr(getattr(load("default", overrides), section), name) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.step=10", "unknown recipe key 'train.step'; did you mean 'train.steps'?"),
        ("steps=10", "unknown recipe key 'steps'; did you mean 'train.steps'?"),
        ("sampler.negative=10", "did you mean 'sampler.negatives'?"),
        ("xyzzy=1", "unknown recipe key 'xyzzy' (see"),
        ("name=mine", "unknown recipe key 'name'"),
        ("train.steps=ten", "recipe key 'train.steps' = 'ten': Input should be a valid integer; or"),
        ("train.steps=1.5", "recipe key 'train.steps' = 1.5:"),
        ("train.steps=0", "greater than or equal to 1"),
        ("train.steps=-5", "greater than or equal to 1"),
        ("train.steps=true", "recipe key 'train.steps' = True:"),
        ("train.lr=fast", "recipe key 'train.lr' = 'fast': Input should be a valid number"),
        ("train.lr=nan", "recipe key 'train.lr' = nan"),
        ("train.lr_drop_at=2", "less than or equal to 1"),
        ("train.keep=bset", "recipe key 'train.keep' = 'bset': Input should be 'last', 'best' or 'auto'"),
        (
            "train.optimizer=sgd",
            "'sgd': Input should be 'adam', 'adagrad', 'lazy-adam', 'row-adagrad' or 'auto'",
        ),
        ("model.name=3", "recipe key 'model.name' = 3: Input should be a valid string"),
        ("loss.detach=1", "recipe key 'loss.detach' is gone"),
        ("model.reciprocal=1", "recipe key 'model.reciprocal' = 1: Input should be a valid boolean"),
        ("train.steps", "'train.steps' is not an override; write section.key=value"),
        ("=3", "'=3' is not an override"),
        ("train.steps=", "'train.steps=' is not an override"),
        ("", "'' is not an override"),
    ],
)
def test_wrong_overrides(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load("default", [text])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["model.init_range", "train.lr", "sampler.sigma", "loss.margin"])
def test_infinity_is_no_setting(key: str) -> None:
    with pytest.raises(UsageError):
        load("default", [f"{key}=inf"])


def test_weights_of_positives_are_those_of_the_recipe() -> None:
    graph = ring_graph()
    overrides = {"train.subsampling": "query", "train.subsampling_power": 1.0}
    weights = build_trainer(resolve(load("default/transe/uniform", overrides), graph), graph).stream.weights
    for side in SIDES:
        assert torch.equal(weights[side], query_weights(graph.train, graph.num_relations, side, 1.0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model.name": "rotat"}, "unknown model.name 'rotat'; did you mean 'rotate'?"),
        ({"sampler.name": "unifrom"}, "unknown sampler.name 'unifrom'; did you mean 'uniform'?"),
        ({"loss.name": "substitutoin"}, "unknown loss.name 'substitutoin'; did you mean 'substitution'?"),
        ({"sampler.false_negatives": "keep"}, "set sampler.false_negatives=mask"),
        (
            {"train.subsampling": False, "train.subsampling_power": 1.0},
            "set train.subsampling to true, query or answer",
        ),
        (
            {"loss.penalty": "stay_positive"},
            "unknown loss.penalty 'stay_positive'; did you mean 'stay-positive'? (one of none, l3, n3, dura, stay-",
        ),
        ({"train.keep": "best", "train.valid_every": 0}, "train.keep 'best' needs validations: set train.valid_every"),
        ({"train.patience": 3, "train.valid_every": 0}, "train.patience needs validations: set train.valid_every"),
        ({"loss.penalty": "stay-positive"}, "does nothing while loss.penalty_weight is 0"),
    ],
)
def test_combinations_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(load("default", settings), ring_graph())
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("rotate/uniform", {"sampler.negatives": 0}, "sampler.negatives is 0; set at least 1, or sampler.name 'none'"),
        ("rotate/uniform", {"sampler.name": "none"}, "draws no negatives, but sampler.negatives is 64; set it to 0"),
        (
            "rotate/uniform",
            {"loss.penalty": "stay-positive", "loss.penalty_weight": 1.0},
            "model 'rotate' has no closed form of the sum over all triples, which loss.penalty 'stay-positive' needs; "
            "set another loss.penalty, or model.name to 'distmult' or 'simple'",
        ),
        (
            "rotate/uniform",
            {"loss.penalty": "dura", "loss.penalty_weight": 1.0},
            "model 'rotate' compares by a distance, not by a dot product, which loss.penalty 'dura' needs; "
            "set another loss.penalty, or model.name to 'distmult', 'complex', 'simple' or 'rescal'",
        ),
        (
            "conve/uniform",
            {"loss.penalty": "dura", "loss.penalty_weight": 1.0},
            "model 'conve' has no queries for heads, which loss.penalty 'dura' needs; "
            "set another loss.penalty, or model.name to 'distmult', 'complex', 'simple' or 'rescal'",
        ),
        (
            "conve/uniform",
            {"model.reciprocal": False},
            "model 'conve' has head queries by inverse relations: set model.reciprocal=true",
        ),
        (
            "distmult/uniform",
            {"loss.penalty": "dura", "loss.penalty_weight": 1.0, "model.bounded": True},
            "loss.penalty 'dura' needs model.bounded=false",
        ),
        (
            "distmult/uniform",
            {"train.rows": "bfloat16", "model.bounded": True},
            "train.rows 'bfloat16' does nothing with model.bounded=true; leave it out",
        ),
        (
            "rotate/igan",
            {"sampler.memory_limit_mb": 1, "train.batch_size": 20_000},
            "sampler 'igan' needs 19 MB for 20000 positives and 60 entities",
        ),
    ],
)
def test_trainers_that_cannot_be_built(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        build_trainer(resolve(load(f"default/{name}", settings), ring_graph()), ring_graph())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"loss.adversarial_temperature": 1.0},
            "loss.adversarial_temperature belongs to loss.name 'logsigmoid', 'substitution' or 'hinge'; "
            "loss.name is 'softmax'",
        ),
        (
            {"sampler.name": "blind"},
            "sampler 'blind' does not know the probability of its draws, which loss.name 'softmax' needs; "
            "set loss.correct_proposal=false, sampler.name to 'uniform', 'eans', ",
        ),
    ],
)
def test_what_a_softmax_cannot_be_built_with(
    settings: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Found out before anything is written."""

    class Blind(SAMPLERS["uniform"]):  # type: ignore[misc,name-defined]
        log_density = Sampler.log_density
        knows_proposal = False

    monkeypatch.setitem(SAMPLERS, "blind", Blind)
    with pytest.raises(UsageError) as caught:
        eans.train(ring_graph(), recipe="transe/softmax", out=tmp_path / "run", **settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
    if "sampler.name" in settings:  # without the correction nobody asks
        eans.train(ring_graph(), recipe="transe/softmax", **settings, correct_proposal=False, steps=3, dim=4)


def test_validation_needs_valid_triples() -> None:
    graph = KnowledgeGraph.from_labels([("a", "r", "b")], name="bare")
    with pytest.raises(UsageError, match="graph 'bare' has no valid triples"):
        resolve(load("default", {"train.valid_every": 5}), graph)
    for setting in ({"train.keep": "best"}, {"train.patience": 3}):
        with pytest.raises(UsageError, match=r"needs validations: graph 'bare' has no valid triples"):
            resolve(load("default", setting), graph)


@pytest.mark.parametrize(
    ("settings", "validation"),
    [
        ({}, (100, 5, 0.5, "best")),
        ({"train.steps": 5000}, (250, 5, 0.5, "best")),
        ({"train.steps": 101}, (100, 5, 0.5, "best")),
        ({"train.steps": 100}, (0, 0, 0.5, "last")),  # nothing to choose among
        ({"train.steps": 50, "train.valid_every": 10}, (10, 5, 0.5, "best")),
        ({"train.valid_every": 0}, (0, 0, 0.5, "last")),
        ({"train.keep": "last", "train.patience": 0}, (100, 0, 0.5, "last")),
        ({"train.lr_drop_at": 0.8}, (100, 5, 0.8, "best")),
        ({"train.lr_drop_at": 0.8, "train.lr_drop": 1.0}, (100, 5, 0.5, "best")),
        ({"train.lr_drop_at": 0.8, "train.lr_decay": "linear"}, (100, 5, 0.5, "best")),
    ],
)
def test_validation_is_the_default(settings: dict[str, Any], validation: tuple[Any, ...]) -> None:
    for name in ("default", "wordnet-core/transe/eans"):
        train = resolve(load(name, {"train.steps": 2000, **settings}), ring_graph()).train
        assert (train.valid_every, train.patience, train.patience_from, train.keep) == validation
        assert train.valid_triples == 0  # all twelve


def test_without_valid_triples_there_is_none() -> None:
    train = resolve(load("default"), KnowledgeGraph.from_labels([("a", "r", "b")], name="bare")).train
    assert (train.valid_every, train.patience, train.keep) == (0, 0, "last")


@pytest.mark.parametrize("dataset", ["fb15k-237", "wn18rr"])
def test_the_papers_recipes_end_as_they_did(dataset: str) -> None:
    for name in names():
        if name.startswith(dataset) and "/conve/" not in name:  # whose paper has validations
            train = load(name).train
            early = name == "wn18rr/transd/uniform"
            assert (train.valid_every, train.valid_triples, train.patience_from) == (5_000, 0, 0.0)
            assert (train.keep, train.patience) == (("best", 3) if early else ("last", 0))


@pytest.mark.parametrize(
    ("entities", "settings", "triples"),
    [
        (6_481, {"batch_size": 512, "train.steps": 3000, "sampler.negatives": 16}, 176),
        (6_481, {"batch_size": 512, "train.steps": 30_000, "sampler.negatives": 16}, 1_000),
        (200_000, {"batch_size": 16, "train.steps": 2_000, "sampler.negatives": 1}, 100),
        (14_541, {"batch_size": 512, "train.steps": 6_000, "sampler.negatives": 64}, 493),
    ],
)
def test_how_many_triples_are_validated(entities: int, settings: dict[str, Any], triples: int) -> None:
    """150 of 3,000 steps compare 150 * 10 * (512 * 17 + 6,481) times, a tenth of which is 176 * 2 * 6,481."""
    graph = random_graph(50, 2, (400, 2_000, 0))
    labels = Vocabulary(f"e{i}" for i in range(entities))
    graph = KnowledgeGraph("large", labels, graph.relations, graph.train, graph.valid, graph.test)
    full = {key if "." in key else f"train.{key}": value for key, value in settings.items()}
    assert resolve(load("default/rotate/uniform", full), graph).train.valid_triples == triples
    small = KnowledgeGraph("small", labels, graph.relations, graph.train, graph.valid[:99], graph.test)
    assert resolve(load("default/rotate/uniform", full), small).train.valid_triples == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("defualt", "unknown recipe 'defualt'; did you mean 'default'?"),
        ("fb15k237/transe/eans", "did you mean 'fb15k-237/transe/eans'?"),
        ("rotat", "unknown recipe 'rotat'; did you mean 'rotate'?"),
        ("default/trans", "unknown model 'trans' in a recipe; did you mean 'trans"),
        ("default/transe/eans/more", "unknown recipe 'default/transe/eans/more'"),
        ("default/transee/eans", "unknown model 'transee' in a recipe; did you mean 'transe'?"),
        ("default/transe/ean", "unknown method 'ean' in a recipe; did you mean 'eans'?"),
        ("nowhere.toml", "cannot read recipe nowhere.toml: No such file or directory"),
        ("", "unknown recipe ''"),
    ],
)
def test_unknown_recipes(name: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[train\nsteps = 1", "not a TOML recipe"),
        (b"\xff\xfe", "not a TOML recipe"),
        (b"[train]\nsteps = 'x'", "recipe key 'train.steps' = 'x'"),
        (b"[train]\nstep = 1", "unknown recipe key 'train.step'; did you mean 'train.steps'?"),
        (b"[trian]\nsteps = 1", "unknown recipe key 'trian'"),
        (b"train = 3", "recipe key 'train' = 3"),
        (b"name = 3", "recipe key 'name' = 3"),
    ],
)
def test_bad_recipe_files(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        load(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_own_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[model]\nname = "transe"\ndim = 7\n[train]\nsteps = 3\n')
    recipe = load(str(path), ["train.steps=4"], data="elsewhere")
    assert recipe.name == str(path)
    assert (recipe.model.name, recipe.model.dim, recipe.train.steps, recipe.data.name) == ("transe", 7, 4, "elsewhere")
    assert recipe.sampler == Recipe().sampler


def reload(recipe: Recipe) -> Recipe:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.toml"
        path.write_text(to_toml(recipe), "utf-8")
        return load(str(path))


@pytest.mark.parametrize("name", names())
def test_shipped_recipes_survive_toml(name: str) -> None:
    assert reload(load(name)) == load(name)


@given(
    name=st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=("Cs", "Cc"))),
    folder=st.sampled_from(
        ['a "quoted" name', "back\\slash", "tab\there", "'", "größe", "日本語", "a\nb", "a\x7fb", "[x] # y"]
    ),
    lr=st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False),
    steps=st.one_of(st.just("auto"), st.integers(min_value=1)),
    init_range=st.one_of(st.just("auto"), st.floats(min_value=1e-30, max_value=1e30)),
    reset=st.booleans(),
)
def test_toml_round_trip(name: str, folder: str, lr: float, steps: Any, init_range: Any, reset: bool) -> None:
    settings = {"train.lr": lr, "train.steps": steps, "model.init_range": init_range, "train.reset_optimizer": reset}
    recipe = load("default", settings | {"data.name": folder}).model_copy(update={"name": name})
    assert reload(recipe) == recipe


@pytest.mark.parametrize("name", ["😀", "𝔼"])
def test_toml_round_trip_of_rare_characters(name: str) -> None:
    recipe = load("default", {"data.name": name})
    assert reload(recipe) == recipe


def test_keys() -> None:
    keys = all_keys()
    wanted = "model.name model.dim sampler.name sampler.negatives sampler.clusters sampler.sigma sampler.reorder_every "
    wanted += "sampler.known_true loss.margin loss.adversarial_temperature train.steps train.batch_size train.lr "
    wanted += "train.seed"
    assert set(wanted.split()) <= set(keys)
    assert len(set(keys)) == len(keys)
    groups = key_groups()
    assert {key.key for group in groups for key in group.keys} == set(keys)
    assert all(key.help for group in groups for key in group.keys)
    owners = {key.key: group.owners for group in groups for key in group.keys}
    assert owners["sampler.size"] == "sampler.name nscaching"
    assert owners["sampler.learning_rate"] == "sampler.name kbgan, igan"
    assert owners["loss.penalty_power"] == "loss.penalty stay-positive"
    assert {owners[key] for key in ("train.lr", "sampler.negatives", "model.dim", "loss.margin")} == {""}


@pytest.mark.parametrize(
    ("name", "data", "whole"),
    [
        ("rotate", None, "wordnet-core/rotate/eans+adv"),
        ("transe/uniform", None, "wordnet-core/transe/uniform"),
        ("transe/uniform", "fb15k-237", "fb15k-237/transe/uniform"),
        ("complex", "my/own/folder", "default/complex/adv"),
        ("wn18rr", None, "wn18rr/rotate/eans+adv"),
        ("fb15k-237/complex", None, "fb15k-237/complex/adv"),
    ],
)
def test_parts_of_a_name(name: str, data: str | None, whole: str) -> None:
    recipe = load(name, data=data)
    assert recipe.name == whole
    if data is not None:
        assert recipe.data.name == data
