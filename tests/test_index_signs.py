"""An index of signs: what every index does, with estimates instead of Hamming distances."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_cases import D, check_hits, check_ranges, names, rows, same
from index_damage import signed
from index_edits import Edit, changed, check_refused, column
from index_model import Answer, true_distances
from numpy.typing import NDArray

from densehash.errors import FileError, InputError
from densehash.hashers import load_hasher
from densehash.index import HashingNeighbors, Hits, Index, placing
from densehash.index.queries import Reach
from densehash.index.sketches import Signs, sign_search
from densehash.index.state import Settings
from densehash.store import verify

KINDS: dict[str, dict[str, Any]] = {
    "flat": {},
    "grouped": {"n_groups": 12},
    "in two groups": {"kind": "grouped", "n_groups": 12, "groups_a_row": 2},
}
METRICS = ("l2", "cosine", "ip")
ALL = 1e30  # a spread or a stop that leaves nothing out

every_kind = pytest.mark.parametrize("kind", ["flat", "grouped"])
with_two_groups = pytest.mark.parametrize("kind", KINDS)  # of a row


def build(kind: str, X: Any, ids: Any = None, *, far: bool = True, **options: Any) -> Index:
    """An index that compares all rows that it visits, and visits all, unless told otherwise."""
    settings = {"sketch": "signs", "n_bits": 32, "random_state": 0, "kind": kind}
    index = Index.build(X, ids=ids, **{**settings, **KINDS[kind], **options})
    return looking(index) if far else index


def looking(index: Index, spread: float = ALL, stop: float = ALL) -> Index:
    """The same index, whose searches look so far."""
    reach = Reach(0.5, spread, stop, 10**6, 0.5)
    index._state = replace(index._state, settings=Settings(reach=reach))
    return index


def sketch_of(index: Index) -> Signs:
    sketch = index._state.sketch
    assert isinstance(sketch, Signs)
    return sketch


class Exact:
    """Rows by id, and their true neighbours."""

    def __init__(self, metric: str = "l2") -> None:
        self.metric = metric
        self.rows: dict[Any, NDArray[Any]] = {}

    def put(self, ids: Any, X: NDArray[Any]) -> None:
        self.rows.update(zip(ids, X, strict=True))

    def remove(self, ids: Any) -> None:
        for name in ids:
            self.rows.pop(name, None)

    def answers(
        self,
        Q: NDArray[Any],
        k: int,
        radius: float = np.inf,
        match: Callable[[Any], bool] = lambda _: True,
        own: Any = None,
    ) -> list[Answer]:
        ids = sorted(self.rows)
        X = np.array([self.rows[name] for name in ids]).reshape(len(ids), Q.shape[1])
        found = []
        for at, distances in enumerate(true_distances(Q, X, self.metric)):
            of = dict(zip(ids, distances, strict=True))
            near = [name for name in ids if match(name) and of[name] <= radius]
            if own is not None:
                near = [name for name in near if name != own[at]]
            near = sorted(near, key=lambda name: (of[name], name))[:k]
            found.append(Answer(near, np.array([of[name] for name in near], np.float32), of))
        return found


def pair(
    kind: str, n: int = 60, *, id_type: str = "int64", dtype: Any = np.float32, **options: Any
) -> tuple[Index, Exact]:
    X, ids = rows(n, dtype=dtype), names(n, id_type)
    model = Exact(options.get("metric", "l2"))
    model.put(ids, X)
    return build(kind, X, ids, **options), model


def compare(index: Index, model: Exact, Q: NDArray[Any], k: int, **asked: Any) -> Hits:
    told = {
        {"match": "filter", "own": "exclude_self"}.get(name, name): value
        for name, value in asked.items()
    }
    if "match" in asked:
        told["filter"] = lambda ids: np.array([asked["match"](name) for name in ids.tolist()], bool)
    hits: Hits = index.search(Q, k, **told)
    exact = model.metric != "cosine"  # sums of small whole numbers
    expected = model.answers(Q, k, **asked)
    check_hits(hits, expected, k, index._state.id_type, exact=exact)
    return hits


# --- as the model -------------------------------------------------------------------------


@with_two_groups
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("id_type", ["int64", "string"])
def test_all_that_is_compared_gives_the_nearest(kind: str, metric: str, id_type: str) -> None:
    index, model = pair(kind, id_type=id_type, metric=metric)
    Q = rows(9, seed=3) + np.float32(metric == "cosine")
    some = set(sorted(model.rows)[10:30])
    compare(index, model, Q, 7)
    compare(index, model, Q, 70)  # more than there are
    compare(index, model, Q, 7, match=lambda name: name in some)
    compare(index, model, Q, 25, match=lambda name: name in some)
    compare(index, model, Q, 5, match=lambda _: False)
    own = names(60, id_type)[:9]
    compare(index, model, Q, 7, own=own)
    assert index.search(Q, 3).distances.dtype == np.float32


@with_two_groups
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float16, np.float64])
def test_types_of_vectors(kind: str, dtype: Any) -> None:
    index, model = pair(kind, dtype=dtype)
    for of_queries in (dtype, np.float32, np.float64, np.uint8, np.int32):
        compare(index, model, rows(5, seed=3, dtype=of_queries), 6)
    kept = index.get(index.ids[:3])
    assert kept.tolist() == [model.rows[name].tolist() for name in sorted(model.rows)[:3]]


@with_two_groups
def test_changes(kind: str) -> None:
    """Rows of several segments, some gone; ties go by id, wherever rows lie."""
    X, Q = rows(90), rows(8, seed=3)
    index, model = build(kind, X[:40]), Exact()
    model.put(range(40), X[:40])
    for start in range(40, 90, 5):
        index.add(X[start : start + 5])
        model.put(range(start, start + 5), X[start : start + 5])
        compare(index, model, Q, 9)
    index.add(X[:40], ids=range(200, 240))  # each of them twice
    model.put(range(200, 240), X[:40])
    gone = [3, 41, 44, 200, 999]
    assert index.remove(gone) == 4
    model.remove(gone)
    index.update([5, 50], X[:2])
    model.put([5, 50], X[:2])
    assert len(index) == len(model.rows)
    assert len(index._state.segments) > 1
    compare(index, model, Q, 9)
    compare(index, model, Q, 9, match=lambda name: name % 3 == 0)
    compare(index, model, X[:6], 4, own=[0, 1, 2, 3, 4, 5])
    before = index.search(Q, 30)
    index.compact()
    assert len(index._state.segments) == 1
    assert same(index.search(Q, 30), before)
    index.remove(index.ids)
    assert len(index) == 0
    compare(index, Exact(), Q, 3)
    assert len(index.search(Q, radius=3.0).ids) == 0
    index.add(X[:4])
    assert index.search(X[:1], 1).distances.tolist() == [[0]]


@every_kind
def test_a_merge_moves_what_is_kept(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors may be gone: estimates after a merge are those before, to the bit."""
    X, Q = rows(80), rows(6, seed=3)
    index = build(kind, X[:50], keep_vectors=False)
    index.add(X[50:70])
    index.add(X[70:])
    index.remove([7, 55])
    before = index.search(Q, 78)
    monkeypatch.setattr(Signs, "encode", None)
    index.compact()
    assert index.info()["segments"] == [78]
    assert same(index.search(Q, 78), before)


@with_two_groups
def test_radius(kind: str) -> None:
    index, model = pair(kind)
    Q = rows(6, seed=3)
    for radius in (0, 2.5, 8, 30.0):
        found = index.search(Q, radius=radius)
        check_ranges(found, model.answers(Q, 10**6, radius), "int64")
    compare(index, model, Q, 4, radius=6.0)
    pairs = index.near_duplicates(3.0, rerank="exact")
    expected = sorted(
        (answer.of[two], one, two)
        for one, answer in zip(
            sorted(model.rows),
            model.answers(np.array([model.rows[i] for i in sorted(model.rows)]), 10**6, 3.0),
            strict=True,
        )
        for two in answer.ids
        if one < two
    )
    assert [(d, *ids) for d, ids in zip(pairs.distances, pairs.ids.tolist(), strict=True)] == [
        (d, one, two) for d, one, two in expected
    ]


@with_two_groups
def test_graphs(kind: str) -> None:
    index, model = pair(kind)
    ids = sorted(model.rows)
    graph = index.neighbors_graph(4, mode="distance")
    X = np.array([model.rows[name] for name in ids])
    expected = model.answers(X, 4, own=ids)
    assert graph.indices.reshape(-1, 4).tolist() == [
        [ids.index(name) for name in answer.ids] for answer in expected
    ]
    assert graph.data.tolist() == [d for answer in expected for d in answer.distances.tolist()]
    own = index.search(X[:5], 3, exclude_self=True)
    assert all(ids[at] not in own.ids[at] or own.distances[at, 0] == 0 for at in range(5))


# --- estimates ----------------------------------------------------------------------------


def blobs(n: int = 1500, d: int = 24, seed: int = 0) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    middles = np.random.default_rng(7).standard_normal((30, d)) * 3
    return (middles[rng.integers(30, size=n)] + rng.standard_normal((n, d))).astype(np.float32)


def recall_of(hits: Hits, X: NDArray[Any], Q: NDArray[Any], metric: str = "l2") -> float:
    k = hits.ids.shape[1]
    near = np.argsort(true_distances(Q, X, metric), axis=1)[:, :k]
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(near, hits.ids, strict=True)]))


@every_kind
@pytest.mark.parametrize("metric", METRICS)
def test_defaults_find_the_nearest_and_estimates_are_near(kind: Any, metric: Any) -> None:
    X, Q = blobs(), blobs(300, seed=1)
    index = Index.build(X, sketch="signs", kind=kind, metric=metric, random_state=0)
    assert recall_of(index.search(Q, 10), X, Q, metric) >= 0.96
    estimates = index.search(Q, 10, rerank=None)
    assert recall_of(estimates, X, Q, metric) >= 0.6
    true = np.take_along_axis(true_distances(Q, X, metric), estimates.ids, axis=1)
    assert np.abs(estimates.distances - true).mean() < 0.1 * np.abs(true).mean()
    assert (np.diff(estimates.distances) >= 0).all()
    bare = Index.build(
        X, sketch="signs", kind=kind, metric=metric, random_state=0, keep_vectors=False
    )
    assert recall_of(bare.search(Q, 10), X, Q, metric) > recall_of(estimates, X, Q, metric)
    estimates = looking(bare).search(Q, 10)
    near = bare.search(Q[:5], radius=float(estimates.distances[:5].max()))
    assert set(estimates.ids[0].tolist()) <= set(near.ids[: near.limits[1]].tolist())


def test_what_signs_say_is_in_the_reason() -> None:
    X = blobs(300, d=5)
    assert "160 bits of signs, as suits 5 features" in Index.build(X, sketch="signs").reason
    wide = Index.build(blobs(300, d=130), sketch="signs")
    assert "256 bits of signs, as suits 130 features" in wide.reason
    index = Index.build(X, sketch="signs", n_bits=40, n_groups=7, groups_a_row=2)
    assert index.reason.startswith("grouped")
    words = "grouped, 300 rows, signs of 40 bits in two groups, float32 vectors, l2"
    assert repr(index) == f"Index({words})"
    one = Index.build(X, sketch="signs", n_bits=40, n_groups=7)
    assert repr(one) == f"Index({words.replace(' in two groups', '')})"
    assert (index.sketch, index.info()["sketch"], index.info()["bits"]) == ("signs", "signs", 40)
    assert (Index.build(X).sketch, Index.build(X, sketch="codes").sketch) == ("signs", "codes")


def test_probes_are_groups_visited() -> None:
    X, Q = blobs(), np.random.default_rng(1).standard_normal((60, 24)) * 2
    index = build("grouped", X, n_groups=60, n_bits=64)
    found = [recall_of(index.search(Q, 10, probes=p), X, Q) for p in (1, 4, 60, 99)]
    assert found[0] < found[1] <= found[2] == found[3] == 1
    # One group has too few: these queries look everywhere.
    everything = index.search(Q, 1500, probes=1)
    assert (everything.ids >= 0).all()
    assert same(everything, index.search(Q, 1500))
    only = [3, 700, 1400]
    assert np.sort(index.search(Q, 3, probes=1, filter=only).ids, axis=1).tolist() == [only] * 60
    near = looking(index, 0.2, 1e-9).search(Q, 10, probes=7)
    assert near.effort is not None
    assert (near.effort.groups == 7).all()


@with_two_groups
def test_tuning(kind: str, tmp_path: Path) -> None:
    X, Q = blobs(), blobs(60, seed=1)
    index = build(kind, X, far=False)
    index.remove(range(0, 1500, 7))
    here = np.setdiff1d(np.arange(1500), np.arange(0, 1500, 7))
    for recall in (0.8, 1.0, 0.9):
        found = index.tune(Q, recall=recall)
        assert found.recall >= recall
        assert found.candidates is None
        assert (found.probes is None) == (kind == "flat")
        assert index.recall == found.recall
        hits = index.search(Q, 10)
        ours = Hits(np.searchsorted(here, hits.ids), hits.distances)
        assert recall_of(ours, X[here], Q) == pytest.approx(found.recall)
    index.save(tmp_path / "a")
    assert Index.open(tmp_path / "a").settings == index.settings


@every_kind
def test_tuning_without_vectors(kind: str) -> None:
    """The share of what all estimates tell, times the share of the truth that these tell."""
    X, Q = blobs(), blobs(200, seed=1)
    index = build(kind, X, keep_vectors=False, far=False)
    most = index.settings.reaches[-1].expected
    found = index.tune(Q, recall=0.8 * most)
    assert 0.8 * most <= found.recall <= most
    assert recall_of(index.search(Q, 10), X, Q) >= found.recall - 0.02
    with pytest.raises(InputError, match="no setting reaches a recall of 1.0: the best, in all gr"):
        index.tune(Q, recall=1.0)


@with_two_groups
def test_an_index_knows_what_it_finds(kind: str, tmp_path: Path) -> None:
    """On rows that it never saw, too: what it says, and what it is asked for."""
    X, Q = blobs(), blobs(300, seed=1)
    for options in ({"path": tmp_path / "a"}, {"n_bits": 16}):
        index = build(kind, X, far=False, **options)
        assert index.recall is not None
        assert index.recall >= 0.97
        assert recall_of(index.search(Q, 10), X, Q) == pytest.approx(index.recall, abs=0.02)
        recalls = (0.75, 0.85, 0.93, 0.985, 0.9999, 1)
        hits = [index.search(Q, 10, recall=recall) for recall in recalls]
        found = [recall_of(one, X, Q) for one in hits]
        assert all(np.array(found) >= np.array(recalls) - 0.015)
        assert found[-1] == 1
        efforts = [one.effort.vectors.mean() for one in hits if one.effort is not None]
        assert efforts == sorted(efforts)
        assert efforts[0] < 0.2 * efforts[-1]


def test_too_few_rows_are_all_compared() -> None:
    X = blobs(200)
    index = Index.build(X, sketch="signs", n_bits=8, random_state=0)
    assert index.recall is None
    assert "200 rows are too few to learn from, so every row is compared" in index.reason
    assert recall_of(index.search(X, 10), X, X) == 1


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_rows_that_estimates_cannot_tell_apart_are_compared(metric: Any) -> None:
    """Lengths that differ by a factor of thousands: factors of 16 bits say nothing of the short."""
    rng = np.random.default_rng(0)
    X = np.exp(3 * rng.standard_normal((1600, 1))) * rng.standard_normal((1600, 8))
    X, Q = X[:1500].astype(np.float32), X[1500:].astype(np.float32)
    index = Index.build(X, metric=metric, random_state=0)
    assert recall_of(index.search(Q, 10), X, Q, metric) >= 0.95
    assert index.recall is not None
    assert index.recall >= 0.95


def test_an_index_without_vectors_says_what_it_can_find() -> None:
    X, Q = blobs(), blobs(600, seed=1)
    index = build("grouped", X, far=False, keep_vectors=False, n_bits=64)
    assert index.recall is not None
    assert index.recall < 0.97
    assert recall_of(index.search(Q, 10), X, Q) == pytest.approx(index.recall, abs=0.03)
    with pytest.raises(InputError, match="keeps no vectors and finds 0.*at most: build it with"):
        index.search(Q, recall=0.99)
    # More than that cannot be found, so it does not look everywhere for the last bit.
    effort = index.search(Q, 10).effort
    assert effort is not None
    assert effort.entries.mean() < len(X) / 2


@with_two_groups
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_the_short_way_answers_as_the_long_one(kind: str, dtype: str) -> None:
    X = np.rint(blobs(600) * 8 + 100).clip(0, 255).astype(dtype)
    Q = np.rint(blobs(30, seed=1) * 8 + 100).clip(0, 255).astype(dtype)
    index = build(kind, X, far=False)
    for asked in (Q, Q[:1]):
        short, long = index.search(asked, 10), index.search(asked.tolist(), 10)
        assert same(short, long)
        assert short.effort is not None
        assert long.effort is not None
        assert all((a == b).all() for a, b in zip(short.effort, long.effort, strict=True))
        assert same(index.search(np.asfortranarray(asked), 10), long)
    assert same(index.search(Q, 600), index.search(Q.tolist(), 600))
    bad: dict[str, Any] = {
        "is empty": Q[:0],
        "2 dimensions": Q[np.newaxis],
        "features": Q[:, :3],
        "finite": np.full((1, 24), np.nan, np.float32),
        "too large": np.full((1, 24), 1e30, np.float32),
    }
    for message, queries in bad.items():
        with pytest.raises(InputError, match=message):
            index.search(queries, 10)


@with_two_groups
def test_candidates_are_those_nearest_by_estimate(kind: str) -> None:
    X, Q = blobs(), blobs(60, seed=1)
    index = build(kind, X)
    index.add(blobs(500, seed=2))
    found = [
        recall_of(index.search(Q, 10, candidates=n), np.r_[X, blobs(500, seed=2)], Q)
        for n in (10, 30, 2000)
    ]
    assert found[0] < found[1] < found[2] == 1
    estimates = index.search(Q, 30, rerank=None)
    best = index.search(Q, 10, candidates=30)
    assert all(set(a) <= set(b) for a, b in zip(best.ids, estimates.ids, strict=True))
    assert same(index.search(Q, 10, candidates=2000), index.search(Q, 10, recall=1))


@with_two_groups
def test_threads_and_batches_give_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, Q = blobs(), blobs(200, seed=1)
    index = build(kind, X[:1000], far=False)
    index.add(X[1000:])
    expected = index.search(Q, 10, n_threads=1)
    assert same(index.search(Q, 10, n_threads=3), expected)
    one_by_one = [index.search(query[np.newaxis], 10) for query in Q[:20]]
    assert [h.ids[0].tolist() for h in one_by_one] == expected.ids[:20].tolist()
    monkeypatch.setattr("densehash.index.search._BATCH", 1)
    assert same(index.search(Q, 10), expected)


@with_two_groups
def test_threads_that_share_a_query_find_what_one_finds(kind: str) -> None:
    X = np.random.default_rng(0).standard_normal((80_000, 4), dtype=np.float32)
    groups: dict[str, Any] = {} if kind == "flat" else {"n_groups": 64}
    index = build(kind, X[:5000], n_bits=8, **groups)
    index.add(X[5000:])  # without learning: one segment, long enough to be shared
    asked = X[:5] + 0.01
    for spread in (0.02, ALL):
        looking(index, spread)
        together = index.search(asked, k=20, n_threads=1)
        assert together.effort is not None
        assert (together.effort.entries >= len(X)).all()
        for n_threads in (1, 3, 16):
            for n in (1, 5):
                found = index.search(asked[:n], k=20, n_threads=n_threads)
                assert same(found, Hits(together.ids[:n], together.distances[:n]))
    true = np.sort(true_distances(asked, X, "l2"), axis=1)[:, :20]
    np.testing.assert_allclose(together.distances, true, rtol=1e-5)


@pytest.mark.parametrize("metric", METRICS)
@with_two_groups
def test_the_few_that_a_filter_leaves_are_all_compared(kind: str, metric: str) -> None:
    X, Q = blobs(3000), blobs(50, seed=1)
    index = looking(build(kind, X[:2000], metric=metric), spread=0.001, stop=1)
    index.add(X[2000:])  # a second segment
    wanted = np.random.default_rng(0).choice(len(X), 150, replace=False)
    found = index.search(Q, 10, filter=wanted)
    near = true_distances(Q, X[np.sort(wanted)], metric)
    np.testing.assert_allclose(found.distances, np.sort(near, axis=1)[:, :10], atol=1e-5)
    assert np.isin(found.ids, wanted).all()
    assert found.effort is not None
    assert (found.effort.vectors == 150).all()
    assert (index.search(Q, 200, filter=wanted).ids[:, 150:] == -1).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("d", [1, 3, 16, 37])
def test_how_many_queries_share_the_rows_of_a_filter_does_not_matter(metric: Any, d: int) -> None:
    rng = np.random.default_rng(d)
    X = rng.standard_normal((3000, d), dtype=np.float32) + 3
    X[::7] = np.rint(X[::7])  # many that are equally far
    X[5::97] *= 1e-3
    Q = np.concatenate([X[:40] + np.float32(1e-4), np.rint(X[40:77])])
    index = Index.build(X, metric=metric, sketch="signs", random_state=0)
    wanted = np.arange(0, 3000, 13)  # few enough to be all compared
    alone = [index.search(one[np.newaxis], 9, filter=wanted, n_threads=1) for one in Q]
    for n_threads, step in ((1, 77), (2, 77), (3, 33), (1, 5)):
        parts = [
            index.search(Q[at : at + step], 9, filter=wanted, n_threads=n_threads)
            for at in range(0, len(Q), step)
        ]
        for name in ("ids", "distances"):
            found, expected = (
                np.concatenate([getattr(one, name) for one in some]) for some in (parts, alone)
            )
            assert np.array_equal(found, expected)
    near = np.sort(true_distances(Q, X[wanted], metric), axis=1)[:, :9]
    np.testing.assert_allclose(np.concatenate([one.distances for one in alone]), near, atol=1e-4)


def test_few_rows_of_huge_numbers_are_all_compared() -> None:
    X = np.random.default_rng(0).standard_normal((600, 8), dtype=np.float32)
    X[::2] *= 1e15
    index = Index.build(X, sketch="signs", random_state=0)
    wanted = np.arange(0, 600, 10)
    found = index.search(X[:50], 3, filter=wanted)
    alone = [index.search(one[np.newaxis], 3, filter=wanted) for one in X[:50]]
    assert np.array_equal(found.ids, np.concatenate([one.ids for one in alone]))


def test_a_filter_leaves_recall_as_it_is() -> None:
    X, Q = blobs(8000), blobs(300, seed=1)
    index = build("grouped", X, far=False, n_groups=100)
    distances = true_distances(Q[:1], X, "l2")[0]
    for is_wanted in (
        np.random.default_rng(0).random(len(X)) < 0.2,
        distances < np.quantile(distances, 0.2),  # far from most queries
        distances > np.quantile(distances, 0.8),
    ):
        found = index.search(Q, 10, filter=is_wanted)
        near = np.sort(true_distances(Q, X[is_wanted], "l2"), axis=1)[:, :10]
        assert (found.distances <= near[:, -1:] + 1e-5).mean() > 0.9


@pytest.mark.parametrize("lengths", ["uneven", "some giants"])
def test_products_of_rows_of_any_length(lengths: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, Q = (rng.standard_normal((n, 16), dtype=np.float32) for n in (4000, 200))
    some = np.where(np.arange(len(X)) % 100 == 7, 30.0, 1.0)
    times = some if lengths == "some giants" else rng.uniform(0.2, 5, len(X))
    X *= times[:, np.newaxis].astype(np.float32)
    index = build("grouped", X, far=False, metric="ip", n_groups=120, n_bits=64)
    found = index.search(Q, 10)
    assert recall_of(found, X, Q, "ip") > 0.95
    assert found.effort is not None
    assert found.effort.entries.mean() < len(X) / 2
    index.save(tmp_path / "a.dh")
    assert same(Index.open(tmp_path / "a.dh").search(Q, 10), found)


def test_hashing_neighbors() -> None:
    X = blobs(200)
    graph = HashingNeighbors(sketch="signs", n_neighbors=3, random_state=0).fit_transform(X)
    assert graph.shape == (200, 200)
    assert graph.diagonal().tolist() == [0] * 200
    near = np.argsort(true_distances(X, X, "l2"), axis=1)[:, :4]
    assert np.mean(np.sort(graph.indices.reshape(-1, 4)) == np.sort(near)) > 0.97


# --- poor rows ----------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "X",
    [
        np.array([[1.0], [2.0]]),
        np.zeros((2, 3)),
        np.ones((50, 4), np.uint8),
        np.arange(40.0)[:, np.newaxis] - 7,
        np.tile(np.arange(33.0)[:, np.newaxis], (1, 3)) * [1, 0, 0] + [0, 5, -3],
        np.eye(3),
        1e6 + np.arange(60.0).reshape(20, 3),
    ],
    ids=["two rows", "two zeros", "all equal", "one feature", "constant", "eye", "far away"],
)
def test_poor_rows(kind: str, metric: str, X: NDArray[Any], tmp_path: Path) -> None:
    groups: dict[str, Any] = {"n_groups": min(len(X), 5)} if kind == "grouped" else {}
    index = build(kind, X, metric=metric, **groups)
    index.add(X[:1])
    index.save(tmp_path / "a")
    whole = np.concatenate([X, X[:1]]).astype(np.float32)
    k = min(4, len(whole))
    expected = np.sort(true_distances(whole[:3], whole, metric), axis=1)[:, :k]
    for one in (index, looking(Index.open(tmp_path / "a"))):
        found = one.search(whole[:3], k)
        np.testing.assert_allclose(found.distances, expected, rtol=1e-4, atol=1e-5)
        assert all(len(set(ids)) == k for ids in found.ids.tolist())


@every_kind
def test_bad_input(kind: str) -> None:
    X = rows(60)
    index = build(kind, X)
    bare = build(kind, X, keep_vectors=False)
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: Index.build(X, sketch="sign"), "sketch must be 'auto' or 'codes' or 'signs'"),  # type: ignore[arg-type]
        (lambda: Index.build(X, sketch="signs", kind="multi"), "kinds flat and grouped; for"),
        (lambda: Index.build(X, sketch="signs", kind="cloudy"), "kind must be"),  # type: ignore[arg-type]
        (lambda: Index.build(X, sketch="signs", hasher="itq"), "takes no hasher"),
        (lambda: Index.build(X, sketch="signs", n_tables=2), "n_tables is for the multi kind"),
        (lambda: Index.build(X, sketch="signs", n_groups=61), "n_groups must be"),
        (lambda: Index.build(X, sketch="signs", kind="flat", n_groups=6), "n_groups is for the gr"),
        (lambda: Index.build(X, sketch="signs", n_bits=12), "a multiple of 8 for signs, got 12"),
        (lambda: Index.build(X, sketch="signs", n_bits=2048), "n_bits must be .* 1024"),
        (lambda: Index.build(X[:1], sketch="signs"), "at least 2 rows, got n_samples = 1"),
        (lambda: Index.build(X[:0], sketch="signs"), "X is empty"),
        (lambda: Index.build(np.full((3, 2), np.nan), sketch="signs"), "finite"),
        (lambda: Index.build(np.full((3, 2), 1e30), sketch="signs"), "too large"),
        (lambda: index.search(X, candidates=0), "candidates must be"),
        (lambda: index.search(X, recall=0), "recall must be"),
        (lambda: index.search(X, recall=1.01), "recall must be at most 1"),
        (lambda: index.search(X, recall=np.nan), "recall must be"),
        (lambda: Index.build(X, sketch="codes").search(X, recall=0.9), "recall is for an index"),
        (lambda: index.search(X, metric="ip", candidates=9), "candidates and probes work by 'l2'"),
        (
            lambda: index.search(X, metric="ip", rerank=None),
            "rerank must be 'exact' with metric='ip'",
        ),
        (lambda: bare.search(X, metric="ip"), "metric must be 'l2' here, got 'ip'"),
        (lambda: index.tune(X, metric="ip"), "metric must be 'l2' here, got 'ip'"),
        (lambda: index.search(X, rerank="asymmetric"), "rerank must be 'auto' or 'exact'"),
        (lambda: index.search(X * np.float32(1e25)), "too large"),
        (lambda: index.search(X[:, :2]), f"2 features, the index {D}"),
        (lambda: index.near_duplicates(1), "pass rerank='exact'"),
        (lambda: index.hasher, "keeps signs, not codes of a hasher"),
        (lambda: bare.search(X, rerank="exact"), "keeps no vectors"),
        (lambda: bare.search(X, exclude_self=True), "give the ids of the queries"),
        (lambda: bare.neighbors_graph(2), "keep_vectors=True"),
        (lambda: bare.near_duplicates(1.0), "keep_vectors=True|rerank='exact'"),
        (lambda: bare.get([0]), "keeps no vectors"),
        (lambda: index.search(X, radius=np.nan), "radius must be a number"),
        (lambda: index.add(X[:, :2]), "2 features"),
        (lambda: index.add(np.full((1, D), np.inf)), "finite|infin"),
    ]
    if kind == "flat":
        cases.append((lambda: index.search(X, probes=2), "this one is flat"))
    before = index.search(X, 5)
    for call, message in cases:
        with pytest.raises(InputError, match=message):
            call()
    assert same(index.search(X, 5), before)


# --- on disk ------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("keep_vectors", [True, False])
def test_saved_and_opened(kind: str, keep_vectors: bool, tmp_path: Path) -> None:
    X, Q = rows(60), rows(5, seed=3)
    index = build(kind, X[:50], keep_vectors=keep_vectors, far=False)
    index.add(X[50:])
    index.remove([3, 52])
    path = tmp_path / "a"
    index.save(path)
    manifest = json.loads((path / "manifest.json").read_bytes())
    assert (manifest["version"], manifest["content"]["sketch"]) == (2, "signs")
    assert all(one["checked"] for one in entries_in(manifest["content"]["sketch_settings"]))
    verify(path)
    for mmap in (True, False):
        opened = Index.open(path, mmap=mmap)
        assert same(opened.search(Q, 9), index.search(Q, 9))
        assert opened.reason == index.reason
        assert opened._state.sketch.about == index._state.sketch.about
    other = Index.open(path)
    opened.add(X[:3], ids=[70, 71, 72])
    opened.compact()
    opened.verify()
    assert opened.info()["segments"] == [61]
    assert other.refresh()
    assert same(other.search(Q, 9), opened.search(Q, 9))
    index.add(X[:3], ids=[70, 71, 72])
    assert same(index.search(Q, 9), opened.search(Q, 9))
    for one in (index, opened):
        again = pickle.loads(pickle.dumps(one))
        assert same(again.search(Q, 9), one.search(Q, 9))
    with pytest.raises(FileError, match="is an index that keeps signs, not codes"):
        load_hasher(path)


@with_two_groups
def test_built_piece_by_piece(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, Q = blobs(600), blobs(20, seed=1)
    whole = build(kind, X)
    monkeypatch.setattr(placing, "PIECE_BYTES", 20_000)
    index = build(kind, X, path=tmp_path / "a")
    assert len(index.info()["segments"]) > 2
    assert same(index.search(Q, 10), whole.search(Q, 10))
    index.compact()
    assert same(index.search(Q, 10), whole.search(Q, 10))
    ours, theirs = index._state.segments[0].columns, whole._state.segments[0].columns
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in theirs)
    index.verify()


def entries_in(tree: Any) -> list[dict[str, Any]]:
    if isinstance(tree, dict):
        return [tree] if "file" in tree else [e for v in tree.values() for e in entries_in(v)]
    return []


def stored(index: Index) -> dict[str, Any]:
    from densehash.index.state import content_of

    return content_of(index._state)


def setting(name: str, make: Callable[[Any], Any]) -> Edit:
    def edit(content: dict[str, Any]) -> None:
        part = content["sketch_settings"]
        part[name] = make(part[name])

    return edit


def reaching(**parts: Any) -> Edit:
    def edit(content: dict[str, Any]) -> None:
        settings = content["settings"]
        content["settings"] = {**settings, "reach": {**settings["reach"], **parts}}

    return edit


def put(at: int, value: Any) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def make(array: NDArray[Any]) -> NDArray[Any]:
        array = array.copy()
        array[at] = value
        return array

    return make


ATTACKS: dict[str, tuple[Edit, str]] = {
    "no such sketch": (lambda c: c.update(sketch="cloudy"), "no sketch 'cloudy'"),
    "sketch is a list": (lambda c: c.update(sketch=["signs"]), "no sketch"),
    "multi": (lambda c: c.update(kind="multi", kind_settings={"n_tables": None}), "flat or grou"),
    "flat, of many groups": (lambda c: c.update(kind="flat", kind_settings={}), "must be|once"),
    "no settings": (lambda c: c.pop("sketch_settings"), "cannot be read"),
    "settings are a list": (lambda c: c.update(sketch_settings=[]), "cannot be read"),
    "odd bits": (lambda c: c.update(n_bits=33), "multiple of 8"),
    "other bits": (lambda c: c.update(n_bits=64), "whole must be int8"),
    "other width": (lambda c: c.update(n_features=7), "must be"),
    "copies": (setting("groups_a_row", lambda _: 3), "groups_a_row must be"),
    "more copies": (setting("groups_a_row", lambda _: 2), "signs must be|entry_rows must be"),
    "NaN spread": (reaching(spread=float("nan")), "spread must be"),
    "stop of text": (reaching(stop="far"), "stop must be"),
    "no probes": (reaching(probes=0), "probes must be"),
    "recall of 2": (reaching(recall=2), "recall must be"),
    "expected of none": (reaching(expected=None), "expected recall must be"),
    "reach is a list": (lambda c: c.update(settings={**c["settings"], "reach": []}), "cannot be"),
    "reaches are a number": (lambda c: c.update(settings={**c["settings"], "reaches": 1}), "read"),
    "another shift": (setting("shift", put(0, 99)), "another shift"),
    "infinite shift": (setting("shift", put(0, np.inf)), "shift"),
    "NaN steps": (changed("decoder", steps=np.full(32, np.nan, np.float32)), "steps of a dec"),
    "steps of zero": (changed("decoder", steps=np.zeros(32, np.float32)), "steps of a"),
    "long steps": (changed("decoder", steps=np.ones(33, np.float32)), "steps must be"),
    "NaN alpha": (changed("decoder", alpha=float("nan")), "alpha must be"),
    "no beta": (changed("decoder", beta=0), "beta must be"),
    "float matrix": (changed("decoder", whole=np.zeros((32, D))), "whole must be int8"),
    "falling limits": (column("entry_limits", put(3, 10**9)), "do not rise"),
    "negative limits": (column("entry_limits", put(1, -5)), "do not rise"),
    "limits too low": (column("entry_limits", put(-1, 0)), "do not rise"),
    "short limits": (column("entry_limits", lambda a: a[1:]), "entry_limits must be"),
    "few rows": (column("entry_rows", lambda a: a[:-1]), "entry_rows must be"),
    "rows of another type": (column("entry_rows", lambda a: a.astype(np.int64)), "entry_rows"),
    "few blocks": (column("signs", lambda a: a[:-1]), "signs must be"),
    "narrow blocks": (column("signs", lambda a: a[:, :-128]), "signs must be"),
    "kind's arrays": (lambda c: c["segments"][0].update(ranks=np.arange(60)), "known are"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_does_not_fit_is_refused(attack: str) -> None:
    check_refused(build("grouped", rows(60)), *ATTACKS[attack])


@with_two_groups
def test_rows_beyond_the_last_and_wild_signs(kind: str) -> None:
    """What is each row's own is not looked at when it is opened; a search stays inside."""
    from densehash.index.state import state_from

    Q = rows(6, seed=3)
    content = stored(build(kind, rows(60)))
    part = dict(content["segments"][0])
    wild = {**part, "entry_rows": np.full_like(part["entry_rows"], 2**32 - 1)}
    index = looking(Index(state_from({**content, "segments": [wild]})))
    with pytest.raises(FileError, match="damaged: a row number is beyond the last row"):
        index.search(Q, 5)
    index.remove([3])
    with pytest.raises(FileError, match="too few entries, or too many"):
        index.compact()
    for value in (0, 0x7F, 0x80, 0xFF):
        wild = {**part, "signs": np.full_like(part["signs"], value)}
        index = looking(Index(state_from({**content, "segments": [wild]})))
        for rerank in ("exact", None):
            found = index.search(Q, 60, rerank=rerank)
            assert all(len(set(ids)) == 60 for ids in found.ids.tolist())
    twins = {**part, "entry_rows": np.zeros_like(part["entry_rows"])}
    index = looking(Index(state_from({**content, "segments": [twins]})))
    index.search(Q, 5)


def test_damage_is_found(tmp_path: Path) -> None:
    build("grouped", rows(900)).save(tmp_path / "a")
    for name in ("signs", "entry_rows", "entry_limits", "decoder.whole", "shift"):
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        file = min((tmp_path / "b").glob(f"*.{name}.npy"))
        data = bytearray(file.read_bytes())
        data[-1] ^= 64
        file.write_bytes(data)
        with pytest.raises(FileError, match=name.replace(".", r"\.")):
            verify(tmp_path / "b")


def test_a_reader_of_version_1_refuses_it(tmp_path: Path) -> None:
    """Its version says so, before anything else is looked at."""
    build("flat", rows(60)).save(tmp_path / "a")
    manifest = tmp_path / "a" / "manifest.json"
    tree = json.loads(manifest.read_bytes())
    assert tree["version"] == 2
    tree["version"] = 4
    manifest.write_bytes(signed(tree))
    with pytest.raises(FileError, match="version 4 of the format, and .* reads version 1, 2 and 3"):
        Index.open(tmp_path / "a")


@pytest.mark.parametrize("groups_a_row", [1, 2])
@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_the_folder_is_what_the_format_says(metric: str, groups_a_row: int, tmp_path: Path) -> None:
    """Estimates from the files alone, by docs/format.md, are those of a search."""
    X, Q = blobs(400), blobs(5, seed=1)
    index = build(
        "grouped", X, n_bits=64, metric=metric, groups_a_row=groups_a_row, path=tmp_path / "a"
    )
    content = json.loads((tmp_path / "a" / "manifest.json").read_bytes())["content"]

    def read(entry: dict[str, Any]) -> NDArray[Any]:
        array: NDArray[Any] = np.load(tmp_path / "a" / entry["file"])
        return array

    of_sketch, (segment,) = content["sketch_settings"], content["segments"]
    decoder, bits = of_sketch["decoder"], content["n_bits"]
    matrix = read(decoder["whole"]).astype(float) * read(decoder["steps"])[:, np.newaxis]
    shift = read(of_sketch["shift"])
    centers = read(content["kind_settings"]["centers"])[:, : len(shift)]
    limits, numbers = read(segment["entry_limits"]), read(segment["entry_rows"])
    groups = np.repeat(np.arange(len(centers)), np.diff(limits))
    blocks = read(segment["signs"])
    e = np.arange(len(numbers))
    block, place = blocks[e // 32], e % 32
    halves = block[:, : 4 * bits].reshape(len(e), bits // 4, 16)[e, :, place % 16]
    fours = np.where(place[:, np.newaxis] < 16, halves & 15, halves >> 4)
    signs = (fours[:, :, np.newaxis] >> np.arange(4) & 1).reshape(len(e), bits) * 2.0 - 1
    factors = np.ascontiguousarray(block[:, 4 * bits :]).view("<i2").reshape(len(e), 2, 32)
    a, b = factors[e, 0, place] * decoder["alpha"], factors[e, 1, place] * decoder["beta"]
    assert sorted(numbers.tolist()) == sorted([*range(400)] * groups_a_row)
    hits = index.search(Q, 400, rerank=None)
    for q, ids, distances in zip(Q.astype(float), hits.ids, hits.distances, strict=True):
        if metric == "l2":
            q = q - shift  # noqa: PLW2901
            near = np.square(q - centers[groups]).sum(axis=1)
        else:
            near = -2 * (centers[groups] @ q + shift @ q)
        estimates = near + (a - signs @ (matrix @ q)) / b
        found = distances.astype(float) ** 2 if metric == "l2" else 2 * distances.astype(float)
        both = np.array(
            [np.abs(estimates[numbers == name] - found[at]).min() for at, name in enumerate(ids)]
        )
        assert both.mean() < 0.02 * np.abs(estimates - np.median(estimates)).mean()


def test_auto_takes_signs_only_where_they_go() -> None:
    X = rows(30)
    assert Index.build(X).sketch == "signs"
    for told in ({"kind": "multi"}, {"hasher": "lsh", "n_bits": 8}, {"sketch": "codes"}):
        assert Index.build(X, **told).sketch == "codes"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32])
def test_queries_of_any_type_and_order_find_the_same(dtype: Any, order: Any) -> None:
    X = (10 * blobs(300)).round().astype(np.float32)
    index = Index.build(X, sketch="signs", random_state=0)
    expected = index.search(X[:7].tolist(), 5)
    hits = index.search(np.asarray(X[:7], dtype, order=order), 5)
    np.testing.assert_array_equal(hits.ids, expected.ids)
    np.testing.assert_array_equal(hits.distances, expected.distances)
    assert hits.effort is not None
    assert (hits.effort.vectors > 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_numbers_that_do_not_fit_are_named(bad: float) -> None:
    index, Q = Index.build(blobs(300), sketch="signs"), blobs(3).astype(np.float64)
    Q[2, 1] = bad
    with pytest.raises(InputError, match="2"):
        index.search(Q, 5)


def test_a_recall_of_1_compares_every_row_even_where_less_was_enough_for_tune() -> None:
    X = blobs(600)
    index = Index.build(X, sketch="signs", kind="grouped", n_groups=30, random_state=0)
    index.tune(X[:2], recall=1, k=1)
    effort = index.search(X[:5], 3, recall=1).effort
    assert effort is not None
    assert (effort.vectors == 600).all()


def test_recall_of_large_files_is_measured_by_some_queries_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.random.default_rng(0).standard_normal((2500, 8), dtype=np.float32)
    told: dict[str, Any] = {"random_state": 0, "n_bits": 16}
    given_back: list[Any] = []
    monkeypatch.setattr(sign_search, "give_back", given_back.append)
    small = Index.build(X, path=tmp_path / "small.dh", **told)
    assert not given_back
    monkeypatch.setattr(sign_search, "_SMALL_MAPS", 1000)
    large = Index.build(X, path=tmp_path / "large.dh", **told)
    assert len(given_back) > 100
    assert large._state.settings == small._state.settings
