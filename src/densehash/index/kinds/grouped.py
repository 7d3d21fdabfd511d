"""The grouped kind: codes lie by group, and a query visits the nearest groups only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from densehash.errors import FileError
from densehash.index.grouping import Centers
from densehash.index.kinds.kind import (
    Allowed,
    Candidates,
    Kind,
    Question,
    check_stored,
    scan,
)
from densehash.index.native import nearest_groups, top_k_in_groups
from densehash.index.segment import Segment
from densehash.rows import Floats

__all__ = ["Grouped"]

_SHARE = 1 / 24  # of the groups are visited, where nothing else is said


class Grouped(Kind):
    """Codes and vectors stored by k-means group; for millions of rows and the highest speed.

    All segments share the groups, so that the groups a query visits, and with them its answer,
    do not depend on how rows are spread over segments.

    Parameters
    ----------
    centers : of the groups
    """

    name: ClassVar[str] = "grouped"
    extra_names: ClassVar[tuple[str, ...]] = ("limits", "ranks")

    def __init__(self, centers: Centers) -> None:
        self.centers = centers

    @property
    def numbers_a_query(self) -> int:
        """A score for each group."""
        return len(self.centers)

    @property
    def numbers_a_row(self) -> int:
        """A score for each of the groups that it is compared with at a time."""
        return self.centers.numbers_a_row

    def labels(self, block: Floats) -> NDArray[np.integer]:
        """The group of each row of a block, (b,)."""
        return self.centers.nearest(block)

    def arrange(self, labels: NDArray[np.integer] | None) -> NDArray[np.uint32]:
        """By group, and in a group by rank."""
        return np.argsort(_given(labels), kind="stable").astype(np.uint32)

    def own_arrays(
        self,
        codes: NDArray[np.uint8],  # noqa: ARG002
        labels: NDArray[np.integer] | None,
        ranks: NDArray[np.uint32] | None,
    ) -> dict[str, NDArray[Any]]:
        """Where groups begin, and the rank at each position."""
        counts = np.bincount(_given(labels), minlength=len(self.centers))
        return {"limits": np.concatenate([[0], np.cumsum(counts)]), "ranks": _given(ranks)}

    def labels_of(self, segment: Segment) -> NDArray[np.integer]:
        """The group at each position, (n,)."""
        groups = np.arange(len(self.centers), dtype=self.centers.label_type)
        return np.repeat(groups, np.diff(segment.extra["limits"]))

    def candidates(
        self, segment: Segment, asked: Question, n: int, allowed: Allowed, *, ordered: bool
    ) -> Candidates:
        """The n rows of least (Hamming distance, rank) in the nearest groups."""
        n_probes = self.n_probes(asked.probes)
        if n_probes == len(self.centers) or not asked.has_vectors:
            return scan(segment, asked, n, allowed, ordered=ordered)
        codes = asked.codes  # which refuses queries that are not finite
        if asked.groups is None:  # the same for all segments
            # Rows of length one are near in angle where they are near at all.
            metric = "l2" if asked.unit_rows else asked.metric
            scores = self.centers.scores(asked.hashed, metric)
            asked.groups = nearest_groups(scores, n_probes, n_threads=asked.n_threads)
        return Candidates(
            *top_k_in_groups(
                codes,
                segment.codes,
                segment.extra["limits"],
                asked.groups,
                segment.ranks,
                allowed,
                min(n, segment.n_rows),
                ordered=ordered,
                n_threads=asked.n_threads,
            )
        )

    def n_probes(self, probes: int | None) -> int:
        """How many groups a query visits."""
        if probes is None:
            probes = max(round(_SHARE * len(self.centers)), min(8, len(self.centers)))
        return min(probes, len(self.centers))

    def check_extra(self, extra: Mapping[str, NDArray[Any]], n_rows: int) -> None:
        """Refuse limits and ranks that a segment of so many rows cannot have."""
        limits = extra["limits"]
        check_stored(limits, "limits", np.int64, (len(self.centers) + 1,))
        check_stored(extra["ranks"], "ranks", np.uint32, (n_rows,))
        if limits[0] != 0 or limits[-1] != n_rows or bool((limits[1:] < limits[:-1]).any()):
            raise FileError("the limits of groups do not rise from 0 to the number of rows")

    def settings(self) -> Mapping[str, Any]:
        """The centres of the groups."""
        return {"centers": self.centers.centers, "shift": self.centers.shift}


def _given(array: NDArray[Any] | None) -> NDArray[Any]:
    if array is None:
        raise TypeError("rows of this kind have groups")
    return array
