"""The flat kind: every row is looked at."""

from __future__ import annotations

from typing import ClassVar

from densehash.index.kinds.kind import Kind
from densehash.index.queries import Question
from densehash.index.segment import Segment

__all__ = ["Flat"]


class Flat(Kind):
    """All rows, in the order of their ids; for up to tens of millions of rows."""

    name: ClassVar[str] = "flat"

    def visits(self, segment: Segment, asked: Question) -> None:  # noqa: ARG002
        """Every row."""
        return
