"""Gathering a batch, drawing along an ordering or from pools, labelling false negatives or replacing them."""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from eans.kernels.sampling import reference
from eans.kernels.triton_sort import FEW

# Triples whose place in a batch a program finds, and how many others it compares them with at a time.
BATCH_BLOCK, BATCH_OTHERS = 32, 256
# Candidates of one positive that a program holds at a time, and how many of the others it compares them with.
CANDIDATES, OTHERS = 256, 64


@triton.jit
def _take_kernel(
    batch_triples,  # [B, 3]
    batch_weights,  # [B]
    rows,  # [B]
    triples,  # [T, 3]
    weights,  # [T]
    places,  # [E] or None
    count,
    COLUMN: tl.constexpr,
    BLOCK: tl.constexpr,
    OTHERS: tl.constexpr,
):
    mine = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    inside = mine < count
    row = tl.load(rows + mine, mask=inside, other=0)
    rank = mine
    if places is not None:
        key = tl.load(places + tl.load(triples + row * 3 + COLUMN)).to(tl.int32)
        before = tl.zeros([BLOCK, OTHERS], dtype=tl.int32)
        for start in range(0, count, OTHERS):
            place = start + tl.arange(0, OTHERS)[None, :]
            there = place < count
            entity = tl.load(triples + tl.load(rows + place, mask=there, other=0) * 3 + COLUMN, mask=there, other=0)
            other = tl.load(places + entity, mask=there, other=2147483647).to(tl.int32)
            before += ((other < key) | ((other == key) & (place < mine))).to(tl.int32)
        rank = tl.sum(before, axis=1)[:, None]
    for column in tl.static_range(3):
        tl.store(batch_triples + rank * 3 + column, tl.load(triples + row * 3 + column, mask=inside), mask=inside)
    tl.store(batch_weights + rank, tl.load(weights + row, mask=inside), mask=inside)


def take(triples: Tensor, weights: Tensor, rows: Tensor, places: Tensor | None, column: int) -> tuple[Tensor, Tensor]:
    """`eans.kernels.take`; a batch of up to FEW triples is sorted."""
    few = places is not None and len(rows) <= FEW
    batch_triples, batch_weights = triples.new_empty(len(rows), 3), weights.new_empty(len(rows))
    with torch.cuda.device_of(rows):
        _take_kernel[(triton.cdiv(len(rows), BATCH_BLOCK),)](
            batch_triples, batch_weights, rows, triples, weights, places if few else None, len(rows),
            COLUMN=column, BLOCK=BATCH_BLOCK, OTHERS=BATCH_OTHERS,
        )  # fmt: skip
    return batch_triples, batch_weights


@triton.jit
def _candidates(negatives, COLUMNS: tl.constexpr):
    """Of a program: its row, which of the row's candidates it has, and which of these there are."""
    tiles = tl.cdiv(negatives, COLUMNS)
    row = (tl.program_id(0) // tiles).to(tl.int64)
    columns = (tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)
    return row, columns, columns < negatives


@triton.jit
def _step_kernel(
    entities,  # [B, N]
    ordering,  # [E]
    start,  # [B]
    noise,  # [B, N]
    size,
    sigma,
    negatives,
    COLUMNS: tl.constexpr,
):
    row, columns, inside = _candidates(negatives, COLUMNS)
    scaled = tl.load(noise + row * negatives + columns, mask=inside, other=0.0) * sigma
    # To the nearest whole number, halves to even: adding and taking away 1.5 * 2^23 leaves no bits below 1. (Beyond
    # 2^22 places fractions are cut off.)
    rounded = tl.where(tl.abs(scaled) < 4194304.0, (scaled + 12582912.0) - 12582912.0, scaled)
    index = tl.load(start + row) + rounded.to(tl.int64)
    index = index % size
    index = tl.where(index < 0, index + size, index)
    tl.store(entities + row * negatives + columns, tl.load(ordering + index, mask=inside), mask=inside)


def step_along(ordering: Tensor, start: Tensor, noise: Tensor, sigma: float) -> Tensor:
    """`eans.kernels.step_along`."""
    if noise.dtype != torch.float32:
        return reference.step_along(ordering, start, noise, sigma)
    batch, negatives = noise.shape
    entities = torch.empty(batch, negatives, dtype=torch.int64, device=noise.device)
    columns = min(CANDIDATES, triton.next_power_of_2(max(1, negatives)))
    with torch.cuda.device_of(noise):
        _step_kernel[(batch * triton.cdiv(negatives, columns),)](
            entities, ordering, start.contiguous(), noise.contiguous(), len(ordering), float(sigma), negatives,
            COLUMNS=columns, num_warps=2, enable_fp_fusion=False,
        )  # fmt: skip
    return entities


@triton.jit
def _pick_kernel(
    entities,  # [B, N]
    ids,  # [P]
    starts,  # [E + 1]
    kept,  # [B]
    uniforms,  # [B, N]
    num_entities,
    negatives,
    COLUMNS: tl.constexpr,
):
    row, columns, inside = _candidates(negatives, COLUMNS)
    entity = tl.load(kept + row)
    start = tl.load(starts + entity)
    held = tl.load(starts + entity + 1) - start
    size = tl.where(held > 0, held, num_entities).to(tl.int64)
    uniform = tl.load(uniforms + row * negatives + columns, mask=inside, other=0.0)
    chosen = tl.minimum((uniform * size.to(tl.float32)).to(tl.int64), size - 1)
    member = tl.load(ids + start + chosen, mask=inside & (held > 0), other=0).to(tl.int64)
    tl.store(entities + row * negatives + columns, tl.where(held > 0, member, chosen), mask=inside)


def pick(ids: Tensor, starts: Tensor, kept: Tensor, uniforms: Tensor, num_entities: int) -> Tensor:
    """`eans.kernels.pick`."""
    batch, negatives = uniforms.shape
    entities = torch.empty(batch, negatives, dtype=torch.int64, device=uniforms.device)
    columns = min(CANDIDATES, triton.next_power_of_2(max(1, negatives)))
    with torch.cuda.device_of(uniforms):
        _pick_kernel[(batch * triton.cdiv(negatives, columns),)](
            entities, ids, starts, kept.contiguous(), uniforms.contiguous(), num_entities, negatives,
            COLUMNS=columns, num_warps=2,
        )  # fmt: skip
    return entities


@triton.jit
def _before(keys, wanted, low, high, steps):
    """How many of the sorted ``keys[low : high]`` are below `wanted`, plus low; tensors of one shape."""
    for _ in range(steps):
        searching = low < high
        middle = (low + high) // 2
        below = tl.load(keys + middle, mask=searching, other=0) < wanted
        low = tl.where(searching & below, middle + 1, low)
        high = tl.where(searching & ~below, middle, high)
    return low


@triton.jit
def _answers(keys, lowest, num_keys, num_entities, steps):
    """Where the known answers of a query stand, side by side, from key `lowest` on: first, last, and the steps of a
    search among them.
    """
    bounds = lowest + tl.arange(0, 2) * num_entities
    zero = tl.zeros([2], dtype=tl.int64)
    ends = _before(keys, bounds, zero, zero + num_keys, steps)
    first = tl.min(ends, axis=0)
    last = tl.max(ends, axis=0)
    left = last - first
    search = 0
    while left > 0:
        left = left // 2
        search += 1
    return first, last, search


@triton.jit
def _among(keys, wanted, first, last, search, asked):
    """Which of the keys `wanted` that are `asked` for are among ``keys[first : last]``; tensors of one shape."""
    ends = tl.zeros_like(wanted) + last
    found = _before(keys, wanted, tl.where(asked, first, ends), ends, search)
    return asked & (tl.load(keys + found, mask=asked & (found < last), other=-1) == wanted)


@triton.jit
def _label_kernel(
    known,  # [B, N]
    keys,  # [K]
    prefix,  # [B]
    entities,  # [B, N]
    num_keys,
    num_entities,
    steps,  # enough for a search among all keys
    repeats_from,
    negatives,
    REPEATS: tl.constexpr,
    COLUMNS: tl.constexpr,
    OTHERS: tl.constexpr,
):
    row, columns, inside = _candidates(negatives, COLUMNS)
    mine = tl.load(entities + row * negatives + columns, mask=inside, other=-1)

    lowest = tl.load(prefix + row) * num_entities
    first, last, search = _answers(keys, lowest, num_keys, num_entities, steps)
    labelled = _among(keys, lowest + mine, first, last, search, inside)

    if REPEATS:
        stop = tl.where(last - first >= repeats_from, negatives, 0)
        ids = mine.to(tl.int32)[:, None]
        # Counted in place and summed once: a sum across threads inside the loop would cost most of the time.
        again = tl.zeros([COLUMNS, OTHERS], dtype=tl.int32)
        for start in range(0, stop, OTHERS):
            place = start + tl.arange(0, OTHERS)[None, :]
            other = tl.load(entities + row * negatives + place, mask=place < negatives, other=-2).to(tl.int32)
            again |= ((ids == other) & (place > columns[:, None])).to(tl.int32)
        labelled = labelled | (tl.max(again, axis=1) > 0)
    tl.store(known + row * negatives + columns, labelled, mask=inside)


def label(keys: Tensor, prefix: Tensor, entities: Tensor, num_entities: int, repeats_from: float | None) -> Tensor:
    """`eans.kernels.label`."""
    batch, negatives = entities.shape
    known = torch.empty(batch, negatives, dtype=torch.bool, device=entities.device)
    if entities.numel() == 0:
        return known
    columns = min(CANDIDATES, triton.next_power_of_2(max(1, negatives)))
    with torch.cuda.device_of(entities):
        _label_kernel[(batch * triton.cdiv(negatives, columns),)](
            known, keys, prefix.contiguous(), entities.contiguous(), len(keys), num_entities,
            len(keys).bit_length(), 0.0 if repeats_from is None else float(repeats_from), negatives,
            REPEATS=repeats_from is not None, COLUMNS=columns, OTHERS=OTHERS, num_warps=4,
        )  # fmt: skip
    return known


@triton.jit
def _redraw_kernel(
    chosen,  # [B, N]
    known,  # [B, N]
    keys,  # [K]
    prefix,  # [B]
    entities,  # [B, N]
    others,  # [R, B, N]
    num_keys,
    num_entities,
    steps,  # enough for a search among all keys
    rounds,
    batch,
    negatives,
    COLUMNS: tl.constexpr,
):
    """Rounds go on as long as one of the program's candidates is a known answer, and read what replaces those alone."""
    row, columns, inside = _candidates(negatives, COLUMNS)
    here = row * negatives + columns
    mine = tl.load(entities + here, mask=inside, other=-1)
    lowest = tl.load(prefix + row) * num_entities
    first, last, search = _answers(keys, lowest, num_keys, num_entities, steps)
    labelled = _among(keys, lowest + mine, first, last, search, inside)
    left = tl.max(labelled.to(tl.int32), axis=0)
    source = others + here
    turn = 0
    while (left > 0) & (turn < rounds):
        mine = tl.where(labelled, tl.load(source, mask=labelled, other=-1), mine)
        labelled = _among(keys, lowest + mine, first, last, search, labelled)
        left = tl.max(labelled.to(tl.int32), axis=0)
        source += batch * negatives
        turn += 1
    tl.store(chosen + here, mine, mask=inside)
    tl.store(known + here, labelled, mask=inside)


def redraw(keys: Tensor, prefix: Tensor, entities: Tensor, others: Tensor, num_entities: int) -> tuple[Tensor, Tensor]:
    """`eans.kernels.redraw`."""
    batch, negatives = entities.shape
    chosen = torch.empty(batch, negatives, dtype=torch.int64, device=entities.device)
    known = torch.empty(batch, negatives, dtype=torch.bool, device=entities.device)
    if entities.numel() == 0:
        return chosen, known
    columns = min(CANDIDATES, triton.next_power_of_2(max(1, negatives)))
    with torch.cuda.device_of(entities):
        _redraw_kernel[(batch * triton.cdiv(negatives, columns),)](
            chosen, known, keys, prefix.contiguous(), entities.contiguous(), others.contiguous(), len(keys),
            num_entities, len(keys).bit_length(), len(others), batch, negatives, COLUMNS=columns, num_warps=4,
        )  # fmt: skip
    return chosen, known
