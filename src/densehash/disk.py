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
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING
from weakref import WeakSet

from densehash.errors import FileError
from densehash.progress import bar

if TYPE_CHECKING:
    from typing_extensions import Buffer  # in collections.abc from Python 3.12 on

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = [
    "check_room",
    "locked",
    "remove",
    "rename",
    "replacing",
    "sync",
    "sync_folder",
    "write",
    "write_file",
    "writing",
]

_POLL = 0.1  # seconds
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}

# What a system says that cannot flush folders, or not this one.
_NO_FOLDER_SYNC = {
    *(errno.EACCES, errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ENOSYS, errno.ENOTSUP),
    *(errno.EPERM, errno.EROFS),
}

_LOCK_FLAGS = os.O_RDWR | os.O_CREAT
for _name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"):  # a pipe there must not make us wait
    _LOCK_FLAGS |= getattr(os, _name, 0)


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
            have = path.stat().st_size if path.is_file() else 0
            raise _no_room(path.parent, size - have) from None
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

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.txt")
    ...     with replacing(path) as part:
    ...         _ = part.write_text("whole")
    ...         before = path.exists()
    ...     before, path.read_text()
    (False, 'whole')
    """
    target = Path(os.path.realpath(path))
    part = target.with_name(f".densehash-{secrets.token_hex(8)}.part")
    with writing(path):
        try:
            _check_target(target)
            part.touch(exist_ok=False)
            yield part
            if durable:
                with part.open("rb+") as file:
                    sync(file)
            if target.exists():
                shutil.copymode(target, part)
            rename(part, target)
        except BaseException:
            with suppress(OSError):
                remove(part)
            raise
        if durable:
            sync_folder(target.parent)


def write_file(path: Path, data: Buffer, *, durable: bool = True) -> None:
    """Write a file that appears whole or not at all.

    Parameters
    ----------
    path : the file; one that was there is replaced
    data : all its bytes
    durable : as in :func:`replacing`

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_file(Path(folder, "a.txt"), b"whole")
    ...     Path(folder, "a.txt").read_bytes()
    b'whole'
    """
    with replacing(path, durable=durable) as part, part.open("wb") as file:
        write(file, data)


def write(file: IO[bytes], data: Buffer) -> None:
    """Write bytes to an open file.

    Examples
    --------
    >>> from io import BytesIO
    >>> file = BytesIO()
    >>> write(file, b"some")
    >>> file.getvalue()
    b'some'
    """
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


def sync_folder(folder: Path) -> None:
    """Make new names in a folder outlive a power cut, where folders can be flushed.

    Examples
    --------
    >>> sync_folder(Path("."))
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def rename(part: Path, target: Path) -> None:
    """Give a file its final name, and replace what had it: at once, for all who look.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     part, target = Path(folder, "part"), Path(folder, "target")
    ...     part.touch()
    ...     rename(part, target)
    ...     part.exists(), target.exists()
    (False, True)
    """
    part.replace(target)


def remove(path: Path) -> None:
    """Remove a file, if it is there.

    Examples
    --------
    >>> remove(Path("no-such-file"))
    """
    path.unlink(missing_ok=True)


@contextmanager
def locked(
    path: Path, *, timeout: float | None = None, keep: bool = False, verbose: bool = False
) -> Iterator[None]:
    """Hold ``PATH.lock`` for a ``with`` block; wait while another process or thread holds it.

    The operating system holds the lock for a living process: one that was killed leaves none,
    and neither do children that it forked. A file system that knows no locks gives none.

    Parameters
    ----------
    path : what the lock is about; its folder exists
    timeout : seconds to wait, after which FileError is raised; None waits on
    keep : whether the file stays when the lock is given back; it holds nothing then
    verbose : whether a long wait shows a bar

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
    file: IO[bytes] | None = None
    try:
        with bar(label, 1, shown=verbose) as advance:
            while (file := _take(lock)) is None:
                if end is not None and time.monotonic() >= end:
                    raise FileError(
                        f"another process writes: it has held {lock} for more than {timeout:g} s"
                    )
                advance(0)
                time.sleep(_POLL)
        _held.add(file)
        yield
    finally:
        if file is not None:
            if not keep:
                with suppress(OSError):  # Windows keeps open files
                    remove(lock)
            _held.discard(file)
            file.close()


def _take(lock: Path) -> IO[bytes] | None:
    """The lock file, open and locked, or None where somebody else holds it."""
    file = os.fdopen(os.open(lock, _LOCK_FLAGS, 0o666), "rb+", buffering=0)
    try:
        _check_lock(file, lock)
        if sys.platform == "win32":
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever held it before may have removed it between opening and locking.
        if os.path.samestat(os.fstat(file.fileno()), lock.stat()):
            return file
    except (BlockingIOError, PermissionError, FileNotFoundError):
        pass
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in _NO_LOCKS:
            return file
        file.close()
        raise
    file.close()
    return None


def _check_lock(file: IO[bytes], lock: Path) -> None:
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        raise FileError(f"{lock} is not a regular file, expected one or nothing")


# Weak: a lock whose file nobody has any more, after a Ctrl-C at a bad moment, is given back.
_held: WeakSet[IO[bytes]] = WeakSet()


def _leave_locks() -> None:
    """In a forked child: what its parent holds ends with the parent."""
    for file in tuple(_held):
        file.close()
    _held.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_leave_locks)


def _check_target(target: Path) -> None:
    if not target.exists():
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
