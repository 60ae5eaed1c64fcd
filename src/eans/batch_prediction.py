"""Top-k answers to many queries: read from a table, scored in blocks, and written while the next are read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from eans import kernels
from eans.arguments import choice, flag, optional_text, whole
from eans.errors import RunError
from eans.graph import HEAD, RELATION, TAIL, KnowledgeGraph, Side
from eans.models import Model
from eans.models.arguments import require_graph
from eans.phases import told_to
from eans.prediction import KNOWN, Known
from eans.progress import Display, Told
from eans.queries import Block, Queries, QueryTable
from eans.ranking import DEFAULT_MEMORY, Cost, Tiling, best
from eans.table_files import TEXT, table_writer

SCHEMA = pa.schema(
    [
        ("query", pa.int64()),
        ("rank", pa.int32()),
        *((name, TEXT) for name in ("head", "relation", "tail")),
        ("score", pa.float32()),
        ("known", pa.bool_()),
    ]
)
# Queries that are answered and written together: so many, or fewer where they have more answers than this.
MOST_QUERIES, MOST_ANSWERS = 1 << 16, 1 << 20
PER_ANSWER = 48  # bytes of an answer's score and id, those of a tile's, and what merging both takes


@dataclass(frozen=True)
class ManyPredictions:
    """What became of many queries.

    Attributes:
        queries: how many were answered.
        answers: how many rows they have: up to k each.
        skipped: how many were left out because the graph does not have one of their labels.
        first_skipped: where the first of these is, and why, in words.
        table: the answers, a ``pyarrow.Table``; None where they were written to a file. Its columns: ``query``, the
            row of the query, counted from 0 (rows that were left out count); ``rank`` from 1; ``head``, ``relation``,
            ``tail``; ``score``; and ``known``, whether the graph holds the triple already.
    """

    queries: int
    answers: int
    skipped: int = 0
    first_skipped: str = ""
    table: pa.Table | None = None


def predict_many(
    model: Model,
    graph: KnowledgeGraph,
    queries: QueryTable,
    *,
    k: int = 10,
    known: Known = "filter",
    out: str | Path | None = None,
    skip_unknown: bool = False,
    format: str = "",
    memory: int = DEFAULT_MEMORY,
    progress: bool | Told = True,
) -> ManyPredictions:
    """The k best completions of each query of a table; of equal scores, those of the smallest id come first.

    Args:
        model, graph: the trained model and the graph whose names it uses.
        queries: rows of head, relation and tail, of which one is empty and predicted: a file (CSV, TSV, JSON lines or
            Parquet by its ending, ``-`` for standard input), or what `KnowledgeGraph.from_labels` takes.
        k: how many completions of each; fewer where there are not so many.
        known: ``"filter"`` leaves out triples that the graph holds already; ``"mark"`` keeps them, marked.
        out: file to write the answers to, of a kind as its ending says, or ``-`` for standard output; None: to memory.
        skip_unknown: leave out queries with labels that the graph does not have, and count them; otherwise an error.
        format: of standard output: ``"csv"`` (also if empty), ``"tsv"`` or ``"jsonl"``.
        memory: bound in bytes on the working memory for scores. Those of one query with a few thousand entities are
            the least it can do.
        progress: True: a bar on a terminal or in a notebook, otherwise a line now and then on standard error; False:
            nothing; or what to call with (queries done, queries in all, 0 where nobody knows).
    """
    require_graph(model, graph)
    k, known = whole("k", k, least=1), choice("known", known, KNOWN)
    memory = whole("memory", memory)
    format = choice("format", optional_text("format", format) or "csv", ("csv", "tsv", "jsonl"))
    source = Queries(queries, graph, flag("skip_unknown", skip_unknown))
    answering = _Answering(model, graph, k, known, memory)
    parts: list[pa.Table] = []
    answered = rows = 0
    with ExitStack() as stack:
        write = parts.append if out is None else stack.enter_context(table_writer(out, SCHEMA, format))
        report = stack.enter_context(_reporting(progress, source.total))
        for block in source.blocks(max(1, min(MOST_QUERIES, MOST_ANSWERS // min(k, graph.num_entities)))):
            before = source.read - len(block.numbers)
            table = answering.table(block, _from(report.done, before))
            write(table)
            answered, rows = answered + len(block.numbers), rows + len(table)
        report.done(source.read, over=True)
    table = pa.concat_tables(parts) if parts else SCHEMA.empty_table()
    return ManyPredictions(answered, rows, source.skipped, source.first_skipped, table if out is None else None)


class _Answering:
    """Queries to answers, by name."""

    def __init__(self, model: Model, graph: KnowledgeGraph, k: int, known: Known, memory: int) -> None:
        self.model, self.graph, self.filtered = model, graph, known == "filter"
        self.device = model.entity.device
        self.index = graph.known.to(self.device)
        self.k = k
        query, pair = Cost.of(model)
        cost = Cost(query + PER_ANSWER * min(k, graph.num_entities), pair)
        self.tiling = Tiling.of(memory, cost, range(graph.num_entities), self.device)
        per_pair = max(model.relation.shape[1], model.entity.shape[1], model.layer_numbers, 1)
        self.pairs = max(1, memory // (16 * per_pair * graph.num_relations))

    def table(self, block: Block, told: Callable[[int], None]) -> pa.Table:
        """The answers to a block of queries, in their order; `told` is called with how many are done."""
        count = len(block.numbers)
        width = min(self.k, max(self.graph.num_entities, self.graph.num_relations))
        scores, found, done = torch.empty(count, width), torch.full((count, width), -1), 0
        for column in (HEAD, RELATION, TAIL):
            rows = torch.nonzero(block.triples[:, column] < 0).flatten()
            if len(rows):
                values, answers = self._best(block.triples[rows], column, _from(told, done))
                done += len(rows)
                scores[rows, : values.shape[1]] = values.float()
                found[rows, : values.shape[1]] = answers
        query, place = torch.nonzero(found >= 0).unbind(1)
        asked = block.triples[query]
        triples = torch.where(asked < 0, found[query, place][:, None], asked)
        known = torch.zeros(len(query), dtype=torch.bool) if self.filtered else self.graph.known.contains(triples)
        entities, relations = self.graph.entities, self.graph.relations
        labels = (part.labels_of(ids) for part, ids in zip((entities, relations, entities), triples.T, strict=True))
        ranks = (place + 1).numpy().astype(np.int32)
        columns = [block.numbers[query].numpy(), ranks, *labels, scores[query, place].numpy(), known.numpy()]
        return pa.table(columns, schema=SCHEMA)

    def _best(self, triples: Tensor, column: int, told: Callable[[int], None]) -> tuple[Tensor, Tensor]:
        """Scores and answers ``[n, k]`` of queries ``[n, 3]`` that all ask for one column, on the CPU.

        Equal ones are answered once.
        """
        given = [0, 1, 2]
        given.remove(column)
        left, right = triples[:, given].unbind(1)
        _, place = torch.unique(
            left * max(self.graph.num_entities, self.graph.num_relations) + right, return_inverse=True
        )
        first = torch.empty(int(place.max()) + 1, dtype=torch.int64).scatter_(0, place, torch.arange(len(place)))
        rows = self.pairs if column == RELATION else self.tiling.rows
        count = self.graph.num_relations if column == RELATION else self.graph.num_entities
        shape = len(first), min(self.k, count)
        # Made before the scores: between those of two batches, what stays would keep the space of the first from the
        # second, and memory would grow with the number of batches.
        scores = torch.empty(shape, dtype=self.model.entity.dtype)
        found, done = torch.empty(shape, dtype=torch.int64), 0
        for batch in torch.split(triples[first].to(self.device), rows):
            answers = self._of_relations(batch) if column == RELATION else self._of_entities(batch, column)
            if bool(answers.nan.any()):
                raise RunError("the model scores NaN, so nothing can be predicted; its training has diverged")
            here = slice(done, done + len(batch))
            scores[here], found[here] = answers.scores, answers.entities
            done = here.stop
            told(done)
        return scores[place], found[place]

    def _of_entities(self, triples: Tensor, column: int) -> kernels.Best:
        side: Side = "head" if column == HEAD else "tail"
        triples, count = triples.clamp(min=0), self.graph.num_entities
        start, stop = self.index.run(triples, side)
        answers = self.index.keys[side], start, stop if self.filtered else start
        return best(self.model.scorer(triples, side), min(self.k, count), answers, count, self.tiling.tiles)

    def _of_relations(self, triples: Tensor) -> kernels.Best:
        scores = self.model.score_relations(triples[:, HEAD], triples[:, TAIL])
        count = scores.shape[1]
        candidates = triples[:, None].repeat(1, count, 1)
        candidates[..., RELATION] = torch.arange(count, device=triples.device)
        known = self.index.contains(candidates) & self.filtered
        stop = known.sum(1).cumsum(0)
        row, relation = torch.nonzero(known).unbind(1)
        return kernels.best(scores, min(self.k, count), row * count + relation, stop - known.sum(1), stop)


def _from(told: Callable[[int], None], before: int) -> Callable[[int], None]:
    return lambda count: told(before + count)


class _Reporter:
    """Tells how far it is."""

    def __init__(self, total: int | None, told: Told | None, display: Display | None) -> None:
        self.total, self.told, self.display, self.since = total, told, display, time.monotonic()

    def done(self, read: int, over: bool = False) -> None:
        total = read if over else self.total
        if self.told is not None:
            self.told(read, total or 0)
        if self.display is not None:
            rate = read / max(1e-9, time.monotonic() - self.since)
            self.display.advance("predicting", read, total, f"{rate:,.0f} queries/s" if read else "")


@contextmanager
def _reporting(progress: bool | Told, total: int | None) -> Iterator[_Reporter]:
    if callable(progress):
        yield _Reporter(total, progress, None)
    elif not flag("progress", progress):
        yield _Reporter(total, None, None)
    else:
        with Display() as display, told_to(display.phase):
            reporter = _Reporter(total, None, display)
            reporter.done(0)
            yield reporter
