"""Locks that are free in a forked child.

Only the thread that forks continues in the child. A lock that another thread held at that moment
would never be released there. So all locks of the package are made here, and every child resets
them.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakSet

__all__ = ["cached_property", "new_lock"]

Value = TypeVar("Value")

_living: WeakSet[Any] = WeakSet()


def new_lock() -> threading.Lock:
    """A lock for threads, which is free in a forked child.

    What it guards must be valid at every moment, or be read again: a fork may interrupt a change.

    Examples
    --------
    >>> lock = new_lock()
    >>> with lock:
    ...     lock.locked()
    True
    """
    lock = threading.Lock()
    _living.add(lock)
    return lock


class cached_property(functools.cached_property[Value]):  # noqa: N801  named as the one it replaces
    """``functools.cached_property``; before Python 3.12, that has a lock, which a child resets.

    Examples
    --------
    >>> class Circle:
    ...     @cached_property
    ...     def area(self):
    ...         print("computed")
    ...         return 3.14
    >>> circle = Circle()
    >>> circle.area, circle.area
    computed
    (3.14, 3.14)
    """

    def __init__(self, func: Callable[[Any], Value]) -> None:
        super().__init__(func)
        if hasattr(self, "lock"):
            _living.add(self.lock)


def _open_all() -> None:
    for lock in tuple(_living):
        lock._at_fork_reinit()  # the standard library does the same with its own locks


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open_all)
