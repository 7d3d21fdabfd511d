"""Commands about an index that has a payload."""

import csv
import datetime as dt
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli_index import N, Q, X, as_json, bad, good

from densehash.index import Index

pa = pytest.importorskip("pyarrow", reason="payloads need the extra payload")

Capture = pytest.CaptureFixture[str]
ROWS: list[dict[str, Any]] = [
    {
        "title": f'title {at}, "x"',
        "year": None if at % 9 == 0 else 1990 + at % 30,
        "day": dt.date(2020, 1, 1) + dt.timedelta(days=at),
        "raw": b"ab",
        "tags": ["a", "b"],
    }
    for at in range(N)
]


@pytest.fixture(params=[".parquet", ".arrow"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X[:N].reshape(-1)), X.shape[1])
    table = pa.Table.from_pylist(ROWS).append_column("embedding", vectors)
    path = tmp_path / f"texts{request.param}"
    if request.param == ".parquet":
        pytest.importorskip("pyarrow.parquet").write_table(table, path)
    else:
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.fixture
def index(tmp_path: Path) -> Path:
    Index.build(X[:N], payload=ROWS, sketch="codes", n_bits=32, random_state=0).save(
        tmp_path / "texts.dh"
    )
    return tmp_path / "texts.dh"


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    np.save(tmp_path / "q.npy", Q)
    return tmp_path / "q.npy"


def test_columns_of_the_file_are_kept(capsys: Capture, file: Path, tmp_path: Path) -> None:
    out = good(capsys, "build", file, "-o", tmp_path / "a", "--payload", "title,year")
    assert "payload  " in out
    assert Index.open(tmp_path / "a").payload(range(N)).to_pylist() == [
        {name: row[name] for name in ("title", "year")} for row in ROWS
    ]
    about = as_json(capsys, "build", file, "-o", tmp_path / "b", "--payload", "all")
    assert list(about["payload"]) == ["title", "year", "day", "raw", "tags"]
    assert Index.open(tmp_path / "b").payload(range(N)).to_pylist() == ROWS
    assert "title (string), year (int64), day (date)" in good(capsys, "info", tmp_path / "b")
    good(capsys, "add", tmp_path / "b", file)
    assert Index.open(tmp_path / "b").payload([N + 3]).to_pylist() == [ROWS[3]]


def test_the_first_rows_of_an_empty_index_bring_its_columns(
    capsys: Capture, file: Path, tmp_path: Path
) -> None:
    good(capsys, "create", tmp_path / "a", "--dim", X.shape[1], "--learn-at", 2 * N)
    good(capsys, "add", tmp_path / "a", file, "--payload", "title,day")
    first = {"title": ROWS[0]["title"], "day": ROWS[0]["day"]}
    assert Index.open(tmp_path / "a").payload([0]).to_pylist() == [first]
    message = "--payload is for the first rows of an index: this one has rows, with title, day"
    assert message in bad(capsys, "add", tmp_path / "a", file, "--payload", "title")
    good(capsys, "add", tmp_path / "a", file)
    opened = Index.open(tmp_path / "a")
    assert opened.sketch == "signs"
    assert opened.payload([0, N]).to_pylist() == [first, first]


def test_what_cannot_be_kept(
    capsys: Capture, file: Path, queries: Path, tmp_path: Path, index: Path
) -> None:
    def build(file: Path, *said: str) -> str:
        return bad(capsys, "build", file, "-o", tmp_path / "a", "--payload", *said)

    assert "no single column 'name'; it has 'title', 'year'" in build(file, "name")
    assert "as title,year, or all" in build(file, "title,,year")
    assert "as title,year, or all" in build(file, "title,title")
    assert "only .parquet, .arrow and .feather files have" in build(queries, "title")
    assert "not of an index in shards" in build(file, "all", "--local-cluster", "1")
    assert "only .parquet, .arrow and .feather files have" in bad(capsys, "add", index, queries)
    assert not (tmp_path / "a").exists()


def test_a_file_whose_offsets_lie(capsys: Capture, tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X[:4].reshape(-1)), X.shape[1])
    table = pa.table({"title": ["abc", "def", "ghi", "jkl"], "embedding": vectors})
    path = tmp_path / "a.arrow"
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    whole, ends = path.read_bytes(), np.array([0, 3, 6, 9, 12], np.int32).tobytes()
    assert whole.count(ends) == 1
    for lie in ([0, 3, 6, 9, 2**31 - 1], [0, -3, 6, 9, 12], [0, 2**20, 2**20, 2**21, 2**21]):
        path.write_bytes(whole.replace(ends, np.array(lie, np.int32).tobytes()))
        said = bad(capsys, "build", path, "-o", tmp_path / "a", "--payload", "title")
        assert "a.arrow cannot be read by pyarrow" in said


def test_what_is_found_is_shown_with_its_payload(
    capsys: Capture, index: Path, queries: Path
) -> None:
    asked = ("search", index, queries, "-k", 3)
    answer = as_json(capsys, *asked, "--show", "all")
    for ids, rows in zip(answer["ids"], answer["payload"], strict=True):
        for name, row in zip(ids, rows, strict=True):
            day, raw = ROWS[name]["day"].isoformat(), "YWI="
            assert row == {**ROWS[name], "day": day, "raw": raw}
    assert "payload" not in as_json(capsys, *asked)
    lines = [*csv.reader(io.StringIO(good(capsys, *asked, "--show", "year,title", "--csv")))]
    assert lines[0] == ["query", "rank", "id", "distance", "year", "title"]
    for line in lines[1:]:
        row = ROWS[int(line[2])]
        assert line[4:] == ["" if row["year"] is None else str(row["year"]), row["title"]]
    table = good(capsys, *asked, "--show", "tags").splitlines()
    assert table[0].split() == ["query", "rank", "id", "distance", "tags"]
    assert all(line.endswith('["a", "b"]') for line in table[1:])


def test_fewer_rows_and_ranges_are_shown_too(capsys: Capture, index: Path, queries: Path) -> None:
    Index.open(index).remove(range(2, N))
    answer = as_json(capsys, "search", index, queries, "-k", 3, "--show", "year")
    assert answer["payload"][0][2] is None
    assert answer["payload"][0][0] == {"year": ROWS[answer["ids"][0][0]]["year"]}
    ranges = as_json(capsys, "search", index, queries, "--radius", "1e9", "--show", "title")
    expected = [[{"title": ROWS[name]["title"]} for name in ids] for ids in ranges["ids"]]
    assert ranges["payload"] == expected


def test_rows_are_found_by_their_columns(
    capsys: Capture, index: Path, queries: Path, tmp_path: Path
) -> None:
    asked = ("search", index, queries, "-k", 5)
    where = "year >= 2000 and not (day < '2020-02-01' or title = 'x')"
    answer = as_json(capsys, *asked, "--where", where, "--show", "year,day")
    rows = [row for found in answer["payload"] for row in found]
    assert rows
    assert all(row["year"] >= 2000 and row["day"] >= "2020-02-01" for row in rows)
    expected = Index.open(index).search(Q, 5, filter=where).ids.tolist()
    assert answer["ids"] == expected
    assert "found 'and' at position 7 of 'year = and'" in bad(
        capsys, *asked, "--where", "year = and"
    )
    ids = tmp_path / "ids.txt"
    ids.write_text("1\n")
    said = bad(capsys, *asked, "--where", where, "--filter", ids)
    assert "choose one of --filter and --where" in said
    Index.build(X[:N], n_bits=8, random_state=0).save(tmp_path / "without")
    said = bad(capsys, "search", tmp_path / "without", queries, "--where", "year = 3")
    assert "--where: this index has no payload" in said


def test_what_cannot_be_shown(capsys: Capture, index: Path, queries: Path, tmp_path: Path) -> None:
    said = bad(capsys, "search", index, queries, "--show", "name")
    assert "there is no column 'name'; there are title, year, day, raw, tags" in said
    out = tmp_path / "found.npz"
    assert "an .npz has ids" in bad(capsys, "search", index, queries, "--show", "all", "-o", out)
    Index.build(X[:N], n_bits=8, random_state=0).save(tmp_path / "without")
    said = bad(capsys, "search", tmp_path / "without", queries, "--show", "all")
    assert "this index has no payload" in said
    assert json.loads(good(capsys, "info", tmp_path / "without", "--json"))["payload"] is None
