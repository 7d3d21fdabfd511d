"""Finds small products of queries with rows, tile by tile, without holding all products.

On a GPU a Triton kernel does this; without Triton, torch does it in blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

__all__ = ["TILE", "Room", "append", "count", "has_kernels", "padded", "padded_width", "sign_type"]

TILE = 128
"""Numbers of queries and rows must be multiples of this."""

_BLOCK = 2**24  # products that torch holds at once


@dataclass(frozen=True)
class Room:
    """Memory for what is found; each query has its own part.

    Attributes
    ----------
    starts : int64 (q + 1,), where the part of a query begins
    counts : int32 (q,), how many were found; those that do not fit are counted but not kept
    values : (starts[-1],), products plus base
    where : int64 (starts[-1],), positions of rows
    """

    starts: Tensor
    counts: Tensor
    values: Tensor
    where: Tensor

    @classmethod
    def of_sizes(cls, sizes: Tensor, dtype: torch.dtype) -> Room:
        """Room of the given size for each query, int64 (q,)."""
        starts = torch.zeros(len(sizes) + 1, dtype=torch.int64, device=sizes.device)
        torch.cumsum(sizes, 0, out=starts[1:])
        total = int(starts[-1])
        return cls(
            starts,
            torch.zeros(len(sizes), dtype=torch.int32, device=sizes.device),
            torch.full((total,), torch.inf, dtype=dtype, device=sizes.device),
            torch.full((total,), -1, dtype=torch.int64, device=sizes.device),
        )


def padded(rows: Tensor, value: float = 0) -> Tensor:
    """Rows padded with ``value`` to a multiple of TILE.

    Examples
    --------
    >>> padded(torch.ones(130, 2)).shape
    torch.Size([256, 2])
    """
    more = -len(rows) % TILE
    return torch.cat([rows, rows.new_full((more, *rows.shape[1:]), value)]) if more else rows


def padded_width(n_features: int) -> int:
    """The width that kernels need: a power of two from 32 to 256, or a multiple of 128.

    Examples
    --------
    >>> padded_width(100), padded_width(300)
    (128, 384)
    """
    if n_features <= 256:
        return max(32, 1 << (n_features - 1).bit_length())
    return -(-n_features // 128) * 128


def has_kernels(device: torch.device) -> bool:
    """Whether Triton kernels run on a device.

    Examples
    --------
    >>> has_kernels(torch.device("cpu"))
    False
    """
    return device.type == "cuda" and _kernels_run(device)


@cache
def _kernels_run(device: torch.device) -> bool:
    """Try one kernel, because Triton also needs a C compiler."""
    try:
        from densehash.gpu import kernels  # noqa: PLC0415  needs Triton

        ones = torch.ones(TILE, 32, dtype=torch.float16, device=device)
        room = Room.of_sizes(torch.ones(TILE, dtype=torch.int64, device=device), torch.float32)
        limits = torch.zeros(TILE, device=device)
        kernels.append(ones, ones, limits, limits, room, 0)
        torch.cuda.synchronize(device)
    except torch.cuda.OutOfMemoryError:  # there may be memory the next time
        raise
    except Exception:  # noqa: BLE001  after any error, torch does the work
        return False
    return True


def sign_type(device: torch.device) -> torch.dtype:
    """The fastest type whose products of signs are exact.

    Examples
    --------
    >>> sign_type(torch.device("cpu"))
    torch.float16
    """
    hopper = has_kernels(device) and torch.cuda.get_device_capability(device) >= (9, 0)
    return torch.float8_e4m3fn if hopper else torch.float16


def append(
    factors: Tensor, rows: Tensor, base: Tensor, limits: Tensor, room: Room, first: int
) -> None:
    """Put the values of ``factors @ rows.T + base`` up to the limit of the query into ``room``.

    Parameters
    ----------
    factors : float8, float16 or float64 (q, width), q a multiple of TILE
    rows : the same type (n, width), n a multiple of TILE
    base : float32 or float64 (n,); infinite for padding
    limits : float32 or float64 (q,); minus infinity for padding
    room : room for q queries
    first : the position of the first row

    Products of float8 and float16 are summed in float32.

    Examples
    --------
    >>> ones = torch.ones(TILE, 32, dtype=torch.float16)
    >>> room = Room.of_sizes(torch.full((TILE,), 2), torch.float32)
    >>> append(ones, ones, torch.arange(128.0), torch.full((TILE,), 33.0), room, first=0)
    >>> room.values[:2], room.where[:2], room.counts[0]
    (tensor([32., 33.]), tensor([0, 1]), tensor(2, dtype=torch.int32))
    """
    if factors.dtype != torch.float64 and _fit_kernels(factors, rows):
        from densehash.gpu import kernels  # noqa: PLC0415

        kernels.append(factors, rows, base, limits, room, first)
        return
    sizes = room.starts.diff()
    step = max(_BLOCK // len(factors), 1)
    asked = factors.to(base.dtype)
    for start in range(0, len(rows), step):
        some = slice(start, start + step)
        found = torch.addmm(base[some], asked, rows[some].to(base.dtype).T)
        hits = found <= limits[:, None]
        query, own = hits.nonzero(as_tuple=True)
        each = hits.sum(1)
        slot = torch.arange(len(query), device=query.device) - (each.cumsum(0) - each)[query]
        slot += room.counts[query]
        fits = slot < sizes[query]
        at = (room.starts[query] + slot)[fits]
        room.values[at] = found[query, own][fits]
        room.where[at] = own[fits] + (first + start)
        room.counts.add_(each)


def count(factors: Tensor, rows: Tensor, n_rows: int, half: float, counts: Tensor) -> None:
    """Add to ``counts[i, d]`` how many of the first n_rows have product d − half with query i.

    Parameters
    ----------
    factors, rows : as in :func:`append`
    n_rows : how many rows are not padding
    half : added to the products, which are then integers from 0 on
    counts : int32 (q, m); q may be less than the number of factors, which are padded

    Examples
    --------
    >>> factors, rows = torch.ones(TILE, 32), torch.zeros(TILE, 32)
    >>> rows[3, 0] = 1
    >>> counts = torch.zeros(1, 3, dtype=torch.int32)
    >>> count(factors, rows, 5, 1.0, counts)
    >>> counts
    tensor([[0, 4, 1]], dtype=torch.int32)
    """
    if _fit_kernels(factors, rows):
        from densehash.gpu import kernels  # noqa: PLC0415

        kernels.count(factors, rows, n_rows, half, counts)
        return
    q, m = counts.shape
    step = max(_BLOCK // max(q, 1), 1)
    asked = factors[:q].float()
    firsts = torch.arange(q, device=counts.device)[:, None] * m
    for start in range(0, n_rows, step):
        some = rows[start : min(start + step, n_rows)].float()
        places = (asked @ some.T + half).long() + firsts
        counts += torch.bincount(places.reshape(-1), minlength=q * m).reshape(q, m).int()


def _fit_kernels(factors: Tensor, rows: Tensor) -> bool:
    """Whether kernels run on the device, and 32 bits can index all numbers of a block."""
    most = max(factors.numel(), rows.numel())
    return has_kernels(factors.device) and most < 2**31
