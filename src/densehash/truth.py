"""Exact neighbours: the truth that codes are measured against.

Rows are read in blocks. For each block, one matrix product, in float32 if that tells most rows
apart, gives a lower and an upper bound of every distance, which allow for the largest error of such
a product. If the bounds leave a row in doubt, it is compared by the plain sum in float64. So every
answer is that of the plain sum, with ties by position, for any number of threads.

==========  =================================================================================
metric      the plain sum; the smallest is the nearest
==========  =================================================================================
``l2``      the sum of ``(x - q)²``: exact for integers of up to 16 bits
``ip``      minus the sum of ``x q``: exact for the same integers
``cosine``  ``-p |p| / s``, p the sum of ``x q`` and s that of ``x²``: ordered as cosines are, and
            for integers of up to 8 bits equal where cosines are (in up to 1,400 features)
==========  =================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from densehash.checks import VectorsLike, check_choice, check_integer, check_vectors
from densehash.choices import MetricName
from densehash.errors import InputError
from densehash.mapped import unmapped
from densehash.parallel import map_in_order, n_threads, one_blas_thread
from densehash.progress import bar
from densehash.rows.tensors import check_tensor
from densehash.source import Source
from densehash.tensors import as_tensor, common_device, memory_named

__all__ = ["METRICS", "nearest"]

METRICS: tuple[MetricName, ...] = ("l2", "cosine", "ip")
"""What nearest means: least Euclidean distance, least angle, or largest inner product."""

Floats = NDArray[np.floating]
Positions = NDArray[np.integer]
Prepared = TypeVar("Prepared")

_BLOCK = 2**22  # numbers in a block of rows: 32 MiB of float64
_MOST_BLOCK_ROWS = 2**16
_CHUNK = 2**21  # distances that a thread holds
_PLAIN = 2**20  # numbers of rows that a thread compares by plain sums, at once
_ROOM = 2**20  # candidates of all queries together, besides twice their neighbours
_LONGEST = 1e150  # squared distances of longer rows could overflow
_LONGEST_SINGLE = 1e18  # the same in float32


def nearest(
    queries: VectorsLike,
    X: VectorsLike,
    *,
    fraction: float | None = None,
    k: int | None = None,
    metric: MetricName = "l2",
    ordered: bool = False,
    verbose: bool = False,
) -> NDArray[np.int64]:
    """Find the m nearest rows of every query: m = k, or a fraction of all rows.

    Rows at equal distance are ordered by position. Besides the result, this takes three times the
    memory of the result (five times, if float32 is not enough) and some 200 MiB, however many rows
    there are. Blocks of ``X`` are read once; blocks that hold rows in doubt are read twice.

    Parameters
    ----------
    queries : real array (q, d), finite
    X : real array (n, d), a memory map of one, or a file that
        :func:`densehash.datasets.open_vectors` opened; finite
    fraction : above 0, at most 1; m is ``max(1, round(fraction * n))``
    k : from 1 to n; m is k. Exactly one of ``fraction`` and ``k`` is given.
    metric : "l2" (default), "cosine", or "ip": the row with the largest inner product is the
        nearest. With "cosine", a row or a query that is all zero is an error.
    ordered : if True, the nearest come first, equally near ones by position; if False (default),
        all are sorted by position
    verbose : whether a search that takes long shows a bar

    Returns
    -------
    positions : int64 (q, m), positions in ``X``; rising, unless ``ordered``

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [5.0], [1.0], [9.0], [3.0]])
    >>> nearest([[2.0], [8.0]], X, k=2)
    array([[2, 4],
           [1, 3]])
    >>> nearest([[2.0]], X, fraction=0.6)
    array([[0, 2, 4]])
    >>> nearest([[2.0], [8.0]], X, k=2, ordered=True)
    array([[2, 4],
           [3, 1]])
    >>> nearest([[2.0]], X, k=2, metric="ip")
    array([[1, 3]])
    """
    device = common_device(queries=queries, X=X)
    on_gpu = device is not None and device.type == "cuda"
    check = check_tensor if on_gpu else check_vectors
    rows, asked = check(X, "X"), check(queries, "queries")
    if asked.shape[1] != rows.shape[1]:
        raise InputError(f"queries have {asked.shape[1]} features but X has {rows.shape[1]}")
    check_choice(metric, "metric", METRICS)
    m = _how_many(len(rows), fraction, k)
    if on_gpu:
        found: Any = _nearest_on_gpu(asked, rows, m, metric, ordered=ordered, verbose=verbose)
    else:
        search = _Search(unmapped(rows), asked, m, metric, verbose=verbose)
        found = as_tensor(search.nearest(ordered=ordered), device)
    positions: NDArray[np.int64] = found
    return positions


@memory_named()
def _nearest_on_gpu(
    queries: Any, X: Any, m: int, metric: MetricName, *, ordered: bool, verbose: bool
) -> Any:
    """The same for tensors on a GPU; the host answers queries for which float64 is not enough."""
    from densehash.gpu import truth as on_gpu  # noqa: PLC0415  imports torch

    for tensor, name in ((X, "X"), (queries, "queries")):
        squares = on_gpu.squared_lengths(tensor)
        good = squares < _LONGEST**2  # which NaN is not, either
        if not bool(good.all()):
            row = int(good.byte().argmin())
            _refuse_length(name, float(squares[row].sqrt()), row)
    positions, left = on_gpu.nearest(queries, X, m, metric, ordered=ordered)
    if len(left):
        asked: Any = queries[left].cpu()
        found: Any = nearest(asked, X.cpu(), k=m, metric=metric, ordered=ordered, verbose=verbose)
        positions[left] = found.to(X.device)
    return positions


@dataclass(frozen=True)
class _Block:
    """Rows, and what is needed for bounds of their distances to a query's factors.

    ``low`` is ``factors @ rows + base`` minus the query's error, and ``high`` is above ``low`` by
    twice the errors of both. If the product is exact, the errors are zero.
    """

    start: int
    rows: Floats  # (b, d)
    base: Floats  # (b,)
    errors: Floats  # (b,)
    exact: bool


@dataclass(frozen=True)
class _Decision:
    """Rows that are surely among the nearest of a query, and rows in doubt, of which some are."""

    sure: Positions
    doubtful: Positions
    values: Floats  # plain sums of those in doubt, if known; filled in later
    known: bool


class _Candidates:
    """The rows that may be among the m nearest of a query, in order of position."""

    def __init__(self, m: int, room: int, dtype: type[np.floating], n_rows: int) -> None:
        self._m = m
        self._n = 0
        self._low, self._high = np.empty(room, dtype), np.empty(room, dtype)
        self._where: Positions = np.empty(room, np.int32 if n_rows < 2**31 else np.int64)
        self.limit: np.floating = dtype(np.inf)  # rows surely beyond it are not among the nearest

    def add(
        self, low: Floats, high: Floats, where: Positions, measure: Callable[[Positions], Floats]
    ) -> None:
        """Add more rows; if there is no room, drop those that cannot be among the nearest."""
        if self._n + len(low) > len(self._low):
            low, high, where = (
                np.concatenate(pair) for pair in zip(self.all(), (low, high, where), strict=True)
            )
            self.limit = np.partition(high, self._m - 1)[self._m - 1]
            kept = low <= self.limit
            if np.count_nonzero(kept) > len(self._low):
                kept, doubtful = _decide(low, high, self._m)
                exact = low[doubtful]
                if (exact < high[doubtful]).any():
                    exact = measure(where[doubtful])
                kept[doubtful[_first(exact, self._m - int(kept.sum()))]] = True
            low, high, where = low[kept], high[kept], where[kept]
            self._n = 0
        some = slice(self._n, self._n + len(low))
        self._low[some], self._high[some], self._where[some] = low, high, where
        self._n = some.stop

    def all(self) -> tuple[Floats, Floats, Positions]:
        """Lower bounds, upper bounds, and positions."""
        return self._low[: self._n], self._high[: self._n], self._where[: self._n]


class _Search:
    """The queries, and the rows that may be among the nearest of each."""

    def __init__(
        self,
        rows: NDArray[np.generic] | Source,
        asked: NDArray[np.generic],
        m: int,
        metric: str,
        *,
        verbose: bool,
    ) -> None:
        self._rows, self._m, self._metric, self._verbose = rows, m, metric, verbose
        self._queries, squares = _read(asked, "queries", slice(0, len(asked)), metric)
        self._longest = float(np.sqrt(squares.max()))
        if metric == "ip":  # the order does not depend on the length, and powers of two are exact
            self._queries = _below_one(self._queries)
            lengths = np.sqrt(np.square(self._queries).sum(axis=1))
            self._queries *= np.ldexp(1.0, -np.frexp(lengths)[1])[:, np.newaxis]
        whole_numbers = {rows.dtype.kind, asked.dtype.kind} <= set("biu")
        self._may_be_exact = whole_numbers and metric != "cosine"
        self._step = max(1, min(_BLOCK // rows.shape[1], _MOST_BLOCK_ROWS))
        self._threads = n_threads()
        self._chunks = _chunks(len(asked), min(self._step, len(rows)), self._threads)
        self._dtype = self._float_type()
        factors, errors = self._query_terms(self._dtype)
        self._factors, self._errors = factors.astype(self._dtype), errors.astype(self._dtype)
        room = 2 * m + max(64, _ROOM // len(asked))
        self._candidates = [_Candidates(m, room, self._dtype, len(rows)) for _ in self._queries]

    def nearest(self, *, ordered: bool) -> NDArray[np.int64]:
        """The m nearest rows of each query, ordered by distance or by position."""
        starts = range(0, len(self._rows), self._step)
        self._visit(starts, self._bound, self._collect, "finding neighbours")
        decisions = [self._decide(self._candidates.pop(0), ordered) for _ in self._queries]
        self._measure_all(decisions)
        found = np.empty((len(self._queries), self._m), np.int64)
        for row, decision in zip(found, decisions, strict=True):
            first = _first(decision.values, self._m - len(decision.sure))
            row[:] = np.concatenate([decision.sure, decision.doubtful[first]])
        if not ordered:
            found.sort(axis=1)
        return found

    def _decide(self, candidates: _Candidates, ordered: bool) -> _Decision:
        low, high, where = candidates.all()
        sure, doubtful = _decide(low, high, self._m)
        if ordered:  # sure ones have to be compared, too
            sure[doubtful] = True
            sure, doubtful = np.zeros_like(sure), np.flatnonzero(sure)
        low, high = low[doubtful].astype(np.float64), high[doubtful]
        only_way = not ordered and np.count_nonzero(sure) + len(doubtful) == self._m
        known = only_way or bool((low == high).all())
        return _Decision(where[sure], where[doubtful], low, known)

    def _visit(
        self,
        starts: Sequence[int],
        prepare: Callable[[int], Prepared],
        work: Callable[[Prepared, slice], None],
        label: str,
    ) -> None:
        """Call ``work`` with every block and every chunk of queries, by several threads.

        A chunk sees one block after another, because ``map_in_order`` works on at most as many
        items as there are chunks. Meanwhile the next block is read.
        """

        def items() -> Iterator[tuple[Prepared, slice]]:
            for start in starts:
                block = prepare(start)
                for chunk in self._chunks:
                    yield block, chunk
                del block  # before the next one is read

        sizes = [min(self._step, len(self._rows) - start) for start in starts]
        work_done = map_in_order(lambda item: work(*item), items(), self._threads)
        with (
            one_blas_thread(),
            bar(label, sum(sizes), shown=self._verbose) as advance,
            closing(work_done) as answers,
        ):
            for size in sizes:
                for _ in self._chunks:
                    next(answers)
                advance(size)

    def _float_type(self) -> type[np.floating]:
        """float32, if its products tell nearly all rows of the first block apart."""
        block, squares = _read(self._rows, "X", slice(0, self._step), self._metric)
        if self._is_exact(squares, np.float32):
            return np.float32
        epsilon = np.finfo(np.float32).eps
        if self._longest > _LONGEST_SINGLE or self._queries.shape[1] * epsilon > 0.01:
            return np.float64
        some = np.linspace(0, len(block) - 1, min(len(block), 256)).astype(int)
        few = np.linspace(0, len(self._queries) - 1, min(len(self._queries), 64)).astype(int)
        factors, errors = self._query_terms(np.float32)
        rows, base, row_errors = self._row_terms(block[some], squares[some], np.float32)
        distances = factors[few] @ rows.T + base
        spreads = np.subtract(*np.percentile(distances, [75, 25], axis=1))
        tells = 100 * (np.median(errors) + np.median(row_errors)) <= np.median(spreads)
        return np.float32 if tells else np.float64

    def _is_exact(self, squares: Floats, dtype: type[np.floating]) -> bool:
        """Whether sums of products with rows of these squared lengths are whole and not rounded."""
        most = (self._longest + np.sqrt(squares.max())) ** 2
        return self._may_be_exact and bool(most <= 2.0 ** (np.finfo(dtype).nmant + 1))

    # A product of two vectors of length d is wrong by (d + 3) u |q| |x| at most, in any order of
    # its sums, if u is half the epsilon of the type and the vectors were rounded to it. A few more
    # roundings follow, and those of the plain sum are far smaller. The bounds here are twice that.

    def _query_terms(self, dtype: type[np.floating]) -> tuple[Floats, Floats]:
        """Factors (q, d), and errors (q,)."""
        if self._metric == "l2":
            return -2 * self._queries, self._unit(dtype) * np.square(self._queries).sum(axis=1)
        if self._metric == "cosine":
            lengths = np.sqrt(np.square(self._queries).sum(axis=1, keepdims=True))
            return -self._queries / lengths, np.zeros(len(self._queries))
        return -self._queries, np.zeros(len(self._queries))

    def _row_terms(
        self, block: Floats, squares: Floats, dtype: type[np.floating]
    ) -> tuple[Floats, Floats, Floats]:
        """Rows (b, d), base (b,) and errors (b,), see :class:`_Block`; still in float64."""
        unit, nothing = self._unit(dtype), np.finfo(dtype).tiny * (2 * block.shape[1] + 16)
        if self._metric == "l2":  # |x - q|² less |q|²; and 2 |q| |x| is at most |q|² + |x|²
            errors = unit * squares + nothing
            return block, squares - errors, errors
        if self._metric == "cosine":
            errors = np.full(len(block), unit + nothing)
            return block / np.sqrt(squares)[:, np.newaxis], -errors, errors
        errors = unit * np.sqrt(squares) + nothing  # queries are shorter than one
        return block, -errors, errors

    def _unit(self, dtype: type[np.floating]) -> float:
        return float((self._queries.shape[1] + 16) * np.finfo(dtype).eps)

    def _bound(self, start: int) -> _Block:
        block, squares = _read(self._rows, "X", slice(start, start + self._step), self._metric)
        exact = self._is_exact(squares, self._dtype)
        rows, base, errors = self._row_terms(block, squares, self._dtype)
        if exact:
            base = squares if self._metric == "l2" else np.zeros(len(block))
            errors = np.zeros(len(block))
        too_long = squares > _LONGEST_SINGLE**2
        if self._dtype == np.float32 and too_long.any():  # the plain sum decides for these
            rows[too_long], base[too_long], errors[too_long] = 0, -1e38, np.inf
        rows, base, errors = (part.astype(self._dtype) for part in (rows, base, errors))
        return _Block(start, rows, base, errors, exact)

    def _collect(self, block: _Block, chunk: slice) -> None:
        """Add rows of a block to the candidates of some queries."""
        low = self._factors[chunk] @ block.rows.T
        low += block.base
        if not block.exact and self._metric == "l2":
            low -= self._errors[chunk, np.newaxis]
        for query, of_query in enumerate(low, chunk.start):
            candidates = self._candidates[query]
            # Not those at the limit: m earlier rows are as near.
            hits = np.flatnonzero(of_query < candidates.limit)
            if hits.size == 0:
                continue
            found = high = of_query[hits]
            if not block.exact:
                high = found + 2 * (block.errors[hits] + self._errors[query])
            measure = partial(self._measure, query)
            candidates.add(found, high, hits + block.start, measure)

    def _measure(self, query: int, positions: Positions) -> Floats:
        """The plain sums of some rows."""
        return _plain(self._rows, positions, self._queries[query], self._metric)

    def _measure_all(self, decisions: list[_Decision]) -> None:
        """Set the unknown values, in one pass over the blocks that hold such rows."""
        edges = np.arange(0, len(self._rows) + self._step, self._step)
        limits = np.array(
            [
                np.searchsorted(each.doubtful[: 0 if each.known else None], edges)
                for each in decisions
            ]
        )
        starts = edges[:-1][np.diff(limits, axis=1).any(axis=0)].tolist()

        def read(start: int) -> tuple[int, NDArray[np.generic]]:
            return start, self._rows[start : start + self._step]

        def measure(block: tuple[int, NDArray[np.generic]], chunk: slice) -> None:
            start, rows = block
            first, last = limits[:, start // self._step], limits[:, start // self._step + 1]
            for query in np.flatnonzero(first[chunk] < last[chunk]) + chunk.start:
                some, each = slice(first[query], last[query]), decisions[query]
                own = each.doubtful[some] - start
                each.values[some] = _plain(rows, own, self._queries[query], self._metric)

        if starts:
            self._visit(starts, read, measure, "comparing rows in doubt")


def _chunks(n_queries: int, n_rows: int, threads: int) -> list[slice]:
    """Chunks of queries, one product each: at least two for each thread, even if some are empty."""
    n_chunks = max(2 * threads, -(-n_queries * n_rows // _CHUNK))
    limits = [n_queries * i // n_chunks for i in range(n_chunks + 1)]
    return [slice(*pair) for pair in pairwise(limits)]


def _decide(low: Floats, high: Floats, m: int) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """A mask of those that are surely among the m nearest, and the places of those in doubt."""
    if len(low) <= m:
        return np.ones(len(low), np.bool_), np.empty(0, np.intp)
    # At most m have a lower bound up to the upper bound of each of these.
    sure = high < np.partition(low, m)[m]
    # These are not beyond the m-th smallest upper bound.
    maybe = low <= np.partition(high, m - 1)[m - 1]
    return sure, np.flatnonzero(maybe & ~sure)


def _first(values: Floats, n: int) -> NDArray[np.intp]:
    """Places of the n least, in order."""
    return np.argsort(values, kind="stable")[:n]


def _plain(
    rows: NDArray[np.generic] | Source, positions: Positions, query: Floats, metric: str
) -> Floats:
    """The number that decides the order of rows, for some rows."""
    found = np.empty(len(positions))
    step = max(1, _PLAIN // rows.shape[1])
    for start in range(0, len(positions), step):
        some = slice(start, start + step)
        found[some] = _sums(rows[positions[some]], query, metric)
    return found


def _sums(rows: NDArray[np.generic], query: Floats, metric: str) -> Floats:
    block: Floats = np.ascontiguousarray(rows, dtype=np.float64)  # sums depend on the layout
    if metric == "cosine":
        block = _below_one(block)
    terms = np.square(block - query) if metric == "l2" else block * -query
    sums: Floats = terms.sum(axis=1)
    return sums if metric != "cosine" else sums * np.abs(sums) / np.square(block).sum(axis=1)


def _read(
    rows: NDArray[np.generic] | Source, name: str, some: slice, metric: str
) -> tuple[Floats, Floats]:
    """Some rows in float64, and their squared lengths; for cosine, both scaled to about one."""
    with np.errstate(over="ignore", invalid="ignore"):
        block: Floats = np.array(rows[some], dtype=np.float64, order="C")
        squares: Floats = np.einsum("ij,ij->i", block, block)
    good = squares < _LONGEST**2  # which NaN is not, either
    if not good.all():
        row = int(np.argmin(good))
        _refuse_length(name, float(np.sqrt(squares[row])), some.start + row)
    if metric != "cosine":
        return block, squares
    zero = ~block.any(axis=1)
    if zero.any():
        raise InputError(
            f"{name} must hold no zero rows for the cosine, "
            f"got one in row {some.start + int(np.argmax(zero))}"
        )
    block = _below_one(block)
    return block, np.einsum("ij,ij->i", block, block)


def _refuse_length(name: str, length: float, row: int) -> NoReturn:
    raise InputError(
        f"{name} must hold finite rows shorter than {_LONGEST:g}, got length {length} in row {row}"
    )


def _below_one(block: Floats) -> Floats:
    """Rows times powers of two, which round nothing, so that squares do not vanish or overflow.

    The largest number of a row is then below 1, and at least 1 / 2 unless it was tiny.
    """
    exponents = np.frexp(np.abs(block).max(axis=1))[1]
    scaled: Floats = block * np.ldexp(1.0, np.minimum(-exponents, 1000))[:, np.newaxis]
    return scaled


def _how_many(n: int, fraction: float | None, k: int | None) -> int:
    if (fraction is None) == (k is None):
        raise InputError(f"give one of fraction and k, got fraction={fraction!r} and k={k!r}")
    if k is not None:
        return check_integer(k, "k", 1, n)
    return max(1, round(_check_fraction(fraction) * n))


def _check_fraction(value: object) -> float:
    # Python counts bool as an int, but here it is probably a mistake.
    if isinstance(value, (int, float, np.floating)) and not isinstance(value, bool):
        share = float(value)
        if 0 < share <= 1:
            return share
    raise InputError(f"fraction must be a number above 0 and at most 1, got {value!r}")
