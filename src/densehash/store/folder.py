"""The folder: one writer changes it as a whole, while any number of readers keep what they have.

A change writes new files, flushes them, and replaces the manifest; the manifest alone says which
files count. Whoever is killed in between leaves files that nobody names, and the next writer
removes them. Arrays that do not fit into memory together are staged: written one after the other,
and named by the manifest in the end.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
    FORMS,
    INDEX,
    MANIFEST,
    MOST_BYTES,
    MOST_CHECKED,
    Entry,
    Manifest,
    decode,
    encode,
    entries_of,
    other_form,
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

    data: bytes  # of the manifest; none where nothing was published
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

    @property
    def held(self) -> dict[str, tuple[Entry, NDArray[Any]]]:
        """The arrays that are open, and their entries, by file."""
        entries = self.entries
        return {file: (entries[file], array) for file, array in self.arrays.items()}


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
        form: str = INDEX,
        checked: Collection[str] = (),
        timeout: float = _TIMEOUT,
        verbose: bool = False,
    ) -> Self:
        """Make a folder, or replace all that is in one of ours.

        Parameters
        ----------
        path : a folder that is new, empty, or has been made by this function for the same form
        form : what it is, one of ``manifest.FORMS``
        content, checked, verbose : as in :meth:`Change.publish`
        timeout : as in :meth:`change`

        Raises
        ------
        InputError : if the content cannot be stored
        FileError : if the folder holds anything else, or cannot be written. Then all is as it was.
        """
        with cls.creating(path, form=form, timeout=timeout) as change:
            change.publish(content, checked=checked, verbose=verbose)
        return cls(change.path, change._state)

    @classmethod
    @contextmanager
    def creating(
        cls, path: str | os.PathLike[str], *, form: str = INDEX, timeout: float = _TIMEOUT
    ) -> Iterator[Change]:
        """Make a folder, or replace all that is in one of ours, in a ``with`` block.

        What is there stays as it is until something is published. Where nothing is published in
        the block, because of an error for instance, nothing has happened.

        Parameters
        ----------
        path, form : as in :meth:`create`
        timeout : as in :meth:`change`

        Yields
        ------
        Change, without content; once something was published, it has a store

        Raises
        ------
        FileError : if the folder holds anything else, or cannot be written

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with Store.creating(Path(folder, "a.dh")) as change:
        ...         parts = [change.stage(np.full(2, n), "part") for n in range(3)]
        ...         _ = change.publish({"parts": parts})
        ...     change.store.content
        {'parts': [array([0, 0]), array([1, 1]), array([2, 2])]}
        """
        folder = Path(path).absolute()
        made, locked = _make_folder(folder, form), False
        with ExitStack() as stack:
            try:
                _lock(stack, folder, timeout)
                locked = True
                with disk.writing(folder):
                    _check_ours(folder, form)  # again, now that nobody else can write
                    old = _peek(folder, form)
                    _sweep(folder, old)
                    if made:
                        disk.sync_folder(folder.parent)
                change = Change(cls(folder, old), old, anew=True)
                try:
                    yield change
                finally:
                    change._end()
            finally:
                _unmake_folder(folder, made=made, locked=locked)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, form: str | Sequence[str] = INDEX) -> Self:
        """Open a folder: its manifest, small arrays and those marked as checked are checked.

        Parameters
        ----------
        path : a folder that :meth:`create` has made
        form : what it must be, one of ``manifest.FORMS`` or several

        Raises
        ------
        FileError : if it is missing, damaged, of a newer version, or of another form
        """
        folder = Path(path).absolute()
        return cls(folder, _load(folder, None, (form,) if isinstance(form, str) else form))

    @property
    def form(self) -> str:
        """What the folder is, one of ``manifest.FORMS``."""
        return self._state.manifest.form

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
            self._state = state = _load(self.path, self._state, (self.form,))
            _sweep(self.path, state)
            change = Change(self, state)
            try:
                yield change
            finally:
                change._end()

    def refresh(self) -> bool:
        """Take the newest state.

        Returns
        -------
        Whether there was another one
        """
        state = _load(self.path, self._state, (self.form,))
        changed = state is not self._state
        self._state = state
        return changed

    def verify(self, *, verbose: bool = False) -> None:
        """Check every byte on the disk: :func:`verify` of the folder."""
        verify(self.path, verbose=verbose)


class Change:
    """The right to write, from :meth:`Store.change` or :meth:`Store.creating`.

    It ends with the ``with`` block.
    """

    def __init__(self, store: Store, state: _State, *, anew: bool = False) -> None:
        self._store = store
        self._state = state  # its own: other threads may refresh the store
        self._is_anew = anew  # nothing of what is there will stay
        self._is_over = False
        self._staged: dict[str, tuple[Entry, NDArray[Any]]] = {}  # by file
        self._must_sweep = False  # whether there are files that nobody names

    @property
    def store(self) -> Store:
        """The store that is changed; a new one is there as soon as something was published."""
        if self._is_anew:
            raise InputError("nothing was published, so there is no store")
        return self._store

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
        return {} if self._is_anew else self._state.content

    def check_room(self, n_bytes: int) -> None:
        """Refuse to begin what the disk has no room for."""
        with disk.writing(self.path):
            disk.check_room(self.path, n_bytes)

    def stage(self, array: Array, name: str) -> NDArray[Any]:
        """Write an array that will be published later, so that it need not stay in memory.

        What is staged and not published is removed: by the next :meth:`publish`, or when the
        change ends.

        Parameters
        ----------
        array : an array, or a Source
        name : what its file is called, after a token

        Returns
        -------
        The array, read-only, and mapped unless it is small. :meth:`publish` takes it, like those of
        the content, as the file that it is.

        Raises
        ------
        InputError : if such an array cannot be stored
        FileError : if it cannot be written
        """
        self._check_is_on()
        entry = _entry_of(array, name, secrets.token_hex(8), _SMALL)
        self._must_sweep = True
        with disk.writing(self.path):
            disk.check_room(self.path, entry.n_bytes)
            try:
                entry = write_array(self.path, entry, array, lambda _: None)
                found = open_array(self.path, entry)
            except BaseException:
                with suppress(OSError):
                    disk.remove(self.path / entry.file)
                raise
        self._staged[entry.file] = entry, found
        return found

    def publish(
        self, content: Mapping[str, Any], *, checked: Collection[str] = (), verbose: bool = False
    ) -> dict[str, Any]:
        """Replace all content at once; it may be done several times.

        Parameters
        ----------
        content : str, bool, int (64 bits), finite float, None, and lists and dicts of them, with
            arrays (or a Source) anywhere. An array that is the very object which the store, or
            :meth:`stage`, gave stays the file that it is; all others become new files.
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
        self._check_is_on()
        if not isinstance(content, Mapping):
            raise InputError(f"the content must be a mapping, got a {type(content).__name__}")
        folder, old = self.path, self._state
        held = old.held | self._staged
        plan = _Plan(held, checked)
        draft = Manifest(self.generation + 1, plan.entries(content), old.manifest.form)
        data = encode(draft)  # of the right length; only checksums are missing
        needed = sum(entry.n_bytes for entry, _ in plan.new.values())
        with disk.writing(folder):
            disk.check_room(folder, needed + len(data))
            # From here on until the new state is known, a manifest may name what is staged.
            must_sweep, self._must_sweep = self._must_sweep, False
            try:
                written = {}
                with bar(f"writing {folder.name}", needed, shown=verbose) as advance:
                    for file, (entry, array) in plan.new.items():
                        written[file] = write_array(folder, entry, array, advance)
                if written or self._staged:  # before a manifest names them
                    disk.sync_folder(folder)
                whole = _replaced(draft.content, lambda entry: written.get(entry.file, entry))
                data = encode(draft._replace(content=whole))
                manifest = decode(data, folder / MANIFEST)
                state = _State(data, manifest, _open_arrays(folder, manifest, held))
                disk.write_file(folder / MANIFEST, data)
            except BaseException:
                if _undo(folder, old, data, plan.new):
                    self._must_sweep = must_sweep
                else:
                    self._staged = {}
                raise
        self._state = self._store._state = state
        self._is_anew, self._staged = False, {}
        _sweep(folder, state)
        return state.content

    def _check_is_on(self) -> None:
        if self._is_over:
            raise InputError("the change is over: its with block has ended")

    def _end(self) -> None:
        self._is_over = True
        if self._must_sweep:
            with suppress(FileError):
                _sweep(self.path, _peek(self.path, self._state.manifest.form))


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


def _read_manifest(folder: Path, form: str = INDEX) -> bytes:
    path = folder / MANIFEST
    if not os.path.lexists(path):
        is_none = f"is no {FORMS[form].noun}: it has no manifest.json"
        trouble = is_none if folder.is_dir() else "is no folder"
        raise FileError(f"{folder} {trouble if folder.exists() else 'is not there'}")
    descriptor, size = open_regular(path)
    with os.fdopen(descriptor, "rb") as file:
        if size > MOST_BYTES:
            raise FileError(f"{path} has {size:,} bytes, expected at most {MOST_BYTES:,}")
        try:
            return file.read(size + 1)
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror}") from None


def _load(folder: Path, known: _State | None, forms: Sequence[str]) -> _State:
    """The newest state; `known` itself where nothing has changed."""
    data = _read_manifest(folder, forms[0])
    for tries in range(_TRIES):
        if known is not None and data == known.data:
            return known
        manifest = decode(data, folder / MANIFEST)
        if manifest.form not in forms:
            opened_by = FORMS[manifest.form].opened_by
            raise FileError(f"{other_form(folder, manifest.form, forms)}: {opened_by} opens it")
        try:
            held = {} if known is None else known.held
            return _State(data, manifest, _open_arrays(folder, manifest, held))
        except FileError:
            # A writer may have published since, and removed what it needs no more.
            again = _read_manifest(folder)
            if again == data or tries == _TRIES - 1:
                raise
            data = again
    raise AssertionError  # the loop always ends before


def _peek(folder: Path, form: str) -> _State:
    """The newest state without its arrays, for one who replaces them all; there may be none."""
    if not os.path.lexists(folder / MANIFEST):
        return _State(b"", Manifest(0, {}, form), {})
    data = _read_manifest(folder)
    manifest = decode(data, folder / MANIFEST)
    if manifest.form != form:
        raise FileError(f"{other_form(folder, manifest.form, (form,))}: choose another folder")
    return _State(data, manifest, {})


def _open_arrays(
    folder: Path, manifest: Manifest, held: Mapping[str, tuple[Entry, NDArray[Any]]]
) -> dict[str, NDArray[Any]]:
    """All arrays by file; those that are held already stay the objects that they are."""
    found = {}
    for entry in entries_of(manifest.content):
        known = held.get(entry.file)
        same = known is not None and known[0] == entry
        found[entry.file] = known[1] if known and same else open_array(folder, entry)
    return found


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

    def __init__(
        self, held: Mapping[str, tuple[Entry, NDArray[Any]]], checked: Collection[str]
    ) -> None:
        self.kept = {id(array): entry for entry, array in held.values()}
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
        most = MOST_CHECKED if place[0] in self.checked else _SMALL
        entry = _entry_of(array, ".".join(place), self.token, most)
        self.new[entry.file] = (entry, array)
        return entry


def _entry_of(array: Array, name: str, token: str, most_checked: int) -> Entry:
    """The entry of a new array; it is checked at each opening if it has no more bytes than that."""
    if not _KEYS.fullmatch(name):
        raise InputError(
            f"the place of an array must be 1 to 128 letters a-z, digits and _.-, got {name!r}"
        )
    entry = plan_array(array, f"{token}-{name}.npy", checked=False)
    return entry._replace(checked=entry.n_bytes <= most_checked)


def _undo(folder: Path, old: _State, data: bytes, files: Iterable[str]) -> bool:
    """Put the old manifest back where the new one was placed already, and remove new files.

    Files stay where the disk does not say that the old manifest will outlive them: the next writer
    removes them. Returns whether files may go.
    """
    path = folder / MANIFEST
    with suppress(OSError):
        if path.exists() and path.read_bytes() == data:
            if not old.data:
                disk.remove(path)
                disk.sync_folder(folder)
            else:
                try:
                    disk.write_file(path, old.data)
                except FileError:
                    disk.write_file(path, old.data, durable=False)
                    return False
        for file in files:
            disk.remove(folder / file)
        return True
    return False


def _sweep(folder: Path, state: _State) -> None:
    """Remove files of ours that the state does not name.

    Readers of older states go on reading what they have mapped. Windows does not remove files
    that somebody has open: they stay until the next writer comes.
    """
    named = set(state.entries)
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


def _make_folder(folder: Path, form: str) -> bool:
    """Make a folder, if it is not there; says whether it was made. Others than ours are refused."""
    with disk.writing(folder):
        try:
            folder.mkdir()
        except FileExistsError:
            if not folder.is_dir():
                raise FileError(f"{folder} is no folder, expected one or nothing") from None
            _check_ours(folder, form)
            return False
    return True


def _unmake_folder(folder: Path, *, made: bool, locked: bool) -> None:
    """Leave no trace of a folder in which nothing was published."""
    with suppress(OSError):
        if os.path.lexists(folder / MANIFEST):
            return
        if locked:
            disk.remove(folder / _LOCK)
        if made:
            folder.rmdir()  # nothing happens where somebody has put something there


def _check_ours(folder: Path, form: str) -> None:
    """Refuse a folder that holds nothing of ours, but something else."""
    names = [path.name for path in folder.iterdir()]
    if MANIFEST in names:
        return
    others = [name for name in names if name != _LOCK and not _OURS.fullmatch(name)]
    if others:
        raise FileError(
            f"{folder} is no {FORMS[form].noun}, and not empty: it has {min(others)!r}; "
            "choose another folder"
        )
