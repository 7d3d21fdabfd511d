"""Which rows of a segment queries visit: a kind says it, a sketch ranks what is visited."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Groups", "Tables"]

Allowed = NDArray[np.bool_] | None
"""By rank, which rows of a segment may be found; None is all."""


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
    """Rows that tables of substrings name: see :mod:`densehash.index.multi_tables`.

    Attributes
    ----------
    starts, rows : the tables
    n_bits : of the codes that they are of
    probes : buckets of each table that are looked up by margins; None visits as many as it takes
        to miss nothing
    """

    starts: NDArray[np.uint32]
    rows: NDArray[np.uint32]
    n_bits: int
    probes: int | None


Visits = Groups | Tables | None
"""None is every row."""
