"""A description as one HTML page that needs nothing else: figures, style and script stand inside it."""

from __future__ import annotations

from eans.description.charts import draw_charts
from eans.description.sections import Facts, patterns, percent, sections
from eans.figures import require_matplotlib
from eans.graph import SPLITS
from eans.pages import rendered

# Heading, key, and whether a column of the relations' table holds numbers.
RELATION_COLUMNS = (
    ("relation", "relation", False),
    ("kind", "category", False),
    ("pattern", "pattern", False),
    *((split, split, True) for split in SPLITS),
    ("tails per head", "tails_per_head", True),
    ("heads per tail", "heads_per_tail", True),
)


def render(facts: Facts) -> str:
    """The page of what `describe` found; needs matplotlib."""
    require_matplotlib()
    most = max(entry["train"] for entry in facts["relations"])
    relations = [{**entry, "pattern": patterns(entry), "share": entry["train"] / most} for entry in facts["relations"]]
    empty = [] if any(entry["pattern"] for entry in relations) else ["pattern"]
    return rendered(
        "eans.description",
        "description.html.jinja",
        charts=draw_charts(facts),
        facts=facts,
        sections={section.key: section for section in sections(facts)},
        tiles=_tiles(facts),
        columns=[column for column in RELATION_COLUMNS if column[1] not in empty],
        relations=relations,
    )


def _tiles(facts: Facts) -> list[tuple[str, str]]:
    """What stands in large letters at the head of the page."""
    graph, test = facts["graph"], facts["leakage"]["test"]
    tiles = [("entities", f"{graph['entities']:,}"), ("relations", f"{graph['relations']:,}")]
    tiles.append(("triples", f"{sum(graph['triples'].values()):,}"))
    if test["triples"]:
        tiles.append(("test copied from train", percent(test["copied"] / test["triples"])))
    return tiles
