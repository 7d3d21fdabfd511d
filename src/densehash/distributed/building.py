"""Shards of an index, which workers write."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
from dask.delayed import delayed

from densehash.checks import check_threads
from densehash.disk import is_there, writing
from densehash.distributed.chunks import Chunks, IdChunks, PayloadChunks, as_ids, as_payload
from densehash.distributed.doubles import double_id
from densehash.distributed.shards import (
    Home,
    Seen,
    check_same,
    marks_of,
    new_name,
    place_shard,
    seen,
    writing_shards,
)
from densehash.errors import FileError, InputError
from densehash.index import Index
from densehash.index.changes import check_new, with_rows
from densehash.index.ids import type_of
from densehash.index.index import index_state
from densehash.index.state import State
from densehash.rows import Floats, Rows
from densehash.rows.dask import Part, compute

__all__ = ["copy_shard", "most_groups", "write_shards"]

# With signs, about how many rows of a group each shard has: a search reads 32 entries at a time,
# and a row may have two.
_ROWS_A_GROUP = 16


def most_groups(chunks: Chunks) -> int:
    """The most groups that shards of some chunks may share: each needs enough rows of a group."""
    return chunks.n_rows // len(chunks.filled) // _ROWS_A_GROUP


def write_shards(
    home: Home,
    state: State,
    chunks: Chunks,
    ids: IdChunks,
    payload: PayloadChunks,
    *,
    old: list[Seen],
    verbose: int,
) -> list[Seen]:
    """Write a shard for each chunk that has rows, on the workers.

    Parameters
    ----------
    home : where they go
    state : what they have in common
    chunks, ids, payload : the rows
    old : other shards of the index, whose ids must differ from these
    verbose : 1 shows the progress bar of Dask

    Returns
    -------
    The shards that were written. They do not count before a manifest names them.

    Raises
    ------
    InputError : if rows or ids are wrong
    FileError : if a shard cannot be written
    """
    _check_none_lost(old)
    empty = delayed(state, pure=False, traverse=False)
    write = delayed(_written, pure=False)
    with writing_shards(home) as folder, chunks.at_home(), _waited_for():
        tasks = [
            write(
                *(home, folder, empty, new_name(), part, values),
                *(ids.of(part.number), payload.of(part.number)),
            )
            for values, part in chunks.filled
        ]
        new: list[Seen] = compute(tasks, verbose=verbose > 0)
    _check_ids_differ(home, new, old, [part.number for _, part in chunks.filled])
    return new


def copy_shard(home: Home, source: Path, *, old: list[Seen]) -> list[Seen]:
    """Make a shard from a copy of a saved index.

    Parameters
    ----------
    home : where the shard goes
    source : the folder of the index
    old : as in :func:`write_shards`
    """
    _check_none_lost(old)
    with writing_shards(home) as folder:
        new: list[Seen] = compute([delayed(_copied, pure=False)(home, folder, new_name(), source)])
    _check_ids_differ(home, new, old, [])
    return new


# --- on a worker ----------------------------------------------------------------------------


def _written(
    home: Home,
    folder: Path,
    state: State,
    name: str,
    part: Part,
    values: Any,
    ids: Any,
    payload: Any = None,
) -> Seen:
    if not _is_there(home, name):  # otherwise an earlier try has written it
        rows = part.check(values)
        # Checked here, where the number of a bad row is known.
        Rows(rows, name=part.name, first=part.start).reduced(_nothing, _first, 1, threads=1)
        with _saying_where(part):
            names = as_ids(ids)
            if type_of(names) != state.id_type:
                raise InputError(f"ids are of type {type_of(names)}, expected {state.id_type}")
            check_new(names, len(rows))
            beside = as_payload(payload, len(rows), state.payload)
            whole = with_rows(state, rows, names, payload=beside)
        place_shard(home, folder, name, Index(whole))
    return _must_see(home, name)


def _copied(home: Home, folder: Path, name: str, source: Path) -> Seen:
    if not _is_there(home, name):
        index = Index.open(source)
        check_same(source, marks_of(index_state(index)), home.marks)
        index.verify()  # damage must be found, not copied
        place_shard(home, folder, name, index)
    return _must_see(home, name)


def _is_there(home: Home, name: str) -> bool:
    with writing(home.folder):
        return is_there(home.folder / name)


def _must_see(home: Home, name: str) -> Seen:
    found = seen(home, name)
    if found.lost is not None:
        raise FileError(found.lost)
    return found


@contextmanager
def _saying_where(part: Part) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(
            f"chunk {part.number} of {part.name}, which begins at row {part.start}: {error}"
        ) from None


def _nothing(_: Floats, __: int) -> None:
    return None


def _first(one: None, _: None) -> None:
    return one


# --- on the driver --------------------------------------------------------------------------


@contextmanager
def _waited_for() -> Iterator[None]:
    """Wait for the threads of Dask at the end of a ``with`` block: after an error, none writes."""
    with ThreadPoolExecutor(check_threads(None)) as pool, dask.config.set(pool=pool):
        try:
            yield
        finally:
            pool.shutdown(cancel_futures=True)


def _check_none_lost(old: list[Seen]) -> None:
    lost = [one.name for one in old if one.lost is not None]
    if lost:
        raise FileError(
            f"{', '.join(lost)} cannot be read, so its ids are not known: replace or remove it "
            "first"
        )


def _check_ids_differ(home: Home, new: list[Seen], old: list[Seen], numbers: list[int]) -> None:
    found = double_id(home, new, old)
    if found is None:
        return
    name, shards = found
    by_name = dict(zip((one.name for one in new), numbers, strict=False))
    if set(shards) <= set(by_name):
        where = " and ".join(str(by_name[shard]) for shard in shards)
        raise InputError(f"ids must differ, but {name!r} is there twice, in chunks {where}")
    raise InputError(f"id {name!r} is in {shards[0]} already")
