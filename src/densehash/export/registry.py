"""All systems there are.

A new one is a file of its name with a function ``to_NAME(index, path, *, force)``, which takes
``vectors``, too, where its entry says so.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["TARGETS", "Target"]


class Target(NamedTuple):
    """A system that codes are exported to.

    Attributes
    ----------
    about : what is written, in words
    takes_vectors : whether vectors can be exported, too
    """

    about: str
    takes_vectors: bool


TARGETS = {
    "faiss": Target("a binary index of faiss", False),
    "usearch": Target("an index of usearch, b1", False),
    "parquet": Target("a Parquet file", True),
    "lance": Target("a folder of Lance", True),
    "duckdb": Target("a database of DuckDB, with codes as BIT", True),
    "sqlite-vec": Target("a SQLite database with codes as bit[n]", True),
    "pgvector": Target("a SQL file for PostgreSQL with pgvector, codes as bit(n)", True),
}
"""By name."""
