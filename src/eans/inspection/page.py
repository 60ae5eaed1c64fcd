"""A report as one HTML page that needs nothing else: figures, style and script stand inside it."""

from __future__ import annotations

from typing import Any

from eans.figures import require_matplotlib
from eans.inspection.charts import draw_charts
from eans.pages import count, rendered
from eans.progress import duration
from eans.recipes.library import toml_value
from eans.vocabulary import readable

METRICS = (("mr", "MR"), ("mrr", "MRR"), ("hits@1", "Hits@1"), ("hits@3", "Hits@3"), ("hits@10", "Hits@10"))
# Heading, key, and whether a column of the relations' table holds numbers.
RELATION_COLUMNS = (
    ("relation", "relation", False),
    ("kind", "category", False),
    ("ranked", "count", True),
    ("MRR", "mrr", True),
    ("MRR head", "mrr_head", True),
    ("MRR tail", "mrr_tail", True),
    ("Hits@10", "hits@10", True),
    ("train", "train", True),
)


def render(report: dict[str, Any]) -> str:
    """The page of what `report` found; needs matplotlib."""
    require_matplotlib()
    return rendered(
        "eans.inspection",
        "report.html.jinja",
        report=report,
        facts=facts(report),
        named=lambda label: readable(label, report["names"].get(label)),
        charts=draw_charts(report),
        metrics=METRICS,
        columns=RELATION_COLUMNS,
    )


def facts(report: dict[str, Any]) -> list[tuple[str, str]]:
    """What the head of the page says about a run, as far as it is known."""
    graph, training, protocol = report["graph"], report["training"], report["protocol"]
    splits = ", ".join(f"{count(graph[split])} {split}" for split in ("train", "valid", "test"))
    found = [
        ("recipe", report["recipe"]),
        ("changed in it", ", ".join(f"{key} = {toml_value(value)}" for key, value in report["changes"].items())),
        ("graph", f"{graph['name']}: {count(graph['entities'])} entities, {count(graph['relations'])} relations"),
        ("triples", splits),
        ("model", f"{report['model']['name']}, {count(report['model']['parameters'])} parameters"),
        ("seed", str(training["seed"])),
        ("steps", _steps(training)),
        ("time", duration(training["seconds"]) if training["seconds"] is not None else ""),
        ("hardware", training.get("hardware", "")),
        ("versions", _versions(training)),
        (
            "protocol",
            f"{protocol['task']}; {protocol['candidates']} as candidates, filtered against "
            f"{', '.join(protocol['filtered_against'])}; {protocol['ties']} ties; unseen entities "
            f"{protocol['unseen_entities']}",
        ),
    ]
    return [(name, words) for name, words in found if words]


def _steps(training: dict[str, Any]) -> str:
    steps, planned, best = training["steps"], training["steps_planned"], training.get("best_valid_step")
    done = count(steps) if steps in (None, planned) else f"{count(steps)} of {count(planned)}"
    if training["keep"] == "best" and best:
        done += f"; the weights are those of step {count(best)}, the best validation"
    return done


def _versions(training: dict[str, Any]) -> str:
    known = (("eans", training.get("eans_version")), ("PyTorch", training.get("torch_version")))
    return ", ".join(f"{name} {version}" for name, version in known if version)
