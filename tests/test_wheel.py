"""A wheel built from the tree, installed into an environment of its own, trains and predicts."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import eans
from helpers_runs import environment

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, cwd: Path) -> str:
    """The output of a command that must succeed; the source tree is not on its path."""
    result = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment(), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the tree, so that nothing is written into the tree and nothing stale is packed."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", tree, cwd=folder)
    (built,) = (folder / "dist").glob("*.whl")
    return built


def test_contents(wheel: Path) -> None:
    assert wheel.name == f"eans-{eans.__version__}-py3-none-any.whl"
    packed = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        str(Path("eans") / path.relative_to(ROOT / "src" / "eans"))
        for path in (ROOT / "src" / "eans").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources <= packed
    for name in ("py.typed", "recipes/default.toml", "recipes/fb15k-237.toml", "recipes/wn18rr.toml"):
        assert f"eans/{name}" in packed
    for name in ("train.txt.gz", "valid.txt.gz", "test.txt.gz", "LICENSE"):
        assert f"eans/data/bundled/wordnet-core/{name}" in packed
    assert f"eans-{eans.__version__}.dist-info/licenses/LICENSE" in packed
    tops = {name.split("/")[0] for name in packed}
    assert tops == {"eans", f"eans-{eans.__version__}.dist-info"}
    data = {name for name in packed if not name.endswith(".py") and name.startswith("eans/")}
    assert {name.split("/")[1] for name in data} == {
        "py.typed",
        "recipes",
        "data",
        "description",
        "inspection",
        "pages",
        "tuning",
    }
    assert wheel.stat().st_size < 800_000


def test_installed_wheel_trains_and_predicts(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])", cwd=tmp_path).strip())
    target = ["--python", python, "install", "--no-deps", "--no-index", "--quiet", wheel]
    run(sys.executable, "-m", "pip", *target, cwd=tmp_path)
    # The dependencies are those of this environment; only eans itself is the wheel's, which comes first on the path.
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    where = run(python, "-c", "import eans; print(eans.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(tmp_path / "venv")
    command = tmp_path / "venv" / "bin" / "eans"
    short = ["--set", "train.steps=5", "--set", "model.dim=8"]
    output = run(command, "train", *short, "--out", "run", cwd=tmp_path)
    assert "KnowledgeGraph('wordnet-core'" in output
    assert "test   both" in output
    predictions = run(
        command, "predict", "run", "--head", "israel.n.01", "--relation", "hypernym", "-k", "3", cwd=tmp_path
    )
    assert len(predictions.splitlines()) == 4
