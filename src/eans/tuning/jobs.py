"""What a search has to do, piece by piece: the cost of a method, and trials; in this process or in another one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from eans.errors import EansError, Interrupted
from eans.graph import KnowledgeGraph
from eans.listener import Listener
from eans.phases import phase
from eans.tuning.space import Candidate
from eans.tuning.trial import Cost, Outcome, Prune, affordable, measure, run_trial


@dataclass(frozen=True, eq=False)
class Measuring:
    """What a candidate costs is to be measured, for trials of so many seconds."""

    candidate: Candidate
    seconds: float


@dataclass(frozen=True, eq=False)
class Trial:
    """A trial is to be run.

    Attributes:
        number: of the candidate.
        candidate, rung, seconds, until, known: see `run_trial`.
    """

    number: int
    candidate: Candidate
    rung: int
    seconds: float
    until: float = math.inf
    known: tuple[int, float] | None = None


Job = Measuring | Trial


@dataclass(frozen=True)
class Ended:
    """What came of a job: an outcome, a cost, or the reason why there is none."""

    outcome: Outcome | None = None
    cost: Cost | None = None
    reason: str = ""


def do(
    job: Job, graph: KnowledgeGraph, device: torch.device, seed: int, listener: Listener, prune: Prune | None
) -> Ended:
    """Do a job in this process.

    Args:
        job: what to do.
        graph, device, seed: see `run_trial`.
        listener: callbacks of the run; it may stop the job.
        prune: told the MRR and the number of each validation of a trial in rung 0; True ends the trial.

    Raises:
        Interrupted: as the listener said.
    """
    try:
        if isinstance(job, Measuring):
            with affordable(), phase(f"measuring {job.candidate.method}"):
                recipe = job.candidate.recipe(graph.source or graph.name)
                return Ended(cost=measure(recipe, graph, device, job.seconds))
        outcome = run_trial(
            job.candidate, graph, job.seconds, rung=job.rung, seed=seed, device=device, listener=listener,
            prune=prune if job.rung == 0 else None, known=job.known, until=job.until,
        )  # fmt: skip
    except Interrupted:
        raise
    except EansError as error:
        return Ended(reason=str(error))
    return Ended(outcome)
