"""Codes and the metric ip: rows of any length are found, whatever the kind and the hasher."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from index_cases import RERANKS, no_fsync, same
from numpy.typing import NDArray

from densehash import hamming
from densehash.choices import KindName
from densehash.errors import FileError, InputError
from densehash.export import codes_of
from densehash.hashers import DSH, ITQ, LSH, Hasher
from densehash.index import Index
from densehash.index.index import index_state
from densehash.index.sketches import Codes
from densehash.index.sketches.products import Line
from densehash.index.state import content_of, state_from
from densehash.truth import nearest

Array = NDArray[Any]
KINDS = [kind for kind in get_args(KindName) if kind != "auto"]
every_kind = pytest.mark.parametrize("kind", KINDS)

D, K = 24, 10
HASHERS: dict[str, Hasher] = {
    "ITQ": ITQ(64, n_iter=0, random_state=0),
    "DSH": DSH(64, random_state=0),
    "LSH": LSH(64, random_state=0),
}


def cloud(n: int, seed: int) -> Array:
    """Rows in some directions more than in others, all about equally long, far from zero."""
    rng = np.random.default_rng(seed)
    spread = np.exp(-np.arange(D) / 6)
    return (rng.standard_normal((n, D)) * spread + 0.5).astype(np.float32)


def lengths(n: int, seed: int = 7) -> Array:
    """Between 0.2 and 5, each power as often as others."""
    return np.exp(np.random.default_rng(seed).uniform(np.log(0.2), np.log(5), (n, 1)))


X = (cloud(3000, seed=1) * lengths(3000)).astype(np.float32)
Q = cloud(60, seed=2)
TRUTH = np.asarray(nearest(Q, X, k=K, metric="ip"))


def recall(found: Array, truth: Array = TRUTH) -> float:
    return float(
        np.mean([np.isin(row, true).mean() for row, true in zip(found, truth, strict=True)])
    )


def build(kind: Any = "flat", hasher: Any = "ITQ", rows: Array = X, **told: Any) -> Index:
    learns = HASHERS[hasher] if isinstance(hasher, str) else hasher
    if kind == "grouped":
        told.setdefault("n_groups", 64)
    return Index.build(rows, hasher=learns, kind=kind, metric="ip", random_state=0, **told)


# --- found --------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("hasher", HASHERS)
def test_rows_of_any_length_are_found(kind: str, hasher: str) -> None:
    assert recall(build(kind, hasher).search(Q, K).ids) > 0.95


@every_kind
def test_a_hasher_that_is_fitted_already_finds_them_too(kind: str) -> None:
    fitted = ITQ(64, n_iter=0, random_state=0).fit(X)
    assert recall(build(kind, fitted).search(Q, K).ids) > 0.95


@every_kind
def test_without_vectors_products_are_estimated(kind: str) -> None:
    index = build(kind, keep_vectors=False)
    hits = index.search(Q, K)
    assert recall(hits.ids) > 0.6
    assert recall(hits.ids) >= recall(index.search(Q, K, rerank=None).ids) > 0.5
    products = -np.einsum("qd,qkd->qk", Q, X[hits.ids])
    assert np.corrcoef(hits.distances.ravel(), products.ravel())[0, 1] > 0.9
    assert 0.7 < hits.distances.mean() / products.mean() < 1.4


@pytest.mark.parametrize("times", [1e-12, 1e12])
def test_the_scale_of_rows_and_queries_does_not_matter(times: float) -> None:
    scaled = build(rows=X * np.float32(times))
    found = scaled.search(Q / np.float32(times), K)
    assert recall(found.ids) > 0.95


def test_rows_of_one_length_are_ranked_by_hamming_distance() -> None:
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    rows = np.where(rows == 0, 0, rows).astype(np.float32)
    index = build(rows=rows)
    segment = index_state(index).segments[0]
    segment.columns["lengths"][:] = 1  # they differ in the last bit
    found = index.search(Q, 40, rerank=None)
    codes = codes_of(index, Q), segment.columns["codes"]
    near, order = hamming.top_k(*codes, 40)
    assert found.ids.tolist() == order.tolist()
    for distances, bits in zip(found.distances, near, strict=True):
        assert len(np.unique(distances)) == len(np.unique(bits))


@every_kind
def test_zero_rows_and_zero_queries(kind: str) -> None:
    rows = X[:300].copy()
    rows[::3] = 0
    index = build(kind, rows=rows, **_few(kind))
    found = index.search(np.zeros((1, D), np.float32), 5, rerank=None, **_all_groups(kind))
    assert found.ids.tolist() == [[0, 1, 2, 3, 4]]
    assert found.distances.tolist() == [[0] * 5]
    none = build(kind, rows=np.zeros((20, D), np.float32), hasher=LSH(16).fit(X), **_few(kind))
    assert none.search(Q[:1], 3).ids.tolist() == [[0, 1, 2]]


def _few(kind: str) -> dict[str, Any]:
    return {"n_groups": 9} if kind == "grouped" else {}


def _all_groups(kind: str) -> dict[str, Any]:
    return {"probes": 9} if kind == "grouped" else {}


def test_groups_of_long_rows_are_visited_by_other_metrics_too() -> None:
    index = build("grouped")
    for metric in ("l2", "cosine"):
        truth = np.asarray(nearest(Q, X, k=K, metric=metric))
        some = index.search(Q, K, metric=metric, candidates=3000, probes=64)
        assert recall(some.ids, truth) == 1
        assert (index.search(Q, K, metric=metric, candidates=500).ids >= 0).all()


# --- changed ------------------------------------------------------------------------------


@every_kind
def test_added_removed_compacted_and_opened_again(kind: str, tmp_path: Path) -> None:
    whole = build(kind)
    index = build(kind)
    index.remove(np.arange(1000, 3000))
    for start in range(1000, 3000, 400):
        index.add(X[start : start + 400], ids=np.arange(start, start + 400))
    answers = [whole.search(Q, K, rerank=how) for how in RERANKS]

    def check(other: Index) -> None:
        for how, answer in zip(RERANKS, answers, strict=True):
            assert same(other.search(Q, K, rerank=how), answer), how

    check(index)
    with no_fsync():
        index.save(tmp_path / "index")
        opened = Index.open(tmp_path / "index")
        check(opened)
        opened.compact()
    check(Index.open(tmp_path / "index"))
    assert (opened.sketch, opened.info()["format_version"]) == ("products", 2)


@every_kind
def test_rows_that_are_added_later_may_be_longer_than_all_others(kind: str) -> None:
    index = build(kind)
    index.add(20 * Q, ids=np.arange(10_000, 10_000 + len(Q)))
    truth = np.asarray(nearest(Q, np.concatenate([X, 20 * Q]), k=K, metric="ip"))
    truth = np.where(truth >= len(X), truth - len(X) + 10_000, truth)
    assert recall(index.search(Q, K).ids, truth) > 0.95


def test_an_empty_index_learns_it() -> None:
    index = Index.create(D, metric="ip", hasher="lsh", n_bits=64, learn_at=3000, random_state=0)
    index.add(X[:2999])
    assert index.sketch == "vectors"
    index.add(X[2999:])
    assert index.sketch == "products"
    assert recall(index.search(Q, K).ids) > 0.95


def test_tuning_measures_it() -> None:
    index = build("grouped", hasher="DSH")
    assert index.tune(Q, recall=0.99, k=K).recall >= 0.99
    assert recall(index.search(Q, K).ids) >= 0.99


def test_an_index_of_plain_codes_stays_as_it_was(tmp_path: Path) -> None:
    """Indexes that were saved before lengths were kept rank by Hamming distance."""
    old = Index.build(X, hasher=HASHERS["LSH"], kind="grouped", n_groups=64, random_state=0)
    old = Index(replace(index_state(old), metric="ip"))
    with no_fsync():
        old.save(tmp_path / "old")
    index = Index.open(tmp_path / "old")
    assert (index.sketch, index.metric, index.info()["format_version"]) == ("codes", "ip", 1)
    found = index.search(Q, K, rerank=None, probes=64)
    codes = index.hasher.transform(Q), index.hasher.transform(X)
    assert found.distances.tolist() == hamming.top_k(*codes, K)[0].tolist()
    index.add(X[:5], ids=np.arange(5000, 5005))
    assert index.search(X[:5], 2, rerank=None, probes=64).distances.tolist() == [[0, 0]] * 5


# --- refused ------------------------------------------------------------------------------


def test_tables_are_not_probed_for_products() -> None:
    with pytest.raises(InputError, match="probes is 3, but with metric='ip' the multi kind"):
        build("multi").search(Q, K, probes=3)


def test_pairs_are_near_codes() -> None:
    index = build(rows=np.concatenate([X[:200], 3 * X[:9]]), keep_vectors=False)
    pairs = index.near_duplicates(0)
    assert {(at, 200 + at) for at in range(9)} <= {tuple(ids) for ids in pairs.ids.tolist()}
    assert pairs.distances.dtype == np.int32
    graph = index.neighbors_graph(3, mode="distance")
    assert (graph.data < 0).all()


def content(**changes: Any) -> dict[str, Any]:
    """What the folder of an index holds, with some of the sketch's settings changed."""
    whole = content_of(index_state(build(rows=X[:50], hasher=LSH(16, random_state=0))))
    return whole | {"sketch_settings": whole["sketch_settings"] | changes}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"length": 0.0}, "length must be"),
        ({"length": "long"}, "length must be"),
        ({"length": float("inf")}, "length must be"),
        ({"by_bits": {"zero": -1.0, "slope": 1.0}}, "by_bits zero must be"),
        ({"by_margins": {"zero": 1.0, "slope": float("nan")}}, "by_margins slope must be"),
        ({"by_bits": {"zero": 1.0}}, "cannot be read"),
        ({"by_bits": None}, "cannot be read"),
        ({"more": 1}, "sketch_settings of products are"),
    ],
)
def test_settings_that_cannot_be(changed: dict[str, Any], message: str) -> None:
    state_from(content())
    with pytest.raises(FileError, match=message):
        state_from(content(**changed))


def test_other_content_that_cannot_be() -> None:
    with pytest.raises(FileError, match="products are for the metric ip, not for l2"):
        state_from(content() | {"metric": "l2"})
    for wrong in (np.ones((50, 2), np.float32), np.ones((49, 1), np.float32), np.ones((50, 1))):
        whole = content()
        whole["segments"][0]["lengths"] = wrong
        with pytest.raises(FileError, match="lengths"):
            state_from(whole)
    whole = content()
    del whole["segments"][0]["lengths"]
    with pytest.raises(FileError, match="lengths"):
        state_from(whole)


def test_lengths_from_a_damaged_file_are_no_reason_to_crash() -> None:
    whole = content()
    whole["segments"][0]["lengths"] = np.full((50, 1), np.nan, np.float32)
    index = Index(state_from(whole))
    for how in RERANKS:
        assert index.search(Q, 50, rerank=how).ids.shape == (len(Q), 50)


# --- learnt -------------------------------------------------------------------------------


def test_a_line_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(0)
    shares = rng.random(1000)
    cosines = 1.7 * (0.6 - shares) + rng.normal(0, 0.1, 1000)
    slope, offset = np.polyfit(shares, cosines, 1)
    assert Line.through(shares, cosines) == pytest.approx((-offset / slope, -slope))


@pytest.mark.parametrize(
    ("shares", "cosines"),
    [([0.5, 0.5], [0.1, 0.9]), ([0.1, 0.9], [0.1, 0.9]), ([0.1, 0.2], [-0.8, -0.9])],
)
def test_a_line_that_does_not_fall_is_not_taken(shares: Any, cosines: Any) -> None:
    assert Line.through(np.array(shares), np.array(cosines)) == (0.5, 2.0)


def test_other_metrics_keep_plain_codes() -> None:
    for metric in ("l2", "cosine"):
        index = Index.build(X[:200], hasher="lsh", n_bits=16, metric=metric, random_state=0)
        assert type(index_state(index).sketch) is Codes
