"""Finds all rows that may be among the nearest of a query, and not many others.

A sample of rows gives each query a limit that more than k rows should be below. One pass over all
products keeps what is below the limit. If it keeps fewer than k rows, or more than there is room
for, ``enough`` is False for the query, and the caller must answer it in another way.
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

_STRIDE = 32  # one of this many rows is in the sample
_SMALLEST_SAMPLE = 2**12
_LARGEST_SAMPLE = 2**18
_SAMPLE_BLOCK = 2**27  # products of queries with the sample, at once
_BLOCK = 2**29  # numbers of rows, as products take them, at once
_ENTRIES = 2**25  # candidates of all queries in a block
_MOST_QUERIES = 2**14


class Problem(ABC):
    """Queries and rows whose products bound distances.

    ``factors @ rows + base``, minus half the slack of the query, is a lower bound. The upper bound
    is higher by the spread of the row and the slack of the query.
    """

    n_rows: int
    width: int
    device: torch.device
    dtype: torch.dtype
    extra: float = 1.0
    """How many times as much room as for exact values is needed."""
    more: int = 0
    """Additional room, for rows that may have the same value."""

    @abstractmethod
    def queries(self, asked: Tensor) -> tuple[Tensor, Tensor | None]:
        """Factors (q, width) and slacks (q,) of some queries; slacks may be None."""

    @abstractmethod
    def rows(self, some: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Rows (n, width) and base (n,) of rows at some positions."""

    spread: Tensor | None = None
    """The spread of all rows, (n_rows,); None if it is zero."""

    @cached_property
    def stride(self) -> int:
        """One of this many rows is in the sample."""
        usual = min(_STRIDE, max(self.n_rows // _SMALLEST_SAMPLE, 1))
        return max(usual, -(-self.n_rows // _LARGEST_SAMPLE))

    @cached_property
    def sample(self) -> Tensor:
        """Ascending positions, one at random in each stretch of rows, in case rows are sorted."""
        chance = torch.Generator(self.device).manual_seed(0)
        n = self.n_rows // self.stride
        own = torch.randint(self.stride, (n,), generator=chance, device=self.device)
        return own + torch.arange(n, device=self.device) * self.stride

    @cached_property
    def sample_rows(self) -> tuple[Tensor, Tensor]:
        """The sample as products take it, with upper bounds."""
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
        """Put all rows below the limits into ``room``."""
        step = max(_BLOCK // self.width // TILE, 1) * TILE
        for start in range(0, self.n_rows, step):
            some = slice(start, min(start + step, self.n_rows))
            rows, base = self._only_block if self.n_rows <= step else self._padded(some)
            append(factors, rows, base, limits, room, start)

    def rank(self, k: int) -> int:
        """The rank in the sample that is almost surely beyond the k nearest: five deviations."""
        mean = k / self.stride
        return math.ceil(mean + 5 + (5 * math.sqrt(mean) if self.stride > 1 else 0))

    def capacity(self, k: int) -> int:
        """Room for the rows below the limit, almost surely enough, and for equal ones."""
        rank = self.rank(k)
        most = rank + 5 + (5 * math.sqrt(rank) if self.stride > 1 else 0)
        return min(math.ceil(self.extra * self.stride * most) + self.more + 64, self.n_rows)


@dataclass(frozen=True)
class Candidates:
    """What was found for some queries.

    Attributes
    ----------
    values : (q, c), lower bounds; infinite for missing candidates
    where : int64 (q, c), positions; -1 for missing candidates
    slack : (q,), see :class:`Problem`; may be None
    enough : bool (q,), whether these are all rows that may be among the k nearest
    """

    values: Tensor
    where: Tensor
    slack: Tensor | None
    enough: Tensor


def blocks_of_queries(n_queries: int, capacity: int) -> list[slice]:
    """Divide queries into blocks whose candidates fit into memory.

    Examples
    --------
    >>> blocks_of_queries(20_000, capacity=1000)
    [slice(0, 16384, None), slice(16384, 20000, None)]
    """
    step = max(min(_ENTRIES // capacity, _MOST_QUERIES) // TILE, 1) * TILE
    return [slice(at, min(at + step, n_queries)) for at in range(0, n_queries, step)]


def candidates(problem: Problem, asked: Tensor, k: int) -> Candidates:
    """Rows that may be among the k nearest of the queries at ``asked``, int64 (q,); k <= n_rows.

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
    """For each query a limit that k rows, and not many more, should be below."""
    rows, base = problem.sample_rows
    rank = problem.rank(k)
    if rank > len(rows):
        most = torch.finfo(base.dtype).max  # all rows are below it, but padding is not
        return torch.full((len(factors),), most, dtype=base.dtype, device=problem.device)
    step = max(_SAMPLE_BLOCK // len(rows), 1)
    asked = factors.to(base.dtype)
    found = [
        # A third faster than `kthvalue`.
        torch.addmm(base, asked[at : at + step], rows.T).topk(rank, largest=False).values[:, -1]
        for at in range(0, len(asked), step)
    ]
    return torch.cat(found)
