"""The shape of the package: imports point one way, the public names are listed and documented, importing is cheap."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from importlib import import_module, resources

import pytest

import eans
from helpers_architecture import (
    BEGIN,
    END,
    LAYERS,
    PAGE,
    PLACE,
    ROOT,
    cycles,
    drawing,
    graph,
    imports,
    reduced,
    unit_of,
)

FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")
PAPER = sorted((ROOT.parents[1] / "paper").glob("*.py"))
GRAPH = graph()


def names_of(source: str) -> list[tuple[str, str]]:
    """What a file imports from `eans`, as (module, name); the name of ``import eans.x`` is empty."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.module or "", alias.name) for alias in node.names]
    return [(module, name) for module, name in found if module.split(".")[0] == "eans"]


def is_public(module: str, name: str) -> bool:
    """Is it a name that the module lists in ``__all__``, or the package itself?"""
    return not name or name in getattr(import_module(module), "__all__", ())


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.name)
def test_the_paper_uses_public_names_alone(path):
    private = [(module, name) for module, name in names_of(path.read_text("utf-8")) if not is_public(module, name)]
    assert private == []


def test_what_is_public():
    assert names_of("import torch\nfrom eans.api import start\nimport eans") == [("eans.api", "start"), ("eans", "")]
    assert [is_public(*name) for name in (("eans.api", "start"), ("eans", "train"), ("eans.experiments", "run"))] == [
        False, True, True,
    ]  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_package_knows_nothing_of_the_repository_around_it(path):
    """A wheel has neither the paper nor benchmarks."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    assert not {"paper", "benchmarks", "tests"} & {module.split(".")[0] for module in modules}


def test_there_are_seven_layers_and_every_module_has_its_place():
    names = {path.stem for path in ROOT.glob("*.py")} | {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert len(LAYERS) == 7
    assert sorted(unit for layer in LAYERS.values() for unit in layer) == sorted(names - {"__init__"})


@pytest.mark.parametrize("module", sorted(GRAPH.keys() - {"eans"}))
def test_imports_point_one_way(module):
    """To what stands earlier in LAYERS."""
    assert violations(module, GRAPH[module]) == []


def violations(module: str, imported: set[str]) -> list[str]:
    here = unit_of(module)
    return sorted(
        other for other in imported if unit_of(other) != here and not PLACE.get(unit_of(other), 99) < PLACE[here]
    )


def test_imports_point_one_way_inside_packages_as_well():
    assert cycles(GRAPH) == []


def test_cycles_are_found():
    """Lest the test before this one passes because it finds nothing."""
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == [["a", "b", "c", "a"]]
    assert cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
    back = imports("from . import MODELS", "eans.models.base", GRAPH)
    assert cycles({**GRAPH, "eans.models.base": GRAPH["eans.models.base"] | back})


@pytest.mark.parametrize(
    ("module", "source", "found"),
    [
        ("eans.graph", "from eans.models import Model", ["eans.models"]),
        ("eans.models.base", "def f():\n    import eans.samplers.eans", ["eans.samplers.eans"]),
        ("eans.samplers.eans", "from eans import training, ordering", ["eans.training"]),
        ("eans.models.base", "from ..losses import LOSSES", ["eans.losses"]),
        ("eans.models.base", "from .complex import x\nfrom eans.kernels import compare\nimport torch", []),
        ("eans.models.base", "from eans.models import complex", []),
        ("eans.models.base", "from eans.models import MODELS", []),
        ("eans.losses", "from eans import MODELS", ["eans"]),
        ("eans.runs", "from eans.recipes.build import build_model", []),
        ("eans.files", "import eans", ["eans"]),
        ("eans.fitting", "from eans.runs import RunFolder", ["eans.runs"]),
    ],
)
def test_the_check_finds_violations(module, source, found):
    assert violations(module, imports(source, module, GRAPH, module == "eans.losses")) == found


def test_the_drawing_is_made_from_the_imports():
    """`python tests/helpers_architecture.py` brings it up to date."""
    assert f"{BEGIN}{drawing(GRAPH)}{END}" in PAGE.read_text("utf-8")


def test_the_drawing_leaves_out_what_other_arrows_say():
    assert list(reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()})) == [("a", "b"), ("b", "c")]


def test_the_table_of_modules_is_complete():
    text = PAGE.read_text("utf-8")
    table = text[text.index("## Modules") : text.index("### Kernels")]
    firsts = "".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))
    named = re.findall(r"`(\w+)`", firsts)
    assert sorted(named) == sorted(unit for layer in LAYERS.values() for unit in layer if not unit.startswith("_"))


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
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
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


@pytest.mark.parametrize("path", [ROOT / "__init__.py", *FILES, *PAPER], ids=lambda path: "/".join(path.parts[-3:]))
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


def test_the_names_of_experiments_are_those_of_its_modules():
    package = import_module("eans.experiments")
    for name in package.__all__:
        assert getattr(package, name).__doc__
    code = "import sys, eans.experiments; eans.experiments.table; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("module", ["eans", "eans.errors", "eans.cli"])
def test_importing_is_cheap(module):
    code = f"import sys, {module}; print([m for m in ('torch', 'numpy', 'pydantic') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("before", "found"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE"), ({"first": "torch"}, "None")]
)
def test_waiting_threads_sleep_unless_told_otherwise(before, found):
    """The variable is read when PyTorch is loaded: afterwards it would only mislead."""
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"} | before
    code = f"import os, sys; sys.modules['{before.get('first', 'os')}'] = os; import eans"
    code += "; print(os.environ.get('OMP_WAIT_POLICY'))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, env=environment
    )
    assert done.stdout.strip() == found


TRAIN = """
import sys
from eans import KnowledgeGraph, train
line = [("a", "r", "b"), ("b", "r", "a")]
train(KnowledgeGraph.from_labels(line, line, line), dim=2, steps=2, valid_every=1)
print([m for m in ("torch._dynamo", "torch._inductor", "sympy", "pandas") if m in sys.modules])
"""


def test_training_on_a_cpu_loads_neither_the_compiler_of_pytorch_nor_pandas():
    """They take most of a second, and a third of one, and tens of megabytes."""
    done = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_display_prints(path):
    if path.parent.name == "cli" or path.name == "commands.py" or path.parts[-2:] == ("experiments", "display.py"):
        return
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    assert not [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]


def test_type_hints_ship():
    assert resources.files("eans").joinpath("py.typed").is_file()
