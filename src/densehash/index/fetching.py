"""Vectors and payloads of rows, by their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from densehash.errors import InputError
from densehash.index.changes import locate
from densehash.index.ids import shown
from densehash.index.payload import PayloadRows
from densehash.index.state import State

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["no_payload", "old_payload", "payload_of", "vectors_of"]


def vectors_of(state: State, ids: NDArray[Any]) -> NDArray[Any]:
    """The kept vectors of rows, in the order of ``ids``, which must all be in the index."""
    if state.vector_type is None:
        raise InputError("this index keeps no vectors: build it with keep_vectors=True")
    where, ranks = locate(state, ids)
    if bool((where < 0).any()):
        raise InputError(f"id {shown(ids[int((where < 0).argmax())])!r} is not in the index")
    dtype = "float32" if state.sketch.scaled else state.vector_type
    found = np.empty((len(ids), state.sketch.n_features), dtype)
    for number, segment in enumerate(state.segments):
        here = where == number
        if segment.vectors is not None and here.any():
            found[here] = state.vectors_at(segment, segment.positions_of(ranks[here]))
    return found


def payload_of(
    state: State, ids: NDArray[Any], missing: NDArray[np.bool_] | None = None
) -> pa.Table:
    """The payload of rows, in the order of ``ids``.

    Parameters
    ----------
    state : the index
    ids : int64 or bytes array (m,), as they are kept; an unknown id is an error
    missing : bool (m,), ids that stand for a missing row; its columns are null
    """
    return _rows_at(state, ids, missing)[0].table(missing)


def old_payload(state: State, ids: NDArray[Any]) -> PayloadRows | None:
    """The payload of rows that get new vectors, to be copied; None if there is no payload."""
    if state.payload is None:
        return None
    rows, numbers = _rows_at(state, ids, None)
    for number in numbers:
        payload = state.segments[number].payload
        if payload is not None:
            payload.check_unchanged()
    return rows


def no_payload() -> InputError:
    """The error for an index that has no payload.

    Examples
    --------
    >>> no_payload()
    InputError('this index has no payload: build it with payload=...')
    """
    return InputError("this index has no payload: build it with payload=...")


def _rows_at(
    state: State, ids: NDArray[Any], missing: NDArray[np.bool_] | None
) -> tuple[PayloadRows, list[int]]:
    """The payload of ids, and the segments in which they are; only these are read."""
    if state.payload is None:
        raise no_payload()
    where, ranks = locate(state, ids)
    lost = where < 0 if missing is None else (where < 0) & ~missing
    if bool(lost.any()):
        raise InputError(f"id {shown(ids[int(lost.argmax())])!r} is not in the index")
    order = np.zeros(len(ids), np.int64)
    parts, numbers, start = [], [], 0
    for number, segment in enumerate(state.segments):
        here = where == number
        if segment.payload is not None and here.any():
            order[here] = ranks[here] + start
            parts += segment.payload.batches
            numbers.append(number)
            start += segment.n_rows
    return PayloadRows(parts, state.payload, order), numbers
