"""The work of ``densehash encode``: hashes rows as they are read, and writes their codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.bits import bytes_for
from densehash.cli.arguments import Ids, column_of_ids, ids_of_rows
from densehash.cli.places import check_file_place
from densehash.datasets.files import FORMATS, column_names, read_columns, write_vectors
from densehash.datasets.reading import Vectors
from densehash.disk import is_there, writing
from densehash.errors import InputError
from densehash.hashers import Hasher, load_hasher
from densehash.index import Index
from densehash.index.encoding import for_hasher
from densehash.index.index import index_state
from densehash.source import Source
from densehash.store import Store
from densehash.store.manifest import HASHER, INDEX

__all__ = ["Codes", "beside", "check_out", "open_hasher", "write_codes"]

_SUFFIXES = tuple(
    suffix
    for form in FORMATS
    if form.holds in ("uint8", "any real type") and form.write_file is not None
    for suffix in form.suffixes
)


_WITH_COLUMNS = tuple(
    suffix for form in FORMATS if form.write_codes is not None for suffix in form.suffixes
)
_CODES = "codes"  # the name of the column
_ROWS = 1 << 16  # rows at a time, if only ids are written beside codes


class Codes(Source):
    """Codes of rows that are hashed as they are read: once, from the first to the last.

    Parameters
    ----------
    hasher : a fitted hasher
    X : vectors
    advance : called with the number of rows that were hashed
    """

    def __init__(self, hasher: Hasher, X: Vectors, advance: Callable[[int], None]) -> None:
        self.shape, self.dtype = (len(X), bytes_for(hasher.n_bits_)), np.dtype(np.uint8)
        self._blocks = hasher.transform_blocks(X)
        self._advance = advance
        self._at = 0
        self._ahead = np.empty((0, self.shape[1]), np.uint8)  # hashed, but not read yet

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[Any]:
        start, stop, _ = rows.indices(len(self)) if isinstance(rows, slice) else (-1, -1, 1)
        if start != self._at:
            raise InputError(f"codes come in their order, from row {self._at} on")
        parts, count = [self._ahead], len(self._ahead)
        while count < stop - start and (block := next(self._blocks, None)) is not None:
            parts.append(block[1])
            count += len(block[1])
            self._advance(len(block[1]))
        found = np.concatenate(parts)
        self._at, self._ahead = stop, found[stop - start :]
        return found[: stop - start]

    def close(self) -> None:
        """Stop hashing."""
        self._blocks.close()


def check_out(out: Path, vectors: Path, *, alone: bool = True) -> None:
    """Refuse a file of codes that could not be written, before any work is done.

    Parameters
    ----------
    out : the file of codes
    vectors : the file of vectors
    alone : whether nothing is written beside the codes
    """
    if out.suffix.lower() not in _SUFFIXES:
        raise InputError(f"-o must end in one of {', '.join(_SUFFIXES)}, got {str(out)!r}")
    if not alone and out.suffix.lower() not in _WITH_COLUMNS:
        raise InputError(
            f"--ids and --keep are for -o that ends in {' or '.join(_WITH_COLUMNS)}: "
            f"{out.suffix} holds codes alone"
        )
    check_file_place(out)
    with writing(out):
        is_same = is_there(out) and is_there(vectors) and out.samefile(vectors)
    if is_same:
        raise InputError(f"{out} is the file of vectors: choose another one for the codes")


def beside(
    vectors: Path, ids: str | None, keep: list[str], n_rows: int
) -> Iterator[dict[str, Any]] | None:
    """The columns to write beside codes, in blocks of rows; None if there are none.

    Parameters
    ----------
    vectors : the file of vectors
    ids : the value of ``--ids``
    keep : names of columns of the file
    n_rows : how many rows the file has
    """
    named = ids_of_rows(ids, vectors)
    if named is not None and len(named) != n_rows:
        raise InputError(f"{vectors} has {n_rows} rows but there are {len(named)} ids")
    id_name = column_of_ids(ids, vectors) or "id"
    names = [*([] if named is None else [id_name]), *keep]
    if len({*names, _CODES}) != len(names) + 1:
        raise InputError(f"names of columns must differ, got {', '.join([*names, _CODES])}")
    if not keep:
        if named is None:
            return None
        only = named
        return ({id_name: only[at : at + _ROWS]} for at in range(0, n_rows, _ROWS))
    there = column_names(vectors)
    for name in keep:
        if name not in there:
            raise InputError(f"--keep: {vectors} has no column {name!r}; it has {', '.join(there)}")
    return _with_ids(read_columns(vectors, keep), id_name, named)


def _with_ids(
    blocks: Iterator[dict[str, Any]], name: str, ids: Ids | None
) -> Iterator[dict[str, Any]]:
    at = 0
    for block in blocks:
        stop = at + len(next(iter(block.values())))
        yield block if ids is None else {name: ids[at:stop], **block}
        at = stop


def write_codes(out: Path, codes: Source, columns: Iterator[dict[str, Any]] | None) -> None:
    """Write codes; if the format has binary and columns, as binary with the other columns."""
    form = next(form for form in FORMATS if out.suffix.lower() in form.suffixes)
    if form.write_codes is None:
        write_vectors(out, codes)
    else:
        form.write_codes(out, codes, columns, _CODES)


def open_hasher(path: Path) -> tuple[Hasher, Callable[[Any], Any]]:
    """A hasher, and a function that scales rows as its index does before they are hashed."""
    if Store.open(path, form=(HASHER, INDEX)).form == INDEX:
        state = index_state(Index.open(path))
        return state.hasher, lambda X: for_hasher(X, state)
    learnt = load_hasher(path)
    # Rows of a file have no names of features; scikit-learn would warn about that.
    learnt.__dict__.pop("feature_names_in_", None)
    return learnt, lambda X: X
