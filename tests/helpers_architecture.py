"""What imports what in the package, and the seven layers that it may be drawn in."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src"
ROOT = SRC / "eans"


def modules() -> dict[str, Path]:
    """The files of the package by module name; that of a package is its ``__init__.py``."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(source: str, module: str, is_package: bool) -> Iterator[tuple[str, str]]:
    """(module, name) of each import from `eans`, wherever it stands; the name of ``import eans.x`` is empty."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "eans")
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".") if is_package else module.split(".")[:-1]
                package = package[: len(package) - node.level + 1]
                base = ".".join([*package, *([base] if base else [])])
            if base.split(".")[0] == "eans":
                yield from ((base, alias.name) for alias in node.names)


def imports(source: str, module: str, known: Mapping[str, object], is_package: bool = False) -> set[str]:
    """The modules of the package that a file imports, itself left out."""
    found = {
        f"{base}.{name}" if f"{base}.{name}" in known else base for base, name in imported(source, module, is_package)
    }
    return found - {module}


def graph() -> dict[str, set[str]]:
    """For each module, those that it imports."""
    known = modules()
    return {
        name: imports(path.read_text("utf-8"), name, known, path.name == "__init__.py") for name, path in known.items()
    }


def cycles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Ways from a module back to itself; empty where imports point one way."""
    found: list[list[str]] = []
    done: set[str] = set()

    def visit(node: str, way: list[str]) -> None:
        if node in way:
            found.append([*way[way.index(node) :], node])
        elif node not in done:
            for other in sorted(edges.get(node, ())):
                visit(other, [*way, node])
            done.add(node)

    for start in sorted(edges):
        visit(start, [])
    return found


# Modules and packages, each in its layer. One imports what stands before it, in lower layers and in its own.
LAYERS: dict[str, tuple[str, ...]] = {
    "basics": (
        "_version", "errors", "huge_pages", "phases", "shapes", "signals", "types", "arguments", "options", "progress",
        "streams", "commands", "files", "figures", "pages", "table_files",
    ),
    "computation": ("kernels", "optimizer", "ordering", "devices"),
    "graphs": (
        "labelled", "misspelt", "vocabulary", "numbering", "label_blocks", "triple_index", "graph", "relation_patterns",
        "weights", "permutation", "batches", "data", "splitting", "manifest", "tensor_files", "queries",
    ),
    "parts": ("models", "samplers", "losses", "penalties", "objective", "compatibility"),
    "training": (
        "cuda_graphs", "execution", "step", "training", "costs", "baselines", "ranking", "evaluation", "prediction",
        "batch_prediction", "similarity", "export",
    ),
    "runs": (
        *("recipes", "listener", "stores", "fitting", "run_shapes", "runs", "run", "run_progress", "lifecycle", "api"),
    ),
    "tools": ("description", "inspection", "experiments", "tuning", "comparison", "cli", "__main__"),
}  # fmt: skip
PLACE = {unit: place for place, unit in enumerate(unit for layer in LAYERS.values() for unit in layer)}


def unit_of(module: str) -> str:
    """``eans.models.base`` -> ``models``; the package itself -> ``""``."""
    return [*module.split("."), ""][1]


def units(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same graph of modules and packages right below `eans`."""
    found: dict[str, set[str]] = {unit_of(module): set() for module in edges}
    for module, others in edges.items():
        found[unit_of(module)] |= {unit_of(other) for other in others} - {unit_of(module)}
    return found


def reduced(needs: Mapping[str, set[str]]) -> Iterator[tuple[str, str]]:
    """The arrows of a graph without cycles, without those whose ends other arrows connect too."""

    def reached(node: str) -> set[str]:
        return needs[node].union(*(reached(other) for other in needs[node]))

    for node in needs:
        yield from ((node, other) for other in sorted(needs[node] - set().union(*map(reached, needs[node]))))


def drawing(edges: Mapping[str, set[str]]) -> str:
    """The layers as a Mermaid flowchart: arrows between layers and, inside of each, between its modules.

    An arrow is left out where others lead to the same place.
    """
    needs = units(edges)
    layers = list(LAYERS)
    layer_of = {unit: layer for layer, members in LAYERS.items() for unit in members}
    lines = ["flowchart TD"]
    for layer in reversed(layers):
        lines.append(f'  subgraph layer_{layer}["{layers.index(layer) + 1} {layer}"]')
        drawn = [unit for unit in LAYERS[layer] if not unit.startswith("_")]
        lines += [f'    {unit}_["{unit}"]' for unit in drawn]
        inside = {unit: needs[unit] & set(drawn) for unit in drawn}
        lines += [f"    {unit}_ --> {other}_" for unit, other in reduced(inside)]
        lines.append("  end")
    between = {
        layer: {layer_of[other] for unit in LAYERS[layer] for other in needs[unit] - {""}} - {layer}
        for layer in reversed(layers)
    }
    lines += [f"  layer_{layer} --> layer_{other}" for layer, other in reduced(between)]
    return "\n".join(lines)


(PAGE,) = (SRC.parent / "docs").rglob("architecture.md")
BEGIN, END = "<!-- drawn by tests/helpers_architecture.py -->\n```mermaid\n", "\n```\n<!-- end of the drawing -->"


def main() -> None:
    """Bring the drawing in architecture.md up to date."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + drawing(graph()) + END + rest.partition(END)[2], "utf-8")


if __name__ == "__main__":
    main()
