"""An index with more rows, or fewer: the state after a change, made from the one before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.errors import InputError
from densehash.index.building import rowset_of
from densehash.index.ids import find, first_double
from densehash.index.state import State
from densehash.source import Source

__all__ = ["after_ids", "check_new", "locate", "with_rows", "without_ids"]


def with_rows(state: State, X: NDArray[Any] | Source, ids: NDArray[Any], verbose: int = 0) -> State:
    """The index with more rows, whose ids differ from all there are.

    Examples
    --------
    >>> from densehash.index import Index
    >>> state = Index.build(np.eye(8), n_bits=8)._state
    >>> with_rows(state, np.ones((2, 8)), np.array([8, 9])).n_live
    10
    """
    if X.shape[1] != state.hasher.n_features_in_:
        raise InputError(f"X has {X.shape[1]} features, the index {state.hasher.n_features_in_}")
    rows = rowset_of(X, ids, state, verbose=verbose)
    return state.with_rows(rows, max(state.next_id, after_ids(ids)))


def without_ids(state: State, wanted: NDArray[Any]) -> tuple[State, int]:
    """The index without some ids, and how many of them were there.

    Examples
    --------
    >>> from densehash.index import Index
    >>> state = Index.build(np.eye(8), n_bits=8)._state
    >>> without_ids(state, np.array([3, 99]))[1]
    1
    """
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
    """The segment of each id, -1 where it is not there, and its rank in it.

    Examples
    --------
    >>> from densehash.index import Index
    >>> state = Index.build(np.eye(8), n_bits=8)._state
    >>> locate(state, np.array([3, 99]))
    (array([ 0, -1]), array([3, 0]))
    """
    where = np.full(len(wanted), -1)
    found = np.zeros(len(wanted), np.intp)
    for number, segment in enumerate(state.segments):
        ranks, there = find(segment.ids, wanted)
        if segment.live is not None:
            there &= segment.live[ranks]
        where[there], found[there] = number, ranks[there]
    return where, found


def check_new(ids: NDArray[Any], n_rows: int) -> None:
    """Refuse ids that are not one for each row, or there twice.

    Examples
    --------
    >>> check_new(np.array([1, 2, 1]), 3)
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: ids must differ, but 1 is there twice
    """
    if len(ids) != n_rows:
        raise InputError(f"X has {n_rows} rows but there are {len(ids)} ids")
    double = first_double(ids)
    if double is not None:
        raise InputError(f"ids must differ, but {double!r} is there twice")


def after_ids(ids: NDArray[Any]) -> int:
    """The first number after all ids; 0 where they are strings.

    Examples
    --------
    >>> after_ids(np.array([3, 7]))
    8
    """
    if len(ids) == 0 or ids.dtype.kind == "S":
        return 0
    return min(int(ids.max()) + 1, np.iinfo(np.int64).max)
