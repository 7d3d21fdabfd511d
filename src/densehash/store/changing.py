"""A change of a folder: new files, then a new manifest, or nothing.

A change writes new files, flushes them, and replaces the manifest. Only files that the manifest
names count. A writer that is killed before that leaves files that no manifest names; the next
writer removes them. Arrays that do not fit into memory together are staged: written one after the
other, and named by the manifest at the end.
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash import disk
from densehash.errors import FileError, InputError
from densehash.file_locks import Lock
from densehash.progress import bar
from densehash.source import Source
from densehash.store.arrays import Array, open_array, plan_array, write_array
from densehash.store.lockfile import remove_files, settle
from densehash.store.manifest import (
    DEEPEST,
    MANIFEST,
    MOST_CHECKED,
    Entry,
    Manifest,
    decode,
    encode,
)
from densehash.store.reading import State, find_manifest, open_arrays, replaced

__all__ = ["Change"]

_SMALL = 1 << 16  # bytes; an array up to this size is read, not mapped

_KEYS = re.compile(r"[a-z0-9_.-]{1,128}")


class Change:
    """The right to write, from :meth:`Store.change` or :meth:`Store.creating`.

    It ends with the ``with`` block.

    Attributes
    ----------
    path : the folder
    """

    def __init__(
        self,
        path: Path,
        state: State,
        lock: Lock,
        *,
        mapped: bool = True,
        anew: bool = False,
        published: Callable[[State], None] = lambda _: None,
    ) -> None:
        self.path = path
        self._state = state
        self._lock = lock
        self._is_mapped = mapped
        self._published = published  # is told each new state
        self._is_anew = anew  # nothing that the folder holds will stay
        self._is_over = False
        self._staged: dict[str, tuple[Entry, NDArray[Any]]] = {}  # by file
        self._unnamed: set[str] = set()  # files of this change that no manifest names

    @property
    def state(self) -> State:
        """The newest state; a new folder has one when something was published."""
        if self._is_anew:
            raise InputError("nothing was published, so there is no store")
        return self._state

    @property
    def generation(self) -> int:
        """The generation of the newest state."""
        return self._state.manifest.generation

    @property
    def mark(self) -> str:
        """The mark of the newest state, as in :class:`Store`."""
        return self._state.mark

    @property
    def content(self) -> dict[str, Any]:
        """The newest state, in dicts and lists that may be changed; arrays are read-only."""
        return {} if self._is_anew else self._state.content

    def check_room(self, n_bytes: int) -> None:
        """Raise an error if the disk has no room for so many bytes."""
        with disk.writing(self.path):
            disk.check_room(self.path, n_bytes)

    def stage(self, array: Array, name: str) -> NDArray[Any]:
        """Write an array that will be published later, so that it need not stay in memory.

        A staged array that is not published is removed by the next :meth:`publish`, or when the
        change ends.

        Parameters
        ----------
        array : an array, or a Source
        name : the name of its file, after a random token

        Returns
        -------
        The array, read-only, and mapped unless it is small. If you give it to :meth:`publish`, its
        file is used as it is, and not written again.

        Raises
        ------
        InputError : if such an array cannot be stored
        FileError : if it cannot be written
        """
        self._check_is_on()
        entry = _entry_of(array, name, secrets.token_hex(8), _SMALL)
        self._unnamed.add(entry.file)
        with disk.writing(self.path):
            disk.check_room(self.path, entry.n_bytes)
            try:
                entry = write_array(self.path, entry, array, lambda _: None)
                found = open_array(self.path, entry)
            except BaseException:
                remove_files(self.path, [entry.file])
                raise
        self._staged[entry.file] = entry, found
        return found

    def publish(
        self,
        content: Mapping[str, Any],
        *,
        checked: Collection[str] = (),
        version: int = 1,
        verbose: bool = False,
    ) -> dict[str, Any]:
        """Replace all content at once; a change may do this several times.

        Parameters
        ----------
        content : str, bool, int (64 bits), finite float, None, and lists and dicts of them, with
            arrays (or a Source) anywhere. If an array is the same object that the store or
            :meth:`stage` returned, its file is kept; all other arrays are written to new files. If
            an array is a map of a file elsewhere, it is compared with its checksum while it is
            written.
        checked : keys of the content whose arrays are read and checked whenever the folder is
            opened, if they have less than 16 MB. Arrays of at most 64 kB always are.
        version : the version of the format that readers must know, default 1
        verbose : whether long work shows a progress bar, default False

        Returns
        -------
        The new content, as :meth:`Store.open` shows it

        Raises
        ------
        InputError : if the content cannot be stored
        FileError : if it cannot be written, or if others have changed the folder since the change
            began. After any error, the folder holds what it held before.
        """
        self._check_is_on()
        if not isinstance(content, Mapping):
            raise InputError(f"the content must be a mapping, got a {type(content).__name__}")
        folder, old, before = self.path, self._state, set(self._state.entries)
        held = old.held | self._staged
        plan = _Plan(held, checked)
        draft = Manifest(self.generation + 1, plan.entries(content), old.manifest.form, version)
        data = encode(draft)  # of the right length; only checksums are missing
        needed = sum(entry.n_bytes for entry, _ in plan.new.values())
        with disk.writing(folder):
            disk.check_room(folder, needed + len(data))
            # From here until the new state is known, a manifest may name staged files.
            unnamed, self._unnamed = self._unnamed, set()
            place = _Place(folder, old.data)
            try:
                written = {}
                with bar(f"writing {folder.name}", needed, shown=verbose) as advance:
                    for file, (entry, array) in plan.new.items():
                        written[file] = write_array(folder, entry, array, advance)
                if written or self._staged:  # before a manifest names them
                    disk.sync_folder(folder)
                whole = replaced(draft.content, lambda entry: written.get(entry.file, entry))
                data = encode(draft._replace(content=whole))
                manifest = decode(data, folder / MANIFEST)
                mapped = self._is_mapped
                open_already = held if mapped else old.held  # staged arrays are mapped
                arrays = open_arrays(folder, manifest, open_already, mapped=mapped)
                state = State(data, manifest, arrays)
                new = [entry for file, entry in state.entries.items() if file not in before]
                place.take(data, lambda: self._check_alone(new))
            except BaseException:
                if place.leave(data):
                    remove_files(folder, plan.new)
                    self._unnamed = unnamed
                else:
                    self._staged = {}
                raise
        self._published(state)
        self._state = state
        self._is_anew, self._staged = False, {}
        settle(folder, self._lock)
        place.clear()
        remove_files(folder, (unnamed | before) - set(state.entries))
        return state.content

    def is_alone(self) -> bool:
        """Whether nobody else can write. Others can if somebody has removed the lock file.

        Raises
        ------
        OSError : if the lock file cannot be read
        """
        return self._lock.is_ours()

    def _check_is_on(self) -> None:
        if self._is_over:
            raise InputError("the change is over: its with block has ended")

    def _check_alone(self, new: Iterable[Entry]) -> None:
        """Refuse to publish if somebody else has written, although this process has the lock."""
        if not self.is_alone():
            raise FileError(
                f"{self._lock.path} was removed while this process held it, so others could write "
                "at the same time: nothing was changed, try again"
            )
        if (find_manifest(self.path) or b"") != self._state.data:
            raise FileError(
                f"{self.path} was changed while this process held {self._lock.path.name}: this "
                "process has changed nothing, try again"
            )
        for entry in new:
            path = self.path / entry.file
            if not disk.is_there(path) or path.lstat().st_size != entry.n_bytes:
                raise FileError(f"{path} was removed or cut while it was written: try again")

    def _end(self) -> None:
        self._is_over = True
        remove_files(self.path, self._unnamed)


# --- the manifest -------------------------------------------------------------------------


class _Place:
    """The place of the manifest: puts a new one there, and the old one back after an error.

    The old manifest has a second name until the new one is sure to survive a power cut. So it is
    put back by renaming a file that is on the disk already; nothing is written that a power cut
    could tear.
    """

    def __init__(self, folder: Path, old: bytes) -> None:
        self._folder, self._old = folder, old
        self._part, self._kept = (
            folder / f".densehash-{secrets.token_hex(8)}.part" for _ in range(2)
        )

    def take(self, data: bytes, check: Callable[[], None]) -> None:
        """Replace the old manifest by new bytes; `check` may refuse at the last moment."""
        path = self._folder / MANIFEST
        with disk.syncing(self._folder) as sync_names:
            with self._part.open("xb") as file:
                disk.write(file, data)
                disk.sync(file)
            if self._old:
                disk.link(path, self._kept)
                shutil.copymode(path, self._part)
            check()
            disk.rename(self._part, path)
            sync_names()

    def leave(self, data: bytes) -> bool:
        """After an error: if the new manifest is in place, put the old one back.

        Returns
        -------
        Whether files that only the new manifest names may be removed. If the disk does not confirm
        that the old manifest is back, they must stay; the next writer removes them.
        """
        path = self._folder / MANIFEST
        with suppress(OSError):
            if find_manifest(self._folder) == data:
                if self._old:
                    disk.rename(self._kept, path)
                else:
                    disk.remove(path)
                disk.sync_folder(self._folder)
            self.clear()
            return True
        return False

    def clear(self) -> None:
        """Remove the second names."""
        remove_files(self._folder, [self._part.name, self._kept.name])


class _Plan:
    """Which arrays of a new content have a file already, and which must be written."""

    def __init__(
        self, held: Mapping[str, tuple[Entry, NDArray[Any]]], checked: Collection[str]
    ) -> None:
        self.kept = {id(array): entry for entry, array in held.values()}
        self.checked = set(checked)
        self.token = secrets.token_hex(8)
        self.new: dict[str, tuple[Entry, Array]] = {}

    def entries(self, value: Any, place: tuple[str, ...] = ()) -> Any:
        """A copy of a content with entries instead of arrays."""
        if isinstance(value, (np.ndarray, Source)):
            return self.kept.get(id(value)) or self._add(value, place)
        if isinstance(value, Entry):
            raise InputError(f"{'.'.join(place)} cannot be stored: it is an Entry")
        if len(place) >= DEEPEST:  # `encode` will refuse it
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
    """The entry of a new array; up to ``most_checked`` bytes, each opening checks it."""
    if not _KEYS.fullmatch(name):
        raise InputError(
            f"the place of an array must be 1 to 128 letters a-z, digits and _.-, got {name!r}"
        )
    entry = plan_array(array, f"{token}-{name}.npy", checked=False)
    return entry._replace(checked=entry.n_bytes <= most_checked)
