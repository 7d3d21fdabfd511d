"""The disk under a download: its room, its errors in words, and turns between processes."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from densehash.errors import FileError
from densehash.progress import bar

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["check_room", "locked", "sync_folder", "writing"]

_POLL = 0.1  # seconds
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}


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
        raise FileError(f"{path} cannot be written: {error.strerror or error}") from None


@contextmanager
def locked(path: Path, *, verbose: bool = False) -> Iterator[None]:
    """Hold ``PATH.lock`` for a ``with`` block; wait while another process or thread holds it.

    The operating system holds the lock for a living process: one that was killed leaves none. A
    file system that knows no locks gives none.

    Parameters
    ----------
    path : what the lock is about; its folder exists
    verbose : whether a long wait shows a bar

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder) / "set"):
    ...     [path.name for path in Path(folder).iterdir()]
    ['set.lock']
    """
    lock = path.with_name(f"{path.name}.lock")
    with bar(f"waiting for another process that fetches {path.name}", 1, shown=verbose) as advance:
        while (file := _take(lock)) is None:
            advance(0)
            time.sleep(_POLL)
    try:
        yield
    finally:
        with suppress(OSError):  # Windows keeps open files
            lock.unlink()
        file.close()


def sync_folder(folder: Path) -> None:
    """Make new names in a folder outlive a power cut, where folders can be opened.

    Examples
    --------
    >>> sync_folder(Path("."))
    """
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _take(lock: Path) -> IO[bytes] | None:
    """The lock file, open and locked, or None where somebody else holds it."""
    file = lock.open("ab")
    try:
        if sys.platform == "win32":
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever held it before may have removed it between opening and locking.
        if os.path.samestat(os.fstat(file.fileno()), lock.stat()):
            return file
    except (BlockingIOError, PermissionError, FileNotFoundError):
        pass
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return file
        file.close()
        raise
    file.close()
    return None


def _no_room(folder: Path, needed: int) -> FileError:
    free = shutil.disk_usage(folder).free
    return FileError(
        f"{folder} is on a disk with {free:,} bytes free, and {needed:,} more are needed: "
        "make room, or choose another folder"
    )
