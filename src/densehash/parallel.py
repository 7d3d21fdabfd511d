"""Threads: how many to use, and how to keep the matrix library from starting its own.

The number is that of numpy's matrix library (BLAS): every CPU that this process may use, unless
the environment (``OPENBLAS_NUM_THREADS``, ``OMP_NUM_THREADS``) or ``threadpoolctl`` limits it.
Work is split into blocks of rows, one thread for each block, and each block computes with a single
BLAS thread. So the bytes of a result never depend on the number of threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import numpy as np

from densehash.locks import new_lock

__all__ = ["map_in_order", "n_threads", "one_blas_thread"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_MOST_THREADS = 64


class _Held:
    """How many calls now keep BLAS at one thread, and the limits before the first of them."""

    lock = new_lock()
    depth = 0
    n_threads_before: tuple[int, ...] = ()


@cache
def _libraries() -> tuple[Any, ...]:
    """The matrix libraries of numpy and scipy; all libraries, if they share one of the system.

    Those of others, such as faiss or torch, are not used here and are left alone.
    """
    # Imported here, because searches do not need it. scipy's BLAS must be loaded before the
    # libraries are listed.
    import scipy.linalg  # noqa: PLC0415
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415

    found = ThreadpoolController().select(user_api="blas").lib_controllers
    packages = (np.__path__[0], scipy.__path__[0])
    own = [library for library in found if library.filepath.startswith(packages)]
    return tuple(own or found)


def _counts() -> tuple[int, ...]:
    return tuple(library.num_threads for library in _libraries())


def n_threads() -> int:
    """How many threads a call may use.

    Examples
    --------
    >>> from threadpoolctl import threadpool_limits
    >>> with threadpool_limits(1):
    ...     n_threads()
    1
    """
    with _Held.lock:
        counts = _Held.n_threads_before if _Held.depth else _counts()
        # Prefers numpy's own: scipy's may have been loaded after a limit was set.
        own = [
            count
            for library, count in zip(_libraries(), counts, strict=True)
            if library.filepath.startswith(np.__path__[0])
        ]
    return min(max(own or counts, default=1), _MOST_THREADS)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep every matrix product at one thread during a ``with`` block.

    The limit holds for the whole process. Calls may overlap, in one thread or several: the first
    sets the limit, and the last to end removes it.

    Examples
    --------
    >>> with one_blas_thread():
    ...     list(_counts()[:1])
    [1]
    """
    with _Held.lock:
        if _Held.depth == 0:
            _Held.n_threads_before = _counts()
            _set_counts((1,) * len(_Held.n_threads_before))
        _Held.depth += 1
    try:
        yield
    finally:
        with _Held.lock:
            _Held.depth -= 1
            if _Held.depth == 0:
                _set_counts(_Held.n_threads_before)


def _set_counts(counts: tuple[int, ...]) -> None:
    for library, count in zip(_libraries(), counts, strict=True):
        # From threadpoolctl 3.7 on, only the thread that set a limit first may change it, and
        # others are ignored; but the last to end is not always the thread that came first.
        release = getattr(library, "clear_controlling_thread", None)
        if release is None:
            library.set_num_threads(count)
        else:
            release(force=True)
            library.set_num_threads(count)
            release(force=True)


def _keep_one() -> None:
    with _Held.lock:
        if _Held.depth:
            _set_counts((1,) * len(_Held.n_threads_before))


def map_in_order(
    function: Callable[[Item], Answer],
    items: Iterable[Item],
    threads: int,
    *,
    ahead: bool = False,
) -> Generator[Answer, None, None]:
    """Answers of ``function`` in the order of ``items``, computed by several threads.

    At most twice as many items as threads are in work. With ``ahead``, the calling thread takes
    items while others are computed, even if only one thread computes. The first item that fails, in
    their order, raises here; later items may have been computed, and their answers are dropped.

    Examples
    --------
    >>> list(map_in_order(lambda number: number**2, range(5), threads=2))
    [0, 1, 4, 9, 16]
    """
    if threads == 1 and not ahead:
        yield from map(function, items)
        return
    waiting: deque[Future[Answer]] = deque()
    # If BLAS runs on OpenMP, a limit holds only for the thread that set it.
    limit = _keep_one if _Held.depth else None
    with ThreadPoolExecutor(threads, initializer=limit) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) == 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
