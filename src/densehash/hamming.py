"""Exact Hamming search over packed codes, in native code.

Codes are uint8 arrays of shape (n, ceil(n_bits / 8)), packed as :mod:`densehash.bits` says.
Codes at equal distance are ordered by position, here and therefore everywhere. All functions
release the GIL, give the same bytes for any number of threads, and stop soon after Ctrl-C. They
need a few megabytes for each thread, besides their inputs and outputs.

:func:`top_k`, :func:`within` and :func:`histogram` also take torch tensors, if codes and queries
are on the same device, and return tensors on that device. On CUDA, the GPU computes everything,
with the same answers, and ``n_threads`` has no effect: see docs/gpu.md.

``n_threads=None`` uses every CPU that the process may use. The environment variable
``DENSEHASH_SIMD`` forces one of :func:`instruction_sets`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densehash import _native
from densehash.bits import MAX_BITS, check_padding
from densehash.checks import (
    check_code_form,
    check_codes,
    check_integer,
    check_positions,
    check_same_width,
    check_threads,
)
from densehash.columns import as_plain, is_tensor
from densehash.errors import InputError
from densehash.tensors import (
    as_tensor,
    common_device,
    dtype_name,
    memory_named,
    plain_tensor,
)

__all__ = ["distances", "histogram", "instruction_set", "instruction_sets", "top_k", "within"]

# A position is kept in 48 bits beside its distance.
_MOST_CODES = 2**48


def instruction_sets() -> tuple[str, ...]:
    """Names of the instruction sets that this machine runs, slowest first.

    >>> instruction_sets()[0]
    'scalar'
    """
    return _native.instruction_sets()


def instruction_set() -> str:
    """Name of the instruction set in use: the fastest, or the one ``DENSEHASH_SIMD`` names.

    >>> instruction_set() in instruction_sets()
    True
    """
    there = instruction_sets()
    name = os.environ.get("DENSEHASH_SIMD", "")
    if not name:
        return there[-1]
    if name not in there:
        raise InputError(
            f"DENSEHASH_SIMD is {name!r}, but this machine runs {', '.join(there)}; "
            f"set it to one of these, or unset it"
        )
    return name


def top_k(
    queries: ArrayLike, codes: ArrayLike, k: int, *, n_threads: int | None = None
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Find the k nearest codes of every query.

    Parameters
    ----------
    queries : uint8 (q, width)
    codes : uint8 (n, width)
    k : at least 1; may exceed n
    n_threads : number of threads

    Returns
    -------
    distances : int32 (q, k), rising
    indices : int64 (q, k), positions in ``codes``; equal distances by position.
        Both are -1 where ``k > n``.

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0b0000], [0b0111], [0b0001]], dtype=np.uint8)
    >>> distances, indices = top_k(codes[:1], codes, k=2)
    >>> distances
    array([[0, 1]], dtype=int32)
    >>> indices
    array([[0, 2]])
    """
    query_codes, code_codes, device = _check_pair(queries, codes)
    k = check_integer(k, "k", minimum=1, maximum=_MOST_CODES)
    threads = check_threads(n_threads)
    if is_tensor(code_codes):
        from densehash.gpu import hamming as on_gpu  # noqa: PLC0415  imports torch

        with memory_named():
            return on_gpu.top_k(query_codes, code_codes, k)
    found = _native.top_k(query_codes, code_codes, k, threads, instruction_set())
    return as_tensor(found[0], device), as_tensor(found[1], device)


def within(
    queries: ArrayLike, codes: ArrayLike, radius: int, *, n_threads: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Find all codes at distance ``radius`` or less of every query.

    Parameters
    ----------
    queries : uint8 (q, width)
    codes : uint8 (n, width)
    radius : at least 0
    n_threads : number of threads

    Returns
    -------
    limits : int64 (q + 1,); query i's answers are at ``limits[i]:limits[i + 1]``
    distances : int32 (limits[-1],), rising for each query
    indices : int64 (limits[-1],), positions in ``codes``; equal distances by position

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0b0000], [0b0111], [0b0001]], dtype=np.uint8)
    >>> limits, distances, indices = within(codes[:2], codes, radius=2)
    >>> limits
    array([0, 2, 4])
    >>> distances
    array([0, 1, 0, 2], dtype=int32)
    >>> indices
    array([0, 2, 1, 2])
    """
    query_codes, code_codes, device = _check_pair(queries, codes)
    radius = min(check_integer(radius, "radius", minimum=0), MAX_BITS)
    threads = check_threads(n_threads)
    if is_tensor(code_codes):
        from densehash.gpu import hamming as on_gpu  # noqa: PLC0415  imports torch

        with memory_named():
            return on_gpu.within(query_codes, code_codes, radius)
    limits, found, positions = _native.within(
        query_codes, code_codes, radius, threads, instruction_set()
    )
    return as_tensor(limits, device), as_tensor(found, device), as_tensor(positions, device)


def distances(
    queries: ArrayLike, codes: ArrayLike, *, n_threads: int | None = None
) -> NDArray[np.uint16]:
    """Compute the distance of every query to every code.

    Parameters
    ----------
    queries : uint8 (q, width)
    codes : uint8 (n, width)
    n_threads : number of threads

    Returns
    -------
    distances : uint16 (q, n)

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0b0000], [0b0111], [0b0001]], dtype=np.uint8)
    >>> distances(codes[:2], codes)
    array([[0, 3, 1],
           [3, 0, 2]], dtype=uint16)
    """
    query_codes = check_codes(queries, "queries")
    code_codes = check_codes(codes, "codes")
    check_same_width(query_codes, code_codes)
    return _native.distances(query_codes, code_codes, check_threads(n_threads), instruction_set())


@overload
def histogram(
    queries: ArrayLike,
    codes: ArrayLike,
    relevant: None = None,
    *,
    n_bits: int | None = None,
    n_threads: int | None = None,
) -> NDArray[np.int64]: ...
@overload
def histogram(
    queries: ArrayLike,
    codes: ArrayLike,
    relevant: Sequence[ArrayLike] | NDArray[Any],
    *,
    n_bits: int | None = None,
    n_threads: int | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
def histogram(
    queries: ArrayLike,
    codes: ArrayLike,
    relevant: Sequence[ArrayLike] | NDArray[Any] | None = None,
    *,
    n_bits: int | None = None,
    n_threads: int | None = None,
) -> NDArray[np.int64] | tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the codes at each distance of every query.

    With ``relevant``, precision and recall at every distance follow from the two counts; nothing
    is sorted.

    Parameters
    ----------
    queries : uint8 (q, width)
    codes : uint8 (n, width)
    relevant : for each query the positions of its true neighbours in ``codes``, in any order
        (counting is fastest if they are sorted): integer (q, m), or q integer arrays of any
        lengths. A position given twice counts twice.
    n_bits : length of the codes, default ``8 * width``; padding bits must be zero
    n_threads : number of threads

    Returns
    -------
    counts : int64 (q, n_bits + 1); ``counts[i, d]`` codes are at distance d of query i
    relevant_counts : int64 (q, n_bits + 1), the same for the relevant ones alone;
        only with ``relevant``

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0b0000], [0b0111], [0b0001]], dtype=np.uint8)
    >>> histogram(codes[:1], codes, n_bits=4)
    array([[1, 1, 0, 1, 0]])
    >>> counts, relevant_counts = histogram(codes[:1], codes, [[1, 2]], n_bits=4)
    >>> relevant_counts
    array([[0, 1, 0, 1, 0]])
    """
    query_codes, code_codes, device = _check_pair(queries, codes)
    if n_bits is not None:
        n_bits = check_integer(n_bits, "n_bits", minimum=1, maximum=MAX_BITS)
        check_padding(query_codes, n_bits, "queries")
        check_padding(code_codes, n_bits)
    threads = check_threads(n_threads)
    simd = instruction_set()
    columns = slice(None if n_bits is None else n_bits + 1)
    pairs = None
    if relevant is not None:
        if is_tensor(relevant):
            relevant = as_plain(relevant, "relevant")
        pairs = check_positions(relevant, len(query_codes), len(code_codes))
    if is_tensor(code_codes):
        from densehash.gpu import hamming as on_gpu  # noqa: PLC0415  imports torch

        with memory_named():
            there: Any = on_gpu.histogram(query_codes, code_codes)[:, columns].contiguous()
            if pairs is None:
                return cast("NDArray[np.int64]", there)
            of_pairs = on_gpu.histogram_of_pairs(query_codes, code_codes, *pairs)
            return there, of_pairs[:, columns].contiguous()
    if pairs is None:
        counts = _native.histogram(query_codes, code_codes, threads, simd)
        return cast(
            "NDArray[np.int64]", as_tensor(np.ascontiguousarray(counts[:, columns]), device)
        )
    both = _native.histograms(query_codes, code_codes, *pairs, threads, simd)
    found = (as_tensor(np.ascontiguousarray(one[:, columns]), device) for one in both)
    return next(found), next(found)


def _check_pair(queries: ArrayLike, codes: ArrayLike) -> tuple[Any, Any, Any]:
    """Both as arrays, or as tensors on a GPU, and the device of tensors, or None for arrays."""
    device = common_device(queries=queries, codes=codes)
    if device is not None and device.type == "cuda":
        asked, rows = plain_tensor(queries, "queries"), plain_tensor(codes, "codes")
        for tensor, name in ((asked, "queries"), (rows, "codes")):
            check_code_form(dtype_name(tensor), tuple(tensor.shape), name)
        asked, rows = asked.contiguous(), rows.contiguous()
    else:
        asked = check_codes(as_plain(queries, "queries"), "queries")
        rows = check_codes(as_plain(codes, "codes"), "codes")
    check_same_width(asked, rows)
    return asked, rows, device
