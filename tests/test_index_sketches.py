"""Kinds and sketches are two things: others of both fit in, and rows are ordered in one place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import pytest
from hasher_cases import every_hasher, fitted, mixture
from index_cases import KINDS, METRICS, D, build, hasher, names, rows
from numpy.typing import NDArray

from densehash.choices import MetricName, SketchName
from densehash.errors import InputError
from densehash.hashers import Hasher
from densehash.index import Index
from densehash.index.kinds import KINDS as REGISTRY
from densehash.index.kinds import Flat, Kind
from densehash.index.ordering import Found, Ranked, first_of
from densehash.index.queries import Prepared, Question, Request
from densehash.index.segment import Segment
from densehash.index.sketches import Candidates, Codes, Column, Sketch
from densehash.index.visits import Allowed, Groups, Visits
from densehash.truth import nearest

# --- every sketch that users can ask for --------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("sketch", get_args(SketchName)[1:])
def test_every_sketch_finds_all_where_all_are_compared(
    sketch: Any, metric: MetricName, tmp_path: Path
) -> None:
    """Built, added to, removed from, saved and opened: the true neighbours, of a filter, too."""
    X, Q = np.split(mixture(156, dtype=np.float32), [150])
    index = Index.build(X[:100], sketch=sketch, metric=metric, random_state=0)
    index.add(X[100:])
    index.remove([7, 120])
    index.save(tmp_path / "a")
    left = np.setdiff1d(np.arange(150), [7, 120])
    for one in (index, Index.open(tmp_path / "a")):
        for some in (left, left[:20]):
            found = one.search(Q, 5, candidates=150, filter=some).ids
            expected = some[nearest(Q, X[some], k=5, metric=metric)]  # in the order of rows
            assert np.sort(found, axis=1).tolist() == expected.tolist()
        one.compact()


# --- another sketch -----------------------------------------------------------------------


class Thirds(Prepared):
    """Vectors as they are."""

    def __init__(self, vectors: NDArray[Any]) -> None:
        self.vectors = vectors.astype(np.float32)

    def __len__(self) -> int:
        return len(self.vectors)

    def some(self, which: slice | NDArray[np.intp]) -> Thirds:
        return Thirds(self.vectors[which])

    def to_send(self, *, margins: bool) -> Thirds:
        return self


class Rounded(Sketch):
    """Rows in whole thirds, in int8, with a length: two columns, and float32 estimates."""

    name: ClassVar[str] = "rounded"
    distance_type: ClassVar[type[np.generic]] = np.float32
    n_encoded = 0

    def __init__(self, learnt: Hasher) -> None:
        pass

    @property
    def n_features(self) -> int:
        return D

    @property
    def n_bits(self) -> int:
        return 8 * D

    @property
    def columns(self) -> tuple[Column, ...]:
        return (Column("thirds", np.int8, (D,)), Column("squares", np.float32, (1,)))

    @property
    def in_words(self) -> str:
        return "thirds"

    @property
    def about(self) -> Mapping[str, Any]:
        return {}

    def settings(self) -> Mapping[str, Any]:
        return {}

    @classmethod
    def from_settings(cls, content: Mapping[str, Any], kind: Kind) -> Sketch:
        raise NotImplementedError

    def encode(
        self,
        rows: NDArray[Any],
        groups: NDArray[np.integer] | None,
    ) -> dict[str, NDArray[Any]]:
        Rounded.n_encoded += len(rows)
        thirds = np.floor(rows / 3)
        return {
            "thirds": thirds.astype(np.int8),
            "squares": np.square(3 * thirds).sum(axis=1, keepdims=True),
        }

    def prepare(self, queries: NDArray[Any]) -> Thirds:
        return Thirds(queries)

    def vectors_of(
        self, segment: Segment, positions: NDArray[np.integer]
    ) -> NDArray[np.float32] | None:
        found: NDArray[np.float32] = 3 * segment.columns["thirds"][positions].astype(np.float32)
        return found

    def nearest(
        self,
        segment: Segment,
        prepared: Prepared,
        visits: Visits,
        allowed: Allowed,
        n: int,
        *,
        ordered: bool,
        n_threads: int,
    ) -> Candidates:
        assert isinstance(prepared, Thirds)
        assert visits is None or isinstance(visits, Groups)
        estimates = _estimates(segment, prepared)
        ranks = segment.rank_at(np.arange(segment.n_rows))
        distances = np.full((len(prepared), n), np.inf, np.float32)
        positions = np.full((len(prepared), n), -1)
        for query in range(len(prepared)):
            seen = np.arange(segment.n_rows)
            if visits is not None:
                limits = visits.limits
                of = [np.arange(limits[g], limits[g + 1]) for g in visits.groups[query]]
                seen = np.concatenate(of)
            if allowed is not None:
                seen = seen[allowed[ranks[seen]]]
            best = seen[np.lexsort((ranks[seen], estimates[query, seen]))][:n]
            distances[query, : len(best)] = estimates[query, best]
            positions[query, : len(best)] = best
        return Candidates(distances, positions)

    def within(
        self,
        segment: Segment,
        prepared: Prepared,
        visits: Visits,
        radius: float,
        *,
        n_threads: int,
    ) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
        raise NotImplementedError

    def reranked(
        self,
        segment: Segment,
        prepared: Prepared,
        positions: NDArray[np.int64],
        k: int,
        *,
        n_threads: int,
    ) -> Candidates:
        raise NotImplementedError

    def equal(
        self,
        segment: Segment,
        positions: NDArray[np.int64],
        prepared: Prepared,
        queries: NDArray[np.intp],
    ) -> NDArray[np.bool_]:
        raise NotImplementedError


def _estimates(segment: Segment, prepared: Thirds) -> NDArray[np.float32]:
    """Squares of distances less that of the query, (q, n): sums of small whole numbers."""
    products = prepared.vectors @ (3 * segment.columns["thirds"].astype(np.float32)).T
    found: NDArray[np.float32] = segment.columns["squares"][:, 0] - 2 * products
    return found


@pytest.fixture
def rounded(monkeypatch: pytest.MonkeyPatch) -> type[Rounded]:
    monkeypatch.setattr("densehash.index.building.Codes", Rounded)
    monkeypatch.setattr(Rounded, "n_encoded", 0)
    return Rounded


def expected(X: NDArray[Any], ids: Sequence[Any], Q: NDArray[Any], k: int) -> list[list[Any]]:
    """Ids by (estimate, id), one query after the other."""
    kept = 3 * np.floor(X / 3)
    scores = np.square(kept).sum(axis=1) - 2 * Q @ kept.T
    return [[name for _, name in sorted(zip(of.tolist(), ids, strict=True))[:k]] for of in scores]


@pytest.mark.usefixtures("rounded")
@pytest.mark.parametrize("id_type", ["int64", "string"])
@pytest.mark.parametrize("kind", ["flat", "grouped"])
def test_another_sketch(kind: str, id_type: str) -> None:
    """Floats, two columns, no codes: in several segments, with rows removed, filtered, excluded."""
    X, ids, Q = rows(60), names(60, id_type), rows(7, seed=3)
    index = build(kind, X[:30], ids[:30])
    assert repr(index) == f"Index({kind}, 30 rows, thirds, float32 vectors, l2)"
    index.add(X[30:50], ids=ids[30:50])
    index.add(X[50:], ids=ids[50:])
    index.remove(ids[:3])
    X, ids = X[3:], ids[3:]
    everywhere: dict[str, Any] = {"probes": 12} if kind == "grouped" else {}
    found = index.search(Q, 9, rerank=None, **everywhere)
    assert found.distances.dtype == np.float32
    assert found.ids.tolist() == expected(X, ids, Q, 9)
    some = index.search(Q, 4, rerank=None, filter=ids[5:8], **everywhere)
    assert [row[:3] for row in some.ids.tolist()] == expected(X[5:8], ids[5:8], Q, 4)
    assert np.isinf(some.distances[:, 3]).all()
    exact = index.search(X[:5], 1, candidates=57, **everywhere)
    assert exact.distances.max() == 0
    # One group alone finds too few for some; these look everywhere.
    few: dict[str, Any] = {"probes": 1} if kind == "grouped" else {}
    assert index.search(Q, 57, rerank=None, **few).ids.tolist() == expected(X, ids, Q, 57)
    with pytest.raises(InputError, match="rerank must be 'auto' or 'exact', got 'asymmetric'"):
        index.search(Q, rerank="asymmetric")


@pytest.mark.parametrize("kind", ["flat", "grouped"])
def test_merges_move_columns(rounded: type[Rounded], kind: str) -> None:
    """Vectors may be gone: nothing is made anew of rows that are there."""
    X, Q = rows(60), rows(7, seed=3)
    index = build(kind, X[:30], keep_vectors=False)
    for start in range(30, 60, 3):
        index.add(X[start : start + 3])
    index.remove([7, 33])
    index.compact()
    assert len(index.info()["segments"]) == 1
    assert rounded.n_encoded == 60
    left = [i for i in range(60) if i not in (7, 33)]
    everywhere: dict[str, Any] = {"probes": 12} if kind == "grouped" else {}
    found = index.search(Q, 9, rerank=None, **everywhere)
    assert found.ids.tolist() == expected(X[left], left, Q, 9)
    # Rows ask with what is left of them.
    graph = index.neighbors_graph(2, rerank=None, **everywhere)
    asked = 3 * np.floor(X[left] / 3)
    nearest = expected(X[left], range(58), asked, 3)
    others = [[i for i in of if i != own][:2] for own, of in enumerate(nearest)]
    assert graph.indices.reshape(-1, 2).tolist() == others


def test_a_sketch_may_answer_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(
        _: Codes, kind: Kind, segments: Sequence[Segment], asked: Question, request: Request
    ) -> Found | None:
        assert (kind.name, len(segments), request.k) == ("flat", 1, 2)
        if len(asked) > 1:
            return None
        return Found(
            np.array([[0.5, 7.0]], np.float32), np.zeros((1, 2), np.int32), np.array([[4, -1]])
        )

    index = build("flat", rows(20))
    plain = index.search(rows(2), 2)
    monkeypatch.setattr(Codes, "at_once", at_once)
    assert index.search(rows(2), 2).ids.tolist() == plain.ids.tolist()
    found = index.search(rows(1), 2)
    assert found.ids.tolist() == [[4, -1]]
    assert found.distances.tolist() == [[0.5, math.inf]]


# --- another kind -------------------------------------------------------------------------


class Cloudy(Flat):
    """As flat, with a setting, and rows in another order."""

    name: ClassVar[str] = "cloudy"
    has_groups: ClassVar[bool] = True
    extra_names: ClassVar[tuple[str, ...]] = ("ranks",)

    def __init__(self, height: int = 3) -> None:
        self.height = height

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], *, n_bits: int, n_features: int) -> Cloudy:
        assert (n_bits, n_features) == (hasher().n_bits_, D)
        return cls(settings["height"])

    def settings(self) -> Mapping[str, Any]:
        return {"height": self.height}

    def labels(self, block: NDArray[Any]) -> NDArray[np.integer]:
        return np.zeros(len(block), np.uint16)

    def labels_of(self, segment: Segment) -> NDArray[np.integer]:
        return np.zeros(segment.n_rows, np.uint16)

    def arrange(self, labels: NDArray[np.integer] | None) -> NDArray[np.uint32]:
        assert labels is not None
        return np.arange(len(labels), dtype=np.uint32)[::-1].copy()

    def own_arrays(
        self,
        columns: Mapping[str, NDArray[Any]],
        labels: NDArray[np.integer] | None,
        ranks: NDArray[np.uint32] | None,
    ) -> dict[str, NDArray[Any]]:
        assert ranks is not None
        return {"ranks": ranks}


def test_another_kind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An entry in the registry is enough to build, save, open, change and search it."""
    monkeypatch.setitem(REGISTRY, "cloudy", Cloudy)
    monkeypatch.setitem(KINDS, "cloudy", {})
    X, Q = rows(40), rows(6, seed=3)
    build("cloudy", X).save(tmp_path / "a")
    index, flat = Index.open(tmp_path / "a"), build("flat", X)
    assert index.kind == "cloudy"
    assert index._state.kind.settings() == {"height": 3}
    for one in (index, flat):
        one.add(X[:5] + 1)
        one.remove([4, 41])
    for rerank in ("exact", "asymmetric", None):
        found, plain = (one.search(Q, 9, rerank=rerank) for one in (index, flat))
        assert found.ids.tolist() == plain.ids.tolist()
        assert found.distances.tolist() == plain.distances.tolist()
    assert index.tune(Q, recall=0.5, k=3).probes is None
    message = "probes are for the grouped and multi.* kinds, this one is cloudy"
    with pytest.raises(InputError, match=message):
        index.search(Q, probes=2)
    with pytest.raises(InputError, match="n_groups is for the grouped kind, this one is cloudy"):
        Index.build(X, kind="cloudy", n_groups=2, hasher=hasher())  # type: ignore[arg-type]
    codes = hasher().transform(X)
    ready, flat = Index.from_codes(codes, kind="cloudy"), Index.from_codes(codes)  # type: ignore[arg-type]
    assert ready.search(codes[:6], 9).ids.tolist() == flat.search(codes[:6], 9).ids.tolist()


# --- one order ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
@pytest.mark.parametrize("id_type", ["int64", "string"])
def test_the_first_of_several_parts(dtype: type[np.generic], id_type: str) -> None:
    """By (distance, id), whatever the parts; NaN after infinity, and nothing after both."""
    rng = np.random.default_rng(0)
    some = [0, 1, 2, 3] if dtype == np.int32 else [0, 1, math.inf, math.nan]
    for n in (1, 3, 8, 30):
        parts, rest, start = [], [list[Any]() for _ in range(5)], 0
        for width in (4, 1, 7):
            distances = rng.choice(some, (5, width)).astype(dtype)
            ids = np.arange(start, start + width) * np.ones((5, 1), int) * 7 % 13
            named = ids if id_type == "int64" else ids.astype("S2")
            there = rng.random((5, width)) < 0.7
            parts.append(Ranked(distances, named, there, (ids * 10,)))
            start += width
            for query, column in np.argwhere(there):
                distance = distances[query, column]
                far = (1, 0.0) if np.isnan(distance) else (0, float(distance))
                name = named[query, column].item()
                rest[query].append((far, name, int(ids[query, column]) * 10))
        whole = first_of(parts, n)
        for query, wanted in enumerate(rest):
            here = whole.there[query]
            best = sorted(wanted)[:n]
            assert here.tolist() == [True] * len(best) + [False] * (len(here) - len(best))
            assert whole.ids[query, here].tolist() == [name for _, name, _ in best]
            assert whole.places[0][query, here].tolist() == [place for *_, place in best]


# --- a few queries ------------------------------------------------------------------------


@every_hasher
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8])
def test_codes_of_a_few_are_those_of_transform(make: Any, dtype: Any) -> None:
    learnt = fitted(make)
    Q = np.clip(mixture()[:70] * 4, -100, 100).astype(dtype)
    for n in (1, 2, 64, 65):
        found = Codes(learnt).prepare(Q[-n:])
        assert found.codes.tobytes() == learnt.transform(Q[-n:]).tobytes()
