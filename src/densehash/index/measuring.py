"""The recall of searches, measured with some rows of the index when it is built.

The nearest others of each of these rows are known from a comparison with all rows. So the index
learns how far a search must look to reach a recall, and uses this as the default.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.checks import check_chance
from densehash.choices import MetricName
from densehash.index.arguments import USUAL_K, question_of
from densehash.index.candidates import exactly, merged
from densehash.index.changes import locate
from densehash.index.encoding import as_hashed
from densehash.index.queries import EVERYTHING, Question
from densehash.index.segment import firsts_of
from densehash.index.sketches import Candidates
from densehash.index.state import Settings, State
from densehash.progress import bar
from densehash.rows.numerics import to_host
from densehash.source import Source
from densehash.tensors import as_tensor
from densehash.truth import nearest

__all__ = [
    "RECALLS",
    "USUAL_RECALL",
    "distances_to",
    "measured",
    "rows_that_ask",
    "settings_for",
    "with_too_few",
]

RECALLS = (0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999)
"""The recalls for which an index measures how far to look."""

USUAL_RECALL = 0.97
"""The default recall of a search: a little more than .95, to be safe."""

_FEWEST_ROWS = 256  # fewer rows are all compared: they are too few to measure with
_ASKING = 200  # rows that are used as queries
_CLOSE = 0.005  # recalls cannot be measured more exactly than this


def measured(
    state: State,
    X: NDArray[Any] | Source,
    ids: NDArray[Any] | None,
    random_state: int | RandomState | None,
    *,
    verbose: bool = False,
    hashed: Any = None,
) -> State:
    """The index with settings that say how far to look.

    Parameters
    ----------
    state : an index that was just built
    X : its rows, (n, d)
    ids : ids of these rows, (n,); None: 0 to n - 1
    random_state : draws the rows that are used as queries
    verbose : whether to show a progress bar for long work
    hashed : as in :func:`~densehash.index.encoding.rowset_of`

    Examples
    --------
    >>> from densehash.index import Index
    >>> X = np.random.default_rng(0).standard_normal((400, 8), dtype=np.float32)
    >>> Index.build(X, sketch="signs", random_state=0).recall > 0.95
    True
    """
    if not state.sketch.estimates:
        return state
    numbers = rows_that_ask(len(X), random_state)
    if len(numbers) == 0:
        return with_too_few(state, len(X))
    with bar("measuring recall", 2, shown=verbose) as advance:
        asked = question_of(state, X[numbers])
        # Vectors are compared: it is no index by Hamming distance.
        metric = cast(MetricName, "l2" if state.metric == "cosine" else state.metric)
        queries: Any = asked.hashed
        if hashed is None:
            hashed = as_hashed(X, state.metric)
        else:
            queries = as_tensor(np.ascontiguousarray(queries), hashed.device)
        near = to_host(nearest(queries, hashed, k=USUAL_K + 1, metric=metric, ordered=True))
        advance(1)
        others = _without(near, numbers)
        positions, own = (_positions(state, ids, one) for one in (others, numbers))
        truth = distances_to(state, asked, positions) if state.is_exact else positions
        settings = settings_for(state, asked, truth, own)
        advance(1)
    reason = state.reason
    if settings.reach is not None and settings.reach.stop == EVERYTHING.stop:
        reason += "; estimates are too inaccurate for these rows, so every row is compared"
    return replace(state, reason=reason, settings=settings)


def rows_that_ask(n: int, random_state: int | RandomState | None) -> NDArray[np.int64]:
    """Numbers of some of n rows, which are used as queries to measure recall; none if n is small.

    Examples
    --------
    >>> len(rows_that_ask(100, 0)), 150 < len(rows_that_ask(400, 0)) <= 200
    (0, True)
    """
    if n < _FEWEST_ROWS:
        return np.empty(0, np.int64)
    return np.unique(check_chance(random_state).randint(n, size=min(_ASKING, n // 2)))


def with_too_few(state: State, n: int) -> State:
    """An index of so few rows that recall is not measured."""
    few = f"{n:,} rows are too few to learn from, so every row is compared"
    return replace(state, reason=f"{state.reason}; {few}")


def settings_for(
    state: State, asked: Question, truth: NDArray[Any], own: NDArray[np.int64]
) -> Settings:
    """How far a search must look, measured with some rows of the index and their neighbours.

    Parameters
    ----------
    state : the index
    asked : q of its rows, as queries
    truth : (q, k), the neighbours of each, without the row itself: their distances if vectors are
        kept exactly, otherwise their positions, counted over all segments
    own : int64 (q,), positions of the q rows
    """
    kept = state.vector_type is not None
    reaches = state.sketch.reaches(
        state.segments, asked.vectors, truth, RECALLS, k=USUAL_K, exact=kept, own=own
    )
    if state.is_exact:  # if estimates do not reach a recall, every row is compared
        reaches = tuple(
            reach
            if reach.expected >= reach.recall - _CLOSE
            else EVERYTHING._replace(recall=reach.recall)
            for reach in reaches
        )
    return Settings(reach=reaches[RECALLS.index(USUAL_RECALL)], reaches=reaches)


def distances_to(
    state: State, asked: Question, positions: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Distances of queries to rows, by their kept vectors, in rising order.

    Parameters
    ----------
    state : the index
    asked : q queries
    positions : int64 (q, k), positions of rows, counted over all segments; -1 for a missing row

    Returns
    -------
    float32 (q, k), infinite for a missing row
    """
    parts: list[Candidates] = []
    first = 0
    for segment in state.segments:
        inside = (positions >= first) & (positions < first + segment.n_rows)
        here = np.where(inside, positions - first, -1)
        parts.append(exactly(segment, asked, here, positions.shape[1]))
        first += segment.n_rows
    distances: NDArray[np.float32] = merged(state.segments, parts, positions.shape[1]).distances
    return distances


def _without(near: NDArray[np.int64], own: NDArray[np.integer]) -> NDArray[np.int64]:
    """Neighbours without the row itself; without the last one if the row is not among them."""
    is_own = near == own[:, np.newaxis]
    is_own[~is_own.any(axis=1), -1] = True
    others: NDArray[np.int64] = near[~is_own].reshape(len(near), -1)
    return others


def _positions(
    state: State, ids: NDArray[Any] | None, numbers: NDArray[np.integer]
) -> NDArray[np.int64]:
    """Positions of rows, by their numbers, counted over all segments."""
    flat = numbers.reshape(-1)
    where, ranks = locate(state, flat if ids is None else ids[flat])
    firsts = firsts_of(state.segments)
    found = np.empty(len(flat), np.int64)
    for number, segment in enumerate(state.segments):
        here = where == number
        found[here] = firsts[number] + segment.positions_of(ranks[here])
    return found.reshape(numbers.shape)
