"""The page of datasets is what its record says, and the record is of the graphs that the registry names."""

from __future__ import annotations

import json

from eans import data
from scripts import datasets_page

RECORD = json.loads(datasets_page.RECORD.read_text("utf-8"))


def test_the_page_is_made_from_the_record():
    assert datasets_page.PAGE.read_text("utf-8") == datasets_page.render(RECORD)


def test_the_record_has_every_dataset_as_the_registry_describes_it():
    assert list(RECORD["graphs"]) == [entry.name for entry in data.datasets()]
    for entry in data.datasets():
        found = RECORD["graphs"][entry.name]
        sizes = data.sizes(entry.name)
        assert (found["kind"], found["description"], found["licence"]) == (entry.kind, entry.description, entry.licence)
        assert (found["entities"], found["relations"]) == (sizes.entities, sizes.relations)
        assert found["triples"] == {"train": sizes.train, "valid": sizes.valid, "test": sizes.test}
        if entry.sha256:
            assert found["sha256"] == entry.sha256
        assert [sum(column) for column in zip(*found["by_relation"].values(), strict=True)] == [
            *found["triples"].values()
        ]


def test_counting():
    found = datasets_page.count("wordnet-core")
    assert found == RECORD["graphs"]["wordnet-core"]
