"""What every Hamming kernel must answer, in plain numpy: bits, a product, a stable sort."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.uint8]
Distances = npt.NDArray[np.uint16]
Ints = npt.NDArray[np.int64]
Short = npt.NDArray[np.int32]


def distances(queries: Codes, codes: Codes) -> Distances:
    """|a xor b| = |a| + |b| - 2 a.b; float32 holds every integer of these sums exactly."""
    found = np.empty((len(queries), len(codes)), dtype=np.uint16)
    for start in range(0, len(codes), 10_000):  # bits as floats are 32 times as large as codes
        some = codes[start : start + 10_000]
        a, b = (np.unpackbits(rows, axis=1).astype(np.float32) for rows in (queries, some))
        both = a.sum(axis=1)[:, None] + b.sum(axis=1) - 2 * (a @ b.T)
        found[:, start : start + 10_000] = both
    return found


def top_k(queries: Codes, codes: Codes, k: int) -> tuple[Short, Ints]:
    """The first k by (distance, position); -1 for missing ones."""
    every = distances(queries, codes)
    order = np.argsort(every, axis=1, kind="stable")[:, :k]
    found = np.take_along_axis(every, order, axis=1)
    room = ((0, 0), (0, max(0, k - len(codes))))
    return (
        np.pad(found.astype(np.int32), room, constant_values=-1),
        np.pad(order.astype(np.int64), room, constant_values=-1),
    )


def within(queries: Codes, codes: Codes, radius: int) -> tuple[Ints, Short, Ints]:
    """Every code at distance <= radius: row i of the answer is limits[i] : limits[i + 1]."""
    near, order = top_k(queries, codes, max(1, len(codes)))
    inside = (near >= 0) & (near <= radius)
    limits = np.concatenate([[0], np.cumsum(inside.sum(axis=1))]).astype(np.int64)
    return limits, near[inside], order[inside]


def histogram(
    queries: Codes, codes: Codes, relevant: Sequence[Ints] | None = None, *, n_bits: int
) -> Ints:
    """How many codes, or relevant codes of each query, are at each distance."""
    every = distances(queries, codes)
    rows = every if relevant is None else [d[at] for d, at in zip(every, relevant, strict=True)]
    counts = [np.bincount(row, minlength=n_bits + 1) for row in rows]
    return np.array(counts, dtype=np.int64).reshape(len(queries), n_bits + 1)
