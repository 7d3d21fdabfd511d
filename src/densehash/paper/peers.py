"""Codes of faiss with as many bytes a row, measured in the same way; needs the extra ``bench``."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.errors import InputError, MissingExtraError
from densehash.paper.problem import Problem
from densehash.paper.rankings import rank_by_distances, rank_by_hamming, rank_by_tables
from densehash.paper.records import Record, pack_array

__all__ = ["available", "measure"]

_OPQ_ROWS = 16_384  # from which a rotation is learnt
_RABITQ_FACTORS = 64  # bits of a row that hold its two factors


def available() -> bool:
    """Whether faiss is installed.

    Examples
    --------
    >>> available() in (True, False)
    True
    """
    try:
        import faiss  # noqa: F401, PLC0415
    except ImportError:
        return False
    return True


def measure(problem: Problem, method: str, n_bits: int) -> Record:
    """Train a peer, encode with it, and rank the database by its own distances.

    Parameters
    ----------
    problem : the set on which the peer is measured
    method : one of PEERS
    n_bits : bits of all that is stored of a row

    Returns
    -------
    A record, as from :func:`densehash.paper.runs.measure`; if the peer ranks by real numbers, with
    what :func:`densehash.paper.rankings.rank_summary` returns
    """
    try:
        import faiss  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError(f"{method} needs faiss: pip install 'densehash[bench]'") from None
    make = {"faiss LSH": _lsh, "faiss PQ": _pq, "faiss OPQ": _opq, "faiss RaBitQ": _rabitq}[method]
    vectors = np.ascontiguousarray(problem.vectors, np.float32)
    asked = np.ascontiguousarray(problem.asked, np.float32)
    index = make(faiss, vectors.shape[1], n_bits)
    started = time.perf_counter()
    index.train(vectors)
    fitted = time.perf_counter()
    index.add(vectors)
    encoded = time.perf_counter()
    begun = time.perf_counter()
    codes = index.sa_encode(asked)
    record: Record = {
        "seconds": {
            "fit": fitted - started,
            "encode": encoded - fitted,
            "queries": [time.perf_counter() - begun],
        },
        "bytes": int(index.sa_code_size()),
    }
    if method == "faiss LSH":
        arrays = rank_by_hamming(codes, index.sa_encode(vectors), problem, n_bits)
    elif method in ("faiss PQ", "faiss OPQ"):
        arrays = rank_by_tables(_tables(faiss, index, asked), index.sa_encode(vectors), problem)
    else:
        arrays = rank_by_distances(lambda some: _all_distances(index, len(vectors), some), problem)
    record["arrays"] = {name: pack_array(array) for name, array in arrays.items()}
    return record


def _lsh(faiss: Any, d: int, n_bits: int) -> Any:
    return faiss.IndexLSH(d, n_bits, True, True)  # rotated, thresholds learnt: its best setting


def _pq(faiss: Any, d: int, n_bits: int) -> Any:
    """A byte for each part of a row; if parts do not divide d, rows are first rotated to fewer."""
    parts = n_bits // 8
    if n_bits % 8 or parts > d:
        raise InputError(f"faiss PQ needs whole bytes, at most {d}, got {n_bits} bits")
    width = d // parts * parts
    quantizer = faiss.IndexPQ(width, parts, 8)
    quantizer.pq.cp.min_points_per_centroid = 1  # otherwise faiss warns on stderr about small sets
    if width == d:
        return quantizer
    return faiss.IndexPreTransform(faiss.RandomRotationMatrix(d, width), quantizer)


def _opq(faiss: Any, d: int, n_bits: int) -> Any:
    """The same after a learnt rotation, which leaves at most 8 numbers of a row for each byte."""
    parts = n_bits // 8
    if n_bits % 8 or parts > d:
        raise InputError(f"faiss OPQ needs whole bytes, at most {d}, got {n_bits} bits")
    width = min(d // parts, 8) * parts
    rotation, quantizer = faiss.OPQMatrix(d, parts, width), faiss.IndexPQ(width, parts, 8)
    # The rotation learns with a second quantiser: learning leaves it with settings that rank worse.
    of_rotation = faiss.ProductQuantizer(width, parts, 8)
    for each in (quantizer.pq, of_rotation):
        each.cp.min_points_per_centroid = 1
    rotation.pq, rotation.max_train_points = of_rotation, _OPQ_ROWS
    return faiss.IndexPreTransform(rotation, quantizer)


def _rabitq(faiss: Any, d: int, n_bits: int) -> Any:
    """A bit for each principal direction, and two factors a row."""
    width = n_bits - _RABITQ_FACTORS
    if n_bits % 8 or not 0 < width <= d:
        raise InputError(
            f"faiss RaBitQ keeps {_RABITQ_FACTORS} bits of factors a row and 1 to {d} bits of "
            f"directions, got {n_bits} bits in all"
        )
    rotated = faiss.IndexPreTransform(
        faiss.RandomRotationMatrix(width, width), faiss.IndexRaBitQ(width)
    )
    rotated.prepend_transform(faiss.PCAMatrix(d, width))
    return rotated


def _tables(faiss: Any, index: Any, asked: NDArray[np.float32]) -> NDArray[np.float32]:
    """What each value of each byte of a code adds to the squared distance: (q, bytes, 256)."""
    if hasattr(index, "chain"):
        asked = faiss.downcast_VectorTransform(index.chain.at(0)).apply(asked)
        index = faiss.downcast_index(index.index)
    tables = np.empty((len(asked), index.pq.M, 256), np.float32)
    index.pq.compute_distance_tables(
        len(asked), faiss.swig_ptr(np.ascontiguousarray(asked)), faiss.swig_ptr(tables)
    )
    return tables


def _all_distances(index: Any, n: int, asked: NDArray[Any]) -> NDArray[np.float32]:
    """Distances of every query to every row, by a range search with an unlimited radius."""
    limits, distances, positions = index.range_search(
        np.ascontiguousarray(asked, np.float32), float(np.finfo(np.float32).max)
    )
    found = np.empty((len(asked), n), np.float32)
    for query in range(len(asked)):
        part = slice(limits[query], limits[query + 1])
        found[query, positions[part]] = distances[part]
    return found
