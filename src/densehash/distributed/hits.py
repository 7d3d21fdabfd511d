"""What a search of shards returns: hits, and the shards that could not be read."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from densehash.distributed.fetching import PayloadOfShards
from densehash.index.hits import Fetch, FoundRows, in_short, table_of_ranges

__all__ = ["PartialHits", "PartialRanges"]


class _PartialHits(NamedTuple):
    ids: NDArray[Any]
    distances: NDArray[Any]
    missing: tuple[str, ...]


def _without(missing: tuple[str, ...]) -> str:
    return f", without {', '.join(missing)}" if missing else ""


class PartialHits(_PartialHits, FoundRows):
    """The neighbours of q queries, nearest first; equally near ones are ordered by id.

    Attributes
    ----------
    ids, distances : (q, k), as in :class:`densehash.index.Hits`
    missing : names of the shards that could not be read, so that their rows were not searched;
        empty unless the search had ``allow_partial=True``
    payload : as in :class:`densehash.index.Hits`, with ``to_arrow``, ``to_pandas`` and
        ``to_dicts``. It is read from the shards when you use it, as they are then.

    Examples
    --------
    >>> PartialHits(np.array([[3]]), np.array([[0.5]]), ()).missing
    ()
    """

    searched: PayloadOfShards | None = None  # if there is a payload

    def __repr__(self) -> str:
        return in_short(self)

    @property
    def _fetch(self) -> Fetch | None:
        return None if self.searched is None else self.searched.of

    def _of_first_queries(self, ids: NDArray[Any], distances: NDArray[Any]) -> PartialHits:
        hits = PartialHits(ids, distances, self.missing)
        hits.searched = self.searched
        return hits

    @property
    def _about(self) -> str:
        return _without(self.missing)


class PartialRanges(NamedTuple):
    """All neighbours of q queries within a radius.

    The nearest come first; equally near ones are ordered by id.

    Attributes
    ----------
    limits, ids, distances : as in :class:`densehash.index.Ranges`
    missing : as in :class:`PartialHits`

    Examples
    --------
    >>> PartialRanges(np.array([0, 1]), np.array([3]), np.array([0.5]), ()).missing
    ()
    """

    limits: NDArray[np.int64]
    ids: NDArray[Any]
    distances: NDArray[Any]
    missing: tuple[str, ...]

    def __repr__(self) -> str:
        return in_short(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: the neighbours of the first queries."""
        return table_of_ranges(self, _without(self.missing))
