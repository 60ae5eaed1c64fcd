"""Weights of positives: how much each training triple counts in a batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from eans.graph import HEAD, RELATION, TAIL, Side, column, opposite

SHARE, MOST_SHARES = 1 << 21, 1 << 8  # triples that are sorted together, and into how many shares they may be cut


def subsampling_weights(triples: Tensor, num_relations: int, power: float = 0.5) -> Tensor:
    """Weights that even out frequent pairs: ``(c(h, r) + c(r, t)) ** -power``, float32 ``[n]``.

    ``c`` is the number of triples that share the pair, plus 3 (the smoothing of the RotatE code, which the EANS
    paper inherits without saying so, and its power).
    """
    total = _frequency(triples, num_relations, "tail")
    total += _frequency(triples, num_relations, "head")
    return total.to(torch.float32).pow_(-power)


def query_weights(triples: Tensor, num_relations: int, side: Side, power: float = 0.5) -> Tensor:
    """Weights that even out frequent queries for a `side`: ``c(h, r) ** -power`` for tails, float32 ``[n]``.

    ``c`` as in `subsampling_weights` (Kamigaito & Hayashi, 2022, who call it unique). With a power of 1 queries count
    nearly alike, however many answers they have.
    """
    return _frequency(triples, num_relations, side).to(torch.float32).pow_(-power)


def answer_weights(triples: Tensor, side: Side, power: float = 0.5) -> Tensor:
    """Weights that favour frequent answers: ``0.1 + 0.9 (c(a) / max c) ** power``, float32 ``[n]``.

    ``c`` is how often an entity occurs as a head or a tail, and the answer ``a`` is the entity at the `side`. The
    authors of DURA (Zhang et al., 2020) weigh positives so in their code, with a power of 1.
    """
    size = 1 + max(int(triples[:, end].max()) for end in (HEAD, TAIL))
    heads, tails = (torch.bincount(triples[:, end], minlength=size) for end in (HEAD, TAIL))
    counts = heads.add_(tails).to(torch.float32)
    share = counts[triples[:, column(side)]] / counts.amax()
    return 0.1 + 0.9 * share.pow(power)


def _frequency(triples: Tensor, num_relations: int, side: Side) -> Tensor:
    """How many triples share each one's query for the `side`, and 3 more: int32 ``[n]``.

    Triples with one query, which are counted by sorting, fall into one share. So memory for each triple is 5 bytes; the
    rest is that for the largest share.
    """
    anchors, relations = triples[:, column(opposite(side))].numpy(), triples[:, RELATION].numpy()
    counts = np.empty(len(triples), np.int32)
    last = min(1 << (len(triples) // SHARE).bit_length(), MOST_SHARES) - 1
    shares = np.bitwise_and(anchors, last, out=np.empty(len(anchors), np.uint8), casting="unsafe")
    for share in range(last + 1):
        rows = np.flatnonzero(shares == share)
        queries = anchors[rows] * num_relations + relations[rows]
        order = queries.argsort()
        queries = queries[order]
        starts = np.flatnonzero(np.diff(queries, prepend=-1))
        sizes = np.diff(starts, append=len(rows)).astype(np.int32)
        counts[rows[order]] = np.repeat(sizes + 3, sizes)
    return torch.from_numpy(counts)
