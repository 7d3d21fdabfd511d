"""Searches by another metric than that of the index: they find all there is, or are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_cases import METRICS, RERANKS, names, no_fsync
from index_model import true_distances
from numpy.typing import NDArray

from densehash.choices import MetricName
from densehash.errors import InputError
from densehash.index import Index

N, D, K = 400, 12, 10

KEPT: dict[str, dict[str, Any]] = {
    "signs": {"kind": "flat"},
    "signs in groups": {"n_groups": 30},
    "signs in two groups, float16": {"n_groups": 30, "groups_a_row": 2, "keep_vectors": "float16"},
    "codes": {"hasher": "itq", "n_bits": 32},
    "codes in groups": {"hasher": "itq", "n_bits": 32, "kind": "grouped"},
    "codes in tables": {"hasher": "lsh", "n_bits": 32, "kind": "multi"},
}
BARE: dict[str, dict[str, Any]] = {
    "signs": {"keep_vectors": False},
    "signs in groups": {"keep_vectors": False, "n_groups": 30},
    "signs, int8 with scales": {"keep_vectors": "int8"},
    "codes": {"hasher": "itq", "n_bits": 32, "keep_vectors": False},
    "codes in groups": {"hasher": "itq", "n_bits": 32, "kind": "grouped", "keep_vectors": False},
}

built_for = pytest.mark.parametrize("built_for", METRICS)
asked_by = pytest.mark.parametrize("asked_by", METRICS)


def vectors(n: int, seed: int) -> NDArray[np.float32]:
    """Some of length 0.2, some of length 5, around a point that is not zero."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D)) + 0.5
    return np.asarray(X * rng.uniform(0.2, 5.0, (n, 1)), np.float32)


X, Q = vectors(N, 0), vectors(30, 1)


def recall(found: Any, metric: str, of: NDArray[Any] = X) -> float:
    near = np.argsort(true_distances(Q, of, metric), axis=1, kind="stable")[:, :K]
    return float(np.mean([len({*a} & {*b}) / K for a, b in zip(found, near, strict=True)]))


@built_for
@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_every_metric_of_every_index_that_keeps_vectors(
    kept: dict[str, Any], built_for: Any
) -> None:
    index = Index.build(X, metric=built_for, random_state=0, **kept)
    rows = X.astype(np.float16) if kept.get("keep_vectors") == "float16" else X
    if index.sketch == "signs":
        assert recall(index.search(Q, K, metric=built_for).ids, built_for) >= 0.9
    for asked_by in {*METRICS} - {built_for}:
        found = index.search(Q, K, metric=asked_by)
        assert recall(found.ids, asked_by, rows) == 1.0
        true = np.sort(true_distances(Q, rows, asked_by), axis=1)[:, :K]
        np.testing.assert_allclose(found.distances, true, rtol=1e-4, atol=1e-4)
        one = index.search(Q[3], K, metric=asked_by)
        assert one.ids.tolist() == found.ids[3].tolist()


@built_for
@pytest.mark.parametrize("bare", BARE.values(), ids=BARE)
def test_what_keeps_no_vectors_goes_by_its_own_metric(bare: dict[str, Any], built_for: Any) -> None:
    index = Index.build(X, metric=built_for, random_state=0, **bare)
    found = index.search(Q, K, metric=built_for)
    assert found.ids.tolist() == index.search(Q, K).ids.tolist()
    for asked_by in {*METRICS} - {built_for}:
        way = f"build another index with metric='{asked_by}'.*or"
        with pytest.raises(InputError, match=f"metric must be '{built_for}' here.*{way}"):
            index.search(Q, K, metric=asked_by)


@asked_by
@pytest.mark.parametrize("id_type", ["int64", "string"])
@pytest.mark.parametrize("kept", ["signs in groups", "codes in groups"])
def test_all_that_a_search_can_be_told(
    kept: str, asked_by: Any, id_type: str, tmp_path: Path
) -> None:
    """Filters, radii, own ids, removed rows, several segments, on disk: as few lines tell it."""
    built_for: MetricName = "cosine" if asked_by == "l2" else "l2"
    ids = names(N, id_type)
    index = Index.build(X[:300], ids=ids[:300], metric=built_for, random_state=0, **KEPT[kept])
    with no_fsync():
        index.save(tmp_path / "a.dh")
        index = Index.open(tmp_path / "a.dh")
        index.add(X[300:], ids=ids[300:])
        index.remove(ids[50:90])
    left = [*range(50), *range(90, N)]
    far = true_distances(Q, X[left], asked_by)
    own = [ids[at] for at in left]

    def nearest(query: int, may: Any) -> list[Any]:
        some = [(far[query, at], name) for at, name in enumerate(own) if may(name)]
        return [name for _, name in sorted(some)]

    chosen = {*own[::3]}
    found = index.search(Q, K, metric=asked_by, filter=[*chosen])
    assert found.ids.tolist() == [nearest(at, chosen.__contains__)[:K] for at in range(len(Q))]
    few = index.search(Q, K, metric=asked_by, filter=own[:3])
    assert (few.distances[:, 3:] == np.inf).all()
    assert [{*row} for row in few.ids[:, :3].tolist()] == [{*own[:3]}] * len(Q)
    mine = [nearest(at, lambda _: True)[0] for at in range(len(Q))]
    found = index.search(Q, K, metric=asked_by, exclude_self=np.array(mine))
    assert found.ids.tolist() == [nearest(at, lambda _: True)[1 : K + 1] for at in range(len(Q))]
    radius = float(np.median(far))
    ranges = index.search(Q, radius=radius, metric=asked_by)
    assert np.diff(ranges.limits).tolist() == (far <= np.float32(radius)).sum(axis=1).tolist()


def test_codes_that_are_told_how_many_candidates_take_theirs() -> None:
    index = Index.build(X, hasher="itq", n_bits=32, random_state=0)
    told = index.search(Q, K, metric="ip", candidates=K)
    assert np.sort(told.ids).tolist() == np.sort(index.search(Q, K, rerank=None).ids).tolist()
    for rerank in RERANKS[1:]:
        with pytest.raises(InputError, match="rerank must be 'exact' with metric='ip'"):
            index.search(Q, K, metric="ip", rerank=rerank)


def test_ready_made_codes_know_hamming_distances_alone() -> None:
    index = Index.from_codes(X > 0)
    for metric in METRICS:
        with pytest.raises(InputError, match=f"metric must be 'hamming' here, got '{metric}'"):
            index.search(Q > 0, K, metric=metric)
