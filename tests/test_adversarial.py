"""KBGAN and IGAN: the REINFORCE step worked by hand, learning, the switch of phases, exact resumption, memory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import eans
from eans import kernels
from eans.errors import Interrupted, UsageError
from eans.graph import SIDES, KnowledgeGraph, Side, column
from eans.models import MODELS, Scores
from eans.objective import total
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.samplers import IGAN, KBGAN, SAMPLERS, Negatives, StepOutcome
from eans.samplers.adversarial import Adversarial, BufferedAdam, draw_places, pick
from eans.samplers.igan import COPIES
from eans.training import Trainer
from helpers_runs import outcome, ring_graph

NAMES = ("kbgan", "igan")
both = pytest.mark.parametrize("name", NAMES)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(name: str, graph: KnowledgeGraph, negatives: int = 8, **options: Any) -> Adversarial:
    sampler = SAMPLERS[name](graph, negatives, **options)
    assert isinstance(sampler, Adversarial)
    return sampler


def report(step: int, triples: Tensor, side: Side, negatives: Negatives, scores: Scores) -> StepOutcome:
    """An outcome for samplers that must not look at the model."""
    return StepOutcome(step, None, triples, side, negatives, scores, seeded(step))  # type: ignore[arg-type]


def toy_scores(entities: Tensor) -> Tensor:
    """A discriminator that falls for every fifth entity."""
    return torch.where(entities % 5 == 0, 2.0, -2.0)


def play(sampler: Adversarial, triples: Tensor, steps: int, first: int = 1) -> None:
    for step in range(first, first + steps):
        side = SIDES[step % 2]
        negatives = sampler.sample(triples, side, seeded(step))
        scores = Scores(torch.zeros(len(triples)), toy_scores(negatives.entities), None)
        sampler.observe(report(step, triples, side, negatives, scores))


# --- parts --------------------------------------------------------------------------------------------------------


def test_draws_follow_the_softmax():
    logits = torch.tensor([[0.0, 1.0, -2.0, 0.5], [-1e4, 0.0, -1e4, -1e4], [3.0, 3.0, -1e9, 3.0]])
    places = draw_places(logits, 40_000, seeded())
    for row, expected in zip(places, torch.softmax(logits, 1), strict=True):
        found = torch.bincount(row, minlength=4) / len(row)
        torch.testing.assert_close(found, expected, rtol=0, atol=0.01)
    assert (places[1] == 1).all()
    assert not (places[2] == 2).any()


def test_draws_stay_inside_whatever_the_logits():
    broken = torch.tensor([[math.nan, 0.0], [math.inf, 0.0], [0.0, 0.0]])
    assert set(draw_places(broken, 50, seeded()).unique().tolist()) <= {0, 1}


def test_pick_is_gather():
    values = torch.randn(3, 5, dtype=torch.float64, generator=seeded(), requires_grad=True)
    places = torch.tensor([[0, 4, 4, 4], [1, 1, 2, 0], [3, 3, 3, 3]])
    upstream = torch.randn(3, 4, dtype=torch.float64, generator=seeded(1))
    torch.testing.assert_close(pick(values, places), values.gather(1, places))
    (found,) = torch.autograd.grad(pick(values, places), values, upstream)
    (wanted,) = torch.autograd.grad(values.gather(1, places), values, upstream)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_is_adam(decay):
    values = [torch.randn(4, 3, generator=seeded()), torch.randn(5, generator=seeded(1))]
    mine, theirs = ([torch.nn.Parameter(value.clone()) for value in values] for _ in range(2))
    ours = BufferedAdam(mine, 0.01, decay)
    reference = torch.optim.Adam(theirs, lr=0.01, weight_decay=decay)
    for step in range(5):
        gradients = [torch.randn(value.shape, generator=seeded(step + 9)) for value in values]
        ours.step(mine, [gradient.clone() for gradient in gradients])
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient
        reference.step()
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b)
    assert ours.get_buffer("step_1") == 5


# --- REINFORCE ----------------------------------------------------------------------------------------------------


def watch_gradients(sampler: Adversarial, monkeypatch: pytest.MonkeyPatch) -> list[list[Tensor]]:
    """The gradients of each policy step, which is not taken."""
    seen: list[list[Tensor]] = []
    monkeypatch.setattr(sampler.adam, "step", lambda _, gradients: seen.append(gradients))
    return seen


def test_kbgan_step_by_hand(monkeypatch):
    """Pool of two with logits 0 and ln 3: probabilities 1/4 and 3/4.

    Rewards less baseline of the draws: 2 and 0 for place 1; the third draw is known to be true. The loss is
    ``-(2 ln p_1 + 0 ln p_1) / 2``, its gradient for the logits ``-(1 - p_1) = -1/4`` at place 1 and ``p_0 = 1/4`` at
    place 0; an entity's own gradient is that times ``h r = 2 * 0.5``.
    """
    graph = KnowledgeGraph.from_labels([("a", "r", "b"), ("a", "r", "c"), ("a", "r", "d")])
    sampler = KBGAN(graph, 3, pool=2, width=1, pretrain_steps=0)
    with torch.no_grad():
        sampler.policy.entity.copy_(torch.tensor([[2.0], [0.0], [math.log(3)], [9.0]]))
        sampler.policy.relation.copy_(torch.tensor([[0.5], [7.0]]))
    sampler.baseline.fill_(0.5)
    seen = watch_gradients(sampler, monkeypatch)
    chosen = torch.tensor([[2, 2, 1]])
    known = torch.tensor([[False, False, True]])
    notes = chosen, torch.tensor([[1, 2]]), torch.tensor([[1, 1, 0]])
    scores = Scores(torch.zeros(1), torch.tensor([[2.5, 0.5, 40.0]]), None)
    sampler.observe(report(201, graph.train[:1], "tail", Negatives(chosen, known, None, notes), scores))
    ((entity, relation),) = seen
    # The head takes part in both logits: r (e_0 * 1/4 - e_1 * 1/4); the relation likewise with h.
    head = 0.5 * -math.log(3) / 4
    torch.testing.assert_close(entity[:, 0], torch.tensor([head, 0.25, -0.25, 0.0]))
    torch.testing.assert_close(relation[:, 0], torch.tensor([2.0 * -math.log(3) / 4, 0.0]))
    assert sampler.baseline.item() == pytest.approx(0.5 + 0.01 * (1.5 - 0.5))


def test_igan_step_by_hand(monkeypatch):
    """All logits equal: 1/4 each. Reward tanh(1 - 0) for a draw of entity 3, the other draw is masked; baseline 0."""
    graph = KnowledgeGraph.from_labels([("a", "r", "b"), ("a", "r", "c"), ("a", "r", "d")])
    sampler = IGAN(graph, 2, width=2, pretrain_steps=0)
    with torch.no_grad():
        sampler.policy.outer.zero_()
    seen = watch_gradients(sampler, monkeypatch)
    chosen, known = torch.tensor([[3, 1]]), torch.tensor([[False, True]])
    scores = Scores(torch.tensor([0.0]), torch.tensor([[1.0, 50.0]]), None)
    sampler.observe(report(1, graph.train[:1], "tail", Negatives(chosen, known, None, (chosen,)), scores))
    names = [name for name, _ in sampler.policy.named_parameters()]
    bias = seen[0][names.index("outer_bias")]
    torch.testing.assert_close(bias, math.tanh(1.0) * (0.25 - torch.tensor([0.0, 0.0, 0.0, 1.0])))
    assert sampler.baseline.item() == pytest.approx(math.tanh(1.0))  # the first step counts in full


@both
def test_without_a_reward_nothing_is_learnt(name, graph, monkeypatch):
    sampler = make(name, graph, pretrain_steps=0)
    seen = watch_gradients(sampler, monkeypatch)
    negatives = sampler.sample(graph.train, "tail", seeded())
    for known, score in ((True, 3.0), (False, math.inf), (False, math.nan)):
        masked = negatives._replace(known_true=torch.full_like(negatives.known_true, known))
        scores = Scores(torch.zeros(len(graph.train)), torch.full(masked.entities.shape, score), None)
        if name == "igan" and math.isinf(score):
            scores = scores._replace(positive=torch.full((len(graph.train),), math.inf))
        sampler.observe(report(5, graph.train, "tail", masked, scores))
        assert not any(gradient.any() for gradient in seen[-1])
        assert sampler.baseline == 0


@both
@pytest.mark.parametrize("options", [{"uniform_share": 0.5}, {"false_negatives": "resample"}], ids=str)
def test_only_own_draws_are_rewarded(name, options, make_graph, monkeypatch):
    graph = make_graph(12, 1, (100, 0, 0))
    sampler = make(name, graph, 16, pretrain_steps=0, **options)
    negatives = sampler.sample(graph.train, "tail", seeded())
    own = negatives.entities == negatives.notes[0]
    assert own.any()
    assert not own.all()
    seen = watch_gradients(sampler, monkeypatch)
    reward = torch.zeros(len(graph.train), 16)
    for value in (0.0, 0.5):  # what others are worth changes nothing
        scores = Scores(torch.zeros(len(graph.train)), torch.where(own, 0.3, reward + value), None)
        sampler.baseline.zero_()
        sampler.observe(report(1, graph.train, "tail", negatives, scores))
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))
    assert any(gradient.any() for gradient in seen[0])


@both
def test_the_generator_finds_what_the_discriminator_falls_for(name, make_graph):
    graph = make_graph(40, 2, (64, 0, 0))
    sampler = make(name, graph, 16, pretrain_steps=0, learning_rate=0.02, false_negatives="keep")
    before = (sampler.sample(graph.train, "tail", seeded()).entities % 5 == 0).double().mean()
    play(sampler, graph.train, 250)
    for side in SIDES:
        after = (sampler.sample(graph.train, side, seeded()).entities % 5 == 0).double().mean()
        assert before < 0.4
        assert after > 0.8, (side, after)


@both
def test_without_training_the_loss_is_a_policy_gradient(name, make_graph):
    """In expectation over draws a baseline changes nothing: more draws, and the two gradients meet."""
    graph = make_graph(6, 1, (4, 0, 0))
    sampler = make(name, graph, 50_000, pretrain_steps=0, false_negatives="keep")
    seen: list[list[Tensor]] = []
    sampler.adam.step = lambda _, gradients: seen.append(gradients)  # type: ignore[method-assign,misc,assignment]
    negatives = sampler.sample(graph.train, "tail", seeded())
    for baseline in (0.0, 1.0):
        sampler.baseline.fill_(baseline)
        scores = Scores(torch.zeros(4), toy_scores(negatives.entities), None)
        sampler.observe(report(9, graph.train, "tail", negatives, scores))
    for a, b in zip(*seen, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0.02)


# --- phases -------------------------------------------------------------------------------------------------------


@both
def test_pre_training_takes_1000_steps_unless_told_otherwise(name: str, graph: KnowledgeGraph) -> None:
    sampler = make(name, graph)
    for found in (sampler, load(f"default/transe/{name}").sampler):
        assert found.pretrain_steps == 1000
    for step in (1, 999, 1000):
        assert not sampler.playing
        play(sampler, graph.train, 1, first=step)
    assert sampler.playing


@both
def test_the_switch_is_a_flag_on_the_device(name, make_graph):
    graph = make_graph(40, 2, (64, 0, 0))
    sampler = make(name, graph, 16, pretrain_steps=3)
    flag = sampler.playing.data_ptr()
    for step in range(1, 6):
        assert bool(sampler.playing) == (step > 3)
        play(sampler, graph.train, 1, first=step)
    assert sampler.playing.data_ptr() == flag


@both
def test_draws_are_uniform_before_the_switch_and_the_policys_after(name, make_graph):
    graph = make_graph(40, 2, (64, 0, 0))
    sampler = make(name, graph, 64, pretrain_steps=3)
    plain = sampler.sample(graph.train, "tail", seeded())
    assert torch.bincount(plain.entities.reshape(-1), minlength=40).min() > 50  # 102 expected
    with torch.no_grad():
        for parameter in sampler.policy.parameters():
            parameter.mul_(8.0)
    assert torch.equal(sampler.sample(graph.train, "tail", seeded()).entities, plain.entities)
    sampler.playing.fill_(True)
    played = sampler.sample(graph.train, "tail", seeded())
    assert torch.equal(played.entities, played.notes[0])
    assert not torch.equal(played.entities, plain.entities)


@both
def test_pre_training_teaches_the_graph(name):
    graph = ring_graph()
    sampler = make(name, graph, 4, pretrain_steps=1000, learning_rate=0.01)

    def quality(side: Side) -> float:
        every_entity = torch.arange(graph.num_entities).expand(len(graph.train), -1)
        notes = (every_entity,) if name == "kbgan" else ()
        with torch.no_grad():
            return sampler.log_true(graph.train, side, notes).mean().item()

    before = {side: quality(side) for side in SIDES}
    policy = {key: value.clone() for key, value in sampler.policy.state_dict().items()}
    play(sampler, graph.train, 150)
    assert all(quality(side) > before[side] + 0.5 for side in SIDES)
    assert not any(torch.equal(policy[key], value) for key, value in sampler.policy.state_dict().items() if value.any())
    assert sampler.baseline.item() != 0.0  # rewards are followed from the first step


def test_the_true_entity_is_set_against_the_pool():
    graph = ring_graph()
    sampler = KBGAN(graph, 4, pool=7)
    negatives = sampler.sample(graph.train, "head", seeded())
    pool = negatives.notes[1]
    scores = sampler.policy.score_all(graph.train, "head")
    candidates = torch.cat([graph.train[:, :1], pool], 1)
    expected = torch.log_softmax(scores.gather(1, candidates), 1)[:, 0]
    torch.testing.assert_close(sampler.log_true(graph.train, "head", (pool,)), expected)
    assert torch.equal(negatives.notes[0], pool.gather(1, negatives.notes[2]))


# --- options ------------------------------------------------------------------------------------------------------


@both
def test_initial_tables_come_from_the_seed(name, graph):
    first, again, other = (make(name, graph, seed=seed).policy.state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["entity"], other["entity"])


@pytest.mark.parametrize("model", ["distmult", "complex"])
def test_kbgan_generators(model, graph):
    sampler = KBGAN(graph, 4, generator=model, width=6)
    assert type(sampler.policy) is MODELS[model]
    assert sampler.policy.entity.shape == (graph.num_entities, 6 if model == "distmult" else 12)
    play(sampler, graph.train, 3)


@both
@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_weight_decay_shrinks_what_nothing_else_moves(name, decay, make_graph):
    """Relation 1 of these triples is never asked for."""
    graph = make_graph(40, 2, (64, 0, 0))
    sampler = make(name, graph, weight_decay=decay)
    triples = graph.train[graph.train[:, 1] == 0]
    row = sampler.policy.get_parameter("relation")[1]
    before = row.detach().clone()
    play(sampler, triples, 2)
    assert torch.equal(row, before) == (decay == 0.0)
    assert decay == 0.0 or bool((row.abs() < before.abs()).all())


@pytest.mark.parametrize("side", SIDES)
def test_igan_knows_its_density(side: Side, make_graph):
    graph = make_graph(5, 1, (3, 0, 0))
    sampler = IGAN(graph, 60_000, pretrain_steps=1, false_negatives="keep")
    entities = torch.arange(5).expand(3, 5)
    torch.testing.assert_close(sampler.log_density(graph.train, side, entities).exp(), torch.full((3, 5), 0.2))
    sampler.playing.fill_(True)
    drawn = sampler.sample(graph.train, side, seeded()).entities
    shares = torch.stack([torch.bincount(row, minlength=5) for row in drawn]) / 60_000
    torch.testing.assert_close(sampler.log_density(graph.train, side, entities).exp(), shares, rtol=0, atol=0.01)
    with pytest.raises(UsageError, match="sampler 'kbgan' does not know the probability of its draws"):
        KBGAN(graph, 2).log_density(graph.train, side, entities)


def test_igan_raises_for_what_does_not_fit(make_graph):
    graph = make_graph(5000, 1, (64, 0, 0))
    sampler = IGAN(graph, 2, memory_limit_mb=4)
    sampler.sample(graph.train[:52], "tail", seeded())
    with pytest.raises(
        UsageError,
        match=r"^sampler 'igan' needs 5 MB for 53 positives and 5000 entities, but its memory_limit_mb is 4; raise",
    ):
        sampler.sample(graph.train[:53], "tail", seeded())
    settings = {"sampler.memory_limit_mb": 4, "train.batch_size": 53, "train.steps": 1}
    recipe = resolve(load("default/transe/igan", settings), graph)
    with pytest.raises(UsageError, match=r"sampler\.memory_limit_mb is 4; raise it, lower train\.batch_size, or"):
        build_trainer(recipe, graph)


@pytest.mark.parametrize("pretrain_steps", [0, 10])
def test_igan_keeps_to_its_bound(pretrain_steps, make_graph, meter):
    graph = make_graph(5000, 1, (64, 0, 0))
    sampler = IGAN(graph, 4, width=2, pretrain_steps=pretrain_steps)
    tables = sum(value.nbytes for value in sampler.policy.state_dict().values())
    with meter:
        negatives = sampler.sample(graph.train, "tail", seeded())
        scores = Scores(torch.zeros(64), toy_scores(negatives.entities), None)
        sampler.observe(report(1, graph.train, "tail", negatives, scores))
    assert meter.peak <= COPIES * 4 * 64 * 5000 + 3 * tables


# --- inside a run -------------------------------------------------------------------------------------------------


class NoWaiting(TorchDispatchMode):
    """Refuses what would make the host wait for a GPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.overloadpacket.__name__ not in ("_local_scalar_dense", "nonzero", "is_nonzero", "masked_select"), (
            func
        )
        return func(*args, **(kwargs or {}))


@both
@pytest.mark.parametrize("pretrain_steps", [0, 10])
def test_nothing_waits_for_the_device(name, pretrain_steps, graph, monkeypatch):
    monkeypatch.setattr(kernels.switch, "_choice", "reference")
    sampler = make(name, graph, pretrain_steps=pretrain_steps, uniform_share=0.1)
    with NoWaiting():
        negatives = sampler.sample(graph.train, "tail", seeded())
    scores = Scores(torch.zeros(len(graph.train)), toy_scores(negatives.entities), None)
    monkeypatch.setattr(torch, "unique", unique_without_sizes)
    with NoWaiting():
        sampler.observe(report(1, graph.train, "tail", negatives, scores))


def unique_without_sizes(ids: Tensor, return_inverse: bool) -> tuple[Tensor, Tensor]:
    """The reference kernel on a CPU looks at ids; on a GPU it does not."""
    assert return_inverse
    return torch.arange(int(ids.numpy().max()) + 1), ids


def trainer(method: str, **settings: Any) -> Trainer:
    graph = ring_graph()
    small = {"model.dim": 8, "sampler.negatives": 6, "train.batch_size": 32, "train.steps": 20}
    overrides = small | {"sampler.pretrain_steps": 6} | {key.replace("__", "."): v for key, v in settings.items()}
    return build_trainer(resolve(load(f"default/{method}", overrides), graph), graph)


@both
@pytest.mark.parametrize("stop", [3, 6, 7, 11])
def test_state_in_the_middle_continues_to_the_same_bits(name, stop):
    whole, first, second = (trainer(f"transe/{name}") for _ in range(3))
    expected = [total(whole.step()).item() for _ in range(20)]
    begun = [total(first.step()).item() for _ in range(stop)]
    tensors, values = first.state()
    second.load_state({key: value.clone() for key, value in tensors.items()}, values)
    assert begun + [total(second.step()).item() for _ in range(20 - stop)] == expected
    a, b = whole.state()[0], second.state()[0]
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert any(key.startswith("sampler.adam.average") for key in a)


@both
def test_an_interrupted_run_resumes_to_the_same_bits(name, tmp_path: Path):
    settings = {"dim": 8, "steps": 30, "negatives": 4, "pretrain_steps": 9, "checkpoint_every": 5, "batch_size": 32}
    settings |= {"log_every": 10}
    eans.train(ring_graph(), "transe", name, out=tmp_path / "whole", device="cpu", **settings)
    ticks: list[int] = []
    listener = eans.Listener(tick=ticks.append, stop=lambda: ticks[-1] == 13)
    with pytest.raises(Interrupted):
        eans.train(ring_graph(), "transe", name, out=tmp_path / "cut", device="cpu", listener=listener, **settings)
    eans.resume(tmp_path / "cut", device="cpu")
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")


@both
def test_the_trainer_leaves_the_generator_alone(name):
    """Its optimizer has the model's tables only, and the generator takes no part in the model's gradients."""
    one = trainer(f"distmult/{name}", sampler__pretrain_steps=0)
    owned = {id(table) for table in one.optimizer.tables}
    assert owned == {id(parameter) for parameter in one.model.parameters()}
    assert isinstance(one.sampler, Adversarial)
    before = [parameter.detach().clone() for parameter in one.sampler.policy.parameters()]
    one.sampler.adam.step = lambda *_: None  # type: ignore[method-assign]
    one.step()
    assert all(torch.equal(a, b) for a, b in zip(before, one.sampler.policy.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in one.sampler.policy.parameters())


def test_column_of_the_kept_entity():
    """A head query and a tail query of one (entity, relation) differ."""
    graph = ring_graph()
    sampler = IGAN(graph, 2)
    triples = graph.train[:5]
    swapped = triples[:, [2, 1, 0]]
    assert column("tail") == 2
    assert not torch.allclose(sampler.policy(triples, "tail"), sampler.policy(swapped, "head"))


@both
def test_once_it_plays_for_a_while_learning_is_part_of_the_step(name: str) -> None:
    """With the same bits as before, when it came after the step."""

    def trained(settles: bool) -> Trainer:
        graph = ring_graph()
        overrides = {"train.steps": 110, "train.batch_size": 16, "model.dim": 4, "sampler.pretrain_steps": 7}
        trainer = build_trainer(resolve(load(f"default/transe/{name}", overrides), graph), graph)
        sampler = trainer.sampler
        assert isinstance(sampler, Adversarial)
        if not settles:
            sampler.settled = 1000
        for _ in range(100):
            assert not trainer.execution.observes
            trainer.step()
        for _ in range(10):
            trainer.step()
            assert trainer.execution.observes is settles
        return trainer

    one, other = trained(True).state()[0], trained(False).state()[0]
    assert all(torch.equal(one[name], other[name]) for name in one)
