"""How triples are to be split: checked values, from Python or from the text of an option."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from numbers import Real
from typing import Any, Literal, cast

from eans.arguments import choice, flag, several, shown, whole
from eans.errors import UsageError, did_you_mean

How = Literal["random", "temporal"]
HOWS: tuple[How, How] = ("random", "temporal")
RATIOS = (0.8, 0.1, 0.1)
INVERSE: Literal["inverse"] = "inverse"
WORDS = ("80/10/10", *HOWS, INVERSE, "uncovered", "seed=0", "none")


@dataclass(frozen=True)
class Splitting:
    """How triples are split; see `eans.split`. The ratios add up to 1."""

    ratios: tuple[float, float, float] = RATIOS
    seed: int = 0
    how: How = "random"
    cover: bool = True
    groups: Literal["inverse"] | Sequence[Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "ratios", _ratios(self.ratios))
        object.__setattr__(self, "seed", whole("seed", self.seed))
        object.__setattr__(self, "cover", flag("cover", self.cover))
        choice("how", self.how, HOWS)
        if isinstance(self.groups, str):
            choice("groups", self.groups, (INVERSE,))
        elif self.groups is not None:
            object.__setattr__(self, "groups", several("groups", self.groups, "groups, one for each triple"))
        if self.how == "temporal" and self.groups is not None:
            raise UsageError("a temporal split goes by time alone and keeps no groups together; leave groups out")

    @classmethod
    def parse(cls, text: str) -> Splitting:
        """``80/10/10``, ``temporal``, or both and more with commas between: ``90/5/5,inverse,seed=3``."""
        found: dict[str, Any] = {}
        for word in map(str.strip, text.split(",")):
            name, _, value = word.partition("=")
            if word in HOWS:
                found["how"] = word
            elif word == INVERSE:
                found["groups"] = INVERSE
            elif word == "uncovered":
                found["cover"] = False
            elif name == "seed" and value.isascii() and value.isdigit():
                found["seed"] = int(value)
            elif word.count("/") == 2 and all(part.replace(".", "", 1).isdigit() for part in word.split("/")):
                found["ratios"] = tuple(float(part) for part in word.split("/"))
            else:
                guess = did_you_mean(word, WORDS)
                raise UsageError(f"split '{text}': unknown word '{word}'{guess} (known: {', '.join(WORDS)})")
        return cls(**found)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; groups of one's own are not repeated."""
        own = self.groups is not None and not isinstance(self.groups, str)
        return asdict(replace(self, groups=None)) | {"groups": "own" if own else self.groups}


def _ratios(found: object) -> tuple[float, float, float]:
    parts = several("ratios", found, "numbers")
    usable = len(parts) == 3 and all(
        isinstance(part, Real) and not isinstance(part, bool) and 0 <= float(part) < inf for part in parts
    )
    if not usable or not parts[0] > 0:
        raise UsageError(
            f"ratios must be three numbers, for train, valid and test, of which none is negative and the first not 0;"
            f" got {shown(found)}"
        )
    total = sum(map(float, parts))
    return cast("tuple[float, float, float]", tuple(float(part) / total for part in parts))
