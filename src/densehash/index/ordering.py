"""The only order of rows: by distance, then by id; missing rows come last.

Kernels order the rows of one segment in this way, by their ranks. Rows of several segments or
shards are merged here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from densehash.index.ids import keys_of

__all__ = ["Found", "Ranked", "first_of", "order_of", "up_to", "with_wider"]


class Found(NamedTuple):
    """Rows for each query, ordered by (distance, id), and where they lie.

    Attributes
    ----------
    distances : int32 or float32 (q, k)
    segments : int32 (q, k), numbers of segments
    positions : int64 (q, k); -1 for a missing row, which comes last
    """

    distances: NDArray[Any]
    segments: NDArray[np.int32]
    positions: NDArray[np.int64]

    @property
    def there(self) -> NDArray[np.bool_]:
        """Which rows were found, bool (q, k)."""
        return self.positions >= 0


class Ranked(NamedTuple):
    """Rows for each query, ordered by (distance, id), with their ids.

    Attributes
    ----------
    distances : int32 or float32 (q, m)
    ids : int64 or bytes (q, m), as they are kept
    there : bool (q, m), which rows were found; for a missing row, the other arrays hold anything
    places : other arrays (q, m), which are put in the same order
    """

    distances: NDArray[Any]
    ids: NDArray[Any]
    there: NDArray[np.bool_]
    places: tuple[NDArray[Any], ...] = ()

    def map(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> Ranked:
        """Apply a function to each array."""
        distances, ids, there, *places = map(function, (*self[:3], *self.places))
        return Ranked(distances, ids, there, tuple(places))

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many rows were found for each query, (q,)."""
        counts: NDArray[np.int64] = np.count_nonzero(self.there, axis=1)
        return counts


def order_of(
    distances: NDArray[Any], *ids: NDArray[Any], first: Sequence[NDArray[Any]] = ()
) -> NDArray[np.intp]:
    """The order by (distance, id), along the last axis.

    Parameters
    ----------
    distances : (..., m)
    ids : int64 or bytes (..., m); several arrays if rows have several ids
    first : (..., m) each, keys that come before the distance, the most important first

    Examples
    --------
    >>> order_of(np.array([1, 0, 1]), np.array([7, 8, 3]))
    array([1, 2, 0])
    """
    keys = [*first, distances, *map(keys_of, ids)]
    found: NDArray[np.intp] = np.lexsort(keys[::-1], axis=-1)
    return found


def first_of(parts: Sequence[Ranked], n: int) -> Ranked:
    """The first n rows of all parts, in order.

    Parameters
    ----------
    parts : at least one. A single part must be in order; the rows of several parts may be in any
        order.
    n : at least 1

    Examples
    --------
    >>> one = Ranked(np.array([[0, 2]]), np.array([[7, 4]]), np.array([[True, True]]))
    >>> two = Ranked(np.array([[2, 9]]), np.array([[3, 0]]), np.array([[True, False]]))
    >>> first_of([one, two], 2).ids
    array([[7, 3]])
    """
    if len(parts) == 1:
        return parts[0].map(lambda one: one[:, :n])
    columns = zip(*((*part[:3], *part.places) for part in parts), strict=True)
    distances, ids, there, *places = (np.concatenate(column, axis=1) for column in columns)
    whole = Ranked(distances, ids, there, tuple(places))
    if whole.ids.shape[1] > n:  # drops far rows first, so that few must be ordered
        far = np.inf if distances.dtype.kind == "f" else np.iinfo(distances.dtype).max
        last = np.partition(np.where(there, distances, far), n - 1, axis=1)[:, n - 1, np.newaxis]
        there &= ~(distances > last)  # written so that NaN, which comes last, stays
        width = int(np.count_nonzero(there, axis=1).max(initial=0))
        some = np.argsort(~there, axis=1, kind="stable")[:, :width]
        whole = whole.map(lambda one: np.take_along_axis(one, some, axis=1))
    # A missing row comes even after a row at an infinite distance.
    order = order_of(whole.distances, whole.ids, first=(~whole.there,))[:, :n]
    return whole.map(lambda one: np.take_along_axis(one, order, axis=1))


def up_to(part: Ranked, last: Ranked) -> NDArray[np.bool_]:
    """Which rows of a part come before a last row, or are this row.

    Parameters
    ----------
    part : (q, m)
    last : (q, 1); if it is missing, all rows of the part count

    Returns
    -------
    bool (q, m)

    Examples
    --------
    >>> part = Ranked(np.array([[0, 2, 2]]), np.array([[7, 3, 4]]), np.ones((1, 3), bool))
    >>> up_to(part, Ranked(np.array([[2]]), np.array([[3]]), np.array([[True]])))
    array([[ True,  True, False]])
    """
    nearer = part.distances < last.distances
    equal = (part.distances == last.distances) & (part.ids <= last.ids)
    found: NDArray[np.bool_] = part.there & (nearer | equal | ~last.there)
    return found


def with_wider(
    answer: Sequence[NDArray[Any]],
    lacking: NDArray[np.intp],
    wider: Callable[[NDArray[np.intp]], Sequence[NDArray[Any]]],
) -> list[NDArray[Any]]:
    """Answers in which queries that found too few rows are searched again.

    A kind that visits only some rows may find fewer than there are. These queries then look
    everywhere, in all segments or shards.

    Parameters
    ----------
    answer : arrays (q, m)
    lacking : numbers of the queries that found too few
    wider : called with these numbers, if there are any; returns arrays of len(lacking) rows and any
        width. Narrower rows are filled with -1.

    Examples
    --------
    >>> with_wider([np.array([[5], [-1]])], np.array([1]), lambda queries: [np.array([[7, 8]])])
    [array([[ 5, -1],
           [ 7,  8]])]
    """
    if len(lacking) == 0:
        return list(answer)
    found = []
    for old, new in zip(answer, wider(lacking), strict=True):
        whole = np.full((len(old), max(old.shape[1], new.shape[1])), -1, old.dtype)
        whole[:, : old.shape[1]] = old
        whole[lacking] = -1
        whole[lacking, : new.shape[1]] = new
        found.append(whole)
    return found
