"""The tables in the documentation are what the run records say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

import eans
from benchmarks import performance_page, search
from benchmarks.cells import RECORDS, read_records, spread
from eans.experiments import Record, RecordStore, Table, table
from eans.penalties import PENALTIES
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.recipes.library import validate
from eans.samplers import SAMPLERS
from helpers_runs import COMMAND, environment, ring_graph, write_graph
from paper.labels import without_zeros
from paper.layouts import DATASET, METHOD, MODEL, grouped, in_order, measured, published
from paper.overview import anchor
from paper.report import Outcome, from_paper, judge
from paper.selection import read_cells, select
from scripts import reference_pages

ROOT = Path(__file__).resolve().parent.parent
SAMPLER_PAGES = ROOT / "docs" / "explanation" / "samplers"
RESULTS = (ROOT / "docs" / "results" / "README.md").read_text("utf-8")
PAGE = (ROOT / "docs" / "results" / "comparison.md").read_text("utf-8")


METHODS = {"uniform": "uniform", "adv": "self-adversarial", "eans": "EANS", "eans+adv": "EANS + self-adversarial"}


def test_the_comparison_is_what_its_records_say() -> None:
    """MRR of every row, and the short table of the results, from those of the bundled graph."""
    lines = read_records(RECORDS / "wordnet-core-samplers.jsonl")
    found = table([Record("", line) for line in lines], ("model", "sampler.negatives", "method"), ("test.mrr",))
    assert len(found.rows) == 16
    for model, negatives, method, *_, runs in found.rows:
        mrr = [
            line["test"]["both"]["mrr"]
            for line in lines
            if line["recipe"].endswith(f"/{model}/{method}") and line["overrides"] == [f"sampler.negatives={negatives}"]
        ]
        assert f"\n| {model} | {negatives} | {METHODS[method]} | {spread(mrr)} |" in PAGE
        assert len(mrr) == runs == 3
    short = RESULTS.replace("**", "")
    means = {(model, n, method): f"{mean.value:.3f}" for model, n, method, mean, _ in found.rows}
    for model, n in dict.fromkeys((model, n) for model, n, _ in means):
        assert f"| {model} | {n} | {' | '.join(means[model, n, method] for method in METHODS)} |" in short


def test_the_look_at_fb15k_237_is_what_its_records_say() -> None:
    lines = read_records(RECORDS / "fb15k-237-cpu.jsonl")
    assert len(lines) == 4
    for line in lines:
        numbers = [line[split]["both"][name] for split in ("valid", "test") for name in ("mrr", "hits@10")]
        cells = " | ".join(f"{number:.3f}" for number in numbers)
        assert f"| {line['recipe'].split('/')[-1]} | {cells} | " in PAGE


def test_baselines_are_what_their_records_say() -> None:
    """`python -m benchmarks.baselines` writes the records."""
    found = {line["graph"]: line["test"] for line in read_records(RECORDS / "baselines.jsonl")}
    assert set(found) == {"wordnet-core", "fb15k-237", "wn18rr"}
    rules, frequent = found["wn18rr"]["inverse-rule"]["both"]["mrr"], found["fb15k-237"]["frequency"]["both"]["mrr"]
    text = " ".join((ROOT / "docs" / "how-to" / "evaluate.md").read_text("utf-8").split())
    assert f"rules alone reach an MRR of {f'{rules:.3f}'[1:]}," in text
    assert f"frequent answers {f'{frequent:.3f}'[1:]}." in text
    assert found["fb15k-237"]["inverse-rule"]["both"]["mrr"] < 0.001


@pytest.mark.parametrize(
    ("name", "only", "title", "place"),
    [
        ("main", "sampler=eans", "MRR, published → here", lambda cell: f"{DATASET.write(cell)}, {METHOD.write(cell)}"),
        ("best", "", "MRR, best published → here", DATASET.write),
    ],
    ids=["main", "best"],
)
def test_results_say_what_is_reached(name: str, only: str, title: str, place: Callable[[Outcome], str]) -> None:
    """The MRR of EANS in the paper's main table, and of the recipes `best`: a row per model."""
    outcomes = judge(select(read_cells(), [name], only).cells, RecordStore(ROOT / "paper" / "records").read())
    models = grouped(in_order(outcomes), MODEL.write)

    def write(outcome: Outcome) -> str:
        return f"{published('mrr', outcome)} → {measured('mrr', '', error=False).write(outcome)}"

    rows = [[name, *(without_zeros(write(outcome)) for outcome in row)] for name, row in models.items()]
    header = [title, *(place(outcome) for outcome in next(iter(models.values())))]
    text = Table(header, rows, labels=1).markdown()
    assert f"\n{text}\n" in RESULTS, text


@pytest.mark.parametrize("page", ["README.md", "docs/results/README.md"])
def test_how_many_cells_are_reached(page: str) -> None:
    outcomes = from_paper(judge(read_cells(), RecordStore(ROOT / "paper" / "records").read()))
    passed = sum(outcome.passed is True for outcome in outcomes)
    sentence = f"of the {len(outcomes)} cells of the paper's tables, {passed} "
    assert sentence in " ".join((ROOT / page).read_text("utf-8").split()).replace("Of the", "of the")


@pytest.mark.parametrize("name", performance_page.SECTIONS)
def test_performance_tables_come_from_records(name: str) -> None:
    """`python -m benchmarks.performance_page` brings the page up to date."""
    found = performance_page.written(performance_page.PAGE.read_text("utf-8"), name)
    if performance_page.content(performance_page.SECTIONS[name], RECORDS) is None:
        pytest.skip("not measured yet")
    assert found == performance_page.rendered(name)


def test_what_a_search_finds_comes_from_records() -> None:
    page = (ROOT / "docs" / "how-to" / "tune.md").read_text("utf-8")
    assert search.page_table(read_records(search.FILE)).markdown() in page


def test_the_tutorial_makes_a_graph_of_a_data_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    blocks = python_blocks(ROOT / "docs" / "tutorials" / "own-graph.md")
    (block,) = [block for block in blocks if "from_labels" in block]
    monkeypatch.chdir(tmp_path)
    rows = [f"{number},r{number % 3},e{number + 1}\n" for number in range(50)]
    Path("facts.csv").write_text("".join(["head,relation,tail\n", *rows]), "utf-8")
    space: dict[str, Any] = {"eans": eans}
    exec(block, space)
    graph = space["kg"]
    assert (len(graph.train), len(graph.test), graph.name) == (45, 5, "facts")
    assert {line.replace("\t", ",") for split in ("train", "test") for line in graph.text(split)} == set(rows)


def test_the_tutorial_goes_from_a_file_to_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands, but for the time of the search."""
    page = (ROOT / "docs" / "tutorials" / "own-graph.md").read_text("utf-8")
    first, second = page.split("## From a folder")[0].split("```sh\n")[1:]
    monkeypatch.chdir(tmp_path)
    exec(python_blocks(ROOT / "docs" / "tutorials" / "own-graph.md")[0], {})
    env = environment(PATH=f"{Path(COMMAND).parent}{os.pathsep}{os.environ['PATH']}")
    for block in (first, second):
        script = block.split("```")[0].replace("--budget 10m", "--budget 8s")
        done = subprocess.run(["bash", "-e"], input=script, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        if block is first:
            for word in ("Hubs", "rung", "test   both", "run folder: runs/best", "connecticut.n.01", "report.html"):
                assert word in done.stdout, word
    assert pyarrow.parquet.read_table("answers.parquet").num_rows > 100


@pytest.mark.parametrize("page", ["add-a-model", "add-a-sampler", "add-a-loss"])
def test_parts_of_ones_own_train(page: str, request: pytest.FixtureRequest) -> None:
    """The examples run as they stand, but for fewer and smaller steps."""
    for registry in (eans.LOSSES, eans.MODELS, eans.SAMPLERS, PENALTIES):
        request.addfinalizer(partial(restore, registry, dict(registry)))
    few = "steps=3, dim=8, progress=False, device='cpu'"
    for block in python_blocks(ROOT / "docs" / "how-to" / f"{page}.md"):
        space: dict[str, Any] = {}
        exec(block.replace("steps=100", few), space)
        assert [record["step"] for record in space["run"].history if "loss" in record] == [3]


def restore(registry: dict[str, Any], content: dict[str, Any]) -> None:
    """Take out of a registry what an example has put into it."""
    registry.clear()
    registry.update(content)


def python_blocks(page: Path) -> list[str]:
    """The examples on a page."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert blocks
    return blocks


def test_a_triple_can_be_followed(tmp_path: Path) -> None:
    """Every function of the walk exists, and a run calls them in the order of the walk."""
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8")
    hops = re.findall(r"^\| \d+ \| `([\w/]+)\.py` \| `([\w.]+)` \|", page, re.MULTILINE)
    assert 8 <= len(hops) <= 12
    codes = [attrgetter(f"{name}.__code__")(import_module(file.replace("/", "."))) for file, name in hops]
    called: dict[Any, None] = {}  # in the order of first calls

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in codes:
            called.setdefault(frame.f_code)

    folder = write_graph(ring_graph(), tmp_path / "my-folder")
    sys.setprofile(note)
    try:
        settings = {"dim": 8, "negatives": 4, "steps": 2, "progress": False, "device": "cpu"}
        eans.train(eans.load(str(folder)), "transe", "eans", out=tmp_path / "run", **settings)
    finally:
        sys.setprofile(None)
    assert [hops[codes.index(code)] for code in called] == hops
    assert (tmp_path / "run" / "metrics.json").exists()


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_generated_reference_is_up_to_date(name: str) -> None:
    """`python -m scripts.reference_pages` writes these pages."""
    assert (reference_pages.REFERENCE / name).read_text("utf-8") == reference_pages.PAGES[name]()


def test_the_command_line_reference_is_whole() -> None:
    """Every command that help shows has a section, and no other one has."""
    text = (reference_pages.REFERENCE / "cli.md").read_text("utf-8")
    shown = {"train", "evaluate", "predict", "report", "verify", "data", "recipes", "inspect"}
    assert shown <= set(re.findall(r"^## `eans ([\w-]+)`$", text, re.MULTILINE))
    assert not re.search(r"`(eans )?reproduce`|eans inspect run", text)


def test_every_page_is_in_the_navigation() -> None:
    """What `mkdocs.yml` lists is what there is."""
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").split("\nnav:\n")[1].split("\n\n")[0]
    listed = re.findall(r"\S+\.md", navigation)
    assert sorted(listed) == sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))


PAGES = [
    *(path.name for path in sorted(ROOT.glob("*.md"))),
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md"))),
]


def headings(file: Path) -> set[str]:
    """The anchors of a page."""
    text = re.sub(r"^```.*?^```", "", file.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return {anchor(title) for title in re.findall("^#+ (.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"", text) for target in target]
    missing = []
    for target in targets:
        path, _, fragment = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        if target and "://" not in target and not (file.exists() and (not fragment or fragment in headings(file))):
            missing.append(target)
    assert missing == []
    assert not re.search(r"^@\w+@$", text, re.MULTILINE)  # what a generator should have filled in


@pytest.mark.parametrize("name", [name for name in SAMPLERS if (SAMPLER_PAGES / f"{name}.md").exists()])
def test_recipes_of_samplers_load(name: str, tmp_path: Path) -> None:
    """The snippets on a sampler's page are recipes of that sampler, and can be built."""
    page = (SAMPLER_PAGES / f"{name}.md").read_text("utf-8")
    snippets = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert snippets
    for snippet in snippets:
        (tmp_path / "recipe.toml").write_text(snippet, "utf-8")
        recipe, graph = load(str(tmp_path / "recipe.toml")), ring_graph()
        assert recipe.sampler.name == name
        build_trainer(resolve(recipe, graph), graph)


@pytest.mark.parametrize("page", sorted(SAMPLER_PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_recipe_snippets_are_recipes(page: Path) -> None:
    snippets = re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert snippets
    for snippet in snippets:
        validate(tomllib.loads(snippet))
