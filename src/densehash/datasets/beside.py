"""The columns of a file beside its vectors, as an Arrow table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from densehash.datasets.arrow import open_arrow_file
from densehash.datasets.parquet import open_parquet_file, parquet_files
from densehash.datasets.pieces import places_of_vectors, reading_by_pyarrow
from densehash.datasets.reading import import_extra
from densehash.datasets.typed import TEXTS, text_table
from densehash.errors import InputError

__all__ = ["read_table"]

_SUFFIXES = (".parquet", ".arrow", ".feather")


def read_table(
    path: Path,
    names: Sequence[str] | None,
    *,
    key: str | None = None,
    ids: str | None = None,
    texts: Collection[str] = (),
) -> Any:
    """Columns of a file, or of a folder of Parquet files, beside its vectors.

    Parameters
    ----------
    path : the file, or the folder
    names : names of the columns; default all except that of the vectors
    key : name of the column of vectors; default the only one that can be vectors
    ids : name of the column of ids, which does not belong to the vectors
    texts : as in :func:`~densehash.datasets.typed.text_table`

    Returns
    -------
    pyarrow Table

    Examples
    --------
    >>> read_table(Path("base.npy"), ["title"])
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: base.npy has no columns beside its vectors: only .parquet, \
.arrow, .feather, .csv, .tsv, .jsonl and .ndjson files have
    """
    pa = import_extra("pyarrow", "payload")
    if path.is_dir():
        tables = [read_table(file, names, key=key, ids=ids) for file in parquet_files(path)]
        with reading_by_pyarrow(path):
            return pa.concat_tables(tables)
    suffix = path.suffix.lower()
    if suffix in TEXTS:
        return text_table(path, names, key=key, ids=ids, texts=texts)
    if suffix not in _SUFFIXES:
        *others, last = *_SUFFIXES, *TEXTS
        raise InputError(
            f"{path} has no columns beside its vectors: only {', '.join(others)} and {last} files "
            "have"
        )
    with reading_by_pyarrow(path):
        if suffix == ".parquet":
            file = open_parquet_file(path)
            schema, read = file.schema_arrow, file.read
        else:
            opened = open_arrow_file(path)
            schema, read = opened.schema, lambda columns: opened.read_all().select(columns)
        if names is None:
            vectors = places_of_vectors(pa, path, key, list(schema), ids)
            names = [name for at, name in enumerate(schema.names) if at not in vectors]
        for name in names:
            if schema.names.count(name) != 1:
                listed = ", ".join(map(repr, schema.names))
                raise InputError(f"{path} has no single column {name!r}; it has {listed}")
        table = read(columns=list(names))
        table.validate(full=True)  # others will read it without checks
        return table
