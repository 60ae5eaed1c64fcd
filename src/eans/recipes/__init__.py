"""Recipes: training runs as data. TOML files, a schema, and the builders that turn a recipe into objects."""

from eans.recipes.keys import all_keys, full_key, key_groups
from eans.recipes.library import default_for, find, load, names, to_toml
from eans.recipes.schema import Recipe

__all__ = ["Recipe", "all_keys", "default_for", "find", "full_key", "key_groups", "load", "names", "to_toml"]
