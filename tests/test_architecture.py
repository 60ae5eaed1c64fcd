"""The shape of the package: imports point one way, the public names are listed and documented, importing is cheap."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib import import_module, resources
from pathlib import Path

import pytest

import eans

ROOT = Path(eans.__file__).parent
# A module may import those of earlier lines only (and its own line: a package may import within itself).
LAYERS = [
    {"errors", "_version", "wording", "stopping"},
    {"files"},
    {"figures"},
    {"graph"},
    {"data"},
    {"kernels"},
    {"optimizer"},
    {"models"},
    {"ordering"},
    {"samplers"},
    {"losses", "penalties"},
    {"batches"},
    {"recording"},
    {"training"},
    {"fitting"},
    {"evaluation"},
    {"prediction"},
    {"recipes"},
    {"runs"},
    {"api"},
    {"inspection"},
    {"reproduction"},
    {"screen"},
    {"display"},
    {"display_inspection"},
    {"display_report"},
    {"display_runs"},
    {"display_reproduction"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def top(module: str) -> str:
    """``eans.models.base`` -> ``models``; the package itself -> ``""``."""
    return [*module.split("."), ""][1]


def imports(source: str, module: str) -> set[str]:
    """The parts of the package that a file imports, wherever in it the import stands."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {top(alias.name) for alias in node.names if alias.name.split(".")[0] == "eans"}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(module.split(".")[: -node.level] + ([base] if base else []))
            if base == "eans":
                found |= {alias.name for alias in node.names}
            elif base.split(".")[0] == "eans":
                found.add(top(base))
    return found


def violations(source: str, module: str) -> list[str]:
    here = top(module)
    return sorted(
        other for other in imports(source, module) if other != here and not LEVEL.get(other, 99) < LEVEL[here]
    )


def module_of(path: Path) -> str:
    return ".".join(("eans", *path.relative_to(ROOT).with_suffix("").parts))


def test_every_module_has_its_place():
    names = {top(module_of(path)) for path in FILES}
    assert names == LEVEL.keys(), "a new module needs a line in LAYERS, and in docs/architecture.md"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    assert violations(path.read_text(encoding="utf-8"), module_of(path)) == []


@pytest.mark.parametrize(
    ("module", "source", "found"),
    [
        ("eans.graph", "from eans.models import Model", ["models"]),
        ("eans.models.base", "def f():\n    import eans.samplers.eans", ["samplers"]),
        ("eans.samplers.eans", "from eans import training, ordering", ["training"]),
        ("eans.models.base", "from ..losses import LOSSES", ["losses"]),
        ("eans.models.base", "from .complex import x\nfrom eans.kernels import compare\nimport torch", []),
        ("eans.losses", "from eans import MODELS", ["MODELS"]),
        ("eans.runs", "from eans.recipes.build import build_model", []),
        ("eans.files", "import eans", [""]),
    ],
)
def test_the_check_finds_violations(module, source, found):
    assert violations(source, module) == found


# --- public names -------------------------------------------------------------------------------------------------


def test_all_is_exactly_what_the_homes_offer():
    offered = [name for names in eans._HOMES.values() for name in names]
    assert len(offered) == len(set(offered))
    assert set(eans.__all__) == {*offered, "__version__"}
    assert list(eans.__all__) == sorted(eans.__all__, key=lambda n: (not n.isupper(), n[0].islower() or n[0] == "_", n))
    assert dir(eans) == sorted(eans.__all__)


@pytest.mark.parametrize(("home", "names"), eans._HOMES.items())
def test_every_home_has_its_names(home, names):
    for name in names:
        assert getattr(eans, name) is getattr(import_module(home), name)


def test_type_checkers_see_the_same_names():
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {node.module: tuple(alias.name for alias in node.names) for node in guarded.body}
    assert {home: set(names) for home, names in seen.items()} == {h: set(n) for h, n in eans._HOMES.items()}


@pytest.mark.parametrize("name", sorted(set(eans.__all__) - {"__version__"}))
def test_public_objects_are_documented(name):
    thing = getattr(eans, name)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        assert thing.__doc__, f"{name} has no docstring"
        # Dataclasses and named tuples write one of their own: a signature.
        assert not thing.__doc__.startswith(f"{name}("), f"{name} has no docstring"
        members = vars(thing).items() if inspect.isclass(thing) else ()
        methods = [key for key, value in members if key[0] != "_" and getattr(value, "__name__", "") == key]
        bare = [key for key in methods if not inspect.getdoc(getattr(thing, key))]
        assert not bare, f"{name}: no docstring for {bare}"
    else:
        assert isinstance(thing, dict)
        assert all(entry.__doc__ for entry in thing.values())


@pytest.mark.parametrize("path", [ROOT / "__init__.py", *FILES], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_says_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_unknown_attribute():
    with pytest.raises(AttributeError, match="module 'eans' has no attribute 'trian'"):
        eans.trian  # noqa: B018


def test_star_import_and_version():
    space: dict[str, object] = {}
    exec("from eans import *", space)
    assert set(eans.__all__) <= space.keys()
    assert eans.__version__ == import_module("eans._version").__version__


# --- importing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["eans", "eans.errors", "eans.cli"])
def test_importing_is_cheap(module):
    code = f"import sys, {module}; print([m for m in ('torch', 'numpy', 'pydantic') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


TRAIN = """
import sys
from eans import KnowledgeGraph, train
line = [("a", "r", "b"), ("b", "r", "a")]
train(KnowledgeGraph.from_labels(line, line, line), dim=2, steps=2, valid_every=1)
print([m for m in ("torch._dynamo", "torch._inductor", "sympy") if m in sys.modules])
"""


def test_training_on_a_cpu_does_not_load_the_compiler_of_pytorch():
    """It takes most of a second, and tens of megabytes."""
    done = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_display_prints(path):
    if path.name == "cli.py" or path.name.startswith("display"):
        return
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    assert not [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]


def test_type_hints_ship():
    assert resources.files("eans").joinpath("py.typed").is_file()
