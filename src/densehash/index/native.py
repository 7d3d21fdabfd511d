"""The inner loops of the index: visiting groups and re-ranking, in native code.

Rows are ordered by group; the *position* of a row is its place in this order. Its *rank* is its
place in the order of ids, by which ties are broken. All functions release the GIL, give the same
bytes for any number of threads, and stop soon after Ctrl-C. Even with arrays from a damaged file,
they never read outside their arrays: if they meet an impossible number, they raise
:class:`~densehash.errors.FileError`. They take queries in an order that suits the caches, so many
queries in one call are faster than a few at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from densehash import _native
from densehash.bits import bytes_for
from densehash.checks import (
    as_array,
    check_choice,
    check_codes,
    check_integer,
    check_same_width,
    check_threads,
)
from densehash.errors import FileError, InputError
from densehash.hamming import instruction_set
from densehash.index.segment import MOST_ROWS, VECTOR_TYPES
from densehash.truth import METRICS

__all__ = [
    "damage",
    "damaged",
    "nearest_groups",
    "rerank",
    "rerank_codes",
    "top_k_in_groups",
    "top_products_in_groups",
]

_MOST_K = 2**48
_VECTOR_TYPES = tuple(map(np.dtype, VECTOR_TYPES))


def nearest_groups(scores: ArrayLike, p: int, *, n_threads: int | None = None) -> NDArray[np.int32]:
    """Find the groups that each query visits.

    Parameters
    ----------
    scores : float32 (q, g); NaN is the smallest score
    p : from 1 to g
    n_threads : number of threads

    Returns
    -------
    groups : int32 (q, p), the groups with the largest scores, the largest first; ties by number

    Examples
    --------
    >>> import numpy as np
    >>> nearest_groups(np.array([[1.0, 3.0, 2.0, 3.0]], dtype=np.float32), p=3)
    array([[1, 3, 2]], dtype=int32)
    """
    array = _check(scores, "scores", np.float32, 2)
    p = check_integer(p, "p", 1, array.shape[1])
    return _native.nearest_groups(array, p, check_threads(n_threads))


def top_k_in_groups(
    queries: ArrayLike,
    codes: ArrayLike,
    limits: ArrayLike,
    probes: ArrayLike,
    ranks: ArrayLike | None,
    allowed: ArrayLike | None,
    k: int,
    *,
    ordered: bool,
    n_threads: int | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Find the k nearest codes in the groups that each query visits.

    Parameters
    ----------
    queries : uint8 (q, width)
    codes : uint8 (n, width), n below 2**32
    limits : int64 (g + 1,), rising; group i is at ``codes[limits[i]:limits[i + 1]]``
    probes : int32 (q, p), numbers of groups, no group twice for a query: its codes would be found
        twice. It is fastest if the nearest group comes first.
    ranks : uint32 (n,), a permutation of 0 .. n - 1, the rank at each position; None if ranks
        equal positions
    allowed : bool (n,), by rank, which codes may be found; None: all
    k : at least 1; may exceed n
    ordered : whether answers must be ordered by distance; if not, their order is still the same
        every time
    n_threads : number of threads; at most one for each query

    Returns
    -------
    distances : int32 (q, k)
    positions : int64 (q, k), the k least by (Hamming distance, rank).
        Both are -1 at the end if there are fewer than k.

    Raises
    ------
    FileError
        If limits, probes or ranks are impossible. Ranks are read only if they matter: for
        ``allowed``, and for ties.

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0b0000], [0b0111], [0b0011], [0b0001]], dtype=np.uint8)
    >>> limits, probes = np.array([0, 1, 3, 4]), np.array([[2, 1]], dtype=np.int32)
    >>> ranks = np.array([2, 0, 3, 1], dtype=np.uint32)
    >>> distances, positions = top_k_in_groups(
    ...     codes[:1], codes, limits, probes, ranks, None, k=2, ordered=True
    ... )
    >>> distances
    array([[1, 2]], dtype=int32)
    >>> positions
    array([[3, 2]])
    """
    asked, packed = _check_codes(queries, codes)
    with damage():
        return _native.top_k_in_groups(
            asked,
            packed,
            *_check_visits(limits, probes, ranks, allowed, len(asked), len(packed)),
            check_integer(k, "k", 1, _MOST_K),
            bool(ordered),
            check_threads(n_threads),
            instruction_set(),
        )


def top_products_in_groups(
    queries: ArrayLike,
    factors: ArrayLike,
    codes: ArrayLike,
    lengths: ArrayLike,
    zero: float,
    limits: ArrayLike,
    probes: ArrayLike,
    ranks: ArrayLike | None,
    allowed: ArrayLike | None,
    k: int,
    *,
    ordered: bool,
    n_threads: int | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Find the k largest estimated inner products in the groups that each query visits.

    The product of a query and a row is estimated as ``length * (zero - h) * factor``, where h is
    the Hamming distance of their codes.

    Parameters
    ----------
    factors : float32 (q,), of the queries
    lengths : float32 (n,), of the rows
    zero : the Hamming distance at which a product is zero
    queries, codes, limits, probes, ranks, allowed, k, ordered, n_threads : as in
        :func:`top_k_in_groups`

    Returns
    -------
    distances : float32 (q, k), minus the estimated products; NaN counts as the farthest
    positions : int64 (q, k), the k least by (distance, rank).
        Infinity and -1 at the end if there are fewer than k.

    Raises
    ------
    FileError
        If limits, probes or ranks are impossible.

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0b0000], [0b0001], [0b0111]], dtype=np.uint8)
    >>> factors, lengths = np.ones(1, np.float32), np.array([1, 2, 9], np.float32)
    >>> everything = np.array([0, 3]), np.zeros((1, 1), np.int32), None, None
    >>> top_products_in_groups(
    ...     codes[:1], factors, codes, lengths, 4.0, *everything, k=3, ordered=True
    ... )
    (array([[-9., -6., -4.]], dtype=float32), array([[2, 1, 0]]))
    """
    asked, packed = _check_codes(queries, codes)
    with damage():
        return _native.top_products_in_groups(
            asked,
            _check(factors, "factors", np.float32, 1, length=len(asked)),
            packed,
            _check(lengths, "lengths", np.float32, 1, length=len(packed)),
            float(zero),
            *_check_visits(limits, probes, ranks, allowed, len(asked), len(packed)),
            check_integer(k, "k", 1, _MOST_K),
            bool(ordered),
            check_threads(n_threads),
            instruction_set(),
        )


def rerank(
    queries: ArrayLike,
    vectors: ArrayLike,
    positions: ArrayLike,
    ranks: ArrayLike | None,
    k: int,
    *,
    metric: str,
    n_threads: int | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Order candidates by their true distances.

    If queries and vectors are both uint8 or both int8, sums are exact, in integers. Other queries
    are compared as float32, and sums are float32, the same to the bit on every machine. The square
    root, the quotient and the difference that turn sums into distances are float64.

    Parameters
    ----------
    queries : real (q, d)
    vectors : float32, float16, uint8 or int8 (n, d), n below 2**32
    positions : int64 (q, c), the candidates of each query, none twice; -1: no candidate
    ranks : uint32 (n,), the rank at each position; None if ranks equal positions
    k : at least 1; may exceed c
    metric : "l2", the Euclidean distance; "cosine", one minus the cosine, and 1 if a length is
        zero; or "ip", minus the inner product
    n_threads : number of threads

    Returns
    -------
    distances : float32 (q, k), rising; if vectors hold NaN, these distances come last
    positions : int64 (q, k); equal distances by rank.
        Infinity and -1 if there are fewer than k.

    Raises
    ------
    FileError
        If a position is below -1 or not below n, or if a rank that matters is not below n.

    Examples
    --------
    >>> import numpy as np
    >>> vectors = np.array([[0.0, 4.0], [3.0, 0.0], [0.0, 3.0]], dtype=np.float32)
    >>> ranks = np.array([0, 2, 1], dtype=np.uint32)
    >>> distances, positions = rerank(
    ...     [[0.0, 0.0]], vectors, np.array([[0, 1, 2, -1]]), ranks, k=2, metric="l2"
    ... )
    >>> distances
    array([[3., 3.]], dtype=float32)
    >>> positions
    array([[2, 1]])
    """
    rows = _check_rows(as_array(vectors, "vectors"), "vectors")
    if rows.dtype not in _VECTOR_TYPES or rows.ndim != 2:
        raise InputError(
            "vectors must be float32, float16, uint8 or int8 of shape (n, d), "
            f"got {rows.dtype} of shape {rows.shape}"
        )
    asked = as_array(queries, "queries")
    if asked.dtype.kind not in "fiub" or asked.ndim != 2 or asked.shape[1] != rows.shape[1]:
        raise InputError(
            f"queries must be real of shape (q, {rows.shape[1]}), as vectors are, "
            f"got {asked.dtype} of shape {asked.shape}"
        )
    if not rows.shape[1]:
        raise InputError("vectors must have at least one column, got none")
    as_they_are = rows.dtype.kind in "iu" and asked.dtype == rows.dtype
    with damage():
        return _native.rerank(
            _in_order(asked, asked.dtype if as_they_are else np.float32),
            _in_order(rows, rows.dtype),
            _check(positions, "positions", np.int64, 2, length=len(asked)),
            _check_ranks(ranks, len(rows)),
            check_integer(k, "k", 1, _MOST_K),
            check_choice(metric, "metric", METRICS),
            check_threads(n_threads),
            instruction_set(),
        )


def rerank_codes(
    margins: ArrayLike,
    codes: ArrayLike,
    positions: ArrayLike,
    ranks: ArrayLike | None,
    k: int,
    *,
    n_threads: int | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Order candidates by their asymmetric distances, from codes alone.

    Parameters
    ----------
    margins : float32 (q, n_bits); what ``hasher.project(queries)`` returns
    codes : uint8 (n, ceil(n_bits / 8)), n below 2**32
    positions : int64 (q, c), the candidates of each query, none twice; -1: no candidate
    ranks : uint32 (n,), the rank at each position; None if ranks equal positions
    k : at least 1; may exceed c
    n_threads : number of threads

    Returns
    -------
    distances : float32 (q, k), rising; what :func:`densehash.asymmetric.distances` computes
    positions : int64 (q, k); equal distances by rank.
        Infinity and -1 if there are fewer than k.

    Raises
    ------
    FileError
        If a position is below -1 or not below n, or if a rank that matters is not below n.

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0b111], [0b110], [0b001]], dtype=np.uint8)
    >>> margins = np.array([[0.5, 2.0, -1.0]], dtype=np.float32)
    >>> distances, positions = rerank_codes(margins, codes, np.array([[2, 1, 0]]), None, k=2)
    >>> distances
    array([[1. , 1.5]], dtype=float32)
    >>> positions
    array([[0, 1]])
    """
    asked = _check(margins, "margins", np.float32, 2)
    packed = _check_rows(check_codes(codes), "codes")
    if packed.shape[1] != bytes_for(asked.shape[1]):
        raise InputError(
            f"margins of {asked.shape[1]} bits need codes of {bytes_for(asked.shape[1])} bytes, "
            f"got {packed.shape[1]}"
        )
    with damage():
        return _native.rerank_codes(
            asked,
            packed,
            _check(positions, "positions", np.int64, 2, length=len(asked)),
            _check_ranks(ranks, len(packed)),
            check_integer(k, "k", 1, _MOST_K),
            check_threads(n_threads),
        )


@contextmanager
def damage() -> Iterator[None]:
    """Turn an error of native code about impossible numbers into one about a damaged file.

    Examples
    --------
    >>> with damage():
    ...     raise RuntimeError("a rank is beyond the last row")
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: the index is damaged: a rank is beyond the last row
    """
    try:
        yield
    except RuntimeError as error:
        raise damaged(error) from None


def damaged(error: RuntimeError) -> FileError:
    """The error that :func:`damage` raises, for calls that are too short for a ``with``.

    Examples
    --------
    >>> damaged(RuntimeError("a rank is beyond the last row"))
    FileError('the index is damaged: a rank is beyond the last row')
    """
    return FileError(f"the index is damaged: {error}")


def _check(
    values: ArrayLike, name: str, dtype: type[np.generic], ndim: int, length: int | None = None
) -> NDArray[Any]:
    """An array of one type and number of dimensions, in C order."""
    array = as_array(values, name)
    if array.dtype != dtype or array.ndim != ndim or (length is not None and len(array) != length):
        size = "any length" if length is None else f"length {length}"
        raise InputError(
            f"{name} must be {np.dtype(dtype)} of {ndim} dimensions and {size}, "
            f"got {array.dtype} of shape {array.shape}"
        )
    return _in_order(array, dtype)


def _check_codes(
    queries: ArrayLike, codes: ArrayLike
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    asked, packed = check_codes(queries, "queries"), _check_rows(check_codes(codes), "codes")
    check_same_width(asked, packed)
    return asked, packed


def _check_visits(
    limits: ArrayLike,
    probes: ArrayLike,
    ranks: ArrayLike | None,
    allowed: ArrayLike | None,
    n_queries: int,
    n_rows: int,
) -> tuple[
    NDArray[np.int64], NDArray[np.int32], NDArray[np.uint32] | None, NDArray[np.uint8] | None
]:
    """Limits, probes, ranks and allowed rows, as native code takes them."""
    starts = _check(limits, "limits", np.int64, 1)
    if not starts.size:
        raise InputError("limits must have shape (g + 1,), got (0,)")
    visited = _check(probes, "probes", np.int32, 2, length=n_queries)
    by_rank = None if allowed is None else _check(allowed, "allowed", np.bool_, 1, n_rows)
    by_byte = None if by_rank is None else by_rank.view(np.uint8)
    return starts, visited, _check_ranks(ranks, n_rows), by_byte


def _check_ranks(ranks: ArrayLike | None, n_rows: int) -> NDArray[np.uint32] | None:
    return None if ranks is None else _check(ranks, "ranks", np.uint32, 1, length=n_rows)


def _check_rows(array: NDArray[Any], name: str) -> NDArray[Any]:
    if array.ndim and len(array) > MOST_ROWS:
        raise InputError(f"{name} must have at most {MOST_ROWS:,} rows, got {len(array):,}")
    return array


def _in_order(array: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    flags = array.flags
    if array.dtype == dtype and flags.c_contiguous and flags.aligned:  # nearly always true
        return array
    return np.require(array, dtype, ["C", "A"])
