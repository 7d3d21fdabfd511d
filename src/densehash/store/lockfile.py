"""The lock file: it says who may write, and whether a new folder belongs to densehash.

A writer holds the lock. If a folder has no manifest yet, the lock file says that densehash made
everything in it.

Nothing is removed on a guess. A writer removes files that the manifest does not name, after it has
read the manifest. It also removes files if the lock file says that there never was a manifest.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from densehash import disk
from densehash.errors import FileError
from densehash.file_locks import Lock, locked
from densehash.store.manifest import FORMS, MANIFEST
from densehash.store.reading import State, find_manifest, peek

__all__ = [
    "TIMEOUT",
    "check_ours",
    "lock",
    "making",
    "never_published",
    "remove_files",
    "settle",
    "sweep",
]

TIMEOUT = 10.0
"""Seconds to wait for another writer."""

_LOCK = "writer.lock"
_OURS = re.compile(r"[0-9a-f]{16}-[a-z0-9_.-]+\.npy|\.densehash-[0-9a-f]{16}\.part")

# The content of the lock file while a folder has no manifest yet: it says that densehash wrote the
# files there. Later, the lock file is empty.
_NEW = b"densehash: nothing was published here yet\n"


def lock(folder: Path, timeout: float) -> AbstractContextManager[Lock]:
    """Hold the writer's lock for a ``with`` block.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, lock(Path(folder), 0) as held:
    ...     held.is_ours()
    True
    """
    return locked(folder / _LOCK.removesuffix(".lock"), timeout=timeout, keep=True)


def sweep(folder: Path, state: State) -> None:
    """Remove what a killed writer has left: densehash's files that the manifest does not name.

    Parameters
    ----------
    folder : a folder whose lock this process holds
    state : the state that was read from the folder; if it has no manifest, files are removed only
        if it never had one

    Examples
    --------
    >>> from densehash.store.manifest import INDEX
    >>> sweep(Path("no-such-folder"), peek(Path("no-such-folder"), INDEX))
    """
    with suppress(OSError):
        if state.data or never_published(folder):
            names = {path.name for path in folder.iterdir() if _OURS.fullmatch(path.name)}
            remove_files(folder, names - set(state.entries))


def never_published(folder: Path) -> bool:
    """Whether densehash made a folder that never had a manifest: a writer was killed too early.

    Raises
    ------
    OSError : if the folder cannot be read

    Examples
    --------
    >>> never_published(Path("no-such-folder"))
    False
    """
    return _lock_says(folder) == _NEW and find_manifest(folder) is None


@contextmanager
def making(folder: Path, form: str, timeout: float) -> Iterator[tuple[Lock, State]]:
    """Make a folder, or use one that densehash made, and hold its lock for a ``with`` block.

    If the block publishes nothing, a new folder is removed again.

    Yields
    ------
    The lock, and the state without its arrays; in a new folder, an empty state
    """
    made = _make_folder(folder, form)
    try:
        with lock(folder, timeout) as held:
            try:
                with disk.writing(folder):
                    check_ours(folder, form)  # again, now that nobody else can write
                    state = peek(folder, form)
                    if not state.data:
                        _mark_new(folder, held)
                    sweep(folder, state)
                    if made:
                        disk.sync_folder(folder.parent)
                yield held, state
            finally:
                with suppress(OSError):  # other files stay; the lock file says whose they are
                    if [path.name for path in folder.iterdir()] == [_LOCK] and held.is_ours():
                        disk.sync_folder(folder)  # the mark must go last, also after a power cut
                        disk.remove(held.path)
    finally:
        if made:
            with suppress(OSError):
                folder.rmdir()  # fails if the folder is not empty


def _make_folder(folder: Path, form: str) -> bool:
    """Make a folder if it does not exist, and return whether it did not; refuse foreign folders."""
    with disk.writing(folder):
        try:
            folder.mkdir()
        except FileExistsError:
            if not folder.is_dir():
                raise FileError(f"{folder} is no folder, expected one or nothing") from None
            check_ours(folder, form)
            return False
    return True


def check_ours(folder: Path, form: str) -> None:
    """Refuse a folder that is not empty, has no manifest, and was not begun by densehash.

    Parameters
    ----------
    folder : an existing folder
    form : what the folder will hold

    Raises
    ------
    OSError : if the folder cannot be read

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     check_ours(Path(folder), "densehash index")
    """
    names = {path.name for path in folder.iterdir()}
    if MANIFEST in names:
        return
    said = _lock_says(folder)
    others = names if said is None else names - {_LOCK}
    if said == _NEW:
        others = {name for name in others if not _OURS.fullmatch(name)}
    if others:
        raise FileError(
            f"{folder} is no {FORMS[form].noun}, and not empty: it has {min(others)!r}; "
            "choose another folder"
        )


def _lock_says(folder: Path) -> bytes | None:
    """What the lock file of a folder holds: nothing, or the mark of a new folder.

    None if there is no lock file, or if another program made it.
    """
    path = folder / _LOCK
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_size > len(_NEW):
        return None
    said = path.read_bytes()
    if said == _NEW:
        return said
    # If a power cut has torn the mark, nothing else was written yet.
    return b"" if _NEW.startswith(said) or not said.strip(b"\0") else None


def _mark_new(folder: Path, held: Lock) -> None:
    """Write the mark into the lock file, before anything else is written to the folder."""
    if _lock_says(folder) == _NEW:
        return
    try:
        held.file.truncate(0)
        disk.write(held.file, _NEW)
        disk.sync(held.file)
        disk.sync_folder(folder)
    except BaseException:
        with suppress(OSError):
            held.file.truncate(0)
        raise


def settle(folder: Path, held: Lock) -> None:
    """Remove the mark of a new folder, which has a manifest now.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, lock(Path(folder), 0) as held:
    ...     settle(Path(folder), held)
    """
    with suppress(OSError):
        if _lock_says(folder) == _NEW:
            held.file.truncate(0)


def remove_files(folder: Path, files: Iterable[str]) -> None:
    """Remove files that no manifest names.

    Readers of older states can still read what they have mapped. Windows does not remove open
    files: they stay until the next writer removes them.
    """
    for file in files:
        with suppress(OSError):
            disk.remove(folder / file)
