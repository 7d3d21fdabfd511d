"""DuckDB: a database with a table of ids, codes as BIT, and the payload."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from densehash.datasets.reading import import_extra
from densehash.disk import replacing, write_file
from densehash.export.rows import AnyIndex, Export, Snapshot, bit_strings, check_free
from densehash.export.sql import as_float32, quoted
from densehash.index.columns import arrow

__all__ = ["to_duckdb"]

_BY_CODE = """\
-- $code is densehash.export.bit_strings(densehash.export.codes_of(index, Q), {n_bits})[0]
SELECT id, bit_count(xor(code, $code::BIT)) AS distance
FROM items ORDER BY distance, id LIMIT 10;
"""
_BY_VECTOR = """\
-- The nearest 100 by Hamming distance, re-ranked by their vectors; $vector is the query.
-- $code is densehash.export.bit_strings(densehash.export.codes_of(index, Q), {n_bits})[0]
WITH near AS (
  SELECT * FROM items ORDER BY bit_count(xor(code, $code::BIT)), id LIMIT 100
)
SELECT id, {distance}(vector, $vector::FLOAT[{n_features}]) AS distance
FROM near ORDER BY distance, id LIMIT 10;
"""
_DISTANCES = {
    "l2": "array_distance",
    "cosine": "array_cosine_distance",
    "ip": "array_negative_inner_product",
}


def to_duckdb(
    index: AnyIndex,
    path: str | os.PathLike[str],
    *,
    vectors: bool = False,
    force: bool = False,
) -> Export:
    """Write a database of DuckDB with the table ``items``: id, code, vector, and the payload.

    Bit i of a code is character i of its ``BIT``. The file ``PATH.sql`` has a query that ranks by
    Hamming distance and, if there are vectors, re-ranks by them. float16 becomes float32.

    Parameters
    ----------
    index : an index of codes, in shards or not
    path : the file; it appears only when it is complete
    vectors : whether vectors are written, too, as ``FLOAT[d]``
    force : whether existing files are replaced

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from densehash.index import Index
    >>> index = Index.build(np.eye(4), sketch="codes", n_bits=13, random_state=0)
    >>> with TemporaryDirectory() as folder:
    ...     [path.name for path in to_duckdb(index, Path(folder, "codes.duckdb")).paths]
    ['codes.duckdb', 'codes.duckdb.sql']
    """
    out = Path(path)
    duckdb = import_extra("duckdb", "export")
    rows = Snapshot(index, vectors=vectors)
    rows.check_names("DuckDB")
    beside = out.with_name(f"{out.name}.sql")
    check_free([out, beside], force=force)
    query = (_BY_VECTOR if vectors else _BY_CODE).format(
        n_bits=rows.n_bits, n_features=rows.n_features, distance=_DISTANCES[rows.metric]
    )
    with replacing(out) as part:
        part.unlink()  # DuckDB makes the file itself
        with duckdb.connect(str(part)) as database:
            _fill(database, rows)
    write_file(beside, query.encode())
    return Export(len(rows), (out, beside), query)


def _fill(database: Any, rows: Snapshot) -> None:
    pa = arrow()
    empty = _with_bits(pa, rows.schema().empty_table(), rows.n_bits)
    names = ", ".join(
        f"{quoted(name)}::BIT AS {quoted(name)}" if name == "code" else quoted(name)
        for name in empty.column_names
    )
    database.register("part", empty)
    database.execute(f"CREATE TABLE items AS SELECT {names} FROM part")  # noqa: S608
    database.execute("ALTER TABLE items ALTER id SET NOT NULL")
    database.execute("ALTER TABLE items ALTER code SET NOT NULL")
    for table in rows.tables():
        database.register("part", _with_bits(pa, table, rows.n_bits))
        database.execute(f"INSERT INTO items SELECT {names} FROM part")  # noqa: S608
    database.unregister("part")


def _with_bits(pa: Any, table: Any, n_bits: int) -> Any:
    """Codes as texts, and types that DuckDB has."""
    codes = np.frombuffer(b"".join(table["code"].to_pylist()), np.uint8)
    codes = codes.reshape(table.num_rows, -1 if table.num_rows else (n_bits + 7) // 8)
    at = table.schema.get_field_index("code")
    table = table.set_column(at, "code", pa.array(bit_strings(codes, n_bits), pa.string()))
    for at, field in enumerate(table.schema):
        if field.type == pa.float16():
            table = table.set_column(at, field.name, as_float32(table[at]))
    return table
