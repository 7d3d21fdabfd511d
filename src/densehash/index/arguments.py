"""The arguments of a search, checked, and their defaults."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densehash.bits import MAX_BITS
from densehash.checks import (
    as_array,
    check_choice,
    check_integer,
    check_recall,
    check_threads,
    check_vectors,
)
from densehash.columns import as_plain
from densehash.errors import InputError
from densehash.index.ids import check_ids, no_ids, type_of
from densehash.index.kinds import KINDS
from densehash.index.queries import EVERYTHING, Question, Reach
from densehash.index.sketches import Bits
from densehash.index.sketches.codes import CodeQueries
from densehash.index.state import State
from densehash.source import Source
from densehash.truth import METRICS

__all__ = [
    "USUAL_K",
    "as_queries",
    "check_k",
    "check_own",
    "check_own_type",
    "check_probes",
    "check_radius",
    "check_rerank",
    "compares_all",
    "n_candidates",
    "question_of",
    "reach_of",
]

USUAL_K = 10
"""The default number of neighbours."""

_COMPARED = {("u", 1), ("i", 1), ("f", 4), ("f", 8)}  # uint8, int8, float32 and float64
_LARGEST = np.finfo(np.float32).max
_FEWEST_CANDIDATES, _MOST_CANDIDATES = 100, 2000


def check_k(k: int | None) -> int:
    """How many neighbours.

    Examples
    --------
    >>> check_k(None), check_k(3)
    (10, 3)
    """
    return USUAL_K if k is None else check_integer(k, "k", 1)


def check_own_type(ids: ArrayLike, state: State, name: str = "ids") -> NDArray[Any]:
    """Ids as they are kept, of the type that the index has; an empty list has none."""
    if isinstance(ids, (list, tuple)) and len(ids) == 0:
        return no_ids(state.id_type)
    found = check_ids(ids, name)
    if type_of(found) != state.id_type and not state.is_open:
        raise InputError(
            f"{name} must be of type {state.id_type}, as in the index, got {type_of(found)}"
        )
    return found


def check_own(exclude_self: bool | ArrayLike, n_queries: int, state: State) -> NDArray[Any] | bool:
    """The ids of the queries as they are kept, or True or False."""
    if isinstance(exclude_self, (bool, np.bool_)):
        return bool(exclude_self)
    if n_queries == 1 and isinstance(exclude_self, (int, np.integer, str)):  # the id of one vector
        exclude_self = np.array([exclude_self])
    own = check_own_type(exclude_self, state, "exclude_self")
    if len(own) != n_queries:
        raise InputError(f"exclude_self has {len(own)} ids but there are {n_queries} queries")
    return own


def check_radius(radius: float, rerank: str | None, state: State) -> float:
    """How far away neighbours may be; an integer for Hamming distances."""
    number = isinstance(radius, (int, float, np.integer, np.floating))
    if not number or math.isnan(radius):
        raise InputError(f"radius must be a number, got {radius!r}")
    if rerank is None and state.sketch.counts:
        return min(check_integer(radius, "radius", 0), MAX_BITS)  # type: ignore[arg-type]
    return float(radius)


def check_rerank(rerank: str | None, state: State) -> str | None:
    """How candidates are re-ranked: "exact", a way of the sketch itself, or None."""
    if rerank is None:
        return None if state.sketch.is_learnt else "exact"  # only vectors are kept
    own = state.sketch.reranks
    check_choice(rerank, "rerank", ("auto", "exact", *own))
    if rerank == "auto":
        return "exact" if state.vector_type is not None else next(iter(own), None)
    if rerank == "exact" and state.vector_type is None:
        raise InputError(
            "this index keeps no vectors to re-rank by: search with "
            f"rerank={' or '.join([*map(repr, own), 'None'])}, or build it with keep_vectors=True"
        )
    return rerank


def check_probes(probes: int | None, state: State) -> int | None:
    """How many groups, or buckets of each table, are visited; None: the default of the kind."""
    if probes is None:
        return state.settings.probes
    if not state.kind.takes_probes:
        those = " and ".join(kind.name for kind in KINDS.values() if kind.takes_probes)
        raise InputError(f"probes are for the {those} kinds, this one is {state.kind.name}")
    if state.kind.probes_by_margins and not state.sketch.counts:
        raise InputError(
            f"probes is {probes}, but with metric={state.metric!r} the {state.kind.name} kind "
            "compares all rows, because near codes are not large products: leave probes out, or "
            "build the index with kind='grouped'"
        )
    return check_integer(probes, "probes", 1)


def n_candidates(candidates: int | None, k: int, rerank: str | None, state: State) -> int:
    """How many candidates are re-ranked: at least k, and at most the number of rows.

    0 if distances are estimated and ``candidates`` is None: all that may be among the nearest.
    """
    if candidates is not None:
        check_integer(candidates, "candidates", 1)
    if rerank is None and not state.sketch.estimates:
        return min(k, state.n_live) if state.n_live else k
    if state.sketch.estimates and candidates is None:
        return 0
    n = (
        candidates
        or state.settings.candidates
        or max(
            10 * k, min(max(round(math.sqrt(state.n_live)), _FEWEST_CANDIDATES), _MOST_CANDIDATES)
        )
    )
    return max(min(max(n, k), state.n_live), 1)


def reach_of(state: State, recall: float | None = None, probes: int | None = None) -> Reach | None:
    """How far a search looks; None if the sketch does not estimate distances.

    Parameters
    ----------
    state : the index
    recall : the share of the nearest rows to find; None: the default of the index
    probes : how many groups to visit, however far away; None: as many as the recall needs
    """
    if not state.sketch.is_learnt:
        if recall is not None:
            check_recall(recall)  # every recall is reached
        return None
    if not state.sketch.estimates:
        if recall is not None:
            raise InputError(
                f"recall is for an index of signs, and this one keeps {state.sketch.name}: call "
                "tune(), which measures how many candidates a recall takes"
            )
        return None
    usual = state.settings.reach or EVERYTHING
    reach = usual if recall is None else _reach_for(check_recall(recall), state)
    return reach if probes is None else reach._replace(probes=probes, stop=EVERYTHING.stop)


def _reach_for(recall: float, state: State) -> Reach:
    """The reach for any recall, between those that were measured."""
    known = state.settings.reaches
    if state.vector_type is None:
        most = max((reach.expected for reach in known), default=1.0)
        if most < recall:
            raise InputError(
                f"recall is {recall}, but this index keeps no vectors and finds {most:.3f} at "
                "most: build it with keep_vectors=True, or with more bits"
            )
    return _interpolated(known, recall)


@lru_cache(maxsize=32)  # with one query a call, the same is computed again and again
def _interpolated(known: tuple[Reach, ...], recall: float) -> Reach:
    # The share of missed rows falls by a factor for each step, so its logarithm is interpolated.
    if not known or recall > known[-1].recall or recall == 1:
        return EVERYTHING
    above = next(i for i, reach in enumerate(known) if reach.recall >= recall)
    if above == 0 or known[above].recall == recall:
        return known[above]
    low, high = known[above - 1], known[above]
    share = math.log((1 - low.recall) / (1 - recall)) / math.log(
        (1 - low.recall) / (1 - high.recall)
    )
    return Reach(
        recall,
        spread=low.spread * (high.spread / low.spread) ** share,
        stop=low.stop * (high.stop / low.stop) ** share,
        probes=high.probes,
        expected=low.expected + share * (high.expected - low.expected),
    )


def as_queries(Q: Any) -> tuple[Any, bool]:
    """Queries as :func:`question_of` takes them, and whether they are one vector.

    Parameters
    ----------
    Q : rows (q, d), in any form; or one vector: (d,) or a list of numbers, which becomes (1, d)

    Examples
    --------
    >>> as_queries([0.5, 2.0])
    (array([[0.5, 2. ]]), True)
    >>> as_queries([[0.5, 2.0]])
    ([[0.5, 2.0]], False)
    """
    if not isinstance(Q, np.ndarray) or Q.dtype == object:
        Q = as_plain(Q, "Q")
        if isinstance(Q, (list, tuple)) and Q and not hasattr(Q[0], "__len__"):
            Q = as_array(Q, "Q")
    if isinstance(Q, np.ndarray) and Q.ndim == 1 and Q.size and Q.dtype.kind in "fiub":
        return Q[np.newaxis], True
    return Q, False


def question_of(
    state: State,
    Q: ArrayLike | Source,
    *,
    metric: str | None = None,
    probes: int | None = None,
    n_threads: int | None = None,
    any_metric: bool = False,
) -> Question:
    """Queries, checked.

    Parameters
    ----------
    state : the index
    Q, metric, probes, n_threads : as in :meth:`densehash.Index.search`
    any_metric : whether the metric may differ from that of the index, if exact vectors are kept
    """
    codes = state.sketch.codes_of(Q, "Q") if isinstance(state.sketch, Bits) else None
    if codes is not None:
        return _question_of_codes(state, codes, metric, probes, n_threads)
    vectors = np.asarray(check_vectors(Q, "Q")[:])
    if vectors.shape[1] != state.sketch.n_features:
        raise InputError(f"Q has {vectors.shape[1]} features, the index {state.sketch.n_features}")
    _check_metric(metric, state, any_metric=any_metric)
    if (vectors.dtype.kind, vectors.dtype.itemsize) not in _COMPARED:
        vectors = vectors.astype(np.float64 if vectors.dtype.itemsize > 2 else np.float32)
    _check_numbers(vectors)
    return Question(
        np.ascontiguousarray(vectors),
        state.sketch.prepare,
        metric=metric or state.metric,
        unit_rows=state.metric == "cosine",
        probes=check_probes(probes, state),
        n_threads=check_threads(n_threads),
    )


def _question_of_codes(
    state: State,
    codes: NDArray[np.uint8],
    metric: str | None,
    probes: int | None,
    n_threads: int | None,
) -> Question:
    """Queries that are codes, for an index that was made from codes."""
    _check_metric(metric, state, any_metric=False)
    if len(codes) == 0:
        raise InputError("Q is empty: at least 1 code is needed")
    visited = check_probes(probes, state)
    if visited is not None and state.kind.probes_by_margins:
        raise InputError(
            f"probes is {visited}, but buckets are chosen by the margins of vectors, and these "
            "queries are codes: leave probes out, which searches codes exactly"
        )
    return Question(
        None,
        state.sketch.prepare,
        metric=state.metric,
        unit_rows=False,
        probes=visited,
        n_threads=check_threads(n_threads),
        prepared=CodeQueries(codes=codes, n_bits=state.sketch.n_bits),
    )


def _check_metric(metric: str | None, state: State, *, any_metric: bool) -> None:
    if metric is None:
        return
    check_choice(metric, "metric", tuple(dict.fromkeys([*METRICS, state.metric])))
    if metric == state.metric or (any_metric and state.is_exact):
        return
    way = f"build another index with metric={metric!r}"
    if any_metric and not isinstance(state.sketch, Bits):
        way += ", or this one with keep_vectors=True, so that a search can compare every row"
    raise InputError(
        f"metric must be {state.metric!r} here, got {metric!r}: what this index keeps of a row "
        f"gives distances of one metric only; {way}"
    )


def compares_all(
    state: State, metric: str, rerank: str | None, candidates: int | None, probes: int | None
) -> bool:
    """Whether a search compares every row: if nothing is learnt, or if it has another metric.

    With codes and another metric, ``candidates`` or ``probes`` choose the nearest rows by the
    metric of the index instead.

    Parameters
    ----------
    state : the index
    metric : the metric of the search
    rerank : what :func:`check_rerank` returned
    candidates, probes : as in :meth:`densehash.Index.search`
    """
    if not state.sketch.is_learnt or metric == state.metric:
        return not state.sketch.is_learnt
    if rerank != "exact":
        raise InputError(
            f"rerank must be 'exact' with metric={metric!r}, got {rerank!r}: {state.sketch.name} "
            f"give distances of {state.metric!r} only, the metric of the index"
        )
    told = candidates is not None or probes is not None
    if told and state.sketch.estimates:
        raise InputError(
            f"candidates and probes work by {state.metric!r}, the metric of the index, but metric "
            f"is {metric!r}: leave them out, and every row is compared"
        )
    return not told


def _check_numbers(vectors: NDArray[Any]) -> None:
    """Refuse queries that are not finite, or too large for float32, in which rows are compared."""
    if vectors.dtype.kind != "f":
        return
    bad = ~(np.abs(vectors) <= _LARGEST)  # NaN is not below anything
    if bool(bad.any()):
        row, column = np.argwhere(bad)[0]
        number = vectors[row, column]
        came = "NaN" if np.isnan(number) else "infinity" if np.isinf(number) else f"{number:.3g}"
        raise InputError(f"Q must be finite in float32, got {came} in row {row}, column {column}")
