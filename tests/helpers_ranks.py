"""What `test_sharded_training` and its neighbours have each rank do: ``python ranks.py FOLDER``, started W times.

One start of W processes serves many checks: importing PyTorch takes longer than all of them. The first rank writes what
it found to ``found-W.pt``.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from eans.batches import Purpose, mix
from eans.checkpoints import Checkpoints
from eans.distributed import ALONE, World, joined
from eans.evaluation import rank
from eans.graph import HEAD, SIDES, TAIL, KnowledgeGraph, Vocabulary, column
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.training import Diverged, Trainer

STEPS = 40
BASE: dict[str, Any] = {
    "model.dim": 6,
    "sampler.negatives": 8,
    "train.steps": STEPS,
    "train.batch_size": 16,
    "train.valid_every": 0,
    "train.patience": 0,
    "train.keep": "last",
    "train.seed": 5,
}
BLOCK = {"sampler.proposal": "block", "sampler.blocks": 4}
# What is trained: a recipe, and what is set. The second one has seven orderings, with which rows move.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "eans": ("default/transe/eans", BLOCK),
    "eans, re-ordered": ("default/transe/eans+adv", {**BLOCK, "sampler.reorder_every": 6}),
    "eans, late orders": ("default/rotate/eans", {"sampler.reorder_every": 6, "sampler.order_epoch": 9}),
    "eans as printed": ("default/transe/eans", {**BLOCK, "loss.form": "paper", "sampler.orders": 2}),
    "uniform": ("default/rotate/uniform", {"model.reciprocal": True}),
    "adagrad": ("default/complex/uniform", {"train.optimizer": "adagrad", "train.lr": 0.1, **{
        "loss.penalty": "n3", "loss.penalty_weight": 0.1, "loss.relation_weight": 0.5, "train.dropout": 0.2}}),
    "weighted": ("default/distmult/bernoulli", {"sampler.false_negatives": "resample"}),
    "rows": ("default/rotate/eans", {**BLOCK, "sampler.reorder_every": 6, "train.optimizer": "lazy-adam"}),
    "a sum a row": ("default/distmult/uniform", {"train.optimizer": "row-adagrad", "train.lr": 0.1}),
    "softmax": ("default/complex/softmax", {}),
    "few": ("default/transe/uniform", {}),
}  # fmt: skip
WIDE = {"model.dim": 200, "sampler.negatives": 256, "train.batch_size": 32}


def graph_of(case: str) -> KnowledgeGraph:
    """31 entities, which neither 2 nor 4 divides; in the case "few" all triples are among those of the first rank."""
    generator = torch.Generator().manual_seed(2)
    entities = 7 if case == "few" else 31

    def triples(size: int) -> torch.Tensor:
        ends = torch.randint(entities, (size, 2), generator=generator)
        return torch.stack([ends[:, 0], torch.randint(4, (size,), generator=generator), ends[:, 1]], 1)

    names = Vocabulary(f"e{number}" for number in range(31))
    relations = Vocabulary((f"r{number}" for number in range(4)), "relation")
    return KnowledgeGraph("tiny", names, relations, triples(90), triples(8), triples(8))


def trainer_of(case: str, world: World = ALONE) -> Trainer:
    """New, on the ranks of a world."""
    recipe, settings = CASES[case]
    graph = graph_of(case)
    return build_trainer(resolve(load(recipe, {**BASE, **settings}), graph), graph, world=world)


def table_of(trainer: Trainer) -> torch.Tensor:
    """The whole entity table, on the first rank."""
    own = trainer.model.entity.detach().clone()
    return own if trainer.table is None else torch.cat(list(trainer.table.blocks(own)))


def trained(case: str, world: World = ALONE) -> dict[str, Any]:
    """Tables and mean losses after the steps, and whether all ranks have the same relations."""
    trainer = trainer_of(case, world)
    for _ in range(STEPS):
        trainer.step()
    trainer.finish()
    relation = trainer.model.relation.detach()
    found = {"entity": table_of(trainer), "relation": relation, "means": trainer.take_means(STEPS)}
    copies = world.gather(relation[None])
    return {**found, "alike": all(torch.equal(copy, relation) for copy in copies), "moves": trainer.sampler.orderings}


def wide_graph() -> KnowledgeGraph:
    """Large enough for negatives to be others each time."""
    generator = torch.Generator().manual_seed(3)
    size, entities = 5000, 20_011
    ends = torch.randint(entities, (size, 2), generator=generator)
    triples = torch.stack([ends[:, 0], torch.randint(4, (size,), generator=generator), ends[:, 1]], 1)
    relations = Vocabulary((f"r{number}" for number in range(4)), "relation")
    names = Vocabulary(f"e{number}" for number in range(entities))
    return KnowledgeGraph("wide", names, relations, triples, triples[:0], triples[:0])


def guests_of(trainer: Trainer, step: int, size: int) -> int:
    """How many rows the ranks need of each other in a step, from the draws of one process and the formula alone."""
    ordering = trainer.sampler.ordering()
    entities = trainer.model.num_entities
    places = torch.arange(entities) if ordering is None else ordering[1]
    owner = places * size // entities
    batch = trainer.stream[step]
    trainer.stepper.generator.manual_seed(mix(trainer.seed, Purpose.DRAW, step))
    drawn = trainer.sampler.propose(batch.triples, batch.side, trainer.stepper.generator)
    used = torch.cat([batch.triples[:, [HEAD, TAIL]], drawn], 1)
    guests = 0
    for here in range(size):
        needed = used[owner[batch.triples[:, column(batch.side)]] == here].unique()
        guests += int((owner[needed] != here).sum())
    return guests


def traffic(sampler: str, world: World) -> dict[str, float]:
    """Bytes that left all ranks in three steps, and what the formula says of them; the relations' apart."""
    graph = wide_graph()
    settings = {**BASE, **WIDE, **(BLOCK if sampler == "eans" else {})}
    trainer = build_trainer(resolve(load(f"default/transe/{sampler}", settings), graph), graph, world=world)
    if sampler == "eans":
        trainer.step()  # the ordering, and the rows that it moves
    steps, labels = 3, int(trainer.loss.needs_labels)
    before, first = world.sent, trainer.completed
    relations = trainer.stepper.relation_bytes
    counted = 0
    for step in range(first, first + steps):
        counted += guests_of(trainer, step, world.size)
        trainer.step()
    relations = trainer.stepper.relation_bytes - relations
    sent = float(world.total(torch.tensor(float(world.sent - before - relations))))
    row, pairs = 4 * trainer.model.entity.shape[1], world.size * (world.size - 1)
    sums = len(trainer.stepper.sums.names)
    expected = counted * (8 + 2 * row) + steps * pairs * (8 + 4 * sums + 8 * labels)
    return {
        "sent": sent,
        "expected": expected,
        "positives": steps * WIDE["train.batch_size"],
        "rows": counted,
    }


def ranked(model: str, world: World) -> bool:
    """Are the counts of all ranks those of one process, where every second entity ties with its neighbour?"""
    graph = graph_of(model)
    recipe = resolve(load(f"default/{model}/uniform", BASE), graph)
    whole = build_trainer(recipe, graph).model
    whole.entity.data = whole.entity.data[torch.arange(graph.num_entities) // 2]
    trainer = build_trainer(recipe, graph, world=world)
    trainer.model.entity.data.copy_(whole.entity[trainer.owned()])
    expected = rank(whole, graph, "test")
    found = rank(trainer.model, graph, "test", table=trainer.table, memory=2_000)
    same = [torch.equal(getattr(expected, name)[side], getattr(found, name)[side])
            for name in ("greater", "equal") for side in SIDES]  # fmt: skip
    return all(same) and bool(torch.cat(list(expected.equal.values())).any())


def continued(folder: Path, world: World, save: bool) -> dict[str, Any]:
    """Train half of the steps and save, or load what any number of ranks saved; then the other half."""
    trainer = trainer_of("eans, re-ordered", world)
    checkpoints = Checkpoints(folder, world)
    if save:
        for _ in range(STEPS // 2):
            trainer.step()
        checkpoints.save(trainer, {})
    else:
        checkpoints.load(trainer)
    assert trainer.completed == STEPS // 2
    for _ in range(STEPS // 2):
        trainer.step()
    return {"entity": table_of(trainer), "relation": trainer.model.relation.detach()}


def told(world: World) -> bool:
    """Is what ranks send what the others receive, in the order of the ranks, and are sums the same on all?"""
    numbers = torch.arange(10_001.0) / 3  # enough for slices, and of no multiple of the ranks
    mine = numbers * (world.rank + 1)
    found = world.total(mine)
    expected = torch.stack([numbers * (rank + 1) for rank in range(world.size)]).sum(0)
    right = torch.allclose(found, expected) and all(torch.equal(found, other) for other in world.gather(found[None]))
    few = torch.tensor([world.rank, 1])
    right &= world.total(few).tolist() == [sum(range(world.size)), world.size]
    rows = torch.full((world.rank, 2), world.rank)  # as many as its number, none of the first
    right &= world.gather(rows)[:, 0].tolist() == [rank for rank in range(world.size) for _ in range(rank)]
    right &= world.share(torch.tensor([7 * world.rank + 1])).item() == 1
    return right and world.any(world.rank == 1) and not world.any(False)


def stopped_by_nan(world: World) -> dict[str, bool]:
    """The last rank has a row that is no number: is that told on all ranks, and was nothing updated?"""
    trainer = trainer_of("eans", world)
    trainer.step()
    if world.rank == world.size - 1:
        trainer.model.entity.data.fill_(torch.nan)
    before = {name: value.clone() for name, value in trainer.state()[0].items()}
    told = False
    try:
        trainer.step()
    except Diverged:
        told = True
    after = trainer.state()[0]
    same = all(torch.equal(value.nan_to_num(), after[name].nan_to_num()) for name, value in before.items())
    return {"told": not world.any(not told), "same": not world.any(not same), "sound": trainer.is_sound()}


def main(folder: Path) -> None:
    """All checks, on this rank."""
    torch.set_num_threads(1)
    with joined("cpu") as world:
        found: dict[str, Any] = {"trained": {case: trained(case, world) for case in CASES}}
        found["traffic"] = {sampler: traffic(sampler, world) for sampler in ("eans", "uniform")}
        found["ranked"] = {model: ranked(model, world) for model in ("transe", "complex")}
        found["told"] = not world.any(not told(world))
        found["nan"] = stopped_by_nan(world)
        found["saved"] = continued(folder / f"checkpoint-{world.size}", world, save=True)
        other = folder / "checkpoint-4"
        found["loaded"] = continued(other, world, save=False)
        if world.first:
            torch.save(found, folder / f"found-{world.size}.pt")


def once(factory: pytest.TempPathFactory, name: str, fill: Callable[[Path], None]) -> Path:
    """A folder for all processes of a test run, which the first one that asks for it fills."""
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, done = base / name, base / f"{name}.done"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            folder.mkdir()
            fill(folder)
            done.touch()
    return folder


def environment(**more: str) -> dict[str, str]:
    """That of ranks: one thread each, no settings of the user's, and the paths of this process."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("EANS_")}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path), **more}


def started(size: int, folder: Path) -> None:
    """Start so many ranks and wait for them."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
    done = subprocess.run(
        [*command, __file__, str(folder)], env=environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    main(Path(sys.argv[1]))
