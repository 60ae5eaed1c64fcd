"""The paper's tables and figures, again: published cells, the runs behind them, their records, and a report on both.

What makes runs (`running`, `watching`, `order`, `pool`) imports PyTorch. The rest is plain data and does not, so that a
report is there at once.
"""

from eans.reproduction.published import FIGURES, TABLES, Cell, read_cells, select
from eans.reproduction.records import Record, RunSpec, read_records
from eans.reproduction.report import Outcome, judge

__all__ = ["FIGURES", "TABLES", "Cell", "Outcome", "Record", "RunSpec", "judge", "read_cells", "read_records", "select"]
