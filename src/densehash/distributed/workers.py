"""Which worker reads which shard: the same one in every search, so that files stay in memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import dask

from densehash.rows.dask import current_client

__all__ = ["at_worker", "n_workers", "shards_of_workers", "workers_for"]


def n_workers() -> int:
    """How many processes search.

    Examples
    --------
    >>> n_workers()
    1
    """
    client = current_client()
    return 1 if client is None else max(len(client.nthreads()), 1)


def workers_for(n_shards: int) -> list[str | None]:
    """The worker of each shard, the same in every search; None if there is no cluster.

    A worker has shards that follow each other. It merges their answers by itself, and their files
    stay in its memory. If it is gone, other workers take over.

    Examples
    --------
    >>> workers_for(2)
    [None, None]
    """
    client = current_client()
    threads = {} if client is None else client.nthreads()
    slots = [worker for worker, n in sorted(threads.items()) for _ in range(n)]
    return [slots[at * len(slots) // n_shards] if slots else None for at in range(n_shards)]


def shards_of_workers(names: Sequence[str]) -> dict[str | None, list[str]]:
    """The shards that each worker reads; None is this process, if there is no cluster.

    Examples
    --------
    >>> shards_of_workers(["shard-0", "shard-1"])
    {None: ['shard-0', 'shard-1']}
    """
    found: dict[str | None, list[str]] = {}
    for name, worker in zip(names, workers_for(len(names)), strict=True):
        found.setdefault(worker, []).append(name)
    return found


def at_worker(worker: str | None) -> AbstractContextManager[Any]:
    """Makes tasks of a ``with`` block run on a worker, unless it is gone.

    Examples
    --------
    >>> from dask.delayed import delayed
    >>> with at_worker(None):
    ...     delayed(len)([1, 2]).compute()
    2
    """
    if worker is None:
        return nullcontext()
    return dask.annotate(workers=[worker], allow_other_workers=True)  # type: ignore[no-any-return]
