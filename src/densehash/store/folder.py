"""The folder: one writer changes it as a whole, while any number of readers keep what they have.

A change writes new files, flushes them, and replaces the manifest; the manifest alone says which
files count. Whoever is killed in between leaves files that nobody names, and the next writer
removes them.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from densehash import disk
from densehash.errors import FileError, InputError
from densehash.progress import bar
from densehash.source import Source
from densehash.store.arrays import (
    Array,
    check_file,
    open_array,
    open_regular,
    plan_array,
    write_array,
)
from densehash.store.manifest import (
    DEEPEST,
    MANIFEST,
    MOST_BYTES,
    MOST_CHECKED,
    Entry,
    Manifest,
    decode,
    encode,
    entries_of,
)

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11 on

__all__ = ["Change", "Store", "verify"]

_LOCK = "writer.lock"
_TIMEOUT = 10.0  # seconds
_TRIES = 100  # of a reader, while writers publish faster than it opens files
_SMALL = 1 << 16  # bytes of an array that is not worth a map

_KEYS = re.compile(r"[a-z0-9_.-]{1,128}")
_OURS = re.compile(r"[0-9a-f]{16}-[a-z0-9_.-]+\.npy|\.densehash-[0-9a-f]{16}\.part")


class _State(NamedTuple):
    """What was published at one time; it stays readable for whoever holds it."""

    data: bytes  # of the manifest
    manifest: Manifest
    arrays: Mapping[str, NDArray[Any]]  # by file

    @property
    def content(self) -> dict[str, Any]:
        """A new tree with the arrays in their places."""
        content: dict[str, Any] = _replaced(
            self.manifest.content, lambda entry: self.arrays[entry.file]
        )
        return content

    @property
    def mark(self) -> str:
        """The checksum of the manifest."""
        return self.data[12:76].decode("ascii")

    @property
    def entries(self) -> dict[str, Entry]:
        """By file."""
        return {entry.file: entry for entry in entries_of(self.manifest.content)}


class Store:
    """Plain values and arrays in a folder: ``{"kind": "flat", "segments": [{"ids": array}]}``.

    Made by :meth:`create` or :meth:`open`. It shows one published state, and keeps it while others
    write, until :meth:`refresh` or :meth:`change` takes the newest.

    Attributes
    ----------
    path : the folder

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     store = Store.create(Path(folder, "a.dh"), {"name": "one", "ids": np.arange(3)})
    ...     with store.change() as change:
    ...         _ = change.publish({**change.content, "name": "two"})  # the ids stay where they are
    ...     store.generation, Store.open(store.path).content
    (2, {'name': 'two', 'ids': array([0, 1, 2])})
    """

    path: Path

    def __init__(self, path: Path, state: _State) -> None:
        self.path = path
        self._state = state

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        content: Mapping[str, Any],
        *,
        checked: Collection[str] = (),
        timeout: float = _TIMEOUT,
        verbose: bool = False,
    ) -> Self:
        """Make a folder, or replace all that is in one of ours.

        Parameters
        ----------
        path : a folder that is new, empty, or has been made by this function
        content, checked, verbose : as in :meth:`Change.publish`
        timeout : as in :meth:`change`

        Raises
        ------
        InputError : if the content cannot be stored
        FileError : if the folder holds anything else, or cannot be written. Then all is as it was.
        """
        folder = Path(path).absolute()
        made = _make_folder(folder)
        with ExitStack() as stack:
            try:
                _lock(stack, folder, timeout)
            except BaseException:
                _unmake_folder(folder, made=made, locked=False)
                raise
            with disk.writing(folder):
                try:
                    _check_ours(folder)  # again, now that nobody else can write
                    old = _peek(folder) if os.path.lexists(folder / MANIFEST) else None
                    _sweep(folder, old)
                    if made:
                        disk.sync_folder(folder.parent)
                    state = _publish(folder, old, content, checked, verbose=verbose)
                except BaseException:
                    _unmake_folder(folder, made=made, locked=True)
                    raise
            _sweep(folder, state)
        return cls(folder, state)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open a folder: its manifest, small arrays and those marked as checked are checked.

        Parameters
        ----------
        path : a folder that :meth:`create` has made

        Raises
        ------
        FileError : if it is missing, damaged, or of a newer version
        """
        folder = Path(path).absolute()
        return cls(folder, _load(folder, None))

    @property
    def generation(self) -> int:
        """Rises by one with each change."""
        return self._state.manifest.generation

    @property
    def mark(self) -> str:
        """Tells states apart, also where a folder was made anew and counts from 1 again."""
        return self._state.mark

    @property
    def content(self) -> dict[str, Any]:
        """What was stored, in dicts and lists that may be changed; arrays are read-only."""
        return self._state.content

    @property
    def n_bytes(self) -> int:
        """On the disk, of the manifest and all files that it names."""
        sizes = (entry.n_bytes for entry in entries_of(self._state.manifest.content))
        return len(self._state.data) + sum(sizes)

    @contextmanager
    def change(self, *, timeout: float = _TIMEOUT) -> Iterator[Change]:
        """Be the only writer for a ``with`` block, from the newest state on.

        Parameters
        ----------
        timeout : seconds to wait for another writer

        Yields
        ------
        Change, with the newest state, which is that of the store, too

        Raises
        ------
        FileError : if another process writes all that time, or the folder cannot be written
        """
        with ExitStack() as stack:
            _lock(stack, self.path, timeout)
            self._state = state = _load(self.path, self._state)
            _sweep(self.path, state)
            change = Change(self, state)
            try:
                yield change
            finally:
                change._is_over = True

    def refresh(self) -> bool:
        """Take the newest state.

        Returns
        -------
        Whether there was another one
        """
        state = _load(self.path, self._state)
        changed = state is not self._state
        self._state = state
        return changed

    def verify(self, *, verbose: bool = False) -> None:
        """Check every byte on the disk: :func:`verify` of the folder."""
        verify(self.path, verbose=verbose)


class Change:
    """The right to write, from :meth:`Store.change`; it ends with the ``with`` block."""

    def __init__(self, store: Store, state: _State) -> None:
        self._store = store
        self._state = state  # its own: other threads may refresh the store
        self._is_over = False

    @property
    def path(self) -> Path:
        """The folder."""
        return self._store.path

    @property
    def generation(self) -> int:
        """Of the newest state."""
        return self._state.manifest.generation

    @property
    def mark(self) -> str:
        """Of the newest state, as in :class:`Store`."""
        return self._state.mark

    @property
    def content(self) -> dict[str, Any]:
        """The newest state, in dicts and lists that may be changed; arrays are read-only."""
        return self._state.content

    def publish(
        self, content: Mapping[str, Any], *, checked: Collection[str] = (), verbose: bool = False
    ) -> dict[str, Any]:
        """Replace all content at once; it may be done several times.

        Parameters
        ----------
        content : str, bool, int (64 bits), finite float, None, and lists and dicts of them, with
            arrays (or a Source) anywhere. An array that is the very object which the store gave
            stays the file that it is; all others become new files.
        checked : keys of the content; arrays in there, if they have less than 16 MB, are read and
            checked whenever the folder is opened. Arrays of at most 64 kB always are.
        verbose : whether long work shows a bar

        Returns
        -------
        The new content, as whoever opens the folder gets it

        Raises
        ------
        InputError : if the content cannot be stored
        FileError : if it cannot be written; after any error, what was there before is still there
        """
        if self._is_over:
            raise InputError("the change is over: its with block has ended")
        state = _publish(self.path, self._state, content, checked, verbose=verbose)
        self._state = self._store._state = state
        _sweep(self.path, state)
        return state.content


def verify(path: str | os.PathLike[str], *, verbose: bool = False) -> None:
    """Check every byte of what a folder holds now, whether it can be opened or not.

    Parameters
    ----------
    path : the folder
    verbose : whether long work shows a bar

    Raises
    ------
    FileError : if the manifest is wrong, or any file that it names; all of them are listed

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     store = Store.create(Path(folder, "a.dh"), {"ids": np.arange(3)})
    ...     verify(store.path)
    """
    folder = Path(path).absolute()
    data = _read_manifest(folder)
    for _ in range(_TRIES):
        entries = list(entries_of(decode(data, folder / MANIFEST).content))
        total = sum(entry.n_bytes for entry in entries)
        wrong = []
        with bar(f"checking {folder.name}", total, shown=verbose) as advance:
            for entry in entries:
                try:
                    check_file(folder, entry, advance)
                except FileError as error:
                    wrong.append(str(error))
        if not wrong:
            return
        again = _read_manifest(folder)
        if again == data:
            break
        data = again  # a writer has removed what we were looking at
    raise FileError(f"{len(wrong)} of {len(entries)} files are wrong: " + "; ".join(wrong))


# --- reading ------------------------------------------------------------------------------


def _read_manifest(folder: Path) -> bytes:
    path = folder / MANIFEST
    if not os.path.lexists(path):
        trouble = "is no index: it has no manifest.json" if folder.is_dir() else "is no folder"
        raise FileError(f"{folder} {trouble if folder.exists() else 'is not there'}")
    descriptor, size = open_regular(path)
    with os.fdopen(descriptor, "rb") as file:
        if size > MOST_BYTES:
            raise FileError(f"{path} has {size:,} bytes, expected at most {MOST_BYTES:,}")
        try:
            return file.read(size + 1)
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror}") from None


def _load(folder: Path, known: _State | None) -> _State:
    """The newest state; `known` itself where nothing has changed."""
    data = _read_manifest(folder)
    for tries in range(_TRIES):
        if known is not None and data == known.data:
            return known
        manifest = decode(data, folder / MANIFEST)
        try:
            return _State(data, manifest, _open_arrays(folder, manifest, known))
        except FileError:
            # A writer may have published since, and removed what it needs no more.
            again = _read_manifest(folder)
            if again == data or tries == _TRIES - 1:
                raise
            data = again
    raise AssertionError  # the loop always ends before


def _peek(folder: Path) -> _State:
    """The newest state without its arrays, for one who replaces them all."""
    data = _read_manifest(folder)
    return _State(data, decode(data, folder / MANIFEST), {})


def _open_arrays(folder: Path, manifest: Manifest, known: _State | None) -> dict[str, NDArray[Any]]:
    """All arrays by file; those that are open already stay the objects that they are."""
    have = {} if known is None else known.entries
    return {
        entry.file: known.arrays[entry.file]
        if known is not None and have.get(entry.file) == entry
        else open_array(folder, entry)
        for entry in entries_of(manifest.content)
    }


def _replaced(tree: Any, change: Callable[[Entry], Any]) -> Any:
    """A copy of a content in which entries are replaced."""
    if isinstance(tree, Entry):
        return change(tree)
    if isinstance(tree, dict):
        return {key: _replaced(value, change) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_replaced(value, change) for value in tree]
    return tree


# --- writing ------------------------------------------------------------------------------


class _Plan:
    """Which arrays of a new content stay, and which must be written."""

    def __init__(self, old: _State | None, checked: Collection[str]) -> None:
        entries = {} if old is None else old.entries
        self.kept = (
            {} if old is None else {id(array): entries[file] for file, array in old.arrays.items()}
        )
        self.checked = set(checked)
        self.token = secrets.token_hex(8)
        self.new: dict[str, tuple[Entry, Array]] = {}

    def entries(self, value: Any, place: tuple[str, ...] = ()) -> Any:
        """A copy of a content with entries in the place of arrays."""
        if isinstance(value, (np.ndarray, Source)):
            return self.kept.get(id(value)) or self._add(value, place)
        if isinstance(value, Entry):
            raise InputError(f"{'.'.join(place)} cannot be stored: it is an Entry")
        if len(place) >= DEEPEST:  # it is refused as soon as it is encoded
            return value
        if isinstance(value, Mapping):
            return {key: self.entries(item, (*place, str(key))) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.entries(item, (*place, str(at))) for at, item in enumerate(value)]
        return value

    def _add(self, array: Array, place: tuple[str, ...]) -> Entry:
        name = ".".join(place)
        if not _KEYS.fullmatch(name):
            raise InputError(
                f"the place of an array must be 1 to 128 letters a-z, digits and _.-, got {name!r}"
            )
        file = f"{self.token}-{name}.npy"
        entry = plan_array(array, file, checked=False)
        most = MOST_CHECKED if place[0] in self.checked else _SMALL
        entry = entry._replace(checked=entry.n_bytes <= most)
        self.new[file] = (entry, array)
        return entry


def _publish(
    folder: Path,
    old: _State | None,
    content: Mapping[str, Any],
    checked: Collection[str],
    *,
    verbose: bool,
) -> _State:
    """Put a new state on the disk, under the lock; after any error the old one is there."""
    if not isinstance(content, Mapping):
        raise InputError(f"the content must be a mapping, got a {type(content).__name__}")
    plan = _Plan(old, checked)
    generation = 1 if old is None else old.manifest.generation + 1
    draft = Manifest(generation, plan.entries(content))
    data = encode(draft)  # of the right length; only checksums are missing
    needed = sum(entry.n_bytes for entry, _ in plan.new.values())
    with disk.writing(folder):
        disk.check_room(folder, needed + len(data))
        try:
            written = {}
            with bar(f"writing {folder.name}", needed, shown=verbose) as advance:
                for file, (entry, array) in plan.new.items():
                    written[file] = write_array(folder, entry, array, advance)
            if written:  # before a manifest names them
                disk.sync_folder(folder)
            data = encode(
                Manifest(
                    generation,
                    _replaced(draft.content, lambda entry: written.get(entry.file, entry)),
                )
            )
            manifest = decode(data, folder / MANIFEST)
            state = _State(data, manifest, _open_arrays(folder, manifest, old))
            disk.write_file(folder / MANIFEST, data)
        except BaseException:
            _undo(folder, old, data, plan.new)
            raise
    return state


def _undo(folder: Path, old: _State | None, data: bytes, files: Iterable[str]) -> None:
    """Put the old manifest back where the new one was placed already, and remove new files.

    Files stay where the disk does not say that the old manifest will outlive them: the next writer
    removes them.
    """
    path = folder / MANIFEST
    with suppress(OSError):
        if path.exists() and path.read_bytes() == data:
            if old is None:
                disk.remove(path)
                disk.sync_folder(folder)
            else:
                try:
                    disk.write_file(path, old.data)
                except FileError:
                    disk.write_file(path, old.data, durable=False)
                    return
        for file in files:
            disk.remove(folder / file)


def _sweep(folder: Path, state: _State | None) -> None:
    """Remove files of ours that the state does not name.

    Readers of older states go on reading what they have mapped. Windows does not remove files
    that somebody has open: they stay until the next writer comes.
    """
    named = set() if state is None else set(state.entries)
    with suppress(OSError):
        for path in folder.iterdir():
            if _OURS.fullmatch(path.name) and path.name not in named:
                with suppress(OSError):
                    disk.remove(path)


def _lock(stack: ExitStack, folder: Path, timeout: float) -> None:
    """Take the writer's lock, until the stack ends."""
    with disk.writing(folder):
        name = folder / _LOCK.removesuffix(".lock")
        stack.enter_context(disk.locked(name, timeout=timeout, keep=True))


def _make_folder(folder: Path) -> bool:
    """Make a folder, if it is not there; says whether it was made. Others than ours are refused."""
    with disk.writing(folder):
        try:
            folder.mkdir()
        except FileExistsError:
            if not folder.is_dir():
                raise FileError(f"{folder} is no folder, expected one or nothing") from None
            _check_ours(folder)
            return False
    return True


def _unmake_folder(folder: Path, *, made: bool, locked: bool) -> None:
    """After an error, leave no trace of a folder that holds no index."""
    with suppress(OSError):
        if locked and not os.path.lexists(folder / MANIFEST):
            disk.remove(folder / _LOCK)
        if made:
            folder.rmdir()  # nothing happens where somebody has put something there


def _check_ours(folder: Path) -> None:
    """Refuse a folder that holds no index, but something else."""
    names = [path.name for path in folder.iterdir()]
    if MANIFEST in names:
        return
    others = [name for name in names if name != _LOCK and not _OURS.fullmatch(name)]
    if others:
        raise FileError(
            f"{folder} is no index, and not empty: it has {min(others)!r}; choose another folder"
        )
