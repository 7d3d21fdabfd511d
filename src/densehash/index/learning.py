"""Makes an index that learns from its rows: at once, or when it has enough of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.checks import check_chance, check_choice, check_integer
from densehash.errors import InputError
from densehash.index.building import check_settings, kept_type, learnt, sketch_for
from densehash.index.changes import with_rows
from densehash.index.encoding import as_hashed
from densehash.index.gathering import Gathered
from densehash.index.ids import IdType, type_of
from densehash.index.kinds import Flat
from densehash.index.measuring import measured
from densehash.index.payload import PayloadRows
from densehash.index.placing import MEMORY, Place
from densehash.index.segment import joined
from densehash.index.sketches import Plan, Unlearnt
from densehash.index.state import State
from densehash.source import Source
from densehash.truth import METRICS

__all__ = ["LEARN_AT", "built", "grown", "ready_for", "state_to_learn"]

LEARN_AT = 8_192
"""With how many rows an index that was created empty learns. More do not improve its decoder."""


def built(
    X: NDArray[Any] | Source,
    ids: NDArray[Any] | None,
    payload: PayloadRows | None = None,
    *,
    metric: str,
    vector_type: str | None,
    random_state: int | RandomState | None,
    next_id: int = 0,
    place: Place = MEMORY,
    verbose: bool = False,
    hashed: Any = None,
    **settings: Any,
) -> State:
    """An index that has learnt from its rows.

    Parameters
    ----------
    X : its rows, (n, d)
    ids : ids of these rows, (n,); None: 0 to n - 1
    payload : payload of these rows, or None
    vector_type : the type in which vectors are kept; None: they are not kept
    next_id : the smallest number that may be given to a new row, at least
    place : where segments go
    hashed : as in :func:`~densehash.index.encoding.rowset_of`
    metric, random_state, verbose, **settings : as in :func:`~densehash.index.building.learnt`

    Examples
    --------
    >>> state = built(np.eye(8), None, metric="l2", vector_type="float32", random_state=0)
    >>> state.n_live, state.next_id
    (8, 8)
    """
    empty = learnt(
        as_hashed(X, metric) if hashed is None else hashed,
        X.dtype,
        metric=metric,
        id_type="int64" if ids is None else type_of(ids),
        vector_type=vector_type,
        payload=None if payload is None else payload.columns,
        random_state=random_state,
        verbose=verbose,
        **settings,
    )
    empty = replace(empty, next_id=next_id)
    whole = with_rows(empty, X, ids, int(verbose), payload=payload, place=place, hashed=hashed)
    ready = measured(whole, X, ids, random_state, verbose=verbose, hashed=hashed)
    ready.sketch.forget()
    ready.kind.forget()
    return ready


def state_to_learn(n_features: int, metric: str, settings: Mapping[str, Any]) -> State:
    """An empty index, which learns when it has enough rows.

    Parameters
    ----------
    n_features : features of the rows that will be added
    metric : the metric of searches
    settings : the settings of a :class:`~densehash.index.sketches.unlearnt.Plan`. Wrong settings
        raise an error now, not when there are rows.

    Examples
    --------
    >>> state_to_learn(8, "l2", {"learn_at": 1000}).in_words(0)
    'empty, nothing learnt before 1,000 rows, 8 features, l2'
    """
    d = check_integer(n_features, "d", 1)
    check_choice(metric, "metric", METRICS)
    learn_at = check_integer(settings["learn_at"], "learn_at", 2)
    if not isinstance(settings.get("hasher", "auto"), str):
        raise InputError(
            "hasher must be the name of a method here, because it is kept until there are rows to "
            f"learn from, got a {type(settings['hasher']).__name__}"
        )
    seed = settings.get("random_state")
    chance = check_chance(seed)
    if isinstance(seed, RandomState):
        seed = chance.randint(2**31)
    plan = Plan(**{**settings, "random_state": None if seed is None else int(seed)})
    told = _told(plan)
    check_settings(
        d,
        learn_at,
        **{name: told[name] for name in ("sketch", "hasher", "n_bits", "kind", "groups_a_row")},
        options={name: told[name] for name in ("n_groups", "n_tables")},
        keeps_vectors=kept_type(np.dtype("float32"), plan.keep_vectors) is not None,
    )
    reason = f"flat: every row is compared until there are {learn_at:,} rows to learn from"
    return State(Unlearnt(d, plan), Flat(), metric, "int64", "float32", reason=reason)


def ready_for(
    state: State,
    X: NDArray[Any] | Source,
    ids: NDArray[Any] | None,
    payload: PayloadRows | None,
) -> State:
    """The index before it gets rows; the first rows decide which types it has.

    Parameters
    ----------
    state : the index
    X : the rows that will be added, (n, d)
    ids : ids of these rows; None: numbers
    payload : payload of these rows, or None

    Examples
    --------
    >>> state = state_to_learn(2, "l2", {"learn_at": 1000})
    >>> ready_for(state, np.ones((1, 2), np.uint8), np.array([b"a"]), None).vector_type
    'uint8'
    """
    id_type: IdType = "int64" if ids is None else type_of(ids)
    if state.is_open and isinstance(state.sketch, Unlearnt):
        return replace(
            state,
            id_type=id_type,
            vector_type=_first_type(X, state.sketch.plan),
            payload=None if payload is None else payload.columns,
        )
    if ids is None and state.id_type == "string":
        raise InputError("the ids of this index are strings: give ids for the rows that you add")
    if id_type != state.id_type:
        raise InputError(f"ids must be of type {state.id_type}, as in the index, got {id_type}")
    return state


def grown(state: State, place: Place = MEMORY, *, verbose: bool = False) -> State:
    """The index after it got rows: if they are enough, an index that has learnt from them.

    Examples
    --------
    >>> state = state_to_learn(8, "l2", {"learn_at": 8})
    >>> grown(with_rows(state, np.eye(8)[:7], None)).sketch.name
    'vectors'
    >>> grown(with_rows(state, np.eye(8), None)).sketch.name
    'signs'
    """
    if not isinstance(state.sketch, Unlearnt) or state.n_live < state.sketch.plan.learn_at:
        return state
    rows = joined([state.rows_of(segment) for segment in state.segments if segment.n_live])
    if rows.vectors is None:
        raise TypeError("there are no vectors to learn from")
    ids, X, payload = rows.ids, rows.vectors, rows.payload
    order = np.argsort(ids, kind="stable")  # the order in which rows were added must not matter
    if not np.array_equal(order, np.arange(len(ids))):
        ids, X = ids[order], Gathered([X], order)
        payload = None if payload is None else payload.take(order)
    plan = state.sketch.plan
    return built(
        X,
        ids,
        payload,
        metric=state.metric,
        vector_type=kept_type(X.dtype, plan.keep_vectors),
        random_state=plan.random_state,
        next_id=state.next_id,
        place=place,
        verbose=verbose,
        **_told(plan),
    )


def _told(plan: Plan) -> dict[str, Any]:
    """The settings of a plan for the sketch and the kind."""
    others = ("learn_at", "keep_vectors", "random_state")
    return {name: value for name, value in asdict(plan).items() if name not in others}


def _first_type(X: NDArray[Any] | Source, plan: Plan) -> str:
    """The type in which all vectors are kept until the index learns from them."""
    kept = kept_type(X.dtype, plan.keep_vectors)
    sketch = sketch_for(plan.sketch, plan.hasher, plan.kind, plan.n_bits)
    with_scales = kept == "int8" and X.dtype.kind == "f" and sketch.takes_scales
    if kept is None or with_scales:
        return str(kept_type(X.dtype, True))
    return kept
