"""Hamming search over codes on a GPU: distances are products of signs, computed on tensor cores.

A code of B bits becomes B numbers ±1, a query B numbers ∓1/2. Their product is exactly the distance
minus B/2. See :mod:`densehash.hamming` for what the functions promise.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from densehash.gpu.candidates import Problem, blocks_of_queries, candidates
from densehash.gpu.products import Room, count, padded, padded_width, sign_type

__all__ = ["histogram", "histogram_of_pairs", "top_k", "within"]

_POSITION_BITS = 48  # lowest bits of a key; the distance is above them
_LAST = torch.iinfo(torch.int64).max
_MANTISSA = 23  # bits of the mantissa of float32
_BLOCK = 2**24  # keys, or bytes of codes, in memory at once
_QUERIES = 2**12  # at once in `within`: a query's number, a distance and a position make one key


def top_k(queries: Tensor, codes: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """See :func:`densehash.hamming.top_k`; all tensors are on one device.

    Examples
    --------
    >>> codes = torch.tensor([[0b0000], [0b0111], [0b0001]], dtype=torch.uint8)
    >>> top_k(codes[:1], codes, k=2)
    (tensor([[0, 1]], dtype=torch.int32), tensor([[0, 2]]))
    """
    n_found = min(k, len(codes))
    distances = torch.full((len(queries), k), -1, dtype=torch.int32, device=codes.device)
    positions = torch.full((len(queries), k), -1, dtype=torch.int64, device=codes.device)
    if not n_found:
        return distances, positions
    problem = _Codes(queries, codes)
    for some in blocks_of_queries(len(queries), problem.capacity(n_found)):
        asked = torch.arange(some.start, some.stop, device=codes.device)
        found = candidates(problem, asked, n_found)
        keys = _keys(found.values, found.where).masked_fill_(found.where < 0, _LAST)
        best = keys.topk(n_found, largest=False).values
        if not bool(found.enough.all()):
            best[~found.enough] = _all_compared(problem, asked[~found.enough], n_found)
        distances[some, :n_found] = (best >> _POSITION_BITS).int()
        positions[some, :n_found] = best & ((1 << _POSITION_BITS) - 1)
    return distances, positions


def within(queries: Tensor, codes: Tensor, radius: int) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`densehash.hamming.within`; all tensors are on one device.

    Examples
    --------
    >>> codes = torch.tensor([[0b0000], [0b0111], [0b0001]], dtype=torch.uint8)
    >>> within(codes[:1], codes, radius=2)
    (tensor([0, 2]), tensor([0, 1], dtype=torch.int32), tensor([0, 2]))
    """
    sizes = torch.zeros(len(queries), dtype=torch.int64, device=codes.device)
    keys = [torch.empty(0, dtype=torch.int64, device=codes.device)]
    if len(codes):
        problem = _Codes(queries, codes, ties_by_position=False)
        for start in range(0, len(queries), _QUERIES):
            asked = torch.arange(start, min(start + _QUERIES, len(queries)), device=codes.device)
            each, own = _within(problem, asked, radius)
            sizes[asked] = each
            keys.append(own)
    limits = torch.zeros(len(queries) + 1, dtype=torch.int64, device=codes.device)
    torch.cumsum(sizes, 0, out=limits[1:])
    every = torch.cat(keys)
    return limits, (every >> _POSITION_BITS).int(), every & ((1 << _POSITION_BITS) - 1)


def histogram(queries: Tensor, codes: Tensor) -> Tensor:
    """See :func:`densehash.hamming.histogram`: int64 (q, 8 * width + 1).

    Examples
    --------
    >>> codes = torch.tensor([[0b0000], [0b0111], [0b0001]], dtype=torch.uint8)
    >>> histogram(codes[:1], codes)
    tensor([[1, 1, 0, 1, 0, 0, 0, 0, 0]])
    """
    shape = (len(queries), 8 * codes.shape[1] + 1)
    counts = torch.zeros(shape, dtype=torch.int64, device=codes.device)
    if not len(codes) or not len(queries):
        return counts
    problem = _Codes(queries, codes, ties_by_position=False)
    step = max(_BLOCK * 16 // problem.width, 1)
    for some in blocks_of_queries(len(queries), shape[1]):
        asked = torch.arange(some.start, some.stop, device=codes.device)
        factors, _ = problem.queries(asked)
        for start in range(0, len(codes), step):
            rows, _ = problem.rows(slice(start, start + step))
            of_block = torch.zeros((len(asked), shape[1]), dtype=torch.int32, device=codes.device)
            count(padded(factors), padded(rows), len(rows), problem.half, of_block)
            counts[some] += of_block
    return counts


def histogram_of_pairs(
    queries: Tensor, codes: Tensor, limits: NDArray[np.int64], positions: NDArray[np.int64]
) -> Tensor:
    """The same for some codes of each query: those at ``positions[limits[i] : limits[i + 1]]``.

    Examples
    --------
    >>> codes = torch.tensor([[0b0000], [0b0111], [0b0001]], dtype=torch.uint8)
    >>> histogram_of_pairs(codes[:1], codes, np.array([0, 1]), np.array([1]))
    tensor([[0, 0, 0, 1, 0, 0, 0, 0, 0]])
    """
    width = codes.shape[1]
    sizes = torch.from_numpy(limits).to(codes.device).diff()
    asked = torch.repeat_interleave(torch.arange(len(queries), device=codes.device), sizes)
    where = torch.from_numpy(positions).to(codes.device)
    bytes_ = torch.arange(256, device=codes.device)[:, None]
    n_ones = ((bytes_ >> torch.arange(8, device=codes.device)) & 1).sum(1)
    n_counts = 8 * width + 1
    counts = torch.zeros(len(queries) * n_counts, dtype=torch.int64, device=codes.device)
    step = _BLOCK // width
    for at in range(0, len(where), step):
        some = slice(at, at + step)
        distances = n_ones[(queries[asked[some]] ^ codes[where[some]]).int()].sum(1)
        places = asked[some] * n_counts + distances
        counts.index_add_(0, places, torch.ones_like(places))
    return counts.reshape(len(queries), n_counts)


class _Codes(Problem):
    """Codes as signs. A value is a distance plus, in the spare bits of float32, part of a position.

    So a limit also separates equal distances by position, and many equal codes do not fill the
    room.
    """

    dtype = torch.float32

    def __init__(self, queries: Tensor, codes: Tensor, *, ties_by_position: bool = True) -> None:
        self._queries, self._codes = queries, codes
        self.n_rows, self.device = len(codes), codes.device
        n_bits = 8 * codes.shape[1]
        self.half = n_bits / 2
        self.width = padded_width(n_bits)
        self._parts = 1 << (_MANTISSA - n_bits.bit_length()) if ties_by_position else 1
        self.more = -(-self.n_rows // self._parts)
        bits = torch.arange(8, device=self.device)
        bytes_ = torch.arange(256, device=self.device)[:, None]
        signs = (((bytes_ >> bits) & 1) * 2 - 1).float()
        self._signs, self._turned = (one.to(sign_type(self.device)) for one in (signs, -signs / 2))

    def queries(self, asked: Tensor) -> tuple[Tensor, None]:
        """Signs of codes, times -1/2."""
        return self._unpacked(self._queries[asked], self._turned), None

    def rows(self, some: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Signs of codes."""
        if isinstance(some, slice):
            some_rows = self._codes[some]
            where = torch.arange(some.start, some.start + len(some_rows), device=self.device)
        else:
            where, some_rows = some, self._codes[some]
        parts = where * self._parts // self.n_rows
        base = self.half + parts.float() / self._parts
        return self._unpacked(some_rows, self._signs), base

    def _unpacked(self, codes: Tensor, signs: Tensor) -> Tensor:
        # The eight signs of a byte are copied as one or two numbers of 64 bits.
        of_bytes = signs.view(torch.int64)
        found = torch.zeros((len(codes), self.width), dtype=signs.dtype, device=self.device)
        filled = of_bytes[codes.int()].reshape(len(codes), -1)
        found.view(torch.int64)[:, : filled.shape[1]] = filled
        return found


def _keys(values: Tensor, where: Tensor) -> Tensor:
    """Keys of distances and positions, whose order is that of answers."""
    return (values.clamp(max=2**15).long() << _POSITION_BITS) | where


def _all_compared(problem: _Codes, asked: Tensor, k: int) -> Tensor:
    """The k smallest keys of some queries, found by comparing all codes, in blocks."""
    found = []
    step = max(min(_BLOCK // 64, problem.n_rows), 2 * k)
    queries_step = max(_BLOCK // (step + k), 1)
    for at in range(0, len(asked), queries_step):
        factors = problem.queries(asked[at : at + queries_step])[0].float()
        best = torch.empty((len(factors), 0), dtype=torch.int64, device=problem.device)
        for start in range(0, problem.n_rows, step):
            rows, _ = problem.rows(slice(start, min(start + step, problem.n_rows)))
            where = torch.arange(start, start + len(rows), device=problem.device)
            keys = _keys(factors @ rows.float().T + problem.half, where)
            best = torch.cat([best, keys], dim=1)
            best = best.topk(min(k, best.shape[1]), largest=False).values
        found.append(best)
    return torch.cat(found)


def _within(problem: _Codes, asked: Tensor, radius: int) -> tuple[Tensor, Tensor]:
    """How many codes are within the radius of each query, int64 (q,), and their keys by query."""
    factors = padded(problem.queries(asked)[0])
    limits = torch.full((len(asked),), float(radius), device=problem.device)
    limits = padded(limits, -torch.inf)
    nothing = torch.zeros(len(limits), dtype=torch.int64, device=problem.device)
    room = Room.of_sizes(nothing, torch.float32)
    problem.append(factors, limits, room)
    sizes = room.counts.long()
    room = Room.of_sizes(sizes, torch.float32)
    problem.append(factors, limits, room)
    query = torch.repeat_interleave(torch.arange(len(limits), device=problem.device), sizes)
    bits = problem.n_rows.bit_length()
    distance_bits = (2 * int(problem.half)).bit_length()
    order = (query << (bits + distance_bits)) | (room.values.long() << bits) | room.where
    order = order.sort().values
    distances = (order >> bits) & ((1 << distance_bits) - 1)
    keys = (distances << _POSITION_BITS) | (order & ((1 << bits) - 1))
    return sizes[: len(asked)], keys
