"""Every registered model: its scores equal the textbook formula along every path, and its gradients are right."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from eans.compatibility import can
from eans.errors import UsageError
from eans.graph import SIDES, Side, column
from eans.kernels import blocks
from eans.models import MODELS, ConvE, Model, TransD, TransR, learning
from eans.models.query import substitution_queries
from eans.types import Capability
from helpers_runs import as_if_trained

ENTITIES, RELATIONS, DIM = 7, 3, 5
CASES = [pytest.param(name, {}, id=name) for name in MODELS] + [
    pytest.param("transd", {"projection": "entity-table"}, id="transd-entity-table"),
    *(
        pytest.param(name, {"bounded": True, "score_scale": 3.0, "score_shift": -0.7}, id=f"{name}-bounded")
        for name in ("distmult", "simple")
    ),
    pytest.param("transr", {"relation_dim": 4}, id="transr-narrow"),
    pytest.param("transr", {"relation_dim": 7}, id="transr-wide"),
]
models = pytest.mark.parametrize(("name", "options"), CASES)
DISTANCES = [name for name, kind in MODELS.items() if kind.comparison != "dot"]
dot_products = pytest.mark.parametrize(("name", "options"), [c for c in CASES if c.values[0] not in DISTANCES])
both_sides = pytest.mark.parametrize("side", SIDES)
substitutions = pytest.mark.parametrize("substitution", ["symmetric", "one-way"])


def build(name: str, options: dict[str, Any], seed: int = 0, sizes: tuple[int, int, int] = (7, 3, 5)) -> Model:
    """A float64 model whose coordinates are of order one, and whose layers are as if it had been trained."""
    generator = torch.Generator().manual_seed(seed)
    model = MODELS[name](*sizes, init_range=1.3, generator=generator, **options).double()
    return as_if_trained(model, generator)


# --- the formulas, one coordinate at a time -----------------------------------------------------------------------


def transe(model: Model, h: int, r: int, t: int) -> float:
    E, R = model.entity.tolist(), model.relation.tolist()
    return -sum(abs(E[h][i] + R[r][i] - E[t][i]) for i in range(model.dim))


def transd(model: TransD, h: int, r: int, t: int) -> float:
    d, E, R = model.dim, model.entity.tolist(), model.relation.tolist()
    r_p = R[r][d:] if model.projection == "relation" else E[r][d:]

    def moved(e: int) -> list[float]:
        product = sum(E[e][d + i] * E[e][i] for i in range(d))
        return [E[e][i] + product * r_p[i] for i in range(d)]

    return -sum(abs(a + R[r][i] - b) for i, (a, b) in enumerate(zip(moved(h), moved(t), strict=True)))


def multilinear_tables(model: Any) -> tuple[list[list[float]], list[list[float]], float, float]:
    """Entities, relations, factor and offset: those of the option `bounded`, or as they are."""
    if not model.bounded:
        return model.entity.tolist(), model.relation.tolist(), 1.0, 0.0
    # 3.0 and -0.7 are the options of CASES.
    return model.entity.tanh().tolist(), model.relation.tanh().tolist(), 3.0 / model.dim, -0.7


def distmult(model: Model, h: int, r: int, t: int) -> float:
    E, R, factor, offset = multilinear_tables(model)
    return factor * sum(E[h][i] * R[r][i] * E[t][i] for i in range(model.dim)) + offset


def simple(model: Model, h: int, r: int, t: int) -> float:
    E, R, factor, offset = multilinear_tables(model)
    d = model.dim
    forward = sum(E[h][i] * R[r][i] * E[t][d + i] for i in range(d))
    backward = sum(E[t][i] * R[r][d + i] * E[h][d + i] for i in range(d))
    return factor * (forward + backward) / 2 + offset


def as_complex(row: Tensor) -> np.ndarray:
    real, imaginary = np.split(row.detach().numpy(), 2)
    return real + 1j * imaginary


def complex_(model: Model, h: int, r: int, t: int) -> float:
    head, relation, tail = as_complex(model.entity[h]), as_complex(model.relation[r]), as_complex(model.entity[t])
    return float((head * relation * tail.conj()).sum().real)


def rotate(model: Model, h: int, r: int, t: int) -> float:
    head, tail, raw = as_complex(model.entity[h]), as_complex(model.entity[t]), model.relation[r].tolist()
    return -sum(abs(head[i] * cmath.exp(1j * raw[i] * math.pi / model.init_range) - tail[i]) for i in range(model.dim))


def rescal(model: Model, h: int, r: int, t: int) -> float:
    d, E, M = model.dim, model.entity.tolist(), model.relation.tolist()[r]
    return sum(E[h][i] * M[i * d + j] * E[t][j] for i in range(d) for j in range(d))


def transh(model: Model, h: int, r: int, t: int) -> float:
    d, E, R = model.dim, model.entity.tolist(), model.relation.tolist()
    length = math.sqrt(sum(x * x for x in R[r][d:]))
    w = [x / length for x in R[r][d:]]

    def projected(e: int) -> list[float]:
        along = sum(w[i] * E[e][i] for i in range(d))
        return [E[e][i] - along * w[i] for i in range(d)]

    return -sum(abs(a + R[r][i] - b) for i, (a, b) in enumerate(zip(projected(h), projected(t), strict=True)))


def transr(model: TransR, h: int, r: int, t: int) -> float:
    d, k, E, R = model.dim, model.relation_dim, model.entity.tolist(), model.relation.tolist()

    def mapped(e: int) -> list[float]:
        return [sum(R[r][k + i * d + j] * E[e][j] for j in range(d)) for i in range(k)]

    return -sum(abs(a + R[r][i] - b) for i, (a, b) in enumerate(zip(mapped(h), mapped(t), strict=True)))


def conve(model: ConvE, h: int, r: int, t: int) -> float:
    """As a trained model scores: norms by their running statistics, no dropout."""
    d, height, width = model.dim, *model.image
    E, R = model.entity.tolist(), model.relation.tolist()
    image_norm, _, convolution, feature_norm, *_ = model.convolve
    linear, _, query_norm, _ = model.project

    def normal(layer: Any, i: int, x: float) -> float:
        mean, variance = layer.running_mean[i].item(), layer.running_var[i].item()
        return (x - mean) / math.sqrt(variance + 1e-5) * layer.weight[i].item() + layer.bias[i].item()

    pixels = [normal(image_norm, 0, x) for x in E[h][:d] + R[r]]
    filters, features = convolution.weight.tolist(), []
    tall, wide = len(filters[0][0]), len(filters[0][0][0])
    for f in range(model.filters):
        for y in range(2 * height - tall + 1):
            for x in range(width - wide + 1):
                window = ((i, j, pixels[(y + i) * width + x + j]) for i in range(tall) for j in range(wide))
                total = sum(filters[f][0][i][j] * pixel for i, j, pixel in window) + convolution.bias[f].item()
                features.append(max(0.0, normal(feature_norm, f, total)))
    weights, biases = linear.weight.tolist(), linear.bias.tolist()
    sums = [sum(w * x for w, x in zip(weights[i], features, strict=True)) + biases[i] for i in range(d)]
    query = [max(0.0, normal(query_norm, i, total)) for i, total in enumerate(sums)]
    return sum(q * E[t][i] for i, q in enumerate(query)) + E[t][d]


TEXTBOOK: dict[str, Callable[..., float]] = {
    "transe": transe,
    "transd": transd,
    "distmult": distmult,
    "complex": complex_,
    "rotate": rotate,
    "simple": simple,
    "rescal": rescal,
    "transh": transh,
    "transr": transr,
    "conve": conve,
}


def textbook(model: Model, triples: Tensor) -> Tensor:
    formula = TEXTBOOK[next(name for name, kind in MODELS.items() if type(model) is kind)]
    return torch.tensor([formula(model, *row) for row in triples.tolist()], dtype=torch.float64)


def replaced(triples: Tensor, side: Side, entities: Tensor) -> Tensor:
    """The triples ``[B * N, 3]`` with `side` replaced by each of ``[B, N]`` entities."""
    rows = triples.repeat_interleave(entities.shape[1], 0)
    rows[:, column(side)] = entities.reshape(-1)
    return rows


def inverted(model: Model, triples: Tensor, side: Side) -> Tensor:
    """The triples ``[n, 3]`` whose scores answer queries for `side`: inverse ones, where a model has tails alone."""
    if side == "tail" or not model.tails_only:
        return triples
    head, relation, tail = triples.unbind(1)
    return torch.stack([tail, relation + RELATIONS, head], 1)


def candidate_scores(model: Model, triples: Tensor, side: Side, entities: Tensor) -> Tensor:
    """By the formula, with `side` replaced by each of ``[B, N]`` entities: ``[B, N]``."""
    return textbook(model, inverted(model, replaced(triples, side, entities), side)).reshape(entities.shape)


@pytest.fixture
def triples() -> Tensor:
    return torch.tensor([[0, 0, 1], [1, 2, 0], [6, 1, 6], [3, 0, 5], [2, 2, 4], [0, 1, 6]])


@pytest.fixture
def entities() -> Tensor:
    """Candidates with repeats; the true entities are among them."""
    return torch.randint(ENTITIES, (6, 9), generator=torch.Generator().manual_seed(3))


def test_every_model_has_a_formula():
    assert TEXTBOOK.keys() == MODELS.keys()


# --- scores -------------------------------------------------------------------------------------------------------


@models
def test_score_is_the_textbook_formula(name, options, triples):
    model = build(name, options)
    torch.testing.assert_close(model.score(triples), textbook(model, triples))


@models
@both_sides
def test_candidates_and_all_equal_the_formula(name, options, side, triples, entities):
    model = build(name, options)
    expected = candidate_scores(model, triples, side, entities)
    torch.testing.assert_close(model.score_candidates(triples, side, entities), expected)
    torch.testing.assert_close(model.score_all(triples, side).gather(1, entities), expected)
    turned = inverted(model, replaced(triples, side, entities), side)
    torch.testing.assert_close(model.score(turned).reshape(entities.shape), expected)


@models
@both_sides
def test_single_precision_agrees_along_every_path(name, options, side, triples, entities):
    model = build(name, options).float()
    expected = candidate_scores(model, triples, side, entities).float()
    for scores in (
        model.score(inverted(model, replaced(triples, side, entities), side)).reshape(entities.shape),
        model.score_candidates(triples, side, entities),
        model.score_all(triples, side).gather(1, entities),
        model.training_scores(triples, side, entities).negative,
    ):
        torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-5)


@models
def test_relations(name, options, triples):
    model = build(name, options)
    scores = model.score_relations(triples[:, 0], triples[:, 2])
    assert scores.shape == (len(triples), RELATIONS)
    for relation in range(RELATIONS):
        rows = triples.clone()
        rows[:, 1] = relation
        torch.testing.assert_close(scores[:, relation], textbook(model, rows))


@models
def test_relations_with_gradients(name, options, triples):
    """The same numbers as a matrix product, or an error that says what the model lacks."""
    model = build(name, options)
    if name not in ("distmult", "complex", "simple", "rescal") or options.get("bounded"):
        with pytest.raises(UsageError, match=r"is not linear in the relation$|through a bounded function$"):
            model.relation_scores(model.triple_rows(triples))
        return
    scores = model.relation_scores(model.triple_rows(triples))
    torch.testing.assert_close(scores, model.score_relations(triples[:, 0], triples[:, 2]))
    scores.sum().backward()
    assert model.relation.grad[:RELATIONS].abs().sum() > 0
    assert model.relation.grad[RELATIONS:].abs().sum() == 0  # neither inverses nor the substitution
    assert model.entity.grad[triples[:, [0, 2]].flatten()].abs().sum() > 0


@models
def test_scoring_everything_keeps_no_graph(name, options, triples):
    model = build(name, options)
    assert not model.score_all(triples, "tail").requires_grad
    assert not model.score_relations(triples[:, 0], triples[:, 2]).requires_grad
    assert not model.entity_features().requires_grad


# --- training scores ----------------------------------------------------------------------------------------------


@models
@both_sides
def test_training_scores_without_substitution(name, options, side, triples, entities):
    model = build(name, options)
    scores = model.training_scores(triples, side, entities)
    torch.testing.assert_close(scores.positive, textbook(model, inverted(model, triples, side)))
    torch.testing.assert_close(scores.negative, candidate_scores(model, triples, side, entities))
    assert scores.substitution is None


@pytest.mark.parametrize("name", DISTANCES)
def test_dropout_is_unsupported_for_distances(name):
    with pytest.raises(UsageError, match=f"model '{name}' compares by a distance, not by a dot product$"):
        build(name, {}).dropout(6, 0.5, torch.Generator())


@dot_products
@both_sides
def test_parts_of_a_query_add_up(name, options, side, triples, entities):
    """Scores with a part of each query, and with the rest of it, add up to those with the whole: substitution aside."""
    model = build(name, options)
    kept = model.dropout(6, 0.5, torch.Generator().manual_seed(4)).double()
    whole = model.training_scores(triples, side, entities, "symmetric")
    some = model.training_scores(triples, side, entities, "symmetric", kept)
    rest = model.training_scores(triples, side, entities, "symmetric", 2.0 - kept)
    for kind in ("positive", "negative"):
        parts = getattr(some, kind) + getattr(rest, kind)
        torch.testing.assert_close(parts, 2 * getattr(whole, kind))
        assert not torch.allclose(getattr(some, kind), getattr(whole, kind))
    assert torch.equal(some.substitution, whole.substitution)
    against_all = model.training_scores(triples, side, None, None, kept)
    torch.testing.assert_close(against_all.negative.gather(1, entities), some.negative)


@dot_products
def test_dropout_leaves_out_its_share_and_keeps_the_mean(name, options):
    model = build(name, options)
    factors = model.dropout(4000, 0.3, torch.Generator().manual_seed(1))
    assert factors.shape == (4000, model.candidate_table().shape[1])
    assert sorted(set(factors.flatten().tolist())) == pytest.approx([0.0, 1 / 0.7])
    assert factors.mean().item() == pytest.approx(1.0, abs=0.02)
    assert factors.mean(0).sub(1).abs().max() < 0.1  # no place is preferred
    assert not factors[0].equal(factors[1])


@models
@both_sides
@substitutions
def test_substitution_is_an_ordinary_triple_of_the_extra_relation(name, options, side, substitution, triples, entities):
    model = build(name, options)
    scores = model.training_scores(triples, side, entities, substitution)
    torch.testing.assert_close(scores.positive, textbook(model, inverted(model, triples, side)))
    torch.testing.assert_close(scores.negative, candidate_scores(model, triples, side, entities))
    positive = triples[:, column(side)].repeat_interleave(entities.shape[1])
    extra = torch.full_like(positive, model.substitution_relation)
    expected = textbook(model, torch.stack([positive, extra, entities.reshape(-1)], 1))
    if substitution == "symmetric" and not model.tails_only:
        expected = (expected + textbook(model, torch.stack([entities.reshape(-1), extra, positive], 1))) / 2
    torch.testing.assert_close(scores.substitution, expected.reshape(entities.shape))


@models
def test_dot_products_fold_the_two_directions(name, options):
    model = build(name, options)
    assert len(substitution_queries(model, model.entity[:2], "one-way")) == 1
    assert len(substitution_queries(model, model.entity[:2], "symmetric")) == (1 if model.comparison == "dot" else 2)


def test_symmetric_complex_substitution_ignores_the_imaginary_part(triples, entities):
    model = build("complex", {})
    model.training_scores(triples, "tail", entities, "symmetric").substitution.square().sum().backward()
    real, imaginary = model.relation.grad[-1].chunk(2)
    assert real.abs().min() > 0
    torch.testing.assert_close(imaginary, torch.zeros(DIM, dtype=torch.float64), rtol=0, atol=1e-12)


def put(model: Model, entity: Tensor, relation: Tensor) -> None:
    """Replace the tables by plain tensors."""
    for table, value in (("entity", entity), ("relation", relation)):
        delattr(model, table)
        setattr(model, table, value)


@models
@both_sides
@pytest.mark.parametrize("substitution", [None, "symmetric", "one-way"])
def test_gradients(name, options, side, substitution):
    model = build(name, options, seed=5, sizes=(5, 2, 3))
    triples = torch.tensor([[0, 0, 1], [1, 1, 1], [4, 0, 2]])
    entities = torch.tensor([[0, 1, 1, 3], [2, 1, 4, 0], [2, 3, 3, 3]])

    def scores(entity: Tensor, relation: Tensor) -> tuple[Tensor, ...]:
        put(model, entity, relation)
        return tuple(part for part in model.training_scores(triples, side, entities, substitution) if part is not None)

    # Random coordinates keep every difference far from the kinks compared with the step of 1e-6.
    tables = model.entity.detach().clone().requires_grad_(), model.relation.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(scores, tables)


@models
def test_every_parameter_learns(name, options, triples, entities):
    model = build(name, options)
    for side in SIDES:
        scores = model.training_scores(triples, side, entities, "one-way")
        sum(part.square().sum() for part in scores).backward()
    used = model.relation.grad.abs().sum(1)
    assert model.entity.grad.abs().sum(1).min() > 0
    assert used.min() > 0


# --- tables -------------------------------------------------------------------------------------------------------


@models
def test_features_are_all_entity_parameters(name, options):
    model = build(name, options)
    assert model.entity_features().shape == (ENTITIES, model.entity_width * DIM + model.entity_bias)
    assert torch.equal(model.entity_features(), model.entity)
    tables, layers = [name for name, _ in model.named_parameters()][:2], list(model.children())
    assert tables == ["entity", "relation"]
    assert bool(layers) == (name == "conve")
    assert model.relation.shape == (RELATIONS * (2 if model.reciprocal else 1) + 1, model.relation_columns())


@models
def test_tables_depend_on_the_seed_alone(name, options):
    first, again, other = build(name, options), build(name, options), build(name, options, seed=1)
    for table in ("entity", "relation"):
        assert torch.equal(getattr(first, table), getattr(again, table))
        assert not torch.equal(getattr(first, table), getattr(other, table))
    drawn = first.entity.detach().clone()
    first.reset_parameters(torch.Generator().manual_seed(9))
    assert not torch.equal(first.entity, drawn)


@models
@pytest.mark.parametrize("init_range", [0.02, 3.0])
def test_tables_fill_the_initial_range(name, options, init_range):
    model = MODELS[name](300, 200, 8, init_range, torch.Generator().manual_seed(0), **options)
    vectors = model.relation[:, : model.relation_dim] if isinstance(model, TransR) else model.relation
    for table in (model.entity, vectors):
        assert 0.98 * init_range < table.max() <= init_range
        assert -init_range <= table.min() < -0.98 * init_range
        assert abs(table.mean()) < 0.1 * init_range


@pytest.mark.parametrize("name", [name for name, kind in MODELS.items() if kind.comparison != "dot"])
def test_default_range_of_distances(name):
    assert MODELS[name].default_range(100) == pytest.approx(0.11)  # (9 + 2) / 100
    assert MODELS[name].default_range(500, margin=6.0) == pytest.approx(0.016)
    assert MODELS[name](5, 2, 100).init_range == pytest.approx(0.11)


@pytest.mark.parametrize("dim", [16, 200])
@pytest.mark.parametrize("name", [name for name, kind in MODELS.items() if kind.comparison == "dot"])
def test_default_range_of_dot_products(name, dim):
    """Documented: initial scores have a standard deviation of 0.1 whatever the width."""
    model = MODELS[name](200, 200, dim, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    heads, relations, tails = (torch.randint(200, (4_000,), generator=generator) for _ in range(3))
    with learning(model, generator):  # norms of layers are of use in a step alone, as long as nothing is trained
        scores = model.score(torch.stack([heads, relations, tails], 1))
    assert scores.std().item() == pytest.approx(0.1, rel=0.08)


@pytest.mark.parametrize("relation_dim", [3, 8, 12])
def test_matrices_start_near_the_identity(relation_dim):
    """Documented: noise of at most 0.1 / sqrt(d), different for every relation."""
    model = TransR(50, 20, 8, 0.5, torch.Generator().manual_seed(0), relation_dim=relation_dim)
    noise = model.relation[:, relation_dim:].unflatten(1, (relation_dim, 8)) - torch.eye(relation_dim, 8)
    bound = 0.1 / 8**0.5
    assert 0.98 * bound < noise.abs().max() <= bound * 1.0001
    assert len(noise.flatten(1).unique(dim=0)) == 21
    vectors = torch.randn(1000, 8)
    assert (vectors @ noise[0].T).norm() / vectors.norm() < 0.12


@pytest.mark.parametrize("name", [name for name, kind in MODELS.items() if not kind.fused])
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_blocks_make_no_difference(name, rows, triples, entities, monkeypatch):
    """Candidates that depend on the relation are made a block at a time, forwards and backwards."""
    results = []
    for numbers in (1 << 20, rows * entities.shape[1] * DIM):
        monkeypatch.setitem(blocks.BLOCK_ELEMENTS, "cpu", numbers)
        model = build(name, {})
        scores = model.training_scores(triples, "head", entities, "symmetric")
        sum(part.square().sum() for part in scores).backward()
        results.append([*scores, model.score_all(triples, "head"), model.entity.grad, model.relation.grad])
    for whole, blocked in zip(*results, strict=True):
        torch.testing.assert_close(blocked, whole)


@pytest.mark.parametrize("name", MODELS)
def test_no_tensor_of_all_candidates(name, meter, monkeypatch):
    """Nothing of the size [batch, negatives, dim] is made, let alone kept for the backward pass."""
    monkeypatch.setitem(blocks.BLOCK_ELEMENTS, "cpu", 1 << 12)
    batch, negatives, dim = 64, 32, 8
    model = MODELS[name](30, 3, dim)
    generator = torch.Generator().manual_seed(0)
    triples = torch.randint(3, (batch, 3), generator=generator)
    entities = torch.randint(30, (batch, negatives), generator=generator)
    with meter:
        scores = model.training_scores(triples, "tail", entities, "symmetric")
        sum(part.square().sum() for part in scores).backward()
        model.score_all(triples, "head")
    assert meter.largest < batch * negatives * dim


def test_projection_from_the_entity_table_needs_enough_entities():
    with pytest.raises(UsageError, match="more entities than relations"):
        TransD(3, 3, 2, projection="entity-table")
    TransD(4, 3, 2, projection="entity-table")


@models
def test_factors_are_coordinates_of_the_triples_own_rows(name, options, triples):
    model = build(name, options)
    head, relation, tail = model.entity[triples[:, 0]], model.relation[triples[:, 1]], model.entity[triples[:, 2]]
    if options == {"projection": "entity-table"}:  # the projection that the triple uses stands in the entity table
        relation = torch.cat([relation[:, :DIM], model.entity[triples[:, 1], DIM:]], 1)
    rows = head, relation, tail
    for factor, row in zip(model.factors(model.triple_rows(triples)), rows, strict=True):
        sizes = [np.abs(as_complex(one)) for one in row] if name == "complex" else row.abs().tolist()
        torch.testing.assert_close(torch.linalg.vector_norm(factor, dim=1), torch.tensor(np.array(sizes)))


# --- the sum over all triples -------------------------------------------------------------------------------------


@models
def test_total_score_is_the_sum_over_all_triples(name, options):
    model = build(name, options)
    if name not in ("distmult", "simple"):
        with pytest.raises(
            UsageError, match=f"model '{name}' has no closed form of the sum over all triples$"
        ) as caught:
            model.total_score()
        assert "\n" not in str(caught.value)
        return
    everything = torch.cartesian_prod(torch.arange(ENTITIES), torch.arange(RELATIONS), torch.arange(ENTITIES))
    expected = textbook(model, everything).sum() - model.offset * len(everything)
    torch.testing.assert_close(model.total_score(), expected)
    # Its gradient too; the substitution relation has none.
    found = torch.autograd.grad(model.total_score(), tuple(model.parameters()))
    scores = model.score(everything)
    for a, b in zip(found, torch.autograd.grad(scores.sum(), tuple(model.parameters())), strict=True):
        torch.testing.assert_close(a, b)
    assert not found[1][-1].any()


def test_bounded_scores_stay_within_their_bounds(triples):
    for name in ("distmult", "simple"):
        model = MODELS[name](7, 3, 5, 50.0, bounded=True, score_scale=2.0, score_shift=0.5)
        scores = model.score_all(triples, "tail")
        assert -1.5 <= scores.min() < scores.max() <= 2.5


@models
def test_capabilities_are_what_is_declared(name, options, triples):
    """What a model declares can be called; what it does not declare says so."""
    model = build(name, options)
    rows = model.triple_rows(triples)
    calls = {
        Capability.DOT_PRODUCT: lambda: model.products_with_all([]),
        Capability.LINEAR_IN_RELATION: lambda: model.relation_query(rows.head, rows.tail),
        Capability.CLOSED_FORM_SUM: model.total_score,
    }
    for capability, call in calls.items():
        with nullcontext() if can(model, [capability]) else pytest.raises(UsageError, match=capability.value):
            call()
    plain = model.candidate_table().data_ptr() == model.entity.data_ptr()
    assert can(model, [Capability.UNBOUNDED_ROWS]) == plain
