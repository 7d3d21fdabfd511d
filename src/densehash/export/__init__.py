"""Codes, ids and payloads for other systems.

The package of a system is imported only when it is needed; the extra ``export`` installs them all.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from densehash.errors import InputError

if TYPE_CHECKING:
    from densehash.export.duckdb import to_duckdb as to_duckdb
    from densehash.export.faiss import faiss_transform
    from densehash.export.faiss import to_faiss as to_faiss
    from densehash.export.lance import to_lance as to_lance
    from densehash.export.parquet import to_parquet as to_parquet
    from densehash.export.pgvector import to_pgvector as to_pgvector
    from densehash.export.rows import AnyIndex, Export, bit_strings, codes_of
    from densehash.export.sqlite_vec import to_sqlite_vec as to_sqlite_vec
    from densehash.export.usearch import to_usearch as to_usearch


class Target(NamedTuple):
    """A system that codes are exported to.

    Attributes
    ----------
    about : what is written, in words
    takes_vectors : whether it gets the payload, and vectors where they are asked for; if not, it
        gets ids and codes alone
    """

    about: str
    takes_vectors: bool


# Each is a file of its name with a function ``to_NAME(index, path, *, force)``, which takes
# ``vectors``, too, where the entry says so. The file is imported when the function is used: the
# command line lists all systems, and must not load numpy for that.
TARGETS = {
    "faiss": Target("a binary index of faiss", False),
    "usearch": Target("an index of usearch, b1", False),
    "parquet": Target("a Parquet file", True),
    "lance": Target("a folder of Lance", True),
    "duckdb": Target("a database of DuckDB, with codes as BIT", True),
    "sqlite-vec": Target("a SQLite database with codes as bit[n]", True),
    "pgvector": Target("a SQL file for PostgreSQL with pgvector, codes as bit(n)", True),
}
"""Systems by name, as ``to`` and ``--to`` have them."""

_FUNCTIONS = {target: f"to_{target.replace('-', '_')}" for target in TARGETS}
_MODULE_OF = {
    **{function: function.removeprefix("to_") for function in _FUNCTIONS.values()},
    "faiss_transform": "faiss",
    **dict.fromkeys(("Export", "bit_strings", "codes_of"), "rows"),
}

__all__ = ["TARGETS", "Export", "Target", "bit_strings", "codes_of", "export", "faiss_transform"]
__all__ += list(_FUNCTIONS.values())


def export(
    index: AnyIndex,
    to: str,
    path: str | os.PathLike[str],
    *,
    vectors: bool = False,
    force: bool = False,
) -> Export:
    """Write the codes, ids and payload of an index for another system.

    Parameters
    ----------
    index : an index of codes, in shards or not
    to : one of TARGETS
    path : the file or folder that is written
    vectors : whether vectors are written, too
    force : whether existing files are replaced

    Returns
    -------
    Export : how many rows and what was written, and an example query for the other system

    Examples
    --------
    >>> import numpy as np
    >>> from densehash.index import Index
    >>> index = Index.build(np.eye(4), sketch="codes", n_bits=8)
    >>> export(index, "excel", "codes.xls")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: to must be 'faiss' or 'usearch' or 'parquet' or ..., got 'excel'
    """
    from densehash.checks import check_choice  # noqa: PLC0415  brings numpy

    check_choice(to, "to", tuple(TARGETS))
    options = {"vectors": vectors} if TARGETS[to].takes_vectors else {}
    if vectors and not options:
        raise InputError(f"{to} gets codes alone: leave vectors (--vectors) out")
    found: Export = _loaded(_FUNCTIONS[to])(index, path, force=force, **options)
    return found


def _loaded(name: str) -> Any:
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


if not TYPE_CHECKING:  # or a type checker would take any name for one of the package

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return _loaded(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
