"""The multi kind: tables of substrings find near codes without a scan.

M. Norouzi, A. Punjani, D. J. Fleet, Fast exact search in Hamming space with multi-index hashing,
PAMI 2014. With ``probes``, the margins of the query decide which buckets are looked up: Q. Lv,
W. Josephson, Z. Wang, M. Charikar, K. Li, Multi-probe LSH: efficient indexing for high-dimensional
similarity search, VLDB 2007.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.checks import check_integer
from densehash.errors import FileError
from densehash.index.kinds.kind import Kind
from densehash.index.multi_tables import MOST_PROBES, build_tables, n_tables_for
from densehash.index.queries import Question
from densehash.index.segment import Segment
from densehash.index.stored import check_stored
from densehash.index.visits import Tables
from densehash.rows import Rows

__all__ = ["Multi"]


class Multi(Kind):
    """Substring tables; for long codes, small radii and near-duplicates.

    Parameters
    ----------
    n_bits : bits of a code
    n_tables : tables of each segment; None: as many as suit its rows
    """

    name: ClassVar[str] = "multi"
    extra_names: ClassVar[tuple[str, ...]] = ("starts", "rows")
    options: ClassVar[tuple[str, ...]] = ("n_tables",)
    takes_probes: ClassVar[bool] = True
    probes_by_margins: ClassVar[bool] = True

    def __init__(self, n_bits: int, n_tables: int | None = None) -> None:
        self.n_bits, self.n_tables = n_bits, n_tables

    @classmethod
    def learn(
        cls,
        rows: Rows,  # noqa: ARG003
        options: Mapping[str, int],
        *,
        n_bits: int,
        random_state: int | RandomState | None,  # noqa: ARG003
        for_products: bool = False,  # noqa: ARG003
    ) -> Multi:
        """Tables: ``n_tables`` of each segment, or as many as suit its rows."""
        return cls._checked(n_bits, options.get("n_tables"))

    @classmethod
    def from_settings(
        cls,
        settings: Mapping[str, Any],
        *,
        n_bits: int,
        n_features: int,  # noqa: ARG003
    ) -> Multi:
        """The kind with the number of tables from a file."""
        return cls._checked(n_bits, settings["n_tables"])

    @classmethod
    def _checked(cls, n_bits: int, n_tables: int | None) -> Multi:
        if n_tables is not None:
            check_integer(n_tables, "n_tables", 1, n_bits)
        return cls(n_bits, n_tables)

    def settings(self) -> Mapping[str, Any]:
        """The number of tables that was asked for."""
        return {"n_tables": self.n_tables}

    def own_arrays(
        self,
        columns: Mapping[str, NDArray[Any]],
        labels: NDArray[np.integer] | None,  # noqa: ARG002
        ranks: NDArray[np.uint32] | None,  # noqa: ARG002
    ) -> dict[str, NDArray[Any]]:
        """The tables of substrings."""
        codes = columns["codes"]
        n_tables = self.n_tables or n_tables_for(self.n_bits, len(codes))
        starts, rows = build_tables(codes, self.n_bits, n_tables)
        return {"starts": starts, "rows": rows}

    def check_extra(self, extra: Mapping[str, NDArray[Any]], n_rows: int) -> None:
        """Refuse tables that a segment of so many rows cannot have."""
        check_stored(extra["starts"], "starts", np.uint32, (None,))
        check_stored(extra["rows"], "rows", np.uint32, (None, n_rows))
        if not 1 <= len(extra["rows"]) <= self.n_bits:
            raise FileError(
                f"a segment has {len(extra['rows'])} tables, expected 1 to {self.n_bits}, the bits"
            )

    def visits(self, segment: Segment, asked: Question) -> Tables:
        """As many rows as are needed to miss nothing; with probes, the rows in so many buckets."""
        probes = None if asked.probes is None else min(asked.probes, MOST_PROBES)
        return self.visits_for_all(segment)._replace(probes=probes)

    def visits_for_all(self, segment: Segment) -> Tables:
        """All tables."""
        return Tables(segment.extra["starts"], segment.extra["rows"], self.n_bits, None)
