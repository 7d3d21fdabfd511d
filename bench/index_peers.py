"""Indexes of vectors, ours and those of others, each called as its own documentation says.

All take rows of SIFT, uint8, in the form they like best; to bring rows into it is not timed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from peers import installed

import densehash
from densehash import ITQ

K = 10
BUILD_THREADS = 2
SEED = 0

Rows = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]
Setting = dict[str, int]


class Engine(ABC):
    """An index: built by two threads, asked by one."""

    @abstractmethod
    def build(self, rows: Rows) -> None:
        """From rows (n, d) to something that can be asked; an earlier build is forgotten."""

    @abstractmethod
    def search(self, queries: Rows, setting: Setting) -> Ids:
        """The positions of the neighbours that were found, (q, K)."""

    def save(self, path: Path) -> None:
        """Write all that is needed to `path`, a file or a folder."""
        raise NotImplementedError

    def open(self, path: Path) -> None:
        """Make what was saved ready to be asked, in place of what was built."""
        raise NotImplementedError


@dataclass(frozen=True)
class Contestant:
    """Someone to measure.

    `settings` trade recall for speed. `vector_bytes` is what one number of a kept vector takes, 0
    where none is kept. Slow ones are asked the first `n_queries` only.
    """

    name: str
    title: str
    make: Callable[[], Engine]
    settings: tuple[Setting, ...]
    prepared: Callable[[npt.NDArray[np.uint8]], Rows]
    vector_bytes: int
    n_queries: int | None = None
    is_saved: bool = True

    @property
    def is_ours(self) -> bool:
        return self.title.startswith("densehash")


# Ours


class Densehash(Engine):
    def __init__(self, kind: str, n_bits: int, *, keep_vectors: bool) -> None:
        self._kind, self._n_bits, self._keep_vectors = kind, n_bits, keep_vectors
        self._index: Any = None

    def build(self, rows: Rows) -> None:
        self._index = None
        # With more bits than features, iterating makes the codes worse.
        n_iter = 0 if self._n_bits > rows.shape[1] else 10
        hasher = ITQ(self._n_bits, n_iter=n_iter, random_state=SEED)
        self._index = densehash.Index.build(
            rows,
            hasher=hasher,
            kind=self._kind,
            keep_vectors=self._keep_vectors,
            random_state=SEED,
        )

    def search(self, queries: Rows, setting: Setting) -> Ids:
        found: Ids = self._index.search(queries, k=K, n_threads=1, **setting).ids
        return found

    def tune(self, queries: Rows, recall: float) -> None:
        """From now on a search without settings has this recall, as far as these tell."""
        self._index.tune(queries, recall=recall)

    def save(self, path: Path) -> None:
        self._index.save(path)

    def open(self, path: Path) -> None:
        self._index = densehash.Index.open(path)


# Others


class Faiss(Engine):
    """What all indexes of faiss for floats have in common."""

    def __init__(self) -> None:
        self._faiss = installed("faiss", "faiss-cpu")
        self._index: Any = None

    def build(self, rows: Rows) -> None:
        self._index = None
        self._faiss.omp_set_num_threads(BUILD_THREADS)
        self._index = self._empty(*rows.shape)
        self._index.train(rows)
        self._index.add(rows)

    def search(self, queries: Rows, setting: Setting) -> Ids:
        self._faiss.omp_set_num_threads(1)
        found: Ids = self._index.search(queries, K, params=self._params(**setting))[1]
        return found

    def save(self, path: Path) -> None:
        self._faiss.write_index(self._index, str(path))

    def open(self, path: Path) -> None:
        self._index = self._faiss.read_index(str(path))

    @abstractmethod
    def _empty(self, n: int, d: int) -> Any: ...

    @abstractmethod
    def _params(self, **setting: int) -> Any: ...


class FaissHnsw(Faiss):
    def _empty(self, n: int, d: int) -> Any:
        del n
        return self._faiss.IndexHNSWFlat(d, 32)

    def _params(self, **setting: int) -> Any:
        return self._faiss.SearchParametersHNSW(**setting)


class FaissFastScan(Faiss):
    """Product quantization to as many bits as ours have, then exact distances of the best."""

    def _empty(self, n: int, d: int) -> Any:
        index = self._faiss.index_factory(d, f"IVF{n_lists(n)},PQ64x4fs,RFlat")
        # Small trials learn from few rows; nobody needs to be warned of that.
        self._faiss.extract_index_ivf(index).cp.min_points_per_centroid = 1
        return index

    def _params(self, **setting: int) -> Any:
        inner = self._faiss.IVFSearchParameters(nprobe=setting["nprobe"])
        return self._faiss.IndexRefineSearchParameters(
            k_factor=setting["k_factor"], base_index_params=inner
        )


class FaissBinaryIvf(Engine):
    """Our codes in the lists of faiss, then exact distances of the candidates, by faiss too."""

    def __init__(self) -> None:
        self._faiss = installed("faiss", "faiss-cpu")
        self._hasher = ITQ(256, n_iter=0, random_state=SEED)
        self._index: Any = None
        self._rows: Rows = np.empty((0, 0), np.float32)

    def build(self, rows: Rows) -> None:
        self._index = None
        self._faiss.omp_set_num_threads(BUILD_THREADS)
        codes = self._hasher.fit(rows).transform(rows)
        n_bits = self._hasher.n_bits_
        # faiss does not keep its quantizer alive by itself.
        self._quantizer = self._faiss.IndexBinaryFlat(n_bits)
        index = self._faiss.IndexBinaryIVF(self._quantizer, n_bits, n_lists(len(rows)))
        index.cp.min_points_per_centroid = 1
        index.train(codes)
        index.add(codes)
        self._index, self._rows = index, rows

    def search(self, queries: Rows, setting: Setting) -> Ids:
        self._faiss.omp_set_num_threads(1)
        codes = self._hasher.transform(queries)
        self._index.nprobe = setting["nprobe"]
        found = [  # a block's distances stay in the cache
            self._reranked(queries[start : start + 256], codes[start : start + 256], setting)
            for start in range(0, len(queries), 256)
        ]
        return np.concatenate(found)

    def _reranked(self, queries: Rows, codes: Rows, setting: Setting) -> Ids:
        ids: Ids = self._index.search(codes, setting["candidates"])[1]
        distances = np.empty(ids.shape, np.float32)  # infinite where there is no candidate
        self._faiss.fvec_L2sqr_by_idx(
            *map(self._faiss.swig_ptr, (distances, queries, self._rows, ids)),
            queries.shape[1],
            *ids.shape,
        )
        best = np.argpartition(distances, K - 1, axis=1)[:, :K]
        return np.take_along_axis(ids, best, axis=1)

    def save(self, path: Path) -> None:
        path.mkdir()
        self._faiss.write_index_binary(self._index, str(path / "codes"))
        np.save(path / "rows.npy", self._rows)

    def open(self, path: Path) -> None:
        self._index = self._faiss.read_index_binary(str(path / "codes"))
        self._rows = np.load(path / "rows.npy")


class Hnswlib(Engine):
    def __init__(self) -> None:
        self._hnswlib = installed("hnswlib", "hnswlib")
        self._index: Any = None

    def build(self, rows: Rows) -> None:
        self._index = None
        n, d = rows.shape
        self._index = self._hnswlib.Index("l2", d)
        # Half of the usual ef_construction: the same curve after half of the time.
        self._index.init_index(n, M=16, ef_construction=100, random_seed=SEED)
        self._index.add_items(rows, num_threads=BUILD_THREADS)

    def search(self, queries: Rows, setting: Setting) -> Ids:
        self._index.set_ef(setting["ef"])
        found: Ids = self._index.knn_query(queries, K, num_threads=1)[0].astype(np.int64)
        return found

    def save(self, path: Path) -> None:
        self._index.save_index(str(path))

    def open(self, path: Path) -> None:
        self._index = self._hnswlib.Index("l2", self._index.dim)
        self._index.load_index(str(path))


class Usearch(Engine):
    def __init__(self, dtype: str) -> None:
        self._usearch = installed("usearch.index", "usearch")
        self._dtype = dtype
        self._index: Any = None

    def build(self, rows: Rows) -> None:
        self._index = None
        # Half of the usual expansion_add: half of the time, and a recall that is lower by 0.01.
        index = self._usearch.Index(
            ndim=rows.shape[1], metric="l2sq", dtype=self._dtype, expansion_add=64
        )
        index.add(np.arange(len(rows)), rows, threads=BUILD_THREADS)
        self._index = index

    def search(self, queries: Rows, setting: Setting) -> Ids:
        self._index.expansion_search = setting["expansion"]
        found: Ids = np.asarray(self._index.search(queries, K, threads=1).keys).astype(np.int64)
        return found

    def save(self, path: Path) -> None:
        self._index.save(str(path))

    def open(self, path: Path) -> None:
        self._index = self._usearch.Index.restore(str(path), view=True)


class BruteForce(Engine):
    def __init__(self) -> None:
        self._neighbors = installed("sklearn.neighbors", "scikit-learn")
        self._index: Any = None

    def build(self, rows: Rows) -> None:
        self._index = self._neighbors.NearestNeighbors(n_neighbors=K, algorithm="brute").fit(rows)

    def search(self, queries: Rows, setting: Setting) -> Ids:
        del setting
        found: Ids = self._index.kneighbors(queries, return_distance=False)
        return found


def n_lists(n: int) -> int:
    """A power of two near 1.3 times the square root: 1,024 for 600,000."""
    return int(2 ** round(math.log2(1.3 * math.sqrt(n))))


# The forms of rows


def as_they_are(rows: npt.NDArray[np.uint8]) -> Rows:
    return rows


def as_floats(rows: npt.NDArray[np.uint8]) -> Rows:
    return rows.astype(np.float32)


def as_signed(rows: npt.NDArray[np.uint8]) -> Rows:
    """Less 128 each, which leaves distances as they are."""
    return (rows ^ np.uint8(128)).view(np.int8)


# The list


def grid(**values: tuple[int, ...]) -> tuple[Setting, ...]:
    """All combinations.

    >>> grid(probes=(1, 2), candidates=(30,))
    ({'probes': 1, 'candidates': 30}, {'probes': 2, 'candidates': 30})
    """
    return tuple(dict(zip(values, each, strict=True)) for each in product(*values.values()))


GROUPED = grid(probes=(16, 24, 32, 40, 48, 64), candidates=(200, 300, 350, 400, 450, 500, 600))
FLAT = {
    256: grid(candidates=(200, 300, 350, 400, 500, 800)),
    128: grid(candidates=(500, 800, 1000, 1100, 1200, 1400, 1600)),
}
FEW_EFFORTS = (24, 48, 64, 80, 112)  # of those who take long


def ours() -> Iterator[Contestant]:
    grouped = partial(Densehash, "grouped", 256, keep_vectors=True)
    title = "densehash grouped"
    yield Contestant("grouped", title, grouped, GROUPED, as_they_are, 1)
    yield Contestant("grouped-float32", f"{title}, float32", grouped, GROUPED, as_floats, 4)
    codes_only = partial(Densehash, "grouped", 256, keep_vectors=False)
    settings = grid(probes=(24, 48), candidates=(100, 400))
    yield Contestant("grouped-codes", f"{title}, codes only", codes_only, settings, as_they_are, 0)
    for n_bits, name in ((256, "flat"), (128, "flat-128")):
        flat = partial(Densehash, "flat", n_bits, keep_vectors=True)
        settings = FLAT[n_bits]
        yield Contestant(name, f"densehash flat, {n_bits} bits", flat, settings, as_they_are, 1)


def others() -> Iterator[Contestant]:
    efforts = (16, 24, 32, 34, 36, 40, 48, 64, 96, 128, 192)
    yield Contestant("hnsw32", "faiss HNSW32", FaissHnsw, grid(efSearch=efforts), as_floats, 4)
    yield Contestant(
        "fastscan",
        "faiss IVF+PQ FastScan, refined",
        FaissFastScan,
        grid(nprobe=(8, 16, 24, 32, 48, 64), k_factor=(4, 8, 16)),
        as_floats,
        4,
    )
    yield Contestant(
        "binary-ivf",
        "faiss BinaryIVF of our codes, re-ranked",
        FaissBinaryIvf,
        grid(nprobe=(16, 32, 64, 128), candidates=(200, 400, 600)),
        as_floats,
        4,
    )
    yield Contestant("hnswlib", "hnswlib", Hnswlib, grid(ef=FEW_EFFORTS), as_floats, 4)
    for dtype, prepared, size in (("i8", as_signed, 1), ("f32", as_floats, 4)):
        make = partial(Usearch, dtype)
        settings = grid(expansion=FEW_EFFORTS)
        yield Contestant(f"usearch-{dtype}", f"usearch {dtype}", make, settings, prepared, size)
    yield Contestant(
        "sklearn",
        "scikit-learn brute force",
        BruteForce,
        ({},),
        as_floats,
        4,
        n_queries=500,
        is_saved=False,
    )


CONTESTANTS = {each.name: each for each in (*ours(), *others())}
