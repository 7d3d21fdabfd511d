"""Rows that may be among the nearest of a query: all of those, and not many more.

A sample of rows gives each query a limit that more than k rows should be below. One pass over all
products keeps what is below it. Then it is seen whether there are k: where not, or where there are
more than there is room for, the caller goes another way.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from densehash.gpu.products import TILE, Room, append, padded
from densehash.locks import cached_property

__all__ = ["Candidates", "Problem", "blocks_of_queries", "candidates"]

_STRIDE = 32  # one of so many rows is in the sample
_SMALLEST_SAMPLE = 2**12
_LARGEST_SAMPLE = 2**18
_SAMPLE_BLOCK = 2**27  # products of queries with the sample
_BLOCK = 2**29  # numbers of rows in the form of products
_ENTRIES = 2**25  # candidates of all queries of a block
_MOST_QUERIES = 2**14


class Problem(ABC):
    """Queries and rows whose products bound distances.

    ``factors @ rows + base`` is a bound from below, but for half the slack of the query; the bound
    from above is higher by the spread of the row and by the slack.
    """

    n_rows: int
    width: int
    device: torch.device
    dtype: torch.dtype
    extra: float = 1.0
    """How many times the room is needed that exact values would."""
    more: int = 0
    """Rows that may share a value, beside."""

    @abstractmethod
    def queries(self, asked: Tensor) -> tuple[Tensor, Tensor | None]:
        """Factors (q, width) and slacks (q,) of some queries; None where there are none."""

    @abstractmethod
    def rows(self, some: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Rows (n, width) and base (n,) of rows at some positions."""

    spread: Tensor | None = None
    """Of all rows, (n_rows,); None where there is none."""

    @cached_property
    def stride(self) -> int:
        """One of so many rows is in the sample."""
        usual = min(_STRIDE, max(self.n_rows // _SMALLEST_SAMPLE, 1))
        return max(usual, -(-self.n_rows // _LARGEST_SAMPLE))

    @cached_property
    def sample(self) -> Tensor:
        """Rising positions, one of each stretch of rows: an order of rows does no harm."""
        chance = torch.Generator(self.device).manual_seed(0)
        n = self.n_rows // self.stride
        own = torch.randint(self.stride, (n,), generator=chance, device=self.device)
        return own + torch.arange(n, device=self.device) * self.stride

    @cached_property
    def sample_rows(self) -> tuple[Tensor, Tensor]:
        """The sample as products take it, with bounds from above."""
        rows, base = self.rows(self.sample)
        if self.spread is not None:
            base = base + self.spread[self.sample].to(base.dtype)
        return rows.to(base.dtype), base

    @cached_property
    def _only_block(self) -> tuple[Tensor, Tensor]:
        return self._padded(slice(0, self.n_rows))

    def _padded(self, some: slice) -> tuple[Tensor, Tensor]:
        rows, base = self.rows(some)
        return padded(rows), padded(base, torch.inf)

    def append(self, factors: Tensor, limits: Tensor, room: Room) -> None:
        """Put all rows below the limits into the room."""
        step = max(_BLOCK // self.width // TILE, 1) * TILE
        for start in range(0, self.n_rows, step):
            some = slice(start, min(start + step, self.n_rows))
            rows, base = self._only_block if self.n_rows <= step else self._padded(some)
            append(factors, rows, base, limits, room, start)

    def rank(self, k: int) -> int:
        """The place in the order of the sample that k rows should not reach: five deviations."""
        mean = k / self.stride
        return math.ceil(mean + 5 + (5 * math.sqrt(mean) if self.stride > 1 else 0))

    def capacity(self, k: int) -> int:
        """Room for what is below the limit, and for some that are no farther."""
        rank = self.rank(k)
        most = rank + 5 + (5 * math.sqrt(rank) if self.stride > 1 else 0)
        return min(math.ceil(self.extra * self.stride * most) + self.more + 64, self.n_rows)


@dataclass(frozen=True)
class Candidates:
    """What was found for some queries.

    Attributes
    ----------
    values : (q, c), bounds from below; infinite where there are fewer
    where : int64 (q, c), -1 where there are fewer
    slack : (q,), see :class:`Problem`; None where there is none
    enough : bool (q,), whether all that may be among the k nearest are here
    """

    values: Tensor
    where: Tensor
    slack: Tensor | None
    enough: Tensor


def blocks_of_queries(n_queries: int, capacity: int) -> list[slice]:
    """Queries whose candidates fit into memory together.

    Examples
    --------
    >>> blocks_of_queries(20_000, capacity=1000)
    [slice(0, 16384, None), slice(16384, 20000, None)]
    """
    step = max(min(_ENTRIES // capacity, _MOST_QUERIES) // TILE, 1) * TILE
    return [slice(at, min(at + step, n_queries)) for at in range(0, n_queries, step)]


def candidates(problem: Problem, asked: Tensor, k: int) -> Candidates:
    """Rows that may be among the k nearest of some queries, int64 (q,); k at most all rows.

    Examples
    --------
    >>> from densehash.gpu.hamming import _Codes
    >>> codes = torch.arange(200, dtype=torch.uint8)[:, None]
    >>> found = candidates(_Codes(codes[:1], codes), torch.tensor([0]), k=1)
    >>> bool(found.enough), sorted(found.where[0, :6].tolist())
    (True, [0, 1, 2, 4, 8, 16])
    """
    q, capacity = len(asked), problem.capacity(k)
    factors, slack = problem.queries(asked)
    highest = _limits(problem, factors, k)
    limits = highest if slack is None else highest + slack
    sizes = torch.full((len(padded(limits)),), capacity, device=problem.device)
    room = Room.of_sizes(sizes, problem.dtype)
    problem.append(padded(factors), padded(limits, -torch.inf), room)
    values = room.values.reshape(-1, capacity)[:q]
    where = room.where.reshape(-1, capacity)[:q]
    counts = room.counts[:q]
    enough = counts >= k
    if problem.spread is not None:
        highs = values + problem.spread[where]
        enough = (highs <= highest[:, None]).sum(1) >= k
    return Candidates(values, where, slack, enough & (counts <= capacity))


def _limits(problem: Problem, factors: Tensor, k: int) -> Tensor:
    """What k rows of each query should be below, and not many more."""
    rows, base = problem.sample_rows
    rank = problem.rank(k)
    if rank > len(rows):
        most = torch.finfo(base.dtype).max  # below what padding has
        return torch.full((len(factors),), most, dtype=base.dtype, device=problem.device)
    step = max(_SAMPLE_BLOCK // len(rows), 1)
    asked = factors.to(base.dtype)
    found = [
        # A third faster than `kthvalue`.
        torch.addmm(base, asked[at : at + step], rows.T).topk(rank, largest=False).values[:, -1]
        for at in range(0, len(asked), step)
    ]
    return torch.cat(found)
