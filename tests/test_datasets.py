from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from file_servers import FileServer, http_server
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from densehash import cli, file_locks
from densehash.datasets import builtin, catalog, download
from densehash.datasets.catalog import PUBLISHED, Published, data_folders, fetch, find, load
from densehash.datasets.files import write_vectors
from densehash.errors import FileError, InputError, MissingExtraError

BASE = np.random.RandomState(0).standard_normal((50, 6)).astype(np.float32)
QUERIES = BASE[::10] + 1


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DENSEHASH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download, "_PAUSE", 0.0)
    monkeypatch.setattr(file_locks, "_POLL", 0.01)


# What is built in.


def test_the_digits_are_those_of_scikit_learn() -> None:
    digits = builtin.digits()
    assert digits.shape == (1797, 64)
    assert digits.dtype == np.uint8
    np.testing.assert_array_equal(digits, load_digits().data)


def naive_patches(photographs: list[NDArray[np.uint8]]) -> list[tuple[int, ...]]:
    """The rows that the documentation promises, in no order, by loops and floats."""
    rows = []
    for photograph in photographs:
        picture = np.floor(photograph.astype(float) @ [0.299, 0.587, 0.114] + 0.5 + 1e-9)
        for _ in range(3):
            height, width = picture.shape
            for top in range(0, height - 11, 2):
                for left in range(0, width - 11, 2):
                    window = picture[top : top + 12, left : left + 12]
                    if window.std() >= 2 - 1e-9:
                        half = np.floor((window - window.mean()) / 2 + 0.5 + 1e-9)
                        rows.append(tuple((half + 128).astype(int).ravel().tolist()))
            halved = np.empty((height // 2, width // 2))
            for top in range(height // 2):
                for left in range(width // 2):
                    square = picture[2 * top : 2 * top + 2, 2 * left : 2 * left + 2]
                    halved[top, left] = np.floor(square.mean() + 0.5)
            picture = halved
    return rows


def test_patches_are_cut_as_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.RandomState(1)
    noise = draw.randint(0, 256, (53, 60, 3)).astype(np.uint8)
    extremes = np.where(draw.rand(50, 61, 1) < 0.5, 0, 255).repeat(3, axis=2).astype(np.uint8)
    extremes[:, :20] = 255
    extremes[15, 10] = 0  # one pixel that differs from its whole window
    extremes[:, 20:24] = 0
    flat = np.full((50, 50, 3), 77, dtype=np.uint8)
    photographs = [noise, extremes, flat]
    images = SimpleNamespace(images=photographs)
    monkeypatch.setattr("sklearn.datasets.load_sample_images", lambda: images)
    found = builtin.patches()
    assert found.dtype == np.uint8
    assert sorted(map(tuple, found.tolist())) == sorted(naive_patches(photographs))


def test_without_pillow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"pip install densehash\[images\]"):
        builtin.patches()


def test_patches_behave_like_descriptors() -> None:
    pytest.importorskip("PIL", reason="Pillow reads the photographs")
    patches = builtin.patches()
    assert 105_000 < len(patches) < 117_000
    assert patches.shape[1] == 144
    np.testing.assert_array_equal(patches, builtin.patches())
    assert len(np.unique(patches, axis=0)) == len(patches)
    # The first rows are a fair sample: shuffled, not one photograph after the other.
    halves = patches[: len(patches) // 2], patches[len(patches) // 2 :]
    contrasts = [half.astype(np.float32).std(axis=1).mean() for half in halves]
    assert contrasts[0] == pytest.approx(contrasts[1], rel=0.02)

    # Docs say 17 for the intrinsic dimension, 70 for the directions of nine tenths of the variance.
    base, queries = patches[100:].astype(np.float32), patches[:100].astype(np.float32)
    squares = np.square(base).sum(axis=1) - 2 * queries @ base.T
    squares += np.square(queries).sum(axis=1, keepdims=True)
    distances = np.sqrt(np.sort(np.partition(squares, 99, axis=1)[:, :100], axis=1))
    assert 13 < 1 / np.log(distances[:, -1:] / distances[:, :-1]).mean() < 21
    variances = np.linalg.eigvalsh(np.cov(base[:20_000].T))[::-1]
    assert 60 < np.searchsorted(np.cumsum(variances) / variances.sum(), 0.9) < 80


# Names and paths.


def test_names() -> None:
    assert catalog.NAMES == ("digits", "patches", "sift1m", "gist1m", "flickr1m")
    assert set(PUBLISHED) < set(catalog.NAMES)


@pytest.mark.parametrize("name", ["digits", "Digits"])
def test_a_built_in_set(name: str) -> None:
    found = load(name)
    assert (found.name, found.queries) == ("digits", None)
    np.testing.assert_array_equal(np.asarray(found.base), builtin.digits())
    assert "scikit-learn" in found.description


def test_a_file_by_its_path(tmp_path: Path) -> None:
    write_vectors(tmp_path / "some.base.fvecs", BASE)
    write_vectors(tmp_path / "queries.npy", QUERIES)
    found = load(str(tmp_path / "some.base.fvecs"))
    assert (found.name, found.queries) == ("some.base", None)
    np.testing.assert_array_equal(found.base[:], BASE)
    assert "some.base.fvecs" in found.description
    found = load(tmp_path / "some.base.fvecs", queries=tmp_path / "queries.npy")
    np.testing.assert_array_equal(found.queries, QUERIES)


def test_a_name_is_no_path_and_a_path_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").write_bytes(b"")
    assert load("digits").base.shape == (1797, 64)
    with pytest.raises(InputError, match="digits"):
        load(Path("digits"))  # a file, of no format that is known


@pytest.mark.parametrize("wrong", ["sift", "no/such/file.fvecs", "", "\0", Path("sift1m")])
def test_what_is_neither(wrong: str | Path) -> None:
    message = "neither an existing file nor .* digits, patches, sift1m"
    with pytest.raises(InputError, match=message):
        load(wrong)


def test_queries_of_another_width(tmp_path: Path) -> None:
    write_vectors(tmp_path / "queries.npy", QUERIES[:, :5])
    write_vectors(tmp_path / "base.npy", BASE)
    with pytest.raises(InputError, match="queries have 5 features but base has 6"):
        load(tmp_path / "base.npy", queries=tmp_path / "queries.npy")
    with pytest.raises(InputError, match="queries have 5 features but digits has 64"):
        load("digits", queries=tmp_path / "queries.npy")


def test_the_key_chooses_an_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", a=BASE, b=BASE[:3])
    assert load(tmp_path / "two.npz", key="b").base.shape == (3, 6)
    with pytest.raises(InputError, match="'a'"):
        load(tmp_path / "two.npz")


def write_hdf5(path: Path, **arrays: NDArray[Any]) -> Path:
    h5py = pytest.importorskip("h5py", reason="HDF5 needs h5py")
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return path


def test_a_file_of_ann_benchmarks_brings_its_queries(tmp_path: Path) -> None:
    neighbors = np.zeros((5, 10), dtype=np.int32)
    path = write_hdf5(tmp_path / "a.hdf5", train=BASE, test=QUERIES, neighbors=neighbors)
    for key in (None, "train"):
        found = load(path, key=key)
        assert found.base.shape == BASE.shape
        assert isinstance(found.queries, np.ndarray)
        np.testing.assert_array_equal(found.queries, QUERIES)
    found = load(path, key="test")
    assert (found.base.shape, found.queries) == (QUERIES.shape, None)
    write_vectors(tmp_path / "other.npy", QUERIES[:2])
    found = load(path, queries=tmp_path / "other.npy")
    assert found.queries is not None
    assert len(found.queries) == 2


@pytest.mark.parametrize("names", [["vectors"], ["test"], ["train"]])
def test_hdf5_of_one_array_has_no_queries(tmp_path: Path, names: list[str]) -> None:
    path = write_hdf5(tmp_path / "a.h5", **dict.fromkeys(names, BASE))
    found = load(path)
    assert (found.base.shape, found.queries) == (BASE.shape, None)


# Published sets.


def fvecs(rows: NDArray[np.float32]) -> bytes:
    heads = np.full((len(rows), 1), rows.shape[1], dtype="<i4")
    return np.hstack([heads, rows.astype("<f4").view("<i4")]).tobytes()


FILES = {"tiny/tiny_base.fvecs": fvecs(BASE), "tiny/tiny_query.fvecs": fvecs(QUERIES)}


def tar_of(files: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return archive.getvalue()


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """The set "tiny", published by a server here."""
    archive = tar_of({**FILES, "tiny/tiny_learn.fvecs": fvecs(BASE[:7])})
    with http_server(archive) as server:
        entry = Published(
            name="tiny",
            description="A tiny set.",
            page="http://tiny.invalid/",
            base="tiny/tiny_base.fvecs",
            queries="tiny/tiny_query.fvecs",
            n_rows=len(BASE),
            n_features=6,
            n_queries=len(QUERIES),
            urls=(server.url,),
            size=len(archive),
            checksum=f"sha256:{hashlib.sha256(archive).hexdigest()}",
        )
        monkeypatch.setitem(PUBLISHED, "tiny", entry)
        yield server


def change(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    monkeypatch.setitem(PUBLISHED, "tiny", replace(PUBLISHED["tiny"], **fields))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_is_known_of_the_sets_fits_together() -> None:
    for entry in PUBLISHED.values():
        assert entry.name == entry.name.lower()
        assert entry.description.endswith(".")
        assert entry.base.partition("/")[0] in (entry.name, entry.name.removesuffix("1m"))
        assert len({url.rpartition("/")[2] for url in entry.urls}) <= 1
        for url in entry.urls:
            assert url.startswith(("ftp://", "https://"))
        if entry.urls:
            assert entry.checksum is not None
            assert len(entry.checksum) == len("sha256:") + 64
    # Sizes that TEXMEX's files are known to have.
    assert PUBLISHED["sift1m"].sizes == {
        "sift/sift_query.fvecs": 5_160_000,
        "sift/sift_base.fvecs": 516_000_000,
    }
    assert PUBLISHED["gist1m"].sizes == {
        "gist/gist_query.fvecs": 3_844_000,
        "gist/gist_base.fvecs": 3_844_000_000,
    }


def test_fetching_downloads_checks_and_unpacks(web: FileServer) -> None:
    fetched = fetch("tiny")
    folder = data_folders()[0]
    assert fetched.downloaded
    assert fetched.folder == folder / "tiny"
    assert contents(folder) == FILES  # and no archive, lock or part
    found = load("tiny")
    assert (found.name, found.description) == ("tiny", "A tiny set.")
    np.testing.assert_array_equal(found.base[:], BASE)
    np.testing.assert_array_equal(found.queries, QUERIES)


def test_fetching_again_asks_nobody(web: FileServer) -> None:
    fetch("tiny")
    web.asked.clear()
    assert not fetch("TINY").downloaded
    assert web.asked == []


def test_several_at_once_fetch_one_time(web: FileServer) -> None:
    done: list[bool] = []
    threads = [
        threading.Thread(target=lambda: done.append(fetch("tiny").downloaded)) for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False] * 4 + [True]
    assert len(web.asked) == 1
    assert contents(data_folders()[0]) == FILES


def test_what_one_folder_has_is_not_fetched_into_another(
    web: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = data_folders()[1]
    fetch("tiny", to=cache)
    assert fetch("tiny").folder == cache / "tiny"
    assert load("tiny").base.shape == BASE.shape
    elsewhere = tmp_path / "elsewhere"
    assert fetch("tiny", to=elsewhere).downloaded  # unless it is asked for there
    assert contents(elsewhere) == FILES


def test_fetching_goes_on_where_it_was_cut(web: FileServer) -> None:
    web.actions = [700, 0, 0, 0, 0]
    with pytest.raises(FileError, match="700 bytes are kept"):
        fetch("tiny")
    assert find("tiny") is None
    web.asked.clear()
    fetch("tiny")
    assert web.asked[0]["range"] == "bytes=700-"
    assert contents(data_folders()[0]) == FILES


def test_a_crash_while_unpacking_leaves_no_half_set(
    web: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.replace

    def crash(self: Path, target: Path) -> Path:
        if Path(target).name == "tiny_base.fvecs":
            raise KeyboardInterrupt
        return real(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            fetch("tiny")
    assert find("tiny") is None
    with pytest.raises(FileError, match="is there, but not unpacked: run `densehash fetch tiny`"):
        load("tiny")
    web.asked.clear()
    fetch("tiny")
    assert web.asked == []  # the archive had come
    assert set(contents(data_folders()[0])) == {*FILES, "data.bin"}


def test_an_archive_put_there_by_hand_is_unpacked_and_kept(web: FileServer) -> None:
    folder = data_folders()[0]
    folder.mkdir()
    (folder / "data.bin").write_bytes(web.body)
    fetch("tiny")
    assert web.asked == []
    assert contents(folder) == {**FILES, "data.bin": web.body}


def test_a_damaged_archive_put_there_by_hand(web: FileServer) -> None:
    folder = data_folders()[0]
    folder.mkdir()
    (folder / "data.bin").write_bytes(web.body[:-1])
    with pytest.raises(FileError, match="data.bin has .* remove it to download it again"):
        fetch("tiny")
    assert contents(folder) == {"data.bin": web.body[:-1]}


def test_files_put_there_by_hand_are_found(web: FileServer) -> None:
    for name, content in FILES.items():
        (data_folders()[0] / name).parent.mkdir(parents=True, exist_ok=True)
        (data_folders()[0] / name).write_bytes(content)
    np.testing.assert_array_equal(load("tiny").base[:], BASE)
    assert not fetch("tiny").downloaded


def test_files_of_another_shape_are_refused(
    web: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch("tiny")
    change(monkeypatch, n_rows=51)
    for use in (load, fetch):
        with pytest.raises(FileError, match=r"tiny_base.fvecs .* \(50, 6\), expected \(51, 6\)"):
            use("tiny")
    change(monkeypatch, n_rows=50, n_queries=6)
    with pytest.raises(FileError, match=r"tiny_query.fvecs .* \(5, 6\), expected \(6, 6\)"):
        load("tiny")


def test_the_next_address_is_tried(web: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    change(monkeypatch, urls=("ftp://127.0.0.1:9/data.bin", f"{web.url}/none/data.bin", web.url))
    web.actions = ["404"]
    assert fetch("tiny").downloaded
    assert len(web.asked) == 2


def test_offline(web: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    change(monkeypatch, urls=("ftp://127.0.0.1:9/data.bin", "http://127.0.0.1:9/data.bin"))
    with pytest.raises(FileError) as caught:
        fetch("tiny")
    folder = data_folders()[0]
    assert str(caught.value) == (
        "tiny cannot be downloaded from here: "
        "ftp://127.0.0.1:9/data.bin cannot be reached (Connection refused); "
        "http://127.0.0.1:9/data.bin cannot be reached (Connection refused). "
        f"Download data.bin by hand, put it into {folder}, and run this again; "
        "see http://tiny.invalid/"
    )
    assert contents(folder) == {}


def test_there_must_be_room_for_archive_and_files(
    web: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = len(web.body) + sum(map(len, FILES.values()))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=needed - 1))
    with pytest.raises(FileError, match=f"{needed - 1:,} bytes free, and {needed:,} more"):
        fetch("tiny")
    assert web.asked == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=needed))
    assert fetch("tiny").downloaded


def test_a_set_that_is_missing_says_all_there_is_to_know() -> None:
    with pytest.raises(FileError) as caught:
        load("sift1m")
    here, cache = data_folders()
    assert str(caught.value) == (
        "sift1m was not found: no sift/sift_base.fvecs and sift/sift_query.fvecs in "
        f"{here} or {cache}; run `densehash fetch sift1m`, or download "
        "ftp://ftp.irisa.fr/local/texmex/corpus/sift.tar.gz by hand "
        f"(see http://corpus-texmex.irisa.fr/) and unpack it in {here}"
    )


def test_flickr1m_is_one_file_put_there_by_hand() -> None:
    folder = data_folders()[0] / "flickr1m"
    for use in (load, fetch):
        with pytest.raises(FileError, match=f"NNSData.html and put .* into {folder}"):
            use("flickr1m")
    folder.mkdir(parents=True)
    (folder / "readme.txt").write_bytes(b"not vectors")
    rows = np.zeros((3, 512), dtype=np.float32)
    write_vectors(folder / "gist.npy", rows)
    found = load("flickr1m")
    assert (found.base.shape, found.queries) == ((3, 512), None)
    assert not fetch("flickr1m").downloaded
    write_vectors(folder / "more.npy", rows)
    with pytest.raises(FileError, match="found gist.npy, more.npy: give the path of one"):
        load("flickr1m")
    (folder / "more.npy").unlink()
    write_vectors(folder / "gist.npy", rows[:, :500])
    with pytest.raises(FileError, match=r"\(3, 500\), expected \(3, 512\)"):
        load("flickr1m")


@pytest.mark.parametrize(
    ("named", "caches", "expected"),
    [
        ("/data", "/caches", ["/data", "/caches/densehash"]),
        ("", "/caches", ["/caches/densehash"]),
        ("~/data", "/caches", ["/someone/data", "/caches/densehash"]),
        (None, "relative", ["/someone/.cache/densehash"]),
        (None, None, ["/someone/.cache/densehash"]),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="caches lie elsewhere")
def test_the_folders(
    monkeypatch: pytest.MonkeyPatch, named: str | None, caches: str | None, expected: list[str]
) -> None:
    monkeypatch.setenv("HOME", "/someone")
    for variable, value in (("DENSEHASH_DATA", named), ("XDG_CACHE_HOME", caches)):
        if value is None:
            monkeypatch.delenv(variable)
        else:
            monkeypatch.setenv(variable, value)
    assert [str(folder) for folder in data_folders()] == expected


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str | int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    output = capsys.readouterr()
    return exit_.value.code or 0, output.out, output.err


def test_the_command_says_where_the_set_is(
    web: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "there")
    assert run(capsys, "fetch", "tiny", "--to", folder) == (0, f"{folder}/tiny\n", "")
    again = (0, f"{folder}/tiny\n", "tiny is already there\n")
    assert run(capsys, "fetch", "tiny", "--to", folder) == again
    code, out, _ = run(capsys, "fetch", "tiny", "--to", folder, "--json")
    assert (code, json.loads(out)) == (
        0,
        {
            "name": "tiny",
            "folder": f"{folder}/tiny",
            "base": f"{folder}/tiny/tiny_base.fvecs",
            "queries": f"{folder}/tiny/tiny_query.fvecs",
            "downloaded": False,
        },
    )


def test_the_command_lists_the_sets(web: FileServer, capsys: pytest.CaptureFixture[str]) -> None:
    fetch("tiny")
    code, out, err = run(capsys, "fetch")
    assert (code, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert set(lines) == set(PUBLISHED)
    assert "1,000,000 x 128" in lines["sift1m"]
    assert "168 MB" in lines["sift1m"]
    assert "not here" in lines["sift1m"]
    assert str(data_folders()[0] / "tiny") in lines["tiny"]
    assert "by hand only" in lines["flickr1m"]
    listed = {entry["name"]: entry for entry in json.loads(run(capsys, "fetch", "--json")[1])}
    assert listed["gist1m"]["bytes_to_download"] == 2_740_172_684
    assert listed["gist1m"]["folder"] is None
    assert listed["tiny"]["folder"] == str(data_folders()[0] / "tiny")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fetch", "sift"], "name must be one of sift1m, gist1m, flickr1m, got 'sift'"),
        (["fetch", "patches"], "patches comes with scikit-learn: there is nothing to fetch"),
        (["fetch", "flickr1m"], "no address of the files of flickr1m is known"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"densehash: {message}")
    assert err.count("\n") == 1


def test_the_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "fetch", "--help")
    assert code == 0
    assert "densehash fetch sift1m" in out
