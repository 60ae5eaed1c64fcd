"""The arguments of `compare` as its GPU kernels take them."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from eans.kernels.kinds import Comparison, width_of
from eans.kernels.triton_tiles import Tile, fitted


class Arguments(NamedTuple):
    """Arguments of `eans.kernels.compare`, contiguous except for the stride of the table's rows."""

    kind: Comparison
    queries: Tensor
    table: Tensor
    entities: Tensor
    shifts: Tensor | None
    scalars: Tensor | None
    mean_rest: bool

    @property
    def width(self) -> int:
        """Columns of one plane of a row."""
        return width_of(self.kind, self.queries.shape[2])

    def tile(self, tiles: dict[str, Tile], shifted: Tile | None = None) -> Tile:
        """The tile of a kernel: by the comparison, or the one for shifts; no wider than a row."""
        return fitted(tiles[self.kind] if self.shifts is None or shifted is None else shifted, self.width)

    def constants(self, tile: Tile) -> dict[str, Any]:
        """What every kernel knows when it is compiled.

        Strides are among it, because only then can the compiler see that rows are aligned for wide loads.
        """
        return {
            "DIM": self.queries.shape[2],
            "WIDTH": self.width,
            "STRIDE": self.table.stride(0),
            "KIND": self.kind,
            "Q": len(self.queries),
            "MEAN": self.mean_rest,
            "SHIFTED": self.shifts is not None,
            "ROWS": tile.rows,
            "COLUMNS": tile.columns,
            "num_warps": tile.warps,
        }
