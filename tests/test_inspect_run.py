"""The report on a run: its numbers against the library's, words that stay words, and a page that works in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import eans
from eans import cli
from eans.errors import Interrupted
from eans.graph import RELATION, SIDES, KnowledgeGraph, Vocabulary, column
from eans.inspection.charts import occupied
from eans.inspection.page import facts, render
from eans.inspection.reporting import PER_RELATION, changes
from eans.listener import Listener
from eans.pages import breakable, number
from eans.pages.charts import for_page
from eans.recipes import load
from eans.recipes.build import resolve
from eans.runs import RunFolder
from helpers_browser import needs_chromium, visit
from helpers_runs import one_line, ring_graph

pytest.importorskip("matplotlib")

NASTY = '<img src=x onerror="alert(1)">', "a & b", 'it\'s "quoted" {{ 7 * 7 }}', "</script><script>alert(2)</script>"
SETTINGS: dict[str, Any] = {"dim": 8, "steps": 40, "negatives": 4, "batch_size": 32, "lr": 0.02, "reorder_every": 9}
SETTINGS |= {"valid_every": 10, "log_every": 5, "checkpoint_every": 10}


def nasty_graph() -> KnowledgeGraph:
    """The ring, with labels that mean something to HTML and to the template."""
    ring = ring_graph()
    entities = [f"{label} {NASTY[place % 4]}" for place, label in enumerate(ring.entities)]
    relations = [f"{label} {NASTY[place]}" for place, label in enumerate(ring.relations)]
    return replace(ring, entities=Vocabulary(entities), relations=Vocabulary(relations, "relation"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "words & <b>"
    eans.train(nasty_graph(), "transe", "eans", out=folder, device="cpu", **SETTINGS)
    return folder


@pytest.fixture(scope="module")
def report(run: Path) -> dict[str, Any]:
    return eans.report(run, device="cpu")


@pytest.fixture(scope="module")
def page(report: dict[str, Any]) -> str:
    return render(report)


class Page(HTMLParser):
    """Text, elements and attributes of a page; unclosed elements are an error."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "br", "wbr", "input"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


# --- the numbers --------------------------------------------------------------------------------------------------


def test_metrics_are_those_of_the_run(run: Path, report: dict[str, Any]) -> None:
    saved = json.loads((run / "metrics.json").read_text("utf-8"))
    assert report["complete"] is True
    assert report["metrics"] == {
        split: {side: saved[split][side] for side in ("both", *SIDES)} for split in ("valid", "test")
    }
    assert report["training"] == {"steps_planned": 40, "keep": "best", **saved["training"]}
    assert report["protocol"] == saved["protocol"]
    assert report["analysis"]["step"] == 40
    assert json.loads(json.dumps(report)) == report


def test_relations_against_the_evaluation(run: Path, report: dict[str, Any]) -> None:
    loaded = eans.Run.load(run, "cpu")
    expected = loaded.evaluate("test")["test"]["by_relation"]
    assert {row["relation"] for row in report["relations"]} == expected.keys()
    ranks = eans.rank(loaded.model, loaded.graph, "test")
    for row in report["relations"]:
        found = expected[row["relation"]]
        assert (row["count"], row["mrr"], row["hits@10"]) == (found["triples"], found["mrr"], found["hits@10"])
        relation = loaded.graph.relations.id(row["relation"])
        rows = loaded.graph.test[:, RELATION] == relation
        assert row["train"] == int((loaded.graph.train[:, RELATION] == relation).sum())
        for side in SIDES:
            assert row[f"mrr_{side}"] == pytest.approx(ranks.ranks(side)[rows].reciprocal().mean().item())
        assert row["category"] == "1-1"
    counts = [row["count"] for row in report["relations"]]
    assert counts == sorted(counts, reverse=True)


def test_examples_are_the_worst_and_say_what_was_better(
    make_graph: Callable[..., KnowledgeGraph], tmp_path: Path
) -> None:
    graph = make_graph(30, 3, (200, 40, 40))  # most questions have several answers
    run = eans.train(graph, "transe", "uniform", out=tmp_path / "run", device="cpu", dim=4, steps=5, negatives=2)
    model, examples = run.model, eans.report(tmp_path / "run", device="cpu")["examples"]
    ranks = eans.rank(model, graph, "test")
    assert examples[0]["rank"] == max(float(ranks.ranks(side).max()) for side in SIDES) > 5
    assert [one["rank"] for one in examples] == sorted((one["rank"] for one in examples), reverse=True)
    assert len(examples) == PER_RELATION * 3
    for one in examples:
        ids = [graph.entities.id(one["head"]), graph.relations.id(one["relation"]), graph.entities.id(one["tail"])]
        row = graph.test.tolist().index(ids)
        side = one["side"]
        assert one["rank"] == float(ranks.ranks(side)[row])
        scores = model.score_all(graph.test[row][None], side)[0].tolist()
        assert one["score"] == scores[ids[column(side)]]
        known = {tuple(t) for split in ("train", "valid", "test") for t in graph.split(split).tolist()}
        changed = [[*ids[: column(side)], entity, *ids[column(side) + 1 :]] for entity in range(graph.num_entities)]
        better = [(-scores[e], e) for e in range(graph.num_entities) if tuple(changed[e]) not in known]
        expected = [graph.entities[e] for score, e in sorted(better)[:5] if -score > one["score"]]
        assert [two["entity"] for two in one["better"]] == expected


def test_a_triple_is_one_example(tmp_path: Path) -> None:
    graph = replace(ring_graph(), test=ring_graph().test[:1])
    run = eans.train(graph, "transe", "uniform", out=tmp_path / "run", device="cpu", dim=4, steps=1, negatives=2)
    ranks = eans.rank(run.model, graph, "test")
    places = {side: float(ranks.ranks(side)[0]) for side in SIDES}
    assert min(places.values()) > 1.0  # missed on both sides
    (example,) = eans.report(tmp_path / "run", device="cpu")["examples"]
    assert example["rank"] == max(places.values()) == places[example["side"]]


# --- runs of every kind -------------------------------------------------------------------------------------------


def test_an_unfinished_run_is_taken_from_its_checkpoint(tmp_path: Path) -> None:
    done: list[int] = []
    listener = Listener(tick=done.append, stop=lambda: len(done) == 23)
    with pytest.raises(Interrupted):
        eans.train(ring_graph(), "transe", "eans", out=tmp_path / "run", device="cpu", listener=listener, **SETTINGS)
    heard: list[tuple[str, int, int]] = []
    report = eans.report(tmp_path / "run", device="cpu", progress=lambda *what: heard.append(what))
    assert {split for split, *_ in heard} == {"valid", "test"}
    assert all(done <= total for _, done, total in heard)
    assert (report["complete"], report["training"]["steps"], report["analysis"]["step"]) == (False, 23, 23)
    assert report["training"]["seconds"] > 0
    assert report["metrics"]["test"]["both"] == eans.Run.load(tmp_path / "run", "cpu").evaluate("test")["test"]["both"]
    text = " ".join(" ".join(Page(render(report)).text).split())
    assert "This run is not finished: everything here is from its last checkpoint, step 23 of 40." in text
    assert "This run is not finished" not in render({**report, "complete": True})


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("no checkpoint", "Not available: the run folder has no checkpoint"),
        ("no negatives", "No validations on the way"),
        ("no valid, no test", "The graph has neither valid nor test triples."),
        ("no valid, no test", "No validations on the way: the graph has no valid triples."),
        ("nothing logged", "Nothing has been logged yet."),
        ("other split", "Ranked triples of valid."),
    ],
)
def test_any_run_has_a_report(kind: str, missing: str, tmp_path: Path) -> None:
    graph, settings = ring_graph(), {"dim": 4, "steps": 3, "negatives": 2}
    names = ("transe", "uniform")
    if kind == "no negatives":
        names, settings = ("distmult", "stay-positive"), {"dim": 4, "steps": 3}
    elif kind == "no valid, no test":
        graph = replace(graph, valid=graph.valid[:0], test=graph.test[:0])
    eans.train(graph, *names, out=tmp_path / "run", device="cpu", **settings)
    if kind == "no checkpoint":
        (tmp_path / "run" / "checkpoint.safetensors").unlink()
    elif kind == "nothing logged":
        (tmp_path / "run" / "log.jsonl").unlink()
    report = eans.report(tmp_path / "run", device="cpu", split="valid" if kind == "other split" else "test")
    assert missing in " ".join(Page(render(report)).text)
    assert (report["analysis"] is None) == (kind == "no checkpoint")
    if kind == "no negatives":
        assert report["analysis"]["cdf"] is None


def test_a_run_that_kept_its_best_weights_says_so(tmp_path: Path) -> None:
    settings = SETTINGS | {"keep": "best", "lr": 0.5}
    run = eans.train(ring_graph(), "transe", "eans", out=tmp_path / "run", device="cpu", **settings)
    best = run.metrics["training"]["best_valid_step"]
    assert 0 < best < 40
    words = dict(facts(eans.report(tmp_path / "run", device="cpu")))["steps"]
    assert words == f"40; the weights are those of step {best}, the best validation"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        ({"train.seed": 3}, {}),  # the page says it elsewhere
        ({"train.steps": 500, "sampler.sigma": 2.5}, {"train.steps": 500, "sampler.sigma": 2.5}),
        ({"model.dim": 50}, {"model.dim": 50}),  # and not the range of initial values, which follows from it
        ({"sampler.clusters": 5, "sampler.sigma": 2.5}, {"sampler.clusters": 5, "sampler.sigma": 2.5}),
    ],
    ids=str,
)
def test_what_was_changed_in_a_recipe(settings: dict[str, Any], expected: dict[str, Any]) -> None:
    graph = ring_graph()
    recipe = resolve(load("default/transe/eans", {"train.batch_size": 32, **settings}), graph)
    assert changes(recipe, graph) == {"train.batch_size": 32, **expected}


def test_a_recipe_of_another_name_has_no_changes(run: Path) -> None:
    recipe = RunFolder.open(run).recipe()
    assert changes(recipe.model_copy(update={"name": "mine.toml"}), nasty_graph()) == {}


def test_the_page_says_what_was_changed(report: dict[str, Any], page: str) -> None:
    assert report["changes"]["model.dim"] == 8
    assert dict(facts(report))["changed in it"].startswith("model.dim = 8, sampler.negatives = 4")
    assert "eans, changed</h1>" in page
    assert ", changed</h1>" not in render(report | {"changes": {}})


# --- the page -----------------------------------------------------------------------------------------------------


def test_words_of_the_graph_stay_words(page: str, report: dict[str, Any]) -> None:
    parsed = Page(page)
    text = "".join(parsed.text)
    for row in report["relations"]:
        assert row["relation"] in text
    assert report["examples"][0]["head"] in text
    assert "words & <b>" in text
    assert {tag for tag, _ in parsed.elements}.isdisjoint({"img", "b<", "iframe", "link"})
    assert [tag for tag, _ in parsed.elements].count("script") == 1
    assert "49" not in {text.strip() for text in parsed.text}  # no template inside a label


def test_the_page_needs_nothing_else(page: str) -> None:
    parsed = Page(page)
    for _, attributes in parsed.elements:
        assert "src" not in attributes
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    assert not re.search(r"@import|url\((?!#)", page)
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    charts = [attributes["aria-label"] for tag, attributes in parsed.elements if tag == "svg"]
    assert len(charts) == 7  # loss and MRR over steps and seconds, scores, shares, substitution
    assert not re.search(r"#0[0-9]0[0-9]0[0-9]", page)  # every colour has a name of the page's


def test_the_same_run_is_the_same_page(run: Path, page: str) -> None:
    assert render(eans.report(run, device="cpu")) == page


def test_numbers_as_they_are_written() -> None:
    assert (number(None), number(1234.5, 1)) == ("–", "1,234.5")
    assert breakable("<a_b>/c.d_ e") == "&lt;a_<wbr>b&gt;/<wbr>c.<wbr>d_ e"
    assert occupied([0, 1, 2, 3, 4], [0, 2, 0, 0], [0, 0, 1, 0]) == (1, 3)
    words = for_page('<?xml?><svg width="9pt" height="3pt" viewBox="0"><g id="text_1"/></svg>', 'a "b" & <c>')
    assert words == '<svg role="img" aria-label="a &quot;b&quot; &amp; &lt;c>" viewBox="0"><g/></svg>'


# --- the command --------------------------------------------------------------------------------------------------


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def run_command(*arguments: str | Path) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ending:
            cli.main(["report", *map(str, arguments)])
        out, err = capsys.readouterr()
        return int(ending.value.code or 0), out, err

    return run_command


def test_the_command_writes_and_prints(run: Path, report: dict[str, Any], call: Call, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    assert call(run, "--device", "cpu") == (0, f"report: {run / 'report.html'}\n", "")
    written = (run / "report.html").read_text("utf-8")
    assert written == render(report)
    (run / "report.html").unlink()
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    assert call(run, "--out", tmp_path / "x.html", "--split", "valid", "--device", "cpu")[0] == 0
    assert "Ranked triples of valid" in (tmp_path / "x.html").read_text("utf-8")
    status, out, _ = call(run, "--format", "json", "--device", "cpu")
    assert (status, json.loads(out)) == (0, report)
    assert call(run, "--format", "json", "--out", tmp_path / "x.json", "--device", "cpu")[0] == 0
    assert json.loads((tmp_path / "x.json").read_text("utf-8")) == report


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nowhere"], "/nowhere is not a run folder"),
        (["RUN", "--format", "htm"], "--format 'htm' is not one of html, json; did you mean 'html'?"),
        (["RUN", "--split", "tests"], "did you mean 'test'?"),
        (["RUN", "--out", "/nowhere/x.html"], "there is no folder /nowhere; name a file with --out"),
        (["RUN", "--out", "/tmp"], "cannot write /tmp: it is a folder"),
        (["RUN", "--device", "tpu"], "unknown device 'tpu'"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, run: Path, call: Call) -> None:
    status, out, err = call(*(run if word == "RUN" else word for word in arguments))
    assert (status, out) == (2, "")
    assert message in one_line(err)


def test_without_matplotlib(run: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eans.figures.find_spec", lambda _: None)
    status, _, err = call(run, "--device", "cpu")
    assert (status, "pip install 'eans[figures]'" in one_line(err)) == (2, True)
    assert call(run, "--format", "json", "--device", "cpu")[0] == 0


# --- in a browser -------------------------------------------------------------------------------------------------

CLICKS = """<script>
const found = {}, names = () => [...document.querySelectorAll("#by-relation tbody tr")]
  .filter(row => row.offsetParent !== null).map(row => row.cells[0].textContent);
const press = key => document.querySelector(`th[data-key="${key}"] button`).click();
const box = document.getElementById("filter");
const type = text => { box.value = text; box.dispatchEvent(new Event("input")); };
found.start = names();
press("mrr"); found.mrr = names(); press("mrr"); found.mrr_again = names();
press("relation"); found.relation = names(); press("relation"); found.relation_again = names();
found.marked = document.querySelector("th[data-key=relation]").getAttribute("aria-sort");
type("PLUS5"); found.filtered = names(); type("1-1 plus"); found.two_words = names();
type("nothing"); found.none = names();
type(""); found.all = names(); found.wide = document.documentElement.scrollWidth <= innerWidth;
tell(found);
</script>"""


@needs_chromium
def test_sorting_and_filtering_in_a_browser(page: str, report: dict[str, Any], tmp_path: Path) -> None:
    found = visit(page.replace("</body>", f"{CLICKS}</body>"), tmp_path, "--window-size=500,900").told
    rows = report["relations"]
    names = [row["relation"] for row in rows]
    by_mrr = [row["relation"] for row in sorted(rows, key=lambda row: -row["mrr"])]
    assert len({row["mrr"] for row in rows}) == len(rows) == 3
    assert found["start"] == names
    assert (found["mrr"], found["mrr_again"]) == (by_mrr, by_mrr[::-1])
    assert (found["relation"], found["relation_again"]) == (sorted(names), sorted(names)[::-1])
    assert found["marked"] == "descending"
    assert found["filtered"] == [name for name in names if name.startswith("plus5")]
    assert (found["two_words"], found["none"], found["all"]) == (sorted(names)[::-1], [], sorted(names)[::-1])
    assert found["wide"], "the page is wider than the window"
