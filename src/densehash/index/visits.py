"""Which rows of a segment queries visit: a kind chooses them, a sketch ranks them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Groups", "KeptMatches", "Matches", "Tables"]

Allowed = NDArray[np.bool_] | None
"""By rank, which rows of a segment may be found; None: all."""

_KEPT = 4  # filters of a state


class Matches(tuple[Allowed, ...]):
    """Which rows of each segment may be found, and what a sketch has computed from this.

    Attributes
    ----------
    made : what a sketch keeps for the next search with the same filter, by any key

    Examples
    --------
    >>> Matches([None, np.array([True, False])])[1]
    array([ True, False])
    """

    made: dict[object, Any]

    def __new__(cls, allowed: Iterable[Allowed]) -> Matches:
        """Make it from the masks of segments."""
        matches = super().__new__(cls, allowed)
        matches.made = {}
        return matches

    def __reduce__(self) -> tuple[Any, ...]:
        return Matches, (tuple(self),)


class KeptMatches:
    """What the last filters of one state have found.

    Examples
    --------
    >>> kept = KeptMatches()
    >>> kept.keep("a filter", Matches([None]))
    >>> kept.get("a filter"), kept.get("another one")
    ((None,), None)
    """

    def __init__(self) -> None:
        self._kept: tuple[tuple[object, Matches], ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptMatches, ()  # not pickled: other processes compute it again

    def get(self, key: object) -> Matches | None:
        """What a filter with an equal key has found; None if it is not kept."""
        return next((matches for known, matches in self._kept if known == key), None)

    def keep(self, key: object, matches: Matches) -> None:
        """Keep what a filter has found, and drop the oldest if there are too many."""
        self._kept = (*self._kept, (key, matches))[-_KEPT:]  # one assignment, for other threads


class Groups(NamedTuple):
    """Rows of some groups.

    Attributes
    ----------
    limits : int64 (g + 1,); group i lies at positions ``limits[i]:limits[i + 1]``
    groups : int32 (q, p), the groups that each query visits, the nearest first
    """

    limits: NDArray[np.int64]
    groups: NDArray[np.int32]


class Tables(NamedTuple):
    """Rows that tables of substrings find: see :mod:`densehash.index.multi_tables`.

    Attributes
    ----------
    starts, rows : the tables
    n_bits : bits of the codes
    probes : how many buckets of each table are looked up by margins; None: as many as are needed to
        miss nothing
    """

    starts: NDArray[np.uint32]
    rows: NDArray[np.uint32]
    n_bits: int
    probes: int | None


Visits = Groups | Tables | None
"""None: every row."""
