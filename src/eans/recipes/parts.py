"""The sections ``[model]``, ``[sampler]`` and ``[loss]``: their keys are the options of the class that ``name`` names.

They follow from the registries, and from the constructors of the classes in them (`eans.options`), whenever they are
needed: a class that is registered while the program runs has its keys at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from eans.errors import UsageError, did_you_mean
from eans.losses import LOSSES
from eans.models import MODELS
from eans.options import Declared, Option, options_of
from eans.penalties import PENALTIES, RelationPrediction
from eans.samplers import SAMPLERS

REGISTRIES: Mapping[str, Mapping[str, type]] = {"model": MODELS, "sampler": SAMPLERS, "loss": LOSSES}
PARTS = tuple(REGISTRIES)
DEFAULTS = {"model": "rotate", "sampler": "eans", "loss": "substitution"}
NO_PENALTY = "none"
PENALTY = "penalty_"  # + an option of the penalty


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, values never change silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=(), allow_inf_nan=False)


class PartSection(Section):
    """A name, and the options of the class of that name."""

    name: str

    if TYPE_CHECKING:

        def __getattr__(self, key: str) -> Any: ...


class Owner(NamedTuple):
    """Who has options: the class that a key of a recipe names.

    Attributes:
        key: that key, such as ``sampler.name`` or ``loss.penalty``.
        name: its value.
    """

    key: str
    name: str


def listed(name: Any, known: Mapping[str, Any]) -> Any:
    """A name as it is listed, if it differs in upper and lower case alone: ``TransE``, ``RotatE``."""
    return next(
        (known_name for known_name in known if isinstance(name, str) and known_name.lower() == name.lower()), name
    )


def owners(part: str) -> Iterator[tuple[Owner, Mapping[str, Declared]]]:
    """All that may be named in a section, each with the options that it brings, by their keys there."""
    for name, kind in REGISTRIES[part].items():
        yield Owner(f"{part}.name", name), options_of(kind)
    if part == "loss":
        for name, kind in PENALTIES.items():
            yield Owner("loss.penalty", name), {PENALTY + key: option for key, option in options_of(kind).items()}


def keys_of(part: str) -> tuple[str, ...]:
    """All keys that a section may have, whatever it names."""
    own = ("penalty", "relation_weight") if part == "loss" else ()
    return tuple(dict.fromkeys(["name", *own, *(key for _, options in owners(part) for key in options)]))


def owners_of(part: str, key: str) -> list[Owner]:
    """Who has an option of this key."""
    return [owner for owner, options in owners(part) if key in options]


def chosen(part: str, written: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a section names, complete and as it is listed: ``name``, and the ``penalty`` of a loss."""
    found = {"name": listed(written.get("name", DEFAULTS[part]), REGISTRIES[part])}
    if part == "loss":
        found["penalty"] = listed(written.get("penalty", NO_PENALTY), PENALTIES)
    for key, name in found.items():
        known = {NO_PENALTY: None, **PENALTIES} if key == "penalty" else REGISTRIES[part]
        if not isinstance(name, str):
            raise UsageError(f"recipe key '{part}.{key}' = {name!r}: Input should be a valid string")
        if name not in known:
            raise UsageError(f"unknown {part}.{key} '{name}'{did_you_mean(name, known)} (one of {', '.join(known)})")
    return found


def section_class(part: str, names: Mapping[str, Any]) -> type[PartSection]:
    """The section for what it names: see `chosen`."""
    penalty = PENALTIES.get(names.get("penalty", NO_PENALTY))
    kind = REGISTRIES[part][names["name"]]
    # The descriptions list all names: a registry that has grown needs a new class.
    known = ", ".join(REGISTRIES[part]), ", ".join([NO_PENALTY, *PENALTIES])
    return _section_class(part, names["name"], kind, names.get("penalty"), penalty, known)


@cache
def _section_class(
    part: str, name: str, kind: type, penalty_name: str | None, penalty: type | None, known: tuple[str, str]
) -> type[PartSection]:
    fields: dict[str, Any] = {"name": (str, Field(name, description=known[0]))}
    fields |= {key: option.field() for key, option in options_of(kind).items()}
    if part == "loss":
        fields["penalty"] = (str, Field(penalty_name, description=known[1]))
        if penalty is not None:
            fields |= {PENALTY + key: option.field() for key, option in options_of(penalty).items()}
        fields["relation_weight"] = _relation_weight().field()
    return create_model(f"{part}:{name}", __base__=PartSection, **fields)


def _relation_weight() -> Declared:
    declared = options_of(RelationPrediction)["weight"]
    text = "weight of predicting each positive's relation from its head and tail; dot-product models only"
    return declared._replace(option=Option(text))


def section_of(part: str, written: Mapping[str, Any]) -> PartSection:
    """A checked section, complete.

    Raises:
        UsageError: one line that names the key, and to whom it belongs if another class has it.
    """
    names = chosen(part, written)
    kind = section_class(part, names)
    for key in written:
        if key not in kind.model_fields:
            raise UsageError(_foreign(part, key, names))
    try:
        return kind.model_validate({**written, **names})
    except ValidationError as error:
        raise UsageError(explain(error, part)) from None


def _foreign(part: str, key: str, names: Mapping[str, Any]) -> str:
    """One line for a key that what is chosen does not have."""
    belongs = owners_of(part, key)
    if not belongs:
        return unknown(part, key)
    last = belongs[-1].key
    *others, final = [f"'{owner.name}'" for owner in belongs]
    whose = f"{', '.join(others)} or {final}" if others else final
    return f"{part}.{key} belongs to {last} {whose}; {last} is '{names[last.partition('.')[2]]}'"


def unknown(part: str, key: str) -> str:
    """One line for a key that no class has."""
    keys = [f"{part}.{known}" for known in keys_of(part)]
    return f"unknown recipe key '{part}.{key}'{did_you_mean(f'{part}.{key}', keys)} (see `eans recipes keys`)"


def explain(error: ValidationError, part: str = "") -> str:
    """One line for the first problem, which is not an unknown key."""
    problem = error.errors()[0]
    depth = 1 if part else 2
    location = [str(place) for place in problem["loc"]][:depth]
    key = ".".join([part, *location] if part else location)
    entries = [entry for entry in error.errors() if [str(place) for place in entry["loc"]][:depth] == location]
    messages = dict.fromkeys(entry["msg"] for entry in entries)
    return f"recipe key '{key}' = {problem.get('input')!r}: {'; or '.join(messages)}"
