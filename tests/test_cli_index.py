"""The commands about an index, from the command line."""

import csv
import io
import json
import re
import shutil
import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_cli
from hasher_cases import mixture
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from test_cli import run

from densehash import cli
from densehash.datasets import write_vectors
from densehash.index import Index
from densehash.store.manifest import MANIFEST

COMMANDS = (
    *("add", "build", "compact", "create", "export", "info", "remove", "search", "tune", "verify"),
)
N = 200

X: NDArray[np.float32] = mixture(N + 20, 8).astype(np.float32)
Q = X[N:]
EVERY = ("--candidates", str(2 * N))  # re-ranked, so that answers are exact
NAMES = [f'photo {i:03} ä, "x"' for i in range(N)]


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.npy"
    np.save(path, X[:N])
    return path


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    path = tmp_path / "queries.npy"
    np.save(path, Q)
    return path


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("originals")
    Index.build(X[:N], sketch="codes", n_bits=32, random_state=0).save(folder / "photos.dh")
    Index.build(X[:N], ids=NAMES, sketch="codes", n_bits=32, random_state=0).save(
        folder / "named.dh"
    )
    return folder


@pytest.fixture
def index(originals: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals / "photos.dh", tmp_path / "photos.dh"))


@pytest.fixture
def named(originals: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals / "named.dh", tmp_path / "named.dh"))


def good(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What a command that succeeds prints."""
    code, out, err = run(capsys, *map(str, arguments))
    assert code == 0, err
    return out


def as_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    return json.loads(good(capsys, *arguments, "--json"))


def bad(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that a mistake is answered by."""
    code, out, err = run(capsys, *map(str, arguments))
    assert (code, out) == (2, "")
    assert err.startswith("densehash: ")
    assert err.count("\n") == 1
    return err


def content(index: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in index.iterdir()}


def truth(k: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    distances = cdist(Q.astype(np.float64), X[:N].astype(np.float64))
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return nearest, np.take_along_axis(distances, nearest, axis=1)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_that_can_be_parsed(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    test_cli.test_help_of_every_command_has_an_example_that_can_be_parsed(capsys, name)


# --- create -------------------------------------------------------------------------------


def test_an_index_that_is_made_empty_learns_when_it_is_added_to(
    capsys: pytest.CaptureFixture[str], vectors: Path, queries: Path, tmp_path: Path
) -> None:
    out = tmp_path / "photos.dh"
    said = good(capsys, "create", out, "--dim", 8, "--learn-at", 350, "--seed", 3)
    assert "every row is compared until there are 350 to learn from" in said
    assert "as the first rows have them" in good(capsys, "info", out)
    (tmp_path / "ids.txt").write_text("\n".join(NAMES))
    said = good(capsys, "add", out, vectors, "--ids", tmp_path / "ids.txt")
    assert said == "added 200 rows; there are 200 now, all of them compared until there are 350\n"
    about = as_json(capsys, "info", out)
    assert (about["sketch"], about["learn_at"], about["ids"]) == ("vectors", 350, "string")
    found = as_json(capsys, "search", out, queries, "-k", 4)
    near, far = truth(4)
    assert found["ids"] == [[NAMES[at] for at in row] for row in near]
    np.testing.assert_allclose(found["distances"], far, rtol=1e-5)
    (tmp_path / "more.txt").write_text("\n".join(f"more {at}" for at in range(N)))
    said = good(capsys, "upsert", out, vectors, "--ids", tmp_path / "more.txt")
    assert said == "added 200 rows, updated 0 rows; there are 400 now\n"
    ids = [*NAMES, *(f"more {at}" for at in range(N))]
    rows = np.concatenate([X[:N], X[:N]])[np.argsort(ids)]
    built = Index.build(rows, ids=sorted(ids), random_state=3)
    opened = Index.open(out)
    assert opened.reason == built.reason
    assert opened.search(Q, 5).ids.tolist() == built.search(Q, 5).ids.tolist()
    good(capsys, "verify", out)
    assert "--force replaces it" in bad(capsys, "create", out, "--dim", 8)
    about = as_json(capsys, "create", out, "--dim", 3, "--force", "--metric", "ip")
    assert (about["rows"], about["metric"], about["learn_at"]) == (0, "ip", 8192)
    assert "d must be" in bad(capsys, "create", tmp_path / "b", "--dim", 0)
    assert "8 features, the index 3" in bad(capsys, "add", out, vectors)
    assert "multiple of 8" in bad(
        capsys, "create", tmp_path / "b", "--dim", 8, "--sketch", "signs", "--bits", 9
    )
    assert not (tmp_path / "b").exists()


# --- codes --------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
@pytest.mark.parametrize("kind", ["flat", "grouped", "multi"])
def test_codes_of_a_file_are_searched(
    capsys: pytest.CaptureFixture[str], index: Path, suffix: str, kind: str, tmp_path: Path
) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    rows, asked = (tmp_path / f"{name}{suffix}" for name in ("rows", "asked"))
    for out, vectors in ((rows, X[:N]), (asked, Q)):
        np.save(tmp_path / "vectors.npy", vectors)
        good(capsys, "encode", tmp_path / "vectors.npy", "--hasher", index, "-o", out)
    told = ["--codes", "--kind", kind] + ["--groups", "5"] * (kind == "grouped")
    about = as_json(capsys, "build", rows, "-o", tmp_path / "a.dh", *told)
    assert (about["sketch"], about["bits"], about["kind"]) == ("bits", 32, kind)
    found = as_json(capsys, "search", tmp_path / "a.dh", asked, "-k", 5)
    whole = Index.open(index).search(Q, 5, rerank=None)
    assert found == {"ids": whole.ids.tolist(), "distances": whole.distances.tolist()}
    good(capsys, "add", tmp_path / "a.dh", asked)
    again = as_json(capsys, "search", tmp_path / "a.dh", asked, "-k", 1)
    assert again["distances"] == [[0]] * len(Q)


def test_codes_and_the_hasher_that_made_them(
    capsys: pytest.CaptureFixture[str], index: Path, vectors: Path, queries: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.npy"
    good(capsys, "encode", vectors, "--hasher", index, "-o", rows)
    said = good(capsys, "build", rows, "-o", tmp_path / "a.dh", "--codes", "--hasher", index)
    assert "32 ready-made bits" in said
    found = as_json(capsys, "search", tmp_path / "a.dh", queries, "--rerank", "none")
    assert found["ids"] == Index.open(index).search(Q, rerank=None).ids.tolist()
    np.save(tmp_path / "wide.npy", np.zeros((3, 5), np.uint8))
    build = ("build", tmp_path / "wide.npy", "-o", tmp_path / "b.dh", "--codes")
    mistakes = {
        "must be the folder of a hasher": ("--hasher", "itq"),
        "--codes goes with": ("--metric", "cosine"),
        "--codes goes with --hasher": ("--keep-vectors", "no"),
        "5 bytes wide, expected 4": ("--bits", "31"),
        "kind must be": ("--kind", "cloudy"),
    }
    for message, option in mistakes.items():
        assert message in bad(capsys, *build, *option)
    assert "packed bits" in bad(capsys, "build", vectors, "-o", tmp_path / "b.dh", "--codes")
    assert not (tmp_path / "b.dh").exists()
    good(capsys, *build)
    assert "must be codes" in bad(capsys, "search", tmp_path / "b.dh", queries)


# --- build --------------------------------------------------------------------------------


def test_what_is_built_is_what_was_asked_for(
    capsys: pytest.CaptureFixture[str], vectors: Path, tmp_path: Path
) -> None:
    out = tmp_path / "photos.dh"
    options = ["--hasher", "itq", "--bits", "8", "--metric", "cosine", "--seed", "3"]
    answer = as_json(capsys, "build", vectors, "-o", out, *options)
    opened = Index.open(out)
    assert (len(opened), opened.kind, opened.metric) == (N, "flat", "cosine")
    assert (type(opened.hasher).__name__, opened.hasher.n_bits_) == ("ITQ", 8)
    assert answer["rows"] == N
    assert answer["reason"] == opened.reason
    assert answer["seconds"] > 0
    same = Index.build(
        X[:N], hasher="itq", n_bits=8, metric="cosine", random_state=3
    ).hasher.transform(Q)
    assert (opened.hasher.transform(Q) == same).all()


def test_building_says_what_was_built(
    capsys: pytest.CaptureFixture[str], vectors: Path, tmp_path: Path
) -> None:
    out = good(
        capsys, "build", vectors, "-o", tmp_path / "photos.dh", "--bits", "32", "--hasher", "dsh"
    )
    said = dict(re.split(" {2,}", line, maxsplit=1) for line in out.splitlines())
    assert said["rows"] == f"{N}"
    assert said["hasher"] == "DSH, 32 bits"
    assert said["reason"].startswith("flat: ")
    about = Index.open(tmp_path / "photos.dh").info()
    assert said["bytes a row"].startswith(f"{about['bytes_a_row']:.1f}, ")
    assert float(said["seconds"]) >= 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--kind", "grouped", "--groups", "5"], {"kind": "grouped"}),
        (["--kind", "multi", "--tables", "2"], {"kind": "multi"}),
        (["--keep-vectors", "no"], {"vectors": None, "bytes_of_vectors": 0}),
        (["--keep-vectors", "float16"], {"vectors": "float16", "bytes_of_vectors": 2 * N * 8}),
        (["--keep-vectors", "own"], {"vectors": "float32"}),
        (["--sketch", "signs"], {"sketch": "signs", "bits": 32, "format_version": 2}),
        (["--sketch", "codes"], {"sketch": "codes", "format_version": 1}),
    ],
)
def test_options_of_build(
    capsys: pytest.CaptureFixture[str],
    vectors: Path,
    tmp_path: Path,
    options: list[str],
    expected: dict[str, object],
) -> None:
    answer = as_json(capsys, "build", vectors, "-o", tmp_path / "a.dh", "--bits", "32", *options)
    assert {name: answer[name] for name in expected} == expected


def test_other_formats_and_arrays_by_name_are_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_vectors(tmp_path / "a.fvecs", X[:N])
    np.savez(tmp_path / "b.npz", one=X[:50], two=X[:N])
    as_json(capsys, "build", tmp_path / "a.fvecs", "-o", tmp_path / "a.dh", "--bits", 16)
    as_json(
        capsys, "build", tmp_path / "b.npz", "--key", "two", "-o", tmp_path / "b.dh", "--bits", 16
    )
    assert len(Index.open(tmp_path / "a.dh")) == len(Index.open(tmp_path / "b.dh")) == N
    assert "two" in bad(capsys, "build", tmp_path / "b.npz", "-o", tmp_path / "c.dh")
    assert not (tmp_path / "c.dh").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3\n1\n0", [0, 1, 3]),
        ("3\r\n1\r\n0\r\n", [0, 1, 3]),
        ("\ufeffb\nä,b\n 3\n", [" 3", "b", "ä,b"]),
        ("7\n007\n0\n", ["0", "007", "7"]),  # three names, of which two would be one number
        ("1\n2\n9223372036854775808\n", ["1", "2", "9223372036854775808"]),
        ("a\u2028b\n1\n2\x0b\n", ["1", "2\x0b", "a\u2028b"]),
        (f"1\n{'9' * 900}\n2", ["1", "2", "9" * 900]),
    ],
)
def test_ids_of_text_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, expected: list[object]
) -> None:
    np.save(tmp_path / "x.npy", X[:3])
    (tmp_path / "ids.txt").write_bytes(text.encode())
    good(
        capsys,
        *("build", tmp_path / "x.npy", "-o", tmp_path / "x.dh"),
        *("--bits", "4", "--hasher", "lsh", "--ids", tmp_path / "ids.txt"),
    )
    assert Index.open(tmp_path / "x.dh").ids.tolist() == expected


@pytest.mark.parametrize("ids", [np.array([9, 5, 7]), np.array(["c", "a", "ü"])])
def test_ids_of_arrays(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, ids: NDArray[Any]
) -> None:
    np.save(tmp_path / "x.npy", X[:3])
    np.save(tmp_path / "ids.npy", ids)
    good(
        capsys,
        *("build", tmp_path / "x.npy", "-o", tmp_path / "x.dh"),
        *("--bits", "4", "--hasher", "lsh", "--ids", tmp_path / "ids.npy"),
    )
    assert Index.open(tmp_path / "x.dh").ids.tolist() == sorted(ids.tolist())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1\n2\n", "2 ids"),
        (b"1\n\n2\n", "line 2 is empty"),
        (b"1\n2\n\xff\n", "line 3 is not UTF-8"),
        (b"a\nb\na\n", "'a' is there twice"),
        (b"1\n2\nc\0\n", "NUL"),
        (b"", "0 ids"),
    ],
)
def test_ids_that_are_wrong(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, data: bytes, message: str
) -> None:
    np.save(tmp_path / "x.npy", X[:3])
    (tmp_path / "ids.txt").write_bytes(data)
    options = ["-o", tmp_path / "x.dh", "--ids", tmp_path / "ids.txt", "--bits", 4]
    assert message in bad(capsys, "build", tmp_path / "x.npy", *options)
    assert not (tmp_path / "x.dh").exists()


def test_arrays_of_ids_that_are_wrong(
    capsys: pytest.CaptureFixture[str], vectors: Path, tmp_path: Path
) -> None:
    ids = tmp_path / "ids.npy"
    options = ["-o", tmp_path / "x.dh", "--ids", ids]
    assert "does not exist" in bad(capsys, "build", vectors, *options)
    np.save(ids, np.array(["a", 3], object), allow_pickle=True)
    assert "ids.npy cannot be read" in bad(capsys, "build", vectors, *options)
    np.save(ids, np.arange(N))
    whole = ids.read_bytes()
    ids.write_bytes(whole[:-1])
    assert "ids.npy cannot be read" in bad(capsys, "build", vectors, *options)
    ids.write_bytes(whole.replace(b"(200,)", b"(9999999999,)"))
    assert "ids.npy cannot be read" in bad(capsys, "build", vectors, *options)
    np.save(ids, np.arange(float(N)))
    assert "must be all integers or all strings" in bad(capsys, "build", vectors, *options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hasher", "dhs"], "there is no hasher 'dhs'"),
        (["--bits", "0"], "n_bits must be from 1 to 4096"),
        (["--kind", "tree"], "kind must be"),
        (["--metric", "l1"], "metric must be"),
        (["--keep-vectors", "float64"], "--keep-vectors must be"),
        (["--groups", "3"], None),  # chooses groups: no mistake
        (["--tables", "3"], "n_tables is for the multi kind"),
        (["--seed", "-1"], "random_state"),
        (["--key", "x"], "key must be None"),
        (["--ids", "nowhere.txt"], "nowhere.txt does not exist"),
        (["--what"], "--what"),
    ],
)
def test_mistakes_of_build(
    capsys: pytest.CaptureFixture[str],
    vectors: Path,
    tmp_path: Path,
    arguments: list[str],
    message: str | None,
) -> None:
    out = tmp_path / "x.dh"
    if message is None:
        assert as_json(capsys, "build", vectors, "-o", out, *arguments)["kind"] == "grouped"
        return
    assert message in bad(capsys, "build", vectors, "-o", out, *arguments)
    assert not out.exists()


def test_an_index_that_is_there_is_replaced_only_by_force(
    capsys: pytest.CaptureFixture[str], vectors: Path, index: Path
) -> None:
    before = content(index)
    assert "--force" in bad(capsys, "build", vectors, "-o", index, "--bits", "16")
    assert content(index) == before
    good(capsys, "build", vectors, "-o", index, "--bits", "16", "--force")
    assert Index.open(index).info()["bits"] == 16
    Index.open(index).verify()
    assert not set(before) & set(content(index)) - {MANIFEST, "writer.lock"}


def test_what_is_no_index_is_never_replaced(
    capsys: pytest.CaptureFixture[str], vectors: Path, index: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "letters"
    folder.mkdir()
    (folder / "to-mother.txt").touch()
    assert "to-mother.txt" in bad(capsys, "build", vectors, "-o", folder, "--force")
    assert "is no folder" in bad(capsys, "build", vectors, "-o", vectors, "--force")
    assert "is no folder" in bad(capsys, "build", vectors, "-o", tmp_path / "a" / "b.dh")
    (index / MANIFEST).write_bytes(b"{}")
    assert "damaged" in bad(capsys, "build", vectors, "-o", index, "--force")


# --- search -------------------------------------------------------------------------------


def test_json_has_lists_of_true_neighbours(
    capsys: pytest.CaptureFixture[str], index: Path, queries: Path
) -> None:
    nearest, distances = truth(5)
    answer = as_json(capsys, "search", index, queries, "-k", "5", *EVERY)
    assert answer["ids"] == nearest.tolist()
    np.testing.assert_allclose(answer["distances"], distances, rtol=1e-5)
    assert len(as_json(capsys, "search", index, queries)["ids"][0]) == 10


def test_all_forms_say_the_same(
    capsys: pytest.CaptureFixture[str], named: Path, queries: Path, tmp_path: Path
) -> None:
    ask = ("search", named, queries, "-k", "3", *EVERY)
    answer = as_json(capsys, *ask)
    nearest, _ = truth(3)
    assert answer["ids"] == [[NAMES[i] for i in row] for row in nearest]
    lines = list(csv.reader(io.StringIO(good(capsys, *ask, "--csv"))))
    assert lines[0] == ["query", "rank", "id", "distance"]
    expected = [
        [str(query), str(rank + 1), answer["ids"][query][rank], answer["distances"][query][rank]]
        for query in range(len(Q))
        for rank in range(3)
    ]
    assert [[*line[:3], float(line[3])] for line in lines[1:]] == expected
    table = good(capsys, *ask).splitlines()
    assert table[0].split() == ["query", "rank", "id", "distance"]
    cells = [re.findall(r"^ *(\d+) +(\d+)  (photo.*\") +([0-9.]+)$", line) for line in table[1:]]
    assert [[*found[:3], float(found[3])] for (found,) in cells] == expected
    out = tmp_path / "found.npz"
    assert good(capsys, *ask, "-o", out) == f"{out}\n"
    with np.load(out, allow_pickle=False) as found:
        assert found["ids"].dtype.kind == "U"
        assert found["ids"].tolist() == answer["ids"]
        assert found["distances"].dtype == np.float32
        np.testing.assert_allclose(found["distances"], answer["distances"], rtol=1e-6)
    assert [path.name for path in tmp_path.iterdir() if ".part" in path.name] == []


@pytest.mark.parametrize("rerank", ["exact", "none"])
def test_what_is_missing(
    capsys: pytest.CaptureFixture[str], index: Path, named: Path, tmp_path: Path, rerank: str
) -> None:
    np.save(tmp_path / "q.npy", Q[:1])
    for path, names in ((index, ["7", "9"]), (named, NAMES[:2])):
        (tmp_path / "few.txt").write_text("\n".join(names), encoding="utf-8")
        ask = [
            *("search", path, tmp_path / "q.npy", "-k", "4"),
            *("--filter", tmp_path / "few.txt", "--rerank", rerank),
        ]
        answer = as_json(capsys, *ask)
        assert sorted(map(str, answer["ids"][0][:2])) == names
        assert answer["ids"][0][2:] == answer["distances"][0][2:] == [None, None]
        assert len(good(capsys, *ask, "--csv").splitlines()) == 3
        assert len(good(capsys, *ask).splitlines()) == 3
        good(capsys, *ask, "-o", tmp_path / "found.npz")
        with np.load(tmp_path / "found.npz") as found:
            assert found["ids"][0, 2:].tolist() == ([-1, -1] if path == index else ["", ""])
            missing = np.inf if rerank == "exact" else -1
            assert found["distances"][0, 2:].tolist() == [missing, missing]


def test_a_radius_without_k_finds_all_within(
    capsys: pytest.CaptureFixture[str], index: Path, queries: Path, tmp_path: Path
) -> None:
    distances = cdist(Q.astype(np.float64), X[:N].astype(np.float64))
    radius = float(np.quantile(distances, 0.02))
    ask = ("search", index, queries, "--radius", radius, *EVERY)
    answer = as_json(capsys, *ask)
    expected = [set(np.flatnonzero(row <= radius).tolist()) for row in distances]
    assert [set(row) for row in answer["ids"]] == expected
    assert len({len(row) for row in answer["ids"]}) > 1
    good(capsys, *ask, "-o", tmp_path / "found.npz")
    with np.load(tmp_path / "found.npz") as found:
        assert np.diff(found["limits"]).tolist() == [len(row) for row in expected]
        assert found["ids"].tolist() == list(chain(*answer["ids"]))
    few = as_json(capsys, *ask, "-k", "2")
    assert all(len(row) == 2 for row in few["ids"])
    assert [row[0] for row in few["ids"]] == [row[0] if row else None for row in answer["ids"]]
    bits = as_json(capsys, "search", index, queries, "--radius", 3, "--rerank", "none")
    assert max(max(row, default=0) for row in bits["distances"]) <= 3


def test_many_queries_are_searched_in_blocks(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    index: Path,
    queries: Path,
) -> None:
    asks = [("search", index, queries, "-k", 3), ("search", index, queries, "--radius", 2.5)]
    whole = [as_json(capsys, *ask) for ask in asks]
    monkeypatch.setattr("densehash.cli.found._BLOCK", 7)
    assert [as_json(capsys, *ask) for ask in asks] == whole


def test_options_of_search(
    capsys: pytest.CaptureFixture[str], index: Path, vectors: Path, queries: Path
) -> None:
    own = [row[0] for row in as_json(capsys, "search", index, vectors, "-k", 1)["ids"]]
    assert own == list(range(N))
    others = as_json(capsys, "search", index, vectors, "-k", 1, "--exclude-self")["ids"]
    assert not any(row[0] == i for i, row in enumerate(others))

    def distances(*options: object) -> list[float]:
        answer = as_json(capsys, "search", index, queries, "-k", 1, *options)
        return [row[0] for row in answer["distances"]]

    by_bits = distances("--rerank", "none")
    assert all(isinstance(distance, int) for distance in by_bits)
    assert distances("--rerank", "asymmetric") != distances("--rerank", "exact") == distances()
    assert max(distances("--metric", "cosine")) < 2
    assert distances("--metric", "ip")[0] < 0
    assert sum(distances(*EVERY)) <= sum(distances("--candidates", 1))
    assert distances("--threads", 1) == distances("--threads", 3)


def test_probes(
    capsys: pytest.CaptureFixture[str], vectors: Path, queries: Path, tmp_path: Path
) -> None:
    out = tmp_path / "grouped.dh"
    good(capsys, "build", vectors, "-o", out, "--groups", 10, "--bits", 32)
    ask = ("search", out, queries, "-k", 20, *EVERY)
    all_groups = as_json(capsys, *ask, "--probes", 10)
    assert all_groups["ids"] == truth(20)[0].tolist()
    few = as_json(capsys, "search", out, queries, "-k", 20, "--probes", 1)
    assert few["ids"] != all_groups["ids"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-k", "0"], "k must be at least 1"),
        (["--rerank", "best"], "rerank must be"),
        (["--metric", "l1"], "metric must be"),
        (["--probes", "2"], "this one is flat"),
        (["--radius", "much"], "--radius"),
        (["--radius", "nan"], "radius must be a number"),
        (["--radius", "1.5", "--rerank", "none"], "radius must be an integer"),
        (["--json", "--csv"], "choose one of"),
        (["--csv", "-o", "x.npz"], "choose one of"),
        (["-o", "found.npy"], "must end in .npz"),
        (["-o", "nowhere/found.npz"], "is no folder"),
        (["--filter", "nowhere.txt"], "nowhere.txt does not exist"),
        (["--candidates", "0"], "candidates must be at least 1"),
        (["--threads", "0"], "n_threads must be at least 1"),
    ],
)
def test_mistakes_of_search(
    capsys: pytest.CaptureFixture[str],
    index: Path,
    queries: Path,
    arguments: list[str],
    message: str,
) -> None:
    assert message in bad(capsys, "search", index, queries, *arguments)


def test_queries_that_do_not_fit(
    capsys: pytest.CaptureFixture[str], index: Path, named: Path, tmp_path: Path
) -> None:
    path = tmp_path / "q.npy"
    assert "q.npy does not exist" in bad(capsys, "search", index, path)
    np.save(path, Q[:, :5])
    assert "5 features, the index 8" in bad(capsys, "search", index, path)
    np.save(path, np.where(np.arange(len(Q))[:, None] == 3, np.nan, Q))
    assert "q.npy: row 3 has a number that is not finite" in bad(capsys, "search", index, path)
    np.save(path, Q)
    (tmp_path / "ids.txt").write_text("3\nx\n", encoding="utf-8")
    ask = ("search", index, path, "--filter", tmp_path / "ids.txt")
    assert "line 2 must be an integer" in bad(capsys, *ask)
    assert "is not there" in bad(capsys, "search", tmp_path / "no.dh", path)
    assert "is no folder" in bad(capsys, "search", path, path)
    # Numbers in a file are names where the index has names; nothing has these.
    (tmp_path / "ids.txt").write_text("3\n4\n", encoding="utf-8")
    answer = as_json(capsys, "search", named, path, "-k", 1, "--filter", tmp_path / "ids.txt")
    assert answer["ids"] == [[None]] * len(Q)


def test_ids_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", X[:1])
    ids = ["\x1b[2Jgone", "two\nlines", "c"]
    Index.build(X[:3], ids=ids, n_bits=8, random_state=0).save(tmp_path / "x.dh")
    ask = ("search", tmp_path / "x.dh", tmp_path / "q.npy")
    table = good(capsys, *ask)
    assert "\x1b" not in table
    assert len(table.splitlines()) == 4
    lines = list(csv.reader(io.StringIO(good(capsys, *ask, "--csv"), newline="")))
    assert sorted(line[2] for line in lines[1:]) == sorted(ids)


def test_a_terminal_that_knows_ascii_only(
    monkeypatch: pytest.MonkeyPatch, named: Path, queries: Path
) -> None:
    def output(*options: str) -> bytes:
        terminal = io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", terminal)
            with pytest.raises(SystemExit) as exit_:
                cli.main(["search", str(named), str(queries), *options])
        assert not exit_.value.code
        return terminal.buffer.getvalue()

    assert b"\\xe4" in output()
    assert "ä" in output("--csv").decode()  # files are in UTF-8
    assert b"\\u00e4" in output("--json")


# --- add, remove, compact -----------------------------------------------------------------


def test_add(capsys: pytest.CaptureFixture[str], index: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "more.npy", Q)
    assert f"ids {N} to {N + 19}" in good(capsys, "add", index, tmp_path / "more.npy")
    opened = Index.open(index)
    assert opened.ids.tolist() == list(range(N + 20))
    assert opened.search(Q, 1).ids[:, 0].tolist() == list(range(N, N + 20))
    np.save(tmp_path / "more.npy", Q[:2])
    (tmp_path / "ids.txt").write_text("5000\n4000\n", encoding="utf-8")
    ask = ("add", index, tmp_path / "more.npy", "--ids", tmp_path / "ids.txt")
    assert as_json(capsys, *ask) == {"added": 2, "ids": [5000, 4000], "rows": N + 22}
    before = content(index)
    assert "id 5000 is in the index already" in bad(capsys, *ask)
    assert content(index) == before


def test_update_and_upsert(capsys: pytest.CaptureFixture[str], index: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "more.npy", Q[:3])
    ids = tmp_path / "ids.txt"
    ids.write_text("7\n5000\n8\n", encoding="utf-8")
    ask = (index, tmp_path / "more.npy", "--ids", ids)
    before = content(index)
    assert "id 5000 is not in the index: add or upsert it" in bad(capsys, "update", *ask)
    assert content(index) == before
    assert as_json(capsys, "upsert", *ask) == {"added": 1, "updated": 2, "rows": N + 1}
    np.testing.assert_array_equal(Index.open(index).get([7, 5000, 8]), Q[:3])
    assert "added 0 rows, updated 3 rows; there are 201 now" in good(capsys, "upsert", *ask)
    np.save(tmp_path / "more.npy", Q[3:6])
    assert f"updated 3 rows of {N + 1}" in good(capsys, "update", *ask)
    assert as_json(capsys, "update", *ask) == {"updated": 3, "rows": N + 1}
    np.testing.assert_array_equal(Index.open(index).get([7, 5000, 8]), Q[3:6])
    ids.write_text("7\n7\n8\n", encoding="utf-8")
    before = content(index)
    assert "7 is there twice" in bad(capsys, "upsert", *ask)
    assert "--ids" in bad(capsys, "upsert", index, tmp_path / "more.npy")
    assert content(index) == before


def test_numbers_are_names_where_the_index_has_names(
    capsys: pytest.CaptureFixture[str], named: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "more.npy", Q[:2])
    (tmp_path / "ids.txt").write_text("5\n6\n", encoding="utf-8")
    assert "give ids for the rows that you add" in bad(capsys, "add", named, tmp_path / "more.npy")
    good(capsys, "add", named, tmp_path / "more.npy", "--ids", tmp_path / "ids.txt")
    assert Index.open(named).ids.tolist() == sorted([*NAMES, "5", "6"])
    assert as_json(capsys, "remove", named, "5", NAMES[3], "7") == {"removed": 2, "rows": N}


def test_remove(capsys: pytest.CaptureFixture[str], index: Path, tmp_path: Path) -> None:
    assert "removed 2 rows; there are 198 now" in good(capsys, "remove", index, "3", "5", "999")
    (tmp_path / "ids.txt").write_text("3\n6\n7\n", encoding="utf-8")
    answer = as_json(capsys, "remove", index, "--ids", tmp_path / "ids.txt")
    assert answer == {"removed": 2, "rows": N - 4}
    np.save(tmp_path / "ids.npy", np.array([8]))
    assert "removed 1 row;" in good(capsys, "remove", index, "--ids", tmp_path / "ids.npy")
    opened = Index.open(index)
    assert sorted(set(range(N)) - set(opened.ids.tolist())) == [3, 5, 6, 7, 8]
    before = content(index)
    assert "an id must be an integer" in bad(capsys, "remove", index, "9", "nine")
    assert "give ids" in bad(capsys, "remove", index)
    both = bad(capsys, "remove", index, "9", "--ids", tmp_path / "ids.txt")
    assert "not both" in both
    assert content(index) == before


def test_compact(capsys: pytest.CaptureFixture[str], index: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "more.npy", Q)
    good(capsys, "add", index, tmp_path / "more.npy")
    good(capsys, "remove", index, *range(50))
    ids = Index.open(index).ids.tolist()
    answer = as_json(capsys, "compact", index)
    before, after = answer["before"], answer["after"]
    assert (before["removed"], before["segments"]) == (50, 2)
    assert (after["removed"], after["segments"]) == (0, 1)
    assert before["rows"] == after["rows"] == N - 30
    assert before["bytes_on_disk"] > after["bytes_on_disk"]
    assert Index.open(index).ids.tolist() == ids
    table = [line.split() for line in good(capsys, "compact", index).splitlines()]
    assert table[0] == ["before", "after"]
    assert ["segments", "1", "1"] in table


# --- info, verify, tune -------------------------------------------------------------------


def test_info(capsys: pytest.CaptureFixture[str], index: Path) -> None:
    good(capsys, "remove", index, 4)
    answer = as_json(capsys, "info", index)
    about = Index.open(index).info()
    assert {name: answer[name] for name in about} == about
    assert answer["format_version"] == 1
    with_vectors = answer["bytes_a_row_with_vectors"] - answer["bytes_a_row"]
    assert with_vectors == pytest.approx(32 * N / (N - 1))
    said = dict(
        re.split(" {2,}", line, maxsplit=1) for line in good(capsys, "info", index).splitlines()
    )
    assert (said["rows"], said["removed"]) == (f"{N - 1}", "1")
    assert said["hasher"] == f"{about['hasher']}, 32 bits"
    assert said["reason"] == about["reason"]
    assert said["segments"] == f"1, of {N} rows"
    assert said["candidates"] == "not tuned"
    assert said["generation"] == "2"


def test_an_index_of_signs(
    capsys: pytest.CaptureFixture[str], vectors: Path, queries: Path, tmp_path: Path
) -> None:
    out = tmp_path / "a.dh"
    text = good(capsys, "build", vectors, "-o", out, "--sketch", "signs", "--groups", 5)
    assert "signs of 160 bits" in text
    said = dict(
        re.split(" {2,}", line, maxsplit=1) for line in good(capsys, "info", out).splitlines()
    )
    assert (said["kind"], said["sketch"]) == ("grouped", "signs of 160 bits")
    assert said["format version"] == "2"
    assert "hasher" not in said
    assert "searches now find" in good(capsys, "tune", out, queries, "--recall", 0.5)
    found = as_json(capsys, "search", out, queries, "-k", 3)
    assert len(found["ids"]) == len(Q)


def test_info_of_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(as_json(capsys, "info")) == {
        "version",
        "instruction_set",
        "instruction_sets",
        "threads",
    }


def test_verify(capsys: pytest.CaptureFixture[str], index: Path) -> None:
    files = [path for path in index.iterdir() if path.suffix in (".npy", ".json")]
    assert good(capsys, "verify", index) == f"all {len(files)} files are whole\n"
    wrong = [next(index.glob(f"*{name}.npy")) for name in ("codes", "vectors")]
    for path in wrong:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    message = bad(capsys, "verify", index)
    assert all(path.name in message for path in wrong)
    assert f"2 of {len(files) - 1}" in message
    wrong[0].unlink()
    assert wrong[0].name in bad(capsys, "verify", index)
    (index / MANIFEST).write_bytes((index / MANIFEST).read_bytes()[:-9])
    assert MANIFEST in bad(capsys, "verify", index)


def test_tune(
    capsys: pytest.CaptureFixture[str], index: Path, vectors: Path, queries: Path, tmp_path: Path
) -> None:
    answer = as_json(capsys, "tune", index, queries, "--recall", 0.9, "-k", 5)
    opened = Index.open(index)
    assert opened.settings.candidates == answer["candidates"]
    hits = opened.search(Q, 5).ids
    nearest = truth(5)[0]
    recall = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(hits, nearest, strict=True)])
    assert recall >= 0.9
    assert recall == pytest.approx(answer["recall"])
    assert {one["candidates"] for one in answer["measured"]} == {answer["candidates"]}
    out = good(capsys, "tune", index, queries, "--recall", 1)
    assert "candidates" in out.splitlines()[0]
    assert "searches now take" in out.splitlines()[-1]
    assert Index.open(index).settings.candidates > answer["candidates"]
    before = content(index)
    assert "recall must be at most 1" in bad(capsys, "tune", index, queries, "--recall", 1.5)
    assert content(index) == before
    grouped = tmp_path / "grouped.dh"
    good(capsys, "build", vectors, "-o", grouped, "--groups", 8, "--bits", 32)
    answer = as_json(capsys, "tune", grouped, queries, "--recall", 0.8)
    assert Index.open(grouped).recall == answer["recall"] >= 0.8
    assert as_json(capsys, "info", grouped)["recall"] == answer["recall"]
    assert "searches now find" in good(capsys, "tune", grouped, queries, "--recall", 0.8)
    few, many = (
        as_json(capsys, "search", grouped, queries, "--recall", recall)["ids"]
        for recall in (0.7, 1)
    )
    assert many == truth(10)[0].tolist()
    assert len(few) == len(many)


# --- real processes -----------------------------------------------------------------------

MAIN = "from densehash.cli import main; main()"

# Waits for Ctrl-C when a function is called for the first time.
WAITING = """
import importlib, sys, time
from unittest import mock
module, _, name = sys.argv.pop(1).rpartition(".")
def wait(*_, **__):
    print("now", flush=True)
    time.sleep(60)
with mock.patch.object(importlib.import_module(module), name, wait):
    from densehash.cli import main
    main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends Ctrl-C to all at once")
@pytest.mark.parametrize(
    "moment",
    ["densehash.disk.sync", "densehash.disk.rename"],  # of new files, of the manifest
)
def test_ctrl_c_leaves_the_old_index(vectors: Path, index: Path, moment: str) -> None:
    before = content(index)
    command = ["build", str(vectors), "-o", str(index), "--bits", "16", "--force"]
    with subprocess.Popen(
        [sys.executable, "-c", WAITING, moment, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"now\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert err.startswith(b"densehash: stopped")
    assert err.count(b"\n") == 1
    assert {name: data for name, data in content(index).items() if name in before} == before
    assert set(content(index)) - set(before) <= {"writer.lock"}
    opened = Index.open(index)
    opened.verify()
    assert opened.hasher.n_bits_ == 32
    opened.remove([1])  # it can be written to as well


@pytest.mark.parametrize("form", ["--csv", "--exclude-self"])
def test_a_pipe_that_closes_early_is_no_error(index: Path, queries: Path, form: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "search", str(index), str(queries), form],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert (process.communicate(timeout=60)[1], process.returncode) == (b"", 1)
