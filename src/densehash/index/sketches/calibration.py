"""How far a search of signs must look to reach a recall.

Three settings decide this: *spread* is the error that estimates may have, *stop* and *probes* limit
the groups that are visited. What they find depends on the rows, so it is measured: with queries
whose neighbours are known, for growing spreads and for growing stops. How much one of them misses
hardly depends on the other. So the cheapest pair for a recall is chosen from these two curves and
tried; if it finds too little, the pair for a slightly higher recall is tried next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from densehash.index.queries import EVERYTHING, Reach
from densehash.index.sketches.entries import SignModel
from densehash.parallel import n_threads

__all__ = ["SURE", "Searches", "calibrated"]

SURE = 1.65
"""A recall is reached if the mean of the sample is this many standard errors above it."""

_SPREADS = tuple(0.01 * 2 ** (2 * i / 3) for i in range(11))  # 0.01 to 1
_BETWEEN = 4  # steps between two of these spreads, to choose from
_STOP = 64.0  # the stop with which spreads are compared
_STOPS = tuple(8.0 * 2**i for i in range(30))
_SHARE = 0.25  # the margin above a recall is at most this share of what may be missed
_NOTHING = 6e-4  # a smaller gain of recall is none: it is about one row in 200 times 10
_CLOSE = 5e-3  # if a recall cannot be reached, this close to the best recall is near enough
_MORE = 1.15  # by which the stop is raised if a recall was not reached
# Nanoseconds for a group, for an entry and each of its bits, for a vector and each of its numbers.
# Only their ratios matter.
_GROUP, _ENTRY, _ENTRY_BIT, _VECTOR, _VECTOR_NUMBER = 250.0, 0.4, 0.009, 150.0, 1.0


class Searches(Protocol):
    """A searcher, such as ``SignModel.searcher`` returns."""

    def search(
        self,
        queries: NDArray[Any],
        k: int,
        probes: int,
        spread: float,
        stop: float,
        allowed: list[NDArray[np.uint8]] | None,
        n_threads: int,
        simd: str,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int32]]:
        """Distances, positions, and (groups, entries, vectors) looked at for each query."""


class _Measured(NamedTuple):
    recall: float
    error: float  # standard error of the recall
    groups: float
    entries: float
    vectors: float
    most_groups: int


def calibrated(
    model: SignModel,
    searcher: Searches,
    queries: NDArray[Any],
    truth: NDArray[Any],
    recalls: Sequence[float],
    *,
    k: int = 10,
    own: NDArray[np.int64] | None = None,
    allowed: list[NDArray[np.uint8]] | None = None,
) -> tuple[Reach, ...]:
    """Find the cheapest settings that reach recalls.

    Parameters
    ----------
    model : the model of the searcher
    searcher : what ``model.searcher`` returned
    queries : float32 (n, d), or of the integer type of the vectors; 500 to 1,000 queries that
        decoder and centres did not learn from
    truth : the true neighbours, nearest first: int (n, at least k), their positions, -1 if there
        are fewer; or float (n, at least k), their distances, infinite if there are fewer
    recalls : above 0 and at most 1
    k : how many neighbours, default 10
    own : int64 (n,), the positions of the queries, if they are rows of the index. They do not count
        as found, and ``truth`` must not have them. Default None
    allowed : for each segment, which rows may be found, (n,). Default None: all of them

    Returns
    -------
    A :class:`~densehash.index.queries.Reach` for each recall. Its ``expected`` is below the recall
    only if nothing reaches the recall. Then it is within half a percent of the best possible
    recall, because the best itself may take ten times as long. The same input gives the same
    result.

    Examples
    --------
    >>> from numpy.random import RandomState
    >>> from densehash.index.sketches.entries import Segment
    >>> X = RandomState(0).standard_normal((600, 8)).astype(np.float32)
    >>> centers, rows, queries = X[:20], X[:500], X[500:]
    >>> labels = ((rows[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1).astype(np.uint32)
    >>> shift = np.zeros(8, np.float32)
    >>> model = SignModel.learn(rows, labels, centers, shift, 32, "l2", RandomState(0))
    >>> searcher = model.searcher([Segment(model.entries(rows, labels[:, np.newaxis]), 500, rows)])
    >>> truth = ((queries[:, None] - rows) ** 2).sum(axis=2).argsort(axis=1)[:, :10]
    >>> reach, = calibrated(model, searcher, queries, truth, [0.9])
    >>> reach.recall, reach.expected >= 0.9
    (0.9, True)
    """
    trial = _Trial(model, searcher, queries, truth[:, :k], k, own, allowed)
    by_spread: list[tuple[float, _Measured]] = []
    for spread in _SPREADS:
        by_spread.append((spread, trial(spread, _STOP)))
        if _is_flat(by_spread):
            break
    enough = by_spread[-1][1].recall - 2 * _NOTHING
    while len(by_spread) > 1 and by_spread[-2][1].recall >= enough:
        by_spread.pop()
    widest = by_spread[-1][0]
    by_stop: list[tuple[float, _Measured]] = []
    for stop in _STOPS:
        by_stop.append((stop, trial(widest, stop)))
        measured = by_stop[-1][1]
        if _short(measured, max(recalls)) <= 0:
            break
        if trial.is_all(measured) or _is_flat(by_stop):
            break
    return tuple(_cheapest(trial, recall, by_spread, by_stop) for recall in recalls)


def _is_flat(tried: list[tuple[float, _Measured]]) -> bool:
    """Whether the last two steps gained next to nothing."""
    return len(tried) > 2 and tried[-1][1].recall < tried[-3][1].recall + _NOTHING


def _short(measured: _Measured, recall: float) -> float:
    """How much a trial lacks to reach a recall for sure; 0 or less if it reaches it."""
    if measured.recall == 1:
        return 0
    # Close to 1, a sample of hundreds of queries cannot measure more exactly.
    return recall - measured.recall + min(SURE * measured.error, _SHARE * (1 - recall))


def _cheapest(
    trial: _Trial,
    recall: float,
    by_spread: list[tuple[float, _Measured]],
    by_stop: list[tuple[float, _Measured]],
) -> Reach:
    found = np.array([measured.recall for _, measured in by_stop])
    found = np.maximum.accumulate(found) + np.arange(len(found)) * 1e-9
    sure = found - SURE * np.array([measured.error for _, measured in by_stop])
    sure = np.maximum.accumulate(sure) + np.arange(len(sure)) * 1e-9
    logs = np.log([stop for stop, _ in by_stop])
    costs = np.array([trial.cost_of_groups(measured) for _, measured in by_stop])
    spreads, shares, of_vectors = _between(trial, by_spread)

    def pair_for(aim: float) -> tuple[float, float]:
        needed = aim * shares[-1] / np.maximum(shares, 1e-9)
        stops = np.interp(needed, sure, logs)
        total = np.interp(stops, logs, costs) + of_vectors
        total[:-1][needed[:-1] > sure[-1]] = np.inf  # if none is enough, the last is tried
        best = int(total.argmin())
        return float(spreads[best]), float(np.exp(stops[best]))

    aim, tried = recall, [pair_for(recall)]
    measured = trial(*tried[-1])
    while (short := _short(measured, recall)) > 0:
        aim += max(short, _NOTHING)
        pair = pair_for(aim)
        if pair in tried:
            break
        tried.append(pair)
        measured = trial(*pair)
    spread, stop = tried[-1]
    raised: list[tuple[float, _Measured]] = []
    while _short(measured, recall) > 0:
        raised.append((stop, measured))
        if not _is_flat(raised) and not trial.is_all(measured):
            stop *= _MORE
        elif spread < spreads[-1]:
            spread, raised = float(spreads[spreads > spread][0]), []
        elif not trial.is_all(measured):
            stop, raised = EVERYTHING.stop, []
        else:
            spread, stop = trial.cheapest(measured.recall - _CLOSE)
            measured = trial(spread, stop)
            break
        measured = trial(spread, stop)
    # A few more than any of these queries needed, for harder queries.
    probes = min(trial.n_groups, measured.most_groups + measured.most_groups // 4 + 1)
    return Reach(recall, spread, stop, probes, measured.recall)


def _between(
    trial: _Trial, by_spread: list[tuple[float, _Measured]]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """More spreads than were tried, their recalls, and the cost of their vectors, (n,) each."""
    logs = np.log([spread for spread, _ in by_spread])
    shares = np.maximum.accumulate([measured.recall for _, measured in by_spread])
    costs = [trial.cost_of_vectors(measured) for _, measured in by_spread]
    if len(logs) == 1:
        return np.exp(logs), shares, np.array(costs)
    from scipy.interpolate import PchipInterpolator  # noqa: PLC0415  only learning needs it

    more = np.linspace(logs[0], logs[-1], _BETWEEN * (len(logs) - 1) + 1)
    # Straight lines would lie below the true recalls, and so favour the spreads that were tried.
    return np.exp(more), *(PchipInterpolator(logs, known)(more) for known in (shares, costs))


class _Trial:
    """Searches for the queries with any settings, and measures; results are kept."""

    def __init__(
        self,
        model: SignModel,
        searcher: Searches,
        queries: NDArray[Any],
        truth: NDArray[Any],
        k: int,
        own: NDArray[np.int64] | None,
        allowed: list[NDArray[np.uint8]] | None,
    ) -> None:
        self.n_groups = len(model.centers)
        self._searcher, self._queries, self._k, self._own = searcher, queries, k, own
        self._truth, self._allowed = truth, allowed
        self._entry = _ENTRY + _ENTRY_BIT * model.decoder.n_bits
        self._vector = _VECTOR + _VECTOR_NUMBER * model.centers.shape[1]
        self._known: dict[tuple[float, float], _Measured] = {}

    def __call__(self, spread: float, stop: float) -> _Measured:
        if (spread, stop) not in self._known:
            self._known[spread, stop] = self._measure(spread, stop)
        return self._known[spread, stop]

    def _measure(self, spread: float, stop: float) -> _Measured:
        k = self._k + (self._own is not None)
        probes = int(min(self.n_groups, np.ceil(stop)))
        distances, positions, efforts = self._searcher.search(
            self._queries, k, probes, spread, stop, self._allowed, n_threads(), ""
        )
        if self._own is not None:
            positions = np.where(positions == self._own[:, np.newaxis], -2, positions)
        if np.issubdtype(self._truth.dtype, np.integer):
            is_there = self._truth >= 0
            is_found = (self._truth[:, :, np.newaxis] == positions[:, np.newaxis]).any(axis=2)
            shares = (is_found & is_there).sum(axis=1) / np.maximum(is_there.sum(axis=1), 1)
        else:
            is_there = np.isfinite(self._truth)
            farthest = np.where(is_there, self._truth, -np.inf).max(axis=1, keepdims=True)
            is_near = distances <= farthest + 1e-5 * np.abs(farthest)
            n_there = np.maximum(is_there.sum(axis=1), 1)
            shares = np.minimum((is_near & (positions >= 0)).sum(axis=1) / n_there, 1)
        groups, entries, vectors = efforts.mean(axis=0)
        error = float(shares.std() / np.sqrt(len(shares)))
        most = int(efforts[:, 0].max())
        return _Measured(
            float(shares.mean()), error, float(groups), float(entries), float(vectors), most
        )

    def cheapest(self, recall: float) -> tuple[float, float]:
        """Spread and stop of the cheapest trial that reached a recall; there must be one."""

        def cost(pair: tuple[float, float]) -> float:
            measured = self._known[pair]
            return self.cost_of_groups(measured) + self.cost_of_vectors(measured)

        return min((pair for pair, one in self._known.items() if one.recall >= recall), key=cost)

    def is_all(self, measured: _Measured) -> bool:
        """Whether every query visited every group."""
        return measured.groups >= self.n_groups

    def cost_of_groups(self, measured: _Measured) -> float:
        return _GROUP * measured.groups + self._entry * measured.entries

    def cost_of_vectors(self, measured: _Measured) -> float:
        return float(self._vector * measured.vectors)
