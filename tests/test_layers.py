"""Models that own layers beside their two tables: one is defined here, trained, resumed and saved like any other."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import eans
from eans import kernels
from eans.api import start
from eans.batches import BatchStream, Purpose, mix
from eans.cuda_graphs import CapturedWork
from eans.errors import Interrupted, UsageError
from eans.evaluation import rank
from eans.graph import KnowledgeGraph
from eans.listener import Listener
from eans.models import MODELS, Dropout, Model, Query, Reciprocal, learning, with_bias
from eans.options import Option
from eans.recipes import load
from eans.recipes.build import build_model, build_objective, build_sampler, build_trainer, resolve
from eans.recipes.choosing import choose_recipe
from eans.stores import MemoryStore
from eans.training import Schedule, Settings, Trainer
from eans.types import Side, TripleRows
from helpers_runs import outcome, ring_graph

WIDTH = 12


class Perceptron(Model):
    """``score = <W dropout(relu(scale * batch_norm(V [h | r]))) + c, t> + b_t``, for tails alone."""

    comparison = "dot"
    entity_bias = True
    tails_only = True
    least_batch = 2

    def __init__(
        self,
        *args: Any,
        reciprocal: Reciprocal = True,
        hidden_dropout: Annotated[float, Option("share of the hidden numbers left out", ge=0, le=0.9)] = 0.25,
        **kwargs: Any,
    ) -> None:
        self.hidden_dropout = hidden_dropout
        super().__init__(*args, reciprocal=reciprocal, **kwargs)

    def make_layers(self) -> None:
        self.inner = nn.Linear(2 * self.dim, WIDTH, bias=False)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.leave_out = Dropout(self.hidden_dropout)
        self.outer = nn.Linear(WIDTH, self.dim)

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Query:
        assert side == "tail"
        joined = torch.cat((anchor[:, : self.dim], relation.expand(len(anchor), -1)), 1)
        hidden = self.scale * self.norm(self.inner(joined))
        return Query(with_bias(self.outer(self.leave_out(torch.relu(hidden)))))


class Impatient(Perceptron):
    """A model whose layers wait for the device."""

    capturable = False


@pytest.fixture(autouse=True)
def own_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "perceptron", Perceptron)


SMALL: dict[str, Any] = {"model.dim": 6, "train.batch_size": 24, "train.steps": 12, "train.lr": 0.02}
ALL: dict[str, Any] = {"sampler.name": "all", "sampler.negatives": 0, "sampler.false_negatives": "keep"}
ALL |= {"loss.name": "softmax", "loss.correct_proposal": False}
FEW: dict[str, Any] = {"dim": 6, "batch_size": 24, "steps": 12, "lr": 0.02, "log_every": 4, "device": "cpu"}


def make(method: str = "eans+adv", graph: KnowledgeGraph | None = None, **more: Any) -> Trainer:
    graph = graph or ring_graph()
    settings = SMALL | {key.replace("__", "."): value for key, value in more.items()}
    return build_trainer(resolve(load(f"default/perceptron/{method}", settings), graph), graph)


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# --- what a step computes ---------------------------------------------------------------------------------------------


def by_hand(model: Perceptron, rows: TripleRows, uniforms: Tensor) -> Tensor:
    """Scores of all entities ``[B, E]`` in a training step, layer by layer; keeps batch norm's averages as PyTorch."""
    inner = torch.cat((rows.head[:, :-1], rows.relation), 1) @ model.inner.weight.T
    mean, variance = inner.mean(0), inner.var(0, unbiased=False)
    with torch.no_grad():
        model.norm.running_mean.mul_(0.9).add_(0.1 * mean)
        model.norm.running_var.mul_(0.9).add_(0.1 * inner.var(0))
    norm = (inner - mean) / (variance + 1e-5).sqrt() * model.norm.weight + model.norm.bias
    hidden = (model.scale * norm).clamp(min=0) * (uniforms >= 0.25) / 0.75
    query = hidden @ model.outer.weight.T + model.outer.bias
    return query @ model.entity[:, :-1].T + model.entity[:, -1]


@pytest.fixture(params=["reference", "auto"])
def any_kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    before = kernels.choose(request.param)
    yield
    kernels.choose(before)


@pytest.mark.usefixtures("any_kernels")
@pytest.mark.parametrize(("optimizer", "rate"), [("adam", 0.02), ("adagrad", 0.1)])
def test_steps_equal_those_of_plain_pytorch(optimizer: str, rate: float) -> None:
    """Four steps in float64: formula, gradients of tables and layers, PyTorch's own optimizer, batch norm's buffers."""
    graph = ring_graph()
    overrides = SMALL | ALL | {"train.lr": rate, "train.optimizer": optimizer, "train.subsampling": False}
    recipe = resolve(load("default/perceptron/uniform", overrides), graph)
    model = build_model(recipe, graph).double()
    assert isinstance(model, Perceptron)
    twin = copy.deepcopy(model)
    stream = BatchStream(graph, 24, 3, False, "cpu")
    schedule, settings = Schedule(100, rate, lr_drop=1.0), Settings(recipe.train.optimizer)
    trainer = Trainer(model, build_sampler(recipe, graph), build_objective(recipe), stream, schedule, settings)
    theirs = {"adam": torch.optim.Adam, "adagrad": torch.optim.Adagrad}[optimizer](twin.parameters(), lr=rate)
    for number in range(4):
        found = trainer.step()["softmax"].item()
        triples, _ = twin.oriented(*stream[number][:2])
        generator = torch.Generator().manual_seed(mix(3, Purpose.DRAW, number))
        scores = by_hand(twin, twin.triple_rows(triples), torch.rand(24, WIDTH, generator=generator))
        loss = functional.cross_entropy(scores, triples[:, 2])
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        assert found == pytest.approx(loss.item(), rel=1e-6)  # weights of triples are float32
    for (name, value), expected in zip(model.state_dict().items(), twin.state_dict().values(), strict=True):
        if name != "norm.num_batches_tracked":
            assert torch.allclose(value, expected, rtol=1e-5, atol=1e-7), name
    assert model.norm.num_batches_tracked == 4


@pytest.mark.parametrize("side", ["tail", "head"])
@pytest.mark.parametrize("method", ["training", "evaluation"])
def test_gradients_by_finite_differences(side: Side, method: str) -> None:
    model = Perceptron(5, 2, 3, generator=torch.Generator().manual_seed(1)).double()
    triples, entities = torch.tensor([[0, 0, 1], [1, 1, 1], [4, 0, 2]]), torch.tensor([[0, 1], [2, 1], [3, 3]])
    names = [name for name, _ in model.named_parameters()]
    model.norm.momentum = 0.0  # or each call would change the buffers

    def scores(*values: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(names, values, strict=True))
        found = torch.func.functional_call(model, given, (triples, side, entities))
        return tuple(part for part in found if part is not None)

    def forward(*args: Any) -> Any:
        if method == "evaluation":
            return model.training_scores(*args, "symmetric")
        with learning(model, torch.Generator().manual_seed(5)):
            return model.training_scores(*args, "symmetric")

    model.forward = forward  # type: ignore[method-assign]
    # Away from zero, so that no input of a rectifier is at its kink.
    values = [torch.randn_like(value).mul_(0.7).requires_grad_() for value in model.parameters()]
    assert torch.autograd.gradcheck(scores, values, atol=1e-6)


# --- modes and random numbers -----------------------------------------------------------------------------------------


def test_layers_learn_in_steps_alone() -> None:
    """Ranking, scoring and samplers that score leave batch norm's averages, and see no dropout."""
    graph = ring_graph()
    for method in ("nscaching", "kbgan", "eans+adv", "all"):
        settings = ALL if method == "all" else {}
        if method == "nscaching":
            settings = {"sampler.size": 5, "sampler.candidates": 4, "sampler.negatives": 2}
        name = "default/perceptron/" + ("uniform" if method == "all" else method)
        trainer = build_trainer(resolve(load(name, SMALL | settings), graph), graph)
        model = trainer.model
        assert isinstance(model, Perceptron)
        for number in range(1, 5):
            trainer.step()
            assert not any(layer.training for layer in model.modules())
            # The positives' own pass and that of the substitution scores, if the loss has them.
            passes = 2 if trainer.loss.needs_substitution else 1
            assert model.norm.num_batches_tracked == passes * number
            assert model.leave_out.generator is None
        buffers = {name: value.clone() for name, value in model.named_buffers()}
        first = model.score(graph.train)
        rank(model, graph)
        assert torch.equal(model.score(graph.train), first)
        assert same(dict(model.named_buffers()), buffers)


def test_learning_ends_with_an_error() -> None:
    model = Perceptron(5, 2, 3)
    with contextlib.suppress(ZeroDivisionError), learning(model, torch.Generator()):
        assert model.norm.training
        raise ZeroDivisionError
    assert not model.norm.training
    assert not model.training


def test_the_seed_decides_everything() -> None:
    """And PyTorch's global random numbers neither matter nor change."""
    states = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        trainer = make()
        for _ in range(6):
            trainer.step()
        assert torch.equal(torch.get_rng_state(), before)
        states.append(trainer.state()[0])
    assert same(*states)
    other = make(train__seed=1).model
    assert isinstance(other, Perceptron)
    assert not torch.equal(other.inner.weight, states[0]["model.inner.weight"])


def test_layers_start_as_pytorch_has_it() -> None:
    generator = torch.Generator().manual_seed(0)
    model = Perceptron(300, 5, 50, generator=generator)
    bound = (2 * 50) ** -0.5
    assert 0.98 * bound < model.inner.weight.abs().max() <= bound
    assert not model.entity[:, -1].any()
    assert model.entity[:, :-1].all()
    drawn, entity = model.inner.weight.detach().clone(), model.entity.detach().clone()
    model.double().reset_parameters(generator)
    assert model.inner.weight.dtype == torch.float64
    assert not torch.equal(model.inner.weight.float(), drawn)
    assert not torch.equal(model.entity.float(), entity)


def test_tables_of_models_without_layers_draw_as_ever() -> None:
    """Nothing but the tables is drawn for them."""
    first, second = (torch.Generator().manual_seed(4) for _ in range(2))
    model = MODELS["distmult"](5, 2, 3, 0.5, first)
    tables = [torch.empty_like(table).uniform_(-0.5, 0.5, generator=second) for table in (model.entity, model.relation)]
    assert torch.equal(tables[0], model.entity)
    assert torch.equal(tables[1], model.relation)
    assert torch.equal(first.get_state(), second.get_state())


def test_dropout() -> None:
    layer = Dropout(0.3)
    values = torch.randn(2000, 7)
    layer.eval()
    assert layer(values) is values
    layer.train()
    layer.generator = torch.Generator().manual_seed(1)
    once = layer(values)
    kept = once != 0
    assert kept.double().mean().item() == pytest.approx(0.7, abs=0.02)
    torch.testing.assert_close(once[kept], values[kept] / 0.7)
    assert not torch.equal(once, layer(values))
    layer.generator.manual_seed(1)
    assert torch.equal(once, layer(values))
    whole = Dropout(0.5, whole_from=2)(torch.ones(50, 4, 3, 3))
    assert (whole.flatten(2).amax(2) == whole.flatten(2).amin(2)).all()
    assert 0 < int((whole[:, :, 0, 0] == 0).sum()) < 200
    assert repr(Dropout(0.5, whole_from=2)) == "Dropout(0.5, whole_from=2)"
    with pytest.raises(UsageError, match=r"^a dropout of 1\.0 is impossible; it is a share, from 0 to less than 1$"):
        Dropout(1.0)


class WithTheirs(Perceptron):
    def make_layers(self) -> None:
        super().make_layers()
        self.theirs = nn.Sequential(nn.ReLU(), nn.Dropout(0.1))


def test_dropout_that_could_not_be_resumed_is_an_error() -> None:
    with pytest.raises(UsageError) as caught:
        WithTheirs(5, 2, 3)
    assert str(caught.value) == (
        "layer 'theirs.1' of model 'withtheirs' is torch.nn.Dropout, whose random numbers a resumed run would not "
        "repeat; use eans.models.Dropout"
    )


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_a_state_continues_to_the_same_bits(optimizer: str) -> None:
    for stop in (3, 6, 9):  # before, at and after the drop of the rate
        whole, first, second = (make(train__optimizer=optimizer) for _ in range(3))
        for _ in range(12):
            whole.step()
        for _ in range(stop):
            first.step()
        tensors, values = first.state()
        second.load_state({name: value.clone() for name, value in tensors.items()}, values)
        assert same(second.state()[0], tensors)
        for _ in range(12 - stop):
            second.step()
        assert same(second.state()[0], whole.state()[0])
    moments = {name for name in tensors if name.startswith("optimizer.")}
    assert len(moments) == len(list(whole.model.parameters())) * (3 if optimizer == "adam" else 2)
    assert tensors["optimizer.2." + ("exp_avg_sq" if optimizer == "adam" else "sum")].shape == ()  # of the scale
    assert "model.norm.running_var" in tensors


def test_a_run_that_was_interrupted_continues_to_the_same_bits(tmp_path: Path) -> None:
    graph = ring_graph()
    steps: list[int] = []

    def stop() -> bool:
        steps.append(1)
        return len(steps) == 7

    settings = {**FEW, "checkpoint_every": 3, "valid_every": 4, "negatives": 4}
    eans.train(graph, "perceptron", "eans+adv", out=tmp_path / "whole", **settings)
    given = {key: value for key, value in settings.items() if key != "device"}
    recipe = choose_recipe(graph, "perceptron", "eans+adv", None, given)
    with pytest.raises(Interrupted):
        start(recipe, graph, tmp_path / "cut", "cpu", Listener(stop=stop))
    eans.resume(tmp_path / "cut", device="cpu")
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")


def test_a_saved_run_scores_the_same(tmp_path: Path) -> None:
    graph = ring_graph()
    run = eans.train(graph, "perceptron", "uniform", out=tmp_path / "run", hidden_dropout=0.4, **FEW)
    again = eans.Run.load(tmp_path / "run")
    assert again.recipe.model.hidden_dropout == 0.4
    assert same(again.model.state_dict(), run.model.state_dict())
    assert torch.equal(again.model.score(graph.train), run.model.score(graph.train))
    assert again.evaluate("test")["test"] == run.metrics["test"]
    names = eans.predict(again.model, graph, head="e0", relation="plus1", k=3).names
    assert len(names) == 3
    assert len(eans.predict(again.model, graph, head="e0", tail="e1", k=2, known="mark")) == 2
    assert eans.inspect_run(tmp_path / "run", device="cpu").measurements


def test_the_best_weights_come_back_with_their_buffers() -> None:
    trainer = make()
    trainer.step()
    store = MemoryStore()
    store.save_best(trainer.model)
    kept = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.step()
    assert not same(dict(trainer.model.state_dict()), kept)
    store.load_best(trainer.model)
    assert same(dict(trainer.model.state_dict()), kept)


def test_buffers_are_checked_before_they_are_saved() -> None:
    trainer = make()
    trainer.step()
    assert trainer.is_sound()
    assert isinstance(trainer.model, Perceptron)
    trainer.model.norm.running_var[0] = torch.inf
    assert not trainer.is_sound()


def test_it_learns() -> None:
    graph = ring_graph()
    untrained = rank(make(graph=graph).model, graph).summary()["both"]["mrr"]
    for method in ("all", "uniform"):
        settings = {"train__steps": 400, "model__dim": 16, "train__valid_every": 0}
        if method == "all":
            settings |= {key.replace(".", "__"): value for key, value in ALL.items()}
        trainer = make("uniform", graph, **settings)
        for _ in range(400):
            trainer.step()
        # The training triples: those held out of a ring need a translation.
        ranks = rank(trainer.model, KnowledgeGraph("ring", graph.entities, graph.relations, *[graph.train] * 3))
        assert ranks.summary()["both"]["mrr"] > 0.35 > 3 * untrained


# --- what cannot be ---------------------------------------------------------------------------------------------------


def test_a_batch_too_small_for_batch_norm() -> None:
    with pytest.raises(UsageError) as caught:
        make(train__batch_size=1)
    assert str(caught.value) == (
        "train.batch_size is 1, but model 'perceptron' has layers that normalise over the batch; set at least 2"
    )


def test_tails_alone_need_reciprocal_relations() -> None:
    with pytest.raises(UsageError) as caught:
        make(model__reciprocal=False)
    assert str(caught.value) == "model 'perceptron' has head queries by inverse relations: set model.reciprocal=true"


def test_what_cannot_be_captured_is_not() -> None:
    """On a GPU; the calls of a model that says so go through from the first on."""
    assert make().stepper.work.enabled == torch.cuda.is_available()
    assert not CapturedWork(lambda *batch: batch, torch.Generator(), torch.device("cpu"), False).enabled
    assert not Impatient.capturable
    assert Perceptron.capturable
