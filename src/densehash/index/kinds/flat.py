"""The flat kind: every code is looked at."""

from __future__ import annotations

from typing import ClassVar

from densehash.index.kinds.kind import Allowed, Candidates, Kind, Question, scan
from densehash.index.segment import Segment

__all__ = ["Flat"]


class Flat(Kind):
    """Exact Hamming ranking; for up to tens of millions of rows."""

    name: ClassVar[str] = "flat"

    def candidates(
        self, segment: Segment, asked: Question, n: int, allowed: Allowed, *, ordered: bool
    ) -> Candidates:
        """The n rows of least (Hamming distance, rank)."""
        return scan(segment, asked, n, allowed, ordered=ordered)
