"""Columns of text files as Arrow tables: JSON has types, in CSV and TSV the values decide them.

A column of CSV or TSV has the type integer, number, boolean, day or time if all of its cells do,
and string otherwise; 007 is a string. Empty cells are null.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from densehash.datasets.delimited import delimited_beside, delimited_blocks
from densehash.datasets.jsonl import jsonl_beside, jsonl_blocks
from densehash.datasets.reading import import_extra
from densehash.errors import InputError

__all__ = ["TEXTS", "text_table"]

_DELIMITED = (".csv", ".tsv")
TEXTS = (*_DELIMITED, ".jsonl", ".ndjson")
"""Suffixes of text files."""

_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_KINDS = (
    ("-?(0|[1-9][0-9]*)", "int64"),
    (r"-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?", "float64"),
    ("(?i:true|false)", "bool"),
    (_DAY, "date32"),
    (_DAY + r"[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?", "timestamp[us]"),
)


def text_table(
    path: Path,
    names: Sequence[str] | None,
    *,
    key: str | None = None,
    ids: str | None = None,
    texts: Collection[str] = (),
) -> Any:
    r"""Columns of a CSV, TSV or JSONL file beside its vectors.

    Parameters
    ----------
    path : the file
    names : names of the columns; default all except those of the vectors
    key, ids : as in :func:`~densehash.datasets.tables.vector_places`
    texts : names of columns that are strings, whatever their cells in CSV look like

    Returns
    -------
    pyarrow Table
    """
    pa = import_extra("pyarrow", "payload")
    is_delimited = path.suffix.lower() in _DELIMITED
    if names is None:
        names = (delimited_beside if is_delimited else jsonl_beside)(path, key, ids)
    if is_delimited:
        columns: dict[str, list[Any]] = {name: [] for name in names}
        for block in delimited_blocks(path, [*names]):
            for name, cells in block.items():
                columns[name].append(pa.array([cell or None for cell in cells], pa.string()))
        whole = {name: pa.chunked_array(parts, pa.string()) for name, parts in columns.items()}
        return pa.table(
            {name: one if name in texts else _typed(pa, one) for name, one in whole.items()}
        )
    tables = [
        pa.table({name: _values(pa, path, name, cells) for name, cells in block.items()})
        for block in jsonl_blocks(path, [*names])
    ]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise _mixed(path, error) from None


def _typed(pa: Any, cells: Any) -> Any:
    """A column of strings, converted to the type that all of its cells have."""
    import_extra("pyarrow.compute", "payload")
    filled = cells.drop_null()
    if len(filled) == 0:
        return cells.cast(pa.null())
    for pattern, kind in _KINDS:
        matches = pa.compute.match_substring_regex(filled, f"^(?:{pattern})$")
        if pa.compute.all(matches).as_py():
            try:
                return cells.cast(pa.timestamp("us") if kind == "timestamp[us]" else kind)
            except pa.ArrowInvalid:  # a number that is too long, or a day that does not exist
                break
    return cells


def _values(pa: Any, path: Path, name: str, values: list[Any]) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise _mixed(path, error, name) from None


def _mixed(path: Path, error: Exception, name: str | None = None) -> InputError:
    what = "columns" if name is None else f"column {name!r}"
    said = str(error).partition("\n")[0]
    return InputError(f"{path}: {what} must have values of one type each: {said}")
