"""One suite over all kinds of index: what is found, against a model that looks at every row."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import index_cases
import numpy as np
import pytest
from index_cases import (
    ID_TYPES,
    KINDS,
    METRICS,
    RERANKS,
    D,
    build,
    check_hits,
    check_ranges,
    compare,
    every_id_type,
    every_kind,
    everywhere,
    hasher,
    model_of,
    names,
    no_fsync,
    pair,
    rows,
    same,
)
from index_model import Model
from numpy.typing import NDArray
from sklearn.neighbors import kneighbors_graph
from soak import SOAK

from densehash import asymmetric
from densehash.choices import MetricName, Rerank
from densehash.hashers import DSH, LSH
from densehash.index import Hits, Index
from densehash.truth import nearest

KEPT: dict[str, tuple[bool | str, Any]] = {  # as asked for, and the type of the rows
    "own type": (True, np.float64),
    "float32": ("float32", np.uint8),
    "float16": ("float16", np.float32),
    "uint8": (True, np.uint8),
    "int8": ("int8", np.float32),
    "none": (False, np.float32),
}

Q = rows(7, seed=5)
Q[3] = rows(60)[7]  # in the index, and there twice
Q[4] = 0


def spread_over(
    kind: str, X: NDArray[Any], ids: list[Any], folder: Path, **options: Any
) -> dict[str, Index]:
    """The same rows in indexes that came about in other ways."""
    half, n = len(X) // 2, len(X)
    others = np.arange(1, n, 3)  # are something else at first
    found = {"built": build(kind, X, ids, **options)}

    def start() -> Index:
        index = build(kind, X, ids, **options)
        index.remove(ids[half:])
        return index

    index = found["added"] = start()
    for first in range(half, n, 7):
        index.add(X[first : first + 7], ids=ids[first : first + 7])

    index = start()
    index.add(X[half:][::-1] + 0, ids=ids[half:][::-1])
    index.update([ids[at] for at in others], X[others][::-1])
    index.update([ids[at] for at in others], X[others])

    with no_fsync():
        index.save(folder / "compacted")
        index = found["compacted"] = Index.open(folder / "compacted")
        index.compact()
        found["added"].save(folder / "added")
        index = found["opened"] = Index.open(folder / "added")
        index.remove([ids[at] for at in others])
        index.add(X[others[:5]], ids=[ids[at] for at in others[:5]])
        index.add(X[others[5:]], ids=[ids[at] for at in others[5:]])
    return found


# A short run takes metrics and types of ids in turns, so that each kind meets all of them and every
# type of rows, each of these with two metrics; `make soak` tries all with all.
MIXED = [
    (kind, ID_TYPES[(turn + at + a + b) % 2], metric, keep)
    for turn in range(2 if SOAK > 1 else 1)
    for at, kind in enumerate(KINDS)
    for a, metric in enumerate(METRICS)
    for b, keep in enumerate(KEPT)
    if SOAK > 1 or (at + a + b) % 3
]


@pytest.mark.parametrize(("kind", "id_type", "metric", "keep"), MIXED)
def test_answers_are_those_of_the_model_wherever_rows_lie(
    kind: str, id_type: str, metric: str, keep: str, tmp_path: Path
) -> None:
    keep_vectors, dtype = KEPT[keep]
    X, ids = rows(60, dtype=dtype), names(60, id_type)
    indexes = spread_over(kind, X, ids, tmp_path, metric=metric, keep_vectors=keep_vectors)
    index = indexes["built"]
    model = model_of(index)
    model.put(ids, X)
    asked: list[dict[str, Any]] = []
    for rerank in RERANKS[keep == "none" :]:
        for k, candidates, probes in ((10, 60, 12), (70, 99, 8), (5, 12, 2), (8, 3, 3)):
            asked.append({"k": k, "rerank": rerank, "candidates": candidates})
            if kind == "grouped":
                asked[-1]["probes"] = probes
    for number, one in enumerate(asked):
        first = compare(index, model, Q, **one)
        for name, other in list(indexes.items())[1 + number % 2 :: 2]:
            assert same(other.search(Q, **one), first), name
    for other in indexes.values():
        assert other.ids.tolist() == model.ids
        assert len(other) == 60


@every_kind
@pytest.mark.parametrize(
    ("bits", "metric"),
    [(1, "l2"), (13, "cosine"), (64, "ip"), (64, "l2"), (256, "ip"), (256, "l2"), (300, "cosine")],
)
def test_real_numbers_and_codes_of_any_length(kind: Any, bits: int, metric: Any) -> None:
    rng = np.random.default_rng(bits)
    X = rng.standard_normal((700, 20)).astype(np.float32) + 1
    X[::7] = X[3]
    asked = np.concatenate([rng.standard_normal((20, 20)), X[:5]]).astype(np.float32)
    settings: dict[str, Any] = {"n_groups": 24} if kind == "grouped" else {}
    learnt = DSH(bits, random_state=0).fit(X) if bits != 300 else LSH(bits).fit(X)
    index = Index.build(X, hasher=learnt, kind=kind, metric=metric, random_state=0, **settings)
    model = model_of(index)
    model.put(range(700), X)
    probes: dict[str, Any] = {"probes": 24} if kind == "grouped" else {}
    for rerank in RERANKS:
        compare(index, model, asked, 30, rerank=rerank, exact=rerank is None, **probes)
    truth = nearest(asked, X, k=10, metric=metric)
    found = index.search(asked, 10, candidates=700, **probes)
    far = model.distances(asked, "exact", metric)
    expected = np.sort(np.take_along_axis(far, truth, axis=1), axis=1)
    np.testing.assert_allclose(found.distances, expected, rtol=1e-4, atol=1e-5)


@every_kind
@every_id_type
@pytest.mark.parametrize("keep", ["own type", "uint8"])
def test_ties_are_ordered_by_id(kind: Any, id_type: str, keep: str) -> None:
    X = np.repeat(rows(3, seed=2, dtype=KEPT[keep][1]), 40, axis=0)
    ids = names(120, id_type)
    index = build(kind, X, ids)
    for start in range(0, 120, 30):
        index.update(ids[start : start + 9], X[start : start + 9])
    metric: Any
    for rerank in RERANKS:
        for metric in METRICS if rerank == "exact" else ("l2",):
            found = index.search(X[:1], 40, rerank=rerank, metric=metric, candidates=120)
            if metric != "ip":
                assert found.ids[0].tolist() == sorted(ids[:40])
            assert len(set(found.distances[0].tolist())) == 1 or metric == "ip"
    found = index.search(X[:1], 15, rerank=None)  # cut inside a tie
    assert found.ids[0].tolist() == sorted(ids[:40])[:15]


@every_kind
def test_candidates_that_tie_are_chosen_by_id(kind: Any) -> None:
    """All codes are the same: the rows that are re-ranked are those with the smallest ids."""
    X = rows(50, seed=3)
    X = X[np.any(X[0] != X, axis=1)]
    one_bit = LSH(1, random_state=0).fit(X + 1000)  # all rows on one side
    ids = np.random.default_rng(0).permutation(len(X))
    index = Index.build(
        X, ids=ids, hasher=one_bit, kind=kind, random_state=0,
        n_groups=9 if kind == "grouped" else None,
    )  # fmt: skip
    assert np.unique(one_bit.transform(X)).size == 1
    probes: dict[str, Any] = {"probes": 9} if kind == "grouped" else {}
    found = index.search(X[:3], 5, candidates=5, **probes)
    assert {frozenset(row) for row in found.ids.tolist()} == {frozenset(range(5))}


@every_kind
def test_fewer_rows_than_k(kind: str) -> None:
    for id_type, missing in (("int64", -1), ("string", None)):
        index, model = pair(kind, id_type, n=3)
        for rerank in RERANKS:
            found = compare(index, model, Q, 5, rerank=rerank)
            assert found.ids[:, 3:].tolist() == [[missing] * 2] * len(Q)
        index.remove(index.ids)
        empty = model_of(index)
        for rerank in RERANKS:
            found = compare(index, empty, Q, 5, rerank=rerank)
            assert set(found.ids.ravel().tolist()) == {missing}
            ranges = index.search(Q, radius=3, rerank=rerank)
            check_ranges(ranges, empty.ranges(Q, 3, rerank=rerank), id_type)
        assert index.ids.tolist() == []
        assert len(index) == 0
        assert len(index.near_duplicates(3).ids) == 0


# --- filters ------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize(
    ("id_type", "share"), [("int64", 0.02), ("string", 0.02), ("string", 0.2), ("int64", 0.9)]
)
def test_a_filter_in_all_its_forms(kind: str, id_type: str, share: float, tmp_path: Path) -> None:
    indexes = spread_over(kind, rows(60), names(60, id_type), tmp_path)
    rng = np.random.default_rng(0)
    model = model_of(indexes["built"])
    model.put(names(60, id_type), rows(60))
    chosen = {name for name in model.ids if rng.random() < share}
    more: list[dict[str, Any]] = [{}]
    if kind == "grouped":
        more = [{"probes": 1}, {"probes": 3}, {"probes": 12}]
    if kind == "multi":
        more.append({"probes": 1})
    unknown = [999_999] if id_type == "int64" else ["nobody"]
    for name, index in indexes.items():
        mask = np.array([one in chosen for one in index.ids.tolist()])
        forms: list[Any] = [
            mask,
            mask.tolist(),
            [*chosen, *unknown],
            np.array([*chosen, *unknown], dtype=None if id_type == "int64" else object),
            lambda ids: np.array([one in chosen for one in ids.tolist()]),
            lambda ids: [one in chosen for one in ids.tolist()],
        ]
        for one in more:
            for rerank in RERANKS:
                asked = {"rerank": rerank, "candidates": 60, **one}
                answers = [index.search(Q, 12, filter=form, **asked) for form in forms]
                assert all(same(answers[0], answer) for answer in answers), name
                found = (answers[0].ids != (-1 if id_type == "int64" else None)).sum(axis=1)
                assert (found == min(12, len(chosen))).all()
                if "probes" not in one or kind != "multi":
                    expected = model.hits(Q, 12, match=chosen.__contains__, **asked)
                    exact = rerank != "asymmetric"
                    check_hits(answers[0], expected, 12, id_type, exact=exact)


@every_kind
def test_a_filter_of_nothing(kind: str) -> None:
    index, _ = pair(kind)
    for nothing in ([], np.array([], np.int64), np.zeros(60, np.bool_), [77_777]):
        found = index.search(Q, 3, filter=nothing)
        assert (found.ids == -1).all()
        assert len(index.search(Q, radius=5.0, filter=nothing).ids) == 0


@every_id_type
def test_a_filter_cannot_change_ids(id_type: str) -> None:
    index, model = pair("flat", id_type)

    def rude(ids: NDArray[Any]) -> NDArray[np.bool_]:
        ids[:] = ids[::-1].copy()
        return np.ones(len(ids), np.bool_)

    with pytest.raises(ValueError, match="read-only"):
        index.search(Q, 3, filter=rude)
    compare(index, model, Q, 3)


# --- radius -------------------------------------------------------------------------------


@every_kind
@every_id_type
def test_all_within_a_radius(kind: str, id_type: str, tmp_path: Path) -> None:
    X, ids = rows(60), names(60, id_type)
    indexes = spread_over(kind, X, ids, tmp_path)
    model = model_of(indexes["built"])
    model.put(ids, X)
    chosen = set(model.ids[::2])
    for rerank, radii in ((None, (0, 1, 4, 16, 99)), ("exact", (-1.0, 0.0, 7.1, 11.3, np.inf))):
        for radius in radii:
            for names_of in (None, sorted(chosen)):
                match = None if names_of is None else chosen.__contains__
                asked: dict[str, Any] = {"rerank": rerank, "match": match}
                told: dict[str, Any] = {"rerank": rerank, "filter": names_of}
                expected = model.ranges(Q, radius, **asked)
                for index in indexes.values():
                    check_ranges(index.search(Q, radius=radius, **told), expected, id_type)
                    hits = index.search(Q, 4, radius=radius, **told, **everywhere(kind))
                    check_hits(hits, model.hits(Q, 4, radius=radius, **asked), 4, id_type)
    far = model.distances(Q, "asymmetric", "l2")
    radius = float(np.median(far)) + 1e-4
    expected = model.ranges(Q, radius, rerank="asymmetric")
    for index in indexes.values():
        found = index.search(Q, radius=radius, rerank="asymmetric")
        check_ranges(found, expected, id_type, exact=False)


@every_kind
@pytest.mark.parametrize("metric", METRICS)
def test_few_candidates_become_more_where_all_are_near(kind: str, metric: str) -> None:
    index, model = pair(kind, metric=metric)
    far = np.sort(model.distances(Q, "exact", metric), axis=1)
    for n in (1, 2, 10, 40):
        radius = float(far[:, 30].mean())
        expected = model.ranges(Q, radius, candidates=n, probes=8)
        found = index.search(Q, radius=radius, candidates=n)
        check_ranges(found, expected, "int64", exact=metric != "cosine")


# --- self ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "keep"),
    [
        (kind, keep)
        for at, kind in enumerate(KINDS)
        for b, keep in enumerate(KEPT)
        if SOAK > 1 or (at + b) % 2
    ],
)
def test_a_row_is_not_its_own_neighbour(kind: str, keep: str, tmp_path: Path) -> None:
    keep_vectors, dtype = KEPT[keep]
    id_type = "string" if keep in ("own type", "none") else "int64"
    X, ids = rows(60, dtype=dtype), names(60, id_type)
    indexes = spread_over(kind, X, ids, tmp_path, keep_vectors=keep_vectors)
    model = model_of(indexes["built"])
    model.put(ids, X)
    asked = np.concatenate([X[:10], X[:2] + 1])
    own = [*ids[:10], ids[20], ids[21]]  # the last two have nothing to do with their queries
    radius = {None: 5, "exact": 9.1, "asymmetric": 3.0}
    for rerank in RERANKS[keep == "none" :]:
        exact = rerank != "asymmetric"
        for mine in (True, own):
            for k in (3, 60):
                told: dict[str, Any] = {"rerank": rerank, "candidates": 60, "own": mine}
                told |= everywhere(kind)
                first = compare(indexes["built"], model, asked, k, **told)
                told["exclude_self"] = told.pop("own")
                for name, index in indexes.items():
                    assert same(index.search(asked, k, **told), first), name
            expected = model.ranges(asked, radius[rerank], rerank=rerank, own=mine)
            for index in indexes.values():
                found = index.search(asked, radius=radius[rerank], rerank=rerank, exclude_self=mine)
                check_ranges(found, expected, id_type, exact=exact)


@every_kind
def test_a_query_equals_a_row_only_where_it_does(kind: str) -> None:
    """3.7 is not 3, though it would be if it were kept as a whole number."""
    X = rows(30, dtype=np.uint8)
    index = build(kind, X)
    expected = index.search(X[:4] + 0.5, 3)
    assert same(index.search(X[:4] + 0.5, 3, exclude_self=True), expected)
    for odd in (-1.0, 1e6, 1e15):
        assert same(index.search(X[:4] + odd, 3, exclude_self=True), index.search(X[:4] + odd, 3))
    small = build(kind, rows(30), keep_vectors="float16")
    large = np.full((2, D), 1e6)
    assert same(small.search(large, 3, exclude_self=True), small.search(large, 3))


# --- one answer ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "keep"),
    [
        (kind, keep)
        for at, kind in enumerate(KINDS)
        for b, keep in enumerate(("own type", "float16", "uint8", "none"))
        if SOAK > 1 or (at + b) % 2
    ],
)
def test_threads_batches_and_types_of_queries_change_nothing(
    kind: str, keep: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_vectors, dtype = KEPT[keep]
    n = 2000
    X = rows(n, seed=4, dtype=dtype)
    index = build(kind, X, keep_vectors=keep_vectors)
    index.remove(range(0, n, 11))
    index.add(X[:50])
    asked = rows(70, seed=6)
    for rerank in RERANKS[keep == "none" :]:
        for metric in METRICS if rerank == "exact" else ("l2",):
            told: dict[str, Any] = {"rerank": rerank, "metric": metric}
            whole = index.search(asked, 6, n_threads=1, **told)
            for n_threads in (2, 8, None):
                assert same(index.search(asked, 6, n_threads=n_threads, **told), whole)
            some = range(0, len(asked), 4 if SOAK == 1 else 1)
            singles = [index.search(asked[at : at + 1], 6, **told) for at in some]
            joined = Hits(*map(np.concatenate, zip(*singles, strict=True)))
            assert same(joined, Hits(*(part[some] for part in whole)))
            for other in (np.uint8, np.int16, np.float16):
                assert same(index.search(asked.astype(other), 6, **told), whole)
            for precise in (asked.astype(np.float64), asked.astype(np.int64), asked.tolist()):
                found = index.search(precise, 6, **told)
                if rerank == "asymmetric":  # margins are rounded otherwise
                    np.testing.assert_allclose(found.distances, whole.distances, atol=1e-5)
                else:
                    assert same(found, whole)
            assert same(index.search(np.asfortranarray(asked), 6, **told), whole)
            with monkeypatch.context() as patch:
                patch.setattr("densehash.index.search._BATCH", 1)
                assert same(index.search(asked, 6, **told), whole)
    ranges = index.search(asked, radius=2, rerank=None, n_threads=1)
    assert same(index.search(asked, radius=2, rerank=None, n_threads=8), ranges)


@every_kind
def test_a_source_is_as_good_as_an_array(kind: str, tmp_path: Path) -> None:
    X = rows(60)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    index, other = build(kind, X), build(kind, mapped)
    other.add(mapped[:5])
    index.add(X[:5])
    assert same(index.search(X[:9], 5), other.search(mapped[:9], 5))


def test_the_rows_that_were_given_may_change_later() -> None:
    X = rows(60)
    for kind in KINDS:
        mine = X.copy()
        ids = np.arange(60)
        index = build(kind, mine, ids)
        more = X[:5].copy()
        index.add(more)
        before = index_cases.asked_of(index)
        for array in (mine, more, ids):
            array[:] = 0
        assert index_cases.asked_of(index) == before
        found = index.ids
        if found.flags.writeable:
            found[:] = 3
        assert index_cases.asked_of(index) == before


def test_probes_of_the_multi_kind_look_at_less() -> None:
    """Among rows that were looked up, the answers are right; and there are always k."""
    X = rows(2000, seed=8)
    index = build("multi", X, n_tables=2)
    exact = index.search(Q, 5, candidates=2000)
    found = index.search(Q, 5, probes=1, candidates=2000)
    assert (found.ids >= 0).all()
    assert (found.distances >= exact.distances).all()
    assert not same(found, exact)
    assert same(index.search(Q, 5, probes=2**8, candidates=2000), exact)


def test_asymmetric_distances() -> None:
    for kind in KINDS:
        index, model = pair(kind, keep_vectors=False)
        found = index.search(Q, 60, candidates=60)
        codes = hasher().transform(rows(60))
        far = asymmetric.distances(hasher().project(Q), codes)
        np.testing.assert_allclose(found.distances, np.sort(far, axis=1), rtol=1e-6, atol=1e-6)
        compare(index, model, Q, 60, rerank="asymmetric", candidates=60)


# --- all pairs ----------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("mode", ["connectivity", "distance"])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_the_graph_is_that_of_scikit_learn(kind: str, mode: Any, dtype: Any) -> None:
    X = np.random.default_rng(0).permutation(256)[:180].reshape(60, 3)  # no ties to speak of
    X = (X * [[1, 1, 1]]).astype(dtype)
    learnt = LSH(8, random_state=0).fit(X)
    index = build(kind, X, hasher=learnt)
    index.remove([4, 5, 6])
    index.add(X[4:7], ids=[4, 5, 6])
    probes = everywhere(kind)
    for k in (1, 7, 59):
        graph = index.neighbors_graph(k, mode=mode, candidates=60, **probes)
        expected = kneighbors_graph(X.astype(np.float64), k, mode=mode)
        assert graph.format == "csr"
        assert graph.dtype == expected.dtype
        np.testing.assert_allclose(graph.toarray(), expected.toarray(), rtol=1e-6)
        np.testing.assert_array_equal(graph.indptr, expected.indptr)
    assert (index.neighbors_graph(3, n_threads=2) != index.neighbors_graph(3)).nnz == 0


def test_the_graph_by_buckets_is_what_searches_find() -> None:
    X = rows(60)
    index = build("multi", X)
    graph = index.neighbors_graph(3, mode="distance", probes=2)
    hits = index.search(X, 3, probes=2, exclude_self=index.ids)
    np.testing.assert_allclose(graph.data.reshape(-1, 3), hits.distances, rtol=1e-6)


@every_kind
@every_id_type
@pytest.mark.parametrize("keep", ["own type", "none"])
def test_the_graph_is_in_the_order_of_ids(kind: str, id_type: str, keep: str) -> None:
    X, ids = rows(40), names(40, id_type)
    index = build(kind, X, ids, keep_vectors=KEPT[keep][0])
    index.remove(ids[:3])
    index.update(ids[10:15], X[10:15])
    probes = everywhere(kind)
    graph = index.neighbors_graph(4, mode="distance", candidates=40, **probes)
    own = index.ids
    where = {name: at for at, name in enumerate(ids)}
    asked = X[[where[name] for name in own.tolist()]]
    rerank: Rerank | None = None if keep == "none" else "exact"
    hits = index.search(asked, 4, rerank=rerank, exclude_self=own, candidates=40, **probes)
    for at, columns in enumerate(graph.indices.reshape(-1, 4)):
        assert own[columns].tolist() == hits.ids[at].tolist()
    np.testing.assert_array_equal(graph.data, hits.distances.ravel())


@every_kind
@every_id_type
def test_near_duplicates_are_all_pairs(kind: str, id_type: str) -> None:
    X, ids = rows(60), names(60, id_type)
    for keep_vectors in (True, False):
        index = build(kind, X, ids, keep_vectors=keep_vectors)
        model = model_of(index)
        model.put(ids, X)
        index.remove(ids[:5])
        model.remove(ids[:5])
        index.update(ids[30:36], X[:6])
        model.put(ids[30:36], X[:6])
        for radius in (0, 2, 5, 16):
            check_pairs(index.near_duplicates(radius), model, radius, None)
        if keep_vectors:
            for far in (0.0, 6.3, 99.0):
                found = index.near_duplicates(far, rerank="exact", candidates=60)
                check_pairs(found, model, far, "exact")


def check_pairs(found: Any, model: Model, radius: float, rerank: str | None) -> None:
    expected = model.pairs(radius, rerank)
    assert found.ids.shape == (len(expected), 2)
    assert found.distances.dtype == (np.int32 if rerank is None else np.float32)
    listed = zip(found.distances.tolist(), *found.ids.T.tolist(), strict=True)
    assert list(listed) == expected


# --- tuning -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def blobs() -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((3200, 16), dtype=np.float32)


def recall_of(index: Index, X: NDArray[Any], asked: NDArray[Any], k: int = 10) -> float:
    truth = nearest(asked, X, k=k, metric=cast(MetricName, index.metric))
    found = index.search(asked, k).ids
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(truth, found, strict=True)]))


@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        (kind, metric)
        for at, kind in enumerate(KINDS)
        for a, metric in enumerate(METRICS)
        if SOAK > 1 or a == at % len(METRICS)
    ],
)
def test_tuning_reaches_a_recall(
    kind: Any, metric: Any, blobs: NDArray[np.float32], tmp_path: Path
) -> None:
    X, sample, others = blobs[:2400], blobs[2400:2800], blobs[2800:]
    settings: dict[str, Any] = {"n_groups": 40} if kind == "grouped" else {}
    index = Index.build(
        X, hasher="itq", n_bits=16, kind=kind, metric=metric, random_state=0, **settings
    )
    found = index.tune(sample, recall=0.9)
    assert (index.settings.candidates, index.settings.probes) == (found.candidates, found.probes)
    assert found.recall >= 0.9
    assert (found.probes is None) == (kind != "grouped")
    assert max(found.measured, key=lambda one: one.queries_per_second)[:4] == found[:4]
    assert recall_of(index, X, sample) == pytest.approx(found.recall, abs=0.01)
    assert recall_of(index, X, others) > 0.86
    with no_fsync():
        index.save(tmp_path / "a")
    opened = Index.open(tmp_path / "a")
    assert opened.settings == index.settings
    assert same(opened.search(others, 10), index.search(others, 10))
    # It is set by hand for one search, and by tuning on the disk.
    assert not same(opened.search(others, 10, candidates=10), index.search(others, 10))
    low = opened.tune(sample, recall=0.3)
    assert low.candidates is not None
    assert found.candidates is not None
    assert low.candidates < found.candidates or kind == "grouped"
    assert Index.open(tmp_path / "a").settings == opened.settings != index.settings
    info = opened.info()
    assert (info["candidates"], info["probes"]) == (low.candidates, low.probes)


def test_tuning_finds_the_fewest_candidates(blobs: NDArray[np.float32]) -> None:
    X, asked = blobs[:1000], blobs[2900:3000]
    index = Index.build(X, hasher="itq", n_bits=16, random_state=0)
    n = index.tune(asked, recall=0.8).candidates
    assert n is not None
    truth = nearest(asked, X, k=10)

    def shares(candidates: int) -> NDArray[Any]:
        found = index.search(asked, 10, candidates=candidates).ids
        return np.array([np.isin(a, b).mean() for a, b in zip(truth, found, strict=True)])

    # As many as reach it, and as the mean of so many queries may be off.
    enough = next(m for m in range(10, 1000) if shares(m).mean() >= 0.8)
    error = shares(enough).std() / np.sqrt(len(asked))
    assert shares(n).mean() >= 0.8 + 1.65 * error > shares(n - 1).mean()
