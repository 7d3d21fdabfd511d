"""Codes, ids and payloads for other systems: one file each, and one entry in the registry.

The package of a system is imported only when it is needed; the extra ``export`` installs them all.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from densehash.checks import check_choice
from densehash.errors import InputError
from densehash.export.registry import TARGETS
from densehash.export.rows import AnyIndex, Export, bit_strings, codes_of

if TYPE_CHECKING:
    from densehash.export.duckdb import to_duckdb
    from densehash.export.faiss import faiss_transform, to_faiss
    from densehash.export.lance import to_lance
    from densehash.export.parquet import to_parquet
    from densehash.export.pgvector import to_pgvector
    from densehash.export.sqlite_vec import to_sqlite_vec
    from densehash.export.usearch import to_usearch

__all__ = [
    "TARGETS",
    "Export",
    "bit_strings",
    "codes_of",
    "export",
    "faiss_transform",
    "to_duckdb",
    "to_faiss",
    "to_lance",
    "to_parquet",
    "to_pgvector",
    "to_sqlite_vec",
    "to_usearch",
]


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
    path : the file, or for Lance the folder
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
    >>> export(index, "excel", "codes.xls")
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: to must be 'faiss' or 'usearch' or 'parquet' or 'lance' or \
'duckdb' or 'sqlite-vec' or 'pgvector', got 'excel'
    """
    check_choice(to, "to", tuple(TARGETS))
    options = {"vectors": vectors} if TARGETS[to].takes_vectors else {}
    if vectors and not options:
        raise InputError(f"{to} gets codes alone: leave vectors (--vectors) out")
    found: Export = _function(to)(index, path, force=force, **options)
    return found


def _function(target: str) -> Any:
    name = target.replace("-", "_")
    return getattr(importlib.import_module(f"{__name__}.{name}"), f"to_{name}")


def __getattr__(name: str) -> Any:
    if name == "faiss_transform":
        return importlib.import_module(f"{__name__}.faiss").faiss_transform
    target = name.removeprefix("to_").replace("_", "-")
    if not name.startswith("to_") or target not in TARGETS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _function(target)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
