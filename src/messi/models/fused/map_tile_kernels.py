"""Feature maps [B, C, H, W] as a matrix for kernels: a row for each position of each image, a column for each channel.

That is their layout in memory in channels-last order, so a tile of some rows and columns is read in long pieces.
"""

import triton
import triton.language as tl
from torch import Tensor

_TILE = 2048
"""Numbers that a program processes at once: two vectors of eight for each of its threads."""
_COLUMNS = 256
"""Maximum number of channels in a tile: 512 bytes of a row in half precision."""


def matrix(maps: Tensor) -> tuple[int, int]:
    """Return the numbers of rows and columns."""
    batch, channels, height, width = maps.shape
    return batch * height * width, channels


def tiles(rows: int, channels: int) -> tuple[dict[str, int], tuple[int, int]]:
    """Return the compile-time constants of the kernels, and the numbers of tiles down and across."""
    columns = min(triton.next_power_of_2(channels), _COLUMNS)
    shape = {"ROWS": _TILE // columns, "COLUMNS": columns, "num_warps": 4}
    return shape, (triton.cdiv(rows, shape["ROWS"]), triton.cdiv(channels, columns))


def turns_of(down: int, most: int) -> int:
    """Return the number of programs, at most ``most``, that divide the tiles down as equally as possible."""
    return int(triton.cdiv(down, triton.cdiv(down, most)))


@triton.jit
def which(channels, COLUMNS: tl.constexpr):
    """Return the turn of a program among those with the same columns, and these columns, [1, COLUMNS]."""
    across = tl.cdiv(channels, COLUMNS)
    column = tl.program_id(0) % across * COLUMNS + tl.arange(0, COLUMNS)
    return tl.program_id(0) // across, column[None, :]


@triton.jit
def places(start, rows, channels, column, ROWS: tl.constexpr):
    """Return the offsets of the numbers of a tile, and which of them exist."""
    row = (start + tl.arange(0, ROWS))[:, None]
    return row.to(tl.int64) * channels + column, (row < rows) & (column < channels)


@triton.jit
def read(source, inside):
    return tl.load(source, mask=inside, other=0.0).to(tl.float32)
