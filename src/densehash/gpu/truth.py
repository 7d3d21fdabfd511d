"""Exact neighbours of rows on a GPU: see :mod:`densehash.truth` for what the functions promise.

Products in float16, summed in float32, give bounds of every distance. Rows that may be among the
nearest are then compared by the plain sum in float64. Queries for which float16 is too coarse are
tried again with products in float64, and the host answers those that are still left.
"""

from __future__ import annotations

import torch
from torch import Tensor

from densehash.gpu.candidates import Candidates, Problem, blocks_of_queries, candidates
from densehash.gpu.products import has_kernels, padded_width

__all__ = ["nearest", "plain_sums", "squared_lengths"]

_BLOCK = 2**25  # float64 numbers in memory at once
_LONGEST = 2.0**13  # length of rows and queries in float16, whose largest number is below 2 ** 16
_QUERY = 2.0**7  # length of queries for metrics that ignore it
_LARGE = 1e100  # limit of squared lengths


def nearest(
    queries: Tensor, X: Tensor, m: int, metric: str, *, ordered: bool
) -> tuple[Tensor, Tensor]:
    """The m nearest rows of each query, and the queries that the host must answer.

    Parameters
    ----------
    queries, X : real tensors (q, d) and (n, d) on one device, finite
    m : from 1 to n
    metric, ordered : as in :func:`densehash.truth.nearest`

    Returns
    -------
    positions : int64 (q, m)
    left : int64, the queries whose positions are unknown; all queries if products of lengths could
        vanish or overflow in float64

    Examples
    --------
    >>> X = torch.tensor([[0.0], [5.0], [1.0], [9.0], [3.0]])
    >>> nearest(torch.tensor([[2.0]]), X, 2, "l2", ordered=False)
    (tensor([[2, 4]]), tensor([], dtype=torch.int64))
    """
    positions = torch.empty((len(queries), m), dtype=torch.int64, device=X.device)
    left = torch.arange(len(queries), device=X.device)
    squares = torch.cat([squared_lengths(X), squared_lengths(queries)])
    least = float(squares.min()) if metric == "cosine" else 1.0
    if least < 1 / _LARGE or float(squares.max()) > _LARGE:
        return positions, left
    for dtype in (torch.float16, torch.float64):
        if not len(left):
            break
        problem = _Vectors(queries, X, metric, dtype)
        again = []
        for some in blocks_of_queries(len(left), problem.capacity(m)):
            asked = left[some]
            found = candidates(problem, asked, m)
            where = _may_be_nearest(found, problem, m)
            if ordered or where.shape[1] > m:
                sums = plain_sums(X, queries[asked].double(), where, metric)
                where = where.gather(1, sums.sort(dim=1, stable=True).indices[:, :m])
            positions[asked] = where if ordered else where.sort(dim=1).values
            again.append(asked[~found.enough])
        left = torch.cat(again)
        del problem
    return positions, left


def squared_lengths(X: Tensor) -> Tensor:
    """Squared lengths of rows, float64 (n,); not finite if the row is not.

    Examples
    --------
    >>> squared_lengths(torch.tensor([[3, 4]]))
    tensor([25.], dtype=torch.float64)
    """
    if X.is_floating_point():
        return torch.linalg.vector_norm(X, dim=1, dtype=torch.float64).square_()
    return torch.cat([part.double().square_().sum(1) for part in X.split(_rows_at_once(X))])


def plain_sums(X: Tensor, queries: Tensor, where: Tensor, metric: str) -> Tensor:
    """The number that decides the order of rows, for some rows of each query.

    Parameters
    ----------
    X : real (n, d)
    queries : float64 (q, d)
    where : int64 (q, m), positions of rows; -1 for a missing row
    metric : "l2", "cosine" or "ip"

    Returns
    -------
    float64 (q, m), infinite for a missing row

    Examples
    --------
    >>> X = torch.tensor([[0.0], [5.0]])
    >>> plain_sums(X, torch.tensor([[2.0]]).double(), torch.tensor([[1, -1]]), "l2")
    tensor([[9., inf]], dtype=torch.float64)
    """
    if has_kernels(X.device):
        from densehash.gpu import kernels  # noqa: PLC0415

        return kernels.plain_sums(X, queries, where, metric)
    sums = torch.empty(where.shape, dtype=torch.float64, device=X.device)
    step = max(_BLOCK // max(where.shape[1] * X.shape[1], 1), 1)
    for at in range(0, len(where), step):
        some = slice(at, at + step)
        rows, asked = X[where[some].clamp(min=0)].double(), queries[some, None]
        if metric == "l2":
            sums[some] = (rows - asked).square_().sum(2)
            continue
        sums[some] = -(rows * asked).sum(2)
        if metric == "cosine":
            sums[some] *= sums[some].abs() / rows.square_().sum(2)
    return sums.masked_fill_(where < 0, torch.inf)


def _may_be_nearest(found: Candidates, problem: _Vectors, m: int) -> Tensor:
    """Ascending positions (q, c) of candidates that may be among the m nearest, then -1."""
    highs = found.values + problem.spread[found.where]
    limits = highs.kthvalue(m, dim=1).values + found.slack
    beyond = found.values > limits[:, None]
    most = max(int((~beyond).sum(1).max()), m)
    where = found.where.masked_fill(beyond | (found.where < 0), problem.n_rows)
    # Rows beyond the limit have the largest number, so the `most` smallest include all others.
    where = where.topk(most, dim=1, largest=False).values if most < where.shape[1] else where
    where = where.sort(dim=1).values
    return where.masked_fill_(where == problem.n_rows, -1)


def _rows_at_once(X: Tensor) -> int:
    return max(_BLOCK // int(X.shape[1]), 1)


class _Vectors(Problem):
    """Vectors as products take them, with bounds of the errors of these products.

    If vectors are rounded to float16 and products summed in float32, the error is at most
    (2⁻¹⁰ + (d + 32) 2⁻²²) |q| |x|, and a little more if numbers are below the smallest normal one.
    In float64 it is at most (d + 32) 2⁻⁵¹ |q| |x|. The bounds here are larger than that.
    """

    spread: Tensor

    def __init__(self, queries: Tensor, X: Tensor, metric: str, dtype: torch.dtype) -> None:
        self._X, self._metric, self._type = X, metric, dtype
        self.n_rows, self.device = len(X), X.device
        d = X.shape[1]
        small = dtype == torch.float16
        self.dtype = torch.float32 if small else torch.float64
        self.width = padded_width(d) if small else d
        self.extra = 2.0 if small else 1.0
        unit = 1.01 * 2**-10 + (d + 32) * 2**-22 if small else (d + 32) * 2**-51
        vanished = 1.01 * d**0.5 * 2**-25 if small else 0.0
        asked = queries.double()
        if metric == "l2":  # relative to the mean, vectors are shorter and errors smaller
            self._center = _mean(X)
            asked = asked - self._center
        else:
            asked = asked * (_QUERY / asked.norm(dim=1, keepdim=True).clamp(min=1e-200))
        parts = X.split(_rows_at_once(X))
        lengths = torch.cat([self._moved(part).norm(dim=1) for part in parts])
        of_queries = asked.norm(dim=1)
        if metric == "cosine":
            self._scale = _LONGEST / lengths
            lengths = torch.full_like(lengths, _LONGEST)
        else:
            longest = lengths.max()
            if metric == "l2":
                longest = torch.maximum(longest, of_queries.max())
            # A power of two, so that scaling rounds nothing.
            scale = torch.exp2(-torch.frexp(longest)[1].double()) * _LONGEST
            scale = torch.where(longest > 0, scale, 1.0)
            self._scale = scale.expand(len(X))
            lengths *= scale
        if metric == "l2":  # |x|² − 2 ⟨q, x⟩, and 2 |q| |x| is at most |q|² + |x|²
            asked, of_queries = asked * scale, of_queries * scale
            errors = unit * lengths.square() + 2 * vanished * lengths
            moved = 2**-51 * (lengths.max() + scale * self._center.norm())  # rounding of the mean
            slack = unit * of_queries.square() + 2 * vanished * (of_queries + 1)
            slack += 8 * moved * (lengths.max() + of_queries + moved)
            self._factors, base = -2 * asked, lengths.square() - errors
        else:
            errors = unit * lengths * _QUERY + vanished * (lengths + _QUERY + 1)
            slack = torch.zeros_like(of_queries)
            self._factors, base = -asked, -errors
        self._base, self._slack = base.to(self.dtype), (2 * slack).to(self.dtype)
        self.spread = (2 * errors).to(self.dtype)

    def queries(self, asked: Tensor) -> tuple[Tensor, Tensor]:
        """Queries times -2 for distances, times -1 for products."""
        return self._widened(self._factors[asked]), self._slack[asked]

    def rows(self, some: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Rows; for distances, minus their mean."""
        rows, scale = self._X[some], self._scale[some]
        found = torch.zeros((len(rows), self.width), dtype=self._type, device=self.device)
        step = _rows_at_once(rows)
        for at in range(0, len(rows), step):
            part = slice(at, at + step)
            moved = self._moved(rows[part]) * scale[part, None]
            found[part, : rows.shape[1]] = moved
        return found, self._base[some]

    def _moved(self, rows: Tensor) -> Tensor:
        return rows.double() - self._center if self._metric == "l2" else rows.double()

    def _widened(self, rows: Tensor) -> Tensor:
        found = torch.zeros((len(rows), self.width), dtype=self._type, device=self.device)
        found[:, : rows.shape[1]] = rows
        return found


def _mean(X: Tensor) -> Tensor:
    if X.is_floating_point():
        return X.mean(0, dtype=torch.float64)
    sums = [part.double().sum(0) for part in X.split(_rows_at_once(X))]
    return torch.stack(sums).sum(0) / len(X)
