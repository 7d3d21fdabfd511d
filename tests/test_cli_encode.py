"""``densehash fit`` and ``densehash encode``: a model of a file of vectors, and codes by it."""

from __future__ import annotations

import errno
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_cli
from hasher_cases import mixture
from numpy.typing import NDArray
from test_cli import run
from test_cli_index import WAITING, as_json, bad, content, good

from densehash.cli.encoding import Codes
from densehash.datasets import open_vectors, write_vectors
from densehash.hashers import DSH, ITQ, LSH, Hasher, load_hasher
from densehash.hashers.registry import hasher_named
from densehash.index import Index
from densehash.index.lengths import unit
from densehash.rows import local

COMMANDS = ("encode", "fit")
N, D = 3000, 24
X: NDArray[np.float32] = mixture(dtype=np.float32)


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.npy"
    np.save(path, X)
    return path


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("original") / "model.dh"
    DSH(12, random_state=0).fit(X).save(path)
    return path


@pytest.fixture
def model(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "model.dh"))


def codes_of(model: Path, rows: Any = X) -> NDArray[np.uint8]:
    codes: NDArray[np.uint8] = load_hasher(model).transform(rows)
    return codes


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_that_can_be_parsed(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    test_cli.test_help_of_every_command_has_an_example_that_can_be_parsed(capsys, name)


# --- fit ----------------------------------------------------------------------------------


def test_what_is_learnt_is_what_was_asked_for(
    capsys: pytest.CaptureFixture[str], vectors: Path, tmp_path: Path
) -> None:
    out = tmp_path / "m.dh"
    options = ["--hasher", "dsh", "--bits", 20, "--seed", 3]
    answer = as_json(capsys, "fit", vectors, "-o", out, *options)
    hasher = load_hasher(out)
    same = hasher_named("dsh", 20, random_state=3).fit(X)
    assert repr(hasher) == repr(same) == "DSH(n_bits=20, random_state=3)"
    assert hasher.transform(X).tobytes() == same.transform(X).tobytes()
    assert answer.pop("seconds") > 0
    on_disk = sum(path.stat().st_size for path in out.iterdir())
    assert answer == {
        "rows": N,
        "features": D,
        "hasher": "DSH",
        "bits": 20,
        "bytes_on_disk": on_disk,
    }


def test_the_usual_hasher_is_that_of_an_index(
    capsys: pytest.CaptureFixture[str], vectors: Path, tmp_path: Path
) -> None:
    out = good(capsys, "fit", vectors, "-o", tmp_path / "m.dh")
    said = dict(re.split(" {2,}", line, maxsplit=1) for line in out.splitlines())
    assert said["model"] == str(tmp_path / "m.dh")
    assert (said["rows"], said["features"], said["hasher"]) == ("3,000", "24", "ITQ, 256 bits")
    index = Index.build(X, sketch="codes", random_state=0)
    assert codes_of(tmp_path / "m.dh").tobytes() == index.hasher.transform(X).tobytes()


def test_fit_reads_arrays_by_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", one=X[:50], two=X)
    good(
        capsys,
        *("fit", tmp_path / "b.npz", "--key", "two", "-o", tmp_path / "m.dh"),
        *("--hasher", "lsh", "--bits", "8"),
    )
    assert load_hasher(tmp_path / "m.dh").transform(X).tobytes() == (
        LSH(8, random_state=0).fit(X).transform(X).tobytes()
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hasher", "dhs"], "there is no hasher 'dhs'"),
        (["--bits", "0"], "n_bits must be from 1 to 4096"),
        (["--seed", "-1"], "random_state"),
        (["--key", "x"], "key must be None"),
        (["--metric", "l2"], "--metric"),
    ],
)
def test_mistakes_of_fit(
    capsys: pytest.CaptureFixture[str],
    vectors: Path,
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    assert message in bad(capsys, "fit", vectors, "-o", tmp_path / "m.dh", *arguments)
    assert "does not exist" in bad(capsys, "fit", tmp_path / "no.npy", "-o", tmp_path / "m.dh")
    assert not (tmp_path / "m.dh").exists()


def test_fit_replaces_a_hasher_by_force_and_nothing_else(
    capsys: pytest.CaptureFixture[str], vectors: Path, model: Path, tmp_path: Path
) -> None:
    ask = ("fit", vectors, "--hasher", "lsh", "--bits", "9", "-o")
    before = content(model)
    assert "is a hasher already: --force" in bad(capsys, *ask, model)
    assert content(model) == before
    good(capsys, *ask, model, "--force")
    assert load_hasher(model).n_bits_ == 9
    Index.build(X[:50], n_bits=8).save(tmp_path / "a.dh")
    before = content(tmp_path / "a.dh")
    for force in ((), ("--force",)):
        message = bad(capsys, *ask, tmp_path / "a.dh", *force)
        assert "a.dh holds an index, not a hasher" in message
    assert content(tmp_path / "a.dh") == before
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to-mother.txt").touch()
    assert "to-mother.txt" in bad(capsys, *ask, tmp_path / "letters", "--force")
    assert "is no folder" in bad(capsys, *ask, vectors, "--force")
    assert "is no folder" in bad(capsys, *ask, tmp_path / "a" / "b.dh")


# --- encode -------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_blocks")
def test_codes_are_those_of_the_hasher(
    capsys: pytest.CaptureFixture[str], vectors: Path, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "codes.npy"
    answer = as_json(capsys, "encode", vectors, "--hasher", model, "-o", out)
    np.testing.assert_array_equal(np.load(out), codes_of(model))
    assert answer.pop("seconds") > 0
    assert answer == {"rows": N, "bits": 12, "bytes": out.stat().st_size}


def test_encoding_says_what_was_written(
    capsys: pytest.CaptureFixture[str], vectors: Path, model: Path, tmp_path: Path
) -> None:
    out = good(capsys, "encode", vectors, "--hasher", model, "-o", tmp_path / "codes.npy")
    said = dict(re.split(" {2,}", line, maxsplit=1) for line in out.splitlines())
    assert said.pop("seconds")
    assert said == {
        "codes": str(tmp_path / "codes.npy"),
        "rows": "3,000",
        "hasher": "DSH, 12 bits",
        "bytes a row": "2",
        "bytes on disk": f"{(tmp_path / 'codes.npy').stat().st_size:,}",
    }


@pytest.mark.parametrize("suffix", [".npy", ".u8bin", ".bvecs", ".npz", ".mat", ".NPY"])
@pytest.mark.usefixtures("small_blocks")
def test_every_format_that_holds_bytes(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    model: Path,
    tmp_path: Path,
    suffix: str,
) -> None:
    # Writers ask for other blocks than hashers make.
    monkeypatch.setattr("densehash.datasets.writing._BLOCK_NUMBERS", 2 * 700)
    write_vectors(tmp_path / "x.fvecs", X)
    out = tmp_path / f"codes{suffix}"
    good(capsys, "encode", tmp_path / "x.fvecs", "--hasher", model, "-o", out)
    found = open_vectors(out)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found[:], codes_of(model))


@pytest.mark.parametrize("suffix", [".hdf5", ".parquet"])
def test_formats_of_other_packages(
    capsys: pytest.CaptureFixture[str], vectors: Path, model: Path, tmp_path: Path, suffix: str
) -> None:
    name = {".hdf5": "h5py", ".parquet": "pyarrow"}[suffix]
    pytest.importorskip(name, reason=f"{suffix} needs it")
    out = tmp_path / f"codes{suffix}"
    good(capsys, "encode", vectors, "--hasher", model, "-o", out)
    np.testing.assert_array_equal(open_vectors(out)[0:N], codes_of(model))


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float64])
def test_every_type_of_numbers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, dtype: Any
) -> None:
    rows = np.abs(3 * X).astype(dtype)
    ITQ(20, n_iter=2, random_state=0).fit(rows).save(tmp_path / "m.dh")
    np.save(tmp_path / "x.npy", rows)
    ask = ("encode", tmp_path / "x.npy", "--hasher", tmp_path / "m.dh", "-o")
    good(capsys, *ask, tmp_path / "c.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), codes_of(tmp_path / "m.dh", rows))


def test_more_than_a_block_of_a_mapped_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = np.tile(mixture(3000, 4, np.float32), (10, 1)) + np.arange(30_000)[:, np.newaxis] % 7
    write_vectors(tmp_path / "x.fvecs", rows.astype(np.float32))
    mapped = open_vectors(tmp_path / "x.fvecs")
    assert isinstance(mapped, np.memmap)
    LSH(70, random_state=0).fit(mapped).save(tmp_path / "m.dh")
    ask = ("encode", tmp_path / "x.fvecs", "--hasher", tmp_path / "m.dh", "-o")
    good(capsys, *ask, tmp_path / "c.u8bin")
    found = open_vectors(tmp_path / "c.u8bin")
    np.testing.assert_array_equal(found, codes_of(tmp_path / "m.dh", rows.astype(np.float32)))


def test_the_hasher_of_an_index_makes_the_codes_of_the_index(
    capsys: pytest.CaptureFixture[str], vectors: Path, tmp_path: Path
) -> None:
    metric: Any
    for metric, rows in (("l2", X), ("cosine", unit(X))):
        index = Index.build(X, hasher=LSH(24, random_state=0), metric=metric)
        index.save(tmp_path / metric)
        ask = ("encode", vectors, "--hasher", tmp_path / metric, "-o", tmp_path / "codes.npy")
        assert as_json(capsys, *ask)["bits"] == 24
        codes = np.load(tmp_path / "codes.npy")
        np.testing.assert_array_equal(codes, index.hasher.transform(rows))
    assert (codes != index.hasher.transform(X)).any()


def test_names_of_features_are_no_matter(
    capsys: pytest.CaptureFixture[str], vectors: Path, tmp_path: Path
) -> None:
    pandas = pytest.importorskip("pandas", reason="a table with names of columns")
    frame = pandas.DataFrame(X, columns=[f"column {i}" for i in range(D)])
    hasher = LSH(8, random_state=0).fit(frame)
    hasher.save(tmp_path / "m.dh")
    good(capsys, "encode", vectors, "--hasher", tmp_path / "m.dh", "-o", tmp_path / "c.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), hasher.transform(frame))


@pytest.mark.usefixtures("small_blocks")
def test_rows_are_hashed_once_and_by_several_threads(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    vectors: Path,
    model: Path,
    tmp_path: Path,
) -> None:
    expected = codes_of(model)
    monkeypatch.setattr(local, "n_threads", lambda: 2)
    together = threading.Barrier(2)  # each block waits until another one is hashed
    lengths: list[int] = []
    real = Hasher._codes_of

    def counted(self: Hasher, block: Any) -> Any:
        together.wait(30)
        lengths.append(len(block))
        return real(self, block)

    monkeypatch.setattr(Hasher, "_codes_of", counted)
    good(capsys, "encode", vectors, "--hasher", model, "-o", tmp_path / "codes.npy")
    assert sum(lengths) == N
    assert len(lengths) == 12
    np.testing.assert_array_equal(np.load(tmp_path / "codes.npy"), expected)


def test_codes_are_given_in_order_only() -> None:
    codes = Codes(LSH(8, random_state=0).fit(X), X, lambda _: None)
    assert codes[0:10].shape == (10, 1)
    for rows in (slice(0, 10), slice(20, 30), np.array([10, 11])):
        with pytest.raises(ValueError, match="codes come in their order, from row 10 on"):
            codes[rows]
    assert len(codes[10:N]) == N - 10
    codes.close()


# --- what goes wrong ----------------------------------------------------------------------


def test_a_wrong_width_names_both(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", X[:, :7])
    message = bad(
        capsys, "encode", tmp_path / "x.npy", "--hasher", model, "-o", tmp_path / "codes.npy"
    )
    assert "x.npy has 7 features, but the hasher of " in message
    assert message.endswith("model.dh takes 24\n")
    assert not (tmp_path / "codes.npy").exists()


@pytest.mark.usefixtures("small_blocks")
def test_a_row_that_is_not_finite_leaves_the_old_codes(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path
) -> None:
    rows = X.copy()
    rows[2700, 3] = np.inf
    np.save(tmp_path / "x.npy", rows)
    out = tmp_path / "codes.npy"
    out.write_bytes(b"old")
    message = bad(capsys, "encode", tmp_path / "x.npy", "--hasher", model, "-o", out)
    assert "infinity in row 2700, column 3" in message
    assert out.read_bytes() == b"old"
    assert not list(tmp_path.glob(".densehash-*"))


def test_mistakes_of_encode(
    capsys: pytest.CaptureFixture[str], vectors: Path, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "codes.npy"
    ask = ("encode", vectors, "--hasher", model, "-o")
    for suffix in ("", ".txt", ".fvecs", ".ivecs", ".i8bin"):
        message = bad(capsys, *ask, tmp_path / f"codes{suffix}")
        assert "-o must end in one of .bvecs, .u8bin, .npy" in message
    assert "is no folder" in bad(capsys, *ask, tmp_path / "a" / "codes.npy")
    (tmp_path / "folder.npy").mkdir()
    assert "is a directory" in bad(capsys, *ask, tmp_path / "folder.npy")
    before = vectors.read_bytes()
    assert "is the file of vectors" in bad(capsys, *ask, vectors)
    (tmp_path / "link.npy").symlink_to(vectors)
    assert "is the file of vectors" in bad(capsys, *ask, tmp_path / "link.npy")
    assert vectors.read_bytes() == before
    no = tmp_path / "no.npy"
    assert "no.npy does not exist" in bad(capsys, "encode", no, "--hasher", model, "-o", out)
    assert "is not there" in bad(
        capsys, "encode", vectors, "--hasher", tmp_path / "no.dh", "-o", out
    )
    assert "is no folder" in bad(capsys, "encode", vectors, "--hasher", vectors, "-o", out)
    assert "key must be None" in bad(capsys, *ask, out, "--key", "x")
    assert "--hasher" in bad(capsys, "encode", vectors, "-o", out)
    (next(model.glob("*planes_.npy"))).write_bytes(b"")
    assert "planes_.npy has 0 bytes" in bad(capsys, *ask, out)
    assert not out.exists()


def test_room_is_looked_for_before_the_work(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    vectors: Path,
    model: Path,
    tmp_path: Path,
) -> None:
    def usage(_: object) -> Any:
        return shutil._ntuple_diskusage(10**9, 10**9 - 3 * N, 3 * N)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    monkeypatch.setattr(Hasher, "_codes_of", lambda *_: pytest.fail("it has begun"))
    message = bad(capsys, "encode", vectors, "--hasher", model, "-o", tmp_path / "codes.bvecs")
    assert f"{3 * N:,} bytes free, and {6 * N:,} more are needed" in message
    monkeypatch.undo()
    monkeypatch.setattr(shutil, "disk_usage", usage)
    good(capsys, "encode", vectors, "--hasher", model, "-o", tmp_path / "codes.u8bin")


class FailingFile:
    """A file of which the n-th write fails, after some bytes."""

    def __init__(self, file: Any, at: int, error: BaseException) -> None:
        self.file, self.left, self.error = file, at, error

    def write(self, data: Any) -> int:
        self.left -= 1
        if self.left == 0:
            self.file.write(bytes(data)[: len(data) // 2])
            raise self.error
        written: int = self.file.write(data)
        return written

    def __enter__(self) -> FailingFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


@pytest.mark.parametrize("at", [1, 3])  # the header, or the first rows, and later ones
@pytest.mark.parametrize(
    ("suffix", "is_there"),
    [(".npy", False), (".npy", True), (".u8bin", True), (".bvecs", True)],
)
@pytest.mark.parametrize("trouble", ["full", "Ctrl-C"])
@pytest.mark.usefixtures("small_blocks")
def test_a_disk_that_fills_and_ctrl_c_leave_the_old_codes(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    vectors: Path,
    model: Path,
    tmp_path: Path,
    at: int,
    suffix: str,
    is_there: bool,
    trouble: str,
) -> None:
    full = OSError(errno.ENOSPC, "the disk is full")
    error = full if trouble == "full" else KeyboardInterrupt()
    out = tmp_path / f"codes{suffix}"
    if is_there:
        out.write_bytes(b"old codes")
    before = {path.name for path in tmp_path.iterdir()}
    threads = set(threading.enumerate())  # those of other tests in this process among them
    real_open = Path.open

    def failing(path: Path, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        file = real_open(path, mode, *arguments, **named)
        return FailingFile(file, at, error) if (path.suffix, mode) == (".part", "wb") else file

    monkeypatch.setattr("densehash.datasets.writing._BLOCK_NUMBERS", 2 * 700)
    monkeypatch.setattr(Path, "open", failing)
    code, printed, err = run(capsys, "encode", str(vectors), "--hasher", str(model), "-o", str(out))
    monkeypatch.undo()
    assert printed == ""
    assert err.count("\n") == 1
    if trouble == "full":
        assert code == 2
        assert f"codes{suffix} cannot be written: the disk is full" in err
    else:
        assert code == 130
    assert {path.name for path in tmp_path.iterdir()} == before
    assert not is_there or out.read_bytes() == b"old codes"
    assert not set(threading.enumerate()) - threads


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends Ctrl-C to all at once")
def test_ctrl_c_of_a_real_process(vectors: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "codes.npy"
    out.write_bytes(b"old codes")
    before = sorted(tmp_path.iterdir())
    command = ["encode", str(vectors), "--hasher", str(model), "-o", str(out)]
    with subprocess.Popen(
        [sys.executable, "-c", WAITING, "densehash.disk.rename", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"now\n"
        process.send_signal(signal.SIGINT)
        printed, err = process.communicate(timeout=60)
    assert (process.returncode, printed) == (130, b"")
    assert err.startswith(b"densehash: stopped")
    assert err.count(b"\n") == 1
    assert out.read_bytes() == b"old codes"
    assert sorted(tmp_path.iterdir()) == before


def test_a_long_work_shows_a_bar(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    vectors: Path,
    model: Path,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("densehash.progress._PATIENCE", -1.0)
    code, out, err = run(
        capsys,
        *("encode", str(vectors), "--hasher", str(model), "-o", str(tmp_path / "c.npy"), "--json"),
    )
    assert code == 0
    assert out.startswith("{")
    assert "encoding vectors.npy" in err
    assert "100%" in err
    assert "left" in err
