"""What a search of shards returns: hits, and the shards that could not be read."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from densehash.distributed.fetching import PayloadOfShards
from densehash.index.answers import Fetch, FoundRows

__all__ = ["PartialHits", "PartialRanges"]


class _PartialHits(NamedTuple):
    ids: NDArray[Any]
    distances: NDArray[Any]
    missing: tuple[str, ...]


class PartialHits(_PartialHits, FoundRows):
    """The neighbours of q queries, nearest first; equally near ones by id.

    Attributes
    ----------
    ids, distances : (q, k), as in :class:`densehash.index.Hits`
    missing : names of shards that could not be read, and whose rows were not searched; none,
        unless the search allowed for it
    payload : as in :class:`densehash.index.Hits`, with ``to_arrow``, ``to_pandas`` and
        ``to_dicts``; read from the shards, as they are when it is asked for

    Examples
    --------
    >>> PartialHits(np.array([[3]]), np.array([[0.5]]), ()).missing
    ()
    """

    searched: PayloadOfShards | None = None  # where there is a payload

    @property
    def _fetch(self) -> Fetch | None:
        return None if self.searched is None else self.searched.of


class PartialRanges(NamedTuple):
    """All neighbours of q queries within a radius, nearest first; equally near ones by id.

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
