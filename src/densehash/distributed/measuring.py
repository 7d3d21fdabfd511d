"""Measures how far searches of shards must look, after all shards are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
from dask.delayed import delayed
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.choices import MetricName
from densehash.distributed.messages import Asked
from densehash.distributed.shards import Home, Seen, open_shard, together
from densehash.index.arguments import USUAL_K, question_of
from densehash.index.candidates import exactly
from densehash.index.encoding import as_hashed
from densehash.index.measuring import rows_that_ask, settings_for, with_too_few
from densehash.index.state import State
from densehash.rows.dask import compute
from densehash.truth import nearest

__all__ = ["measured"]


def measured(
    home: Home, state: State, shards: Sequence[Seen], random_state: int | RandomState | None
) -> State:
    """What shards have in common, with settings that say how far to look.

    Some rows of all shards are used as queries. Workers find their true neighbours, by comparing
    every row. Then this process tries, in all shards, which settings find them.

    Parameters
    ----------
    home : where the shards are
    state : what they have in common
    shards : all shards, which were just written
    random_state : draws the rows that are used as queries
    """
    if not state.sketch.estimates:
        return state
    if not state.is_exact:
        why, how = "no vectors are kept", "every estimate is looked at"
        if state.vector_type is not None:  # only the chunks have the exact vectors
            why, how = "vectors are kept with scales", "every row is compared"
        return replace(state, reason=f"{state.reason}; {why}, so recall is not measured, and {how}")
    rows = {one.name: one.n_rows for one in shards}
    numbers = rows_that_ask(sum(rows.values()), random_state)
    if len(numbers) == 0:
        return with_too_few(state, sum(rows.values()))
    whole = together(home, {name: open_shard(home, name) for name in rows})
    vectors, ids = _rows_at(whole, numbers)
    asked = question_of(state, vectors)
    look = delayed(_distances_in, pure=False)
    told = delayed(Asked(asked, margins=False), pure=False, traverse=False)
    truth = _least(compute([look(home, name, told, ids) for name in rows]))
    return replace(state, settings=settings_for(whole, asked, truth, numbers))


def _distances_in(home: Home, name: str, asked: Asked, own: NDArray[Any]) -> NDArray[np.float32]:
    """On a worker: distances of queries to their nearest rows in a shard, without themselves."""
    state = open_shard(home, name).state
    question = asked.of(state)
    metric = cast(MetricName, "l2" if state.metric == "cosine" else state.metric)
    parts = []
    for segment in state.segments:
        rows = as_hashed(segment.kept, state.metric)
        k = min(USUAL_K + 1, segment.n_rows)
        near = nearest(question.hashed, rows, k=k, metric=metric)
        others = np.where(segment.ids[near] == own[:, np.newaxis], -1, near)
        distances, positions = exactly(segment, question, others, USUAL_K)
        parts.append(np.where(positions >= 0, distances, np.float32(np.inf)))
    return _least(parts)


def _least(parts: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """The smallest distances, one for each neighbour, in rising order."""
    return np.sort(np.concatenate(parts, axis=1), axis=1)[:, :USUAL_K]


def _rows_at(state: State, numbers: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Vectors and ids of rows, by rising numbers, counted over all segments; no row was removed.

    With signs, rows are ordered by rank, so the number of a row is its position, too.
    """
    limits = np.cumsum([0, *(segment.n_rows for segment in state.segments)])
    parts = [numbers[(numbers >= low) & (numbers < high)] - low for low, high in pairwise(limits)]
    both = list(zip(state.segments, parts, strict=True))
    vectors = np.concatenate([segment.kept[some] for segment, some in both])
    return vectors, np.concatenate([segment.ids[some] for segment, some in both])
