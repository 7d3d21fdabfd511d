"""Small indexes of every kind, each with its model, and ways to compare the two."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from index_model import Answer, Model
from numpy.typing import NDArray

from densehash import disk
from densehash.choices import MetricName, Rerank
from densehash.hashers import LSH, Hasher
from densehash.index import Hits, Index, Ranges
from densehash.index.kinds import KINDS as REGISTRY
from densehash.index.kinds import Grouped
from densehash.index.lengths import unit
from densehash.index.sketches import Products

D = 6
N_BITS = 16  # few, so that many distances are equal

# What is told to a kind, where tests need another value than its default.
OPTIONS: dict[str, dict[str, Any]] = {
    "grouped": {"n_groups": 12},  # more than are visited by default
    "multi": {"n_tables": 2},
}
KINDS = {kind: OPTIONS.get(kind, {}) for kind in REGISTRY}
ID_TYPES = ("int64", "string")
METRICS: tuple[MetricName, ...] = ("l2", "cosine", "ip")
RERANKS: tuple[Rerank | None, ...] = ("exact", "asymmetric", None)

every_kind = pytest.mark.parametrize("kind", KINDS)
every_id_type = pytest.mark.parametrize("id_type", ID_TYPES)

# Python sorts them by code points; some differ only in their Unicode composition.
STRINGS = ("", "ä", "a", "aa", "Z", "日本語", "😀", "\u00e9", "e\u0301", " ", "\x01", "x" * 40)


def rows(n: int, seed: int = 0, dtype: Any = np.float32) -> NDArray[Any]:
    """Small whole numbers, so that all sums are exact; every fifth row occurs twice."""
    rng = np.random.default_rng(seed)
    found = rng.integers(0, 10, (n, D)).astype(dtype)
    found[4::5] = found[: len(found[4::5])]
    return found


def names(n: int, id_type: str, seed: int = 0) -> list[Any]:
    """Different ids, unordered."""
    rng = np.random.default_rng(seed)
    if id_type == "int64":
        some = [0, 2**63 - 1, 2**40, *range(5, 5 + 3 * n, 3)][:n]
    else:
        some = [*STRINGS, *(f"row {i}" for i in range(n))][:n]
    return [some[at] for at in rng.permutation(n)]


@cache
def hasher(metric: str = "l2") -> Hasher:
    """A hasher, fitted once; tests must not change it."""
    X = rows(200, seed=9)
    return LSH(N_BITS, random_state=1).fit(unit(X) if metric == "cosine" else X)


def build(kind: Any, X: Any, ids: Any = None, **options: Any) -> Index:
    """An index of a kind, with the shared hasher."""
    learnt = hasher("cosine" if options.get("metric") == "cosine" else "l2")
    settings = {"hasher": learnt, "random_state": 0, **KINDS[kind], **options}
    if kind == "grouped":
        settings["n_groups"] = min(settings["n_groups"], len(X))
    return Index.build(X, ids=ids, kind=kind, **settings)


def payload_for(kind: str, X: NDArray[Any]) -> list[dict[str, Any]] | None:
    """A payload for rows of grouped indexes, if pyarrow is installed."""
    if kind != "grouped" or find_spec("pyarrow") is None:
        return None
    words = ("even", "odd", None)
    return [{"sum": float(x.sum()), "word": words[int(x[0]) % 3]} for x in X]


def everywhere(kind: str) -> dict[str, Any]:
    """The arguments for a search of all groups."""
    return {"probes": KINDS[kind]["n_groups"]} if kind == "grouped" else {}


def model_of(index: Index) -> Model:
    """A model of an index, without its rows."""
    kind, sketch = index._state.kind, index._state.sketch
    return Model(
        index.hasher,
        products=sketch if isinstance(sketch, Products) else None,
        metric=index.metric,
        vector_type=index._state.vector_type,
        centers=kind.centers if isinstance(kind, Grouped) else None,
    )


def pair(
    kind: str, id_type: str = "int64", n: int = 60, *, dtype: Any = np.float32, **options: Any
) -> tuple[Index, Model]:
    """An index of n rows, and its model."""
    X, ids = rows(n, dtype=dtype), names(n, id_type)
    index = build(kind, X, ids, **options)
    model = model_of(index)
    model.put(ids, X)
    return index, model


# --- compared -----------------------------------------------------------------------------


def check_hits(
    found: Hits, expected: Sequence[Answer], k: int, id_type: str, *, exact: bool = True
) -> None:
    """Compare hits with those of the model; if sums are not exact, up to rounding."""
    strings = id_type == "string"
    assert found.ids.shape == found.distances.shape == (len(expected), k)
    assert found.ids.dtype == (object if strings else np.int64)
    assert found.distances.dtype == (expected[0].distances.dtype if expected else np.float32)
    missing = -1 if found.distances.dtype == np.int32 else np.inf
    for ids, distances, answer in zip(found.ids.tolist(), found.distances, expected, strict=True):
        n = len(answer.ids)
        assert ids[n:] == [None if strings else -1] * (k - n)
        assert (distances[n:] == missing).all()
        check_row(ids[:n], distances[:n], answer, exact=exact)


def check_ranges(
    found: Ranges, expected: Sequence[Answer], id_type: str, *, exact: bool = True
) -> None:
    """Compare ranges with those of the model."""
    assert found.ids.dtype == (object if id_type == "string" else np.int64)
    assert found.limits.dtype == np.int64
    assert found.distances.dtype == expected[0].distances.dtype
    assert np.diff(found.limits).tolist() == [len(answer.ids) for answer in expected]
    assert found.limits[0] == 0
    assert found.limits[-1] == len(found.ids) == len(found.distances)
    for at, answer in enumerate(expected):
        part = slice(found.limits[at], found.limits[at + 1])
        check_row(found.ids[part].tolist(), found.distances[part], answer, exact=exact)


def check_row(
    ids: list[Any], distances: NDArray[Any], answer: Answer, *, exact: bool = True
) -> None:
    """Compare what was found for one query."""
    if exact:
        assert ids == answer.ids
        assert distances.tolist() == answer.distances.tolist()
        return
    np.testing.assert_allclose(distances, answer.distances, rtol=1e-5, atol=1e-5)
    own = [answer.of[name] for name in ids]
    np.testing.assert_allclose(distances, own, rtol=1e-5, atol=1e-5)
    ordered = list(zip(distances.tolist(), ids, strict=True))
    assert ordered == sorted(ordered)
    assert len(set(ids)) == len(ids)


def compare(
    index: Index, model: Model, Q: NDArray[Any], k: int, *, exact: bool = True, **asked: Any
) -> Hits:
    """Search both, compare, and return the hits of the index."""
    rerank = asked.get("rerank", "exact")
    if rerank == "asymmetric" or asked.get("metric", model.metric) == "cosine":
        exact = exact and rerank is None
    asked.setdefault("candidates", 10**6)
    told = dict(asked)
    for ours, theirs in (("filter", "match"), ("exclude_self", "own")):
        if theirs in asked:
            told[ours] = told.pop(theirs)
    if "match" in asked:
        match = asked["match"]
        told["filter"] = lambda ids: np.array([match(name) for name in ids.tolist()], np.bool_)
    if isinstance(index._state.kind, Grouped):
        told_probes = asked.get("probes") or index._state.settings.probes
        asked["probes"] = index._state.kind.n_probes(told_probes)
    hits = index.search(Q, k, **told)
    check_hits(hits, model.hits(Q, k, **asked), k, index._state.id_type, exact=exact)
    return hits


def same(left: Hits | Ranges, right: Hits | Ranges) -> bool:
    """Whether two answers are the same: types, shapes, ids, and distances to the bit."""
    return type(left) is type(right) and all(
        one.dtype == two.dtype and one.shape == two.shape and one.tolist() == two.tolist()
        for one, two in zip(left, right, strict=True)
    )


def asked_of(index: Index) -> dict[str, Any]:
    """All answers of an index, as plain values that can be compared."""
    Q = rows(4, seed=5)
    reranks = RERANKS if index._state.vector_type else RERANKS[1:]
    found: dict[str, Any] = {
        str(how): [part.tolist() for part in index.search(Q, 7, rerank=how)] for how in reranks
    }
    found["within"] = [part.tolist() for part in index.search(Q, radius=4, rerank=None)]
    found["ids"], found["settings"] = index.ids.tolist(), index.settings
    if index._state.vector_type and len(index):
        found["vectors"] = index.get(index.ids).tolist()
    return found


@contextmanager
def unchanged(index: Index) -> Iterator[None]:
    """Check that a ``with`` block does not change an index: its answers, segments and files."""
    before, info, files = asked_of(index), index.info(), _files(index.path)
    yield
    assert asked_of(index) == before
    assert index.info() == info
    assert _files(index.path) == files


def _files(path: Path | None) -> dict[str, bytes]:
    return {} if path is None else {file.name: file.read_bytes() for file in path.iterdir()}


# --- a disk that fails --------------------------------------------------------------------


class Disk:
    """Counts the calls that change a disk, and lets one of them fail.

    Parameters
    ----------
    fail_at : the number of the call that fails; 0: none
    error : the errno of the failure
    for_good : whether all later calls fail, too
    instead : called instead of raising an error
    """

    def __init__(
        self,
        fail_at: int = 0,
        error: int = errno.EIO,
        *,
        for_good: bool = False,
        instead: Callable[[], None] | None = None,
    ) -> None:
        self.fail_at, self.error, self.for_good = fail_at, error, for_good
        self.instead = instead
        self.calls: list[str] = []

    @property
    def failed(self) -> bool:
        """Whether a call has failed."""
        return 0 < self.fail_at <= len(self.calls)

    def fails(self, name: str) -> bool:
        """Count a call, and return whether it fails."""
        self.calls.append(name)
        n = len(self.calls)
        hit = n == self.fail_at or (self.for_good and self.failed)
        if hit and self.instead is not None:
            self.instead()
        return hit

    @contextmanager
    def at_work(self) -> Iterator[Disk]:
        """Intercept the calls of densehash to the disk during a ``with`` block."""
        write, rename, fsync = disk.write, disk.rename, os.fsync

        def failing_write(file: Any, data: Any) -> None:
            if self.fails("write"):
                write(file, bytes(data)[: len(data) // 2])  # a full disk takes a part
                file.flush()
                raise OSError(self.error, os.strerror(self.error))
            write(file, data)

        def failing_fsync(descriptor: int) -> None:
            if self.fails("fsync"):
                raise OSError(self.error, os.strerror(self.error))
            fsync(descriptor)

        def failing_rename(part: Path, target: Path) -> None:
            if self.fails("rename"):
                raise OSError(self.error, os.strerror(self.error))
            rename(part, target)

        with (
            mock.patch.object(disk, "write", failing_write),
            mock.patch.object(disk, "rename", failing_rename),
            mock.patch.object(os, "fsync", failing_fsync),
        ):
            yield self


def fast_folder() -> str | None:
    """A folder in memory, if there is one, for the argument ``dir`` of temporary folders."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@contextmanager
def no_fsync() -> Iterator[None]:
    """Do not wait for the disk, in tests that do not cut the power."""
    with mock.patch.object(os, "fsync", return_value=None):
        yield


def leftovers(path: Path) -> set[str]:
    """Names of files in the folder of an index that belong to no state."""
    named = {"manifest.json", "writer.lock"}
    text = (path / "manifest.json").read_text("ascii")
    return {file.name for file in path.iterdir() if file.name not in named | {*_quoted(text)}}


def _quoted(text: str) -> list[str]:
    return text.split('"')
