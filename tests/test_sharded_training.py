"""Several processes, each with a part of the entity table, train what one process trains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import helpers_ranks as ranks
from eans.distributed import World
from eans.errors import UsageError
from eans.losses import Loss
from eans.penalties import Term
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.samplers import Sampler

SIZES = (4, 2)  # the first one leaves a checkpoint for the second


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the ranks leave, after one start for each number of them."""

    def fill(folder: Path) -> None:
        for size in SIZES:
            ranks.started(size, folder)

    return ranks.once(tmp_path_factory, "ranks", fill)


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[int, Any]:
    """What the ranks found, by their number."""
    return {size: torch.load(folder / f"found-{size}.pt") for size in SIZES}


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return {case: ranks.trained(case) for case in ranks.CASES}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", ranks.CASES)
def test_tables_are_those_of_one_process(found, alone, case, size):
    here, expected = found[size]["trained"][case], alone[case]
    for name in ("entity", "relation"):
        torch.testing.assert_close(here[name], expected[name], rtol=0, atol=1e-5)
        assert (expected[name] - getattr(ranks.trainer_of(case).model, name)).abs().max() > 1e-3  # they did learn
    assert here["means"] == pytest.approx(expected["means"], rel=1e-4)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", ranks.CASES)
def test_all_ranks_have_the_same_relations(found, case, size):
    assert found[size]["trained"][case]["alike"]


def test_rows_did_move(found):
    assert [found[size]["trained"]["eans, re-ordered"]["moves"] for size in SIZES] == [7, 7]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("sampler", ["eans", "uniform"])
def test_bytes_are_those_of_the_formula(found, sampler, size):
    """Of each guest an id, its row and its gradient; of each step counts and sums. Relations are counted apart."""
    traffic = found[size]["traffic"][sampler]
    assert traffic["sent"] == traffic["expected"]
    most = {("eans", 2): 850, ("eans", 4): 1250, ("uniform", 2): 205 * 1024, ("uniform", 4): 308 * 1024}[sampler, size]
    assert traffic["sent"] / traffic["positives"] <= most


@pytest.mark.parametrize("size", SIZES)
def test_block_negatives_are_all_local(found, size):
    """What is left to fetch is the known entity of each positive, at most."""
    traffic = found[size]["traffic"]
    assert 0 < traffic["eans"]["rows"] <= traffic["eans"]["positives"]
    assert traffic["uniform"]["rows"] > 50 * traffic["uniform"]["positives"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("model", ["transe", "complex"])
def test_ranks_are_those_of_one_process(found, model, size):
    assert found[size]["ranked"][model]


@pytest.mark.parametrize("name", ["entity", "relation"])
def test_any_number_of_ranks_goes_on_from_a_checkpoint(found, folder, alone, name):
    expected = alone["eans, re-ordered"][name]
    kept = {size: found[size]["saved"][name] for size in SIZES}
    assert torch.equal(found[4]["loaded"][name], kept[4])  # the same number: the same bits
    one = ranks.continued(folder / "checkpoint-2", ranks.ALONE, save=False)[name]
    for table in (*kept.values(), found[2]["loaded"][name], one):
        torch.testing.assert_close(table, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", SIZES)
def test_ranks_receive_what_others_send(found, size):
    assert found[size]["told"]


@pytest.mark.parametrize("size", SIZES)
def test_a_number_that_is_none_stops_all_ranks_before_the_update(found, size):
    assert found[size]["nan"] == {"told": True, "same": True, "sound": False}


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        ("default/transd/uniform", {}, "model 'transd' does not keep to single rows of entities, which"),
        (
            "default/transh/uniform",
            {},
            "set torchrun --nproc-per-node=1, or model.name to 'transe', 'distmult', 'complex'",
        ),
        ("default/conve/uniform", {}, "which training on 2 ranks needs"),
        ("default/transe/nscaching", {}, "set sampler.name to 'uniform', 'eans', 'bernoulli', 'frequency', 'sans'"),
        ("default/transe/kbgan", {}, "sampler 'kbgan' draws by the rows of all entities"),
        ("default/transe/igan", {}, "sampler 'igan' draws by the rows of all entities"),
        ("default/complex/all", {}, "sampler 'all' draws by the rows of all entities"),
        ("default/complex/uniform", {"loss.penalty": "l3", "loss.penalty_weight": 0.1}, "set it to 'n3' or 'dura'"),
        ("default/transe/eans", {"sampler.proposal": "block", "sampler.blocks": 5}, "sampler.blocks is 5"),
        ("default/transe/uniform", {"train.rows": "bfloat16"}, "leave it out"),
    ],
)
def test_what_ranks_cannot_train_is_refused_by_what_it_declares(recipe, settings, message):
    graph = ranks.graph_of("eans")
    settings = {"train.valid_every": 0, "train.patience": 0, "train.keep": "last", "model.dim": 6, **settings}
    resolved = resolve(load(recipe, settings), graph)
    with pytest.raises(UsageError, match=re.escape(message)):
        build_trainer(resolved, graph, world=World(0, 2))


def test_a_part_of_its_own_is_not_trained_on_several_ranks_by_accident():
    """A sampler declares that it can, a penalty as well; a loss with terms that no weights enter says how."""
    assert not Sampler.rows_free
    assert Term.mean_over is None
    assert not type("Own", (Loss,), {"terms": ("own",), "unweighted": ("own",)}).has_parts()
