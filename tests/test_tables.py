"""Tables: vectors and ids in columns of CSV, TSV, JSON lines, Parquet and Arrow files."""

from __future__ import annotations

import csv
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from densehash import LSH, load_hasher
from densehash.cli import main
from densehash.datasets import column_names, columnar, open_vectors, read_columns, tables
from densehash.errors import FileError, InputError, MissingExtraError
from densehash.index import Index

D = 5
TEXT = (".csv", ".tsv", ".jsonl", ".ndjson")
ALL = (*TEXT, ".parquet", ".arrow")
every_suffix = pytest.mark.parametrize("suffix", ALL)
every_text = pytest.mark.parametrize("suffix", TEXT)


def rows(n: int, seed: int = 0, d: int = D) -> NDArray[Any]:
    return np.random.default_rng(seed).standard_normal((n, d))


def write(path: Path, parts: dict[str, list[Any]]) -> Path:
    """A table by the library that others would write it with."""
    records = [dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)]
    if path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="", encoding="utf-8") as file:
            made = csv.DictWriter(
                file, list(parts), delimiter="," if path.suffix == ".csv" else "\t"
            )
            made.writeheader()
            made.writerows(records)
    elif path.suffix in (".jsonl", ".ndjson"):
        lines = [json.dumps(record) for record in records]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        pa = pytest.importorskip("pyarrow", reason="needs the extra parquet")
        table = pa.table(parts)
        if path.suffix == ".parquet":
            from pyarrow import parquet

            parquet.write_table(table, path, row_group_size=7)
        else:
            with pa.ipc.new_file(str(path), table.schema) as writer:
                writer.write_table(table, max_chunksize=7)
    return path


# --- good files ---------------------------------------------------------------------------


@every_suffix
def test_a_column_of_vectors(suffix: str, tmp_path: Path) -> None:
    X, Y = rows(30), rows(30, seed=1)
    parts: dict[str, list[Any]] = {"id": [f"ä{at}" for at in range(30)], "n": [*range(30)]}
    path = write(
        tmp_path / f"a{suffix}", {**parts, "embedding": X.tolist(), "title": ['a,"b'] * 30}
    )
    for key in (None, "embedding"):
        found = open_vectors(path, key=key)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found[:], X)
        np.testing.assert_array_equal(found[np.array([3, 9, 28])], X[[3, 9, 28]])
    assert column_names(path) == ["id", "n", "embedding", "title"]
    got = [value for part in read_columns(path, ["id"]) for value in list(part["id"])]
    assert [str(value) for value in got] == parts["id"]
    both = write(tmp_path / f"b{suffix}", {"one": X.tolist(), "two": Y.tolist()})
    np.testing.assert_array_equal(open_vectors(both, key="two")[:], Y)
    with pytest.raises(InputError, match="several .*'one'.*'two'"):
        open_vectors(both)
    for key in ("n", "title", "nothing"):
        if key == "n" and suffix in TEXT:  # a column of numbers is one feature, if it is named
            assert open_vectors(path, key=key).shape == (30, 1)
            continue
        with pytest.raises(InputError, match=f"{key}.*"):
            open_vectors(path, key=key)


@every_suffix
def test_a_column_for_each_number(suffix: str, tmp_path: Path) -> None:
    X = rows(30)
    parts: dict[str, list[Any]] = {f"x{at}": column.tolist() for at, column in enumerate(X.T)}
    path = write(tmp_path / f"a{suffix}", parts)
    np.testing.assert_array_equal(open_vectors(path)[:], X)
    np.testing.assert_array_equal(open_vectors(path, key="x*")[:], X)
    np.testing.assert_array_equal(open_vectors(path, key="x3,x0")[:], X[:, [3, 0]])
    ids = [*range(100, 130)]
    path = write(tmp_path / f"b{suffix}", {**parts, "id": ids})
    np.testing.assert_array_equal(open_vectors(path, ids="id")[:], X)
    np.testing.assert_array_equal(open_vectors(path)[:], np.c_[X, ids])
    path = write(tmp_path / f"c{suffix}", {"id": ids, **parts, "title": ["a"] * 30})
    np.testing.assert_array_equal(open_vectors(path, key="x*")[:], X)
    np.testing.assert_array_equal(open_vectors(path, key="x*")[np.array([1, 20])], X[[1, 20]])
    for key, message in {
        None: "no column of vectors, nor two or more columns, all of numbers.*'title'",
        "*": "'title' of .* must be a number",
        "x0,y": "nothing named 'y'",
        "x0,x*": "names a column of .* twice",
    }.items():
        with pytest.raises(InputError, match=message):
            open_vectors(path, key=key)


def test_columns_of_other_types(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    parts: dict[str, list[Any]] = {"a": [1, 2, 300], "b": [0.5, 1.5, 2.5], "c": [True, False, True]}
    for suffix in (".parquet", ".arrow"):
        found = open_vectors(write(tmp_path / f"a{suffix}", parts))
        assert found.dtype == np.float64
        assert found[:].tolist() == [[1, 0.5, 1], [2, 1.5, 0], [300, 2.5, 1]]
        holes = [*range(20), None, 3]  # in the third row group, or record batch
        path = write(tmp_path / f"b{suffix}", {"a": holes, "b": [0.5] * 22})
        with pytest.raises(FileError, match="expected a number in row 20 of 'a', found null"):
            open_vectors(path)[:]


def test_codes_are_read_from_binary_columns(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    codes = np.random.default_rng(0).integers(0, 256, (20, 3)).astype(np.uint8)
    column = pa.array([bytes(code) for code in codes], pa.binary(3))
    for suffix in (".parquet", ".arrow"):
        path = write(tmp_path / f"a{suffix}", {"id": [*range(20)], "code": column})
        found = open_vectors(path)
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found[:], codes)
        np.testing.assert_array_equal(found[np.array([2, 19])], codes[[2, 19]])
        holes = pa.array([None, *column.to_pylist()[1:]], pa.binary(3))
        path = write(tmp_path / f"b{suffix}", {"code": holes})
        with pytest.raises(FileError, match="found null"):
            open_vectors(path)[:]


FORMS: dict[str, tuple[str, str]] = {
    "JSON": (".csv", 'v\n"[1, 2.5]"\n"[3e0, -4]"\n'),
    "spaces, as numpy prints": (".csv", 'v\n[1.  2.5]\n"[ 3.\n -4. ]"\n'),
    "round brackets": (".csv", 'v\n"(1, 2.5)"\n"( 3 ,-4)"\n'),
    "CRLF": (".csv", 'v,t\r\n"[1,2.5]",a\r\n"[3,-4]","b"\r\n'),
    "a byte order mark": (".csv", '\ufeffv\n"[1,2.5]"\n"[3,-4]"\n'),
    "no end of the last line": (".csv", 'v\n"[1,2.5]"\n"[3,-4]"'),
    "empty lines": (".csv", '\nv\n\n"[1,2.5]"\n\n\n"[3,-4]"\n\n'),
    "quotes and ends of lines": (".csv", 'v,t\n"[1,2.5]","say ""a,\nb"""\n"[3,-4]",""\n'),
    "numbers": (".csv", "x,y\n1,2.5\n 3 ,-4\n"),
    "numbers in quotes": (".csv", '"x","y"\n"1","2.5"\n"3","-4"\n'),
    "numbers without names": (".csv", "1,2.5\n3,-4\n"),
    "lists without a name": (".csv", '"[1,2.5]"\n"[3,-4]"\n'),
    "an index of pandas": (".csv", ",x,y\n0,1,2.5\n1,3,-4\n"),
    "tabs": (".tsv", "t\tv\na\t[1,2.5]\nb\t[3, -4]\n"),
    "numbers and tabs": (".tsv", "x\ty\r\n1\t2.5\r\n3\t-4\r\n"),
    "objects": (".jsonl", '{"v": [1, 2.5], "t": 1}\n{"t": 2, "v": [3, -4]}\n'),
    "lists": (".jsonl", "[1, 2.5]\n[3, -4]\n"),
    "CRLF, a mark, empty lines": (".jsonl", "\ufeff[1, 2.5]\r\n\r\n[3, -4]\r\n  \r\n"),
    "lists as text": (".jsonl", '{"v": "[1, 2.5]"}\n{"v": "[3, -4]"}\n'),
    "numbers by name": (".jsonl", '{"x": 1, "y": 2.5}\n{"y": -4, "x": 3, "z": 9}\n'),
    "numbers as text": (".ndjson", '{"x": "1", "y": "2.5"}\n{"x": "3", "y": "-4"}'),
}


@pytest.mark.parametrize(("suffix", "text"), FORMS.values(), ids=FORMS)
def test_text_of_many_forms(suffix: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix.upper()}"
    path.write_bytes(text.encode())
    assert open_vectors(path)[:].tolist() == [[1, 2.5], [3, -4]]


def test_what_pandas_writes(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    X = rows(9, d=12)
    for index in (True, False):
        pandas.DataFrame(X).to_csv(tmp_path / "a.csv", index=index)
        np.testing.assert_array_equal(open_vectors(tmp_path / "a.csv")[:], X)
        frame = pandas.DataFrame({"id": range(9), "v": X.tolist()})
        frame.to_csv(tmp_path / "a.csv", index=index)
        np.testing.assert_array_equal(open_vectors(tmp_path / "a.csv")[:], X)
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True, double_precision=15)
    np.testing.assert_allclose(open_vectors(tmp_path / "a.jsonl")[:], X, rtol=1e-12)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_numbers_are_read_as_they_were(data: st.DataObject, tmp_path_factory: Any) -> None:
    numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60)
    d = data.draw(st.integers(2, 6))
    X = data.draw(st.lists(st.lists(numbers, min_size=d, max_size=d), min_size=1, max_size=9))
    folder = tmp_path_factory.mktemp("tables")
    for suffix in TEXT:
        parts = {f"x{at}": list(column) for at, column in enumerate(zip(*X, strict=True))}
        for made in (parts, {"v": X}):
            found = open_vectors(write(folder / f"a{suffix}", made), key="*")
            assert found[:].tolist() == [[float(number) for number in row] for row in X]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_memory_stays_small(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_BLOCK_NUMBERS", 1 << 10)
    X = rows(2000, d=32)
    path = write(tmp_path / f"a{suffix}", {"id": [*range(2000)], "v": X.tolist()})
    tracemalloc.start()
    try:
        found = open_vectors(path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found[:], X)
    assert most < X.nbytes


def test_a_long_field_leaves_the_limit_of_others(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    X = rows(2, d=20_000)  # more than 131,072 letters
    path = write(tmp_path / "a.csv", {"v": X.tolist()})
    np.testing.assert_array_equal(open_vectors(path)[:], X)
    assert csv.field_size_limit() == before
    one, two = read_columns(path, ["v"]), read_columns(path, ["v"])
    assert len(next(one)["v"]) == 2
    with pytest.raises(StopIteration):  # who is ready first leaves the others theirs
        next(one)
    assert len(next(two)["v"]) == 2
    two.close()  # type: ignore[attr-defined]
    assert csv.field_size_limit() == before


@every_text
def test_files_are_one_below_the_other(suffix: str, tmp_path: Path) -> None:
    X = rows(20)
    one = write(tmp_path / f"a{suffix}", {"v": X[:9].tolist()})
    two = write(tmp_path / f"b{suffix}", {"v": X[9:].tolist()})
    np.testing.assert_array_equal(open_vectors([one, two])[:], X)


# --- bad files ----------------------------------------------------------------------------

BAD: dict[str, tuple[str, str | bytes, str]] = {
    "empty": (".csv", "", "expected names of columns and rows, found an empty file"),
    "empty lines alone": (".csv", "\n\r\n\n", "found an empty file"),
    "names alone": (".csv", "x,y\n", "expected at least 1 row, found none"),
    "a mark alone": (".csv", "\ufeff", "found an empty file"),
    "a short row": (
        ".csv",
        "x,y\n1,2\n3\n",
        "line 3: expected 2 fields, as in the first line, found 1",
    ),
    "a long row": (".csv", "x,y\n1,2\n\n3,4,5\n", "line 4: expected 2 fields.*found 3"),
    "a cut row": (".csv", "x,y,z\n1,2,3\n4,5", "line 3: expected 3 fields"),
    "a word": (".csv", "x,y\n1,2\n3,four\n", "line 3: expected a number in 'y', found 'four'"),
    "nothing": (".csv", "x,y\n1,2\n3,\n", "line 3: expected a number in 'y', found ''"),
    "a comma": (".csv", 'x,y\n1,2\n3,"4,5"\n', "line 3: expected a number in 'y', found '4,5'"),
    "digits in groups": (
        ".csv",
        "x,y\n1,2\n3,1_0\n",
        "line 3: expected a number in 'y', found '1_0'",
    ),
    "NaN": (".csv", "x,y\n1,2\n3,nan\n", "line 3: expected finite numbers, found nan"),
    "infinity": (".csv", "x,y\n1,-inf\n", "line 2: expected finite numbers, found -inf"),
    "too large": (".csv", "x,y\n1,2\n1e999,2\n", "line 3: expected finite numbers, found inf"),
    "widths": (
        ".csv",
        'v\n"[1,2]"\n"[1,2,3]"\n',
        "line 3: expected 2 numbers, as in line 2, found 3",
    ),
    "a list that is cut": (
        ".csv",
        'v\n"[1,2]"\n"[1,2"\n',
        "line 3: expected numbers in 'v', found",
    ),
    "a quote that is cut": (
        ".csv",
        'v\n"[1,2]"\n"[1,2',
        "line 3: expected fields, with quotes in pair",
    ),
    "letters after a quote": (
        ".csv",
        'v\n"[1,2]"x\n',
        "line 2: expected fields, with quotes in pairs",
    ),
    "other brackets": (".csv", 'v\n"[1,2]"\n"[1,2)"\n', "line 3: expected numbers in 'v'"),
    "two commas": (".csv", 'v\n"[1,2]"\n"[1,,2]"\n', "line 3: expected numbers in 'v', found ''"),
    "numpy's dots": (
        ".csv",
        'v\n"[1 2]"\n"[1 ... 2]"\n',
        "line 3: expected numbers in 'v', found '...'",
    ),
    "lists in a list": (".csv", 'v\n"[[1,2]]"\n', "line 2: expected numbers in 'v'"),
    "an empty list": (".csv", 'v\n"[]"\n', "line 2: expected numbers in 'v', found none"),
    "lines inside": (
        ".csv",
        't,v\n"a\nb\nc","[1,2]"\nd,"[1,z]"\n',
        "line 5: expected numbers in 'v'",
    ),
    "Latin-1": (".csv", b"t,x,y\n\xe4,1,2\n", "line 2: expected UTF-8, found byte 0xe4"),
    "UTF-16": (".csv", "x,y\n1,2\n".encode("utf-16"), "line 1: expected UTF-8"),
    "old ends of lines": (".csv", "x,y\r1,2\r3,4\r", "line 1: expected fields"),
    "counts": (".csv", "0,1,2\n3,4,5\n", "line 1 may be a row of numbers, or number the columns"),
    "counts from one": (".csv", "1,2\n4,5\n", "line 1 may be a row of numbers"),
    "binary": (".csv", bytes(range(256)), "line 1|line 2"),
    "JSON, empty": (".jsonl", "", "expected a JSON object a line, found an empty file"),
    "JSON, cut": (".jsonl", '{"v": [1, 2]}\n{"v": [1,', "line 2: expected JSON, found a mistake"),
    "JSON, a short row": (
        ".jsonl",
        '{"v": [1, 2]}\n\n{"v": [1]}\n',
        "line 3: expected 2 numbers, as in",
    ),
    "JSON, a word": (
        ".jsonl",
        '{"v": [1, 2]}\n{"v": [1, "x"]}\n',
        "line 2: expected numbers in 'v', found 'x'",
    ),
    "JSON, text of a number": (".jsonl", '{"v": [1, 2]}\n{"v": [1, "2"]}\n', "line 2: .*found '2'"),
    "JSON, null": (".jsonl", '{"v": [1, 2]}\n{"v": [1, null]}\n', "line 2: .*found None"),
    "JSON, true": (".jsonl", '{"v": [1, 2]}\n{"v": [1, true]}\n', "line 2: .*found True"),
    "JSON, no vector": (".jsonl", '{"v": [1, 2]}\n{"w": [1, 2]}\n', "line 2: .*'v', found None"),
    "JSON, NaN": (
        ".jsonl",
        '{"v": [1, 2]}\n{"v": [1, NaN]}\n',
        "line 2: expected finite numbers, found nan",
    ),
    "JSON, too large": (
        ".jsonl",
        '{"v": [1, 1e400]}\n',
        "line 1: expected finite numbers, found inf",
    ),
    "JSON, larger": (".jsonl", '{"v": [1, 1%s]}\n' % ("0" * 400), "line 1: "),
    "JSON, largest": (".jsonl", '{"v": [1, 1%s]}\n' % ("0" * 5000), "line 1: "),
    "JSON, deep": (".jsonl", "[" * 200_000 + "\n", "line 1: expected JSON, found a mistake"),
    "JSON, lists in a list": (".jsonl", '{"v": [[1, 2]]}\n', r"line 1: .*found \[1, 2\]"),
    "JSON, empty list": (".jsonl", '{"v": []}\n', "line 1: expected numbers in 'v', found none"),
    "JSON, a number": (".jsonl", "7\n", "line 1: expected a JSON object or a list, found int"),
    "JSON, then a list": (
        ".jsonl",
        '{"v": [1, 2]}\n[1, 2]\n',
        "line 2: expected an object, as in line 1",
    ),
    "JSON, one array of all": (".jsonl", "[[1, 2],\n[3, 4]]\n", "line 1: expected JSON"),
    "JSON, binary": (".jsonl", bytes(range(256)), "line 1|line 2"),
}


@pytest.mark.parametrize(("suffix", "text", "message"), BAD.values(), ids=BAD)
def test_text_that_is_refused(suffix: str, text: str | bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FileError, match=message) as error:
        open_vectors(path)
    assert str(error.value).startswith(str(path))
    assert len(str(error.value)) < 400


@every_text
def test_every_cut_is_found_or_is_a_number_that_may_be(suffix: str, tmp_path: Path) -> None:
    """A file that ends too early has fewer rows, all of them right but the last, or is refused."""
    X = np.arange(12.0).reshape(4, 3) + 0.5
    path = write(tmp_path / f"a{suffix}", {"id": ["a", "b", "c", "d"], "v": X.tolist()})
    whole = path.read_bytes()
    seen = set()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        try:
            found = open_vectors(path, key="v")[:]
        except (FileError, InputError):
            continue
        np.testing.assert_array_equal(found, X[: len(found)])
        seen.add(len(found))
    assert seen == {1, 2, 3, 4}


@every_text
def test_other_things_than_files(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    with pytest.raises(FileError, match="does not exist"):
        open_vectors(path)
    os.mkfifo(path)
    with pytest.raises(FileError, match="not a regular file"):
        open_vectors(path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(FileError, match="not a regular file"):
        open_vectors(path)


@every_text
def test_a_line_without_end_is_not_read(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_LONGEST_LINE", 1000)
    path = tmp_path / f"a{suffix}"
    first = b'"[1, 2]"' if suffix == ".csv" else b"[1, 2]"
    path.write_bytes(first + b"\n" + b"[" * 5000)
    with pytest.raises(FileError, match="line 2: expected at most 1000 bytes, found more"):
        open_vectors(path)


def test_no_room_for_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.csv", {"v": rows(3).tolist()})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(FileError, match="cannot be written to .*nowhere.*TMPDIR"):
        open_vectors(path)


def test_text_needs_no_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert open_vectors(write(tmp_path / "a.csv", {"v": rows(3).tolist()})).shape == (3, D)
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + bytes(20) + b"\x08\0\0\0PAR1")
    with pytest.raises((MissingExtraError, FileError)):
        column_names(tmp_path / "a.parquet")


def test_offsets_that_lie_are_found_before_they_are_used(tmp_path: Path) -> None:
    ids = [f"row {at}" for at in range(10, 14)]
    path = write(tmp_path / "a.arrow", {"id": ids, "v": rows(4).tolist()})
    whole = path.read_bytes()
    offsets = np.array([0, 6, 12, 18, 24], "<i4").tobytes()
    assert whole.count(offsets) == 1
    for lie in ([0, 6, 12, 18, 2**31 - 1], [0, 6, -12, 18, 24], [0, 2**20, 2**20, 2**21, 2**21]):
        path.write_bytes(whole.replace(offsets, np.array(lie, "<i4").tobytes()))
        with pytest.raises(FileError, match="cannot be read by pyarrow"):
            list(read_columns(path, ["id"]))
        assert open_vectors(path).shape == (4, D)


# --- the command line -----------------------------------------------------------------------


def run(capsys: Any, *arguments: Any) -> str:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    output = capsys.readouterr()
    assert stopped.value.code in (0, None), output.err
    return str(output.out)


def fail(capsys: Any, *arguments: Any) -> str:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    output = capsys.readouterr()
    assert stopped.value.code == 2
    assert output.err.count("\n") == 1
    return str(output.err)


@pytest.mark.parametrize(
    ("suffix", "in_columns", "id_type"),
    [
        (".csv", False, "string"),
        (".csv", True, "int64"),
        (".tsv", False, "int64"),
        (".jsonl", True, "string"),
        (".parquet", True, "string"),
        (".arrow", False, "int64"),
    ],
)
def test_build_add_upsert_and_search(
    suffix: str, in_columns: bool, id_type: str, tmp_path: Path, capsys: Any
) -> None:
    X = rows(40)
    ids: list[Any] = [*range(500, 540)]
    if id_type == "string":
        ids = [f"row {at}" for at in ids]

    def table(name: str, at: slice) -> Path:
        parts = {f"x{i}": part.tolist() for i, part in enumerate(X[at].T)}
        vectors = parts if in_columns else {"v": X[at].tolist(), "w": X[at].tolist()}
        return write(tmp_path / f"{name}{suffix}", {"id": ids[at], **vectors})

    column = [] if in_columns else ["--column", "v"]
    index = tmp_path / "a.dh"
    first = table("first", slice(0, 20))
    run(capsys, "build", first, "-o", index, "--ids", "id", *column)
    run(capsys, "add", index, table("more", slice(20, 30)), "--ids", "id", *column)
    answer = run(
        capsys, "upsert", index, table("m", slice(25, 40)), "--ids", "id", "--json", *column
    )
    assert json.loads(answer) == {"added": 10, "updated": 5, "rows": 40}
    run(capsys, "update", index, table("n", slice(3, 6)), "--ids", "id", *column)
    opened = Index.open(index)
    np.testing.assert_array_equal(opened.get(ids), X.astype(np.float32))
    queries = write(tmp_path / f"q{suffix}", {"v": X[:3].tolist()})
    found = json.loads(run(capsys, "search", index, queries, "-k", 1, "--json"))
    assert [one[0] for one in found["ids"]] == ids[:3]


def test_ids_of_a_column_or_a_file(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "a.csv", {"id": ["b", "a", "c"], "v": rows(3).tolist()})
    (tmp_path / "ids.txt").write_text("7\n8\n9\n")
    run(capsys, "build", path, "-o", "a.dh", "--ids", "ids.txt")
    assert Index.open("a.dh").ids.tolist() == [7, 8, 9]
    run(capsys, "build", path, "-o", "b.dh", "--ids", "id")
    assert Index.open("b.dh").ids.tolist() == ["a", "b", "c"]
    (tmp_path / "id").write_text("4\n5\n6\n")
    said = fail(capsys, "build", path, "-o", "c.dh", "--ids", "id")
    assert "--ids id is both a file and a column of" in said
    assert "write ./id for the file" in said
    run(capsys, "build", path, "-o", "c.dh", "--ids", "./id")
    assert Index.open("c.dh").ids.tolist() == [4, 5, 6]
    said = fail(capsys, "build", path, "-o", "d.dh", "--ids", "name")
    assert "neither a file nor a column" in said
    assert "'id', 'v'" in said
    assert "nowhere.txt does not exist" in fail(
        capsys, "build", path, "-o", "d.dh", "--ids", "nowhere.txt"
    )
    wrong: dict[str, tuple[list[Any], str]] = {
        "twice": (["a", "a", "b"], "'a' is there twice"),
        "floats": ([0.5, 1, 2], "must be all integers or all strings, got float, int"),
        "null": (["a", None, "b"], "must be all integers or all strings, got NoneType, str"),
    }
    for values, message in wrong.values():
        bad = write(tmp_path / "bad.jsonl", {"id": values, "v": rows(3).tolist()})
        (tmp_path / "id").unlink(missing_ok=True)
        assert message in fail(capsys, "build", bad, "-o", "d.dh", "--ids", "id")
    assert not (tmp_path / "d.dh").exists()
    bad = write(tmp_path / "bad.csv", {"id": ["1", "x", "2"], "v": rows(3).tolist()})
    assert "row 1 of 'id' must be an integer" in fail(capsys, "add", "a.dh", bad, "--ids", "id")


def test_numbers_are_names_where_the_index_has_names(tmp_path: Path, capsys: Any) -> None:
    named = write(tmp_path / "a.jsonl", {"id": ["a", "b"], "v": rows(2).tolist()})
    more = write(tmp_path / "b.jsonl", {"id": [1, 2], "v": rows(2).tolist()})
    run(capsys, "build", named, "-o", tmp_path / "a.dh", "--ids", "id")
    run(capsys, "add", tmp_path / "a.dh", more, "--ids", "id")
    assert Index.open(tmp_path / "a.dh").ids.tolist() == ["1", "2", "a", "b"]


def test_a_folder_of_parquet_files(tmp_path: Path, capsys: Any) -> None:
    X = rows(20)
    (tmp_path / "parts").mkdir()
    write(tmp_path / "parts" / "a.parquet", {"id": [*range(9)], "v": X[:9].tolist()})
    write(tmp_path / "parts" / "b.parquet", {"id": [*range(9, 20)], "v": X[9:].tolist()})
    run(capsys, "build", tmp_path / "parts", "-o", tmp_path / "a.dh", "--ids", "id")
    np.testing.assert_array_equal(Index.open(tmp_path / "a.dh").get(range(20)), X.astype("f4"))


# --- codes with ids and columns beside them ---------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> Path:
    LSH(20, random_state=0).fit(rows(50)).save(tmp_path / "model.dh")
    return tmp_path / "model.dh"


def read_table(path: Path) -> Any:
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return parquet.read_table(path)
    return pytest.importorskip("pyarrow").ipc.open_file(str(path)).read_all()


@pytest.mark.parametrize(
    ("suffix", "out"),
    [(".csv", ".parquet"), (".jsonl", ".arrow"), (".parquet", ".arrow"), (".arrow", ".parquet")],
)
def test_codes_keep_ids_and_columns(
    suffix: str, out: str, tmp_path: Path, model: Path, capsys: Any
) -> None:
    pa = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    X = rows(30)
    parts = {
        "id": [*range(500, 530)],
        "v": X.tolist(),
        "title": [f"ä{at}" for at in range(30)],
        "year": [*range(1990, 2020)],
    }
    path = write(tmp_path / f"a{suffix}", parts)
    made = tmp_path / f"codes{out}"
    ask = ("encode", path, "--hasher", model, "-o", made)
    codes = load_hasher(model).transform(X)
    run(capsys, *ask, "--ids", "id", "--keep", "year,title")
    table = read_table(made)
    assert table.schema.names == ["id", "year", "title", "codes"]
    assert table.schema.field("id").type == pa.int64()
    assert table.schema.field("codes").type == pa.binary(3)
    assert table["codes"].to_pylist() == [bytes(code) for code in codes]
    assert table["id"].to_pylist() == parts["id"]
    assert table["title"].to_pylist() == parts["title"]
    assert [int(year) for year in table["year"].to_pylist()] == parts["year"]
    np.testing.assert_array_equal(open_vectors(made)[:], codes)

    run(capsys, *ask)
    assert read_table(made).schema.names == ["codes"]
    run(capsys, *ask, "--ids", "id")
    assert read_table(made).schema.names == ["id", "codes"]
    run(capsys, *ask, "--keep", "title")
    assert read_table(made)["title"].to_pylist() == parts["title"]
    (tmp_path / "names.txt").write_text("".join(f"n{at}\n" for at in range(30)))
    run(capsys, *ask, "--ids", tmp_path / "names.txt", "--keep", "title")
    assert read_table(made)["id"].to_pylist() == [f"n{at}" for at in range(30)]

    # From there into an index, by Arrow's own column.
    table = read_table(made)
    index = Index.from_codes(table["codes"], ids=table["id"], hasher=load_hasher(model))
    assert index.search(X[:5], 1, rerank=None).distances.tolist() == [[0]] * 5
    assert "n7" in index


def test_codes_of_other_files_may_have_ids(tmp_path: Path, model: Path, capsys: Any) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    np.save(tmp_path / "a.npy", rows(30))
    np.save(tmp_path / "ids.npy", np.arange(30)[::-1])
    ask = ("encode", tmp_path / "a.npy", "--hasher", model, "-o", tmp_path / "c.parquet")
    run(capsys, *ask, "--ids", tmp_path / "ids.npy")
    assert read_table(tmp_path / "c.parquet")["id"].to_pylist() == [*range(30)][::-1]


def test_codes_that_are_refused(tmp_path: Path, model: Path, capsys: Any) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    path = write(tmp_path / "a.jsonl", {"id": [*range(9)], "v": rows(9).tolist(), "codes": [1] * 9})
    ask = ("encode", path, "--hasher", model, "-o")
    made = tmp_path / "c.parquet"
    (tmp_path / "few.txt").write_text("1\n2\n")
    np.save(tmp_path / "b.npy", rows(9))
    for asked, message in {
        (*ask, tmp_path / "c.npy", "--ids", "id"): ".npy holds codes alone",
        (
            *ask,
            tmp_path / "c.u8bin",
            "--keep",
            "id",
        ): "--ids and --keep are for -o that ends in .parq",
        (*ask, made, "--keep", "nothing"): "has no column 'nothing'; it has id, v, codes",
        (*ask, made, "--keep", "codes"): "names of columns must differ, got codes, codes",
        (*ask, made, "--ids", "id", "--keep", "id"): "names of columns must differ",
        (*ask, made, "--ids", tmp_path / "few.txt"): "has 9 rows but there are 2 ids",
        (
            "encode",
            tmp_path / "b.npy",
            "--hasher",
            model,
            "-o",
            made,
            "--keep",
            "t",
        ): "no column 't'",
    }.items():
        assert message in fail(capsys, *asked)
    mixed = [{"v": row, "t": "a" if at < 8 else at} for at, row in enumerate(rows(9).tolist())]
    path.write_text("\n".join(map(json.dumps, mixed)))
    said = fail(capsys, *ask, made, "--keep", "t")
    assert "'t' cannot be written" in said
    assert not made.exists()


def test_columns_and_codes_of_different_lengths(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    codes = np.zeros((3, 2), np.uint8)
    for blocks in ([["a", "b"]], [["a"], ["b", "c", "d"]], [["a", "b", "c"], ["d"]], []):
        with pytest.raises(FileError, match="there are 3 codes, but"):
            columnar.write_codes(
                tmp_path / "a.parquet", codes, iter([{"t": one} for one in blocks])
            )
    assert not list(tmp_path.iterdir())


def test_columns_that_pandas_has_coded(tmp_path: Path, model: Path, capsys: Any) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    titles = pandas.Categorical([f"t{at % 7}" for at in range(30)])
    frame = pandas.DataFrame({"v": rows(30).tolist(), "t": titles})
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=7)
    for out in (".parquet", ".arrow"):
        made = tmp_path / f"c{out}"
        ask = ("encode", tmp_path / "a.parquet", "--hasher", model, "-o", made, "--keep", "t")
        run(capsys, *ask)
        assert read_table(made)["t"].to_pylist() == list(titles)


def test_types_of_calls(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no columns: .npy holds numbers alone"):
        next(read_columns(tmp_path / "a.npy", ["id"]))
    path = write(tmp_path / "a.csv", {"id": ["a"], "v": [[1.0, 2.0]]})
    with pytest.raises(InputError, match="no column named 'x'; it has 'id', 'v'"):
        next(read_columns(path, ["x"]))
    twice = tmp_path / "b.csv"
    twice.write_text("id,id,x,y\n1,2,3,4\n")
    with pytest.raises(InputError, match="two columns named 'id'"):
        next(read_columns(twice, ["id"]))
