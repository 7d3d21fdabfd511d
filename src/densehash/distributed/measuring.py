"""How far searches of shards must look: measured once all of them are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.distributed.asking import found_together
from densehash.distributed.searching import Search
from densehash.distributed.shards import Home, Seen, open_shard, together
from densehash.index.measuring import rows_that_ask, settings_for, with_too_few
from densehash.index.question import EVERYTHING
from densehash.index.requests import USUAL_K, question_of
from densehash.index.state import State

__all__ = ["measured"]


def measured(
    home: Home, state: State, shards: Sequence[Seen], random_state: int | RandomState | None
) -> State:
    """What shards have in common, with how far to look.

    Some rows of all shards ask for their neighbours. Workers find the true ones, by comparing every
    row; this process then tries what finds them, in all shards.

    Parameters
    ----------
    home : where the shards are
    state : what they have in common
    shards : all of them, just written
    random_state : draws the rows that ask

    Examples
    --------
    >>> from pathlib import Path
    >>> from densehash.index import Index
    >>> state = Index.build(np.eye(8), n_bits=8, sketch="codes")._state
    >>> measured(Home(Path("no-such-folder"), {}), state, [], 0) is state  # not of codes
    True
    """
    if not state.sketch.estimates:
        return state
    if state.vector_type is None:
        reason = f"{state.reason}; no vectors are kept, so recall is not measured"
        return replace(state, reason=f"{reason}, and every estimate is looked at")
    rows = {one.name: one.n_rows for one in shards}
    numbers = rows_that_ask(sum(rows.values()), random_state)
    if len(numbers) == 0:
        return with_too_few(state, sum(rows.values()))
    whole = together(home, {name: open_shard(home, name) for name in rows})
    vectors, ids = _rows_at(whole, numbers)
    asked = question_of(state, vectors)
    search = Search(home, USUAL_K, 0, "exact", None, reach=EVERYTHING)
    truth = found_together(search, state, asked, rows, own=ids).distances
    return replace(state, settings=settings_for(whole, asked, truth, numbers))


def _rows_at(state: State, numbers: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Vectors and ids of rows, none of which was removed; numbers count over all segments, rising.

    Signs lie by rank, so a row's number is its position, too.
    """
    limits = np.cumsum([0, *(segment.n_rows for segment in state.segments)])
    parts = [numbers[(numbers >= low) & (numbers < high)] - low
             for low, high in zip(limits, limits[1:], strict=False)]
    both = list(zip(state.segments, parts, strict=True))
    vectors = np.concatenate([segment.kept[some] for segment, some in both])
    return vectors, np.concatenate([segment.ids[some] for segment, some in both])
