"""Neighbours from several shards: the first by (distance, id), as one index orders them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from densehash.index.ids import keys_of

__all__ = ["Nearest", "first_of", "none_of", "up_to"]

_FAR = np.iinfo(np.int32).max


class Nearest(NamedTuple):
    """Rows near each of q queries, by (distance, id).

    Attributes
    ----------
    distances : int32, Hamming distances, or float32 (q, m)
    ids : int64 or bytes (q, m)
    counts : int64 (q,), how many there are; anything comes after them
    """

    distances: NDArray[Any]
    ids: NDArray[Any]
    counts: NDArray[np.int64]

    @property
    def there(self) -> NDArray[np.bool_]:
        """Whether there is one, (q, m)."""
        found: NDArray[np.bool_] = np.arange(self.ids.shape[1]) < self.counts[:, np.newaxis]
        return found


def none_of(n_queries: int, ids: NDArray[Any], dtype: type[np.generic]) -> Nearest:
    """Nothing, for so many queries; ``ids`` has their type.

    Examples
    --------
    >>> none_of(2, np.empty(0, np.int64), np.int32).ids.shape
    (2, 0)
    """
    shape = (n_queries, 0)
    return Nearest(np.empty(shape, dtype), np.empty(shape, ids.dtype), np.zeros(n_queries, int))


def first_of(parts: Sequence[Nearest], n: int) -> Nearest:
    """The first n of all parts.

    Examples
    --------
    >>> one = Nearest(np.array([[0, 2]]), np.array([[7, 4]]), np.array([2]))
    >>> two = Nearest(np.array([[2, 9]]), np.array([[3, 0]]), np.array([1]))
    >>> first_of([one, two], 2).ids
    array([[7, 3]])
    """
    if len(parts) == 1:
        only = parts[0]
        return Nearest(only.distances[:, :n], only.ids[:, :n], np.minimum(only.counts, n))
    distances = np.concatenate([part.distances for part in parts], axis=1)
    ids = np.concatenate([part.ids for part in parts], axis=1)
    there = np.concatenate([part.there for part in parts], axis=1)
    counts = np.minimum(np.sum([part.counts for part in parts], axis=0), n)
    if distances.shape[1] > n:  # few are left to be put in order
        far = _FAR if distances.dtype == np.int32 else np.inf
        last = np.partition(np.where(there, distances, far), n - 1, axis=1)[:, n - 1, np.newaxis]
        there &= distances <= last
        width = int(np.count_nonzero(there, axis=1).max(initial=0))
        some = np.argsort(~there, axis=1, kind="stable")[:, :width]
        distances, ids, there = (
            np.take_along_axis(one, some, axis=1) for one in (distances, ids, there)
        )
    # What is not there comes after a row at an infinite distance, too.
    order = np.lexsort((keys_of(ids), distances, ~there), axis=1)[:, :n]
    return Nearest(
        np.take_along_axis(distances, order, axis=1), np.take_along_axis(ids, order, axis=1), counts
    )


def up_to(part: Nearest, last: Nearest) -> NDArray[np.bool_]:
    """Which rows of a part come up to the last one that counts.

    Parameters
    ----------
    part : (q, m)
    last : (q, 1); without a row, all of the part do

    Returns
    -------
    bool (q, m)

    Examples
    --------
    >>> part = Nearest(np.array([[0, 2, 2]]), np.array([[7, 3, 4]]), np.array([3]))
    >>> up_to(part, Nearest(np.array([[2]]), np.array([[3]]), np.array([1])))
    array([[ True,  True, False]])
    """
    nearer = part.distances < last.distances
    equal = (part.distances == last.distances) & (part.ids <= last.ids)
    found: NDArray[np.bool_] = part.there & (nearer | equal | (last.counts == 0)[:, np.newaxis])
    return found
