"""The folder: one writer changes it as a whole; readers see the state that they have opened."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from densehash.file_locks import lets_go
from densehash.store import lockfile
from densehash.store.changing import Change
from densehash.store.lockfile import TIMEOUT
from densehash.store.manifest import INDEX, MANIFEST, decode, entries_of
from densehash.store.reading import State, find_manifest, load, verify

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11 on

__all__ = ["Store"]


class Store:
    """Plain values and arrays in a folder: ``{"kind": "flat", "segments": [{"ids": array}]}``.

    :meth:`create` and :meth:`open` make a store. It shows one published state, also while others
    write; :meth:`refresh` and :meth:`change` read the newest state.

    Attributes
    ----------
    path : the folder
    is_mapped : whether large arrays are maps of files; if not, all arrays are in memory

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     store = Store.create(Path(folder, "a.dh"), {"name": "one", "ids": np.arange(3)})
    ...     with store.change() as change:
    ...         _ = change.publish({**change.content, "name": "two"})  # the ids stay where they are
    ...     store.generation, Store.open(store.path).content
    (2, {'name': 'two', 'ids': array([0, 1, 2])})
    """

    path: Path

    def __init__(self, path: Path, state: State, *, mapped: bool = True) -> None:
        self.path = path
        self.is_mapped = mapped
        self._state = state

    @classmethod
    @lets_go
    def create(
        cls,
        path: str | os.PathLike[str],
        content: Mapping[str, Any],
        *,
        form: str = INDEX,
        checked: Collection[str] = (),
        version: int = 1,
        timeout: float = TIMEOUT,
        verbose: bool = False,
    ) -> Self:
        """Make a folder, or replace all that is in a folder of the same form.

        Parameters
        ----------
        path : a folder that does not exist yet, or is empty, or was made by this function for the
            same form
        form : what the folder holds, one of ``manifest.FORMS``
        content, checked, version, verbose : as in :meth:`Change.publish`
        timeout : as in :meth:`change`

        Raises
        ------
        InputError : if the content cannot be stored
        FileError : if the folder holds anything else, or cannot be written. The folder is then as
            it was before.
        """
        with cls.creating(path, form=form, timeout=timeout) as change:
            change.publish(content, checked=checked, version=version, verbose=verbose)
        return cls.made_by(change)

    @classmethod
    @contextmanager
    def creating(
        cls, path: str | os.PathLike[str], *, form: str = INDEX, timeout: float = TIMEOUT
    ) -> Iterator[Change]:
        """Make a folder, or replace all that is in a folder of the same form, in a ``with`` block.

        The folder does not change until the block publishes something. If it publishes nothing,
        because of an error for instance, the folder stays as it was.

        Parameters
        ----------
        path, form : as in :meth:`create`
        timeout : as in :meth:`change`

        Yields
        ------
        Change, without content; :meth:`made_by` is the store when something was published

        Raises
        ------
        FileError : if the folder holds anything else, or cannot be written

        Examples
        --------
        >>> import numpy as np
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with Store.creating(Path(folder, "a.dh")) as change:
        ...         parts = [change.stage(np.full(2, n), "part") for n in range(3)]
        ...         _ = change.publish({"parts": parts})
        ...     Store.made_by(change).content
        {'parts': [array([0, 0]), array([1, 1]), array([2, 2])]}
        """
        folder = Path(path).absolute()
        with lockfile.making(folder, form, timeout) as (lock, old):
            change = Change(folder, old, lock, anew=True)
            try:
                yield change
            finally:
                change._end()

    @classmethod
    def made_by(cls, change: Change) -> Self:
        """The store that a change of :meth:`creating` has made.

        Raises
        ------
        InputError : if the change has published nothing
        """
        return cls(change.path, change.state)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        form: str | Sequence[str] = INDEX,
        mapped: bool = True,
    ) -> Self:
        """Open a folder, and check its manifest, small arrays and those marked as checked.

        Parameters
        ----------
        path : a folder that :meth:`create` has made
        form : what the folder must hold, one of ``manifest.FORMS`` or several
        mapped : True (default) maps large arrays, which are read when they are used. False reads
            all arrays into memory and checks them; other programs then cannot cut them any more.

        Raises
        ------
        FileError : if the folder is missing, damaged, of a newer version, or of another form
        """
        folder = Path(path).absolute()
        forms = (form,) if isinstance(form, str) else form
        return cls(folder, load(folder, None, forms, mapped=mapped), mapped=mapped)

    @property
    def form(self) -> str:
        """What the folder holds, one of ``manifest.FORMS``."""
        return self._state.manifest.form

    @property
    def version(self) -> int:
        """The version of the format."""
        return self._state.manifest.version

    @property
    def generation(self) -> int:
        """The number of the state, which rises by one with each change."""
        return self._state.manifest.generation

    @property
    def mark(self) -> str:
        """The checksum of the manifest. It differs even if a new folder counts from 1 again."""
        return self._state.mark

    @property
    def content(self) -> dict[str, Any]:
        """The stored values, in dicts and lists that may be changed; arrays are read-only."""
        return self._state.content

    @property
    def n_bytes(self) -> int:
        """Bytes on disk of the manifest and all files that it names."""
        sizes = (entry.n_bytes for entry in entries_of(self._state.manifest.content))
        return len(self._state.data) + sum(sizes)

    @contextmanager
    def change(self, *, timeout: float = TIMEOUT) -> Iterator[Change]:
        """Be the only writer during a ``with`` block, which begins with the newest state.

        Parameters
        ----------
        timeout : seconds to wait for another writer

        Yields
        ------
        Change, with the newest state; the store shows this state, too

        Raises
        ------
        FileError : if another process writes for so long, or the folder cannot be written
        """
        with lockfile.lock(self.path, timeout) as lock:
            self._state = state = self._newest()
            lockfile.settle(self.path, lock)
            lockfile.sweep(self.path, state)
            change = Change(self.path, state, lock, mapped=self.is_mapped, published=self._show)
            try:
                yield change
            finally:
                change._end()

    def _show(self, state: State) -> None:
        self._state = state

    def refresh(self) -> bool:
        """Read the newest state.

        Returns
        -------
        whether it differs from the state before
        """
        state = self._newest()
        changed = state is not self._state
        self._state = state
        return changed

    def verify(self, *, verbose: bool = False) -> None:
        """Check every byte on disk with :func:`verify`."""
        verify(self.path, verbose=verbose)

    def found_there(self) -> Literal["same", "changed", "other", "nothing"]:
        """What the folder holds now.

        Returns
        -------
        "same": the state of this store; "changed": a later state, with some of its files; "other":
        a state that shares no files with it; or "nothing"

        Raises
        ------
        FileError : if the folder or its manifest cannot be read
        """
        data = find_manifest(self.path)
        if data is None:
            return "nothing"
        if data == self._state.data:
            return "same"
        files = {entry.file for entry in entries_of(decode(data, self.path / MANIFEST).content)}
        return "other" if files.isdisjoint(self._state.entries) else "changed"

    def _newest(self) -> State:
        return load(self.path, self._state, (self.form,), mapped=self.is_mapped)
