"""Locks on files, so that processes write in turn; the operating system keeps them."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from io import FileIO
from itertools import count
from pathlib import Path
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

from densehash import disk
from densehash.errors import FileError
from densehash.progress import bar

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["Lock", "lets_go", "locked"]

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")

_POLL = 0.1  # seconds between two tries
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}

_LOCK_FLAGS = os.O_RDWR | os.O_CREAT
for _name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"):  # nonblocking: opening a pipe must not wait
    _LOCK_FLAGS |= getattr(os, _name, 0)


class Lock:
    """A lock file that this process holds, from :func:`locked`.

    Attributes
    ----------
    path : the lock file
    file : the lock file, open for reading and writing
    """

    def __init__(self, path: Path, file: FileIO) -> None:
        self.path, self.file = path, file
        self.thread, self.number = threading.get_ident(), next(_numbers)

    def is_ours(self) -> bool:
        """Whether the locked file is still at its path: somebody may have removed or replaced it.

        Raises
        ------
        OSError : if the disk does not answer
        """
        if self.file.closed:
            return False
        try:
            return os.path.samestat(os.fstat(self.file.fileno()), self.path.lstat())
        except FileNotFoundError:
            return False


@contextmanager
def locked(
    path: Path,
    *,
    timeout: float | None = None,
    keep: bool = False,
    needed: bool = True,
    verbose: bool = False,
) -> Iterator[Lock]:
    """Hold ``PATH.lock`` during a ``with`` block; wait while another process or thread holds it.

    The operating system releases the lock when the process ends, even if it is killed, and forked
    children do not keep it.

    Parameters
    ----------
    path : what the lock protects; its folder must exist
    timeout : seconds to wait before FileError is raised; None waits without limit
    keep : whether to keep the lock file when the lock is released
    needed : False continues without a lock if the file system has no locks
    verbose : whether to show a progress bar for a long wait

    Raises
    ------
    FileError : if the lock is not free in time, or if it is needed and the file system has no locks

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder) / "set"):
    ...     [path.name for path in Path(folder).iterdir()]
    ['set.lock']
    """
    lock = path.with_name(f"{path.name}.lock")
    end = None if timeout is None else time.monotonic() + timeout
    label = f"waiting for another process to leave {path.name}"
    held: Lock | None = None
    try:
        with disk.writing(path.parent), bar(label, 1, shown=verbose) as advance:
            while (held := _take(lock, needed)) is None:
                if end is not None and time.monotonic() >= end:
                    raise FileError(
                        f"another process writes: it has held {lock} for more than {timeout:g} s"
                    )
                advance(0)
                time.sleep(_POLL)
        yield held
    finally:
        if held is not None:
            try:
                if not keep:
                    _remove_own(held)
            finally:
                # One call into C, with no Python code before it that a Ctrl-C could interrupt.
                # An error on closing is ignored: the work under the lock is done.
                try:  # noqa: SIM105
                    held.file.close()
                except OSError:
                    pass


def lets_go(function: Callable[_Given, _Found]) -> Callable[_Given, _Found]:
    """Decorate a function that uses :func:`locked`: it releases every lock that it took.

    Ctrl-C may come after the last line of a ``with`` block but before :func:`locked` continues. The
    lock would then be held as long as the traceback is kept, for example by an interactive shell.
    """

    @wraps(function)
    def letting_go(*args: _Given.args, **kwargs: _Given.kwargs) -> _Found:
        start, me = next(_numbers), threading.get_ident()
        try:
            return function(*args, **kwargs)
        finally:
            _close(lambda lock: lock.thread == me and lock.number > start)

    return letting_go


def _take(path: Path, needed: bool = True) -> Lock | None:
    """The lock file, open and locked, or None if somebody else holds the lock."""
    is_new = not disk.is_there(path)
    lock = Lock(path, FileIO(os.open(path, _LOCK_FLAGS, 0o666), "rb+"))
    _held[lock.number] = lock  # before it is locked, so that a child that is forked now releases it
    try:
        if not stat.S_ISREG(os.fstat(lock.file.fileno()).st_mode):
            raise FileError(f"{path} is not a regular file, expected one or nothing")  # noqa: TRY301
        _lock_file(lock.file)
        if lock.is_ours():  # the last holder may have removed it after we opened it
            return lock
    except BlockingIOError:
        pass
    except BaseException as error:
        has_none = isinstance(error, OSError) and error.errno in _NO_LOCKS
        if has_none and not needed:
            return lock
        with suppress(OSError):
            lock.file.close()
        if isinstance(error, OSError) and has_none:
            if is_new:
                with suppress(OSError):
                    disk.remove(path)
            raise FileError(
                f"{path.parent} is on a file system without locks ({error.strerror}), on which two "
                "writers would destroy each other's work: write to another one. Reading works"
            ) from error
        raise
    with suppress(OSError):
        lock.file.close()
    return None


def _lock_file(file: FileIO) -> None:
    """Lock a file for this process; BlockingIOError if another process holds it."""
    if sys.platform == "win32":
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(error.errno, error.strerror) from None
    else:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_own(lock: Lock) -> None:
    """Remove a lock file that we hold, unless another file has replaced it."""
    with suppress(OSError):  # Windows does not remove open files
        if lock.is_ours():
            disk.remove(lock.path)


# Weak: if a Ctrl-C at a bad moment leaves a lock without an owner, it is released.
_held: WeakValueDictionary[int, Lock] = WeakValueDictionary()
_numbers = count()  # numbers of locks, in the order in which they are taken


def _leave_locks() -> None:
    """In a forked child: close the locks of the parent, so that only the parent holds them."""
    _close(lambda _: True)
    _held.clear()


def _close(which: Callable[[Lock], bool]) -> None:
    for reference in _held.valuerefs():  # a copy: other threads may take locks meanwhile
        lock = reference()
        if lock is not None and which(lock):
            with suppress(OSError):
                lock.file.close()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_leave_locks)
