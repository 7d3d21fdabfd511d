"""The grouped kind: rows are ordered by group, and a query visits only the nearest groups."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from copy import copy
from typing import Any, ClassVar

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.checks import check_chance, check_integer, check_positive
from densehash.errors import FileError
from densehash.index.grouping import Centers, n_groups_for
from densehash.index.kinds.kind import Kind
from densehash.index.native import nearest_groups
from densehash.index.queries import Question
from densehash.index.segment import Segment
from densehash.index.stored import check_stored
from densehash.index.visits import Groups
from densehash.parallel import one_blas_thread
from densehash.rows import Floats, Rows
from densehash.truth import METRICS

__all__ = ["Grouped"]

_SHARE = 1 / 24  # the default share of groups that are visited
_SHARE_OF_ROWS = 1 / 12  # for products: groups of long rows are smaller than others
_FEWEST = 8  # groups that are visited by default
_FEW = 16  # queries for which threads of BLAS do not pay


class Grouped(Kind):
    """Rows ordered by k-means group; for millions of rows and the highest speed.

    All segments share the groups. So the groups that a query visits, and its answer, do not depend
    on how rows are spread over segments.

    Parameters
    ----------
    centers : centres of the groups
    """

    name: ClassVar[str] = "grouped"
    has_groups: ClassVar[bool] = True
    extra_names: ClassVar[tuple[str, ...]] = ("limits", "ranks")
    options: ClassVar[tuple[str, ...]] = ("n_groups",)
    takes_probes: ClassVar[bool] = True

    def __init__(self, centers: Centers) -> None:
        self.centers = centers

    @classmethod
    def learn(
        cls,
        rows: Rows,
        options: Mapping[str, int],
        *,
        n_bits: int,  # noqa: ARG003
        random_state: int | RandomState | None,
        for_products: bool = False,
    ) -> Grouped:
        """Groups of rows: ``n_groups``, default about 1.3 times the square root of the rows."""
        n = options.get("n_groups", n_groups_for(rows.n_rows))
        check_integer(n, "n_groups", 1, rows.n_rows)
        chance = check_chance(random_state)
        return cls(Centers.learn(rows, n, chance, for_products=for_products))

    @classmethod
    def from_settings(
        cls,
        settings: Mapping[str, Any],
        *,
        n_bits: int,  # noqa: ARG003
        n_features: int,
    ) -> Grouped:
        """Groups of the centres in a file."""
        centers, shift, longest = settings["centers"], settings["shift"], settings.get("longest")
        width = n_features if longest is None else n_features + 1
        check_stored(centers, "centers", np.float32, (None, width))
        check_stored(shift, "shift", np.float64, (width,))
        if longest is not None:
            check_positive(longest, "longest")
        if len(centers) == 0:
            raise FileError("centers are none, expected at least one")
        return cls(Centers(centers, shift, longest))

    def forget(self) -> None:
        """Free the centres in whole numbers."""
        self.centers = copy(self.centers)

    def settings(self) -> Mapping[str, Any]:
        """The centres of the groups."""
        of = self.centers
        longest = {} if of.longest is None else {"longest": of.longest}
        return {"centers": of.centers, "shift": of.shift, **longest}

    def labels(self, block: Floats) -> NDArray[np.integer]:
        """The group of each row of a block, (b,)."""
        return self.centers.nearest(block)

    def arrange(self, labels: NDArray[np.integer] | None) -> NDArray[np.uint32]:
        """By group, and in a group by rank."""
        return np.argsort(_given(labels), kind="stable").astype(np.uint32)

    def own_arrays(
        self,
        columns: Mapping[str, NDArray[Any]],  # noqa: ARG002
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

    def check_extra(self, extra: Mapping[str, NDArray[Any]], n_rows: int) -> None:
        """Refuse limits and ranks that a segment of so many rows cannot have."""
        limits = extra["limits"]
        check_stored(limits, "limits", np.int64, (len(self.centers) + 1,))
        check_stored(extra["ranks"], "ranks", np.uint32, (n_rows,))
        if limits[0] != 0 or limits[-1] != n_rows or bool((limits[1:] < limits[:-1]).any()):
            raise FileError("the limits of groups do not rise from 0 to the number of rows")

    @property
    def numbers_a_query(self) -> int:
        """A score for each group."""
        return len(self.centers)

    def visits(self, segment: Segment, asked: Question) -> Groups | None:
        """The nearest groups; every row if these are all groups, or if it is not known."""
        n_probes = self.n_probes(asked.probes)
        points = None if n_probes == len(self.centers) else asked.points
        if points is None:
            return None
        if asked.groups is None:  # the same for all segments
            # For rows of length one, the Euclidean distance has the order of the cosine; for bits,
            # the order of the Hamming distance.
            by_length = asked.unit_rows or asked.metric not in METRICS
            # For few queries, threads of BLAS cost more than they save.
            few = len(points) <= _FEW or asked.n_threads == 1
            with one_blas_thread() if few else nullcontext():
                scores = self.centers.scores(points, "l2" if by_length else asked.metric)
            asked.groups = nearest_groups(scores, n_probes, n_threads=asked.n_threads)
        return Groups(segment.extra["limits"], asked.groups)

    def n_probes(self, probes: int | None) -> int:
        """How many groups a query visits."""
        if probes is None:
            probes = max(round(_SHARE * len(self.centers)), min(_FEWEST, len(self.centers)))
        return min(probes, len(self.centers))

    def n_probes_for_products(self, rows: NDArray[Any]) -> int:
        """How many groups a query visits for large products: those of a share of the rows.

        Parameters
        ----------
        rows : real (n, d), some rows of the index, which are also the queries
        """
        n_groups = len(self.centers)
        counts = np.bincount(self.centers.nearest(rows), minlength=n_groups)
        order = nearest_groups(self.centers.scores(rows, "ip"), n_groups)
        visited = counts[order].cumsum(axis=1).mean(axis=0)
        n = int(np.searchsorted(visited, _SHARE_OF_ROWS * len(rows))) + 1
        return min(max(n, _FEWEST), n_groups)

    def probes_to_try(self) -> list[int | None]:
        """Numbers of probes, each 1.5 times the one before, up to all groups."""
        n_groups, ladder, probes = len(self.centers), [], 1
        while probes < n_groups:
            ladder.append(probes)
            probes = max(probes + 1, probes * 3 // 2)
        return [*ladder, n_groups]


def _given(array: NDArray[Any] | None) -> NDArray[Any]:
    if array is None:
        raise TypeError("rows of this kind have groups")
    return array
