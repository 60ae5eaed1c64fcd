"""The switch between implementations, and what every declared operation promises."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import pytest
import torch
from kernel_cases import REFERENCE, normal
from torch import Tensor

import eans
from eans import kernels
from eans.errors import UsageError
from eans.graph import KnowledgeGraph
from eans.kernels import switch

ENTITIES = torch.tensor([[0, 2, 2], [1, 0, 2]])


def arguments() -> tuple[Any, ...]:
    return "l1", normal(2, 2, 5), normal(3, 5, seed=1), ENTITIES


# --- operations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", switch.OPERATIONS)
def test_every_implementation_has_the_declared_signature(name: str) -> None:
    operation = switch.OPERATIONS[name]
    assert getattr(kernels, name) is operation
    assert operation.__doc__
    declared = inspect.signature(operation)
    for implementation, home in operation.homes.items():
        assert home.startswith(operation.__module__)
        if implementation in ("numba", "triton"):
            pytest.importorskip(implementation)
        assert inspect.signature(operation.by(implementation)) == declared


def test_where_an_implementation_lacks_an_operation_the_reference_has_it() -> None:
    assert set(switch.OPERATIONS["loss_terms"].homes) == {"reference", "triton"}
    numba = kernels.functions("numba")
    assert numba.loss_terms is REFERENCE.loss_terms
    assert numba.compare is not REFERENCE.compare


# --- choosing ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def _fresh_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """No choice made yet, and no compiler installed."""
    monkeypatch.delenv("EANS_KERNELS", raising=False)
    monkeypatch.setattr(switch, "_choice", None)
    monkeypatch.setattr(switch, "_installed", lambda package: package is None)
    switch._warn_of_slow_kernels.cache_clear()


@pytest.mark.usefixtures("_fresh_switch")
@pytest.mark.parametrize("name", ["auto", "reference"])
@pytest.mark.filterwarnings("ignore:numba is not installed")
def test_without_a_compiler_the_reference_runs(name: str) -> None:
    assert kernels.choose(name) == "auto"
    assert kernels.current() == name
    assert torch.equal(kernels.compare(*arguments()), REFERENCE.compare(*arguments()))
    ranked = "l1", normal(2, 5), normal(3, 5, seed=1)
    assert torch.equal(kernels.compare_all(*ranked), REFERENCE.compare_all(*ranked))


@pytest.mark.usefixtures("_fresh_switch")
def test_a_missing_compiler_is_told_once() -> None:
    with pytest.warns(UserWarning, match="numba is not installed"):
        kernels.compare(*arguments())
    kernels.compare(*arguments())  # a second warning would be an error


def test_auto_takes_the_compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch, "_choice", "auto")
    assert switch.implementation_for(torch.device("cpu")) == "numba"
    assert switch.implementation_for(torch.device("meta")) == "reference"


@pytest.mark.parametrize("name", ["reference", "numba"])
def test_the_choice_decides_whose_function_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    calls: list[str] = []
    for one in ("reference", "numba"):
        monkeypatch.setitem(kernels.compare.functions, one, lambda *_, one=one, **__: calls.append(one))
    with kernels.chosen(name):
        kernels.compare(*arguments())
        kind, queries, table, entities = arguments()
        kernels.compare(kind=kind, queries=queries, table=table, entities=entities)
        assert kernels.optimizer_kernels(torch.device("cpu")) is import_module(f"eans.kernels.updates.{name}")
    assert calls == [name, name]


@pytest.mark.usefixtures("_fresh_switch")
def test_the_environment_chooses_until_the_program_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EANS_KERNELS", "reference")
    assert kernels.current() == "reference"
    assert kernels.choose("auto") == "reference"
    assert kernels.current() == "auto"


@pytest.mark.usefixtures("_fresh_switch")
def test_wrong_choices() -> None:
    with pytest.raises(UsageError, match=r"unknown kernels 'tritan'; did you mean 'triton'\?"):
        kernels.choose("tritan")
    assert kernels.current() == "auto"
    kernels.choose("triton")
    with pytest.raises(UsageError, match="need the package triton, which is not installed"):
        kernels.compare(*arguments())


def test_chosen_kernels_are_given_back_whatever_happens() -> None:
    def use() -> None:
        with kernels.chosen("reference"):
            assert kernels.current() == "reference"
            raise ZeroDivisionError

    before = kernels.current()
    with pytest.raises(ZeroDivisionError):
        use()
    assert kernels.current() == before


# --- an implementation of one's own -----------------------------------------------------------------------------------


@pytest.fixture
def _forget_registrations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch, "IMPLEMENTATIONS", dict(switch.IMPLEMENTATIONS))
    for operation in switch.OPERATIONS.values():
        monkeypatch.setattr(operation, "functions", dict(operation.functions))


@pytest.mark.usefixtures("_forget_registrations")
def test_a_new_implementation_trains() -> None:
    """It computes one operation; all others are those of the reference, and so are the embeddings."""
    calls: list[torch.Size] = []

    def compare(
        kind: kernels.Comparison, queries: Tensor, table: Tensor, entities: Tensor,
        shifts: Tensor | None = None, scalars: Tensor | None = None, mean_rest: bool = False,
        deferred: None = None,
    ) -> Tensor:  # fmt: skip
        assert deferred is None  # no update of this implementation would read it
        calls.append(entities.shape)
        scores: Tensor = REFERENCE.compare(kind, queries, table, entities, shifts, scalars, mean_rest)
        return scores

    kernels.register("mine", compare=compare)
    lines = [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a")]
    graph = KnowledgeGraph.from_labels(lines, lines, lines)
    found = []
    for name in ("mine", "reference"):
        with kernels.chosen(name):
            run = eans.train(graph, model="transe", sampler="uniform", dim=4, steps=6, valid_every=3, negatives=2)
            found.append(run.model.entity.detach())
    assert len(calls) == 6
    assert torch.equal(*found)


def test_unknown_operations_are_told() -> None:
    with pytest.raises(UsageError, match=r"unknown operation 'compere'; did you mean 'compare'\?"):
        kernels.register("mine", compere=print)
    assert "mine" not in switch.IMPLEMENTATIONS
