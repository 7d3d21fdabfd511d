"""Shards of an index: what they have in common is learnt once, and workers write them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
from dask.delayed import delayed
from numpy.random import RandomState

from densehash.checks import check_choice, check_threads
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
)
from densehash.errors import FileError, InputError
from densehash.hashers import Hasher
from densehash.index import Index
from densehash.index.building import empty_state, kept_type
from densehash.index.changes import check_new, with_rows
from densehash.index.ids import IdType, type_of
from densehash.index.index import index_state
from densehash.index.state import State
from densehash.rows import Floats, Rows, rows_of
from densehash.rows.dask import Part, compute
from densehash.truth import METRICS

__all__ = ["copy_shard", "learnt", "write_shards"]

# Of signs, rows of a group in each shard, about: a search reads 32 entries at a time, two of a row.
_ROWS_A_GROUP = 16


def learnt(
    chunks: Chunks,
    id_type: IdType,
    *,
    sketch: str = "auto",
    hasher: str | Hasher,
    n_bits: int | None,
    kind: str,
    metric: str,
    keep_vectors: bool | str,
    n_groups: int | None,
    n_tables: int | None,
    random_state: int | RandomState | None,
    verbose: int,
    groups_a_row: int | None = None,
) -> State:
    """What all shards have in common: an index of no rows.

    Examples
    --------
    >>> nothing = dict.fromkeys(("n_bits", "n_groups", "n_tables", "random_state"))
    >>> state = learnt(
    ...     Chunks(np.eye(8)), "int64", hasher="lsh", kind="flat", metric="l2",
    ...     keep_vectors=True, verbose=0, **{**nothing, "n_bits": 8},
    ... )
    >>> state.hasher.n_bits_, state.vector_type
    (8, 'float32')
    """
    check_choice(metric, "metric", METRICS)
    vector_type = kept_type(np.empty((0, 0), chunks.dtype), keep_vectors)
    return empty_state(
        chunks.hashed(metric),
        partial(rows_of, verbose=verbose > 0),
        sketch=sketch,
        hasher=hasher,
        n_bits=n_bits,
        kind=kind,
        options={"n_groups": n_groups, "n_tables": n_tables},
        metric=metric,
        id_type=id_type,
        vector_type=vector_type,
        random_state=random_state,
        verbose=verbose,
        most_groups=chunks.n_rows // len(chunks.filled) // _ROWS_A_GROUP,
        groups_a_row=groups_a_row,
    )


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
    """Write a shard of each chunk that has rows, on the workers.

    Parameters
    ----------
    home : where they go
    state : what they have in common
    chunks, ids, payload : the rows
    old : other shards of the index, whose ids must differ from these
    verbose : 1 shows Dask's bar

    Returns
    -------
    What was written. Nothing counts before a manifest names it.

    Raises
    ------
    InputError : if rows or ids are not what they should be
    FileError : if a shard cannot be written
    """
    _check_none_lost(old)
    empty = delayed(state, pure=False, traverse=False)
    write = delayed(_written, pure=False)
    tasks = [
        write(home, empty, new_name(), part, values, ids.of(part.number), payload.of(part.number))
        for values, part in chunks.filled
    ]
    with chunks.at_home(), _waited_for():
        new: list[Seen] = compute(tasks, verbose=verbose > 0)
    _check_ids_differ(home, new, old, [part.number for _, part in chunks.filled])
    return new


def copy_shard(home: Home, source: Path, *, old: list[Seen]) -> list[Seen]:
    """Make a shard of an index that is saved elsewhere; it stays as it is.

    Parameters
    ----------
    home : where the shard goes
    source : the folder of the index
    old : as in :func:`write_shards`
    """
    _check_none_lost(old)
    new: list[Seen] = compute([delayed(_copied, pure=False)(home, new_name(), source)])
    _check_ids_differ(home, new, old, [])
    return new


# --- on a worker ----------------------------------------------------------------------------


def _written(
    home: Home, state: State, name: str, part: Part, values: Any, ids: Any, payload: Any = None
) -> Seen:
    if not _is_there(home, name):  # or an earlier try has written it
        rows = part.check(values)
        # Looked at here, where the number of the first bad row is known.
        Rows(rows, name=part.name, first=part.start).reduced(_nothing, _first, 1, threads=1)
        with _saying_where(part):
            names = as_ids(ids)
            if type_of(names) != state.id_type:
                raise InputError(f"ids are of type {type_of(names)}, expected {state.id_type}")
            check_new(names, len(rows))
            beside = as_payload(payload, len(rows), state.payload)
            whole = with_rows(state, rows, names, payload=beside)
        place_shard(home, name, Index(whole))
    return _must_see(home, name)


def _copied(home: Home, name: str, source: Path) -> Seen:
    if not _is_there(home, name):
        index = Index.open(source)
        check_same(source, marks_of(index_state(index)), home.marks)
        index.verify()  # damage is found, not written anew
        place_shard(home, name, index)
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
    """Let Dask's threads end before a ``with`` block does: after an error, none writes on."""
    with ThreadPoolExecutor(check_threads(None)) as pool, dask.config.set(pool=pool):
        try:
            yield
        finally:
            pool.shutdown(cancel_futures=True)


def _check_none_lost(old: list[Seen]) -> None:
    lost = [one.name for one in old if one.lost is not None]
    if lost:
        raise FileError(
            f"{', '.join(lost)} cannot be read, so its ids are not known: replace it first, or "
            "remove it"
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
