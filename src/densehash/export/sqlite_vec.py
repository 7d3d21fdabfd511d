"""sqlite-vec: a SQLite database with codes in a virtual table, and the payload in a plain one."""

from __future__ import annotations

import datetime as dt
import importlib
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from densehash.datasets.reading import import_extra
from densehash.disk import replacing
from densehash.errors import InputError, MissingExtraError
from densehash.export.rows import AnyIndex, Export, Part, Snapshot, check_free
from densehash.export.sql import iso_times, quoted

__all__ = ["sqlite", "to_sqlite_vec"]

_LARGEST = 2**63 - 1

_BY_CODE = """\
-- ? is densehash.export.codes_of(index, Q)[0].tobytes()
SELECT id, distance FROM codes JOIN items USING (rowid)
WHERE code MATCH vec_bit(?) AND k = 10 ORDER BY distance;
"""
_BY_VECTOR = """\
-- The nearest 100 by Hamming distance, re-ranked by their vectors.
-- :code is densehash.export.codes_of(index, Q)[0].tobytes(), :vector the query in float32
WITH near AS (SELECT rowid FROM codes WHERE code MATCH vec_bit(:code) AND k = 100)
SELECT id, {distance}(vector, :vector) AS distance FROM near JOIN items USING (rowid)
ORDER BY distance, rowid LIMIT 10;
"""
_DISTANCES = {"l2": "vec_distance_l2", "cosine": "vec_distance_cosine"}
_TYPES = {"bool": "INTEGER", "binary": "BLOB"}


def to_sqlite_vec(
    index: AnyIndex,
    path: str | os.PathLike[str],
    *,
    vectors: bool = False,
    force: bool = False,
) -> Export:
    """Write a SQLite database: codes in ``codes``, a ``vec0`` table, the rest in ``items``.

    Both tables have the same ``rowid``, in the order of ids. ``codes`` has whole bytes: 13 bits
    become ``bit[16]``, three of which are always zero, so distances are the same. Bit i of a code
    is bit i of sqlite-vec. SQLite has few types: dates and timestamps become texts in ISO 8601,
    lists become JSON, and booleans 0 and 1.

    Parameters
    ----------
    index : an index of codes, in shards or not
    path : the file; it appears only when it is complete
    vectors : whether vectors are written, too, as float32 in a column of ``items``
    force : whether an existing file is replaced

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from densehash.index import Index
    >>> index = Index.build(np.eye(4), sketch="codes", n_bits=13, random_state=0)
    >>> with TemporaryDirectory() as folder:
    ...     to_sqlite_vec(index, Path(folder, "codes.sqlite")).n_rows
    4
    """
    out = Path(path)
    sqlite_vec, engine = import_extra("sqlite_vec", "export"), sqlite()
    rows = Snapshot(index, vectors=vectors)
    columns = _columns(rows)
    check_free([out], force=force)
    with replacing(out) as part, closing(engine.connect(str(part))) as database:
        _load(database, sqlite_vec)
        database.execute(f"CREATE TABLE items ({columns})")
        database.execute(f"CREATE VIRTUAL TABLE codes USING vec0(code bit[{8 * rows.width}])")
        marks = ", ".join("?" * (2 + rows.has_vectors + len(rows.columns)))
        for some in rows.parts():
            numbers = range(some.start + 1, some.start + 1 + len(some.ids))
            database.executemany(
                f"INSERT INTO items VALUES ({marks})",  # noqa: S608
                ((n, *row) for n, row in zip(numbers, _rows(rows, some), strict=True)),
            )
            database.executemany(
                "INSERT INTO codes (rowid, code) VALUES (?, vec_bit(?))",
                ((n, code.tobytes()) for n, code in zip(numbers, some.codes, strict=True)),
            )
        database.commit()
    distance = _DISTANCES.get(rows.metric)
    return Export(
        len(rows),
        (out,),
        _BY_VECTOR.format(distance=distance) if vectors and distance else _BY_CODE,
    )


def sqlite() -> Any:
    """A module like ``sqlite3`` that can load extensions: Python's own, if it can, or sqlean.

    Examples
    --------
    >>> sqlite().connect(":memory:").execute("SELECT 1").fetchall()
    [(1,)]
    """
    if hasattr(sqlite3.Connection, "enable_load_extension"):
        return sqlite3
    try:
        return importlib.import_module("sqlean")
    except ImportError:
        raise MissingExtraError(
            "sqlite3 of this Python loads no extensions, and sqlite-vec is one; sqlean.py does: "
            "pip install densehash[export]"
        ) from None


def _load(database: Any, sqlite_vec: Any) -> None:
    database.enable_load_extension(True)
    sqlite_vec.load(database)
    database.enable_load_extension(False)


def _columns(rows: Snapshot) -> str:
    """Names and types of the columns of ``items``."""
    found = ["rowid INTEGER PRIMARY KEY"]
    found.append(f"id {'TEXT' if rows.has_strings else 'INTEGER'} NOT NULL UNIQUE")
    if rows.has_vectors:
        found.append("vector BLOB NOT NULL")
    for name, (_, kind) in zip(rows.check_names("SQLite"), rows.columns, strict=True):
        if name.lower() == "rowid":
            raise InputError(
                "the payload has a column 'rowid', a name that SQLite uses: export to duckdb"
            )
        plain = "INTEGER" if "int" in kind else "REAL" if kind.startswith("float") else "TEXT"
        found.append(f"{quoted(name)} {_TYPES.get(kind, plain)}")
    return ", ".join(found)


def _rows(rows: Snapshot, part: Part) -> Iterator[tuple[Any, ...]]:
    """Values of ``items``, without the number of the row."""
    columns: list[Any] = [part.ids.tolist()]
    if part.vectors is not None:
        columns.append([vector.tobytes() for vector in part.vectors])
    for at, (name, kind) in enumerate(rows.columns):
        column = part.payload.column(at)
        if kind.startswith("timestamp"):
            column = iso_times(column)
        values = column.to_pylist()
        if kind == "uint64" and max((value for value in values if value), default=0) > _LARGEST:
            raise InputError(
                f"the column {name!r} has numbers above 2**63 - 1, which SQLite cannot hold: "
                "export to duckdb or pgvector"
            )
        columns.append([_plain(value) for value in values])
    return zip(*columns, strict=True)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return value.isoformat() if isinstance(value, dt.date) else value
