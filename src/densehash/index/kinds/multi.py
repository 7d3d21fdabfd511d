"""The multi kind: tables of substrings find near codes without a scan.

M. Norouzi, A. Punjani, D. J. Fleet, Fast exact search in Hamming space with multi-index hashing,
PAMI 2014. With ``probes``, tables are looked up where the query's margins say: Q. Lv, W. Josephson,
Z. Wang, M. Charikar, K. Li, Multi-probe LSH: efficient indexing for high-dimensional similarity
search, VLDB 2007.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from densehash.errors import FileError
from densehash.index.kinds.kind import Allowed, Candidates, Kind, Question, check_stored
from densehash.index.multi_tables import (
    MOST_PROBES,
    build_tables,
    multi_probe,
    multi_top_k,
    multi_within,
    n_tables_for,
)
from densehash.index.segment import Segment

__all__ = ["Multi"]


class Multi(Kind):
    """Substring tables; for long codes, small radii and near-duplicates.

    Parameters
    ----------
    n_bits : of a code
    n_tables : of each segment; None suits them to its rows
    """

    name: ClassVar[str] = "multi"
    extra_names: ClassVar[tuple[str, ...]] = ("starts", "rows")

    def __init__(self, n_bits: int, n_tables: int | None = None) -> None:
        self.n_bits, self.n_tables = n_bits, n_tables

    def own_arrays(
        self,
        codes: NDArray[np.uint8],
        labels: NDArray[np.integer] | None,  # noqa: ARG002
        ranks: NDArray[np.uint32] | None,  # noqa: ARG002
    ) -> dict[str, NDArray[Any]]:
        """The tables of substrings."""
        n_tables = self.n_tables or n_tables_for(self.n_bits, len(codes))
        starts, rows = build_tables(codes, self.n_bits, n_tables)
        return {"starts": starts, "rows": rows}

    def candidates(
        self,
        segment: Segment,
        asked: Question,
        n: int,
        allowed: Allowed,
        *,
        ordered: bool,  # noqa: ARG002  they always do
    ) -> Candidates:
        """The n rows of least (Hamming distance, rank); of those looked up, with probes."""
        tables = self.n_bits, segment.extra["starts"], segment.extra["rows"], allowed
        n = min(n, segment.n_rows)
        if asked.probes is None:
            found = multi_top_k(asked.codes, segment.codes, *tables, n, n_threads=asked.n_threads)
        else:
            found = multi_probe(
                asked.codes,
                asked.margins,
                segment.codes,
                *tables,
                min(asked.probes, MOST_PROBES),
                n,
                n_threads=asked.n_threads,
            )
        return Candidates(*found)

    def within(
        self, segment: Segment, asked: Question, radius: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        """All rows at a Hamming distance of at most ``radius``."""
        return multi_within(
            asked.codes,
            segment.codes,
            self.n_bits,
            segment.extra["starts"],
            segment.extra["rows"],
            None,
            radius,
            n_threads=asked.n_threads,
        )

    def check_extra(self, extra: Mapping[str, NDArray[Any]], n_rows: int) -> None:
        """Refuse tables that a segment of so many rows cannot have."""
        check_stored(extra["starts"], "starts", np.uint32, (None,))
        check_stored(extra["rows"], "rows", np.uint32, (None, n_rows))
        if not 1 <= len(extra["rows"]) <= self.n_bits:
            raise FileError(
                f"a segment has {len(extra['rows'])} tables, expected 1 to {self.n_bits}, the bits"
            )

    def settings(self) -> Mapping[str, Any]:
        """The number of tables that was asked for."""
        return {"n_tables": self.n_tables}
