"""Spark: what its workers compute is what this process computes, and errors say where.

A few tests start Spark. In the others the functions that would go to its workers run here, on the
batches that it would send.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hasher_cases import Make, every_hasher, fitted, mixture
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from densehash.distributed import spark as adapter
from densehash.distributed.spark import encode, top_k
from densehash.errors import FileError, InputError, MissingExtraError
from densehash.hashers import LSH, Hasher
from densehash.hashers.state import hasher_of
from densehash.index import Index
from densehash.parallel import n_threads

pa = pytest.importorskip("pyarrow", reason="needs the extra spark")
types = pytest.importorskip("pyspark.sql.types", reason="needs the extra spark")

D = 6
N = 60


def vectors(n: int = N, dtype: Any = np.float32) -> NDArray[Any]:
    """Whole numbers that every type holds."""
    return np.random.default_rng(0).integers(-99, 100, (N, D))[:n].astype(dtype)


def hasher() -> Hasher:
    return LSH(12, random_state=0).fit(vectors())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("indexes")
    index = Index.build(vectors(), n_bits=16, random_state=0)
    index.save(path / "numbers.dh")
    index.remove(range(N))
    index.save(path / "empty.dh")
    ids = [f"row {i}" for i in range(N - 1)] + [""]
    index = Index.build(vectors(), ids=ids, n_bits=16, metric="cosine", random_state=0)
    index.save(path / "strings.dh")
    return path


def expected_of(index: Index, X: NDArray[Any], k: int, **search: Any) -> list[tuple[Any, ...]]:
    """What a search finds, a row for each neighbour."""
    hits = index.search(X, k, **search)
    return [
        (query, rank + 1, hits.ids[query, rank], hits.distances[query, rank])
        for query in range(len(X))
        for rank in range(k)
        if hits.ids[query, rank] not in (-1, None)
    ]


# --- with Spark ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        pytest.skip("needs Java")
    from pyspark.sql import SparkSession

    on_ctrl_c = signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
            .config("spark.local.dir", str(tmp_path_factory.mktemp("spark")))
            .getOrCreate()
        )
        signal.signal(signal.SIGINT, on_ctrl_c)  # Spark takes it
        session.sparkContext.setLogLevel("OFF")
        gateway = session.sparkContext._gateway
        yield session
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # on which Java ends
        gateway.proc.wait()


@pytest.fixture
def setting(spark: Any) -> Iterator[Callable[[str, object], None]]:
    """Change a setting of the session for one test."""
    changed = set()

    def change(name: str, value: object) -> None:
        changed.add(name)
        spark.conf.set(name, str(value))

    yield change
    for name in changed:
        spark.conf.unset(name)


def with_spark(test: Any) -> Any:
    # Of pyspark itself: where pandas is newer than it knows, and of 3.5 how it compares versions
    # and collects rows.
    ignored = pytest.mark.filterwarnings(
        "ignore:PySpark does not yet fully support pandas:FutureWarning",
        "ignore:distutils Version classes are deprecated:DeprecationWarning",
        "ignore:unclosed <socket.socket:ResourceWarning",
    )
    return pytest.mark.slow(ignored(test))


def frame(spark: Any, X: NDArray[Any], kind: str = "array<float>", n_partitions: int = 2) -> Any:
    pairs = list(enumerate(X.tolist()))
    return spark.createDataFrame(pairs, f"id int, v {kind}").repartition(n_partitions)


def codes_of(df: Any) -> NDArray[np.uint8]:
    """The codes in a DataFrame, by the id of their rows."""
    rows = sorted(df.select("id", "code").collect())
    return np.array([list(row["code"]) for row in rows], np.uint8)


def neighbours_of(df: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, df.select("id", "rank", "neighbor", "distance").collect()))


@with_spark
@pytest.mark.parametrize(("kind", "dtype"), [("float", np.float32), ("bigint", np.int64)])
def test_codes_in_spark(spark: Any, kind: str, dtype: Any) -> None:
    X = vectors(dtype=dtype)
    found = codes_of(encode(frame(spark, X, f"array<{kind}>"), hasher(), "v"))
    np.testing.assert_array_equal(found, hasher().transform(X))


@with_spark
def test_vectors_of_spark(spark: Any, folder: Path) -> None:
    from pyspark.ml.linalg import Vectors, VectorUDT

    X = vectors(8, dtype=np.float64)
    schema = types.StructType().add("id", "integer").add("v", VectorUDT())
    rows = [(i, Vectors.dense(row)) for i, row in enumerate(X.tolist())]
    df = spark.createDataFrame(rows, schema)
    found = encode(df, hasher(), "v")
    np.testing.assert_array_equal(codes_of(found), hasher().transform(X))
    assert found.schema["v"].dataType == VectorUDT()
    assert found.first()["v"] == rows[0][1]
    index = Index.open(folder / "numbers.dh")
    assert neighbours_of(top_k(df, folder / "numbers.dh", "v", 2)) == expected_of(index, X, 2)


@with_spark
def test_other_columns_stay_as_they_are(spark: Any, folder: Path) -> None:
    df = frame(spark, vectors(8)).selectExpr(
        "v",
        "id",
        "case when id > 3 then null else id end as sometimes",
        "map('a', id) as map",
        "cast(id as decimal(9, 2)) as `money in EUR.`",
        "timestamp'2020-01-01 12:00:00' as at",
        "date'2020-01-01' as day",
        "named_struct('x', id, 'y', array('q', null)) as struct",
        "X'00ff' as bytes",
        "null as nothing",
        "id + 1 as twice",
        "id + 2 as twice",
        "'ä' as text",
    )
    found = encode(df, hasher(), "v", output="Code")
    added = types.StructField("Code", types.BinaryType())
    assert found.schema == types.StructType([*df.schema.fields, added])
    by_id = sorted(found.collect(), key=lambda row: row["id"])
    before = [tuple(row) for row in sorted(df.collect(), key=lambda row: row["id"])]
    assert [tuple(row)[:-1] for row in by_id] == before
    codes = [list(row["Code"]) for row in by_id]
    np.testing.assert_array_equal(codes, hasher().transform(vectors(8)))

    joined = top_k(df, folder / "numbers.dh", "v", 3)
    assert joined.schema.fields[:-3] == df.schema.fields
    rows = sorted(joined.collect(), key=lambda row: (row["id"], row["rank"]))
    assert [tuple(row)[:-3] for row in rows] == [row for row in before for _ in range(3)]


@with_spark
@pytest.mark.parametrize("large", [False, True])
def test_any_batches_and_empty_partitions(
    spark: Any, setting: Callable[[str, object], None], folder: Path, large: bool
) -> None:
    setting("spark.sql.execution.arrow.maxRecordsPerBatch", 4)
    setting("spark.sql.execution.arrow.useLargeVarTypes", large)
    X = vectors(23)
    df = frame(spark, X, n_partitions=4).where("id % 4 != 1").repartition(3, "id")
    df = df.union(df.where("id < 0"))
    kept = np.arange(23) % 4 != 1
    np.testing.assert_array_equal(codes_of(encode(df, hasher(), "v")), hasher().transform(X[kept]))
    expected = expected_of(Index.open(folder / "strings.dh"), X, 4)
    found = top_k(df, folder / "strings.dh", "v", 4, id_column="id")
    assert found.schema["neighbor"].dataType == types.StringType()
    assert neighbours_of(found) == [row for row in expected if row[0] % 4 != 1]


@with_spark
def test_no_rows(spark: Any, folder: Path) -> None:
    df = frame(spark, vectors()).where("id < 0")
    assert encode(df, hasher(), "v").collect() == []
    assert top_k(df, folder / "numbers.dh", "v").collect() == []


@with_spark
def test_errors_reach_the_user(spark: Any, folder: Path) -> None:
    X = vectors(9)
    X[4, 1] = np.nan
    df = frame(spark, X, n_partitions=1).orderBy("id").coalesce(1)
    with pytest.raises(Exception, match="InputError") as raised:
        encode(df, hasher(), "v").collect()
    assert "column 'v', in a batch of 9 rows: X must be finite, got NaN in row 4" in str(
        raised.value
    )
    df = df.selectExpr("id", "slice(v, 1, if(id = 7, 5, 6)) as v")
    with pytest.raises(Exception, match="InputError") as raised:
        top_k(df, folder / "numbers.dh", "v").collect()
    assert "column 'v', in a batch of 9 rows: expected 6 numbers in row 7, found 5" in str(
        raised.value
    )


# --- what is wrong with arguments: seen before anything runs --------------------------------


class Frame:
    """As much of a DataFrame as is used; what it maps by, and to, is what it returns."""

    def __init__(self, schema: str) -> None:
        fields = (one.split() for one in schema.split(", "))
        self.schema = types.StructType(
            [types.StructField(name, _type_named(kind)) for name, kind in fields]
        )
        self.columns = self.schema.names
        self.sent: tuple[str, ...] = ()

    def toDF(self, *names: str) -> Frame:  # noqa: N802
        assert len(set(names)) == len(self.columns)
        return self

    def select(self, *names: str) -> Frame:
        self.sent = names
        return self

    def mapInArrow(self, function: Any, schema: Any) -> Any:  # noqa: N802
        self.mapped = schema
        return function


def _type_named(kind: str) -> Any:
    element = kind.removeprefix("array<").removesuffix(">")
    made = getattr(types, f"{element.capitalize()}Type")()
    return made if element == kind else types.ArrayType(made)


@pytest.mark.parametrize(
    ("schema", "arguments", "message"),
    [
        ("id long, v array<float>", {"column": "w"}, "no column 'w'; its columns are 'id', 'v'"),
        ("id long, v array<float>", {"column": "V"}, "no column 'V'"),
        ("v array<float>, v array<float>", {}, "df has 2 columns 'v'"),
        ("v float", {}, "column 'v' must be arrays of numbers, .* got float"),
        ("v array<string>", {}, "got array<string>"),
        ("v array<decimal>", {}, r"got array<decimal\(10,0\)>"),
        ("v array<boolean>", {}, "got array<boolean>"),
        ("code long, v array<float>", {}, "df has a column 'code' already"),
        ("Code long, v array<float>", {}, "df has a column 'code' already"),
        ("v array<float>", {"output": "v"}, "df has a column 'v' already"),
        ("v array<float>", {"output": ""}, "output must be the name of a column, got ''"),
        ("v array<float>", {"output": None}, "output must be the name of a column, got None"),
        ("v array<float>", {"hasher": "dsh"}, "hasher must be a Hasher, got a str"),
    ],
)
def test_encode_refuses(schema: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        encode(Frame(schema), **{"hasher": hasher(), "column": "v", **arguments})


def test_encode_refuses_a_hasher_that_has_not_learnt() -> None:
    with pytest.raises(NotFittedError):
        encode(Frame("v array<float>"), LSH(8), "v")


@pytest.mark.parametrize(
    ("schema", "arguments", "message"),
    [
        ("id long, v array<float>", {"column": "w"}, "no column 'w'"),
        ("id long, v array<float>", {"id_column": "w"}, "no column 'w'"),
        ("id long, v array<string>", {}, "got array<string>"),
        ("rank long, v array<float>", {}, "df has a column 'rank' already"),
        ("rank long, v array<float>", {"id_column": "rank"}, "df has a column 'rank' already"),
        ("Distance long, v array<float>", {}, "df has a column 'distance' already"),
        ("v array<float>", {"k": 0}, "k must be at least 1, got 0"),
        ("v array<float>", {"k": None}, "k must be an integer"),
        ("v array<float>", {"n_threads": 2}, "no option 'n_threads'; there are candidates, "),
        ("v array<float>", {"exclude_self": [1]}, "exclude_self must be True or False"),
        ("v array<float>", {"rerank": "best"}, "rerank must be 'auto'"),
        ("v array<float>", {"metric": "l3"}, "metric must be 'l2'"),
        ("v array<float>", {"probes": 2}, "this one is flat"),
        ("v array<float>", {"radius": "far"}, "radius must be a number"),
    ],
)
def test_top_k_refuses(folder: Path, schema: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        top_k(Frame(schema), **{"index_path": folder / "numbers.dh", "column": "v", **arguments})


def test_top_k_refuses_a_folder_without_an_index(folder: Path) -> None:
    with pytest.raises(FileError, match="no-such.dh"):
        top_k(Frame("v array<float>"), folder / "no-such.dh", "v")


@pytest.mark.parametrize(
    ("id_column", "sent", "kept"),
    [(None, "012", ["id", "v", "more"]), ("id", "01", ["id"]), ("v", "1", ["v"])],
)
@pytest.mark.parametrize(("name", "neighbor"), [("numbers", "bigint"), ("strings", "string")])
@pytest.mark.parametrize(("rerank", "distance"), [("auto", "float"), (None, "int")])
def test_the_columns_of_neighbours(
    folder: Path,
    id_column: Any,
    sent: str,
    kept: list[str],
    name: str,
    neighbor: str,
    rerank: Any,
    distance: str,
) -> None:
    df = Frame("id long, v array<float>, more long")
    top_k(df, folder / f"{name}.dh", "v", id_column=id_column, rerank=rerank)
    assert df.sent == tuple(sent)
    assert df.mapped.fields[:-3] == [df.schema[column] for column in kept]
    added = [(one.name, one.dataType.simpleString()) for one in df.mapped.fields[-3:]]
    assert added == [("rank", "int"), ("neighbor", neighbor), ("distance", distance)]


def test_columns_that_are_not_returned_may_be_named_as_what_is_added(folder: Path) -> None:
    df = Frame("id long, rank long, v array<float>")
    top_k(df, folder / "numbers.dh", "v", id_column="id")
    assert df.mapped.names == ["id", "rank", "neighbor", "distance"]


@pytest.mark.parametrize("package", ["pyarrow", "pyspark.sql.types"])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    df = Frame("v array<float>")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package[:7]} .* densehash\[spark\]"):
        encode(df, hasher(), "v")


def test_workers_need_no_other_system() -> None:
    asked = "import sys, densehash.distributed.spark\n"
    asked += "sys.exit(len({'dask', 'pyspark'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", asked], check=False).returncode == 0


# --- what workers compute, seen from inside -------------------------------------------------


def batch_of(lists: Any, kind: str = "float32") -> Any:
    """Rows with their numbers, as Spark sends them."""
    if isinstance(lists, np.ndarray):
        lists = lists.tolist()
    v = pa.array(lists, pa.list_(getattr(pa, kind)()))
    return pa.RecordBatch.from_arrays([pa.array(range(len(lists)), pa.int64()), v], ["0", "1"])


def sent(function: Any) -> Any:
    """A function as a worker gets it, with every task anew."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle", reason="needs the extra spark")
    return cloudpickle.loads(cloudpickle.dumps(function))


def run(function: Any, *batches: Any) -> list[Any]:
    return list(sent(function)(iter(batches)))


def rows_of(batches: list[Any]) -> list[tuple[Any, ...]]:
    return [row for batch in batches for row in zip(*batch.to_pydict().values(), strict=True)]


FRAME = "id long, v array<float>"


@every_hasher
def test_hashers_arrive_as_they_are(make: Make) -> None:
    X = mixture()[:50]
    (found,) = run(encode(Frame(FRAME), fitted(make), "v"), batch_of(X, "float64"))
    assert b"".join(found.column(2).to_pylist()) == fitted(make).transform(X).tobytes()


def test_a_hasher_that_knows_names_of_features_does_not_ask_for_them() -> None:
    pd = pytest.importorskip("pandas", reason="needs the extra spark")
    X = vectors()
    named = LSH(12, random_state=0).fit(pd.DataFrame(X, columns=list("abcdef")))
    (found,) = run(encode(Frame(FRAME), named, "v"), batch_of(X))
    assert found.column(2).to_pylist() == [bytes(code) for code in hasher().transform(X)]
    assert list(named.feature_names_in_) == list("abcdef")


@pytest.mark.parametrize(
    "kind", ["float32", "float64", "int8", "int16", "int32", "int64", "float16"]
)
def test_numbers_of_any_type(kind: str) -> None:
    X = vectors(dtype=kind)
    (found,) = run(encode(Frame(FRAME), hasher(), "v"), batch_of(list(X), kind))
    assert found.column(2).to_pylist() == [bytes(code) for code in hasher().transform(X)]
    assert found.columns[:2] == batch_of(list(X), kind).columns


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 9), max_size=6), st.integers(1, 9), st.data())
def test_batches_do_not_matter(folder: Path, lengths: list[int], k: int, data: Any) -> None:
    n = sum(lengths)
    X = vectors(n)
    start, batches = 0, []
    for length in lengths:  # slices of longer batches, which begin anywhere
        before = data.draw(st.integers(0, start))
        whole = batch_of(vectors(N)[start - before : start + length + 2])
        batches.append(whole.slice(before, length))
        start += length
    codes = run(encode(Frame(FRAME), hasher(), "v"), *batches)
    assert len(codes) == np.count_nonzero(lengths)
    found = [row[2] for row in rows_of(codes)]
    assert found == ([bytes(code) for code in hasher().transform(X)] if n else [])
    near = run(top_k(Frame(FRAME), folder / "numbers.dh", "v", k), *batches)
    assert max(map(len, near), default=0) <= max(lengths, default=0)
    expected = expected_of(Index.open(folder / "numbers.dh"), X, k) if n else []
    assert [row[2:] for row in rows_of(near)] == [row[1:] for row in expected]


@pytest.mark.parametrize(
    "search",
    [
        {},
        {"rerank": None},
        {"metric": "ip", "candidates": 20},
        {"radius": 150.0, "exclude_self": True},
        {"filter": lambda ids: ids % 2 == 0},
        {"filter": [3, 4, 5]},  # fewer than are asked for
    ],
)
def test_neighbours_are_those_of_search(folder: Path, search: dict[str, Any]) -> None:
    X = vectors(30) + 1
    function = top_k(Frame(FRAME), folder / "numbers.dh", "v", 5, id_column="id", **search)
    expected = expected_of(Index.open(folder / "numbers.dh"), X, 5, **search)
    assert rows_of(run(function, batch_of(X))) == expected != []


def test_ids_may_be_strings(folder: Path) -> None:
    X = vectors(10)
    function = top_k(Frame(FRAME), folder / "strings.dh", "v", 2 * N, id_column="id")
    expected = expected_of(Index.open(folder / "strings.dh"), X, 2 * N)
    assert rows_of(run(function, batch_of(X))) == expected
    assert len(expected) == 10 * N


def test_an_empty_index_has_no_neighbours(folder: Path) -> None:
    assert run(top_k(Frame(FRAME), folder / "empty.dh", "v"), batch_of(vectors())) == []


def test_a_relative_path_is_meant_from_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    function = top_k(Frame(FRAME), "numbers.dh", "v", 1, id_column="id")
    monkeypatch.chdir(folder.parent)
    adapter._opened.cache_clear()  # as in another process
    assert [row[2] for row in rows_of(run(function, batch_of(vectors(3))))] == [0, 1, 2]


def test_a_task_sees_the_index_as_it_is_then(tmp_path: Path) -> None:
    path, X = tmp_path / "a.dh", vectors()
    Index.build(X[:20], n_bits=16, random_state=0).save(path)
    function = top_k(Frame(FRAME), path, "v", 1, id_column="id")
    few = batch_of(X[20:25])
    assert {row[2] for row in rows_of(run(function, few))} <= set(range(20))
    Index.open(path).add(X[20:25])
    assert [row[2] for row in rows_of(run(function, few))] == [20, 21, 22, 23, 24]
    Index.build(X, ids=list(map(str, range(N))), n_bits=16).save(path)
    with pytest.raises(FileError, match="ids are of type string, and were int64 when"):
        run(function, few)
    shutil.rmtree(path)
    with pytest.raises(FileError, match="a.dh"):
        run(function, few)


WRONG: dict[str, tuple[Any, str]] = {
    "null": (None, "expected 6 numbers in row 4, found null"),
    "short": ([1.0] * 5, "expected 6 numbers in row 4, found 5"),
    "long": ([1.0] * 7, "expected 6 numbers in row 4, found 7"),
    "none": ([], "expected 6 numbers in row 4, found 0"),
    "null inside": ([1.0, None] * 3, "expected 6 numbers in row 4, found a null among them"),
    "NaN": ([1.0, float("nan")] * 3, "[XQ] must be finite.*, got NaN in row 4, column 1"),
    "infinity": ([1.0, float("inf")] * 3, "[XQ] must be finite.*, got infinity in row 4, column 1"),
    "too large": ([1e38] * 6, "X has numbers up to 1e.38, too large"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_error_names_the_column_and_the_row(folder: Path, case: str) -> None:
    wrong, message = WRONG[case]
    good = batch_of(vectors(3))
    bad = batch_of([[0.0], *vectors(4).tolist(), wrong, *vectors(4).tolist()]).slice(1)
    message = f"^column 'v', in a batch of 9 rows: {message}"
    with pytest.raises(InputError, match=message):
        run(encode(Frame(FRAME), hasher(), "v"), good, bad)
    if case != "too large":  # nothing is squared here
        with pytest.raises(InputError, match=message):
            run(top_k(Frame(FRAME), folder / "numbers.dh", "v"), good, bad)


@pytest.mark.parametrize(
    ("row", "found"), [(2, "a sparse vector"), (4, "null"), (5, "0"), (None, "")]
)
def test_vectors_of_ml(row: int | None, found: str) -> None:
    from pyspark.ml.linalg import VectorUDT

    X = vectors(8, np.float64)
    kinds = [("type", pa.int8()), ("size", pa.int32())]
    kinds += [("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float64()))]
    structs: list[Any] = [(1, None, None, values) for values in X.tolist()]
    wrong: dict[int, Any] = {2: (0, D, [0], [1.0]), 4: None, 5: (1, None, None, [])}
    if row is not None:
        structs[row] = wrong[row]
    dicts = [one and dict(zip(dict(kinds), one, strict=True)) for one in structs]
    column = pa.array([None, *dicts], pa.struct(kinds)).slice(1)
    batch = pa.RecordBatch.from_arrays([pa.nulls(8), column], ["0", "1"])
    df = Frame(FRAME)
    df.schema.fields[1].dataType = VectorUDT()
    function = encode(df, hasher(), "v")
    if row is None:
        codes = run(function, batch)[0].column(2).to_pylist()
        assert codes == [bytes(code) for code in hasher().transform(X)]
    else:
        with pytest.raises(InputError, match=f"expected 6 numbers in row {row}, found {found}"):
            run(function, batch)


def test_a_process_builds_a_hasher_once(monkeypatch: pytest.MonkeyPatch) -> None:
    X = vectors()
    function = encode(Frame(FRAME), hasher(), "v")
    other = encode(Frame(FRAME), LSH(12, random_state=1).fit(X), "v")
    built = []

    def build(*state: Any) -> Hasher:
        built.append(state)
        return hasher_of(*state)

    monkeypatch.setattr(adapter, "hasher_of", build)
    for _ in range(3):
        run(function, batch_of(X), batch_of(X))
    assert len(built) == 1
    assert run(other, batch_of(X))[0].column(2) != run(function, batch_of(X))[0].column(2)
    assert len(built) == 2


def test_a_process_opens_an_index_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter._opened.cache_clear()
    opened = []

    class Counted(Index):
        @classmethod
        def open(cls, path: Any, *, mmap: bool = True) -> Any:
            opened.append(path)
            return Index.open(path, mmap=mmap)

    monkeypatch.setattr(adapter, "Index", Counted)
    function = top_k(Frame(FRAME), folder / "numbers.dh", "v", 3)
    for _ in range(3):
        run(function, batch_of(vectors()))
    assert opened == [folder / "numbers.dh"]


def test_a_task_has_one_thread_and_answers_in_short_batches(folder: Path) -> None:
    threads = []

    def allow(ids: NDArray[Any]) -> NDArray[np.bool_]:
        threads.append(n_threads())
        return ids >= 0

    function = top_k(Frame(FRAME), folder / "numbers.dh", "v", 4, filter=allow)
    before = n_threads()
    found = list(function(iter([batch_of(vectors(10))])))
    assert set(threads) == {1}
    assert n_threads() == before
    assert [len(batch) for batch in found] == [10] * 4
