"""Finds ids that are in two shards: workers compare them in ranges of ids.

Ids rise in every segment, so a worker reads only its range from each file, and all ids are read
once. Shards whose ids do not overlap are not read at all; if rows are numbered, no shards overlap.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
from dask.delayed import delayed
from numpy.typing import NDArray

from densehash.distributed.shards import Home, Seen, open_shard
from densehash.index.ids import find, no_ids, shown
from densehash.rows.dask import compute

__all__ = ["double_id"]

_RANGE_ROWS = 1 << 22  # ids that a worker compares at a time, about


def double_id(
    home: Home, new: Sequence[Seen], old: Sequence[Seen] = ()
) -> tuple[Any, list[str]] | None:
    """An id that is in two shards, and the names of these shards; None if all ids differ.

    Parameters
    ----------
    home : where the shards are
    new : shards whose ids must differ from all others
    old : shards that are not compared with each other

    Examples
    --------
    >>> from pathlib import Path
    >>> double_id(Home(Path("no-such-folder"), {}), []) is None
    True
    """
    new = [one for one in new if one.n_rows]
    old = [one for one in old if one.n_rows and any(_overlap(one, other) for other in new)]
    if not old and not _any_overlap(new):
        return None
    limits = _limits([*new, *old])
    look = delayed(_double_in, pure=False)
    names = [one.name for one in new], [one.name for one in old]
    answers = compute(
        [look(home, *names, *pair) for pair in zip([None, *limits], [*limits, None], strict=True)]
    )
    return next((answer for answer in answers if answer is not None), None)


def _overlap(one: Seen, two: Seen) -> bool:
    return bool(one.ids[0] <= two.ids[-1] and two.ids[0] <= one.ids[-1])


def _any_overlap(shards: Sequence[Seen]) -> bool:
    ordered = sorted(shards, key=lambda one: one.ids[0].item())
    return any(_overlap(one, two) for one, two in itertools.pairwise(ordered))


def _limits(shards: Sequence[Seen]) -> list[Any]:
    """Ids that cut all ids into ranges of about the same size."""
    n_ranges = -(-sum(one.n_rows for one in shards) // _RANGE_ROWS)
    ids = np.sort(np.concatenate([one.ids for one in shards]))
    at = np.linspace(0, len(ids), n_ranges + 1)[1:-1].astype(int)
    return sorted({ids[one].item() for one in at})


def _double_in(
    home: Home, new: Sequence[str], old: Sequence[str], low: Any, high: Any
) -> tuple[Any, list[str]] | None:
    """An id from `low` on, below `high`, that is in two shards; None stands for no limit."""
    parts = {name: _ids_between(home, name, low, high) for name in new}
    ids = np.sort(np.concatenate([*parts.values()]))
    same = np.flatnonzero(ids[1:] == ids[:-1])
    if len(same):
        double = ids[same[0]]
        return shown(double), [name for name, part in parts.items() if (part == double).any()]
    for name in old:
        other = _ids_between(home, name, low, high)
        there = find(ids, other)[1]
        if there.any():
            return shown(other[there.argmax()]), [name]
    return None


def _ids_between(home: Home, name: str, low: Any, high: Any) -> NDArray[Any]:
    state = open_shard(home, name).state
    parts = [no_ids(state.id_type)]
    for segment in state.segments:
        first = 0 if low is None else bisect_left(segment.ids, low)
        last = segment.n_rows if high is None else bisect_left(segment.ids, high)
        ids = segment.ids[first:last]
        parts.append(ids if segment.live is None else ids[segment.live[first:last]])
    return np.concatenate(parts)
