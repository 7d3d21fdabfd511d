"""The sets on which indexes are compared, and what is required on each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from data import data_folder

from densehash.choices import MetricName

Rows = npt.NDArray[Any]

TARGETS = (0.95, 0.99)
"""Recalls at which contestants are compared, each with its fastest setting."""

LEAST_DEFAULT_RECALL = 0.95


@dataclass(frozen=True)
class Required:
    """How many times as fast as others ours must be, and how many bytes a row may take.

    Bytes are without the vector. `hnsw` and `others` are by recall. The build is compared with
    HNSW32 with efConstruction 40.
    """

    hnsw: Mapping[float, float]
    others: Mapping[float, float]
    one_query: float
    build_hnsw: float
    build_symphony: float
    bytes_a_row: float


@dataclass(frozen=True)
class VectorSet:
    """Vectors from a file, some of which are queries.

    For cosine, rows are scaled to length one: Euclidean distances then have the same order, and
    peers use these.
    """

    name: str
    title: str
    n_rows: int
    n_queries: int
    metric: MetricName
    required: Required
    scale: float = 1
    queries_last: bool = False

    def rows(self, n: int, form: str = "float32") -> Rows:
        """At most n rows of the database, in the form that a contestant takes."""
        vectors = self._vectors()
        if self.queries_last:
            return self._formed(vectors[: -self.n_queries][-n:], form)
        return self._formed(vectors[self.n_queries :][:n], form)

    def queries(self, n: int, form: str = "float32") -> Rows:
        """At most n queries."""
        vectors = self._vectors()
        first = len(vectors) - self.n_queries if self.queries_last else 0
        return self._formed(vectors[first : first + min(n, self.n_queries)], form)

    def _vectors(self) -> Rows:
        folder = data_folder()
        path = None if folder is None else folder / f"{self.name}.npy"
        if path is None or not path.exists():
            raise SystemExit(
                f"there is no {self.name}.npy in the folder DENSEHASH_DATA, nor in ../shared/data"
            )
        vectors: Rows = np.load(path, mmap_mode="r")
        return vectors

    def _formed(self, vectors: Rows, form: str) -> Rows:
        """float32; or bytes as they are, or minus 128, which does not change distances.

        The numbers of a row are consecutive, whatever the file has.
        """
        if form == "uint8":
            return np.array(vectors, order="C")
        if form == "int8":
            return (vectors ^ np.uint8(128)).view(np.int8)
        floats = vectors.astype(np.float32, order="C")
        if self.metric == "cosine":
            floats /= np.linalg.norm(floats, axis=1, keepdims=True)
        elif self.scale != 1:
            floats *= np.float32(self.scale)
        return floats


SETS = {
    each.name: each
    for each in (
        VectorSet(
            "sift",
            "SIFT",
            600_000,
            10_000,
            "l2",
            Required({0.95: 2.5, 0.99: 3}, {0.95: 1.2, 0.99: 1.2}, 1.5, 8, 15, 56),
            queries_last=True,
        ),
        VectorSet(
            "glove-large",
            "GloVe",
            198_000,
            2000,
            "cosine",
            Required({0.95: 4, 0.99: 5}, {0.95: 1.3, 0.99: 2}, 2, 8, 8, 56),
        ),
        VectorSet(
            "gist",
            "GIST",
            50_000,
            1000,
            "l2",
            Required({0.95: 6, 0.99: 9}, {0.95: 1.3, 0.99: 1.3}, 3, 4, 4, 80),
            scale=0.5 / 255,
        ),
        VectorSet(
            "wordnet",
            "WordNet",
            100_000,
            1000,
            "cosine",
            Required({0.95: 5, 0.99: 4}, {0.95: 1.1, 0.99: 1}, 2, 5, 6, 80),
        ),
    )
}
