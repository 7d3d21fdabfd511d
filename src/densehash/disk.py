"""Writing to disk: files that appear complete or not at all, free space, and clear errors.

Everything that changes the disk uses the few functions here, so that tests can make each of them
fail.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from densehash.errors import FileError

if TYPE_CHECKING:
    from typing_extensions import Buffer  # in collections.abc from Python 3.12 on

__all__ = [
    "check_room",
    "is_there",
    "link",
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

_FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_LINKS = {errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}

# Errors of systems that cannot flush folders, or not this folder.
_NO_FOLDER_SYNC = {
    *(errno.EACCES, errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ENOSYS, errno.ENOTSUP),
    *(errno.EPERM, errno.EROFS),
}


def is_there(path: Path) -> bool:
    """Whether a path exists; a broken link exists, too.

    It is False only if the system says that there is no such file. If the disk does not answer, it
    raises an error; ``Path.exists`` would return False, and a caller could overwrite the file.

    Raises
    ------
    OSError : if the disk does not answer; :func:`writing` turns it into a clear error

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
    """Refuse to begin if the disk has too little free space.

    Parameters
    ----------
    folder : where something will be written; it may not exist yet
    needed : how many bytes will be written

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
    """Turn errors of the disk in a ``with`` block into clear errors.

    Parameters
    ----------
    path : what is written, a file or a folder
    size : how many bytes it will have, if known; if the disk is full, the error says how many are
        missing

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
    """A file to write to, which gets its final name only when it is complete.

    It is in the same folder. At the end of a ``with`` block it is flushed to the disk and renamed;
    after an error it is removed, and an old file of that name stays as it was.

    Parameters
    ----------
    path : the final name; a link is followed
    durable : False does not flush, so that a power cut may damage the file

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
    """Write a file that appears complete or not at all.

    Parameters
    ----------
    path : the file; an old one is replaced
    data : all its bytes
    durable : as in :func:`replacing`
    """
    with replacing(path, durable=durable) as part, part.open("wb") as file:
        write(file, data)


def write(file: IO[bytes], data: Buffer) -> None:
    """Write bytes to an open file."""
    file.write(data)


def sync(file: IO[bytes]) -> None:
    """Make what was written to an open file survive a power cut.

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
    """Open a folder whose new names shall survive a power cut, if folders can be flushed.

    The folder is opened at once, so that a process with too many open files gets the error before
    it renames anything, not between renaming and flushing.

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
            with suppress(OSError):  # everything important is flushed
                os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut, if folders can be flushed.

    Examples
    --------
    >>> sync_folder(Path("."))
    """
    with syncing(folder) as sync_names:
        sync_names()


def rename(part: Path, target: Path) -> None:
    """Give a file its final name, and replace an old file of that name, atomically."""
    part.replace(target)


def remove(path: Path) -> None:
    """Remove a file, if it exists.

    Examples
    --------
    >>> remove(Path("no-such-file"))
    """
    path.unlink(missing_ok=True)


def link(path: Path, other: Path) -> None:
    """Give a file a second name; if the file system has no hard links, make a copy."""
    try:
        os.link(path, other)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with other.open("xb") as file:
            write(file, path.read_bytes())
            sync(file)


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
