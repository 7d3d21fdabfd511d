"""Indexes of vectors, ours and others, each called as its documentation says.

All take float32 rows, or the bytes of SIFT if they can; converting rows to that form is not timed.
For cosine, rows have length one, so others compare them by l2.
"""

from __future__ import annotations

import math
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from index_sets import SETS, Rows
from peers import installed

import densehash
from densehash import ITQ

K = 10
BUILD_THREADS = 2
SEED = 0

Ids = npt.NDArray[np.int64]
Setting = dict[str, float]


class Engine(ABC):
    """An index: built by two threads, searched by one."""

    metric = "l2"  # or "cosine", for which rows have length one

    @abstractmethod
    def build(self, rows: Rows) -> None:
        """Build an index of rows (n, d), in place of an earlier one."""

    @abstractmethod
    def use(self, setting: Setting) -> None:
        """Use this setting for all further searches."""

    @abstractmethod
    def search(self, queries: Rows) -> Ids:
        """The positions of the neighbours that were found, integers (q, K)."""

    def save(self, path: Path) -> None:
        """Write the index to `path`, a file or a folder."""
        raise NotImplementedError

    def open(self, path: Path) -> None:
        """Open a saved index for searches, in place of the one that was built."""
        raise NotImplementedError


@dataclass(frozen=True)
class Ladder:
    """Settings with more and more recall and less speed: one number in steps, others fixed."""

    name: str
    steps: tuple[float, ...]
    others: Setting = field(default_factory=dict)

    def setting(self, step: float) -> Setting:
        return {self.name: step, **self.others}

    def between(self, low: float, high: float) -> float | None:
        """A step halfway between two, if there is one.

        >>> Ladder("ef", (16, 64)).between(16, 64)
        32
        """
        if all(isinstance(step, int) for step in self.steps):
            middle = round(math.sqrt(low * high))
            return middle if low < middle < high else None
        return (low + high) / 2


@dataclass(frozen=True)
class Contestant:
    """An index to measure.

    `ladders` trade speed for recall; with `default`, it is also searched without a setting; without
    either, it is only built. Rows come in the given `form`; `vector_bytes` is the size of one
    number of a kept vector, 0 if none is kept. Slow ones only get the first `n_queries`.
    """

    name: str
    title: str
    make: Callable[[], Engine]
    ladders: tuple[Ladder, ...] = ()
    default: bool = False
    form: str = "float32"
    vector_bytes: int = 4
    sets: tuple[str, ...] = tuple(SETS)
    n_queries: int | None = None
    is_saved: bool = True

    @property
    def is_ours(self) -> bool:
        return self.title.startswith("densehash")


# Ours


class Densehash(Engine):
    """An index with these `options` of its build."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._index: Any = None
        self._setting: Setting = {}

    def build(self, rows: Rows) -> None:
        self._index = None
        options: Any = {**self._options, "metric": self.metric}
        self._index = densehash.Index.build(rows, random_state=SEED, **options)

    def use(self, setting: Setting) -> None:
        self._setting = setting

    def search(self, queries: Rows) -> Ids:
        found: Ids = self._index.search(queries, k=K, n_threads=1, **self._setting).ids
        return found

    def save(self, path: Path) -> None:
        self._index.save(path)

    def open(self, path: Path) -> None:
        self._index = densehash.Index.open(path)


# Others


class Faiss(Engine):
    """Shared by all indexes of faiss for floats."""

    def __init__(self) -> None:
        self._faiss = installed("faiss", "faiss-cpu")
        self._index: Any = None
        self._params: Any = None

    def build(self, rows: Rows) -> None:
        self._index = None
        self._faiss.omp_set_num_threads(BUILD_THREADS)
        self._index = self._empty(*rows.shape)
        self._index.train(rows)
        self._index.add(rows)

    def use(self, setting: Setting) -> None:
        self._faiss.omp_set_num_threads(1)
        self._params = self._params_of(**setting)

    def search(self, queries: Rows) -> Ids:
        found: Ids = self._index.search(queries, K, params=self._params)[1]
        return found

    def save(self, path: Path) -> None:
        self._faiss.write_index(self._index, str(path))

    def open(self, path: Path) -> None:
        self._index = self._faiss.read_index(str(path))

    @abstractmethod
    def _empty(self, n: int, d: int) -> Any: ...

    @abstractmethod
    def _params_of(self, **setting: float) -> Any: ...


class FaissHnsw(Faiss):
    def __init__(self, ef_construction: int) -> None:
        super().__init__()
        self._ef_construction = ef_construction

    def _empty(self, n: int, d: int) -> Any:
        del n
        index = self._faiss.IndexHNSWFlat(d, 32)
        index.hnsw.efConstruction = self._ef_construction
        return index

    def _params_of(self, **setting: float) -> Any:
        return self._faiss.SearchParametersHNSW(**setting)


class FaissFastScan(Faiss):
    """Product quantization to 4 bits a part, then exact distances of the best."""

    def _empty(self, n: int, d: int) -> Any:
        # Two numbers per part, or more for wide rows: a table has room for about 128 parts.
        parts = max(parts for parts in range(1, min(d // 2, 128) + 1) if d % parts == 0)
        index = self._faiss.index_factory(d, f"IVF{n_lists(n)},PQ{parts}x4fs,RFlat")
        # Small trials learn from few rows; a warning about that is not needed.
        self._faiss.extract_index_ivf(index).cp.min_points_per_centroid = 1
        return index

    def _params_of(self, **setting: float) -> Any:
        inner = self._faiss.IVFSearchParameters(nprobe=setting["nprobe"])
        return self._faiss.IndexRefineSearchParameters(
            k_factor=setting["k_factor"], base_index_params=inner
        )


class Symphony(Engine):
    """SymphonyQG: a graph whose nodes hold sketches of their neighbours."""

    def __init__(self) -> None:
        self._rabitqlib = installed("rabitqlib", "rabitqlib")
        self._index: Any = None
        self._ef = 0.0

    def build(self, rows: Rows) -> None:
        self._index = None
        self._index = self._rabitqlib.SymqgIndex(rows.shape[1], 32, "l2")
        self._index.build(rows, ef_construction=200, num_threads=BUILD_THREADS)

    def use(self, setting: Setting) -> None:
        self._ef = setting["ef"]

    def search(self, queries: Rows) -> Ids:
        found: Ids = self._index.search_batch(queries, K, self._ef, num_threads=1)[0]
        return found

    def save(self, path: Path) -> None:
        self._index.save(str(path))

    def open(self, path: Path) -> None:
        self._index = self._rabitqlib.SymqgIndex.load(str(path))


class Scann(Engine):
    """With the settings that its documentation advises: for inner products, rows are in two leaves,
    and are quantized by a loss for such products."""

    def __init__(self) -> None:
        self._scann = installed("scann", "scann").scann_ops_pybind
        self._index: Any = None
        self._setting: Setting = {}

    def build(self, rows: Rows) -> None:
        self._index = None
        leaves, products = n_lists(len(rows)), self.metric == "cosine"
        made = self._scann.builder(rows, K, "dot_product" if products else "squared_l2")
        made = made.set_n_training_threads(BUILD_THREADS).tree(
            num_leaves=leaves,
            num_leaves_to_search=leaves // 10,
            training_sample_size=min(len(rows), 250_000),
            **({"soar_lambda": 1.5, "overretrieve_factor": 2} if products else {}),
        )
        threshold = 0.2 if products else math.nan
        self._index = made.score_ah(2, threshold).reorder(100).build()

    def use(self, setting: Setting) -> None:
        self._setting = setting

    def search(self, queries: Rows) -> Ids:
        leaves, n = self._setting["leaves"], self._setting["reordered"]
        found: Ids = self._index.search_batched(queries, K, n, leaves)[0]
        return found

    def save(self, path: Path) -> None:
        path.mkdir()
        self._index.serialize(str(path))

    def open(self, path: Path) -> None:
        self._index = self._scann.load_searcher(str(path))


class Ngt(Engine):
    """The graph that NGT makes with default options. It takes only one query per call."""

    def __init__(self) -> None:
        self._ngt = installed("ngtpy", "ngt")
        self._index: Any = None
        self._epsilon = 0.0

    def build(self, rows: Rows) -> None:
        self._index = None
        self._folder = tempfile.TemporaryDirectory()
        path = str(Path(self._folder.name) / "index")
        self._ngt.create(path, rows.shape[1], distance_type="L2")
        self._index = self._ngt.Index(path)
        self._index.batch_insert(rows, num_threads=BUILD_THREADS)

    def use(self, setting: Setting) -> None:
        self._epsilon = setting["epsilon"]

    def search(self, queries: Rows) -> Ids:
        search, epsilon = self._index.search, self._epsilon
        found = [search(query, K, epsilon, with_distance=False) for query in queries]
        return np.array(found, np.int64)


class Hnswlib(Engine):
    def __init__(self) -> None:
        self._hnswlib = installed("hnswlib", "hnswlib")
        self._index: Any = None

    def build(self, rows: Rows) -> None:
        self._index = None
        n, d = rows.shape
        self._index = self._hnswlib.Index("l2", d)
        # Half of the default ef_construction: the same curve in half of the time.
        self._index.init_index(n, M=16, ef_construction=100, random_seed=SEED)
        self._index.add_items(rows, num_threads=BUILD_THREADS)

    def use(self, setting: Setting) -> None:
        self._index.set_ef(setting["ef"])

    def search(self, queries: Rows) -> Ids:
        found: Ids = self._index.knn_query(queries, K, num_threads=1)[0]
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
        # Half of the default expansion_add: half of the time, and a recall that is lower by 0.01.
        index = self._usearch.Index(
            ndim=rows.shape[1], metric="l2sq", dtype=self._dtype, expansion_add=64
        )
        index.add(np.arange(len(rows)), rows, threads=BUILD_THREADS)
        self._index = index

    def use(self, setting: Setting) -> None:
        self._index.expansion_search = setting["expansion"]

    def search(self, queries: Rows) -> Ids:
        found: Ids = self._index.search(queries, K, threads=1).keys
        return found.reshape(len(queries), -1)

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

    def use(self, setting: Setting) -> None:
        """It has no settings."""

    def search(self, queries: Rows) -> Ids:
        found: Ids = self._index.kneighbors(queries, return_distance=False)
        return found


def n_lists(n: int) -> int:
    """A power of two near 1.3 times the square root of n: 1,024 for 600,000."""
    return int(2 ** round(math.log2(1.3 * math.sqrt(n))))


# The list

EFFORTS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
LISTS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
RECALLS = (0.8, 0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.993, 0.995, 0.998)


def ours() -> Iterator[Contestant]:
    by_recall = (Ladder("recall", RECALLS),)
    yield Contestant("densehash", "densehash", Densehash, by_recall, default=True)
    yield Contestant(
        "densehash-uint8",
        "densehash, uint8",
        Densehash,
        by_recall,
        default=True,
        form="uint8",
        vector_bytes=1,
        sets=("sift",),
    )
    without = partial(Densehash, keep_vectors=False)
    yield Contestant(
        "densehash-small", "densehash, no vectors", without, default=True, vector_bytes=0
    )
    # With more bits than features, iterations make the codes worse.
    codes = partial(Densehash, sketch="codes", hasher=ITQ(256, n_iter=0, random_state=SEED))
    yield Contestant(
        "codes",
        "densehash codes, grouped, uint8",
        partial(codes, kind="grouped"),
        tuple(Ladder("probes", (16, 24, 32, 48, 64, 96), {"candidates": n}) for n in (300, 400)),
        form="uint8",
        vector_bytes=1,
        sets=("sift",),
    )
    yield Contestant(
        "flat",
        "densehash codes, flat, uint8",
        partial(codes, kind="flat"),
        (Ladder("candidates", (200, 300, 400, 500)),),
        form="uint8",
        vector_bytes=1,
        sets=("sift",),
    )


def others() -> Iterator[Contestant]:
    hnsw, efforts = "faiss HNSW32, efConstruction", (Ladder("efSearch", EFFORTS),)
    yield Contestant("hnsw32", f"{hnsw} 200", partial(FaissHnsw, 200), efforts)
    yield Contestant("hnsw32-40", f"{hnsw} 40", partial(FaissHnsw, 40))
    efforts = (Ladder("ef", EFFORTS),)
    yield Contestant("symphony", "SymphonyQG, degree 32", Symphony, efforts)
    lists = tuple(Ladder("nprobe", LISTS, {"k_factor": k_factor}) for k_factor in (4, 8, 16, 40))
    yield Contestant("fastscan", "faiss IVF+PQ FastScan, refined", FaissFastScan, lists)
    lists = tuple(Ladder("leaves", LISTS, {"reordered": n}) for n in (50, 120))
    yield Contestant("scann", "ScaNN", Scann, lists)
    yield Contestant("hnswlib", "hnswlib", Hnswlib, efforts)
    efforts = (Ladder("expansion", EFFORTS),)
    yield Contestant("usearch", "usearch, float32", partial(Usearch, "f32"), efforts)
    yield Contestant(
        "usearch-i8",
        "usearch, int8",
        partial(Usearch, "i8"),
        efforts,
        form="int8",
        vector_bytes=1,
        sets=("sift",),
    )
    yield Contestant(
        "ngt",
        "NGT",
        Ngt,
        (Ladder("epsilon", (-0.05, 0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2)),),
        sets=("gist", "wordnet"),  # it takes long to build
        is_saved=False,
    )
    yield Contestant(
        "sklearn",
        "scikit-learn brute force",
        BruteForce,
        default=True,
        n_queries=500,
        is_saved=False,
    )


CONTESTANTS = {each.name: each for each in (*ours(), *others())}
