"""Options: arguments of constructors that a recipe can set, declared where the argument is.

A class says in the signature of its constructor which arguments are options, with help and range::

    def __init__(self, graph: KnowledgeGraph, size: Annotated[int, Option("entities per query", ge=1)] = 50) -> None:

Type and default are those of the argument. What recipes accept, what they write, the help of ``eans recipes keys`` and
the keyword arguments of ``eans.train`` are read from there: `options_of`. A class inherits the options of its bases.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType, NoneType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import Field

AUTO = "auto"
UNSET: Any = inspect.Parameter.empty


@dataclass(frozen=True)
class Option:
    """What a recipe must know of an argument, as a part of its annotation.

    Attributes:
        help: one line for the list of keys.
        ge, gt, le, lt: bounds of a number.
        default: of recipes, where the argument has another default or none.
        auto: a recipe may say ``"auto"``, and does by default; the class tells the value by `automatic`, once the graph
            is known. Built without a recipe, it has the argument's default.
    """

    help: str
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    default: Any = UNSET
    auto: bool = False


class Declared(NamedTuple):
    """An option with what its argument adds.

    Attributes:
        option: as it was declared.
        type: what a recipe accepts.
        default: where a recipe says nothing.
    """

    option: Option
    type: Any
    default: Any

    def field(self) -> tuple[Any, Any]:
        """Type and field for `pydantic.create_model`."""
        return self.type, Field(self.default, description=self.option.help)


def _declared(option: Option, kind: Any, default: Any) -> Declared:
    kinds = tuple(part for part in (get_args(kind) if _is_union(kind) else (kind,)) if part is not NoneType)
    bounds = {name: value for name in ("ge", "gt", "le", "lt") if (value := getattr(option, name)) is not None}
    accepted: Any = Union[kinds]  # noqa: UP007 - of a tuple
    if bounds:
        accepted = Annotated[accepted, Field(**bounds)]
    if option.auto:
        return Declared(option, accepted | Literal["auto"], AUTO)
    return Declared(option, accepted, default if option.default is UNSET else option.default)


def _is_union(kind: Any) -> bool:
    return isinstance(kind, type(int | str)) or get_origin(kind) is Union


@cache
def options_of(kind: type) -> Mapping[str, Declared]:
    """The options of a class by name: those of its bases first, each as the nearest class declares it."""
    found: dict[str, Declared] = {}
    for base in reversed(kind.__mro__):
        if "__init__" not in vars(base) or base is object:
            continue
        constructor = vars(base)["__init__"]
        parameters = inspect.signature(constructor).parameters
        for name, hint in get_type_hints(constructor, include_extras=True).items():
            for option in getattr(hint, "__metadata__", ()):
                if isinstance(option, Option):
                    found[name] = _declared(option, get_args(hint)[0], parameters[name].default)
    return MappingProxyType(found)
