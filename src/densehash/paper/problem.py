"""A set of vectors, its queries and their true neighbours, on which every method is measured."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from densehash.checks import check_choice, check_integer, check_vectors
from densehash.choices import MetricName
from densehash.datasets import DataSet
from densehash.errors import InputError
from densehash.locks import cached_property
from densehash.mapped import unmapped
from densehash.paper.view import View
from densehash.source import Source
from densehash.truth import METRICS, nearest

__all__ = ["Problem"]

_BLOCK = 1 << 20  # numbers that are read at a time
_IN_MEMORY = 1 << 27  # bytes, as float32: sets up to this size are read once
_MOST_TRUE = 20_000  # neighbours of a query: 2 percent of a million rows, as in the paper

Vectors = NDArray[Any] | Source


@dataclass(frozen=True)
class Problem:
    """Vectors, queries, and what counts as near.

    Attributes
    ----------
    name, description : name and description of the set
    base : real array (n, d), the database; if it is a large file, a View, which is sliced like an
        array
    queries : real array (q, d)
    metric : one of ``truth.METRICS``: "l2", "cosine" or "ip" (inner product)
    fraction : the share of the database that counts as true neighbours: 2 percent as in the paper,
        but at most 20,000 rows
    k : how many of the nearest rows to find after re-ranking
    verbose : whether to show progress bars for long passes
    """

    name: str
    base: NDArray[Any]
    queries: NDArray[Any]
    metric: MetricName = "l2"
    fraction: float = 0.02
    k: int = 10
    description: str = ""
    verbose: bool = False

    @classmethod
    def of(
        cls,
        data: DataSet,
        *,
        metric: MetricName = "l2",
        n_queries: int = 1000,
        most_rows: int | None = None,
        verbose: bool = False,
    ) -> Problem:
        """The paper's protocol for a set: its own queries if it has some, or rows drawn at random.

        Drawn rows are removed from the database, and are at most a tenth of its rows. Vectors in a
        file are read when they are needed, unless they are few enough to be read at once.

        Parameters
        ----------
        data : a set
        metric : one of ``truth.METRICS``
        n_queries : the largest number of queries
        most_rows : the largest number of rows, drawn at random; default all
        verbose : whether to show progress bars for long passes

        Examples
        --------
        >>> from densehash.datasets import load
        >>> problem = Problem.of(load("digits"), n_queries=100)
        >>> problem.base.shape, problem.queries.shape
        ((1697, 64), (100, 64))
        """
        check_choice(metric, "metric", METRICS)
        check_integer(n_queries, "n_queries", 1)
        base = unmapped(check_vectors(data.base, "vectors"))
        if len(base) < 20:
            raise InputError(f"{data.name} has {len(base)} rows, at least 20 are needed")
        _check_finite(base, data.name)
        rng = np.random.default_rng(0)
        kept = (
            None if most_rows is None else min(check_integer(most_rows, "most_rows", 20), len(base))
        )
        if data.queries is None:
            order = rng.permutation(len(base))
            n_drawn = min(n_queries, (kept or len(base)) // 10)
            asked = np.sort(order[:n_drawn])
            rest = None if kept is None else np.sort(order[n_drawn:kept])
            queries = np.asarray(base[asked])
            rows = View(base, left_out=asked) if rest is None else View(base, chosen=rest)
        else:
            queries = np.asarray(check_vectors(data.queries, "queries")[:n_queries])
            if queries.shape[1] != base.shape[1]:
                raise InputError(
                    f"queries have {queries.shape[1]} features but {data.name} has {base.shape[1]}"
                )
            chosen = None if kept is None else np.sort(rng.permutation(len(base))[:kept])
            rows = View(base, chosen=chosen)
        lies_elsewhere = isinstance(base, (Source, np.memmap))
        small = 4 * rows.shape[0] * rows.shape[1] <= _IN_MEMORY
        return cls(
            data.name,
            cast(NDArray[Any], rows)
            if lies_elsewhere and not small
            else np.ascontiguousarray(rows[:]),
            np.ascontiguousarray(queries),
            metric,
            min(cls.fraction, _MOST_TRUE / len(rows)),
            k=min(10, len(rows)),
            description=data.description,
            verbose=verbose,
        )

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that distinguishes this problem from others; part of the key of every record."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.base, self.queries):
            for _, block in _blocks(array):
                digest.update(block.tobytes())
        return {
            "set": self.name,
            "rows": self.base.shape[0],
            "features": self.base.shape[1],
            "dtype": self.base.dtype.str,
            "queries": self.queries.shape[0],
            "metric": self.metric,
            "fraction": self.fraction,
            "k": self.k,
            "checksum": digest.hexdigest(),
        }

    @cached_property
    def relevant(self) -> NDArray[np.int64]:
        """Positions of the true neighbours of each query, (q, m), ascending."""
        return nearest(
            self.queries,
            self.base,
            fraction=self.fraction,
            metric=self.metric,
            verbose=self.verbose,
        )

    @cached_property
    def near(self) -> NDArray[np.int64]:
        """Positions of the k nearest rows of each query, (q, k), ascending."""
        return nearest(self.queries, self.base, k=self.k, metric=self.metric, verbose=self.verbose)

    @cached_property
    def vectors(self) -> NDArray[Any]:
        """The rows from which hashers learn; their Euclidean neighbours are those of the metric.

        Shape (n, d), or (n, d + 1) for inner products.
        """
        if self.metric == "l2":
            return self.base
        width = self.base.shape[1] + (self.metric == "ip")
        made = View(self.base, made=self._as_euclidean, n_features=width, dtype=np.float32)
        in_memory = isinstance(self.base, np.ndarray)
        return made[:] if in_memory else cast(NDArray[Any], made)

    @cached_property
    def asked(self) -> NDArray[Any]:
        """The queries that go with :attr:`vectors`."""
        if self.metric == "l2":
            return self.queries
        if self.metric == "cosine":
            return self._as_euclidean(self.queries)
        zeros = np.zeros((len(self.queries), 1), np.float32)
        return np.hstack([self.queries.astype(np.float32), zeros])

    def _as_euclidean(self, block: NDArray[Any]) -> NDArray[np.float32]:
        rows: NDArray[np.float32] = np.ascontiguousarray(
            block, np.float32
        )  # sums depend on the layout
        lengths = _lengths(rows)
        if self.metric == "cosine":
            return rows / lengths
        # One more feature gives all rows the same length; then the nearest row is the one with the
        # largest inner product (Bachrach and others, RecSys 2014). For queries it is zero.
        missing = np.sqrt(np.maximum(self._longest**2 - lengths**2, 0))
        return np.hstack([rows, missing])

    @cached_property
    def _longest(self) -> np.float32:
        """The length of the longest row."""
        return np.float32(max(_lengths(block).max() for _, block in _blocks(self.base)))


def _lengths(rows: NDArray[Any]) -> NDArray[np.float32]:
    rows = np.ascontiguousarray(rows, np.float32)
    lengths: NDArray[np.float32] = np.linalg.norm(rows, axis=1, keepdims=True)
    return lengths


def _blocks(rows: Vectors) -> Iterator[tuple[int, NDArray[Any]]]:
    """All rows in blocks, each with the position of its first row."""
    step = max(1, _BLOCK // rows.shape[1])
    for start in range(0, len(rows), step):
        yield start, rows[start : start + step]


def _check_finite(rows: Vectors, name: str) -> None:
    """Refuse NaN and infinity before rows are drawn, so that the error has the row of the file."""
    if rows.dtype.kind != "f":
        return
    for start, block in _blocks(rows):
        finite = np.isfinite(block)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise InputError(
                f"{name} must be finite, got NaN or infinity in row {start + row}, column {column}"
            )
