"""How steps run on a device: what is there for caches, threads, streams and CUDA graphs alone.

Nothing here changes what a step computes, but for the order of the positives in a batch and of the candidates in a row.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from eans import kernels
from eans.batches import BatchStream
from eans.kernels.deferred_gradients import TableSinks
from eans.kernels.gpu_cache import outgrows_cache
from eans.kernels.side_stream import SideStream
from eans.models import Model
from eans.objective import Objective
from eans.optimizer import Optimizer
from eans.samplers import Sampler

SHARING_FROM = 64  # negatives


class Execution:
    """Made once for a trainer, from its parts.

    Args:
        model, sampler, objective, stream, optimizer: of the trainer.
        device: where all of them live.

    Attributes:
        places: by which the positives of a batch are put in order, int64 ``[E]``; None for any order.
        sinks: where the gradients of the tables are left for the optimizer.
        side_stream: where work is queued whose result is needed only later.
        operation_size: numbers of the largest tensor that PyTorch works on in a step.
        observes: does the sampler learn inside the step, as part of what is captured? (`Sampler.steady`)
    """

    def __init__(
        self,
        model: Model,
        sampler: Sampler,
        objective: Objective,
        stream: BatchStream,
        optimizer: Optimizer,
        device: torch.device,
    ) -> None:
        self.sampler, self.optimizer, self.device = sampler, optimizer, device
        self.side_stream = SideStream(device)
        ordering = sampler.ordering()
        # With few candidates, sorting costs more than it saves.
        shares = sampler.negatives >= SHARING_FROM
        # Positives that stand close share candidates. Without an ordering, work on the same part of each one's does.
        self.places = ordering[1] if ordering is not None and shares else None
        self.sort_candidates(
            ordering is None and shares and sampler.can_sort and outgrows_cache(optimizer.compared_table)
        )
        self.sinks = TableSinks(optimizer.sink(model.entity), optimizer.sink(model.relation))
        self.operation_size = stream.batch_size * _widest(model, sampler, objective)
        self.observes = sampler.steady

    def sort_candidates(self, on: bool) -> None:
        """Have candidates in the order of their ids, and kernels work on the same part of each positive's."""
        self.sampler.sorts = on
        self.optimizer.work_across(on)

    def small_operations(self) -> AbstractContextManager[None]:
        """The context of a step's operations: PyTorch's threads only where they are worth it."""
        return kernels.small_operations(self.device, self.operation_size)


def _widest(model: Model, sampler: Sampler, objective: Objective) -> int:
    """Of each positive, how many numbers PyTorch works on at a time in a step."""
    whole = {name for term in objective.terms for name in term.whole_tables}
    whole |= {"entity"} if sampler.all_entities else set()
    tables = [model.get_parameter(name).numel() for name in whole]
    return max([model.entity.shape[1], model.relation.shape[1], model.layer_numbers, sampler.row_numbers, *tables])
