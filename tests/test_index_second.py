"""Signs without vectors: rows are compared by a second sketch, of what the first leaves over."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_cases import same
from index_edits import Edit, changed, check_refused, column, editable
from index_model import true_distances
from numpy.typing import NDArray

from densehash import _native
from densehash.errors import FileError
from densehash.index import Hits, Index, placing
from densehash.index.queries import EVERYTHING
from densehash.index.sketches import Signs
from densehash.index.sketches.second import SecondDecoder, n_second_bits
from densehash.index.state import content_of, state_from
from densehash.store import verify

KINDS: dict[str, dict[str, Any]] = {"flat": {}, "grouped": {"n_groups": 12}}
METRICS = ("l2", "cosine", "ip")
D = 20

every_kind = pytest.mark.parametrize("kind", KINDS)
every_metric = pytest.mark.parametrize("metric", METRICS)


def blobs(n: int, seed: int = 0, d: int = D) -> NDArray[np.float32]:
    """Rows around a few places, far from zero, of unequal spread in their features."""
    rng = np.random.default_rng(seed)
    places = np.random.default_rng(99).standard_normal((8, d)) * 2 + 1
    found = places[rng.integers(0, 8, n)] + rng.standard_normal((n, d)) * np.linspace(0.2, 2, d)
    return found.astype(np.float32)


def build(kind: Any, X: Any, **options: Any) -> Index:
    settings = {"n_bits": 32, "random_state": 0, **KINDS[kind], **options}
    return Index.build(X, sketch="signs", kind=kind, keep_vectors=False, **settings)


def everything(index: Index, Q: Any, k: int, **asked: Any) -> Hits:
    """What is found where all rows are compared."""
    settings = replace(index._state.settings, reach=EVERYTHING)
    return Index(replace(index._state, settings=settings)).search(Q, k, **asked)


def sketch_of(index: Index) -> Signs:
    sketch = index._state.sketch
    assert isinstance(sketch, Signs)
    return sketch


def estimates_of(
    content: dict[str, Any], number: int, Q: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Distances (q, n) to the rows of a segment, from what docs/format.md says of its arrays."""
    part, settings = content["segments"][number], content["sketch_settings"]
    decoder, second, metric = settings["decoder"], settings["second"], content["metric"]
    n, n_bits = len(part["ids"]), content["n_bits"]
    # Entries of groups, one of each row.
    where = np.empty(n, np.int64)
    where[part["entry_rows"]] = np.arange(n)
    block, place = np.divmod(where, 32)
    bits = np.empty((n, n_bits))
    for t in range(n_bits // 4):
        byte = part["signs"][block, 16 * t + place % 16] >> np.where(place < 16, 0, 4)
        for i in range(4):
            bits[:, 4 * t + i] = byte >> i & 1
    pairs = part["signs"][:, 4 * n_bits :].copy().view("<i2").reshape(-1, 2, 32)
    a, b = pairs[block, 0, place].astype(float), pairs[block, 1, place].astype(float)
    matrix = decoder["whole"] * decoder["steps"][:, np.newaxis].astype(float)
    groups = np.searchsorted(part["entry_limits"], where, side="right") - 1
    centers = np.zeros((1, Q.shape[1]))
    if content["kind"] == "grouped":
        centers = content["kind_settings"]["centers"].astype(float)[:, : Q.shape[1]]
    q = Q.astype(float)
    if metric == "cosine":
        q /= np.linalg.norm(q, axis=1, keepdims=True)
    shift = settings["shift"].astype(float)
    if metric == "ip":
        to_centers = -2 * (q @ centers.T) - 2 * (q @ shift)[:, np.newaxis]
    else:
        q -= shift
        to_centers = ((q[:, np.newaxis] - centers) ** 2).sum(axis=2)
    first = (a * decoder["alpha"] - (q @ matrix.T) @ (2 * bits - 1).T) / (b * decoder["beta"])
    # The second sketch.
    words = part["second_factors"][:, 0].astype(np.uint32)
    own = (words & np.uint32(0xFFFF0000)).view(np.float32).astype(float)
    times = (words << np.uint32(16)).view(np.float32).astype(float)
    codes = np.unpackbits(part["second"], axis=1, bitorder="little")
    values = np.empty((n, len(second["bits"])))
    at = 0
    for i, (count, step) in enumerate(zip(second["bits"].tolist(), second["steps"], strict=True)):
        whole = (codes[:, at : at + count] * 2 ** np.arange(count)).sum(axis=1)
        values[:, i] = (whole - (2**count - 1) / 2) * step
        at += count
    products = (q @ second["directions"].astype(float).T) @ values.T
    squared: NDArray[np.float64] = to_centers[:, groups] + first + own - times * products
    found: NDArray[np.float64] = squared / 2
    if metric != "ip":
        found = np.maximum(found, 0)
    return np.sqrt(2 * found) if metric == "l2" else found


# --- what is found --------------------------------------------------------------------------


@every_kind
@every_metric
def test_distances_are_what_the_format_says(kind: str, metric: str) -> None:
    X, Q = blobs(400), blobs(9, seed=1)
    index = build(kind, X[:300], metric=metric)
    index.add(X[300:])
    content = content_of(index._state)
    parts = [estimates_of(content, i, Q) for i in range(len(content["segments"]))]
    ids = np.concatenate([part["ids"] for part in content["segments"]])
    expected = np.concatenate(parts, axis=1)[:, np.argsort(ids)]
    for hits in (everything(index, Q, 400), everything(index, Q, 7)):
        ours = np.take_along_axis(expected, hits.ids, axis=1)
        np.testing.assert_allclose(hits.distances, ours, rtol=2e-4, atol=2e-3)
        least = np.sort(expected, axis=1)[:, : hits.ids.shape[1]]
        np.testing.assert_allclose(hits.distances, least, rtol=2e-4, atol=2e-3)
        assert all(len(set(row)) == len(row) for row in hits.ids.tolist())


@every_kind
@every_metric
def test_a_second_look_finds_more(kind: str, metric: str) -> None:
    X, Q = blobs(1500), blobs(100, seed=1)
    index = build(kind, X, metric=metric)
    true = true_distances(Q, X, metric)
    near = np.argsort(true, axis=1, kind="stable")[:, :10]
    hits = everything(index, Q, 10)
    found = np.mean([np.isin(a, b).mean() for a, b in zip(near, hits.ids, strict=True)])
    kept = build(kind, X, metric=metric)
    sketch_of(kept)._searchers.clear()
    sketch_of(kept).model.__dict__["second"] = None  # the first sketch alone
    first = everything(kept, Q, 10)
    alone = np.mean([np.isin(a, b).mean() for a, b in zip(near, first.ids, strict=True)])
    assert found > alone + 0.1
    assert found > 0.8
    assert index.recall == pytest.approx(found, abs=0.08)
    ours = np.take_along_axis(true, hits.ids, axis=1)
    theirs = np.take_along_axis(true, first.ids, axis=1)
    assert np.abs(hits.distances - ours).mean() < 0.5 * np.abs(first.distances - theirs).mean()


@every_kind
def test_every_instruction_set_and_number_of_threads(kind: str) -> None:
    X, Q = blobs(700), blobs(40, seed=1)
    index = build(kind, X)
    sketch, segments = sketch_of(index), index._state.segments
    searcher = sketch._searcher(segments, exact=False)
    answers = [
        searcher.search(Q, 8, 12, 0.1, 1e9, None, threads, simd)[:2]
        for simd in _native.instruction_sets()
        for threads in (1, 3)
    ]
    for distances, positions in answers[1:]:
        assert (distances == answers[0][0]).all()
        assert (positions == answers[0][1]).all()
    alone = np.concatenate([index.search(Q[i : i + 1], 8).distances for i in range(40)])
    assert (alone == index.search(Q, 8).distances).all()


def test_rows_in_the_first_places_win_where_all_are_equal() -> None:
    index = build("flat", np.ones((50, 5), np.float32))
    assert index.search(np.zeros((1, 5), np.float32), 6).ids.tolist() == [list(range(6))]


# --- rows -----------------------------------------------------------------------------------


@every_kind
@every_metric
def test_what_is_kept_does_not_depend_on_the_rows_beside(kind: str, metric: str) -> None:
    X = blobs(300)
    index = build(kind, X, metric=metric)
    sketch, where = sketch_of(index), index._state.kind
    unit = X / np.linalg.norm(X, axis=1, keepdims=True) if metric == "cosine" else X
    whole = sketch.encode(unit, where.labels(unit))
    for step in (1, 7, 129):
        parts = [
            sketch.encode(unit[i : i + step], where.labels(unit[i : i + step]))
            for i in range(0, 300, step)
        ]
        for name, kept in whole.items():
            assert np.concatenate([part[name] for part in parts]).tobytes() == kept.tobytes()


@every_kind
def test_built_piece_by_piece_from_a_file(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Q = blobs(600), blobs(20, seed=1)
    whole = build(kind, X)
    np.save(tmp_path / "X.npy", X)
    monkeypatch.setattr(placing, "PIECE_BYTES", 8000)
    index = build(kind, np.load(tmp_path / "X.npy", mmap_mode="r"), path=tmp_path / "a")
    assert len(index.info()["segments"]) > 2
    assert same(index.search(Q, 10), whole.search(Q, 10))
    index.compact()
    index.verify()
    ours, theirs = index._state.segments[0].columns, whole._state.segments[0].columns
    assert set(ours) == {"signs", "entry_limits", "entry_rows", "second", "second_factors"}
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in theirs)


@every_kind
def test_changes_move_what_is_kept(kind: str, tmp_path: Path) -> None:
    X, Q = blobs(400), blobs(12, seed=1)
    index = build(kind, X)
    index.save(tmp_path / "a")
    opened = Index.open(tmp_path / "a")
    rng = np.random.default_rng(3)
    for one in (index, opened):
        one.remove(np.arange(0, 400, 3))
        one.add(blobs(30, seed=4), ids=np.arange(500, 530))
        one.update([1, 505], X[[0, 3]])
    assert same(index.search(Q, 9), opened.search(Q, 9))
    before = everything(index, Q, 9)
    index.compact()
    opened.compact()
    opened.verify()
    assert same(everything(index, Q, 9), before)
    assert same(opened.search(Q, 9), index.search(Q, 9))
    for one in (index, opened, Index.open(tmp_path / "a", mmap=False)):
        again = pickle.loads(pickle.dumps(one))
        assert same(again.search(Q, 9), index.search(Q, 9))
    chosen = rng.choice(index.ids, 50, replace=False)
    hits = everything(index, Q, 5, filter=chosen)
    assert np.isin(hits.ids, chosen).all()
    # A row that comes back is what it was.
    index.remove([7])
    index.add(X[7:8], ids=[7])
    assert same(everything(index, Q, 9), before)


@every_kind
@every_metric
@pytest.mark.parametrize(
    "X",
    [
        np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]),
        np.zeros((2, 3)),
        np.full((40, 3), 2.5),
        np.arange(40.0)[:, np.newaxis],
        np.tile(np.arange(33.0)[:, np.newaxis], (1, 3)) * [1, 0, 0] + [0, 5, -3],
        np.eye(3),
        np.concatenate([np.zeros((30, 4)), np.eye(4) * 1e6]),
        np.random.default_rng(0).standard_normal((40, 3)) * 1e-20,
    ],
    ids=["two", "zeros", "equal", "one feature", "constant", "eye", "far out", "tiny"],
)
def test_poor_rows(kind: str, metric: str, X: NDArray[Any], tmp_path: Path) -> None:
    groups: dict[str, Any] = {"n_groups": min(len(X), 5)} if kind == "grouped" else {}
    with np.errstate(all="raise", under="ignore"):
        index = build(kind, X, metric=metric, **groups)
        index.add(X[:1])
    index.save(tmp_path / "a")
    whole = np.concatenate([X, X[:1]])
    k = min(4, len(whole))
    true = true_distances(whole[:3].astype(np.float32), whole.astype(np.float32), metric)
    for one in (index, Index.open(tmp_path / "a")):
        found = everything(one, whole[:3], k)
        assert all(len(set(ids)) == k for ids in found.ids.tolist())
        assert np.isfinite(found.distances).all()
        ours = np.take_along_axis(true, found.ids, axis=1)
        if metric == "cosine":  # zeros have no direction, and are estimated as what they are
            lengths = np.linalg.norm(whole, axis=1)
            ours[(lengths[:3, np.newaxis] * lengths[found.ids]) == 0] = np.nan
        scale = np.abs(true).max() + (1e-12 if metric == "cosine" else 1e-30)
        assert not (np.abs(found.distances - ours) > 0.35 * scale).any()


def test_outliers_are_told() -> None:
    """Rows far beyond all that was learnt from, whose first factors do not fit."""
    X = blobs(300)
    index = build("grouped", X)
    far = blobs(4, seed=2) * np.float32(100)
    index.add(far)
    hits = everything(index, far, 1)
    assert hits.ids[:, 0].tolist() == [300, 301, 302, 303]
    lengths = np.linalg.norm(far, axis=1)
    assert (hits.distances[:, 0] < 0.6 * lengths).all()


# --- the decoder ----------------------------------------------------------------------------


def test_bits_go_where_they_are_worth_most() -> None:
    rng = np.random.default_rng(0)
    spreads = np.array([8.0, 4.0, 2.0, 1.0, 0.01])
    rows = (rng.standard_normal((4000, 5)) * spreads).astype(np.float32)
    decoder = SecondDecoder.learn(rows, rows, 16)
    assert decoder.n_bits == 16
    assert (np.diff(decoder.bits.astype(int)) <= 0).all()
    codes, factors, _ = decoder.encode(rows)
    left = rows - decoder.decode(codes, factors)
    # Weighted as the rows vary, an error of one bit more or less would be four times as large.
    shares = (left**2).mean(axis=0)[:3] / spreads[:3] ** 2
    assert (shares < [0.02, 0.1, 0.5]).all()
    finer = SecondDecoder.learn(rows, rows, 32)
    codes, factors, _ = finer.encode(rows)
    assert (rows - finer.decode(codes, factors)).std() < 0.4 * left.std()


@pytest.mark.parametrize("d", [1, 3, 100, 128, 384, 960])
def test_a_row_takes_128_bytes_at_most(d: int) -> None:
    for n_bits in (128, 224, 256):
        bits = n_second_bits(n_bits, d)
        assert bits % 8 == 0
        assert 0 < bits <= 8 * d
        assert 8 + 4 + 4 + 4 + (n_bits + bits) / 8 <= 128
    index = Index.build(blobs(300, d=d), sketch="signs", keep_vectors=False, random_state=0)
    assert index.info()["second_bits"] == n_second_bits(index.info()["bits"], d)
    assert sum(a.nbytes for s in index._state.segments for a in s.arrays) / 300 <= 130


# --- files ----------------------------------------------------------------------------------


def second(**new: Any) -> Edit:
    return changed("second", **new)


def _m(content: dict[str, Any]) -> int:
    return len(content["sketch_settings"]["second"]["bits"])


ATTACKS: dict[str, tuple[Edit, str]] = {
    "no decoder": (lambda c: c["sketch_settings"].pop("second"), "known are|second"),
    "decoder is a list": (lambda c: c["sketch_settings"].update(second=[]), "cannot be read"),
    "no directions": (
        lambda c: c["sketch_settings"].update(second={"bits": np.ones(8, np.uint8)}),
        "cannot be read",
    ),
    "narrow": (
        lambda c: second(directions=np.ones((_m(c), 3), np.float32))(c),
        "directions must be",
    ),
    "NaN": (lambda c: second(directions=np.full((_m(c), D), np.nan, np.float32))(c), "not finite"),
    "bits of 0": (lambda c: second(bits=np.zeros(_m(c), np.uint8))(c), "1 to 8"),
    "bits of 9": (lambda c: second(bits=np.full(_m(c), 9, np.uint8))(c), "1 to 8"),
    "other bits": (lambda c: second(bits=np.full(_m(c), 8, np.uint8))(c), "second must be"),
    "no bits": (
        second(
            bits=np.ones(0, np.uint8),
            directions=np.ones((0, D), np.float32),
            steps=np.ones(0, np.float32),
            weights=np.ones(0, np.float32),
        ),
        "multiple of 8",
    ),
    "steps of 0": (lambda c: second(steps=np.zeros(_m(c), np.float32))(c), "above 0"),
    "infinite weights": (
        lambda c: second(weights=np.full(_m(c), np.inf, np.float32))(c),
        "above 0",
    ),
    "two groups": (lambda c: c["sketch_settings"].update(groups_a_row=2), "groups_a_row must be"),
    "scaled": (lambda c: c["sketch_settings"].update(scaled=True), "scaled must be"),
    "scaled by text": (lambda c: c["sketch_settings"].update(scaled="no"), "scaled must be"),
    "vectors": (lambda c: c.update(vectors="float32"), "not both"),
    "few rows": (column("second", lambda a: a[:-1]), "second must be"),
    "narrow codes": (column("second", lambda a: a[:, :-1]), "second must be"),
    "another type": (column("second", lambda a: a.astype(np.int8)), "second must be"),
    "few factors": (column("second_factors", lambda a: a[:-1]), "second_factors must be"),
    "float factors": (
        column("second_factors", lambda a: a.astype(np.float32)),
        "second_factors must be",
    ),
    "no factors": (lambda c: c["segments"][0].pop("second_factors"), "cannot be read"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_does_not_fit_is_refused(attack: str) -> None:
    check_refused(build("grouped", blobs(60)), *ATTACKS[attack])


@every_kind
@every_metric
def test_wild_columns_are_searched_all_the_same(kind: str, metric: str) -> None:
    """Each row's own numbers are not looked at before: any of them give some answer."""
    Q = blobs(6, seed=3)
    content = editable(build(kind, blobs(200), metric=metric))
    rng = np.random.default_rng(5)
    part = content["segments"][0]
    for _ in range(10):
        wild = dict(part)
        for name in ("second", "second_factors", "signs"):
            array = part[name].copy()
            words = array.view(np.uint8).reshape(-1)
            at = rng.integers(0, len(words), 60)
            words[at] = rng.integers(0, 256, 60)
            wild[name] = array
        wild["second_factors"][:5] = [[0x7FC07FC0], [0x7F807F80], [0xFF807F80], [0xFFFFFFFF], [1]]
        index = Index(state_from({**content, "segments": [wild]}))
        hits = everything(index, Q, 200)
        assert (np.sort(hits.ids, axis=1) == np.arange(200)).all()
        assert not np.isnan(hits.distances).any()


def test_damage_is_found(tmp_path: Path) -> None:
    build("grouped", blobs(300)).save(tmp_path / "a")
    for name in ("second", "second_factors", "second.directions", "second.bits"):
        file = min((tmp_path / "a").glob(f"*.{name}.npy"))
        raw = file.read_bytes()
        file.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
        with pytest.raises(FileError, match=name.replace(".", r"\.")):
            verify(tmp_path / "a")
        file.write_bytes(raw)
    verify(tmp_path / "a")
