"""Search in Hamming space without a scan: tables of substrings of codes, in native code.

M. Norouzi, A. Punjani, D. J. Fleet, Fast exact search in Hamming space with multi-index hashing,
PAMI 2014. Codes are cut into m substrings. Two codes that differ in r bits differ in at most
``r // m`` bits of one of the substrings, so a few places of each table hold all codes within
distance r. Here the m tables are not visited evenly. If distances 0 to ``a[t] - 1`` were visited in
each table t, all codes within ``sum(a) - 1`` were seen; the next visit is the one that costs least.
If that would cost more than a scan, a scan finds the answer. The answers are always those of
:mod:`densehash.hamming`.

:func:`multi_probe` looks only where neighbours are likely: Q. Lv, W. Josephson, Z. Wang,
M. Charikar, K. Li, Multi-probe LSH: efficient indexing for high-dimensional similarity search,
VLDB 2007.

All functions release the GIL, give the same bytes for any number of threads, and stop soon after
Ctrl-C. Even with tables from a damaged file, they never read outside their arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil, log2

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densehash import _native
from densehash.bits import MAX_BITS, check_padding
from densehash.checks import as_array, check_codes, check_integer, check_same_width, check_threads
from densehash.errors import FileError, InputError
from densehash.hamming import instruction_set
from densehash.index.native import damage
from densehash.index.segment import MOST_ROWS

__all__ = [
    "MOST_PROBES",
    "build_tables",
    "multi_probe",
    "multi_top_k",
    "multi_within",
    "n_tables_for",
]

_MOST_SUBSTRING = 26  # bits: a table has an entry for each value of its substring
_FEWEST_BITS = 8  # of a substring, by default
MOST_PROBES = 2**20
"""The most values of a substring that are looked up in each table."""
_MOST_K = 2**48
_PATIENCE = 1.0  # how many times the cost of a scan the tables may take


def n_tables_for(n_bits: int, n_rows: int) -> int:
    """How many tables suit codes: about one row for each value of a substring.

    Parameters
    ----------
    n_bits : from 1 to 4096
    n_rows : how many codes there are, at least 0

    Examples
    --------
    >>> n_tables_for(64, 10_000_000), n_tables_for(128, 1_000_000)
    (3, 7)
    """
    n_bits = check_integer(n_bits, "n_bits", 1, MAX_BITS)
    n_rows = check_integer(n_rows, "n_rows", 0)
    length = round(log2(max(n_rows, 1)))
    return ceil(n_bits / min(_MOST_SUBSTRING, max(_FEWEST_BITS, length)))


def build_tables(
    codes: ArrayLike, n_bits: int, n_tables: int, *, n_threads: int | None = None
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Make the tables of codes.

    The bits are cut, in their order, into substrings whose lengths differ by at most 1, the longer
    ones first. Bit i of the value of a substring is its bit i.

    Parameters
    ----------
    codes : uint8 (n, ceil(n_bits / 8)), padding bits zero, n below 2**32
    n_bits : from 1 to 4096
    n_tables : from ``ceil(n_bits / 26)`` to n_bits; see :func:`n_tables_for`
    n_threads : number of threads; at most one for each table

    Returns
    -------
    starts : uint32 (sum of ``2**length + 1`` over substrings,), the tables one after another
    rows : uint32 (n_tables, n); with ``starts`` of table t, the rows whose substring t has the
        value v are ``rows[t, starts[v]:starts[v + 1]]``, in order of their next substring (of the
        first, for the last table), then rising

    Examples
    --------
    >>> codes = np.array([[0b0100], [0b0111], [0b0100]], dtype=np.uint8)
    >>> starts, rows = build_tables(codes, n_bits=4, n_tables=2)
    >>> starts
    array([0, 2, 2, 2, 3, 0, 0, 3, 3, 3], dtype=uint32)
    >>> rows
    array([[0, 2, 1],
           [0, 2, 1]], dtype=uint32)
    """
    packed = check_codes(codes)
    check_padding(packed, n_bits)
    n_tables = check_integer(n_tables, "n_tables", ceil(n_bits / _MOST_SUBSTRING), int(n_bits))
    if len(packed) > MOST_ROWS:
        raise InputError(f"tables hold at most {MOST_ROWS:,} codes, got {len(packed):,}")
    return _native.build_tables(packed, int(n_bits), n_tables, check_threads(n_threads))


def multi_top_k(
    queries: ArrayLike,
    codes: ArrayLike,
    n_bits: int,
    starts: NDArray[np.uint32],
    rows: NDArray[np.uint32],
    allowed: ArrayLike | None,
    k: int,
    *,
    n_threads: int | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Find the k nearest codes of every query, as :func:`densehash.hamming.top_k` does.

    Parameters
    ----------
    queries : uint8 (q, width), padding bits zero
    codes : uint8 (n, width)
    n_bits : length of the codes
    starts, rows : what :func:`build_tables` returned for these codes
    allowed : bool (n,), which codes may be found; None: all
    k : at least 1; may exceed n
    n_threads : number of threads

    Returns
    -------
    distances : int32 (q, k), rising
    positions : int64 (q, k), positions in ``codes``; equal distances by position.
        Both are -1 if there are fewer than k.

    Raises
    ------
    FileError
        If the tables cannot belong to these codes.

    Examples
    --------
    >>> codes = np.array([[0b0100], [0b0111], [0b0100]], dtype=np.uint8)
    >>> tables = build_tables(codes, n_bits=4, n_tables=2)
    >>> distances, positions = multi_top_k(codes[:1], codes, 4, *tables, [True, True, False], k=2)
    >>> distances
    array([[0, 2]], dtype=int32)
    >>> positions
    array([[0, 1]])
    """
    asked, packed = _check_pair(queries, codes, n_bits)
    with _tables(starts, rows):
        return _native.multi_top_k(
            asked,
            packed,
            int(n_bits),
            starts,
            rows,
            _check_allowed(allowed, len(packed)),
            check_integer(k, "k", 1, _MOST_K),
            _PATIENCE,
            check_threads(n_threads),
            instruction_set(),
        )


def multi_within(
    queries: ArrayLike,
    codes: ArrayLike,
    n_bits: int,
    starts: NDArray[np.uint32],
    rows: NDArray[np.uint32],
    allowed: ArrayLike | None,
    radius: int,
    *,
    n_threads: int | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Find all codes at distance ``radius`` or less, as :func:`densehash.hamming.within` does.

    Parameters
    ----------
    queries : uint8 (q, width), padding bits zero
    codes : uint8 (n, width)
    n_bits : length of the codes
    starts, rows : what :func:`build_tables` returned for these codes
    allowed : bool (n,), which codes may be found; None: all
    radius : at least 0
    n_threads : number of threads

    Returns
    -------
    limits : int64 (q + 1,); the answers of query i are at ``limits[i]:limits[i + 1]``
    distances : int32 (limits[-1],), rising for each query
    positions : int64 (limits[-1],), positions in ``codes``; equal distances by position

    Raises
    ------
    FileError
        If the tables cannot belong to these codes.

    Examples
    --------
    >>> codes = np.array([[0b0100], [0b0111], [0b0100]], dtype=np.uint8)
    >>> tables = build_tables(codes, n_bits=4, n_tables=2)
    >>> limits, distances, positions = multi_within(codes[:2], codes, 4, *tables, None, radius=1)
    >>> limits
    array([0, 2, 3])
    >>> distances
    array([0, 0, 0], dtype=int32)
    >>> positions
    array([0, 2, 1])
    """
    asked, packed = _check_pair(queries, codes, n_bits)
    with _tables(starts, rows):
        return _native.multi_within(
            asked,
            packed,
            int(n_bits),
            starts,
            rows,
            _check_allowed(allowed, len(packed)),
            min(check_integer(radius, "radius", 0), MAX_BITS),
            _PATIENCE,
            check_threads(n_threads),
            instruction_set(),
        )


def multi_probe(
    queries: ArrayLike,
    margins: ArrayLike,
    codes: ArrayLike,
    n_bits: int,
    starts: NDArray[np.uint32],
    rows: NDArray[np.uint32],
    allowed: ArrayLike | None,
    n_probes: int,
    k: int,
    *,
    n_threads: int | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Find the k nearest of the codes in the likeliest places of the tables.

    In each table, ``n_probes`` values of the substring are looked up. The value of the query itself
    comes first. The others are ordered by the sum of ``|margin|`` over the bits that differ from
    the query, the smallest first. Equal sums are ordered by which bits differ: first those without
    the bit of the largest ``|margin|``, then those without the second largest, and so on.

    Parameters
    ----------
    queries : uint8 (q, width), padding bits zero
    margins : finite numbers (q, n_bits); what ``hasher.project`` returns
    codes : uint8 (n, width)
    n_bits : length of the codes
    starts, rows : what :func:`build_tables` returned for these codes
    allowed : bool (n,), which codes may be found; None: all
    n_probes : from 1 to 1,048,576; if a substring has fewer values, all of them
    k : at least 1; may exceed n
    n_threads : number of threads

    Returns
    -------
    distances : int32 (q, k), Hamming distances, rising
    positions : int64 (q, k), positions in ``codes``; equal distances by position.
        Both are -1 if fewer than k were found.

    Raises
    ------
    FileError
        If the tables cannot belong to these codes.

    Examples
    --------
    >>> codes = np.array([[0b0100], [0b0111], [0b1001]], dtype=np.uint8)
    >>> tables = build_tables(codes, n_bits=4, n_tables=2)
    >>> margins = [[-0.1, -0.2, 0.1, -0.3]]  # of the code 0b0100
    >>> multi_probe(codes[:1], margins, codes, 4, *tables, None, n_probes=1, k=3)[1]
    array([[ 0,  1, -1]])
    """
    asked, packed = _check_pair(queries, codes, n_bits)
    real = _check_margins(margins, len(asked), int(n_bits))
    with _tables(starts, rows):
        return _native.multi_probe(
            asked,
            real,
            packed,
            int(n_bits),
            starts,
            rows,
            _check_allowed(allowed, len(packed)),
            check_integer(n_probes, "n_probes", 1, MOST_PROBES),
            check_integer(k, "k", 1, _MOST_K),
            check_threads(n_threads),
            instruction_set(),
        )


@contextmanager
def _tables(starts: NDArray[np.uint32], rows: NDArray[np.uint32]) -> Iterator[None]:
    """Check tables, and turn what native code finds wrong with them into a FileError."""
    for name, array, n_dimensions in (("starts", starts, 1), ("rows", rows, 2)):
        if array.dtype != np.uint32 or array.ndim != n_dimensions:
            raise FileError(
                f"{name} of tables must be uint32 in {n_dimensions} dimension(s), "
                f"got {array.dtype} in {array.ndim}"
            )
    with damage():
        yield


def _check_pair(
    queries: ArrayLike, codes: ArrayLike, n_bits: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    asked, packed = check_codes(queries, "queries"), check_codes(codes)
    check_same_width(asked, packed)
    check_padding(asked, n_bits, "queries")
    return asked, packed


def _check_allowed(allowed: ArrayLike | None, n_rows: int) -> NDArray[np.bool_] | None:
    if allowed is None:
        return None
    array = as_array(allowed, "allowed")
    if array.dtype != np.bool_ or array.shape != (n_rows,):
        raise InputError(
            f"allowed must be bool of shape ({n_rows},), got {array.dtype} of shape {array.shape}"
        )
    return np.ascontiguousarray(array)


def _check_margins(margins: ArrayLike, n_queries: int, n_bits: int) -> NDArray[np.float32]:
    array = as_array(margins, "margins")
    if array.dtype.kind not in "fiu" or array.shape != (n_queries, n_bits):
        raise InputError(
            f"margins must be real numbers of shape ({n_queries}, {n_bits}), "
            f"got {array.dtype} of shape {array.shape}"
        )
    with np.errstate(over="ignore"):  # too large a number becomes infinite, and is refused below
        found = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(found).all():
        row, column = np.argwhere(~np.isfinite(found))[0]
        raise InputError(
            f"margins must be finite float32 numbers, "
            f"got {array[row, column]} in row {row}, column {column}"
        )
    return found
