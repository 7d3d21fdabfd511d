"""The disk under what is written: files that appear whole, room, errors in words, and turns.

Whatever changes the disk for good goes through the few functions here, so that tests can make
each of them fail.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
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
from typing import IO, TYPE_CHECKING, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from densehash.errors import FileError
from densehash.progress import bar

if TYPE_CHECKING:
    from typing_extensions import Buffer  # in collections.abc from Python 3.12 on

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = [
    "Lock",
    "check_room",
    "is_there",
    "lets_go",
    "link",
    "locked",
    "remove",
    "rename",
    "replacing",
    "sync",
    "sync_folder",
    "syncing",
    "write",
    "write_file",
    "writing",
]

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")

_POLL = 0.1  # seconds
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_NO_LINKS = {errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}

# What a system says that cannot flush folders, or not this one.
_NO_FOLDER_SYNC = {
    *(errno.EACCES, errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ENOSYS, errno.ENOTSUP),
    *(errno.EPERM, errno.EROFS),
}

_LOCK_FLAGS = os.O_RDWR | os.O_CREAT
for _name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"):  # a pipe there must not make us wait
    _LOCK_FLAGS |= getattr(os, _name, 0)


def is_there(path: Path) -> bool:
    """Whether a path exists, a link that leads nowhere included.

    Only the answer 'there is none' means no. A disk that cannot tell is an error, where
    ``Path.exists`` would say no, and whoever believed it would write over what is there.

    Raises
    ------
    OSError : if the disk cannot tell; :func:`writing` says it in words

    Examples
    --------
    >>> is_there(Path(".")), is_there(Path("no-such-file"))
    (True, False)
    """
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def check_room(folder: str | Path, needed: int) -> None:
    """Refuse to begin what the disk has no room for.

    Parameters
    ----------
    folder : where something will be written; it may not exist yet
    needed : bytes

    Examples
    --------
    >>> check_room(".", 0)
    """
    there = Path(folder).absolute()
    while not there.exists():
        there = there.parent
    if shutil.disk_usage(there).free < needed:
        raise _no_room(there, needed)


@contextmanager
def writing(path: Path, size: int | None = None) -> Iterator[None]:
    """Say in words what the disk refuses in a ``with`` block.

    Parameters
    ----------
    path : what is written, a file or a folder
    size : how many bytes it will have, if known; a full disk is then told what is missing

    Examples
    --------
    >>> path = Path("no-such-folder") / "part"
    >>> with writing(path):
    ...     path.write_bytes(b"")
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-folder/part cannot be written: No such file or directory
    """
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        if error.errno in _FULL and size is not None:
            with suppress(OSError):
                size -= path.stat().st_size if path.is_file() else 0
            raise _no_room(path.parent, size) from None
        raise FileError(f"{path} cannot be written: {error.strerror or error}") from error


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """A file to write to, which takes its place under the final name only when it is whole.

    It lies in the same folder. At the end of a ``with`` block it is flushed to the disk and
    renamed; after an error it is removed, and what was there before stays as it was.

    Parameters
    ----------
    path : the final name; a link is followed
    durable : False leaves out the flushing: a power cut may tear the file

    Yields
    ------
    Path of an empty file
    """
    target = Path(os.path.realpath(path))
    part = target.with_name(f".densehash-{secrets.token_hex(8)}.part")
    with writing(path), syncing(target.parent) as sync_names:
        try:
            _check_target(target)
            part.touch(exist_ok=False)
            yield part
            if durable:
                with part.open("rb+") as file:
                    sync(file)
            if is_there(target):
                shutil.copymode(target, part)
            rename(part, target)
        except BaseException:
            with suppress(OSError):
                remove(part)
            raise
        if durable:
            sync_names()


def write_file(path: Path, data: Buffer, *, durable: bool = True) -> None:
    """Write a file that appears whole or not at all.

    Parameters
    ----------
    path : the file; one that was there is replaced
    data : all its bytes
    durable : as in :func:`replacing`
    """
    with replacing(path, durable=durable) as part, part.open("wb") as file:
        write(file, data)


def write(file: IO[bytes], data: Buffer) -> None:
    """Write bytes to an open file."""
    file.write(data)


def sync(file: IO[bytes]) -> None:
    """Make what was written to an open file outlive a power cut.

    Examples
    --------
    >>> from tempfile import TemporaryFile
    >>> with TemporaryFile() as file:
    ...     sync(file)
    """
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def syncing(folder: Path) -> Iterator[Callable[[], None]]:
    """What makes new names in a folder outlive a power cut, where folders can be flushed.

    The folder is opened at once: a process that runs out of open files learns it before it renames
    anything, not between the renaming and the flushing.

    Yields
    ------
    A function that flushes the names

    Examples
    --------
    >>> with syncing(Path(".")) as sync_names:
    ...     sync_names()
    """
    descriptor: int | None = None
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise

    def sync_names() -> None:
        if descriptor is None:
            return
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise

    try:
        yield sync_names
    finally:
        if descriptor is not None:
            with suppress(OSError):  # all that counts is flushed
                os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder outlive a power cut, where folders can be flushed.

    Examples
    --------
    >>> sync_folder(Path("."))
    """
    with syncing(folder) as sync_names:
        sync_names()


def rename(part: Path, target: Path) -> None:
    """Give a file its final name, and replace what had it: at once, for all who look."""
    part.replace(target)


def remove(path: Path) -> None:
    """Remove a file, if it is there.

    Examples
    --------
    >>> remove(Path("no-such-file"))
    """
    path.unlink(missing_ok=True)


def link(path: Path, other: Path) -> None:
    """Give a file a second name; where the file system has no such names, make a copy."""
    try:
        os.link(path, other)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with other.open("xb") as file:
            write(file, path.read_bytes())
            sync(file)


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
        with writing(path.parent), bar(label, 1, shown=verbose) as advance:
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
    is_new = not is_there(path)
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
                    remove(path)
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
            remove(lock.path)


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


def _check_target(target: Path) -> None:
    if not is_there(target):
        return
    mode = target.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise FileError(f"{target} is {kind}, expected a file or nothing")
    if not os.access(target, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise FileError(f"{target} is write-protected")


def _no_room(folder: Path, needed: int) -> FileError:
    free = shutil.disk_usage(folder).free
    return FileError(
        f"{folder} is on a disk with {free:,} bytes free, and {needed:,} more are needed: "
        "make room, or choose another folder"
    )
