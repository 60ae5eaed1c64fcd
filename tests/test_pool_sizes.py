"""How large the pools of SANS are: the numbers by hand, and that the record has what the program measures."""

from __future__ import annotations

from benchmarks import pool_sizes
from benchmarks.cells import read_records
from eans.graph import KnowledgeGraph
from eans.recipes import load
from eans.samplers.sans import SANS


def test_sizes_by_hand() -> None:
    """A star of a centre and three others: one step and none reach four entities from the centre, and two from others.

    Each triple keeps the centre as often as another entity: three on average, of four.
    """
    graph = KnowledgeGraph.from_labels([("centre", "r", other) for other in "abc"])
    sampler = SANS(graph, 2, pool_kind="hops", hops=1)
    assert pool_sizes.sizes(sampler, graph) == {"mean_size": 3.0, "share": 0.75}


def test_the_record_has_every_setting() -> None:
    lines = read_records(pool_sizes.FILE)
    assert [(line["recipe"], tuple(line["overrides"])) for line in lines] == list(pool_sizes.SETTINGS)
    for line in lines:
        assert load(line["recipe"], line["overrides"]).sampler.name == "sans"
        assert 0 < line["share"] < 1 < line["mean_size"]
        assert len(line["commit"]) >= 40
