"""Top-k completions by name against brute force; the known ones, wrong questions, and the tables they come as."""

from __future__ import annotations

import csv
import io
import json

import pytest
import torch

from eans.errors import RunError, UsageError
from eans.graph import KnowledgeGraph
from eans.models import MODELS, Model
from eans.prediction import COLUMNS, Prediction, Predictions, predict
from helpers_runs import as_if_trained

TRAIN = [
    ("paris", "capital of", "france"),
    ("berlin", "capital of", "germany"),
    ("paris", "located in", "france"),
    ("lyon", "located in", "france"),
]
VALID = [("berlin", "located in", "germany")]
TEST = [("lyon", "located in", "europe"), ("france", "located in", "europe")]
QUESTIONS = [
    {"head": "paris", "relation": "located in"},
    {"relation": "located in", "tail": "france"},
    {"head": "berlin", "tail": "germany"},
    {"head": "europe", "relation": "capital of"},
]
questions = pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: "+".join(q))


@pytest.fixture
def cities() -> KnowledgeGraph:
    return KnowledgeGraph.from_labels(TRAIN, VALID, TEST)


@pytest.fixture(params=MODELS)
def model(request, cities) -> Model:
    generator = torch.Generator().manual_seed(7)
    return as_if_trained(MODELS[request.param](cities.num_entities, cities.num_relations, 4, 1.0, generator), generator)


def brute(model: Model, graph: KnowledgeGraph, question: dict[str, str]) -> list[Prediction]:
    """All completions, best first."""
    (target,) = {"head", "relation", "tail"} - question.keys()
    known = set(TRAIN + VALID + TEST)
    rows = []
    for label in graph.relations if target == "relation" else graph.entities:
        full = question | {target: label}
        triple = full["head"], full["relation"], full["tail"]
        ids = graph.entities.id(triple[0]), graph.relations.id(triple[1]), graph.entities.id(triple[2])
        if target == "head" and model.tails_only:
            ids = ids[2], graph.num_relations + ids[1], ids[0]
        rows.append(Prediction(*triple, model.score(torch.tensor([ids])).item(), triple in known))
    return sorted(rows, key=lambda row: -row.score)


def assert_same(actual: Predictions, expected: list[Prediction]) -> None:
    assert [row[:3] + row[4:] for row in actual] == [row[:3] + row[4:] for row in expected]
    assert [row.score for row in actual] == pytest.approx([row.score for row in expected], rel=1e-5, abs=1e-6)


@questions
@pytest.mark.parametrize("k", [1, 3, 100])
def test_marked(model, cities, question, k):
    result = predict(model, cities, **question, k=k, known="mark")
    assert_same(result, brute(model, cities, question)[:k])


@questions
@pytest.mark.parametrize("k", [1, 3, 100])
def test_filtered(model, cities, question, k):
    result = predict(model, cities, **question, k=k)
    assert_same(result, [row for row in brute(model, cities, question) if not row.known][:k])


def test_the_questions_have_known_answers(cities):
    model = MODELS["transe"](cities.num_entities, cities.num_relations, 2)
    assert [sum(row.known for row in brute(model, cities, question)) for question in QUESTIONS] == [1, 2, 2, 0]


def test_everything_known(cities):
    """Both relations hold between berlin and germany already."""
    model = MODELS["transe"](cities.num_entities, cities.num_relations, 2)
    result = predict(model, cities, head="berlin", tail="germany")
    assert (len(result), result.names, result.to_dict()) == (0, (), {name: [] for name in COLUMNS})
    assert result.to_csv() == "head,relation,tail,score,known\n"
    assert json.loads(result.to_json()) == []


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"head": "pariss", "relation": "located in"}, "unknown entity 'pariss'; did you mean 'paris'?"),
        ({"head": "paris", "relation": "locatd in"}, "unknown relation 'locatd in'; did you mean 'located in'?"),
        ({"relation": "capital of", "tail": "Germany"}, "unknown entity 'Germany'; did you mean 'germany'?"),
        ({"head": "paris", "tail": "qqqq"}, "unknown entity 'qqqq'"),
    ],
)
def test_misspelt(question, message, cities):
    model = MODELS["transe"](cities.num_entities, cities.num_relations, 2)
    with pytest.raises(UsageError) as caught:
        predict(model, cities, **question)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "question", [{}, {"head": "paris"}, {"head": "paris", "relation": "located in", "tail": "france"}]
)
def test_two_parts_must_be_given(question, cities):
    model = MODELS["transe"](cities.num_entities, cities.num_relations, 2)
    with pytest.raises(UsageError, match="exactly two of head, relation and tail"):
        predict(model, cities, **question)


@pytest.mark.parametrize("k", [0, -3])
def test_k_must_be_positive(k, cities):
    model = MODELS["transe"](cities.num_entities, cities.num_relations, 2)
    with pytest.raises(UsageError, match=f"k must be at least 1, got {k}"):
        predict(model, cities, head="paris", relation="located in", k=k)


@pytest.mark.parametrize("question", [{"head": "paris", "relation": "located in"}, {"head": "paris", "tail": "lyon"}])
def test_nan_is_an_error(question, cities):
    """As in ranking; a NaN would come out as the best answer, and JSON has no word for it."""
    model = MODELS["transe"](cities.num_entities, cities.num_relations, 2)
    with torch.no_grad():
        model.relation.fill_(torch.nan)
    with pytest.raises(RunError, match="NaN"):
        predict(model, cities, **question)


# --- tables -------------------------------------------------------------------------------------------------------


@pytest.fixture
def table() -> Predictions:
    rows = Prediction('"a", b', "r", "c", 1.5, False), Prediction("東京", "r", "d", -2.0, True)
    return Predictions("tail", rows)


def test_a_sequence(table):
    assert len(table) == 2
    assert table[0].tail == "c"
    assert table[-1].known
    assert table[:1] == (table[0],)
    assert [row.score for row in table] == [1.5, -2.0]
    assert table.names == ("c", "d")
    assert Predictions("head", table.rows).names == ('"a", b', "東京")
    assert table[1] in table


def test_to_dict(table):
    assert table.to_dict() == {
        "head": ['"a", b', "東京"],
        "relation": ["r", "r"],
        "tail": ["c", "d"],
        "score": [1.5, -2.0],
        "known": [False, True],
    }


def test_to_csv(table):
    assert table.to_csv().splitlines() == [
        "head,relation,tail,score,known",
        '"""a"", b",r,c,1.5,False',
        "東京,r,d,-2.0,True",
    ]
    assert next(csv.DictReader(io.StringIO(table.to_csv())))["head"] == '"a", b'


def test_to_json(table):
    assert json.loads(table.to_json()) == [
        {"head": '"a", b', "relation": "r", "tail": "c", "score": 1.5, "known": False},
        {"head": "東京", "relation": "r", "tail": "d", "score": -2.0, "known": True},
    ]
    assert "東京" in table.to_json()
