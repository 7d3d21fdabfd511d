"""Hashers on the disk, alone: what is loaded hashes the same, and nothing else can be loaded."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hasher_cases import MAKERS, Make, every_hasher, fitted, learnt, mixture, small
from hasher_golden import FOLDER, QUERIES
from index_cases import Disk
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from store_cases import edit, files_of, put
from threadpoolctl import threadpool_info

import densehash
from densehash.errors import FileError, InputError
from densehash.hashers import DSH, ITQ, KLSH, LSH, Hasher, Refined, load_hasher
from densehash.hashers.registry import HASHERS, hasher_named
from densehash.hashers.state import state_of
from densehash.index import Index
from densehash.rows import local
from densehash.source import Source
from densehash.store import Store, verify
from densehash.store.manifest import HASHER, INDEX, MANIFEST, MOST_CHECKED, SHARDS, decode


@pytest.fixture(autouse=True)
def _no_flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def assert_same(found: Hasher, expected: Hasher, X: NDArray[Any]) -> None:
    assert type(found) is type(expected)
    assert repr(found) == repr(expected)
    assert learnt(found) == learnt(expected)
    for rows in (X, X[:1]):
        assert found.project(rows).tobytes() == expected.project(rows).tobytes()
        assert found.transform(rows).tobytes() == expected.transform(rows).tobytes()


# --- saved and loaded ---------------------------------------------------------------------


@every_hasher
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8])
def test_a_loaded_hasher_is_the_same(make: Make, dtype: Any, tmp_path: Path) -> None:
    hasher = fitted(make, dtype)
    hasher.save(tmp_path / "m.dh")
    again = load_hasher(tmp_path / "m.dh")
    assert_same(again, hasher, mixture(dtype=dtype))
    assert {k: str(v) for k, v in again.get_params().items()} == {
        k: str(v) for k, v in hasher.get_params().items()
    }
    verify(tmp_path / "m.dh")
    again.save(str(tmp_path / "n.dh"))
    assert_same(load_hasher(str(tmp_path / "n.dh")), hasher, mixture(dtype=dtype))


def test_what_readers_of_the_paper_look_for_stays(tmp_path: Path) -> None:
    hasher = DSH(12, random_state=0).fit(mixture())
    hasher.save(tmp_path / "m.dh")
    again = load_hasher(tmp_path / "m.dh")
    assert isinstance(again, DSH)
    for name in ("centers_", "weights_", "pairs_", "entropies_", "planes_", "thresholds_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(hasher, name))
    assert again.planes_.flags.writeable  # its own, of no file


def test_rows_far_from_zero_stay_in_float64(tmp_path: Path) -> None:
    X = mixture() + 1e9
    hasher = LSH(12, random_state=0).fit(X)
    hasher.save(tmp_path / "m.dh")
    again = load_hasher(tmp_path / "m.dh")
    assert again.uses_float64_
    assert_same(again, hasher, X)


def test_a_loaded_hasher_can_learn_again(tmp_path: Path) -> None:
    inside = ITQ(9, n_iter=2, random_state=4)
    hasher = Refined(inside, n_steps=3, n_rows=300, random_state=RandomState(7)).fit(mixture())
    hasher.save(tmp_path / "m.dh")
    again = load_hasher(tmp_path / "m.dh")
    assert again.get_params()["hasher__random_state"] == 4
    assert again.random_state is None  # the generator has been used
    again.set_params(random_state=RandomState(7))
    assert learnt(again.fit(mixture())) == learnt(hasher)


def test_the_hasher_of_an_index_is_loaded(tmp_path: Path) -> None:
    X = mixture(200, 8)
    index = Index.build(X, hasher=DSH(12, random_state=0), metric="cosine")
    index.save(tmp_path / "a.dh")
    assert_same(load_hasher(tmp_path / "a.dh"), index.hasher, X)


def test_one_that_has_not_learnt_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="This DSH instance is not fitted yet"):
        DSH().save(tmp_path / "m.dh")
    assert not list(tmp_path.iterdir())


def test_classes_of_others_are_refused(tmp_path: Path) -> None:
    class Mine(LSH):
        pass

    with pytest.raises(InputError, match="Mine cannot be stored: a file names its class"):
        Mine(4).fit(mixture()).save(tmp_path / "m.dh")
    assert not list(tmp_path.iterdir())


def test_large_arrays_are_checked_as_well(tmp_path: Path) -> None:
    wide = LSH(1024, random_state=0).fit(np.random.default_rng(0).standard_normal((2, 2200)))
    assert wide.planes_.nbytes > MOST_CHECKED  # so it is mapped when the folder is opened
    wide.save(tmp_path / "m.dh")
    assert learnt(load_hasher(tmp_path / "m.dh")) == learnt(wide)
    (path,) = (tmp_path / "m.dh").glob("*planes_.npy")
    with path.open("r+b") as file:
        file.seek(-5, 2)
        file.write(b"?")
    with pytest.raises(FileError, match="planes_.npy is damaged: its checksum"):
        load_hasher(tmp_path / "m.dh")


# --- forms of folders ---------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER, tmp_path / "m.dh"))


@pytest.fixture
def index(tmp_path: Path) -> Path:
    Index.build(mixture(50, 6), n_bits=8, random_state=0).save(tmp_path / "a.dh")
    return tmp_path / "a.dh"


def test_a_hasher_is_no_index_and_the_error_says_what_opens_it(model: Path) -> None:
    message = "m.dh holds a hasher, not an index: densehash.load_hasher opens it"
    for call in (Index.open, Store.open, lambda path: Store.open(path, form=INDEX)):
        with pytest.raises(FileError, match=message):
            call(model)
    assert hasattr(densehash, "load_hasher")


def test_other_forms_are_no_hashers(index: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="a.dh holds an index, not a hasher: densehash.Index.open"):
        Store.open(index, form=HASHER)
    store = Store.create(tmp_path / "s.dh", {"shards": []}, form=SHARDS)
    assert store.form == Store.open(tmp_path / "s.dh", form=(INDEX, SHARDS)).form == SHARDS
    message = (
        "s.dh holds a sharded index, not a hasher or an index: "
        "densehash.distributed.ShardedIndex.open opens it"
    )
    with pytest.raises(FileError, match=message):
        load_hasher(tmp_path / "s.dh")


def test_a_form_stays_through_changes(model: Path) -> None:
    store = Store.open(model, form=HASHER)
    with store.change() as change:
        change.publish(change.content)
    assert store.generation == 2
    again = Store.open(model, form=HASHER)
    assert again.form == HASHER
    with store.change() as change:
        change.publish(change.content)
    assert again.refresh()
    assert again.form == HASHER
    assert isinstance(load_hasher(model), DSH)


def test_a_folder_that_became_another_form_is_noticed(model: Path, index: Path) -> None:
    store = Store.open(model, form=HASHER)
    shutil.rmtree(model)
    shutil.copytree(index, model)
    with pytest.raises(FileError, match="m.dh holds an index, not a hasher"):
        store.refresh()
    with pytest.raises(FileError, match="m.dh holds an index, not a hasher"), store.change():
        pass
    assert store.form == HASHER


def test_an_index_is_never_replaced_by_a_hasher_nor_a_hasher_by_an_index(
    model: Path, index: Path
) -> None:
    before = files_of(model), files_of(index)
    with pytest.raises(FileError, match="a.dh holds an index, not a hasher: choose another folder"):
        fitted(MAKERS["LSH"]).save(index)
    with pytest.raises(FileError, match="m.dh holds a hasher, not an index: choose another folder"):
        Index.open(index).save(model)
    with pytest.raises(FileError, match="m.dh holds a hasher, not a sharded index"):
        Store.create(model, {}, form=SHARDS)
    assert (files_of(model), files_of(index)) == before


def test_a_hasher_is_replaced_by_a_hasher(model: Path) -> None:
    before = set(files_of(model))
    hasher = fitted(MAKERS["SpH"])
    hasher.save(model)
    assert_same(load_hasher(model), hasher, mixture())
    assert set(files_of(model)) & before == {MANIFEST}


def test_what_is_no_folder_of_ours_is_left_alone(tmp_path: Path) -> None:
    hasher = fitted(MAKERS["LSH"])
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to-mother.txt").touch()
    with pytest.raises(FileError, match="is no hasher, and not empty: it has 'to-mother.txt'"):
        hasher.save(tmp_path / "letters")
    with pytest.raises(FileError, match="is no hasher: it has no manifest.json"):
        load_hasher(tmp_path / "letters")
    with pytest.raises(FileError, match="is no folder"):
        hasher.save(tmp_path / "letters" / "to-mother.txt")
    with pytest.raises(FileError, match="nowhere is not there"):
        load_hasher(tmp_path / "nowhere")
    assert [path.name for path in (tmp_path / "letters").iterdir()] == ["to-mother.txt"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
def test_a_disk_that_fails_leaves_the_old_hasher(model: Path, number: int) -> None:
    before, hasher = files_of(model), fitted(MAKERS["LSH"])
    at = 1
    while True:
        with Disk(fail_at=at, error=number).at_work():
            try:
                hasher.save(model)
            except FileError:
                assert files_of(model) == before
                assert isinstance(load_hasher(model), DSH)
            else:
                break
        at += 1
    assert at > 5
    assert isinstance(load_hasher(model), LSH)


# --- the golden folder --------------------------------------------------------------------


def test_a_golden_hasher_is_loaded_and_hashes() -> None:
    before = files_of(FOLDER)
    verify(FOLDER)
    hasher = load_hasher(FOLDER)
    assert repr(hasher) == "DSH(n_bits=12, random_state=0)"
    stored = json.loads(FOLDER.with_suffix(".json").read_text(encoding="ascii"))
    assert hasher.transform(QUERIES).tolist() == stored["codes"]
    np.testing.assert_allclose(hasher.project(QUERIES), stored["margins"], rtol=1e-5, atol=1e-5)
    assert files_of(FOLDER) == before


def test_a_golden_hasher_is_read_by_numpy_alone() -> None:
    """As docs/format.md has it."""
    manifest = json.loads((FOLDER / MANIFEST).read_bytes())
    assert (manifest["format"], manifest["version"]) == ("densehash hasher", 1)
    assert set(manifest["content"]) == {"hasher"}
    arrays = {
        name: np.load(FOLDER / entry["file"])
        for name, entry in manifest["content"]["hasher"]["arrays"].items()
    }
    products = QUERIES @ arrays["planes_"].T
    bits = products >= arrays["thresholds_"]
    codes = np.packbits(bits, axis=1, bitorder="little")
    np.testing.assert_array_equal(codes, load_hasher(FOLDER).transform(QUERIES))


# --- damage and attacks -------------------------------------------------------------------


def test_every_cut_and_every_flipped_bit_of_the_manifest_is_noticed(model: Path) -> None:
    path = model / MANIFEST
    data = path.read_bytes()
    for at in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(FileError):
            decode(bytes(flipped), path)
        if at % 8 == at // 8 % 8:  # one bit of each byte, on the disk
            put(path, bytes(flipped))
            with pytest.raises(FileError):
                load_hasher(model)
    for length in range(len(data)):
        put(path, data[:length])
        with pytest.raises(FileError):
            load_hasher(model)
    put(path, data)
    assert isinstance(load_hasher(model), DSH)


def test_every_flipped_byte_of_every_array_is_noticed(model: Path) -> None:
    for path in model.glob("*.npy"):
        data = path.read_bytes()
        for at in range(len(data)):
            put(path, data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
            with pytest.raises(FileError):
                load_hasher(model)
        for wrong in (data[:-1], data + b"\0", b""):
            put(path, wrong)
            with pytest.raises(FileError):
                load_hasher(model)
        path.unlink()
        with pytest.raises(FileError):
            load_hasher(model)
        path.write_bytes(data)
    assert isinstance(load_hasher(model), DSH)


def described(tree: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = tree["content"]["hasher"]["description"]
    return found


def entry(tree: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = tree["content"]["hasher"]["arrays"]["planes_"]
    return found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: described(t).update({"class": "Pipeline"}), "class must be one of LSH, KLSH"),
        (lambda t: described(t).update({"class": "os.system"}), "class must be one of LSH"),
        (lambda t: described(t).update({"class": ["DSH"]}), "class must be one of LSH"),
        (lambda t: described(t).update({"class": "ITQ"}), "parameters has no 'n_iter'"),
        (lambda t: described(t).update({"call": "x"}), "must be an object of class, learnt"),
        (lambda t: described(t)["parameters"].update(more=1), "has an unknown 'more'"),
        (lambda t: described(t)["learnt"].update(fit=1), "has an unknown 'fit'"),
        (lambda t: described(t)["learnt"].update(n_features_in_=7), "must be float64 of shape"),
        (lambda t: t["content"]["hasher"]["arrays"].pop("pairs_"), "has no pairs_"),
        (lambda t: t["content"].update(segments=[]), "holds a hasher, and more: hasher, segments"),
        (lambda t: t["content"].pop("hasher"), "hasher must be an object of arrays, description"),
        (lambda t: t["content"].update(hasher=[1]), "hasher must be an object of arrays"),
        (lambda t: t["content"]["hasher"].pop("arrays"), "hasher must be an object of arrays"),
        (lambda t: t["content"]["hasher"].update(arrays=[]), "arrays must be arrays by name"),
        (lambda t: t["content"]["hasher"].update(arrays={"x": 1}), "arrays must be arrays by name"),
        (lambda t: entry(t).update(file="../" + entry(t)["file"]), "a file of this folder"),
        (lambda t: entry(t).update(file="/etc/passwd"), "a file of this folder"),
        (lambda t: entry(t).update(file="..\\x.npy"), "a file of this folder"),
        (lambda t: entry(t).update(dtype="|O"), "a type that is listed in the format"),
        (lambda t: t.update(format="densehash"), "is not the manifest of a densehash index or a"),
        (lambda t: t.update(format=["densehash hasher"]), "is not the manifest of a densehash"),
        (lambda t: t.update(version=2), "has version 2 .* install a newer densehash"),
    ],
)
def test_attacks(model: Path, change: Callable[[dict[str, Any]], Any], message: str) -> None:
    edit(model, change)
    with pytest.raises(FileError, match=message):
        load_hasher(model)


HUGE = 1 << 27  # of float64, a gibibyte a row


def hostile(hasher: Hasher) -> Iterator[tuple[str, dict[str, Any], dict[str, NDArray[Any]]]]:
    """States of a hasher in which lengths are zero, so that others can be anything."""
    description, arrays = state_of(hasher)
    d = hasher.n_features_in_

    def emptied(array: NDArray[Any], which: set[int]) -> NDArray[Any]:
        shape = [HUGE if n == d else n for n in array.shape]
        return np.empty([0 if at in which else n for at, n in enumerate(shape)], array.dtype)

    def claims(**numbers: int) -> dict[str, Any]:
        return {**description, "learnt": {**description["learnt"], **numbers}}

    for name, array in arrays.items():
        for at in range(array.ndim):
            if not name.endswith("losses_"):  # which there may be none of
                changed = {**arrays, name: emptied(array, {at})}
                yield f"{name} {at}", claims(), changed
                yield f"{name} {at}, many features", claims(n_features_in_=HUGE), changed
    for name, value in description["learnt"].items():
        if type(value) is int:
            yield name, claims(**{name: HUGE}), arrays
    # All that fits together, and holds nothing.
    for at in (0, 1):
        every = {k: emptied(array, {min(at, array.ndim - 1)}) for k, array in arrays.items()}
        yield f"all {at}", claims(n_features_in_=HUGE), every


@pytest.mark.parametrize("name", HASHERS)
def test_a_hasher_is_no_larger_than_its_files(name: str, tmp_path: Path) -> None:
    hasher = hasher_named(name, 6, random_state=0)
    hasher.set_params(**small(hasher)).fit(mixture()[:200])
    harmless = {"n_candidates_", "n_steps_"}  # numbers to read, and no lengths
    for number, (what, description, arrays) in enumerate(hostile(hasher)):
        folder = tmp_path / str(number)
        content = {"hasher": {"description": description, "arrays": arrays}}
        Store.create(folder, content, form=HASHER, checked=("hasher",))
        tracemalloc.start()
        try:
            if what in harmless:
                load_hasher(folder)
            else:
                with pytest.raises(FileError):
                    load_hasher(folder)
            assert tracemalloc.get_traced_memory()[1] < 1 << 22, what
        finally:
            tracemalloc.stop()


def test_landmarks_of_no_rows_and_many_features(tmp_path: Path) -> None:
    """Everything fits together: nothing but the rule that no length is zero refuses it."""
    description, arrays = state_of(KLSH(8, n_landmarks=20, n_subset=5).fit(mixture()[:200]))
    description["learnt"]["n_features_in_"] = HUGE
    arrays["landmarks_"] = np.empty((0, HUGE))
    arrays["subsets_"] = np.empty((8, 0), np.int64)
    arrays["weights_"] = np.empty((0, 8))
    content = {"hasher": {"description": description, "arrays": arrays}}
    Store.create(tmp_path / "a", content, form=HASHER, checked=("hasher",))
    with pytest.raises(
        FileError, match=r"landmarks_ must have lengths \(p, d\) of at least 1, got the shape \(0, "
    ):
        load_hasher(tmp_path / "a")


def test_first_centres_of_no_rows(tmp_path: Path) -> None:
    description, arrays = state_of(DSH(9, init=mixture()[:20]).fit(mixture()))
    arrays["init"] = arrays["init"][:0]
    content = {"hasher": {"description": description, "arrays": arrays}}
    Store.create(tmp_path / "a", content, form=HASHER, checked=("hasher",))
    with pytest.raises(FileError, match=r"init must be an array of some rows, got \(0, 24\)"):
        load_hasher(tmp_path / "a")


def test_arrays_that_are_links_are_refused(model: Path, tmp_path: Path) -> None:
    (path,) = model.glob("*planes_.npy")
    path.rename(tmp_path / "elsewhere.npy")
    path.symlink_to(tmp_path / "elsewhere.npy")
    with pytest.raises(FileError, match="is a link, and links are not followed"):
        load_hasher(model)


def test_a_hasher_that_says_it_is_an_index_is_none(model: Path) -> None:
    edit(model, lambda tree: tree.update(format=INDEX))
    with pytest.raises(FileError):
        Index.open(model)
    assert isinstance(load_hasher(model), DSH)  # the hasher of an index, as far as anybody can tell


# --- codes in blocks ----------------------------------------------------------------------


class Counted(Source):
    """Rows of an array, which counts those that were read."""

    def __init__(self, X: NDArray[Any]) -> None:
        self.shape, self.dtype, self._array = (len(X), X.shape[1]), X.dtype, X
        self.n_read = 0

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[Any]:
        found = self._array[rows]
        self.n_read += len(found)
        return found


@every_hasher
@pytest.mark.usefixtures("small_blocks")
def test_blocks_of_codes_are_the_codes(make: Make) -> None:
    hasher, X = fitted(make), mixture()
    for rows in (X, Counted(X), X[:1], X[:257]):
        blocks = list(hasher.transform_blocks(rows))
        lengths = [len(codes) for _, codes in blocks]
        assert [start for start, _ in blocks] == [0, *np.cumsum(lengths[:-1])]
        assert max(lengths) <= 256
        codes = np.concatenate([codes for _, codes in blocks])
        assert codes.dtype == np.uint8
        np.testing.assert_array_equal(codes, hasher.transform(rows))


@pytest.mark.usefixtures("small_blocks")
def test_few_rows_are_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "n_threads", lambda: 2)
    X = Counted(mixture())
    hasher = fitted(MAKERS["LSH"])
    blocks = hasher.transform_blocks(X)
    assert X.n_read == 0
    for count, _ in enumerate(blocks, start=1):
        assert X.n_read <= (count + 2 * 2) * 256
    assert X.n_read == len(X)


@pytest.mark.usefixtures("small_blocks")
def test_blocks_that_nobody_wants_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "n_threads", lambda: 2)
    before = [pool["num_threads"] for pool in threadpool_info()]
    others = set(threading.enumerate())  # of other tests in this process
    blocks = fitted(MAKERS["LSH"]).transform_blocks(Counted(mixture()))
    next(blocks)
    assert set(threading.enumerate()) - others
    blocks.close()
    assert not set(threading.enumerate()) - others
    assert [pool["num_threads"] for pool in threadpool_info()] == before


def test_mistakes_are_noticed_before_the_first_block() -> None:
    with pytest.raises(NotFittedError):
        LSH().transform_blocks(mixture())
    with pytest.raises(InputError, match="X has 3 features, but LSH is expecting 24 features"):
        fitted(MAKERS["LSH"]).transform_blocks(mixture()[:, :3])


def test_a_row_that_is_not_finite_is_named() -> None:
    X = mixture(20_000).copy()
    X[17_001, 5] = np.nan
    with pytest.raises(InputError, match="got NaN in row 17001, column 5"):
        list(fitted(MAKERS["LSH"]).transform_blocks(X))


def test_codes_of_dask_arrays_stay_where_they_are() -> None:
    da = pytest.importorskip("dask.array", reason="rows on the workers of a cluster")
    with pytest.raises(InputError, match="call transform, which returns a dask array"):
        fitted(MAKERS["LSH"]).transform_blocks(da.from_array(mixture()))
