"""What the fields of a published cell, and those that records of the paper have more than others, may hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from eans.errors import RunError
from eans.experiments import Experiment, Fields, Record, RecordStore, problem

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(ge=1)]
GROUPS = ("true", "train", "held_out")  # of negatives in the histogram of substitution scores


class CellFields(Fields):
    """A ``[[cell]]`` of a TOML file."""

    model_config = ConfigDict(extra="forbid")

    table: str
    dataset: str
    model: str
    own: bool
    sampler: str = ""
    method: str = ""
    self_adversarial: bool = False
    gaussian: bool = False
    substitution: bool = False
    negatives: Positive = 1
    step: Positive = 1
    overrides: list[Annotated[str, Field(pattern="=")]] = Field(default=[])
    mr: Annotated[float, Field(ge=1)] = 1.0
    mrr: Share = 0.0
    hits10: Share = 0.0
    positive_score: float = 0.0
    negative_score: float = 0.0
    mrr_stderr: Share = 0.0
    hits10_stderr: Share = 0.0
    runs: Positive = 1
    label: str = ""


class Logged(TypedDict):
    positive_score: float
    negative_score: float


Bins = list[float]
Pair = Annotated[list[float], Field(min_length=2, max_length=2)]
Point = Annotated[list[float], Field(min_length=3, max_length=3)]


class Histogram(Fields):
    """Substitution scores: how many negatives of each group are in each bin."""

    edges: Annotated[Bins, Field(min_length=2)]
    true: Bins
    train: Bins
    held_out: Bins

    @model_validator(mode="after")
    def _a_count_per_bin(self) -> Histogram:
        if any(len(getattr(self, group)) != len(self.edges) - 1 for group in GROUPS):
            raise ValueError("has not one count per bin in each group")
        return self


class AnalysisFields(Fields):
    """The scores of negatives at a step."""

    step: Annotated[int, Field(ge=0)]
    logged: Logged | None = None
    cdf: list[float] | None = None
    substitution: Histogram | None = None


class OrderFields(Fields):
    """The final order of entities, see `paper.order`."""

    entities: Positive
    points: Annotated[list[Point], Field(min_length=1)]
    explained: Pair
    similarity: Annotated[list[list[float]], Field(min_length=1)]

    @model_validator(mode="after")
    def _square(self) -> OrderFields:
        if any(len(row) != len(self.similarity) for row in self.similarity):
            raise ValueError("has a similarity that is not square")
        return self


class AnalysedFields(Fields):
    """What the records of some runs have besides the usual fields."""

    analysis: list[AnalysisFields] = Field(default=[])
    order: OrderFields | None = None


def read_records(store: RecordStore, experiments: Iterable[Experiment] | None = None) -> dict[Experiment, Record]:
    """Records with the fields of the paper checked, too."""
    records = store.read(experiments)
    for record in records.values():
        if wrong := problem(record.content, AnalysedFields):
            path = store.folder / record.file
            raise RunError(f"{path} is not a run record of the paper ({wrong}); delete it or restore it")
    return records
