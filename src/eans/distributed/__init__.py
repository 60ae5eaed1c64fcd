"""Several processes that train one model: who they are, what they send each other, and where the rows of a table are.

The processes, started by ``torchrun``, are called ranks. Each owns a part of the entity table's rows and updates them;
relations are the same on all. Only this package calls `torch.distributed`.
"""

from eans.distributed.clustering import clustered
from eans.distributed.gradients import send_home
from eans.distributed.joining import joined, ranks_of_environment
from eans.distributed.table import Placement, ShardedTable
from eans.distributed.world import ALONE, Lost, World

__all__ = [
    "ALONE",
    "Lost",
    "Placement",
    "ShardedTable",
    "World",
    "clustered",
    "joined",
    "ranks_of_environment",
    "send_home",
]
