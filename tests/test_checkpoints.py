"""Checkpoints of several ranks lose nothing: what is damaged is noticed, what fails leaves the folder as it was."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import helpers_ranks as ranks
from eans.checkpoints import LATEST, SHARED, Checkpoints, rank_file
from eans.errors import EansWarning, RunError
from eans.manifest import NAME
from eans.training import Trainer

CASE = "eans, re-ordered"


def at(step: int) -> Trainer:
    trainer = ranks.trainer_of(CASE)
    while trainer.completed < step:
        trainer.step()
    return trainer


def loaded(folder: Path) -> Trainer:
    trainer = ranks.trainer_of(CASE)
    Checkpoints(folder).load(trainer)
    return trainer


def same(one: Trainer, other: Trainer) -> bool:
    """Do they have the same state, and the same bits after another step?"""
    (first, values), (second, others) = one.state(), other.state()
    return values == others and all(torch.equal(first[name], second[name]) for name in {**first, **second})


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Two checkpoints, of steps 3 and 5."""
    trainer = at(3)
    Checkpoints(tmp_path).save(trainer, {})
    trainer.step()
    trainer.step()
    Checkpoints(tmp_path).save(trainer, {})
    return tmp_path


def test_the_newest_one_is_loaded(saved):
    assert same(loaded(saved), at(5))
    assert (saved / LATEST).read_text() == "step-5\n"


def test_without_one_a_trainer_stays_at_the_beginning(tmp_path):
    trainer = ranks.trainer_of(CASE)
    assert Checkpoints(tmp_path / "none").load(trainer) is None
    assert trainer.completed == 0


def test_two_are_kept(saved):
    trainer = loaded(saved)
    trainer.step()
    Checkpoints(saved).save(trainer, {})
    assert sorted(path.name for path in saved.iterdir()) == [LATEST, "step-5", "step-6"]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", [rank_file(0), SHARED, NAME])
@pytest.mark.parametrize("damage", [cut, flip, Path.unlink])
def test_a_damaged_one_is_left_for_the_one_before(saved, name, damage):
    damage(saved / "step-5" / name)
    with pytest.warns(EansWarning, match=rf"step-5/{name}.*; going on from step-3"):
        trainer = loaded(saved)
    assert same(trainer, at(3))
    trainer.step()
    trainer.step()
    Checkpoints(saved).save(trainer, {})  # takes the place of the damaged one
    assert same(loaded(saved), at(5))


def test_where_none_is_whole_that_is_an_error(saved):
    for folder in saved.glob("step-*"):
        flip(folder / rank_file(0))
    with pytest.raises(RunError, match=r"step-5/rank-0\.safetensors is damaged.*; no other checkpoint is whole"):
        loaded(saved)


def test_a_lost_pointer_is_no_loss(saved):
    (saved / LATEST).unlink()
    assert same(loaded(saved), at(5))


def test_what_was_not_published_is_not_used(saved):
    """A process that is killed before it renames LATEST leaves the checkpoint before."""
    (saved / LATEST).write_text("step-3\n")
    assert same(loaded(saved), at(3))


def test_one_of_a_later_format_says_so(saved):
    for folder in saved.glob("step-*"):
        manifest = json.loads((folder / NAME).read_text())
        (folder / NAME).write_text(json.dumps({**manifest, "format": "9"}))
    with pytest.raises(RunError, match="has the format 9"):
        loaded(saved)


class Breaking:
    """Lets the n-th of the calls that write, rename or sync fail, as on a full disk."""

    def __init__(self, number: int) -> None:
        self.left = number

    @contextmanager
    def active(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Breaking]:
        with monkeypatch.context() as patch:
            for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "rename"), (Path, "mkdir"), (os, "fdopen")):
                patch.setattr(owner, name, self._broken(getattr(owner, name)))
            yield self

    def _broken(self, function):
        def call(*args, **kwargs):
            self.left -= 1
            if self.left == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*args, **kwargs)

        return call


def test_whatever_fails_once_leaves_a_checkpoint_that_is_whole(saved, monkeypatch):
    """Every n-th write, rename and sync of a save, one after the other."""
    trainer = loaded(saved)
    with Breaking(10**6).active(monkeypatch) as counted:
        Checkpoints(saved).save(trainer, {})
    calls = 10**6 - counted.left
    assert calls > 12
    for number in range(1, calls + 1):
        trainer.step()
        before = loaded(saved)
        with pytest.raises(RunError, match="No space left"), Breaking(number).active(monkeypatch):
            Checkpoints(saved).save(trainer, {})
        after = loaded(saved)
        assert same(after, before) or same(after, trainer)
        Checkpoints(saved).save(trainer, {})
        assert same(loaded(saved), trainer)
        assert len(list(saved.iterdir())) == 3


def test_each_file_is_checked(saved):
    assert set(Checkpoints(saved).check().values()) == {""}
    flip(saved / "step-3" / SHARED)
    (saved / "step-5" / NAME).unlink()
    wrong = {name: problem for name, problem in Checkpoints(saved).check().items() if problem}
    assert [name.partition("/")[2] for name in wrong] == [f"step-5/{NAME}", f"step-3/{SHARED}"]
