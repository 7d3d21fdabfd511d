"""Floats in 8 bits a number, with a scale for each row: keep_vectors="int8" of signs."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_cases import same
from index_edits import Edit, check_refused, column, editable
from index_model import true_distances
from numpy.typing import NDArray

from densehash.errors import InputError
from densehash.index import Hits, Index, placing
from densehash.index.queries import EVERYTHING
from densehash.index.scaling import scaled
from densehash.index.state import state_from

KINDS: dict[str, dict[str, Any]] = {"flat": {}, "grouped": {"n_groups": 12}}
METRICS = ("l2", "cosine", "ip")

every_kind = pytest.mark.parametrize("kind", KINDS)
every_metric = pytest.mark.parametrize("metric", METRICS)


def floats(n: int, seed: int = 0, d: int = 21) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, d)) * rng.lognormal(0, 1, (n, 1)) + 0.5).astype(np.float32)


def build(kind: Any, X: Any, **options: Any) -> Index:
    settings = {"n_bits": 32, "random_state": 0, "keep_vectors": "int8", **KINDS[kind], **options}
    return Index.build(X, sketch="signs", kind=kind, **settings)


def everything(index: Index, Q: Any, k: int, **asked: Any) -> Hits:
    """What is found where all rows are compared."""
    settings = replace(index._state.settings, reach=EVERYTHING)
    return Index(replace(index._state, settings=settings)).search(Q, k, **asked)


def as_kept(X: NDArray[Any]) -> NDArray[np.float32]:
    whole, scales = scaled(X)
    return whole * scales


# --- numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scaled_rows_are_near(dtype: Any) -> None:
    X = floats(200).astype(dtype)
    whole, scales = scaled(X)
    assert (whole.dtype.name, scales.dtype.name, scales.shape) == ("int8", "float32", (200, 1))
    assert np.abs(whole.astype(int)).max() == 127
    assert (np.abs(whole * scales - X) <= 0.501 * scales).all()
    np.testing.assert_allclose(scales[:, 0], np.abs(X).max(axis=1).astype(float) / 127, rtol=1e-3)


def test_what_fits_stays_as_it_is() -> None:
    X = np.array([[1, -2, 127], [0, 0, 0], [-127, 5, 3]], np.float64)
    whole, scales = scaled(X)
    assert (whole == X).all()
    assert (scales == 1).all()


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e-45, 1e300, 5e-324, 3e38])
def test_odd_numbers_have_a_scale_all_the_same(number: float) -> None:
    with np.errstate(all="raise"):
        _, scales = scaled(np.array([[number, 1e-3], [0.5, 0.25]]))
    assert (np.isfinite(scales) & (scales > 0)).all()
    assert scales[1, 0] == np.float32(0.5 / 127)


# --- what is found --------------------------------------------------------------------------


@every_kind
@every_metric
def test_distances_are_those_to_what_is_kept(kind: str, metric: str) -> None:
    X, Q = floats(300), floats(8, seed=1)
    index = build(kind, X[:250], metric=metric)
    index.add(X[250:])
    true = true_distances(Q, as_kept(X), metric)
    for k in (300, 7):
        hits = everything(index, Q, k)
        assert hits.distances.dtype == np.float32
        np.testing.assert_allclose(
            hits.distances, np.sort(true, axis=1)[:, :k], rtol=1e-5, atol=1e-5
        )
        ours = np.take_along_axis(true, hits.ids, axis=1)
        np.testing.assert_allclose(hits.distances, ours, rtol=1e-5, atol=1e-5)


@every_kind
@every_metric
def test_nearly_all_neighbours_are_found(kind: str, metric: str) -> None:
    X, Q = floats(1200), floats(100, seed=1)
    index = build(kind, X, metric=metric)
    near = np.argsort(true_distances(Q, X, metric), axis=1, kind="stable")[:, :10]

    def share(hits: Hits) -> float:
        return float(np.mean([np.isin(a, b).mean() for a, b in zip(near, hits.ids, strict=True)]))

    assert share(everything(index, Q, 10)) > 0.97
    assert index.recall is not None
    assert share(index.search(Q, 10)) == pytest.approx(index.recall, abs=0.03)
    if metric != "ip":
        found = index.tune(Q, recall=0.9)
        assert share(index.search(Q, 10)) == pytest.approx(found.recall, abs=0.05)


@every_kind
def test_whole_numbers_are_exact(kind: str) -> None:
    """As floats they have scales of 1; as integers none, and stay what they were."""
    rng = np.random.default_rng(0)
    X, Q = rng.integers(-127, 128, (300, 9)), rng.integers(-127, 128, (9, 9))
    expected = Index.build(X.astype(np.float32), sketch="codes", n_bits=8, kind="flat")
    hits = expected.search(Q.astype(np.float32), 8, candidates=300)
    for dtype in (np.float32, np.int8):
        index = build(kind, X.astype(dtype))
        assert ("scales" in index._state.segments[0].columns) == (dtype == np.float32)
        assert same(everything(index, Q.astype(dtype), 8), hits)
        assert same(everything(index, Q.astype(np.float64), 8), hits)
        assert (index.get([5, 3]) == X[[5, 3]]).all()
    mixed = build(kind, X.astype(np.float32))
    mixed.add(X[:2].astype(np.int8), ids=[400, 401])
    assert (mixed.get([401]) == X[1]).all()


@every_kind
def test_rows_as_they_are_kept(kind: str) -> None:
    X = floats(200)
    X[50] = X[7]
    index = build(kind, X)
    kept = as_kept(X)
    assert index.get([3, 199, 3]).dtype == np.float32
    assert (index.get([3, 199, 3]) == kept[[3, 199, 3]]).all()
    # The query itself is kept in 8 bits, and left out once.
    hits = everything(index, X[[7, 60]], 3, exclude_self=True)
    assert hits.ids[0, 0] == 50
    assert 60 not in hits.ids[1]
    graph = index.neighbors_graph(1)
    assert graph[7, 50] == 1
    pairs = index.near_duplicates(1e-6, rerank="exact")
    assert pairs.ids.tolist() == [[7, 50]]
    index.update([3], X[4:5] * 100)
    assert (index.get([3]) == as_kept(X[4:5] * 100)).all()
    assert "scaled int8 vectors" in repr(index)


# --- rows and files -------------------------------------------------------------------------


@every_kind
def test_changes(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, Q = floats(400), floats(10, seed=1)
    whole = build(kind, X)
    np.save(tmp_path / "X.npy", X)
    monkeypatch.setattr(placing, "PIECE_BYTES", 5000)
    index = build(kind, np.load(tmp_path / "X.npy", mmap_mode="r"), path=tmp_path / "a")
    assert len(index.info()["segments"]) > 2
    assert same(everything(index, Q, 9), everything(whole, Q, 9))
    for one in (whole, index):
        one.remove(np.arange(0, 400, 3))
        one.add(X[:3], ids=[500, 501, 502])
        one.compact()
    index.verify()
    ours, theirs = index._state.segments[0], whole._state.segments[0]
    assert ours.kept.tobytes() == theirs.kept.tobytes()
    assert all(
        ours.columns[name].tobytes() == theirs.columns[name].tobytes() for name in ours.columns
    )
    for one in (Index.open(tmp_path / "a", mmap=False), pickle.loads(pickle.dumps(whole))):
        assert same(everything(one, Q, 9), everything(whole, Q, 9))
        assert (one.get([500]) == as_kept(X[:1])).all()


@every_kind
@every_metric
@pytest.mark.parametrize(
    "X",
    [
        np.array([[1.5, 2.0], [3.0, 2.5]]),
        np.zeros((2, 3)),
        np.full((40, 3), 2.5),
        np.linspace(0, 1, 40)[:, np.newaxis],
        np.linspace(0, 1, 33)[:, np.newaxis] * [1, 0, 0] + [0, 5.5, -3],
    ],
    ids=["two", "zeros", "equal", "one feature", "constant"],
)
def test_poor_rows(kind: str, metric: str, X: NDArray[Any]) -> None:
    groups: dict[str, Any] = {"n_groups": min(len(X), 5)} if kind == "grouped" else {}
    index = build(kind, X, metric=metric, **groups)
    k = min(4, len(X))
    expected = np.sort(true_distances(X[:3].astype(np.float32), as_kept(X), metric), axis=1)
    np.testing.assert_allclose(
        everything(index, X[:3], k).distances, expected[:, :k], rtol=1e-4, atol=1e-5
    )


def test_codes_and_integers_are_as_before() -> None:
    X = floats(50)
    cases: list[Callable[[], Any]] = [
        lambda: Index.build(X, sketch="codes", keep_vectors="int8", n_bits=8),
        lambda: build("flat", np.full((3, 2), 200, np.uint8)),
        lambda: build("flat", X, keep_vectors="uint8"),
    ]
    for make in cases:
        with pytest.raises(InputError, match="does not hold"):
            make()
    index = build("flat", np.ones((50, 21), np.int8))
    with pytest.raises(InputError, match="int8 does not hold"):
        index.add(X)
    with pytest.raises(InputError, match="finite|infin"):
        build("flat", np.full((3, 2), np.nan))


ATTACKS: dict[str, tuple[Edit, str]] = {
    "no scales": (lambda c: c["segments"][0].pop("scales"), "cannot be read"),
    "few scales": (column("scales", lambda a: a[:-1]), "scales must be"),
    "another type": (column("scales", lambda a: a.astype(np.float64)), "scales must be"),
    "not scaled": (lambda c: c["sketch_settings"].update(scaled=False), "known are"),
    "a number": (lambda c: c["sketch_settings"].update(scaled=1), "scaled must be"),
    "nothing said": (lambda c: c["sketch_settings"].pop("scaled"), "cannot be read"),
    "floats": (lambda c: c.update(vectors="float32"), "scaled must be"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_does_not_fit_is_refused(attack: str) -> None:
    check_refused(build("grouped", floats(60)), *ATTACKS[attack])


@every_metric
def test_wild_scales_are_searched_all_the_same(metric: str) -> None:
    content = editable(build("grouped", floats(60), metric=metric))
    wild = content["segments"][0]["scales"].copy()
    wild[:6, 0] = [np.nan, np.inf, -np.inf, 0, -1, 1e38]
    column("scales", lambda _: wild)(content)
    hits = everything(Index(state_from(content)), floats(5, seed=1), 60)
    assert (np.sort(hits.ids, axis=1) == np.arange(60)).all()
    assert not np.isnan(hits.distances).any()
