"""Recipes: training runs as data. TOML files, a schema, and the builders that turn a recipe into objects."""

from eans.recipes.library import all_keys, default_for, find, load, names, to_toml
from eans.recipes.schema import Recipe

__all__ = ["Recipe", "all_keys", "default_for", "find", "load", "names", "to_toml"]
