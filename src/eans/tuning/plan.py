"""How a search spends its time: what methods cost on this graph, how long trials take, what is too slow to be tried."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from eans.errors import RunError, UsageError
from eans.files import atomic_write
from eans.graph import KnowledgeGraph
from eans.phases import phase
from eans.tuning.jobs import Ended, Measuring
from eans.tuning.places import Place, Watcher, done
from eans.tuning.space import Space

# The first trials take an eightieth of the time, those of the higher rungs so many times as long: about thirty, six and
# two of them fill it. Where two passes over train take longer, trials are fewer.
TRIALS, FACTORS = 80, (1, 4, 12)
MOST_SHARE = (0.1, 0.2, 0.4)  # of the budget, for one trial of each rung
SHARES = (0.4, 0.7)  # of the time, when trials of rung 1 and of rung 2 begin
# Passes over train: in a first trial at least, by the method of middling speed; in the longest, or a method is too
# slow to be tried.
FIRST_PASSES, LEAST_PASSES = 4.0, 2.0
FILE = "plan.json"


@dataclass(frozen=True)
class Plan:
    """What a search has settled before its first trial.

    Attributes:
        graph, space, seed: of what the search is; SHA-256 sums of splits and of the space.
        seconds: of a trial, by rung.
        step_seconds: of the methods that are tried, measured with their first candidates.
        left_out: methods that are not tried, with the reason.
    """

    graph: str
    space: str
    seed: int
    seconds: tuple[float, ...] = ()
    step_seconds: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write it, so that the search can go on."""
        atomic_write(folder / FILE, f"{json.dumps(asdict(self), indent=2)}\n".encode())

    def earlier(self, folder: Path) -> Plan | None:
        """The plan of a search in the folder, if there is one.

        Raises:
            UsageError: that search is of something else than this one.
        """
        file = folder / FILE
        if not file.is_file():
            return None
        try:
            content = json.loads(file.read_bytes())
            known = Plan(**content | {"seconds": tuple(content["seconds"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RunError(f"{file}: damaged; delete the folder {folder} to begin anew") from error
        for key in ("graph", "space", "seed"):
            if getattr(known, key) != getattr(self, key):
                raise UsageError(f"{folder} holds a search with another {key}; choose another --out")
        return known


def plan_for(graph: KnowledgeGraph, space: Space, text: str, seed: int) -> Plan:
    """A plan that says of what the search is, and no more."""
    splits = json.dumps([dict(graph.sha256), graph.vocabulary_sha256])
    methods = json.dumps([text, *space.methods])
    graph_sum, space_sum = (hashlib.sha256(part.encode()).hexdigest() for part in (splits, methods))
    return Plan(graph_sum, space_sum, seed)


def completed(plan: Plan, space: Space, budget: float, place: Place) -> Plan:
    """The plan with what is measured: what methods cost, and so which are tried, and for how long."""
    found: dict[str, Ended] = {}
    with phase("measuring methods"):
        first = (Measuring(space.first(method), budget / TRIALS) for method in space.methods)
        for job, ended in done(place, first, Watcher()):
            found[job.candidate.method] = ended
    costs = {method: cost for method in space.methods if (cost := found[method].cost) is not None}
    left_out = {method: found[method].reason for method in space.methods if method not in costs}
    if not costs:
        raise RunError(f"no method can be tried on this graph: {next(iter(left_out.values()))}")
    passes = sorted(cost.per_pass for cost in costs.values())
    least = FIRST_PASSES * passes[len(passes) // 2]
    seconds = tuple(
        min(max(budget / TRIALS * factor, least), budget * share)
        for factor, share in zip(FACTORS, MOST_SHARE, strict=True)
    )
    for method, cost in list(costs.items()):
        if LEAST_PASSES * cost.per_pass > seconds[-1] and cost.per_pass > passes[0]:
            left_out[method] = f"too slow for this budget: a pass over train takes {cost.per_pass:,.1f} s"
            del costs[method]
    steps = {method: cost.step for method, cost in costs.items()}
    return Plan(plan.graph, plan.space, plan.seed, seconds, steps, left_out)
