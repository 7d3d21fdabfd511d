"""An index of codes that were made elsewhere."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_cases import hasher, names, no_fsync, rows
from index_edits import check_refused
from numpy.typing import NDArray

from densehash import ITQ, bits, load_hasher, pack
from densehash.errors import FileError, InputError
from densehash.index import Index
from densehash.index.kinds import KINDS as REGISTRY
from densehash.index.kinds import Grouped
from densehash.index.state import content_of
from densehash.rows import Rows

KINDS: dict[str, dict[str, Any]] = {kind: {"kind": kind} for kind in REGISTRY} | {
    "flat": {},  # which is the default, as grouped is with groups
    "grouped": {"n_groups": 6},  # of which all are visited without being told
    "multi": {"kind": "multi", "n_tables": 3},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def some_bits(n: int, n_bits: int, seed: int = 0) -> NDArray[np.bool_]:
    """Bits of few different rows, so that many are equally far away."""
    rng = np.random.default_rng(seed)
    few = rng.random((12, n_bits)) < 0.5
    return few[rng.integers(0, 12, n)] ^ (rng.random((n, n_bits)) < 0.05)


def nearest(asked: Any, there: Any, ids: list[Any], k: int) -> tuple[list[Any], list[list[int]]]:
    """Ids and distances by (distance, id), counted bit by bit."""
    distances = (asked[:, np.newaxis] != there[np.newaxis]).sum(axis=2)
    order = [sorted(range(len(ids)), key=lambda at: (row[at], ids[at]))[:k] for row in distances]
    found = [[ids[at] for at in some] for some in order]
    return found, [
        [int(row[at]) for at in some] for row, some in zip(distances, order, strict=True)
    ]


def check(index: Index, asked: Any, there: Any, ids: list[Any], k: int = 7) -> None:
    found = index.search(pack(asked), k)
    expected = nearest(asked, there, ids, k)
    assert (found.ids.tolist(), found.distances.tolist()) == expected
    assert found.distances.dtype == np.int32


FORMS: dict[str, Callable[[Any], Any]] = {
    "packed": pack,
    "packed, the other order": lambda b: bits.to_big_endian(pack(b)),
    "packed by numpy": lambda b: np.packbits(b, axis=1),
    "bools": lambda b: b,
    "lists": lambda b: b.astype(int).tolist(),
    "int64": lambda b: b.astype(np.int64),
    "int32, not in order": lambda b: np.asfortranarray(b.astype(np.int32)),
}


@every_kind
@pytest.mark.parametrize("n_bits", [1, 37, 64])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_codes_of_any_form_are_searched(kind: str, n_bits: int, form: Any) -> None:
    there, asked = some_bits(60, n_bits), some_bits(9, n_bits, seed=1)
    told: dict[str, Any] = {}
    if kind == "multi":
        told = {"kind": kind, "n_tables": max(min(3, n_bits), n_bits // 16)}
    elif kind == "grouped":
        told = {"kind": kind, "n_groups": 4}
    index = Index.from_codes(form(there), **told)
    found = index.search(form(asked), 7)
    expected = nearest(asked, there, list(range(60)), 7)
    assert (found.ids.tolist(), found.distances.tolist()) == expected
    one = index.search(form(asked)[0], 7)
    assert one.ids.tolist() == expected[0][0]
    near = index.search(form(asked), radius=n_bits // 3)
    distances = (asked[:, np.newaxis] != there).sum(axis=2)
    assert np.diff(near.limits).tolist() == (distances <= n_bits // 3).sum(axis=1).tolist()


@every_kind
@pytest.mark.parametrize("id_type", ["int64", "string"])
def test_a_life_on_the_disk(kind: str, id_type: str, tmp_path: Path) -> None:
    there, ids = some_bits(80, 37), names(80, id_type)
    asked = some_bits(5, 37, seed=1)
    made = Index.from_codes(there[:40], ids=ids[:40], **KINDS[kind])
    with no_fsync():
        made.save(tmp_path / "saved.dh")
        Index.from_codes(pack(there[:40]), ids=ids[:40], n_bits=37, path=tmp_path / "made.dh")
        for path in (tmp_path / "saved.dh", tmp_path / "made.dh"):
            index = Index.open(path)
            check(index, asked, there[:40], ids[:40])
            assert index.add(pack(there[40:60]), ids=ids[40:60]).tolist() == ids[40:60]
            assert index.upsert(ids[55:80], there[55:]) == (20, 5)
            index.update(ids[:3], there[[3, 4, 5]])
            assert index.remove(ids[10:20]) == 10
            now = there.copy()
            now[:3] = there[[3, 4, 5]]
            left = [*range(10), *range(20, 80)]
            for _ in range(2):
                check(index, asked, now[left], [ids[at] for at in left])
                index.verify()
                index.compact()
                index = Index.open(path)
            again = pickle.loads(pickle.dumps(index))
            check(again, asked, now[left], [ids[at] for at in left])
            assert index.sketch == "bits"
            assert index.metric == "hamming"
            assert "37 ready-made bits, no vectors, hamming" in repr(index)


def test_groups_of_codes_that_are_visited(tmp_path: Path) -> None:
    """The nearest groups by the distance of bits to their centres; in them, the nearest codes."""
    there, asked, ids = some_bits(300, 61), some_bits(20, 61, seed=1), names(300, "int64")
    index = Index.from_codes(there, ids=ids, kind="grouped", n_groups=20, random_state=0)
    with no_fsync():
        index.save(tmp_path / "a.dh")
        opened = Index.open(tmp_path / "a.dh")
        opened.add(there[:30], ids=range(10**6, 10**6 + 30))
    kind = index._state.kind
    assert isinstance(kind, Grouped)
    centers = kind.centers.centers + kind.centers.shift
    for one in (index, opened):
        rows, own = (there, ids) if one is index else (
            np.r_[there, there[:30]], [*ids, *range(10**6, 10**6 + 30)]
        )  # fmt: skip
        groups = kind.centers.labels(Rows(rows.astype(np.float32)))
        for probes in (1, 3, 20):
            found = one.search(pack(asked), 5, probes=probes)
            for at, query in enumerate(asked):
                far = ((query - centers) ** 2).sum(axis=1)
                visited = np.flatnonzero(np.isin(groups, np.argsort(far)[:probes]))
                if len(visited) < 5:  # all are looked at, then
                    visited = np.arange(len(rows))
                names_of = [own[row] for row in visited]
                expected = nearest(query[np.newaxis], rows[visited], names_of, 5)
                assert ([found.ids[at].tolist()], [found.distances[at].tolist()]) == expected
        single = one.search(pack(asked)[3], 5, probes=3)
        assert single.ids.tolist() == one.search(pack(asked), 5, probes=3).ids[3].tolist()
    flat = Index.from_codes(there, ids=ids)
    assert (index.search(asked, 5).distances <= flat.search(asked, 5).distances).mean() > 0.9
    assert index.near_duplicates(2).ids.tolist() == flat.near_duplicates(2).ids.tolist()


def test_groups_of_codes_whose_hasher_is_known(tmp_path: Path) -> None:
    """Centres have a number for each bit, however many features vectors have."""
    X, Q, learnt = rows(90), rows(7, seed=5), hasher()
    told: dict[str, Any] = {"kind": "grouped", "n_groups": 20, "random_state": 0}
    index = Index.from_codes(learnt.transform(X), hasher=learnt, path=tmp_path / "a.dh", **told)
    for one in (index, Index.open(tmp_path / "a.dh")):
        by_vectors = one.search(Q, 5, probes=2, rerank=None)
        by_codes = one.search(learnt.transform(Q), 5, probes=2)
        assert by_vectors.ids.tolist() == by_codes.ids.tolist()
        assert one.search(Q, 5).distances.dtype == np.float32  # asymmetric


def test_what_goes_by_rows_alone() -> None:
    there = some_bits(50, 64)
    index = Index.from_codes(there)
    distances = (there[:, np.newaxis] != there).sum(axis=2)
    pairs = index.near_duplicates(4)
    first, second = np.nonzero(np.triu(distances <= 4, 1))
    assert {tuple(pair) for pair in pairs.ids.tolist()} == set(
        zip(first.tolist(), second.tolist(), strict=True)
    )
    graph = index.neighbors_graph(3, mode="distance")
    np.fill_diagonal(distances, 1000)
    assert graph.data.reshape(50, 3).tolist() == np.sort(distances, axis=1)[:, :3].tolist()
    assert index.search(there[:4], 3, exclude_self=True).distances.tolist() == (
        np.sort(distances, axis=1)[:4, :3].tolist()
    )
    assert set(index.search(there[:4], 3, filter=[1, 2, 8]).ids.ravel()) == {1, 2, 8}


@every_kind
def test_vectors_are_hashed_by_the_hasher_that_is_given(kind: Any, tmp_path: Path) -> None:
    X, Q = rows(60), rows(4, seed=5)
    learnt = hasher()
    index = Index.from_codes(learnt.transform(X), hasher=learnt, **KINDS[kind])
    same = Index.build(X, hasher=learnt, keep_vectors=False, kind=kind)
    with no_fsync():
        index.save(tmp_path / "a.dh")
    for opened in (index, Index.open(tmp_path / "a.dh")):
        for asked in ({}, {"rerank": None}, {"rerank": "asymmetric"}):
            found, expected = opened.search(Q, 5, **asked), same.search(Q, 5, **asked)
            assert found.ids.tolist() == expected.ids.tolist()
            assert found.distances.tolist() == expected.distances.tolist()
        codes = opened.search(learnt.transform(Q), 5)
        assert codes.ids.tolist() == same.search(Q, 5, rerank=None).ids.tolist()
        with pytest.raises(InputError, match="queries that are codes have no margins"):
            opened.search(learnt.transform(Q), 5, rerank="asymmetric")
        with pytest.raises(InputError, match="Q has 3 features, the index 6"):
            opened.search(Q[:, :3], 5)
    index.add(X + 0.5)
    index.add(learnt.transform(X + 0.25))
    same.add(np.r_[X + 0.5, X + 0.25])
    assert index.search(Q, 150).ids.tolist() == same.search(Q, 150).ids.tolist()
    assert index.hasher.n_bits_ == load_hasher(tmp_path / "a.dh").n_bits_


def test_numbers_of_bytes_are_codes_whatever_their_width() -> None:
    """Six features and six bytes: floats are vectors, bytes are codes."""
    X = rows(60)
    learnt = ITQ(48, n_iter=0, random_state=0).fit(X)
    codes = learnt.transform(X)
    assert codes.shape == X.shape
    index = Index.from_codes(codes, hasher=learnt)
    np.testing.assert_array_equal(index.search(codes, 1).distances, 0)
    np.testing.assert_array_equal(index.search(X, 1, rerank=None).distances, 0)


def test_arrow_and_files_of_codes(tmp_path: Path) -> None:
    there = some_bits(30, 40)
    np.save(tmp_path / "codes.npy", pack(there))
    asked = some_bits(3, 40, seed=1)
    index = Index.from_codes(np.load(tmp_path / "codes.npy", mmap_mode="r"))
    check(index, asked, there, list(range(30)))
    pa = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    whole = pa.array([bytes(code) for code in pack(there)], pa.binary(5))
    for column in (whole, pa.chunked_array([whole[:7], whole[7:]]), whole[:]):
        check(Index.from_codes(column), asked, there, list(range(30)))
    check(Index.from_codes(whole[4:20]), asked, there[4:20], list(range(16)))


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "floats": (
        np.zeros((3, 8)),
        {},
        "uint8 .packed bits., bools, or integers 0 and 1, got float64",
    ),
    "int8": (
        np.zeros((3, 8), np.int8),
        {},
        r"'ubinary' codes, or pass codes.view\('uint8'\) \^ 128",
    ),
    "integers": (np.full((3, 8), 2), {}, "bits must be 0 or 1, got 2"),
    "no rows": (np.zeros((0, 8), np.uint8), {}, "empty"),
    "no bytes": (np.zeros((3, 0), np.uint8), {}, "1 to 512 bytes wide"),
    "one dimension": (np.zeros(8, np.uint8), {}, "2 dimensions"),
    "too wide": (np.zeros((3, 513), np.uint8), {}, "1 to 512 bytes wide"),
    "padding": (np.full((3, 2), 255, np.uint8), {"n_bits": 12}, "zero padding bits"),
    "too few bits": (np.zeros((3, 2), np.uint8), {"n_bits": 8}, "2 bytes wide, expected 1 for 8"),
    "not packed": (np.zeros((3, 64), np.uint8), {"n_bits": 64}, r"codes.astype\(bool\)"),
    "bits of another number": (np.zeros((3, 9), bool), {"n_bits": 8}, "have 9 bits, expected 8"),
    "kind": (np.zeros((3, 8), np.uint8), {"kind": "cloudy"}, "kind must be"),
    "groups": (np.zeros((3, 8), np.uint8), {"n_groups": 4}, "n_groups must be from 1 to 3"),
    "flat": (np.zeros((3, 8), np.uint8), {"kind": "flat", "n_groups": 2}, "for the grouped kind"),
    "tables": (np.zeros((3, 8), np.uint8), {"n_tables": 2}, "for the multi kind"),
    "ids": (np.zeros((3, 8), np.uint8), {"ids": [1, 2]}, "codes has 3 rows but there are 2 ids"),
    "ids twice": (np.zeros((3, 8), np.uint8), {"ids": [1, 2, 1]}, "1 is there twice"),
    "a name": (np.zeros((3, 8), np.uint8), {"hasher": "itq"}, "the fitted Hasher that made"),
    "not fitted": (np.zeros((3, 8), np.uint8), {"hasher": ITQ(64)}, "the fitted Hasher that made"),
    "objects": ([[None]], {}, "got object"),
}


@pytest.mark.parametrize(("codes", "told", "message"), BAD.values(), ids=BAD)
def test_codes_that_are_refused(codes: Any, told: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Index.from_codes(codes, **told)


def test_what_an_index_of_codes_cannot() -> None:
    there = some_bits(30, 64)
    index = Index.from_codes(there, kind="multi")
    X = np.zeros((2, 64))
    asked = there[:2]
    calls: dict[str, Callable[[], Any]] = {
        "Q must be codes, uint8 of 8 bytes or bools of 64 bits, got float64": lambda: index.search(
            X
        ),
        "X must be codes": lambda: index.add(X),
        "X must be .*hasher=": lambda: index.update([1, 2], X),
        "X must be codes.*": lambda: index.upsert([1, 2], X),
        "keeps no vectors to re-rank by: search with rerank=None": lambda: index.search(
            asked, rerank="exact"
        ),
        "rerank must be 'auto' or 'exact', got 'asym": lambda: index.search(
            asked, rerank="asymmetric"
        ),
        "metric must be 'hamming' here, got 'l2'": lambda: index.search(asked, metric="l2"),
        "probes is 2, but buckets": lambda: index.search(asked, probes=2),
        "keeps no vectors": lambda: index.get([1]),
        "keeps no vectors, so": lambda: index.tune(asked),
        "was made from codes and has no hasher": lambda: index.hasher,
        "Q are 7 bytes wide, expected 8": lambda: index.search(np.zeros((1, 7), np.uint8)),
        "Q have 63 bits, expected 64": lambda: index.search(there[:1, :63]),
        "X are 9 bytes wide": lambda: index.add(np.zeros((1, 9), np.uint8)),
        "Q is empty": lambda: index.search(np.zeros((0, 8), np.uint8)),
        "sketch must be": lambda: Index.build(np.eye(8), sketch="bits"),  # type: ignore[arg-type]
    }
    for message, call in calls.items():
        before = index._state
        with pytest.raises(InputError, match=message):
            call()
        assert index._state is before
    told: Any = {"metric": "hamming"}  # of codes alone, so types leave it out
    assert index.search(asked, 1, **told).distances.tolist() == [[0], [0]]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c.update(metric="l2"), "compared by hamming distance"),
        (lambda c: c.update(vectors="float32"), "without vectors"),
        (lambda c: c.update(n_features=9), "n_features must be n_bits"),
        (lambda c: c.update(n_bits=65, n_features=65), "codes must be uint8 of shape"),
        (lambda c: c.update(sketch_settings={"a": 1}), "must be empty"),
        (lambda c: c.update(sketch="signs"), "cannot be read"),
        (lambda c: c.pop("sketch"), "cannot be read"),
        (lambda c: c["segments"][0].update(codes=np.zeros((3, 8), np.uint8)), "codes must be"),
    ],
)
def test_files_that_are_refused(edit: Any, message: str) -> None:
    check_refused(Index.from_codes(some_bits(30, 64)), edit, message)


def test_hamming_is_the_metric_of_bits_alone() -> None:
    content = {**content_of(Index.build(np.eye(8), hasher="lsh", n_bits=8)._state)}
    content["metric"] = "hamming"
    from densehash.index.state import state_from

    with pytest.raises(FileError, match="the metric hamming is for bits"):
        state_from(content)


def test_a_folder_of_codes_has_no_hasher(tmp_path: Path) -> None:
    Index.from_codes(some_bits(3, 64), path=tmp_path / "a.dh")
    with pytest.raises(FileError, match="is an index that keeps bits, not codes"):
        load_hasher(tmp_path / "a.dh")


def test_codes_are_copied() -> None:
    codes = pack(some_bits(9, 64))
    index = Index.from_codes(codes)
    before = index.search(codes[:1].copy(), 9)
    asked = codes[:1].copy()
    codes[:] = 255
    assert index.search(asked, 9).distances.tolist() == before.distances.tolist()
