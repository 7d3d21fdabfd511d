"""Which rows a search may find."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densehash.checks import as_array
from densehash.errors import InputError
from densehash.index.columns import Columns
from densehash.index.ids import check_ids, find, no_ids, public_ids, type_of
from densehash.index.matching import is_expression, key_of, matching
from densehash.index.segment import Segment
from densehash.index.state import State
from densehash.index.visits import Allowed, Matches
from densehash.index.where import where_of

__all__ = ["allowed_rows", "check_of_columns", "is_of_columns", "matching_ids"]

Filter = ArrayLike | Callable[[NDArray[Any]], ArrayLike]
"""A boolean for each id; an array of ids; or a function that takes ids and returns booleans."""

AnyFilter = Filter | Set[Any] | Mapping[str, Any]
"""Also a set of ids; or a filter by columns of the payload: a dict, words, or an Expression of
pyarrow, which has no type here."""


def allowed_rows(state: State, chosen: AnyFilter | None) -> Matches:
    """Which rows of each segment may be found: those that are not removed and match.

    The state keeps what a filter has found; functions are called each time.

    Returns
    -------
    for each segment a bool array (n,), by rank, or None if all rows may be found
    """
    if chosen is None or state.is_open:  # an empty index does not know its ids and columns yet
        return state.live
    if callable(chosen):
        return Matches(_of_function(segment, chosen) for segment in state.segments)
    if is_of_columns(chosen):
        where = check_of_columns(chosen, state.payload)
        return _kept(state, key_of(where), lambda: _of_payload(state, where))
    if _are_strings(chosen):
        names = frozenset(chosen)  # compared much faster than they are encoded
        return _kept(state, names, lambda: _of_ids(state, _check_ids(state, [*chosen])))
    return _of_listed(state, list(chosen) if isinstance(chosen, Set) else chosen)


def _of_listed(state: State, listed: Any) -> Matches:
    """The matches of a mask or of ids, in any form that becomes an array."""
    array = as_array(listed, "filter")
    found = _known(state, array) if array.dtype.kind in "bi" else None
    if found is not None:  # then it was checked, too
        return found
    if array.dtype.kind == "b":
        return _of_array(state, _check_mask(state, array), _of_mask)
    if array.size == 0:
        return Matches(np.zeros(segment.n_rows, np.bool_) for segment in state.segments)
    wanted = _check_ids(state, array if array.dtype.kind in "iu" else listed)
    return _of_array(state, wanted, _of_ids)


def matching_ids(state: State, chosen: AnyFilter | None) -> NDArray[Any]:
    """Ids of the rows that match, in rising order, as users see them."""
    parts = [
        segment.ids if allowed is None else segment.ids[allowed]
        for segment, allowed in zip(state.segments, allowed_rows(state, chosen), strict=True)
    ]
    if not parts:
        return public_ids(no_ids(state.id_type))
    whole = np.concatenate(parts)  # a copy, even of one part: users may change it
    if len(parts) > 1:
        whole.sort()
    return public_ids(whole)


def _kept(state: State, key: object, make: Callable[[], list[Allowed]]) -> Matches:
    """What the filter found before, if it is kept, or finds now."""
    found = state.matches.get(key)
    if found is None:
        found = Matches(make())
        state.matches.keep(key, found)
    return found


def _of_array(
    state: State, array: NDArray[Any], make: Callable[[State, NDArray[Any]], list[Allowed]]
) -> Matches:
    """The matches of a mask or of ids; a copy of it is kept, because users may change the array."""
    found = _known(state, array)
    if found is None:
        copied = bytearray(array)
        found = Matches(make(state, np.frombuffer(copied, array.dtype)))
        state.matches.keep((array.dtype.str, copied), found)
    return found


def _known(state: State, array: NDArray[Any]) -> Matches | None:
    """The matches of an equal mask, or of equal ids, if they are kept."""
    if array.ndim != 1 or not array.flags.c_contiguous:
        return None
    # Kept keys are bytearrays. On the left of a comparison, they compare themselves with an array
    # as fast as memory is read.
    return state.matches.get((array.dtype.str, array))


def is_of_columns(chosen: object) -> bool:
    """Whether a filter is by columns of the payload: a dict, words, or an Expression.

    Examples
    --------
    >>> is_of_columns({"lang": "en"}), is_of_columns("lang = 'en'"), is_of_columns([1, 3])
    (True, True, False)
    """
    return isinstance(chosen, (str, Mapping)) or is_expression(chosen)


def check_of_columns(chosen: Any, columns: Columns | None) -> Any:
    """A filter by columns, checked, as :func:`densehash.index.matching.matching` takes it.

    Parameters
    ----------
    chosen : a filter by columns
    columns : the columns of the index, or None

    Examples
    --------
    >>> check_of_columns("year > 2000", (("year", "int64"),))
    Asked(column='year', how='>', values=(2000,))
    """
    if columns is None:
        raise InputError(
            "filter is by columns, but this index has no payload: build it with payload=..., or "
            "filter by ids"
        )
    return chosen if is_expression(chosen) else where_of(chosen, columns)


def _of_payload(state: State, where: Any) -> list[Allowed]:
    found: list[Allowed] = []
    for segment in state.segments:
        if segment.payload is not None:
            mask = matching(segment.payload, where)  # kept for the next search: do not change it
            found.append(mask if segment.live is None else mask & segment.live)
    return found


def _are_strings(chosen: object) -> TypeGuard[Collection[str]]:
    if not isinstance(chosen, (list, tuple, Set)):
        return False
    return type(next(iter(chosen), None)) is str and {*map(type, chosen)} == {str}


def _check_ids(state: State, listed: Any) -> NDArray[Any]:
    """Ids of a filter as they are kept."""
    wanted = check_ids(listed, "filter")
    if type_of(wanted) != state.id_type:
        raise InputError(f"filter has ids of type {type_of(wanted)}, the index {state.id_type}")
    return wanted


def _of_ids(state: State, wanted: NDArray[Any]) -> list[Allowed]:
    found: list[Allowed] = []
    for segment in state.segments:
        ranks, there = find(segment.ids, wanted)
        allowed = np.zeros(segment.n_rows, np.bool_)
        allowed[ranks[there]] = True
        found.append(_and_live(allowed, segment))
    return found


def _of_function(
    segment: Segment, function: Callable[[NDArray[Any]], ArrayLike]
) -> NDArray[np.bool_]:
    ids = public_ids(segment.ids)[:]
    ids.flags.writeable = False  # the function must not change them
    allowed = as_array(function(ids), "what filter returns")
    if allowed.dtype.kind != "b" or allowed.shape != ids.shape:
        raise InputError(
            f"filter must return booleans of shape {ids.shape}, one for each id, "
            f"got {allowed.dtype} of shape {allowed.shape}"
        )
    return _and_live(allowed.copy(), segment)


def _check_mask(state: State, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    if mask.shape != (state.n_live,):
        raise InputError(
            f"filter must have one boolean for each of the {state.n_live} rows, "
            f"in the order of index.ids, got shape {mask.shape}"
        )
    return np.ascontiguousarray(mask)


def _of_mask(state: State, mask: NDArray[np.bool_]) -> list[Allowed]:
    ids = [segment.live_ids for segment in state.segments]
    if len(ids) > 1:  # from the order of all ids to the order of each segment
        by_id = np.empty(len(mask), np.bool_)
        by_id[np.argsort(np.concatenate(ids), kind="stable")] = mask
        mask = by_id
    found: list[Allowed] = []
    start = 0
    for segment in state.segments:
        part = mask[start : start + segment.n_live]
        start += segment.n_live
        if segment.live is None:
            found.append(np.ascontiguousarray(part))
        else:
            allowed = segment.live.copy()
            allowed[allowed] = part
            found.append(allowed)
    return found


def _and_live(allowed: NDArray[np.bool_], segment: Segment) -> NDArray[np.bool_]:
    if segment.live is not None:
        allowed &= segment.live
    return allowed
