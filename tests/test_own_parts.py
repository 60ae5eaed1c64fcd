"""A loss, a penalty, a model and a sampler of one's own: one class and one line in a registry, then `eans.train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

import eans
from eans.errors import UsageError
from eans.losses import LOSSES, Loss
from eans.models import MODELS, Model, Positives, Query
from eans.options import Option
from eans.penalties import PENALTIES, Term
from eans.recipes import all_keys, key_groups, load
from eans.samplers import SAMPLERS, Sampler
from eans.types import Capability, LossTerms, Scores, Side
from helpers_runs import ring_graph

FEW: dict[str, Any] = {"dim": 6, "negatives": 4, "batch_size": 16, "steps": 20, "lr": 0.05, "log_every": 10}
FEW |= {"device": "cpu"}
# The recipe of another model, with the model's name replaced.
OFFSET: dict[str, Any] = {"model": "transe", "sampler": "uniform", "model.name": "offset"}


class SquaredLoss(Loss):
    """Positives at least 1, negatives at most -1, by squares; the second term by itself."""

    terms = ("high", "low")

    def forward(
        self, scores: Scores, known_true: Tensor, weight: Tensor, log_proposal: Tensor | None = None
    ) -> LossTerms:
        del log_proposal
        share = weight / weight.sum()
        high = (share * (1.0 - scores.positive).clamp(min=0).square()).sum()
        low = (1.0 + scores.negative).clamp(min=0).square().masked_fill(known_true, 0.0)
        return {"high": high, "low": (share * low.mean(1)).sum()}


class LargestTail(Term):
    """The largest coordinate of the batch's tails."""

    name = "largest-tail"

    def value(self, model: Model, positives: Positives) -> Tensor:
        assert positives.rows.tail.shape == (16, model.dim)
        return positives.rows.tail.abs().max()


class ClosedFormOnly(LargestTail):
    """Only for models whose scores have a closed form of their sum."""

    name = "closed-form-only"
    needs = (Capability.CLOSED_FORM_SUM,)


class Offset(Model):
    """``score = <h + r, t>``."""

    comparison = "dot"

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Query:
        return Query(anchor + relation if side == "tail" else anchor - relation)


class Neighbours(Sampler):
    """The entities whose ids follow that of the positive, with an option of its own."""

    def __init__(
        self,
        graph: eans.KnowledgeGraph,
        negatives: int,
        stride: Annotated[int, Option("difference of the ids of neighbours", ge=1, le=9)] = 1,
        **options: Any,
    ) -> None:
        super().__init__(graph, negatives, **options)
        self.stride = stride

    def draw(self, triples: Tensor, side: Side, generator: torch.Generator) -> Tensor:
        del generator
        positive = triples[:, 2 if side == "tail" else 0, None]
        ahead = torch.arange(1, 1 + self.negatives, device=triples.device)
        return (positive + self.stride * ahead) % self.num_entities


@pytest.fixture(autouse=True)
def own_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOSSES, "squared", SquaredLoss)
    monkeypatch.setitem(PENALTIES, "largest-tail", LargestTail)
    monkeypatch.setitem(PENALTIES, "closed-form-only", ClosedFormOnly)
    monkeypatch.setitem(MODELS, "offset", Offset)
    monkeypatch.setitem(SAMPLERS, "neighbours", Neighbours)


def losses(run: eans.Run) -> list[dict[str, Any]]:
    return [record for record in run.history if "loss" in record]


def test_a_loss(tmp_path: Path) -> None:
    """Its terms are columns of the log, and its run is opened and inspected like any other."""
    run = eans.train(
        ring_graph(),
        "distmult",
        "uniform",
        out=tmp_path / "run",
        **{"loss.name": "squared", "loss.penalty": "none"},
        **FEW,
    )
    first, last = losses(run)
    assert list(first)[:4] == ["step", "loss", "high", "low"]
    assert first["loss"] == pytest.approx(first["high"] + first["low"], rel=1e-5)
    assert last["loss"] < first["loss"]
    assert eans.Run.load(tmp_path / "run").recipe.loss.name == "squared"
    (measurement,) = eans.inspect_run(tmp_path / "run", device="cpu").measurements
    assert measurement.gap is not None
    assert measurement.idle is None  # the loss declares no bound of its gradients


def test_a_penalty() -> None:
    graph = ring_graph()
    free = eans.train(graph, "transe", "uniform", **FEW)
    run = eans.train(graph, "transe", "uniform", penalty="largest-tail", penalty_weight=50.0, **FEW)
    first, last = losses(run)
    assert 0.0 < last["largest-tail"] < first["largest-tail"]
    assert first["loss"] == pytest.approx(first["positive"] + first["negative"] + first["largest-tail"], rel=1e-5)
    assert run.model.entity.abs().max() < free.model.entity.abs().max()


def test_a_penalty_that_needs_what_a_model_cannot() -> None:
    """The message comes from what both declare, and lists the models of the registry that fit."""
    with pytest.raises(UsageError) as caught:
        eans.train(ring_graph(), **OFFSET, penalty="closed-form-only", penalty_weight=1.0, **FEW)
    assert str(caught.value) == (
        "model 'offset' has no closed form of the sum over all triples, which loss.penalty 'closed-form-only' needs; "
        "set another loss.penalty, or model.name to 'distmult' or 'simple'"
    )


def test_a_model() -> None:
    graph = ring_graph()
    run = eans.train(graph, **(OFFSET | {"sampler": "eans+adv"}), **FEW)
    head, relation, tail = graph.train[0].tolist()
    row = run.model.entity[head] + run.model.relation[relation]
    assert run.model.score(graph.train[:1]).item() == pytest.approx((row @ run.model.entity[tail]).item(), rel=1e-5)
    assert run.metrics["test"]["both"]["mrr"] > 0
    # A dot product, so with the capabilities of one.
    assert len(losses(eans.train(graph, **OFFSET, dropout=0.2, **FEW))) == 2
    with pytest.raises(UsageError, match=r"'offset' is not linear in the relation, which loss\.relation_weight needs"):
        eans.train(graph, **OFFSET, relation_weight=1.0, **FEW)


def test_a_sampler() -> None:
    graph = ring_graph()
    run = eans.train(graph, "transe", "uniform", **{"sampler.name": "neighbours"}, **FEW)
    assert len(losses(run)) == 2
    assert softplus(run.model.score(graph.train[:1])).isfinite()
    with pytest.raises(UsageError, match="sampler 'neighbours' does not know the probability of its draws"):
        eans.train(graph, "transe", "softmax", **{"sampler.name": "neighbours"}, **FEW)


def test_an_option_of_a_sampler(tmp_path: Path) -> None:
    """Declared in the constructor alone: overrides, keyword arguments, the list of keys and run folders know it."""
    sampler = {"sampler.name": "neighbours"}
    runs = [eans.train(ring_graph(), "transe", "uniform", **sampler, **FEW, stride=stride) for stride in (1, 3)]
    assert not torch.equal(runs[0].model.entity, runs[1].model.entity)
    eans.train(ring_graph(), "transe", "uniform", out=tmp_path / "run", **sampler, **FEW, stride=3)
    assert eans.Run.load(tmp_path / "run").recipe.sampler.stride == 3
    assert "stride = 3" in (tmp_path / "run" / "recipe.toml").read_text("utf-8")
    assert load("transe/uniform", ["sampler.name=neighbours", "sampler.stride=2"]).sampler.stride == 2
    assert load("transe/neighbours").sampler.stride == 1
    assert "sampler.stride" in all_keys()
    (group,) = [group for group in key_groups() if group.owners == "sampler.name neighbours"]
    assert group.keys == (("sampler.stride", 1, "difference of the ids of neighbours"),)
    for text, message in (
        ("sampler.stride=10", "recipe key 'sampler.stride' = 10: Input should be less than or equal to 9"),
        ("sampler.strid=2", "unknown recipe key 'sampler.strid'; did you mean 'sampler.stride'?"),
        ("sampler.sigma=2.0", "sampler.sigma belongs to sampler.name 'eans'; sampler.name is 'neighbours'"),
    ):
        with pytest.raises(UsageError) as caught:
            load("transe/neighbours", [text])
        assert message in str(caught.value)
