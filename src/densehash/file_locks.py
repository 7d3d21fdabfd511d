"""Turns of writers: a lock on a file, which the operating system holds for a living process."""

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

_POLL = 0.1  # seconds
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}

_LOCK_FLAGS = os.O_RDWR | os.O_CREAT
for _name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"):  # a pipe there must not make us wait
    _LOCK_FLAGS |= getattr(os, _name, 0)


class Lock:
    """A lock file that this process holds, from :func:`locked`.

    Attributes
    ----------
    path : the lock file
    file : it, open for reading and writing
    """

    def __init__(self, path: Path, file: FileIO) -> None:
        self.path, self.file = path, file
        self.thread, self.number = threading.get_ident(), next(_numbers)

    def is_ours(self) -> bool:
        """Whether others still see the file that is locked: somebody may have removed it.

        Raises
        ------
        OSError : if the disk cannot tell
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
    """Hold ``PATH.lock`` for a ``with`` block; wait while another process or thread holds it.

    The operating system holds the lock for a living process: one that was killed leaves none,
    and neither do children that it forked.

    Parameters
    ----------
    path : what the lock is about; its folder exists
    timeout : seconds to wait, after which FileError is raised; None waits on
    keep : whether the file stays when the lock is given back
    needed : False goes on without a lock where the file system has none
    verbose : whether a long wait shows a bar

    Raises
    ------
    FileError : if the lock is not to be had in time, or needed where there are no locks

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
                # One call of the interpreter's own, and nothing before it that a Ctrl-C could cut.
                # What is done is done, whatever the disk says to the closing of a lock.
                try:  # noqa: SIM105
                    held.file.close()
                except OSError:
                    pass


def lets_go(function: Callable[_Given, _Found]) -> Callable[_Given, _Found]:
    """Decorate a function that uses :func:`locked`: no lock that it took outlives it.

    Ctrl-C may come after the last line of a ``with`` block, before :func:`locked` goes on. The lock
    would then be held as long as somebody keeps the traceback, as interactive shells do.
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
    """The lock file, open and locked, or None where somebody else holds it."""
    is_new = not disk.is_there(path)
    lock = Lock(path, FileIO(os.open(path, _LOCK_FLAGS, 0o666), "rb+"))
    _held[lock.number] = lock  # before it is locked: a child that is forked now lets go of it, too
    try:
        if not stat.S_ISREG(os.fstat(lock.file.fileno()).st_mode):
            raise FileError(f"{path} is not a regular file, expected one or nothing")  # noqa: TRY301
        _lock_file(lock.file)
        if lock.is_ours():  # whoever held it before may have removed it before it was locked
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
    """Lock a file for this process; BlockingIOError where another has it."""
    if sys.platform == "win32":
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(error.errno, error.strerror) from None
    else:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_own(lock: Lock) -> None:
    """Remove a lock file that is held, unless another has taken its place."""
    with suppress(OSError):  # Windows keeps open files
        if lock.is_ours():
            disk.remove(lock.path)


# Weak: a lock that nobody has any more, after a Ctrl-C at a bad moment, is given back.
_held: WeakValueDictionary[int, Lock] = WeakValueDictionary()
_numbers = count()  # of locks, in the order in which they are taken


def _leave_locks() -> None:
    """In a forked child: what its parent holds ends with the parent."""
    _close(lambda _: True)
    _held.clear()


def _close(which: Callable[[Lock], bool]) -> None:
    for reference in _held.valuerefs():  # a list: other threads may take locks meanwhile
        lock = reference()
        if lock is not None and which(lock):
            with suppress(OSError):
                lock.file.close()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_leave_locks)
