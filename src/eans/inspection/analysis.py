"""How scores are distributed: positives against negatives, who dominates a row, what substitution scores tell apart.

These are the numbers behind the paper's score table, its cumulative distributions and its histogram of substitution
scores. Like a measurement, an analysis draws for a fixed probe with random numbers of its own, and does not affect
training.
"""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from eans.arguments import whole
from eans.batches import BatchStream, Purpose, mix
from eans.devices import choose_device
from eans.graph import SIDES, KnowledgeGraph, Side, TripleIndex, column
from eans.recipes.build import build_trainer
from eans.runs import RunFolder
from eans.training import Trainer

BATCHES = 100
BINS = 50  # of a histogram
FINE = 100  # counted per bin of the substitution scores: what separates groups may lie inside one
SUMS = ("positive_score", "positive_mean", "negative_score", "negative_mean", "open_score", "open_mean", "open", "own")
GROUPS = ("true", "train", "held_out")
VALID_ROWS = 8192  # valid triples scored at once


class Analyst:
    """Analyses the scores of a trainer's negatives through a probe of training batches.

    Args:
        trainer: is only read.
        graph: the graph it trains on.
        batches: how many batches of the trainer's size; they corrupt tails and heads in turn, as in training.
    """

    def __init__(self, trainer: Trainer, graph: KnowledgeGraph, batches: int = BATCHES) -> None:
        batches = whole("batches", batches, least=1)
        self.trainer = trainer
        self.generator = torch.Generator(trainer.device)
        # The same probe whatever the seed of training, so that runs are comparable.
        stream = BatchStream(graph, trainer.stream.batch_size, mix(0, Purpose.INSPECT, 0), subsampling=False)
        rows, sides = zip(*(stream.rows(step) for step in range(batches)), strict=True)
        self.sides: tuple[Side, ...] = sides
        self.rows = torch.stack(rows).to(trainer.device)
        self.known = graph.known_train.to(trainer.device)
        held_out = torch.cat([graph.valid, graph.test])
        self.valid = graph.valid.to(trainer.device)
        self.held_out = TripleIndex(held_out, graph.num_entities, graph.num_relations).to(trainer.device)

    @torch.no_grad()
    def analyse(self) -> dict[str, Any]:
        """Draw, score and count, batch by batch on the device, which is read at the end.

        With ``s`` a score plus the loss's margin, over all draws, false negatives among them, unless said otherwise:

        - ``step``: how many steps were complete; ``positives``, ``negatives``: how many were scored.
        - ``positive_mean``, ``negative_mean``: means of ``s``.
        - ``positive_score``, ``negative_score``: what the loss sees. Of positives the mean of ``log sigmoid(s)`` with
          the weights of training, batch by batch; of negatives the mean of what the loss presses down, ``s`` or, with a
          substitution score, ``s - l1 u``.
        - ``valid_mean``, ``valid_score``: means of ``s`` and of ``log sigmoid(s)`` over the valid triples, new to the
          model; None if there are none.
        - ``cdf``: the softmax of the scores of each positive's negatives, sorted downwards, averaged over the
          positives and added up: N shares, of which the last is 1.
        - ``unmasked``: ``negatives``, ``negative_score``, ``negative_mean`` and ``cdf`` over those that the loss does
          not leave out; rows without any are left out of the ``cdf``.
        - ``scores``: histogram counts of ``s``, ``{"edges", "positive", "negative"}``; the range is that of the first
          batch and a little more, and what lies outside counts in the outermost bins.
        - ``substitution``, if the loss has such a score: histogram counts of ``sigmoid(u)``, ``u`` the substitution
          score plus the margin, which the loss trains as the probability that a negative is false. ``edges``, and per
          group ``true`` (in no split), ``train`` (known; the positive itself counts, ``own`` says how often), and
          ``held_out`` (in valid or test only). ``separation``: for the last two, the probability that a draw of the
          group has a higher score than a true negative, ties half (the area under the ROC curve); None if empty.

        What concerns negatives is None if there are none, and ``substitution`` is absent.
        """
        device, count = self.trainer.device, self.trainer.sampler.negatives
        sums = torch.zeros(len(SUMS), dtype=torch.float64, device=device)
        shares = torch.zeros(2, count + 1, dtype=torch.float64, device=device)  # the last column counts rows
        scores = Histogram(2, BINS, device)
        substitution = Histogram(len(GROUPS), BINS * FINE, device, (0.0, 1.0))
        self.generator.manual_seed(mix(0, Purpose.INSPECT, 1))
        for rows, side in zip(self.rows, self.sides, strict=True):
            self._count(rows, side, sums, shares, scores, substitution)
        positives = self.rows.numel()
        negatives = positives * count
        total = dict(zip(SUMS, sums.tolist(), strict=True))
        unmasked = int(total["open"])
        report: dict[str, Any] = {
            "step": self.trainer.completed,
            "positives": positives,
            "negatives": negatives,
            "positive_score": total["positive_score"] / len(self.rows),
            "positive_mean": total["positive_mean"] / positives,
            **self._valid_means(),
            "negative_score": total["negative_score"] / negatives if negatives else None,
            "negative_mean": total["negative_mean"] / negatives if negatives else None,
            "cdf": _cumulated(shares[0]) if negatives else None,
            "unmasked": {
                "negatives": unmasked,
                "negative_score": total["open_score"] / unmasked if unmasked else None,
                "negative_mean": total["open_mean"] / unmasked if unmasked else None,
                "cdf": _cumulated(shares[1]) if unmasked else None,
            },
            "scores": dict(zip(("edges", "positive", "negative"), (scores.edges(), *scores.tolist()), strict=True)),
        }
        if negatives and self.trainer.loss.needs_substitution is not None:
            report["substitution"] = _grouped(substitution, int(total["own"]))
        return report

    @torch.no_grad()
    def look_ahead(self, batches: int) -> dict[str, float | None]:
        """Means over the batches that training comes to next: about what a log of training would soon show.

        ``positive_score`` is the mean of ``log sigmoid(s)``, ``negative_score`` that of ``s``, None without negatives;
        ``s`` is a score plus the loss's margin. The negatives are draws of its own, along the ordering as it is now.
        """
        trainer, margin = self.trainer, self.trainer.loss.margin
        self.generator.manual_seed(mix(0, Purpose.INSPECT, trainer.completed + 2))
        means = []
        for step in range(trainer.completed, trainer.completed + batches):
            rows, side = trainer.stream.rows(step)
            triples = trainer.stream.triples[rows]
            found = trainer.scores(triples, side, trainer.sampler.sample(triples, side, self.generator))
            means.append(torch.stack([logsigmoid(found.positive + margin).mean(), (found.negative + margin).mean()]))
        positive, negative = torch.stack(means).double().mean(0).tolist()
        return {"positive_score": positive, "negative_score": negative if trainer.sampler.negatives else None}

    def _valid_means(self) -> dict[str, float | None]:
        """``valid_mean`` and ``valid_score``."""
        if not len(self.valid):
            return {"valid_mean": None, "valid_score": None}
        model = self.trainer.model
        asked = [model.oriented(part, side)[0] for side in SIDES for part in torch.split(self.valid, VALID_ROWS)]
        parts = [model.score(triples) for triples in asked]
        scores = torch.cat(parts).double() + self.trainer.loss.margin
        return {"valid_mean": float(scores.mean()), "valid_score": float(logsigmoid(scores).mean())}

    def _count(
        self, rows: Tensor, side: Side, sums: Tensor, shares: Tensor, scores: Histogram, substitution: Histogram
    ) -> None:
        """Add the positives of rows ``[B]`` and their draws to sums ``[8]``, shares ``[2, N + 1]`` and histograms."""
        loss, sampler = self.trainer.loss, self.trainer.sampler
        triples, weight = self.trainer.stream.triples[rows], self.trainer.stream.weights[side][rows]
        negatives = sampler.sample(triples, side, self.generator)
        entities, masked, *_ = negatives
        found = self.trainer.scores(triples, side, negatives)
        positive, negative = found.positive + loss.margin, found.negative + loss.margin
        values = torch.cat([positive, negative.flatten()])
        scores.add(values, (torch.arange(len(values), device=values.device) >= len(positive)).long())
        weighted = (weight * logsigmoid(positive)).double().sum() / weight.double().sum()
        sums[:2] += torch.stack([weighted, positive.double().sum()])
        if not entities.numel():
            return
        parts = torch.stack([loss.logits(found), negative]).double()
        unmasked, own = ~masked, entities == triples[:, column(side), None]
        sums[2:] += torch.cat(
            [parts.sum((1, 2)), (parts * unmasked).sum((1, 2)), torch.stack([unmasked.sum(), own.sum()]).double()]
        )
        self._add_shares(negative, unmasked, shares)
        if found.substitution is not None:
            known = self.known.contains_candidates(triples, side, entities)
            held_out = self.held_out.contains_candidates(triples, side, entities) & ~known
            group = known.long() + 2 * held_out.long()
            substitution.add(torch.sigmoid(found.substitution + loss.margin).flatten(), group.flatten())

    @staticmethod
    def _add_shares(negative: Tensor, unmasked: Tensor, shares: Tensor) -> None:
        """Add each row's softmax, sorted downwards, over all scores ``[B, N]`` and over those of the mask."""
        for place, scores in enumerate((negative, negative.masked_fill(~unmasked, -torch.inf))):
            share = torch.softmax(scores, 1).sort(1, descending=True).values.nan_to_num(0.0)
            shares[place, :-1] += share.double().sum(0)
            shares[place, -1] += (scores > -torch.inf).any(1).sum()


class Histogram:
    """Counts of values by group and bin, kept on a device without waiting for it.

    Args:
        groups, bins: how many of each.
        device: where the counts live.
        limits: of the first bin and the last; None for the range of the first `add`, and a tenth more on either side.
            Values outside count in the outermost bins.
    """

    def __init__(
        self, groups: int, bins: int, device: torch.device | str, limits: tuple[float, float] | None = None
    ) -> None:
        self.counts = torch.zeros(groups, bins, dtype=torch.int64, device=device)
        self.limits = torch.tensor(limits, device=device) if limits is not None else None

    def add(self, values: Tensor, groups: Tensor) -> None:
        """Count values ``[n]`` that belong to groups int64 ``[n]``."""
        if self.limits is None:
            low, high = values.aminmax()
            beyond = torch.where(high > low, 0.1 * (high - low), 1.0)
            self.limits = torch.stack([low - beyond, high + beyond])
        low, high = self.limits.unbind()
        bins = self.counts.shape[1]
        place = ((values - low) / (high - low) * bins).long().clamp(0, bins - 1)
        self.counts.view(-1).index_add_(0, groups * bins + place, torch.ones_like(groups))

    def edges(self) -> list[float]:
        """The ``bins + 1`` limits of the bins, once there are values."""
        assert self.limits is not None
        low, high = self.limits.tolist()
        bins = self.counts.shape[1]
        return [low + (high - low) * place / bins for place in range(bins + 1)]

    def tolist(self) -> list[list[int]]:
        """The counts of each group."""
        counts: list[list[int]] = self.counts.tolist()
        return counts


def _cumulated(shares: Tensor) -> list[float]:
    """Shares added up ``[N]``, of sums over rows ``[N + 1]`` whose last entry counts the rows; ends with 1 exactly."""
    sums: list[float] = shares[:-1].tolist()
    total = sum(sums)  # the number of rows, but for rounding
    return [*(min(value / total, 1.0) for value in accumulate(sums[:-1])), 1.0]


def _grouped(histogram: Histogram, own: int) -> dict[str, Any]:
    """The substitution scores' part of an analysis."""
    counts = histogram.counts
    coarse = counts.view(len(GROUPS), BINS, FINE).sum(2).tolist()
    return {
        "edges": histogram.edges()[::FINE],
        **dict(zip(GROUPS, coarse, strict=True)),
        "own": own,
        "separation": {name: separation(counts[place], counts[0]) for place, name in enumerate(GROUPS) if place},
    }


def separation(group: Tensor, other: Tensor) -> float | None:
    """The probability that a member of `group` lies above one of `other`, ties half, from counts ``[bins]``."""
    pairs = float(group.sum()) * float(other.sum())
    if not pairs:
        return None
    below = other.double().cumsum(0) - 0.5 * other
    return float((group.double() * below).sum() / pairs)


def analyse_run(path: str | Path, *, batches: int = BATCHES, device: str = "auto") -> dict[str, Any]:
    """`Analyst.analyse` for a run folder, model and sampler as its last checkpoint has them; it is only read."""
    folder = RunFolder.open(path)
    if not folder.checkpoint_file.is_file():
        raise folder.no_weights()
    graph = folder.graph()
    trainer = build_trainer(folder.recipe(), graph, choose_device(device))
    folder.load_state(trainer)
    with trainer.settled():
        return Analyst(trainer, graph, batches).analyse()
