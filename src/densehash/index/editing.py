"""Adding, updating and compacting: each makes a new state of an index from the old one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from numpy.typing import NDArray

from densehash.columns import parts_of_frame
from densehash.errors import InputError
from densehash.index.arguments import check_own_type
from densehash.index.changes import check_new, locate, rows_for, with_rows, without_ids
from densehash.index.fetching import old_payload
from densehash.index.given import check_given, payload_rows
from densehash.index.ids import shown
from densehash.index.learning import grown, ready_for
from densehash.index.payload import PayloadRows
from densehash.index.placing import Place
from densehash.index.state import State
from densehash.source import Source

__all__ = ["NewRows", "added", "check_rows", "compacted", "updated", "upserted"]


class NewRows(NamedTuple):
    """Rows that a change adds, checked.

    Attributes
    ----------
    vectors : (m, d), or codes if the index was made from codes
    ids : int64 or bytes (m,), all different; None: the next numbers
    payload : payload of these rows, or None
    verbose : 1 shows a progress bar for long work
    """

    vectors: NDArray[Any] | Source
    ids: NDArray[Any] | None
    payload: PayloadRows | None
    verbose: int


def check_rows(
    state: State,
    X: Any,
    ids: Any,
    *,
    column: str | None,
    payload: Any,
    verbose: int,
    needs_payload: bool = True,
) -> NewRows:
    """Rows for an index, as :meth:`densehash.Index.add` takes them.

    Parameters
    ----------
    state : the index
    X, ids, column, payload, verbose : as in :meth:`densehash.Index.add`
    needs_payload : whether rows must have a payload if the index has one
    """
    X, ids = parts_of_frame(X, ids, column)
    vectors = rows_for(state, X)
    names = None if ids is None else check_own_type(ids, state)
    if names is not None:
        check_new(names, len(vectors))
    columns = None
    if not state.is_open:  # otherwise the first rows decide
        columns = state.payload
        check_given(payload, columns, needed=needs_payload)
    beside = None if payload is None else payload_rows(payload, len(vectors), columns)
    return NewRows(vectors, names, beside, verbose)


def added(state: State, place: Place, rows: NewRows) -> State:
    """The index with more rows, whose ids must be new."""
    ready = ready_for(state, rows.vectors, rows.ids, rows.payload)
    if rows.ids is not None:
        where, _ = locate(ready, rows.ids)
        if bool((where >= 0).any()):
            there = shown(rows.ids[int((where >= 0).argmax())])
            raise InputError(f"id {there!r} is in the index already: update or upsert it instead")
    return grown(_with(ready, place, rows), place, verbose=rows.verbose > 0)


def updated(state: State, place: Place, rows: NewRows) -> State:
    """The index with new vectors for some of its rows; if they have no payload, the old one."""
    ids = _ids_of(rows)
    where, _ = locate(state, ids)
    if bool((where < 0).any()):
        missing = shown(ids[int((where < 0).argmax())])
        raise InputError(f"id {missing!r} is not in the index: add or upsert it instead")
    payload = old_payload(state, ids) if rows.payload is None else rows.payload
    others, _ = without_ids(state, ids)
    return _with(others, place, rows._replace(payload=payload))


def upserted(state: State, place: Place, rows: NewRows) -> State:
    """The index with new rows, which replace rows of the same ids."""
    ready = ready_for(state, rows.vectors, rows.ids, rows.payload)
    others, _ = without_ids(ready, _ids_of(rows))
    return grown(_with(others, place, rows), place, verbose=rows.verbose > 0)


def compacted(state: State, place: Place) -> State:
    """The same rows in one segment, without those that were removed."""
    if len(state.segments) <= 1 and state.n_removed == 0:
        return state
    return replace(state, segments=state.merged(state.segments, place.put))


def _with(state: State, place: Place, rows: NewRows) -> State:
    return with_rows(state, rows.vectors, rows.ids, rows.verbose, payload=rows.payload, place=place)


def _ids_of(rows: NewRows) -> NDArray[Any]:
    if rows.ids is None:
        raise InputError("give ids, got None")
    return rows.ids
