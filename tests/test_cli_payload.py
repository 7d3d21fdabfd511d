"""Commands about an index that has a payload."""

import csv
import datetime as dt
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli_index import N, Q, X, as_json, bad, good

from densehash.errors import InputError
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
    assert "only .parquet, .arrow, .feather, .csv, .tsv, .jsonl and .ndjson files have" in build(
        queries, "title"
    )
    assert "only .parquet, .arrow, .feather, .csv, .tsv, .jsonl and .ndjson files have" in bad(
        capsys, "add", index, queries
    )
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


def test_shards_are_built_shown_and_filtered_as_an_index_is(
    capsys: Capture, file: Path, queries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dask", reason="needs the extra dask")
    from densehash.cli import build, cluster
    from densehash.distributed import ShardedIndex

    @contextmanager
    def threads(*_: object) -> Iterator[cluster.Workers]:
        yield cluster.Workers(2, 0)

    monkeypatch.setattr(build, "workers", threads)
    told = ("build", file, "--payload", "all", "--hasher", "lsh", "--bits", 32)
    good(capsys, *told, "-o", tmp_path / "shards", "--local-cluster", 2, "--shard-rows", 40)
    monkeypatch.undo()
    good(capsys, *told, "-o", tmp_path / "one")
    assert len(ShardedIndex.open(tmp_path / "shards").shards) > 1
    where = ("--where", "year >= 2000 and day >= '2020-02-01'", "--show", "year,title", "-k", 4)
    for how in (("--json",), ("--csv",), ()):
        one, shards = (
            good(capsys, "search", tmp_path / name, queries, *where, *how)
            for name in ("one", "shards")
        )
        assert shards == one
    assert "there is no column 'name'" in bad(
        capsys, "search", tmp_path / "shards", queries, "--show", "name"
    )


def test_what_cannot_be_shown(capsys: Capture, index: Path, queries: Path, tmp_path: Path) -> None:
    said = bad(capsys, "search", index, queries, "--show", "name")
    assert "there is no column 'name'; there are title, year, day, raw, tags" in said
    out = tmp_path / "found.npz"
    assert "an .npz has ids" in bad(capsys, "search", index, queries, "--show", "all", "-o", out)
    Index.build(X[:N], n_bits=8, random_state=0).save(tmp_path / "without")
    said = bad(capsys, "search", tmp_path / "without", queries, "--show", "all")
    assert "this index has no payload" in said
    assert json.loads(good(capsys, "info", tmp_path / "without", "--json"))["payload"] is None


# --- CSV, TSV and JSON lines --------------------------------------------------------------

TEXT_ROWS: list[dict[str, Any]] = [
    {
        "id": f"r{at}",
        "code": f"{at:03}",
        "year": None if at % 9 == 0 else 1990 + at,
        "price": at / 4,
        "good": at % 2 == 0,
        "day": dt.date(2020, 1, 1) + dt.timedelta(days=at),
        "time": dt.datetime(2020, 1, 1, 12) + dt.timedelta(hours=at),
        "text": None if at % 7 == 0 else f'a "b", {at}\n',
    }
    for at in range(N)
]


def write_texts(path: Path, rows: list[dict[str, Any]], vectors: Any) -> None:
    """As pandas and others write them."""
    if path.suffix == ".jsonl":
        lines = [
            json.dumps({**row, "vec": vector.tolist(), "tags": ["x", row["id"]]}, default=str)
            for row, vector in zip(rows, vectors, strict=True)
        ]
        path.write_text("\n".join(lines), "utf-8")
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerow([*rows[0], "vec"])
        for row, vector in zip(rows, vectors, strict=True):
            writer.writerow([*row.values(), str(vector.tolist())])


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_columns_of_text_files_are_kept(
    capsys: Capture, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("densehash.datasets.tables._BLOCK_ROWS", 50)
    is_json = suffix == ".jsonl"
    file = tmp_path / f"rows{suffix}"
    write_texts(file, TEXT_ROWS, X[:N])
    told = ("build", file, "--column", "vec", "--ids", "id")
    good(capsys, *told, "-o", tmp_path / "a", "--payload", "year,text")
    index = Index.open(tmp_path / "a")
    assert index.payload([row["id"] for row in TEXT_ROWS]).to_pylist() == [
        {"year": row["year"], "text": row["text"]} for row in TEXT_ROWS
    ]
    about = as_json(capsys, *told, "-o", tmp_path / "b", "--payload", "all")
    types = {"id": "string", "code": "string", "year": "int64", "price": "float64", "good": "bool"}
    types |= {"day": "string" if is_json else "date"}
    types |= {"time": "string" if is_json else "timestamp[us]", "text": "string"}
    assert about["payload"] == {**types, **({"tags": "list of strings"} if is_json else {})}
    expected = TEXT_ROWS
    if is_json:
        expected = [
            {**row, "day": str(row["day"]), "time": str(row["time"]), "tags": ["x", row["id"]]}
            for row in TEXT_ROWS
        ]
    index = Index.open(tmp_path / "b")
    assert index.payload([row["id"] for row in TEXT_ROWS]).to_pylist() == expected

    # What comes later has the types of the index: codes that look like numbers stay strings.
    later = [{**TEXT_ROWS[at], "id": f"s{at}", "code": "77", "text": None} for at in range(10)]
    write_texts(tmp_path / f"more{suffix}", later, X[:10])
    more = (tmp_path / f"more{suffix}", "--column", "vec", "--ids", "id")
    good(capsys, "add", tmp_path / "b", *more)
    good(capsys, "upsert", tmp_path / "b", *more)
    good(capsys, "update", tmp_path / "b", *more)
    index.refresh()
    assert [row["code"] for row in index.payload(["s3", "s4"]).to_pylist()] == ["77", "77"]


def test_an_update_keeps_or_replaces_columns(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    write_texts(file, TEXT_ROWS, X[:N])
    told = ("--column", "vec", "--ids", "id")
    good(capsys, "build", file, *told, "-o", tmp_path / "a", "--payload", "year,code")

    def updated(*names: str) -> None:
        rows = [{name: TEXT_ROWS[at][name] for name in names} for at in (5, 6)]
        write_texts(tmp_path / "new.csv", rows, X[:2])

    updated("id", "price")
    good(capsys, "update", tmp_path / "a", tmp_path / "new.csv", *told)
    index = Index.open(tmp_path / "a")
    assert index.payload(["r5"]).to_pylist() == [{"year": 1995, "code": "005"}]
    assert index.get(["r5"]).tolist() == X[:1].tolist()
    updated("id", "year")
    said = bad(capsys, "update", tmp_path / "a", tmp_path / "new.csv", *told)
    assert "no column named 'code'; it has 'id', 'year', 'vec'" in said
    said = bad(capsys, "upsert", tmp_path / "a", tmp_path / "new.csv", *told)
    assert "no column named 'code'" in said


def test_numbers_beside_numbers(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    lines = [f"{at},{at % 5},{at}.5,{at % 3}" for at in range(20)]
    file.write_text("\n".join(["id,x1,x2,n", *lines]))
    told = ("build", file, "--ids", "id", "--column", "x*", "-o", tmp_path / "a")
    about = as_json(capsys, *told, "--payload", "all")
    assert about["payload"] == {"id": "int64", "n": "int64"}
    assert Index.open(tmp_path / "a").get([3]).tolist() == [[3.0, 3.5]]
    assert "no column named 'm'" in bad(capsys, *told, "--force", "--payload", "m")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "", "-20"], [1, None, -20]),
        (["1", "2.5", "1e3"], [1.0, 2.5, 1000.0]),
        (["1", "x"], ["1", "x"]),
        (["01", "2"], ["01", "2"]),
        (["12345678901234567890", "1"], ["12345678901234567890", "1"]),
        (["True", "false"], [True, False]),
        (["2020-01-31", "2020-02-30"], ["2020-01-31", "2020-02-30"]),
        (["2020-01-31 10:00", "2020-01-31T10:00:00.25"], None),
        (["nan", "1"], ["nan", "1"]),
        (["1_000", "2"], ["1_000", "2"]),
        (["+1", " 2"], ["+1", " 2"]),
    ],
)
def test_types_of_cells(tmp_path: Path, cells: list[str], expected: Any) -> None:
    from densehash.datasets.typed import text_table

    path = tmp_path / "a.csv"
    path.write_text("\n".join(["c,v", *(f'{cell},"[1, 2]"' for cell in cells)]))
    if expected is None:
        expected = [
            dt.datetime(2020, 1, 31, 10),
            dt.datetime(2020, 1, 31, 10, microsecond=250_000),
        ]
    found = text_table(path, ["c"])["c"].to_pylist()
    assert found == expected
    assert [type(one) for one in found] == [type(one) for one in expected]
    texts = text_table(path, None, texts=["c"])["c"].to_pylist()
    assert texts == [cell or None for cell in cells]


def test_json_of_several_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from densehash.datasets.typed import text_table

    monkeypatch.setattr("densehash.datasets.tables._BLOCK_ROWS", 1)
    path = tmp_path / "a.jsonl"

    def values(*values: Any) -> Any:
        path.write_text("\n".join(json.dumps({"c": one, "v": [1, 2]}) for one in values))
        return text_table(path, ["c"])["c"].to_pylist()

    assert values(1, 2.5, None) == [1.0, 2.5, None]
    assert values(None, "a") == [None, "a"]
    assert values([], ["a"], None) == [[], ["a"], None]
    for mixed in ((1, "a"), (["a"], "a"), (2**70, 1)):
        with pytest.raises(InputError, match="a.jsonl: column.* must have values of one type each"):
            values(*mixed)


def test_rows_in_two_groups(capsys: Capture, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.concatenate([X, X + 1, X + 2]))
    for said in (1, 2):
        told = ("--kind", "grouped", "--groups", 8, "--groups-a-row", said, "--force")
        good(capsys, "build", tmp_path / "x.npy", "-o", tmp_path / "a", *told)
        (segment,) = Index.open(tmp_path / "a")._state.segments
        rows = segment.columns["entry_rows"]
        assert np.bincount(rows[rows < segment.n_rows]).tolist() == [said] * segment.n_rows
