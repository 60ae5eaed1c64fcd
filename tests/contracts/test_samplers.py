"""Every registered sampler: shapes, labels against brute force, repeatability, state, and the smallest graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from eans.errors import UsageError
from eans.graph import SIDES, KnowledgeGraph, Side, column
from eans.kernels import repeats
from eans.models import MODELS, Model
from eans.samplers import SAMPLERS, Negatives, Sampler, StepOutcome, base

# Samplers whose first draws are uniform.
UNIFORM_AT_FIRST = {"uniform", "bernoulli", "kbgan", "igan"}
# The option sets in which a sampler is tested; one that is not listed is tested as it is.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "eans": [
        {},
        {"proposal": "block", "blocks": 3},
        {"proposal": "student"},
        {"order_epoch": 1},
        {"orders": 2, "inside": "inherited"},
        {"orders": 3, "proposal": "block", "blocks": 2},
    ],
    "frequency": [
        {},
        {"power": 0.5},
        {"counted_in": "place"},
        {"counted_in": "place", "power": 0.0},
    ],
    "nscaching": [
        {},
        {"size": 21, "candidates": 9, "draw": "importance", "update": "top"},
        {"size": 20, "candidates": 30, "draw": "top", "lazy": 1},
    ],
}
CASES = [(name, options) for name, kind in SAMPLERS.items() if kind.draws for options in OPTIONS.get(name, [{}])]
samplers = pytest.mark.parametrize(
    ("name", "options"),
    CASES,
    ids=["-".join(map(str, (name, *(part for pair in options.items() for part in pair)))) for name, options in CASES],
)
both_sides = pytest.mark.parametrize("side", SIDES)


def always_the_same(options: dict[str, Any]) -> bool:
    """Draws that no random number decides."""
    return options.get("draw") == "top"


def reaches_all(name: str, options: dict[str, Any]) -> bool:
    """Any entity may be drawn for any positive; a cache has no room for known answers, a place not for all entities."""
    return name != "nscaching" and options.get("counted_in") != "place"


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_model(graph: KnowledgeGraph, seed: int = 0) -> Model:
    return MODELS["transe"](graph.num_entities, graph.num_relations, 4, 1.0, seeded(seed))


def step(sampler: Sampler, model: Model, graph: KnowledgeGraph, number: int = 1) -> StepOutcome:
    """What the trainer hands over after a step."""
    triples = graph.train[:4]
    negatives = sampler.sample(triples, "tail", seeded(number))
    with torch.no_grad():
        scores = model.training_scores(triples, "tail", negatives.entities, "symmetric")
    return StepOutcome(number, model, triples, "tail", negatives, scores, seeded(number + 100))


def known_answers(graph: KnowledgeGraph, triple: list[int], side: Side) -> set[int]:
    """Entities that complete the triple in train."""
    at, anchor = column(side), 2 - column(side)
    return {row[at] for row in graph.train.tolist() if row[anchor] == triple[anchor] and row[1] == triple[1]}


def brute_labels(graph: KnowledgeGraph, triples: Tensor, side: Side, entities: Tensor, rule: str) -> list[list[bool]]:
    labels = []
    for triple, row in zip(triples.tolist(), entities.tolist(), strict=True):
        answers = known_answers(graph, triple, side)
        many = rule == "repeats-everywhere" or (rule == "repeats" and len(answers) >= 10 * len(row) ** 0.145)
        labels.append([e in answers or (many and e in row[j + 1 :]) for j, e in enumerate(row)])
    return labels


@pytest.fixture
def hub_graph() -> KnowledgeGraph:
    """60 entities; relation 0 links entity 0 to 1..40 and entity 1 to 1..12; other queries have one answer."""
    rows = [(0, 0, t) for t in range(1, 41)] + [(1, 0, t) for t in range(1, 13)] + [(h, 1, h - 1) for h in range(2, 60)]
    names = [f"e{i}" for i in range(60)]
    return KnowledgeGraph.from_labels(
        [(names[h], f"r{r}", names[t]) for h, r, t in sorted(rows, key=lambda row: (row[1] == 0, row))]
    )


# --- draws --------------------------------------------------------------------------------------------------------


@samplers
@both_sides
@pytest.mark.parametrize("negatives", [1, 17])
def test_shape_dtype_range(name, options, side, negatives, graph):
    sample = SAMPLERS[name](graph, negatives, **options).sample(graph.train[:9], side, seeded())
    assert isinstance(sample, Negatives)
    assert sample.entities.shape == sample.known_true.shape == (9, negatives)
    assert sample.entities.dtype == torch.int64
    assert sample.known_true.dtype == torch.bool
    assert sample.entities.min() >= 0
    assert sample.entities.max() < graph.num_entities


@samplers
@both_sides
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_the_generator_decides(name, options, side, share, make_graph):
    graph = make_graph(100, 3, (50, 0, 0))
    sampler = SAMPLERS[name](graph, 16, uniform_share=share, **options)
    first = sampler.sample(graph.train, side, seeded(1))
    torch.manual_seed(99)  # the global generator plays no part
    again = SAMPLERS[name](graph, 16, uniform_share=share, **options).sample(graph.train, side, seeded(1))
    other = sampler.sample(graph.train, side, seeded(2))
    assert torch.equal(first.entities, again.entities)
    assert torch.equal(first.known_true, again.known_true)
    assert torch.equal(first.entities, other.entities) == (always_the_same(options) and share == 0.0)
    assert not torch.equal(first.entities[0], first.entities[1])


@samplers
@both_sides
def test_sorted_candidates_are_the_same(name, options, side, make_graph):
    graph = make_graph(100, 3, (50, 0, 0))
    sampler = SAMPLERS[name](graph, 16, **options)
    plain = sampler.sample(graph.train, side, seeded(1))
    sampler.sorts = True
    found = sampler.sample(graph.train, side, seeded(1))
    assert torch.equal(found.entities.sort(1).values, plain.entities.sort(1).values)
    assert found.known_true.tolist() == brute_labels(graph, graph.train, side, found.entities, "exact")
    assert bool((found.entities.diff(dim=1) >= 0).all()) == sampler.can_sort


@samplers
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_uniform_share(name, options, share, make_graph):
    """Far from the positive entity 89.9 % of the uniform draws land, and a share of the others that is its own."""
    graph = make_graph(1000, 1, (10, 0, 0))
    options = {"sigma": 5.0} | options if name == "eans" else options

    def far(share: float) -> float:
        sampler = SAMPLERS[name](graph, 4000, uniform_share=share, **options)
        offset = (sampler.propose(graph.train, "tail", seeded()) - graph.train[:, 2:]).abs()
        return float((torch.minimum(offset, 1000 - offset) > 50).double().mean())

    own = far(0.0)
    if name in UNIFORM_AT_FIRST:
        assert own == pytest.approx(0.899, abs=0.01)
    elif name == "eans" and "proposal" not in options:
        assert own == 0.0
    assert far(share) == pytest.approx((1.0 - share) * own + share * 0.899, abs=0.01)


@samplers
@pytest.mark.parametrize("entities", [1, 2, 3, 100])
@pytest.mark.parametrize("side", SIDES)
def test_small_graphs(name, options, entities, side, make_graph):
    graph = make_graph(entities, 1, (6, 0, 0))
    sampler = SAMPLERS[name](graph, 50, **options)
    model = small_model(graph)
    for number in (1, 2):
        sampler.observe(step(sampler, model, graph, number))
        sample = sampler.sample(graph.train, side, seeded(number))
        assert set(sample.entities.unique().tolist()) <= set(range(entities))
    if entities <= 3 and reaches_all(name, options):
        assert set(sample.entities.unique().tolist()) == set(range(entities))


@samplers
@both_sides
@pytest.mark.parametrize("policy", ["mask", "resample", "keep"])
def test_draws_can_be_recorded(name, options, side, policy, make_graph, no_waiting, monkeypatch):
    """Nothing in a draw waits for a GPU."""
    monkeypatch.setattr(base, "can_branch_on", lambda _: False)  # as on a GPU
    graph = make_graph(30)
    sampler, generator = SAMPLERS[name](graph, 8, false_negatives=policy, uniform_share=0.2, **options), seeded()
    with no_waiting:
        sampler.sample(graph.train, side, generator)


@samplers
@both_sides
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_probabilities_add_up_or_raise(name, options, side, share, make_graph):
    graph = make_graph(30)
    sampler = SAMPLERS[name](graph, 8, uniform_share=share, **options)
    everything = torch.arange(30).expand(len(graph.train), -1)
    assert sampler.knows_proposal == (type(sampler).log_density is not Sampler.log_density)
    if not sampler.knows_proposal:
        with pytest.raises(UsageError, match="does not know the probability of its draws"):
            sampler.log_proposal(graph.train, side, everything)
        return
    density = sampler.log_proposal(graph.train, side, everything)
    assert density.shape == everything.shape
    torch.testing.assert_close(density.double().exp().sum(1), torch.ones(len(everything)).double())


# --- labels -------------------------------------------------------------------------------------------------------


@samplers
@both_sides
@pytest.mark.parametrize("rule", ["exact", "repeats", "repeats-everywhere"])
def test_labels_against_brute_force(name, options, side, rule, graph, hub_graph):
    for source in (graph, hub_graph):
        sampler = SAMPLERS[name](source, 20, known_true=rule, **options)
        sample = sampler.sample(source.train, side, seeded(4))
        expected = brute_labels(source, source.train, side, sample.entities, rule)
        assert sample.known_true.tolist() == expected
        assert 0.0 < sample.known_true.double().mean() < 1.0


def test_the_rules_differ_on_these_graphs(hub_graph):
    """Rows with 40 and with 12 answers stand on either side of 10 * 20 ** 0.145 = 15.4."""
    entities = torch.tensor([[0] * 19 + [59]])
    for head, rule, labelled in [
        (0, "repeats", 18),
        (1, "repeats", 0),
        (1, "repeats-everywhere", 18),
        (0, "exact", 0),
    ]:
        triple = torch.tensor([[hub_graph.entities.id(f"e{head}"), hub_graph.relations.id("r0"), 0]])
        sampler = SAMPLERS["uniform"](hub_graph, 20, known_true=rule)
        ids = torch.tensor([hub_graph.entities.id(f"e{i}") for i in entities[0].tolist()])[None]
        sampler.draw = lambda *_, ids=ids: ids
        assert sampler.sample(triple, "tail", seeded()).known_true.sum() == labelled, (head, rule)


@pytest.mark.parametrize(("negatives", "threshold"), [(2, 11.0573), (20, 15.4401), (256, 22.3457), (1024, 27.3208)])
def test_how_many_answers_make_repeats_false(negatives: int, threshold: float) -> None:
    """``10 N**0.145``: entity k has k answers; of N equal draws all but the last are labelled from there on."""
    names = [f"e{i:02}" for i in range(40)]
    graph = KnowledgeGraph.from_labels([(names[h], "r", names[t]) for h in range(40) for t in range(h)])
    heads = torch.tensor([graph.entities.id(name) for name in names[1:]])
    triples = torch.stack([heads, torch.zeros_like(heads), torch.full_like(heads, graph.entities.id(names[0]))], 1)
    sampler = SAMPLERS["uniform"](graph, negatives, known_true="repeats")
    assert sampler.repeats_from == pytest.approx(threshold, rel=1e-5)
    last = torch.full((len(heads), negatives), graph.entities.id(names[39]))  # answers none of them
    sampler.draw = lambda *_: last  # type: ignore[method-assign]
    labelled = sampler.sample(triples, "tail", seeded()).known_true.sum(1)
    assert labelled.tolist() == [negatives - 1 if answers >= threshold else 0 for answers in range(1, 40)]


def test_a_single_draw_cannot_repeat(hub_graph):
    labels = [
        SAMPLERS["uniform"](hub_graph, 1, known_true=rule).sample(hub_graph.train, "tail", seeded(1)).known_true
        for rule in ("exact", "repeats", "repeats-everywhere")
    ]
    assert torch.equal(labels[0], labels[1])
    assert torch.equal(labels[0], labels[2])


def test_repeats_marks_all_but_the_last():
    rows = torch.tensor([[3, 1, 3, 3, 1], [0, 1, 2, 3, 4], [2, 2, 2, 2, 2]])
    assert repeats(rows).int().tolist() == [[1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 0]]
    assert repeats(torch.tensor([[7]])).tolist() == [[False]]


@samplers
@both_sides
def test_keep_labels_nothing(name, options, side, hub_graph):
    kept = SAMPLERS[name](hub_graph, 20, false_negatives="keep", **options).sample(hub_graph.train, side, seeded(4))
    masked = SAMPLERS[name](hub_graph, 20, **options).sample(hub_graph.train, side, seeded(4))
    assert torch.equal(kept.entities, masked.entities)
    assert masked.known_true.any()
    assert not kept.known_true.any()


@samplers
@both_sides
def test_resample_replaces_only_false_negatives(name, options, side, hub_graph):
    sampler = SAMPLERS[name](hub_graph, 20, false_negatives="resample", **options)
    sample = sampler.sample(hub_graph.train, side, seeded(4))
    masked = SAMPLERS[name](hub_graph, 20, **options).sample(hub_graph.train, side, seeded(4))
    assert sample.known_true.tolist() == brute_labels(hub_graph, hub_graph.train, side, sample.entities, "exact")
    if always_the_same(options):
        assert torch.equal(sample.entities, masked.entities)
    else:
        # Close to some positives nearly every entity is a known answer.
        left = 1.0 if "proposal" in options else 0.1
        assert sample.known_true.sum() < left * masked.known_true.sum()
    assert torch.equal(sample.entities[~masked.known_true], masked.entities[~masked.known_true])


@samplers
@both_sides
def test_resample_for_all_rows_and_rounds_at_once(name, options, side, hub_graph, monkeypatch):
    """As on a GPU, where what was drawn is not looked at."""
    sampler = SAMPLERS[name](hub_graph, 20, false_negatives="resample", **options)
    masked = SAMPLERS[name](hub_graph, 20, **options).sample(hub_graph.train, side, seeded(4))
    usual = sampler.sample(hub_graph.train, side, seeded(4))
    monkeypatch.setattr(base, "can_branch_on", lambda _: False)
    sample = sampler.sample(hub_graph.train, side, seeded(4))
    assert sample.known_true.tolist() == brute_labels(hub_graph, hub_graph.train, side, sample.entities, "exact")
    assert torch.equal(sample.entities[~masked.known_true], masked.entities[~masked.known_true])
    # Both give up on few, after as many rounds.
    assert (sample.known_true.sum() - usual.known_true.sum()).abs() <= 0.05 * masked.known_true.sum()
    nothing = sampler.sample(hub_graph.train[:0], side, seeded(4))
    assert nothing.entities.shape == nothing.known_true.shape == (0, 20)


@pytest.mark.parametrize("looks", [True, False])
def test_what_is_drawn_again_is_for_the_same_positive(looks, make_graph, monkeypatch):
    """Blocks of a line: draws stay in that of their positive, the first as well as the later ones."""
    monkeypatch.setattr(base, "can_branch_on", lambda _: looks)
    graph = make_graph(60)
    sampler = SAMPLERS["eans"](graph, 30, false_negatives="resample", clusters=6, proposal="block", sigma=5.0)
    sample = sampler.sample(graph.train, "tail", seeded(1))
    inside = sampler.log_density(graph.train, "tail", sample.entities) > -torch.inf
    assert inside.all()
    masked = SAMPLERS["eans"](graph, 30, clusters=6, proposal="block", sigma=5.0).sample(graph.train, "tail", seeded(1))
    assert (sample.entities != masked.entities).any()


def test_resampling_ends_when_nothing_is_left_to_replace(monkeypatch):
    graph = KnowledgeGraph.from_labels([("a", "r", "b"), *(("b", "s", t) for t in "cdefgh")])
    sampler = SAMPLERS["uniform"](graph, 4, false_negatives="resample")
    rounds = []
    propose = sampler.propose
    monkeypatch.setattr(sampler, "propose", lambda *arguments: rounds.append(1) or propose(*arguments))
    for seed in range(20):
        assert not sampler.sample(graph.train[:1], "tail", seeded(seed)).known_true.any()
    assert len(rounds) < 20 * 3


@samplers
@pytest.mark.parametrize("looks", [True, False])
def test_resample_gives_up_and_labels_what_is_left(name, options, looks, monkeypatch):
    """Every entity answers the query, so no true negative exists."""
    monkeypatch.setattr(base, "can_branch_on", lambda _: looks)
    graph = KnowledgeGraph.from_labels([("a", "r", t) for t in "abc"])
    sample = SAMPLERS[name](graph, 4, false_negatives="resample", **options).sample(graph.train, "tail", seeded())
    assert sample.known_true.all()


@samplers
@pytest.mark.parametrize("policy", ["keep", "resample"])
@pytest.mark.parametrize("rule", ["repeats", "repeats-everywhere"])
def test_repeat_labels_need_masking(name, options, policy, rule, graph):
    with pytest.raises(UsageError, match=r"known_true .* needs sampler.false_negatives 'mask'"):
        SAMPLERS[name](graph, 4, known_true=rule, false_negatives=policy, **options)


@samplers
def test_labels_depend_on_train_alone(name, options):
    """A triple of valid or test must not leak into training."""
    train = [("a", "r", "b"), ("b", "r", "c")]
    graph = KnowledgeGraph.from_labels(train, valid=[("a", "r", "c")], test=[("a", "r", "a")])
    sample = SAMPLERS[name](graph, 200, **options).sample(graph.train[:1], "tail", seeded())
    assert set(sample.entities[sample.known_true].tolist()) == {1}
    assert set(sample.entities[~sample.known_true].tolist()) == (
        {2} if options.get("counted_in") == "place" else {0, 2}
    )


# --- state --------------------------------------------------------------------------------------------------------


@samplers
def test_observing_leaves_the_model_alone(name, options, make_graph):
    graph = make_graph(30)
    model, sampler = small_model(graph), SAMPLERS[name](graph, 8, **options)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    outcome = step(sampler, model, graph)
    drawn = outcome.negatives.entities.clone()
    sampler.observe(outcome)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(outcome.negatives.entities, drawn)


@samplers
@both_sides
def test_state_survives_a_round_trip(name, options, side, make_graph, tmp_path):
    """After an ordering, a fresh sampler with the saved state draws the same, now and after the next ordering."""
    graph = make_graph(50)
    sampler, fresh = SAMPLERS[name](graph, 8, **options), SAMPLERS[name](graph, 8, **options)
    sampler.observe(step(sampler, small_model(graph), graph))
    torch.save(sampler.state_dict(), tmp_path / "state.pt")
    fresh.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    unordered = SAMPLERS[name](graph, 8, **options).sample(graph.train, side, seeded(5)).entities
    for number in (1, 1001):
        a, b = (one.sample(graph.train, side, seeded(5)) for one in (sampler, fresh))
        assert torch.equal(a.entities, b.entities)
        assert torch.equal(a.known_true, b.known_true)
        if name == "eans" or (name == "nscaching" and side == "tail"):
            assert not torch.equal(a.entities, unordered)
        model = small_model(graph, seed=number)
        outcome = step(sampler, model, graph, number)
        sampler.observe(outcome)
        fresh.observe(StepOutcome(**(vars(outcome) | {"generator": seeded(number + 100)})))
        for key, value in sampler.state_dict().items():
            assert torch.equal(value, fresh.state_dict()[key])


@samplers
def test_state_before_the_first_step_loads_into_a_used_sampler(name, options, make_graph):
    graph = make_graph(50)
    used, fresh = SAMPLERS[name](graph, 8, **options), SAMPLERS[name](graph, 8, **options)
    used.observe(step(used, small_model(graph), graph))
    used.load_state_dict(fresh.state_dict())
    a, b = (one.sample(graph.train, "tail", seeded(5)).entities for one in (used, fresh))
    assert torch.equal(a, b)


@samplers
def test_placing_on_the_same_device_changes_nothing(name, options, graph):
    sampler, placed = SAMPLERS[name](graph, 8, **options), SAMPLERS[name](graph, 8, **options)
    placed.place("cpu")
    a, b = (one.sample(graph.train, "head", seeded(5)) for one in (sampler, placed))
    assert torch.equal(a.entities, b.entities)
    assert torch.equal(a.known_true, b.known_true)


# --- no negatives -------------------------------------------------------------------------------------------------


@both_sides
@pytest.mark.parametrize("policy", ["mask", "resample", "keep"])
def test_none_draws_nothing(side, policy, graph):
    sample = SAMPLERS["none"](graph, 0, false_negatives=policy).sample(graph.train[:9], side, seeded())
    assert sample.entities.shape == sample.known_true.shape == (9, 0)
    assert (sample.entities.dtype, sample.known_true.dtype) == (torch.int64, torch.bool)


@pytest.mark.parametrize("name", SAMPLERS)
def test_no_negatives_are_for_none_alone(name, graph):
    wrong = 0 if SAMPLERS[name].draws else 3
    with pytest.raises(UsageError, match=r"^[^\n]*sampler.negatives is \d[^\n]*; set [^\n]*$"):
        SAMPLERS[name](graph, wrong)
