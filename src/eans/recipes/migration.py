"""Recipes of earlier versions: their keys under the names that they have now.

Format 1 had one flat section for all samplers, all models and all losses: a key of one class stood beside those of the
others, with a prefix or without, and a recipe that a run wrote had all of them. Since format 2 a section has the keys
of the class that it names. A run's recipe says its format; a file without one is of format 1 or written by hand.

* Keys that are called otherwise now (`RENAMED`) are read under both names, in files and in overrides.
* Keys that are gone (`GONE`) are read where they have the value that everything has now; another one is an error.
* In a recipe that a run wrote, keys of classes that it does not name did nothing and are left out. In a file that was
  written by hand they are an error, as they are in one of today's.

Records of runs carry a hash of the recipe in format 1: `flat` makes that of a recipe of today.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eans.errors import UsageError
from eans.graph import KnowledgeGraph
from eans.options import AUTO
from eans.recipes.parts import DEFAULTS, PARTS, PartSection, chosen, owners, owners_of, section_class
from eans.samplers.eans import default_clusters, default_sigma

FORMAT = 2
# Of samplers, by name: the key in format 1, and what it is now.
RENAMED: Mapping[str, Mapping[str, str]] = {
    "frequency": {"frequency_power": "power"},
    "nscaching": {
        "cache_size": "size",
        "cache_candidates": "candidates",
        "cache_draw": "draw",
        "cache_update": "update",
        "cache_lazy": "lazy",
    },
    "sans": {
        "pool_kind": "kind",
        "walk_restart": "restart",
        "walk_weights": "by_visits",
        "pool_limit": "limit",
        "pool_memory_mb": "memory_limit_mb",
    },
    "kbgan": {
        "generator_model": "generator",
        "generator_dim": "width",
        "generator_lr": "learning_rate",
        "generator_weight_decay": "weight_decay",
    },
    "igan": {
        "generator_dim": "width",
        "generator_lr": "learning_rate",
        "generator_weight_decay": "weight_decay",
        "generator_memory_mb": "memory_limit_mb",
    },
}
# The value that everything has now.
GONE: Mapping[str, Any] = {
    "sampler.boundary": "wrap",
    "sampler.pool_seed": 0,
    "sampler.generator_seed": 0,
    "loss.detach": False,
}
WHOLE = ("name", "data", "model", "sampler", "loss", "train")  # of a recipe that a run wrote


def renamed(key: str) -> str:
    """``section.key`` as it is called now, whatever it was called before."""
    part, _, old = key.partition(".")
    if part != "sampler":
        return key
    return next((f"{part}.{names[old]}" for names in RENAMED.values() if old in names), key)


def is_gone(key: str, value: Any) -> bool:
    """Is it a key that is gone, with the value that everything has now?"""
    if key not in GONE:
        return False
    if value != GONE[key]:
        raise UsageError(f"recipe key '{key}' is gone: it is always {GONE[key]!r}, but here {value!r}")
    return True


def migrated(fragment: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The content of a recipe file, of any version, in the keys of today."""
    content = dict(fragment)
    version = content.pop("format", 1)
    if version not in (1, FORMAT):
        raise UsageError(f"{file}: format {version!r} is not known; it was made by a later version of eans")
    if version == FORMAT:
        return content
    whole = all(key in content for key in WHOLE)
    for part in PARTS:
        if isinstance(written := content.get(part), Mapping):
            content[part] = _section(part, written, whole)
    return content


def _section(part: str, written: Mapping[str, Any], whole: bool) -> dict[str, Any]:
    """A section of format 1; `whole` if it has the keys of all classes."""
    known = {key: value for key, value in written.items() if not is_gone(f"{part}.{key}", value)}
    if not whole:
        return {renamed(f"{part}.{key}").partition(".")[2]: value for key, value in known.items()}
    names = chosen(part, known)
    own = section_class(part, names).model_fields
    now = RENAMED.get(names["name"], {}) if part == "sampler" else {}
    kept: dict[str, Any] = {}
    for key, value in known.items():
        current = now.get(key, key)
        if current in own and not (key == current and key in now.values()):
            kept[current] = value
        elif not owners_of(part, renamed(f"{part}.{key}").partition(".")[2]):
            kept[key] = value  # no key of any version: an error, later
    return kept


def flat(part: str, section: PartSection, also: Mapping[str, Any], graph: KnowledgeGraph) -> dict[str, Any]:
    """A resolved section as format 1 had it, without what has its default.

    Args:
        part: its name.
        section: the section.
        also: keys that the recipe of this name sets for other classes than the chosen one, as they are called now.
        graph: what ``"auto"`` stood for follows from it, for the keys of other classes as well.
    """
    names = chosen(part, section.model_dump())
    old = {now: before for before, now in RENAMED.get(names["name"], {}).items()} if part == "sampler" else {}
    found = section.model_dump(exclude_defaults=True)
    found = {old.get(key, key): value for key, value in found.items() if key not in names}
    defaults = {"name": DEFAULTS[part], "penalty": "none"}
    found |= {key: name for key, name in names.items() if name != defaults[key]}
    found |= dict(_others(part, also))
    if part == "sampler":
        clusters = found.setdefault("clusters", default_clusters(graph.num_entities))
        found.setdefault("sigma", default_sigma(graph.num_entities, clusters))
    if part == "model":
        found.setdefault("relation_dim", section.dim)
    return found


def _others(part: str, also: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Keys of other classes as format 1 had them, without defaults."""
    for key, value in also.items():
        for owner, options in owners(part):
            if key in options and value not in (options[key].default, AUTO):
                old = {now: before for before, now in RENAMED.get(owner.name, {}).items()} if part == "sampler" else {}
                yield old.get(key, key), value
                break
