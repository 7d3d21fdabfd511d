"""Measures that are computed from records: of one run, and their means over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash import metrics
from densehash.locks import cached_property
from densehash.paper.records import Record, Records, unpack_array
from densehash.paper.runs import Run

__all__ = ["Measured", "Results", "Value"]


@dataclass(frozen=True)
class Value:
    """A mean over seeds.

    Attributes
    ----------
    mean : the mean
    spread : the standard deviation; None if there is only one seed
    n_seeds : how many seeds there are
    """

    mean: float
    spread: float | None
    n_seeds: int


class Measured:
    """Measures of one run, computed from its record when they are first used.

    Parameters
    ----------
    record : as :func:`densehash.paper.runs.measure` makes it
    n_queries, n_rows : how many queries and rows the problem has
    """

    def __init__(self, record: Record, n_queries: int, n_rows: int) -> None:
        self._record = record
        self._n_queries = n_queries
        self._n_rows = n_rows
        self.machine: str = record["machine"]
        self.refused: str | None = record.get("refused")

    def _array(self, name: str) -> NDArray[Any]:
        return unpack_array(self._record["arrays"][name])

    @cached_property
    def _counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        counts, relevant = self._array("counts"), self._array("relevant_counts")
        return counts.astype(np.int64), relevant.astype(np.int64)

    @property
    def bytes_a_row(self) -> int:
        """Bytes of a code."""
        return int(self._record["bytes"])

    @property
    def bytes_for_estimates(self) -> int:
        """Bytes of a code and of its two factors."""
        return int(self._record["bytes_for_estimates"])

    @property
    def fit_seconds(self) -> float:
        """Training time, as defined in the paper."""
        return float(self._record["seconds"]["fit"])

    @property
    def encode_seconds(self) -> float:
        """Time to hash one row of the database, if all are hashed in one call."""
        return float(self._record["seconds"]["encode"]) / self._n_rows

    @property
    def query_seconds(self) -> float:
        """Test time, as defined in the paper: to hash one query of a batch; the best of five."""
        return float(min(self._record["seconds"]["queries"])) / self._n_queries

    @cached_property
    def mean_average_precision(self) -> float:
        """MAP of the ranking by Hamming distance; signs and peers rank in their own way."""
        if "precision" in self._record["arrays"]:
            return float(self._array("precision").mean(dtype=np.float64))
        return metrics.mean_average_precision(*self._counts)

    @cached_property
    def asymmetric_mean_average_precision(self) -> float:
        """MAP of the ranking by the query's margins."""
        return float(self._array("asymmetric_precision").mean(dtype=np.float64))

    @cached_property
    def precision_recall(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Precision and recall within each Hamming radius."""
        return metrics.precision_recall(*self._counts)

    def precision_within(self, radius: int) -> float:
        """Precision of a lookup of all codes within a Hamming radius."""
        return float(metrics.precision_within(*self._counts, radius=radius))

    def recall(self, n_candidates: int) -> float:
        """Share of the k nearest rows among the candidates, which exact re-ranking then finds."""
        return _share_before(self._ranked, n_candidates)

    def asymmetric_recall(self, n_candidates: int) -> float:
        """The same, if candidates are ranked by the query's margins."""
        return _share_before(self._asymmetrically_ranked, n_candidates)

    def estimated_recall(self, n_candidates: int) -> float:
        """The same, if candidates are ranked by estimates from the codes."""
        return _share_before(self._ranked_by_estimates, n_candidates)

    @cached_property
    def _ranked(self) -> _Ranked:
        if "before" in self._record["arrays"]:
            return self._array("before"), self._array("level")
        counts, near = self._counts[0], self._array("near").astype(np.int64)
        before = np.cumsum(counts, axis=1) - counts
        return np.take_along_axis(before, near, axis=1), np.take_along_axis(counts, near, axis=1)

    @cached_property
    def _asymmetrically_ranked(self) -> _Ranked:
        return self._array("asymmetric_before"), self._array("asymmetric_level")

    @cached_property
    def _ranked_by_estimates(self) -> _Ranked:
        return self._array("estimates_before"), self._array("estimates_level")


_Ranked = tuple[NDArray[Any], NDArray[Any]]
"""How many codes come before each of the k nearest rows, and how many are level with it: (q, k)."""


def _share_before(ranked: _Ranked, n_candidates: int) -> float:
    """:func:`densehash.metrics.recall_after_reranking`, computed from what records keep."""
    before, level = ranked
    return float(np.clip((n_candidates - before.astype(np.float64)) / level, 0, 1).mean())


class Results:
    """Records of one problem, by run.

    Parameters
    ----------
    identity : the identity of the problem
    records : where its measurements are
    """

    def __init__(self, identity: Mapping[str, Any], records: Records) -> None:
        self.identity = identity
        self._records = records
        self._made: dict[Run, Measured | None] = {}

    def get(self, run: Run) -> Measured | None:
        """Measures of a run, or None if it has not been run."""
        if run not in self._made:
            record = self._records.get(run.key(self.identity))
            n_rows = run.n_rows or self.identity["rows"]
            self._made[run] = (
                None if record is None else Measured(record, self.identity["queries"], n_rows)
            )
        return self._made[run]

    def seeds(self, run: Run, n_seeds: int) -> Iterable[Measured]:
        """The measured seeds of a run; one if the method uses no randomness, none if it refused."""
        seen = set()
        for seed in range(n_seeds):
            each = replace(run, seed=seed)
            seen_as = each.key(self.identity)["seed"]
            measured = self.get(each)
            if measured is not None and measured.refused is None and seen_as not in seen:
                seen.add(seen_as)
                yield measured

    def mean(self, run: Run, n_seeds: int, measure: Callable[[Measured], float]) -> Value | None:
        """The mean of a measure over seeds, or None if nothing was measured."""
        values = [measure(measured) for measured in self.seeds(run, n_seeds)]
        if not values:
            return None
        spread = statistics.stdev(values) if len(values) > 1 else None
        return Value(statistics.mean(values), spread, len(values))
