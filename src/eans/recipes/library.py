"""Finding, merging and checking recipes.

A recipe file holds fragments that are merged left to right into a name ``DATASET/MODEL/METHOD``::

    default.toml  [common]  [models.MODEL]  [methods.METHOD]
    DATASET.toml  [common]  [models.MODEL]  [methods.METHOD]  [combinations."MODEL/METHOD"]

Each level is read from ``default.toml`` first, then from the dataset's file. A dataset's file may also have a method of
its own, ``based_on`` one of the others, or on one for each model. A method that lists ``models`` is there for these
alone. A user's own file is a plain recipe.

A section may set options of samplers, models, losses and penalties that a recipe made of it does not have: what
``[common]`` says of EANS is for recipes with EANS. They are left out of the others. In a user's own file, and in
overrides, such a key is an error.
"""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from eans.data import bundled_name
from eans.errors import UsageError, did_you_mean
from eans.files import as_path, path_text
from eans.models import MODELS
from eans.recipes.keys import all_keys, unknown_key
from eans.recipes.migration import FORMAT, is_gone, migrated, renamed
from eans.recipes.parts import PARTS, chosen, explain, keys_of, listed, owners_of, section_class
from eans.recipes.schema import Recipe
from eans.samplers import SAMPLERS

Fragment = dict[str, Any]
Overrides = Iterable[str] | Mapping[str, Any]


@cache
def _files() -> Mapping[str, Fragment]:
    """The shipped recipe files by dataset name."""
    folder = resources.files("eans.recipes")
    return {
        entry.name.removesuffix(".toml"): tomllib.loads(entry.read_text("utf-8"))
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".toml")
    }


def _models() -> Mapping[str, Fragment]:
    """The fragment of each model; one that the file does not mention needs nothing but its name."""
    written: Fragment = _files()["default"]["models"]
    return {name: written.get(name, {"model": {"name": name}}) for name in MODELS}


def _methods() -> Mapping[str, Fragment]:
    """The fragment of each method; a sampler that the file does not mention is one, with the plain loss."""
    written: Fragment = _files()["default"]["methods"]
    used = {fragment["sampler"]["name"] for fragment in written.values()} | set(written)
    return written | {
        name: {"sampler": {"name": name}, "loss": {"name": "logsigmoid"}} for name in SAMPLERS if name not in used
    }


def _for_model(methods: Mapping[str, Fragment], model: str) -> Mapping[str, Fragment]:
    """The methods that are there for a model: those that list it, or list none."""
    return {name: fragment for name, fragment in methods.items() if model in _models_of(fragment, [model])}


def _models_of(fragment: Fragment, otherwise: list[str]) -> list[str]:
    """The models that a method is there for; `otherwise` where it does not say."""
    basis = fragment.get("based_on")
    return list(basis) if isinstance(basis, dict) else list(fragment.get("models", otherwise))


def _basis_of(fragment: Fragment, model: str) -> str:
    """The method that one of a dataset's own is based on for a model."""
    basis = fragment["based_on"]
    return str(basis[model] if isinstance(basis, dict) else basis)


def _own_methods(dataset: str) -> Mapping[str, Fragment]:
    """The methods that only this dataset has: each says what it is ``based_on`` and for which ``models``."""
    written: Fragment = _files()[dataset].get("methods", {})
    return {name: fragment for name, fragment in written.items() if "based_on" in fragment}


def names() -> tuple[str, ...]:
    """All recipes, ``dataset/model/method``."""
    return tuple(
        f"{dataset}/{model}/{method}"
        for dataset in _files()
        for model in _models()
        for method in [*_for_model(_methods(), model), *_for_model(_own_methods(dataset), model)]
    )


def default_for(dataset: str, model: str | None = None) -> str:
    """The recipe that is used when none is named, or only a model."""
    file = dataset if dataset in _files() else "default"
    default_model, method = _files()[file]["default"].split("/")
    model = listed(model, MODELS)
    if model is None or model == default_model:
        return f"{file}/{default_model}/{method}"
    return f"{file}/{model}/{_files()['default']['preferred'].get(model, method)}"


def merge(base: Fragment, top: Mapping[str, Any]) -> Fragment:
    """`base` with `top` laid over it, section by section."""
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, dict) and isinstance(value, Mapping) else value
    return merged


def _compose(dataset: str, model: str, method: str) -> Fragment:
    base, own = _files()["default"], _files()[dataset]
    merged: Fragment = {"name": f"{dataset}/{model}/{method}"}
    special = _for_model(_own_methods(dataset), model)
    general = _for_model(_methods(), model)
    for kind, key, known in (("model", model, _models()), ("method", method, [*general, *special])):
        if key not in known:
            raise UsageError(
                f"unknown {kind} '{key}' in a recipe{_where_else(key, dataset) or did_you_mean(key, known)} "
                f"(one of {', '.join(known)})"
            )
    basis = _basis_of(special[method], model) if method in special else method
    fragments = [
        base["common"],
        own["common"],
        _models()[model],
        own.get("models", {}).get(model, {}),
        _methods()[basis],
    ]
    for name in dict.fromkeys([basis, method]):
        fragments.append(own.get("methods", {}).get(name, {}))
        fragments.append(own.get("combinations", {}).get(f"{model}/{name}", {}))
    for fragment in fragments:
        merged = merge(merged, {key: value for key, value in fragment.items() if key not in ("based_on", "models")})
    return merged


def _where_else(method: str, dataset: str) -> str:
    """A hint at the models of this dataset, or at the datasets, that have a method; nothing if there are none."""
    models = _models_of({**_methods(), **_own_methods(dataset)}.get(method, {}), [])
    datasets = [other for other in _files() if method in _own_methods(other)]
    if models:
        return f"; {dataset} has it for {', '.join(models)}"
    return f"; there is one for {', '.join(datasets)}" if datasets else ""


def _read_file(path: Path) -> Fragment:
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # reading a FIFO might wait for ever
            raise UsageError(f"cannot read recipe {path}: it is not a file")
        fragment = tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"cannot read recipe {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not a TOML recipe: {error}") from error
    return {"name": path_text(path), **migrated(fragment, path_text(path))}


def find(name: str | Path, dataset: str = "default") -> Fragment:
    """The fragment behind a name or a path to a TOML file.

    A name is ``dataset/model/method`` or a part of it: ``dataset``, ``dataset/model``, ``model`` or ``model/method``.
    The rest is taken from the default recipe of the dataset, which is `dataset` where the name says none.
    """
    path = as_path(name, "recipe")
    name = str(name)
    if name.endswith(".toml") or path.is_file():
        return _read_file(path)
    parts = name.lower().split("/")
    if parts[0] in _models():
        parts = [default_for(dataset).split("/")[0], *parts]
    if parts[0] in _files() and len(parts) <= 3:
        return _compose(*parts, *default_for(*parts[:2]).split("/")[len(parts) :])
    if name and path.is_dir():
        raise UsageError(f"'{name}' is a folder, not a recipe; a graph in it is given by --data {shlex.quote(name)}")
    near = did_you_mean(name, [*names(), *_files(), *_models()])
    raise UsageError(f"unknown recipe '{name}'{near} (see `eans recipes`)")


def parse_override(text: str) -> tuple[str, Any]:
    """``"train.lr=0.01"`` -> ``("train.lr", 0.01)``. The value is TOML; what is not TOML is taken as a string."""
    key, separator, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not separator or not key or not value:
        raise UsageError(f"'{text}' is not an override; write section.key=value, for example train.steps=5000")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def _plain(value: Any) -> Any:
    """A number of NumPy's or PyTorch's as one of Python's; anything else as it is."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def validate(fragment: Fragment) -> Recipe:
    """Check a merged fragment; the first problem becomes one line that names the key and the fix."""
    for part in PARTS:
        for key in fragment.get(part, ()) if isinstance(fragment.get(part), dict) else ():
            if key not in keys_of(part):
                raise UsageError(unknown_key(f"{part}.{key}"))
    try:
        return Recipe.model_validate(fragment)
    except ValidationError as error:
        raise UsageError(_explain(error)) from None


def _explain(error: ValidationError) -> str:
    problem = error.errors()[0]
    location = [str(part) for part in problem["loc"]]
    key = ".".join(location[:2])
    return unknown_key(key) if problem["type"] == "extra_forbidden" else explain(error)


def _reduced(fragment: Fragment, overrides: Fragment, composed: bool) -> Fragment:
    """A fragment without the keys of classes that a recipe made of it, with these overrides on top, does not name.

    Composed of shipped files it may set them for other recipes. So may a file, for what it names itself, where an
    override names something else.
    """
    reduced = dict(fragment)
    for part in PARTS:
        below, top = fragment.get(part), overrides.get(part, {})
        if not isinstance(below, dict):
            continue
        named = chosen(part, {**below, **top})
        if composed or named != chosen(part, below):
            own = section_class(part, named).model_fields
            reduced[part] = {key: value for key, value in below.items() if key in own or not owners_of(part, key)}
    return reduced


def left_out(recipe: Recipe, overrides: Overrides = ()) -> dict[str, Fragment]:
    """What the shipped recipe of this name, and overrides, set for other classes than those of the recipe."""
    fragment = merge(find(recipe.name) if recipe.name in names() else {}, _nested(overrides))
    own = {part: type(getattr(recipe, part)).model_fields for part in PARTS}
    return {
        part: {key: value for key, value in fragment.get(part, {}).items() if key not in own[part]} for part in PARTS
    }


def _nested(overrides: Overrides) -> Fragment:
    """Overrides as a fragment, in the keys of today."""
    pairs = overrides.items() if isinstance(overrides, Mapping) else [parse_override(text) for text in overrides]
    nested: Fragment = {}
    for written, given in pairs:
        key, value = renamed(written), _plain(given)
        if is_gone(key, value):
            continue
        if key not in all_keys():
            raise UsageError(unknown_key(key))
        section, _, field = key.partition(".")
        nested = merge(nested, {section: {field: value}})
    return nested


def load(name: str | Path, overrides: Overrides = (), data: str | None = None, *, strict: bool = True) -> Recipe:
    """The recipe of a name or file with overrides laid on top.

    Args:
        name: see `find`.
        overrides: ``"section.key=value"`` texts, or a mapping from ``"section.key"`` to values.
        data: replaces ``data.name``, and completes a name that says no dataset.
        strict: an override of a sampler, model, loss or penalty that the recipe does not have is an error; otherwise it
            sets nothing, for overrides that several recipes share.
    """
    fragment = find(name, data or bundled_name())
    written = _nested(overrides)
    if data is not None:
        written = merge(written, {"data": {"name": data}})
    fragment = _reduced(fragment, written, composed=fragment["name"] in names())
    merged = merge(fragment, written)
    return validate(merged if strict else _reduced(merged, {}, composed=True))


def to_toml(recipe: Recipe) -> str:
    """The recipe as TOML that `load` reads back."""
    lines = [f"format = {FORMAT}", f"name = {toml_value(recipe.name)}"]
    for section, content in recipe.model_dump().items():
        if isinstance(content, dict):
            lines += ["", f"[{section}]", *(f"{key} = {toml_value(value)}" for key, value in content.items())]
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    """A value of a recipe as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A JSON string is a TOML string, but for surrogate pairs (hence not ASCII) and the delete character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
