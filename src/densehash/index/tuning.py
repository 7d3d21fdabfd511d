"""How many candidates, and how many probes, a recall takes: measured, not guessed."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from densehash.checks import check_positive
from densehash.errors import InputError
from densehash.index.answers import hits_of
from densehash.index.ids import find
from densehash.index.question import Question, Request
from densehash.index.searching import candidates_of, exactly, merged, named
from densehash.index.searching import nearest as neighbours_of
from densehash.index.segment import Segment
from densehash.index.sketches import Candidates
from densehash.index.state import State
from densehash.progress import steps
from densehash.truth import nearest

__all__ = ["Setting", "Tuning", "tune"]

_MOST_CANDIDATES = 10_000
_REPEATS = 3
_SLOW = 0.7  # times the fastest: what is slower ends the search


class Setting(NamedTuple):
    """A way to search, and what was measured of it.

    Attributes
    ----------
    candidates : how many candidates are re-ranked; None where the sketch says it, as signs do
    probes : how many groups are visited; None where the kind has none
    recall : the share of the true neighbours that were found
    queries_per_second : with the threads that were asked for

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
    """The fastest setting that reaches the recall, and all that reach it.

    Attributes
    ----------
    candidates, probes, recall, queries_per_second : of the fastest: see :class:`Setting`
    measured : tuple of Setting, the fewest probes first

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


def tune(state: State, asked: Question, *, recall: float, k: int, verbose: bool) -> Tuning:
    """Find the fastest setting: see :meth:`densehash.index.Index.tune`.

    Examples
    --------
    >>> from densehash.index import Index
    >>> from densehash.index.requests import question_of
    >>> index = Index.build(np.arange(5.0)[:, np.newaxis], n_bits=8, random_state=0)
    >>> state = index._state
    >>> asked = question_of(state, [[2.0]])
    >>> tune(state, asked, recall=1.0, k=2, verbose=False).recall
    1.0
    """
    if check_positive(recall, "recall") > 1:
        raise InputError(f"recall must be at most 1, got {recall}")
    if state.vector_type is None:
        raise InputError("this index keeps no vectors, so the true neighbours are not known")
    if k > state.n_live:
        raise InputError(f"k must be at most the number of rows, {state.n_live}, got {k}")
    true_ids = _true_ids(state, asked, k)
    allowed = [segment.live for segment in state.segments]
    most = min(state.n_live, _MOST_CANDIDATES)
    measured: list[Setting] = []
    missed = 0.0
    ladder = state.kind.probes_to_try()
    with steps(float(len(ladder)), shown=verbose) as begin:
        for probes in ladder:
            with begin("measuring" if probes is None else f"measuring {probes} probes", 1.0):
                question = asked.probing(probes)
                n: int | None = None
                if state.sketch.takes_candidates:
                    found = candidates_of(state, question, Request(k, most, None, allowed))
                    places = _places(named(state.segments, found), found.there, true_ids)
                    n, reached = _fewest(places, recall, k, most)
                else:  # it says itself how many, and finds what it finds
                    found = neighbours_of(state, question, Request(k, k, "exact", allowed))
                    places = _places(named(state.segments, found), found.there, true_ids)
                    reached = float(np.mean(places < found.positions.shape[1]))
                if reached < recall:
                    missed = max(missed, reached)
                    continue
                speed = _speed(state, question, Request(k, n or k, "exact", allowed))
                measured.append(Setting(n, probes, reached, speed))
            if speed < _SLOW * max(one.queries_per_second for one in measured):
                break  # more probes only take longer
    if not measured:
        raise InputError(
            f"no setting reaches a recall of {recall}: the best, {_most_words(state, most)}, was "
            f"{missed:.3f}; take more bits{', or another hasher' * state.sketch.takes_candidates}"
        )
    fastest = max(measured, key=lambda setting: setting.queries_per_second)
    return Tuning(*fastest, measured=tuple(measured))


def _most_words(state: State, most: int) -> str:
    return f"with {most} candidates" if state.sketch.takes_candidates else "in all groups"


def _true_ids(state: State, asked: Question, k: int) -> NDArray[Any]:
    """Ids of the k true neighbours of each query, (q, k)."""
    parts = [_nearest_in(segment, asked, k) for segment in state.segments]
    return named(state.segments, merged(state.segments, parts, k))


def _nearest_in(segment: Segment, asked: Question, k: int) -> Candidates:
    positions = np.arange(segment.n_rows)
    vectors = segment.kept
    if segment.live is not None:
        positions = positions[segment.live[segment.rank_at(positions)]]
        vectors = vectors[positions]
    near = nearest(asked.vectors, vectors, k=min(k, len(positions)), metric=asked.metric)
    return exactly(segment, asked, positions[near], k)


def _places(
    ids: NDArray[Any], there: NDArray[np.bool_], true_ids: NDArray[Any]
) -> NDArray[np.intp]:
    """Where the true neighbours are among the candidates, (q, k); past the end where not at all."""
    places = np.full(true_ids.shape, ids.shape[1])
    for row, (of_query, found, wanted) in enumerate(zip(ids, there, true_ids, strict=True)):
        some = of_query[found]
        order = np.argsort(some, kind="stable")
        at, is_there = find(some[order], wanted)
        places[row, is_there] = order[at[is_there]]
    return places


def _fewest(places: NDArray[np.intp], recall: float, k: int, most: int) -> tuple[int, float]:
    """The fewest candidates that reach the recall, and what they reach; or all, and that."""
    counts = np.bincount(places.reshape(-1), minlength=most + 1)[:most]
    reached = np.cumsum(counts) / places.size
    n = int(np.searchsorted(reached, recall)) + 1
    n = min(max(n, k), most)
    return n, float(reached[n - 1])


def _speed(state: State, asked: Question, request: Request) -> float:
    best = np.inf
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        hits_of(state, asked.probing(asked.probes), request)
        best = min(best, time.perf_counter() - begun)
    return len(asked) / best
