"""The switch between implementations of the kernels: which one runs, and where its functions are."""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, Generic, ParamSpec, TypeVar, cast

import torch

from eans.errors import UsageError, did_you_mean

P = ParamSpec("P")
R = TypeVar("R")

REFERENCE = "reference"
# Every implementation, and the package that it needs.
IMPLEMENTATIONS: dict[str, str | None] = {"triton": "triton", "numba": "numba", REFERENCE: None}
# What `auto` means for a type of device; others, such as Apple's, get the reference.
FASTEST = {"cuda": "triton", "cpu": "numba"}
OPERATIONS: dict[str, Operation[..., Any]] = {}


class Operation(Generic[P, R]):
    """A function that the chosen implementation computes; signature and docstring are those of its declaration.

    Attributes:
        homes: the module in which an implementation has a function of this name.
        functions: those that were loaded, or registered, so far.
    """

    def __init__(self, declaration: Callable[P, R], homes: dict[str, str]) -> None:
        functools.update_wrapper(self, declaration)
        self.name = declaration.__name__
        self.homes = homes
        self.functions: dict[str, Callable[P, R]] = {}
        parameters = inspect.signature(declaration).parameters.values()
        self._place, self._tensor = next(
            (i, one.name) for i, one in enumerate(parameters) if one.annotation == "Tensor"
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Compute it; the device is that of the first tensor."""
        tensor: Any = args[self._place] if len(args) > self._place else kwargs[self._tensor]
        name = implementation_for(tensor.device)
        return (self.functions.get(name) or self.by(name))(*args, **kwargs)

    def by(self, name: str) -> Callable[P, R]:
        """The function of one implementation; the reference where it has none."""
        function = self.functions.get(name)
        if function is None:
            home = self.homes.get(name, self.homes[REFERENCE])
            function = self.functions[name] = getattr(import_module(home), self.name)
        return function


def operation(*names: str, **files: str) -> Callable[[Callable[P, R]], Operation[P, R]]:
    """Declare an operation of a package: its file ``reference.py`` defines it, and the implementations `names` have it.

    Each has it in the file of its own name beside the declaration, unless `files` says in which.
    """

    def declare(declaration: Callable[P, R]) -> Operation[P, R]:
        where = {**{name: name for name in (REFERENCE, *names)}, **files}
        homes = {name: f"{declaration.__module__}.{file}" for name, file in where.items()}
        declared = Operation(declaration, homes)
        OPERATIONS[declared.name] = declared
        return declared

    return declare


def register(name: str, **functions: Callable[..., Any]) -> None:
    """Make a new implementation known to `choose`: a function for each operation that it has.

    A function takes what the operation of its name takes. The reference serves for all other operations.
    """
    for key in functions:
        if key not in OPERATIONS:
            raise UsageError(f"unknown operation '{key}'{did_you_mean(key, OPERATIONS)}")
    IMPLEMENTATIONS[name] = None
    for key, function in functions.items():
        OPERATIONS[key].functions[name] = function


def functions(name: str) -> SimpleNamespace:
    """The operations of one implementation, whatever is chosen; those of the reference where it has none."""
    return SimpleNamespace(**{key: operation.by(name) for key, operation in OPERATIONS.items()})


_choice: str | None = None


def _checked(name: str) -> str:
    if name != "auto" and name not in IMPLEMENTATIONS:
        known = ("auto", *IMPLEMENTATIONS)
        raise UsageError(f"unknown kernels '{name}'{did_you_mean(name, known)} (one of {', '.join(known)})")
    return name


def choose(name: str) -> str:
    """Use one implementation from now on; returns the previous choice."""
    global _choice
    previous = current()
    _choice = _checked(name)
    return previous


@contextmanager
def chosen(name: str) -> Iterator[None]:
    """Use one implementation inside."""
    previous = choose(name)
    try:
        yield
    finally:
        choose(previous)


def current() -> str:
    """The implementation that is chosen now."""
    return _choice if _choice is not None else _checked(os.environ.get("EANS_KERNELS", "auto"))


@functools.cache
def _installed(package: str | None) -> bool:
    return package is None or find_spec(package) is not None


def implementation_for(device: torch.device) -> str:
    """The name of the implementation that runs on a device."""
    choice = current()
    name = FASTEST.get(device.type, REFERENCE) if choice == "auto" else choice
    if _installed(IMPLEMENTATIONS[name]):
        return name
    if choice == "auto":
        _warn_of_slow_kernels(name)
        return REFERENCE
    raise UsageError(f"kernels '{name}' need the package {name}, which is not installed; use 'auto'")


@functools.cache
def _warn_of_slow_kernels(name: str) -> None:
    """Once per process."""
    warnings.warn(f"{name} is not installed: plain PyTorch kernels will run, several times slower", stacklevel=5)


def small_operations(device: torch.device, elements: int) -> AbstractContextManager[None]:
    """A context for PyTorch's operations on tensors of at most so many elements: threads only where they pay off.

    The compiled loops keep theirs. PyTorch's number of threads is changed meanwhile (`torch.set_num_threads`).
    """
    if implementation_for(device) != "numba":
        return nullcontext()
    home = import_module("eans.kernels.numba_threads")
    return cast(AbstractContextManager[None], home.small_operations(elements))
