"""pgvector: a SQL file that makes a table of ids, codes as bit(n), and the payload."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from densehash.datasets.reading import import_extra
from densehash.disk import replacing, write
from densehash.errors import InputError
from densehash.export.rows import AnyIndex, Export, Part, Snapshot, bit_strings, check_free
from densehash.export.sql import as_float32, iso_times, quoted
from densehash.index.columns import arrow

__all__ = ["to_pgvector"]

_LONGEST_NAME = 63  # bytes; PostgreSQL cuts longer ones
_WIDEST_VECTOR = 16_000
_TYPES = {
    "int8": "smallint",
    "uint8": "smallint",
    "int16": "smallint",
    "uint16": "integer",
    "int32": "integer",
    "uint32": "bigint",
    "int64": "bigint",
    "uint64": "numeric(20)",
    "float16": "real",
    "float32": "real",
    "float64": "double precision",
    "bool": "boolean",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "list of strings": "text[]",
}
_OPERATORS = {"l2": "<->", "cosine": "<=>", "ip": "<#>"}

_HEAD = """\
-- psql -f this file, into a database of PostgreSQL with pgvector 0.7 or newer
\\set ON_ERROR_STOP on
BEGIN;
SET LOCAL client_encoding = 'UTF8';
SET LOCAL client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS vector;
CREATE TABLE {table} (
  {columns}
);
COPY {table} FROM stdin;
"""
_TAIL = """\
\\.
CREATE INDEX ON {table} USING hnsw (code bit_hamming_ops);
COMMIT;
"""
_BY_CODE = """\
-- $1 is densehash.export.bit_strings(densehash.export.codes_of(index, Q), {n_bits})[0]
SELECT id, code <~> $1::bit({n_bits}) AS distance
FROM {table} ORDER BY code <~> $1::bit({n_bits}) LIMIT 10;
"""
_BY_VECTOR = """\
-- The nearest 100 by Hamming distance, re-ranked by their vectors; $2 is the query: '[0.5,...]'.
-- $1 is densehash.export.bit_strings(densehash.export.codes_of(index, Q), {n_bits})[0]
-- SET hnsw.ef_search = 100; before, so that the index finds as many.
SELECT id, vector {operator} $2::vector AS distance
FROM (SELECT * FROM {table} ORDER BY code <~> $1::bit({n_bits}) LIMIT 100) AS near
ORDER BY distance, id LIMIT 10;
"""


def to_pgvector(
    index: AnyIndex,
    path: str | os.PathLike[str],
    *,
    vectors: bool = False,
    force: bool = False,
) -> Export:
    """Write a SQL file for ``psql``: a table, its rows, and an index by Hamming distance.

    The table has the name of the file without its suffix, and the columns id, code, vector (if
    ``vectors``), and the payload. Bit i of a code is character i of its ``bit(n)``. A comment at
    the end has a query that ranks by Hamming distance and, if there are vectors, re-ranks by them.
    Writing the file needs pyarrow, but no PostgreSQL. Timestamps in PostgreSQL have microseconds.

    Parameters
    ----------
    index : an index of codes, in shards or not
    path : the file; it appears only when it is complete
    vectors : whether vectors are written, too, as ``vector(d)``
    force : whether an existing file is replaced

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from densehash.index import Index
    >>> index = Index.build(np.eye(4), sketch="codes", n_bits=13, random_state=0)
    >>> with TemporaryDirectory() as folder:
    ...     to_pgvector(index, Path(folder, "photos.sql")).n_rows
    4
    """
    out = Path(path)
    import_extra("pyarrow", "export")
    rows = Snapshot(index, vectors=vectors)
    table = _name(out.stem, "the name of the file")
    columns = _columns(rows)
    check_free([out], force=force)
    query = (_BY_VECTOR if vectors else _BY_CODE).format(
        table=table, n_bits=rows.n_bits, operator=_OPERATORS[rows.metric]
    )
    with replacing(out) as part, part.open("wb") as file:
        write(file, _HEAD.format(table=table, columns=",\n  ".join(columns)).encode())
        for some in rows.parts():
            _copy(file, rows, some)
        write(file, _TAIL.format(table=table).encode())
        write(file, "".join(f"-- {line}\n" for line in query.splitlines()).encode())
    return Export(len(rows), (out,), query)


def _name(name: str, what: str) -> str:
    if len(name.encode()) > _LONGEST_NAME:
        raise InputError(
            f"names in PostgreSQL have at most {_LONGEST_NAME} bytes, {what} is longer: {name!r}"
        )
    return quoted(name)


def _columns(rows: Snapshot) -> list[str]:
    """Names and types."""
    found = [f"id {'text' if rows.has_strings else 'bigint'} PRIMARY KEY"]
    found.append(f"code bit({rows.n_bits}) NOT NULL")
    if rows.has_vectors:
        if rows.n_features > _WIDEST_VECTOR:
            raise InputError(
                f"pgvector has vectors of at most {_WIDEST_VECTOR:,} numbers, these have "
                f"{rows.n_features:,}: export codes alone"
            )
        found.append(f"vector vector({rows.n_features}) NOT NULL")
    for name, (_, kind) in zip(rows.names, rows.columns, strict=True):
        zoned = "timestamptz" if "," in kind else "timestamp"
        found.append(f"{_name(name, 'a column of the payload')} {_TYPES.get(kind, zoned)}")
    return found


def _copy(file: IO[bytes], rows: Snapshot, part: Part) -> None:
    """Write rows as lines of COPY, with tabs between columns."""
    pa = arrow()
    columns = [_escaped(pa, pa.array(part.ids).cast(pa.string()))]
    columns.append(pa.array(bit_strings(part.codes, rows.n_bits), pa.string()))
    if part.vectors is not None:
        columns.append(pa.array([*_vectors(part.vectors)], pa.string()))
    for at, (name, kind) in enumerate(rows.columns):
        columns.append(_text(pa, part.payload.column(at).combine_chunks(), name, kind))
    joined = pa.compute.binary_join_element_wise(
        *(column.cast(pa.large_string()) for column in columns),
        pa.scalar("\t", pa.large_string()),
        null_handling="replace",
        null_replacement="\\N",
    )
    write(file, "".join(f"{line}\n" for line in joined.to_pylist()).encode())


def _vectors(vectors: NDArray[np.float32]) -> Iterator[str]:
    for vector in vectors.tolist():
        yield f"[{','.join(f'{number:.9g}' for number in vector)}]"


def _text(pa: Any, column: Any, name: str, kind: str) -> Any:
    """A column as PostgreSQL reads it."""
    if kind == "binary":
        texts = [None if value is None else f"\\\\x{value.hex()}" for value in column.to_pylist()]
        return pa.array(texts, pa.string())
    if kind == "list of strings":
        column = pa.array([_list(value) for value in column.to_pylist()], pa.string())
    elif kind.startswith("timestamp"):
        return iso_times(column)
    elif kind == "float16":
        column = as_float32(column)
    if kind not in ("string", "list of strings"):
        return column.cast(pa.string())
    if pa.compute.any(pa.compute.match_substring(column, "\0")).as_py():
        raise InputError(
            f"the column {name!r} has texts with the character NUL, which PostgreSQL cannot hold: "
            "export to duckdb"
        )
    return _escaped(pa, column)


def _list(values: list[str | None] | None) -> str | None:
    if values is None:
        return None
    inside = (
        "NULL" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for value in values
    )
    return "{" + ",".join(inside) + "}"


def _escaped(pa: Any, column: Any) -> Any:
    for sign, written in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        column = pa.compute.replace_substring(column, sign, written)
    return column
