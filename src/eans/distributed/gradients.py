"""Gradients of rows that are guests: they go to the owners of the rows, who add them to their own."""

from __future__ import annotations

import torch
from torch import Tensor

from eans.distributed.table import ShardedTable
from eans.kernels.deferred_gradients import DeferredGradients, RowGradient


def send_home(
    table: ShardedTable,
    dense: Tensor | None,
    found: DeferredGradients | None,
    own: DeferredGradients | None,
    read: Tensor | None = None,
) -> Tensor | None:
    """The gradient of own rows, with what other ranks found for them. All ranks call it together.

    Gradients come in two forms, of which either may be missing: a table, and parts that an optimizer adds up. Each rank
    sums those of a guest and sends one row. The owner takes what it receives as one more part, in the order of the
    ranks.

    Args:
        table: of this rank.
        dense: ``[L + G, F]`` or None.
        found: parts of the gradient of own rows and guests; None where all is in `dense`.
        own: gets the parts that are left of `found`, and what is received; None where the table takes it.
        read: own rows that the step has read, int64 ``[M]``: of these `own` gets `dense`; None to return it.

    Returns:
        ``[L, F]``, or None where all is in `own`.
    """
    guests = table.rows.new_zeros(len(table.rows) - table.owned, table.rows.shape[1])
    if dense is not None:
        guests += dense[table.owned :]
        dense = dense[: table.owned]
    if found is not None and own is not None:
        _part(table, found, own, guests)
    received = table.return_guests(guests)
    if own is not None:
        if dense is not None and read is not None:
            _leave(own, torch.unique(read), dense)
        own.rows.append(RowGradient(own.gather(table.guests.slots), table.guests.slots, received))
        return dense if read is None else None
    dense = table.own.new_zeros(table.own.shape) if dense is None else dense
    start = 0
    # Each rank asked for a row once: a sum of one rank's rows has no order that could differ.
    for count in table.guests.given:
        part = slice(start, start + count)
        dense.index_add_(0, table.guests.slots[part], received[part])
        start += count
    return dense


def _leave(own: DeferredGradients, rows: Tensor, dense: Tensor) -> None:
    own.rows.append(RowGradient(own.gather(rows), rows, dense[rows]))


def _part(table: ShardedTable, found: DeferredGradients, own: DeferredGradients, guests: Tensor) -> None:
    """Leave parts of own rows in `own`, and add those of guests up."""
    others = [*found.candidates, *found.products, *found.cubed]
    assert not others, "of models and terms that are not trained on several ranks"
    for part in found.sorted_rows():
        here = part.ids < table.owned
        if bool(here.all()):
            own.rows.append(RowGradient(own.gather(part.ids), part.ids, part.gradient))
            continue
        ids = part.ids[here]
        own.rows.append(RowGradient(own.gather(ids), ids, part.gradient[here]))
        guests.index_add_(0, part.ids[~here] - table.owned, part.gradient[~here])
    for leading in found.leading:
        own.leading.append(leading[: table.owned])
        guests[:, : leading.shape[1]] += leading[table.owned :]
