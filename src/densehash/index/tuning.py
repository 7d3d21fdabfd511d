"""Measures how far a search must look to reach a recall."""

from __future__ import annotations

import time
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from densehash.checks import check_recall
from densehash.choices import MetricName
from densehash.errors import InputError
from densehash.index.candidates import candidates_of, exactly, merged, named
from densehash.index.candidates import nearest as neighbours_of
from densehash.index.ids import find
from densehash.index.measuring import RECALLS
from densehash.index.ordering import Found
from densehash.index.queries import EVERYTHING, Question, Request
from densehash.index.search import hits_of
from densehash.index.segment import Segment, firsts_of
from densehash.index.sketches import Candidates
from densehash.index.sketches.calibration import SURE
from densehash.index.state import Settings, State
from densehash.notebook import curve, table
from densehash.progress import steps
from densehash.truth import nearest

__all__ = ["Setting", "Tuning", "tune"]

_MOST_CANDIDATES = 10_000
_REPEATS = 3
_SLOW = 0.7  # below this share of the fastest speed, more probes are not tried


class Setting(NamedTuple):
    """A way to search, and the recall and speed that were measured.

    Attributes
    ----------
    candidates : how many candidates are re-ranked; None with signs, where each search decides
    probes : how many groups are visited; None if the kind has no groups
    recall : the share of the true neighbours that were found
    queries_per_second : the speed, with the ``n_threads`` of the call

    Examples
    --------
    >>> Setting(400, 32, 0.95, 9000.0).candidates
    400
    """

    candidates: int | None
    probes: int | None
    recall: float
    queries_per_second: float


class Tuning(NamedTuple):
    """The fastest setting that reaches the recall, and all settings that were measured.

    Attributes
    ----------
    candidates, probes, recall, queries_per_second : the fastest setting: see :class:`Setting`
    measured : tuple of Setting, those with the fewest probes first

    Examples
    --------
    >>> one = Setting(400, None, 0.95, 9000.0)
    >>> Tuning(*one, measured=(one,)).recall
    0.95
    """

    candidates: int | None
    probes: int | None
    recall: float
    queries_per_second: float
    measured: tuple[Setting, ...]

    def __repr__(self) -> str:
        return (
            f"Tuning(candidates={self.candidates}, probes={self.probes}, recall={self.recall:.3f}, "
            f"queries_per_second={self.queries_per_second:.0f}; {len(self.measured)} measured)"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: all settings that were measured, as a table and a curve."""
        caption = f"Tuning: a recall of {self.recall:.3f}, {self.queries_per_second:,.0f} queries/s"
        shown = table(Setting._fields, self.measured, caption=caption)
        points = [(one.recall, one.queries_per_second) for one in self.measured]
        if len(set(points)) < 2:
            return shown
        chosen = (self.recall, self.queries_per_second)
        return shown + curve(points, chosen=chosen, x="recall", y="queries a second")


def tune(
    state: State, asked: Question, *, recall: float, k: int, verbose: bool
) -> tuple[Tuning, Settings]:
    """The fastest setting, and the settings that the index keeps: :meth:`densehash.Index.tune`."""
    check_recall(recall)
    if k > state.n_live:
        raise InputError(f"k must be at most the number of rows, {state.n_live}, got {k}")
    if state.sketch.estimates:
        return _by_reach(state, asked, recall, k, verbose=verbose)
    if state.vector_type is None:
        raise InputError(
            "this index keeps no vectors, so the true neighbours are not known: build it with "
            "keep_vectors=True"
        )
    return _by_candidates(state, asked, recall, k, verbose=verbose)


def _by_reach(
    state: State, asked: Question, recall: float, k: int, *, verbose: bool
) -> tuple[Tuning, Settings]:
    """With signs: how far to look."""
    allowed = [segment.live for segment in state.segments]
    kept, exact = state.vector_type is not None, state.is_exact
    how, most = ("exact" if kept else None), 1.0
    with steps(2.0, shown=verbose) as begin:
        with begin("comparing", 1.0):
            truth: NDArray[Any]
            if exact:
                truth = _true_neighbours(state, asked, k).distances
            else:  # the best answer without vectors; the build measured how good it is
                most = max((reach.expected for reach in state.settings.reaches), default=1.0)
                found = neighbours_of(state, asked, Request(k, 0, how, allowed, EVERYTHING))
                firsts = firsts_of(state.segments)
                truth = np.where(found.there, found.positions + firsts[found.segments], -1)
        with begin("measuring", 1.0):
            recalls = sorted({*RECALLS, recall})
            reaches = state.sketch.reaches(
                state.segments,
                asked.vectors,
                truth,
                [min(one / most, 1.0) for one in recalls],
                k=k,
                exact=kept,
            )
            known = tuple(
                EVERYTHING._replace(recall=one)
                if exact and reach.expected < one
                else reach._replace(recall=one, expected=reach.expected * most)
                for one, reach in zip(recalls, reaches, strict=True)
            )
            measured = []
            for reach in known:
                speed = _speed(state, asked, Request(k, 0, how, allowed, reach))
                n_groups = state.kind.numbers_a_query
                probes = min(reach.probes, n_groups) if state.kind.takes_probes else None
                measured.append(Setting(None, probes, reach.expected, speed))
    chosen = recalls.index(recall)
    if known[chosen].expected < recall:
        raise InputError(
            f"no setting reaches a recall of {recall}: the best, in all groups, was "
            f"{known[-1].expected:.3f}; build the index with more bits, or with vectors"
        )
    tuning = Tuning(*measured[chosen], measured=tuple(measured))
    return tuning, Settings(reach=known[chosen], reaches=known)


def _by_candidates(
    state: State, asked: Question, recall: float, k: int, *, verbose: bool
) -> tuple[Tuning, Settings]:
    """With codes: how many candidates and probes."""
    true_ids = named(state.segments, _true_neighbours(state, asked, k))
    allowed = [segment.live for segment in state.segments]
    most = min(state.n_live, _MOST_CANDIDATES)
    measured: list[Setting] = []
    missed = 0.0
    ladder = state.kind.probes_to_try()
    with steps(float(len(ladder)), shown=verbose) as begin:
        for probes in ladder:
            with begin("measuring" if probes is None else f"measuring {probes} probes", 1.0):
                question = asked.probing(probes)
                found = candidates_of(state, question, Request(k, most, None, allowed))
                places = _places(named(state.segments, found), found.there, true_ids)
                n, reached = _fewest(places, recall, k, most)
                if reached < recall:
                    missed = max(missed, reached)
                    continue
                speed = _speed(state, question, Request(k, n, "exact", allowed))
                measured.append(Setting(n, probes, reached, speed))
            if speed < _SLOW * max(one.queries_per_second for one in measured):
                break  # more probes would be slower still
    if not measured:
        raise InputError(
            f"no setting reaches a recall of {recall}: the best, with {most} candidates, was "
            f"{missed:.3f}; build the index with more bits, or with another hasher"
        )
    fastest = max(measured, key=lambda setting: setting.queries_per_second)
    tuning = Tuning(*fastest, measured=tuple(measured))
    return tuning, Settings(fastest.candidates, fastest.probes)


def _true_neighbours(state: State, asked: Question, k: int) -> Found:
    """The k true neighbours of each query."""
    parts = [_nearest_in(segment, asked, k) for segment in state.segments]
    return merged(state.segments, parts, k)


def _nearest_in(segment: Segment, asked: Question, k: int) -> Candidates:
    positions = np.arange(segment.n_rows)
    vectors = segment.kept
    if segment.live is not None:
        positions = positions[segment.live[segment.rank_at(positions)]]
        vectors = vectors[positions]
    metric = cast(MetricName, asked.metric)  # vectors are compared: not by Hamming distance
    near = nearest(asked.vectors, vectors, k=min(k, len(positions)), metric=metric)
    return exactly(segment, asked, positions[near], k)


def _places(
    ids: NDArray[Any], there: NDArray[np.bool_], true_ids: NDArray[Any]
) -> NDArray[np.intp]:
    """At which place each true neighbour is among the candidates, (q, k); past the end if not."""
    places = np.full(true_ids.shape, ids.shape[1])
    for row, (of_query, found, wanted) in enumerate(zip(ids, there, true_ids, strict=True)):
        some = of_query[found]
        order = np.argsort(some, kind="stable")
        at, is_there = find(some[order], wanted)
        places[row, is_there] = order[at[is_there]]
    return places


def _fewest(places: NDArray[np.intp], recall: float, k: int, most: int) -> tuple[int, float]:
    """The fewest candidates that reach the recall, and the recall they reach.

    If no number reaches it, this is all candidates. The recall is a mean over queries, so it has an
    error; if possible, it is exceeded by this error, so that other queries reach it, too.
    """
    counts = np.bincount(places.reshape(-1), minlength=most + 1)[:most]
    reached = np.cumsum(counts) / places.size
    n = min(int(np.searchsorted(reached, recall)) + 1, most)
    error = (places < n).mean(axis=1).std() / np.sqrt(len(places))
    n = min(int(np.searchsorted(reached, min(recall + SURE * error, reached[-1]))) + 1, most)
    n = max(n, k)
    return n, float(reached[n - 1])


def _speed(state: State, asked: Question, request: Request) -> float:
    best = np.inf
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        hits_of(state, asked.probing(asked.probes), request)
        best = min(best, time.perf_counter() - begun)
    return len(asked) / best
