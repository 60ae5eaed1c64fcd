"""Plans: what small trainers say of memory against the tensors and files of larger ones, and the command as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from eans import cli
from eans.data import Sizes
from eans.description import plan_for
from eans.description.growth import growth, stand_in
from eans.description.memory import STATE, held
from eans.description.planning import parse_sizes
from eans.errors import UsageError
from eans.graph import SPLITS, KnowledgeGraph, Vocabulary
from eans.optimizer import OPTIMIZERS
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.runs import RunFolder
from eans.stores import Progress
from helpers_runs import one_line, ring_graph, write_graph

ENTITIES, RELATIONS, TRIPLES = 12_000, 30, (30_000, 400, 300)
SIZES = Sizes(ENTITIES, RELATIONS, *TRIPLES)
CASES = [
    *(("transe/uniform", optimizer, 24) for optimizer in OPTIMIZERS),
    ("complex/adv", "adagrad", 20),
    ("rotate/eans+adv", "adam", 12),
    ("transd/eans", "adagrad", 16),
    ("rescal/adv", "adam", 10),
    ("distmult/all", "adam", 20),
    ("distmult/stay-positive", "adagrad", 16),
]


@pytest.fixture(scope="module")
def graph() -> KnowledgeGraph:
    """Different triples; every number is used."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.randperm(ENTITIES * RELATIONS, generator=generator)[: sum(TRIPLES)]
    tails = torch.randint(ENTITIES, (len(codes),), generator=generator)
    rows = torch.stack([codes % ENTITIES, codes // ENTITIES, tails], dim=1)
    names = Vocabulary(f"{index:05}" for index in range(ENTITIES))
    kinds = Vocabulary((f"{index:05}" for index in range(RELATIONS)), "relation")
    return KnowledgeGraph("random", names, kinds, *torch.split(rows, TRIPLES))


@pytest.mark.parametrize(("method", "optimizer", "dim"), CASES)
def test_memory_is_that_of_the_tensors(
    method: str, optimizer: str, dim: int, graph: KnowledgeGraph, tmp_path: Path
) -> None:
    settings = [f"model.dim={dim}", f"train.optimizer={optimizer}", "train.batch_size=64"]
    recipe = resolve(load(f"default/{method}", settings), graph)
    predicted = {part: found.at(SIZES) for part, found in growth(recipe, SIZES).items()}

    trainer = build_trainer(recipe, graph)
    trainer.step()
    state = trainer.optimizer.state
    measured = {
        "model": sum(value.nbytes for value in trainer.model.state_dict().values()),
        "optimizer": sum(value.nbytes for moments in state.values() for value in moments.values()),
        "sampler": sum(value.nbytes for value in trainer.sampler.state_dict().values()),
        "labels": graph.entities.array.nbytes + graph.relations.array.nbytes,
    }
    for part, count in measured.items():
        assert predicted[part] == pytest.approx(count, rel=0.001, abs=200), part
    indexed = sum(keys.nbytes for index in (graph.known, graph.known_train) for keys in index.keys.values())
    assert predicted["graph"] == pytest.approx(24 * sum(TRIPLES) + indexed, rel=0.02)
    assert held(trainer, graph)["graph"] == pytest.approx(24 * sum(TRIPLES) + indexed, rel=0.001)
    # Weights of positives, and for each side the orders of this pass and of the last one.
    assert predicted["batches"] == pytest.approx((4 + 2 * 2 * 8) * TRIPLES[0], rel=0.03)

    folder = RunFolder.create(tmp_path / "run", recipe, graph)
    with folder.lock():
        folder.save_checkpoint(trainer, Progress())
    size = max(file.stat().st_size for file in (tmp_path / "run").rglob("*") if "checkpoint" in str(file))
    assert sum(predicted[part] for part in STATE) == pytest.approx(size, rel=0.01)


def test_a_graph_that_is_not_there_takes_no_memory() -> None:
    graph = stand_in(Sizes(86_000_000, 14_824, 338_000_000, 10, 10))
    assert (graph.num_entities, graph.num_relations, len(graph.train)) == (86_000_000, 14_824, 338_000_000)
    assert sum(graph.split(split).untyped_storage().nbytes() for split in SPLITS) == 3 * 24


def test_freebase_by_its_sizes() -> None:
    planned = plan_for(
        parse_sizes("86M,14824,338M"),
        "default/transe/uniform",
        ["model.dim=100", "train.optimizer=adam", "train.steps=1000", "train.batch_size=512"],
        estimate=False,
    )
    facts = planned.facts
    assert facts["bytes"]["model"]["all"] == 400 * (86_000_000 + 14_824 + 1)
    assert facts["bytes"]["optimizer"]["all"] == pytest.approx(2 * facts["bytes"]["model"]["all"], rel=1e-6)
    assert facts["checkpoint"] == pytest.approx(3 * facts["bytes"]["model"]["all"], rel=1e-6)
    assert facts["peak"]["cpu"] > facts["checkpoint"] + facts["bytes"]["graph"]["all"]
    # Triples, one index with the numbers of its queries, and weights: there is no order of so many triples.
    assert facts["bytes"]["graph"]["all"] == (24 + 16 + 16) * 338_000_000
    assert facts["bytes"]["batches"]["all"] == pytest.approx(4 * 338_000_000, rel=0.001)
    assert facts["seconds"] is None
    text = str(planned)
    assert "86,000,000 entities, 14,824 relations, 338,000,000 triples" in text
    assert "34.4 GB" in text
    assert "transe d=100, uniform negatives n=64, adam, b=512" in text


def test_time_is_measured() -> None:
    shape = ["model.dim=8", "sampler.negatives=4", "train.batch_size=64", "train.steps=2000"]
    seconds = plan_for(ring_graph(), "default/transe/eans", shape, device="cpu").facts["seconds"]
    assert 0 < seconds["measured"]["per_step"] <= seconds["per_step"] < 1
    assert seconds["measured"]["entities"] == ring_graph().num_entities
    assert seconds["training"] == pytest.approx(2000 * seconds["per_step"])
    assert seconds["positives_per_second"] == pytest.approx(64 / seconds["per_step"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10,2,30", (10, 2, 30)),
        ("86M, 14.8k, 0.3g", (86_000_000, 14_800, 300_000_000)),
        ("1_000,1,5k", (1000, 1, 5000)),
    ],
)
def test_sizes(text: str, expected: tuple[int, int, int]) -> None:
    assert parse_sizes(text) == Sizes(*expected, 0, 0)


@pytest.mark.parametrize("text", ["", "1,2", "1,2,3,4", "a,2,3", "0,2,3", "1.5,2,3", "-1,2,3", "1,2,inf", "1,2,nan"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="ENTITIES,RELATIONS,TRIPLES; write for example 86M,14824,338M"):
        parse_sizes(text)


def typed(*arguments: str) -> int | str | None:
    """The exit status of ``eans data describe`` with these arguments."""
    with pytest.raises(SystemExit) as status:
        cli.main(["data", "describe", *arguments])
    return status.value.code


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_graph(ring_graph(), tmp_path / "ring")
    assert typed(str(folder), "--plan", "--no-estimate", "--json", "-", "--set", "model.dim=16") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["recipe"]["name"], found["recipe"]["dim"]) == ("default/rotate/eans+adv", 16)
    assert found["sizes"]["train"] == len(ring_graph().train)
    assert list(found) == [
        "format", "eans_version", "sizes", "recipe", "bytes", "moments", "peak", "checkpoint", "seconds",
    ]  # fmt: skip
    assert typed("--plan", "--sizes", "1M,10,5M", "--no-estimate") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Plan: 1,000,000 entities, 10 relations, 5,000,000 triples\n")
    assert "Time" not in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the name of the dataset is missing; give a dataset, a file or a folder"),
        (["--plan"], "give a dataset, a file or a folder, or --sizes"),
        (["--sizes", "1,2,3"], "--sizes goes with --plan alone"),
        (["wordnet-core", "--set", "model.dim=8"], "--set goes with --plan alone"),
        (["wordnet-core", "--plan", "--sizes", "1,2,3"], "'wordnet-core' and --sizes both say how large it is"),
        (["wordnet-core", "--plan", "--html", "x.html"], "--html cannot go with --plan"),
        (["--plan", "--sizes", "many"], "--sizes 'many' is not ENTITIES,RELATIONS,TRIPLES"),
        (["wordnet-core", "--plan", "--recipe", "default/transe/unifrom"], "did you mean"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(*arguments) == 2
    assert message in one_line(capsys.readouterr().err)
