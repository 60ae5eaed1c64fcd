"""The paper's tables and figures, again, and two tables more: cells, the runs behind them, their records, and a report.

What makes runs, and what reads recipes to foretell them, imports PyTorch: `running`, `watching`, `order`, `pool`,
`estimates`, `sharing`. The rest is plain data and does not, so that a report is there at once.
"""

from eans.reproduction.cells import Cell
from eans.reproduction.records import Record, RunSpec, read_records
from eans.reproduction.report import Outcome, judge
from eans.reproduction.selection import FIGURES, read_cells, select
from eans.reproduction.tables import PAPER_TABLES, TABLES

__all__ = [
    "FIGURES",
    "PAPER_TABLES",
    "TABLES",
    "Cell",
    "Outcome",
    "Record",
    "RunSpec",
    "judge",
    "read_cells",
    "read_records",
    "select",
]
