"""The keys of recipes: all of them, by whom they belong to, and what is meant by a part of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel

from eans.errors import UsageError, did_you_mean
from eans.recipes.migration import GONE, RENAMED, renamed
from eans.recipes.parts import PARTS, REGISTRIES, Owner, keys_of, owners
from eans.recipes.schema import Recipe

# Of keys that are called alike, the first of these sections has the one that needs no section's name before it.
SHORT = ("train", "model", "loss", "sampler", "evaluation", "data")


class Key(NamedTuple):
    """A key ``section.key`` with its default and what it means."""

    key: str
    default: Any
    help: str


class KeyGroup(NamedTuple):
    """Keys that belong together.

    Attributes:
        owners: what must be named to have them, such as ``sampler.name kbgan, igan``; empty if nothing must.
        keys: the keys.
    """

    owners: str
    keys: tuple[Key, ...]


def all_keys() -> tuple[str, ...]:
    """Every key a recipe may hold, ``section.key``, whatever its sections name."""
    return tuple(f"{section}.{key}" for section in _sections() for key in _keys(section))


def key_groups() -> tuple[KeyGroup, ...]:
    """All keys, grouped by the names that bring them: what ``eans recipes keys`` prints."""
    groups: list[KeyGroup] = []
    for section in _sections():
        brought: dict[str, list[Key]] = {}
        for owner, key in _described(section):
            brought.setdefault(owner, []).append(key)
        groups += [KeyGroup(owner, tuple(keys)) for owner, keys in brought.items()]
    return tuple(groups)


def _described(section: str) -> Iterator[tuple[str, Key]]:
    """Every key of a section, each after its owners in words."""
    plain = getattr(Recipe(), section)
    fields = type(plain).model_fields
    all_owners = [Owner(f"{section}.name", name) for name in REGISTRIES.get(section, ())]
    for key in _keys(section):
        declared: dict[tuple[str, Any], list[Owner]] = {}
        for owner, options in owners(section) if section in PARTS else ():
            if key in options:
                declared.setdefault((options[key].option.help, options[key].default), []).append(owner)
        for (text, default), having in declared.items():
            names = "" if having == all_owners else f"{having[0].key} {', '.join(owner.name for owner in having)}"
            yield names, Key(f"{section}.{key}", default, text)
        if not declared:
            yield "", Key(f"{section}.{key}", getattr(plain, key), fields[key].description or "")


def full_key(key: str) -> str:
    """``"dim"`` or ``"model.dim"`` -> ``"model.dim"``; a name of an earlier version with its section."""
    short = {name: f"{section}.{name}" for section in reversed(SHORT) for name in _keys(section) if name != "name"}
    old = {name: f"sampler.{name}" for names in RENAMED.values() for name in names}
    old |= {name.partition(".")[2]: name for name in GONE}
    full = {**old, **short}.get(key, key)
    if renamed(full) not in all_keys() and full not in GONE:
        raise UsageError(f"unknown setting '{key}'{did_you_mean(key, [*short, *all_keys()])}")
    return full


def unknown_key(key: str) -> str:
    """One line for a key that there is not, with the section if only that is missing."""
    whole = [known for known in all_keys() if known.endswith(f".{key}")]
    hint = f"; did you mean {' or '.join(map(repr, whole))}?" if whole else did_you_mean(key, all_keys())
    return f"unknown recipe key '{key}'{hint} (see `eans recipes keys`)"


def _sections() -> tuple[str, ...]:
    return tuple(section for section in Recipe.model_fields if section != "name")


def _keys(section: str) -> tuple[str, ...]:
    if section in PARTS:
        return keys_of(section)
    kind = Recipe.model_fields[section].annotation
    assert isinstance(kind, type)
    assert issubclass(kind, BaseModel)
    return tuple(kind.model_fields)
