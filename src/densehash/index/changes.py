"""An index with more rows, or fewer: the state after a change, made from the one before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from densehash.checks import check_vectors
from densehash.errors import InputError
from densehash.index.encoding import rowset_of
from densehash.index.ids import find, first_double
from densehash.index.payload import PayloadRows
from densehash.index.placing import MEMORY, Place
from densehash.index.sketches import Bits
from densehash.index.state import State
from densehash.progress import bar
from densehash.source import Source

__all__ = ["Upserted", "after_ids", "check_new", "locate", "rows_for", "with_rows", "without_ids"]


class Upserted(NamedTuple):
    """How many rows an upsert added and updated.

    Attributes
    ----------
    added : rows whose ids were not in the index
    updated : rows that replaced rows of the same ids

    Examples
    --------
    >>> Upserted(added=3, updated=1).added
    3
    """

    added: int
    updated: int


def with_rows(
    state: State,
    X: NDArray[Any] | Source,
    ids: NDArray[Any] | None,
    verbose: int = 0,
    *,
    payload: PayloadRows | None = None,
    place: Place = MEMORY,
    hashed: Any = None,
) -> State:
    """The index with more rows, whose ids must not be in the index.

    Parameters
    ----------
    state : the index
    X : rows, (n, d)
    ids : ids of these rows, (n,); None: the next numbers
    verbose : 1 shows a progress bar for long work
    payload : payload of these rows, if the index has one
    place : where new segments go, and whether rows come in pieces that fit into memory
    hashed : as in :func:`~densehash.index.encoding.rowset_of`
    """
    if X.shape[1] != state.sketch.row_width:
        raise InputError(f"X has {X.shape[1]} features, the index {state.sketch.row_width}")
    if (None if payload is None else payload.columns) != state.payload:
        raise InputError(
            "another process has changed the columns of the index: call refresh(), and look at "
            "info()['payload']"
        )
    n, base = len(X), state.next_id
    if ids is not None:
        next_id = max(base, after_ids(ids))
    elif base > np.iinfo(np.int64).max - n:
        raise InputError("there is no number left for a new id: give ids")
    else:
        next_id = base + n
    payload_bytes = 0 if payload is None else payload.nbytes // max(n, 1)
    bytes_a_row = state.bytes_a_row(8 if ids is None else ids.itemsize) + payload_bytes
    place.check_room(n * bytes_a_row)
    with bar("hashing rows", n, shown=verbose > 0) as advance:
        for start, stop in place.pieces(n, bytes_a_row):
            names = np.arange(base + start, base + stop) if ids is None else ids[start:stop]
            # In one expression, so that no part of a piece stays in memory while the next is made.
            state = state.with_rows(
                rowset_of(
                    X,
                    names,
                    state,
                    first=start,
                    payload=None if payload is None else payload.part(start, stop),
                    advance=advance,
                    hashed=hashed,
                ),
                next_id,
                place.put,
            )
    return state


def rows_for(state: State, X: Any) -> NDArray[Any] | Source:
    """Rows as an index takes them, checked: vectors, or codes if it was made from codes."""
    return state.sketch.rows_of(X, "X") if isinstance(state.sketch, Bits) else check_vectors(X, "X")


def without_ids(state: State, wanted: NDArray[Any]) -> tuple[State, int]:
    """The index without some ids, and how many of them were there."""
    where, ranks = locate(state, wanted)
    count = int(np.count_nonzero(where >= 0))
    if count == 0:
        return state, 0
    segments = [
        segment.without(ranks[where == number]) if (where == number).any() else segment
        for number, segment in enumerate(state.segments)
    ]
    return replace(state, segments=tuple(s for s in segments if s.n_live)), count


def locate(state: State, wanted: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The segment of each id, -1 if it is not in the index, and its rank in the segment."""
    where = np.full(len(wanted), -1)
    found = np.zeros(len(wanted), np.intp)
    for number, segment in enumerate(state.segments):
        ranks, there = find(segment.ids, wanted)
        if segment.live is not None:
            there &= segment.live[ranks]
        where[there], found[there] = number, ranks[there]
    return where, found


def check_new(ids: NDArray[Any], n_rows: int, name: str = "X") -> None:
    """Refuse ids if there is not one for each row, or if one is there twice.

    Examples
    --------
    >>> check_new(np.array([1, 2, 1]), 3)
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: ids must differ, but 1 is there twice
    """
    if len(ids) != n_rows:
        raise InputError(f"{name} has {n_rows} rows but there are {len(ids)} ids")
    double = first_double(ids)
    if double is not None:
        raise InputError(f"ids must differ, but {double!r} is there twice")


def after_ids(ids: NDArray[Any]) -> int:
    """The first number after all ids; 0 if they are strings.

    Examples
    --------
    >>> after_ids(np.array([3, 7]))
    8
    """
    if len(ids) == 0 or ids.dtype.kind == "S":
        return 0
    return min(int(ids.max()) + 1, np.iinfo(np.int64).max)
