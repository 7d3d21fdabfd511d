"""Ids for systems whose keys are numbers: strings lie in a file beside, in the order of rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from densehash.disk import write_file
from densehash.export.rows import Part, Snapshot

__all__ = ["ids_path", "keys_of", "write_ids"]


def ids_path(out: Path, rows: Snapshot) -> list[Path]:
    """The file of ids beside another; none where ids are numbers.

    Examples
    --------
    >>> from densehash import Index
    >>> index = Index.build(np.eye(2), ids=["a", "b"], sketch="codes", n_bits=8)
    >>> ids_path(Path("photos.faiss"), Snapshot(index))
    [PosixPath('photos.faiss.ids.json')]
    """
    return [out.with_name(f"{out.name}.ids.json")] if rows.has_strings else []


def keys_of(part: Part) -> NDArray[np.int64]:
    """Keys of rows: their ids, or where these are strings their numbers, from 0 on.

    Examples
    --------
    >>> from densehash import Index
    >>> index = Index.build(np.eye(2), ids=["a", "b"], sketch="codes", n_bits=8)
    >>> [keys_of(part).tolist() for part in Snapshot(index).parts()]
    [[0, 1]]
    """
    if part.ids.dtype == np.int64:
        return part.ids
    return np.arange(part.start, part.start + len(part.ids))


def write_ids(paths: list[Path], rows: Snapshot) -> None:
    """Write strings as a list in JSON: number i is the id of the row with the key i.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from densehash import Index
    >>> index = Index.build(np.eye(2), ids=["a", "b"], sketch="codes", n_bits=8)
    >>> with TemporaryDirectory() as folder:
    ...     write_ids([Path(folder, "ids.json")], Snapshot(index))
    ...     Path(folder, "ids.json").read_text()
    '["a", "b"]'
    """
    for path in paths:
        write_file(path, json.dumps(rows.ids.tolist()).encode("ascii"))
