"""What a run record must hold; a file is checked against it when it is read.

Fields that are not named here are allowed: a study may keep more, see `eans.experiments.Extra`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from eans.errors import did_you_mean

Share = Annotated[float, Field(ge=0, le=1)]
FromOne = Annotated[float, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Overrides = list[Annotated[str, Field(pattern="=")]]


class Fields(BaseModel):
    """A table of fields, of exactly these types; numbers are finite."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)


Metrics = TypedDict("Metrics", {"mr": FromOne, "mrr": Share, "hits@10": Share})


class Test(TypedDict):
    both: Metrics


class ValidMetrics(TypedDict, total=False):
    mrr: Share


class Valid(TypedDict):
    both: ValidMetrics


class Protocol(TypedDict):
    ties: str
    candidates: str


class RunAs(TypedDict):
    recipe: str
    overrides: Overrides


class RecordFields(Fields):
    """Defaults, and null, stand for what an older record does not have, or one without test metrics."""

    recipe: str
    overrides: Overrides
    seed: Count
    hardware: str
    seconds: float
    protocol: Protocol
    test: Test | None = None
    valid: Valid | None = None
    recipe_hash: str = ""
    commit: str = ""
    versions: dict[str, str] | None = None
    steps: Count = 0
    total_seconds: float = 0.0  # with set-up and evaluation, in older records
    runs_at_a_time: FromOne = 1.0
    run_as: RunAs | None = None


def problem(content: object, fields: type[Fields]) -> str:
    """What is wrong with a JSON or TOML value, in words; nothing if it has these fields."""
    try:
        fields.model_validate(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            return f"field '{place}' is missing"
        if first["type"] == "extra_forbidden":
            return f"unknown field '{place}'{did_you_mean(place, fields.model_fields)}"
        said = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
        value = repr(first["input"])
        shown = value if len(value) <= 40 else f"{value[:37]}..."
        return f"{f'field {place!r}' if place else 'it'} is {shown}, but {said[:1].lower()}{said[1:]}"
    return ""
