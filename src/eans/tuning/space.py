"""What a search tries: methods, and the ranges of their hyper-parameters, from a TOML file such as ``space.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from eans.errors import UsageError, did_you_mean
from eans.files import as_path
from eans.recipes import Recipe, load

if TYPE_CHECKING:
    from optuna import Trial

Value = bool | int | float | str
METHOD = "method"  # the parameter that says which


class Range(BaseModel):
    """The values of a recipe key.

    Attributes:
        low, high: both whole, or numbers; with `log`, by the logarithm.
        choices: instead of `low` and `high`.
        first: that of the method's first trial.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    low: int | float | None = None
    high: int | float | None = None
    log: bool = False
    choices: tuple[Value, ...] = Field((), strict=False)
    first: Value | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.choices:
            if self.low is not None or self.high is not None or self.log:
                raise ValueError("has choices, and so neither low nor high nor log")
        elif self.low is None or self.high is None:
            raise ValueError("needs low and high, or choices")
        elif not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError("needs low < high" + (", both above 0 for log" if self.log else ""))
        if self.first is not None and not self.has(self.first):
            raise ValueError(f"first is {self.first!r}, which is not in the range")
        return self

    def has(self, value: Value) -> bool:
        """Is a value in the range?"""
        if self.choices:
            return any(value == choice and type(value) is type(choice) for choice in self.choices)
        assert self.low is not None
        assert self.high is not None
        return isinstance(value, (int, float)) and self.low <= value <= self.high

    def suggest(self, trial: Trial, name: str) -> Value:
        """A value for a trial, by Optuna."""
        if self.choices:
            chosen: Value = trial.suggest_categorical(name, self.choices)  # type: ignore[assignment]  # none is None
            return chosen
        assert self.low is not None
        assert self.high is not None
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(name, self.low, self.high, log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class Candidate:
    """A method with values for its hyper-parameters.

    Attributes:
        method: such as ``"complex/all+n3"``.
        values: recipe keys to what was chosen for them.
        fixed: recipe keys that all candidates of the method share.
    """

    method: str
    values: Mapping[str, Value]
    fixed: Mapping[str, Value]

    def recipe(self, data: str, **train: Value) -> Recipe:
        """The recipe for a graph, by its name or folder, with keys of ``[train]`` on top; not resolved."""
        settings = {**self.fixed, **self.values} | {f"train.{key}": value for key, value in train.items()}
        return load(f"default/{self.method}", settings, data)

    def text(self) -> str:
        """The values in short: ``dim=200 lr=0.11``."""
        return " ".join(f"{key.partition('.')[2]}={short(value)}" for key, value in self.values.items())


def short(value: Value) -> str:
    """A value in three digits."""
    return f"{value:.3g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Space:
    """Methods with the ranges and the fixed values of their recipe keys."""

    methods: Mapping[str, Mapping[str, Range | Value]]

    @classmethod
    def read(cls, path: str | Path | None = None) -> Space:
        """That of a file; without one, the space that comes with the package."""
        return cls.parse(space_text(path), str(path or "space.toml"))

    @classmethod
    def parse(cls, text: str, name: str) -> Space:
        """That of a TOML text; `name` is what errors call it."""
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{name}: not a TOML file: {error}") from error
        methods = content.get("methods")
        if set(content) != {"methods"} or not isinstance(methods, dict) or not methods:
            raise UsageError(f'{name}: has no methods; write tables [methods."MODEL/METHOD"], and no others')
        found = {method: _ranges(method, keys, name) for method, keys in methods.items()}
        space = cls(found)
        for method in found:
            try:
                space.first(method).recipe("")
            except UsageError as error:
                raise UsageError(f'{name}: methods."{method}": {error}') from error
        return space

    def only(self, methods: Iterable[str]) -> Space:
        """With these methods alone."""
        for method in methods:
            if method not in self.methods:
                known = ", ".join(self.methods)
                raise UsageError(
                    f"no method '{method}' to search{did_you_mean(method, self.methods)} (there are {known})"
                )
        return Space({method: self.methods[method] for method in dict.fromkeys(methods)})

    def first(self, method: str) -> Candidate:
        """What a method is tried with first."""
        return self._candidate(method, {key: _first(kind) for key, kind in self.ranges(method).items()})

    def ranges(self, method: str) -> dict[str, Range]:
        """The keys of a method that are searched."""
        return {key: kind for key, kind in self.methods[method].items() if isinstance(kind, Range)}

    def suggest(self, trial: Trial) -> Candidate:
        """A candidate for a trial, by Optuna: a method, then its values."""
        method = trial.suggest_categorical(METHOD, tuple(self.methods))
        chosen = {key: kind.suggest(trial, parameter(method, key)) for key, kind in self.ranges(method).items()}
        return self._candidate(method, chosen)

    def of(self, parameters: Mapping[str, Any]) -> Candidate:
        """The candidate behind the parameters of a trial."""
        method = parameters[METHOD]
        return self._candidate(method, {key: parameters[parameter(method, key)] for key in self.ranges(method)})

    def _candidate(self, method: str, chosen: Mapping[str, Value]) -> Candidate:
        fixed = {key: kind for key, kind in self.methods[method].items() if not isinstance(kind, Range)}
        return Candidate(method, chosen, fixed)


def space_text(path: str | Path | None = None) -> str:
    """The text of a file with a space, or of the one that comes with the package."""
    if path is None:
        return resources.files("eans.tuning").joinpath("space.toml").read_text("utf-8")
    path = as_path(path, "space")
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read space {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a TOML file: {error}") from error


def parameter(method: str, key: str) -> str:
    """What Optuna calls a key of a method: methods have ranges of their own."""
    return f"{method}:{key}"


def _ranges(method: str, keys: Any, name: str) -> dict[str, Range | Value]:
    if not isinstance(keys, dict):
        raise UsageError(f'{name}: methods."{method}" is no table of recipe keys')
    found: dict[str, Range | Value] = {}
    for key, written in keys.items():
        try:
            found[key] = Range.model_validate(written) if isinstance(written, dict) else written
        except ValidationError as error:
            problem = error.errors()[0]
            place = "".join(f"{part}: " for part in problem["loc"][:1])
            text = problem["msg"].removeprefix("Value error, ")
            raise UsageError(f'{name}: methods."{method}"."{key}": {place}{text}') from None
    return found


def _first(kind: Range) -> Value:
    """`first`, or the first choice, or what lies in the middle."""
    if kind.first is not None:
        return kind.first
    if kind.choices:
        return kind.choices[0]
    assert kind.low is not None
    assert kind.high is not None
    middle = (kind.low * kind.high) ** 0.5 if kind.log else (kind.low + kind.high) / 2
    return round(middle) if isinstance(kind.low, int) and isinstance(kind.high, int) else middle
