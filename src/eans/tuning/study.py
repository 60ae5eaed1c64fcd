"""The trials of a search, in a journal of Optuna's: one study for each rung, called ``rung-0``, ``rung-1``, ...

Optuna proposes the candidates of rung 0 and prunes among them; higher rungs repeat the best with more time. The
journal is all that a search has to remember: opened again, it goes on, and `optuna-dashboard` shows it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eans.errors import RunError
from eans.tuning.space import METHOD, Candidate, Space, parameter
from eans.tuning.trial import LATE, PRUNED, Outcome

if TYPE_CHECKING:
    import optuna

JOURNAL = "optuna.journal"


@dataclass(frozen=True)
class Entry:
    """A trial that has ended.

    Attributes:
        rung: 0, 1, 2.
        number: of the candidate: that of its trial in rung 0.
        candidate: what was trained.
        mrr: the best valid MRR; None for a trial that failed.
        took: seconds.
        facts: ``steps``, ``seconds`` and ``dim`` of training; ``used``: seconds of the search when it ended, and
            ``workers``: how many trials there were at a time; ``reason`` where there is something to say.
    """

    rung: int
    number: int
    candidate: Candidate
    mrr: float | None
    took: float
    facts: Mapping[str, Any]

    @property
    def complete(self) -> bool:
        """Was it trained to the end?"""
        return self.mrr is not None and "reason" not in self.facts


class Study:
    """The trials of a search.

    Args:
        folder: where the journal is, or comes to be.
        space: of the methods that are tried.
        seed: of Optuna's sampler.
    """

    def __init__(self, folder: Path, space: Space, seed: int) -> None:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space, self.file = space, folder / JOURNAL
        with _reading(self.file):
            _mend(self.file)
            self._storage = JournalStorage(JournalFileBackend(str(self.file)))
            first = self._study(0)
        if not first.trials:
            with _quietly():
                for method in space.methods:
                    first.enqueue_trial(_parameters(space, space.first(method)))
        with _quietly():  # of the parameters of each method by themselves; another seed when the search goes on
            first.sampler = optuna.samplers.TPESampler(
                seed=seed + len(first.trials), multivariate=True, group=True, n_startup_trials=len(space.methods) + 4
            )
        first.pruner = optuna.pruners.PercentilePruner(
            50.0, n_startup_trials=len(space.methods), n_warmup_steps=2, n_min_trials=4
        )
        self._first = first

    def _study(self, rung: int) -> optuna.Study:
        import optuna

        return optuna.create_study(
            storage=self._storage, study_name=f"rung-{rung}", direction="maximize", load_if_exists=True
        )

    def ask(self) -> tuple[optuna.Trial, Candidate]:
        """The next candidate of rung 0, and its trial, for `told` and for pruning."""
        with _quietly():
            trial = self._first.ask()
            return trial, self.space.suggest(trial)

    def told(self, trial: optuna.Trial, outcome: Outcome | None, took: float, reason: str = "", **facts: float) -> None:
        """How a trial of rung 0 ended: with an outcome, or for a reason, pruned or failed."""
        from optuna.trial import TrialState

        for key, value in _attributes(outcome, took, reason, facts).items():
            trial.set_user_attr(key, value)
        if outcome is not None:
            self._first.tell(trial, outcome.mrr)
        else:
            self._first.tell(trial, state=TrialState.PRUNED if reason in (PRUNED, LATE) else TrialState.FAIL)

    def add(
        self, rung: int, entry: Entry, outcome: Outcome | None, took: float, reason: str = "", **facts: float
    ) -> None:
        """How the trial of a higher rung ended, which repeats a candidate of rung 0."""
        import optuna

        original = self._first.trials[entry.number]
        self._study(rung).add_trial(
            optuna.create_trial(
                state=optuna.trial.TrialState.FAIL if outcome is None else optuna.trial.TrialState.COMPLETE,
                params=original.params,
                distributions=original.distributions,
                value=None if outcome is None else outcome.mrr,
                user_attrs={"number": entry.number, **_attributes(outcome, took, reason, facts)},
            )
        )

    def entries(self, rung: int | None = None) -> list[Entry]:
        """The trials that have ended, of one rung or of all, in their order."""
        from optuna.trial import TrialState

        if rung is None:
            count = sum(summary.study_name.startswith("rung-") for summary in self._summaries())
            return [entry for number in range(count) for entry in self.entries(number)]
        found = []
        for trial in self._study(rung).trials:
            if "took" in trial.user_attrs:  # otherwise it was cut off
                facts = {key: value for key, value in trial.user_attrs.items() if key not in ("took", "number")}
                value = trial.value
                if trial.state == TrialState.PRUNED and trial.intermediate_values:
                    value = trial.intermediate_values[max(trial.intermediate_values)]
                number, took = trial.user_attrs.get("number", trial.number), trial.user_attrs["took"]
                found.append(Entry(rung, number, self.space.of(trial.params), value, took, facts))
        return found

    @property
    def used(self) -> float:
        """Seconds of the search until the last of its trials ended."""
        entries = self.entries()
        return max(
            [
                sum(entry.took for entry in entries if "used" not in entry.facts),
                *(float(entry.facts["used"]) for entry in entries if "used" in entry.facts),
            ]
        )

    def _summaries(self) -> list[Any]:
        import optuna

        return optuna.get_all_study_summaries(self._storage)

    def best(self, rung: int, but: tuple[int, ...] = ()) -> list[Entry]:
        """The complete trials of a rung, best first, without some candidates."""
        complete = [entry for entry in self.entries(rung) if entry.complete and entry.number not in but]
        return sorted(complete, key=lambda entry: -(entry.mrr or 0.0))

    def most_tried(self) -> str:
        """The method with the most complete trials in rung 0."""
        methods = [entry.candidate.method for entry in self.entries(0) if entry.complete]
        return max(methods, key=methods.count, default="")

    def importances(self, method: str) -> dict[str, float]:
        """How much of the differences among a method's trials of rung 0 each key explains; empty for a few trials."""
        import optuna

        trials = [trial for trial in self._first.trials if trial.params.get(METHOD) == method and trial.values]
        if len(trials) < 6:
            return {}
        apart = optuna.create_study(direction="maximize")
        for trial in trials:
            keep = {name: kind for name, kind in trial.distributions.items() if name != METHOD}
            params = {name: trial.params[name] for name in keep}
            apart.add_trial(optuna.create_trial(params=params, distributions=keep, value=trial.value))
        with _quietly():
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
            found = optuna.importance.get_param_importances(apart, evaluator=evaluator)
        return {name.partition(":")[2]: value for name, value in found.items()}


def _parameters(space: Space, candidate: Candidate) -> dict[str, Any]:
    searched = space.ranges(candidate.method)
    values = {parameter(candidate.method, key): candidate.values[key] for key in searched}
    return {METHOD: candidate.method, **values}


def _attributes(outcome: Outcome | None, took: float, reason: str, facts: Mapping[str, float]) -> dict[str, Any]:
    found: dict[str, Any] = {"took": round(took, 3), **facts}
    if outcome is not None:
        found |= {"steps": outcome.steps, "seconds": round(outcome.seconds, 3), "dim": outcome.dim}
    return found | ({"reason": reason} if reason else {})


def _mend(file: Path) -> None:
    """Cut off a line that a process which was killed did not finish, and take away its lock: the folder has another."""
    Path(f"{file}.lock").unlink(missing_ok=True)
    if file.is_file():
        content = file.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with file.open("r+b") as stream:
                stream.truncate(whole)


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"{file}: cannot be read: {error}; delete its folder to begin anew") from error


@contextmanager
def _quietly() -> Iterator[None]:
    """Without Optuna's warnings that a part of it is new."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
