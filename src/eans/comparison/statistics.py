"""How sure a difference between two methods is.

The score of a triple is the mean of its reciprocal ranks on both sides. Two things vary: the seeds of a method, and
which triples happen to be held out. With ``S_A`` and ``S_B`` seeds and ``n`` triples that both methods rank::

    d   = mean_A - mean_B
    se² = s_A² / S_A + s_B² / S_B + s_q² / n

where ``s_A`` is the standard deviation of A's MRR over its seeds and ``s_q`` that of the triples' differences, each
averaged over seeds. ``d / se`` follows Student's t with Welch's and Satterthwaite's degrees of freedom. The variance
within a seed is in two of the terms, so intervals are a little too wide rather than too narrow. With one seed, its term
is left out: the interval then is about these trained models and not about the methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean or a difference of means.

    Attributes:
        value: of the metric.
        low, high: the 95 % confidence interval.
        p: of the two-sided test that the value is zero.
    """

    value: float
    low: float
    high: float
    p: float


def mean(scores: Floats) -> Estimate:
    """The mean of a method's scores ``[S, n]`` of S seeds and n triples."""
    return _estimate(float(scores.mean()), [_between(scores)], _over_triples(scores.mean(axis=0)))


def difference(first: Floats, second: Floats) -> Estimate:
    """The first method's mean minus the second's; scores ``[S, n]`` of the same triples in the same order."""
    over_triples = first.mean(axis=0) - second.mean(axis=0)
    return _estimate(float(over_triples.mean()), [_between(first), _between(second)], _over_triples(over_triples))


def _between(scores: Floats) -> tuple[float, int]:
    """The variance of a method's mean by its seeds, and the degrees of freedom."""
    seeds = len(scores)
    return (float(scores.mean(axis=1).var(ddof=1)) / seeds, seeds - 1) if seeds > 1 else (0.0, 0)


def _over_triples(values: Floats) -> tuple[float, int]:
    """The variance of a mean over triples ``[n]``, and the degrees of freedom."""
    return (float(values.var(ddof=1)) / len(values), len(values) - 1) if len(values) > 1 else (0.0, 0)


def _estimate(value: float, of_seeds: Sequence[tuple[float, int]], of_triples: tuple[float, int]) -> Estimate:
    from scipy.special import stdtr, stdtrit

    parts = [(variance, freedom) for variance, freedom in (*of_seeds, of_triples) if variance > 0]
    total = sum(variance for variance, _ in parts)
    if not total:
        return Estimate(value, value, value, float(value == 0))
    freedom = total**2 / sum(variance**2 / degrees for variance, degrees in parts)
    error = total**0.5
    reach = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    return Estimate(value, value - reach, value + reach, 2 * float(stdtr(freedom, -abs(value) / error)))


def holm(p: Sequence[float]) -> list[float]:
    """The p values of several tests, corrected by Holm's method: all at most .05 by chance in one of 20 studies."""
    adjusted = [0.0] * len(p)
    largest = 0.0
    for place, index in enumerate(sorted(range(len(p)), key=lambda index: p[index])):
        largest = max(largest, min(1.0, (len(p) - place) * p[index]))
        adjusted[index] = largest
    return adjusted
