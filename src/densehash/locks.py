"""Locks that are open in a forked child.

Of the threads of a process only the one that forks lives on in the child. A lock that another one
held at that moment would never be given back there, so all locks of the package are made here, and
made anew in every child.
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
    """A lock for threads, which a forked child finds open.

    What it guards must be whole at any moment, or be read anew: the child may find it half-way.

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


class cached_property(functools.cached_property[Value]):  # noqa: N801  as the one it replaces
    """``functools.cached_property``, which has a lock, one for all objects, before Python 3.12.

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
        lock._at_fork_reinit()  # as the locks of the standard library are


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open_all)
