"""The folder: one writer changes it as a whole, while any number of readers keep what they have."""

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

    Made by :meth:`create` or :meth:`open`. It shows one published state, and keeps it while others
    write, until :meth:`refresh` or :meth:`change` takes the newest.

    Attributes
    ----------
    path : the folder
    is_mapped : whether large arrays are maps of files; otherwise all are in memory

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
        """Make a folder, or replace all that is in one of ours.

        Parameters
        ----------
        path : a folder that is new, empty, or has been made by this function for the same form
        form : what it is, one of ``manifest.FORMS``
        content, checked, version, verbose : as in :meth:`Change.publish`
        timeout : as in :meth:`change`

        Raises
        ------
        InputError : if the content cannot be stored
        FileError : if the folder holds anything else, or cannot be written. Then all is as it was.
        """
        with cls.creating(path, form=form, timeout=timeout) as change:
            change.publish(content, checked=checked, version=version, verbose=verbose)
        return cls(change.path, change.store._state)

    @classmethod
    @contextmanager
    def creating(
        cls, path: str | os.PathLike[str], *, form: str = INDEX, timeout: float = TIMEOUT
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
        >>> import numpy as np
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with Store.creating(Path(folder, "a.dh")) as change:
        ...         parts = [change.stage(np.full(2, n), "part") for n in range(3)]
        ...         _ = change.publish({"parts": parts})
        ...     change.store.content
        {'parts': [array([0, 0]), array([1, 1]), array([2, 2])]}
        """
        folder = Path(path).absolute()
        with lockfile.making(folder, form, timeout) as (lock, old):
            change = Change(cls(folder, old), old, lock, anew=True)
            try:
                yield change
            finally:
                change._end()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        form: str | Sequence[str] = INDEX,
        mapped: bool = True,
    ) -> Self:
        """Open a folder: its manifest, small arrays and those marked as checked are checked.

        Parameters
        ----------
        path : a folder that :meth:`create` has made
        form : what it must be, one of ``manifest.FORMS`` or several
        mapped : whether large arrays are maps of their files, read as they are needed; False
            reads all of them into memory, and checks them: then nobody can cut them any more

        Raises
        ------
        FileError : if it is missing, damaged, of a newer version, or of another form
        """
        folder = Path(path).absolute()
        forms = (form,) if isinstance(form, str) else form
        return cls(folder, load(folder, None, forms, mapped=mapped), mapped=mapped)

    @property
    def form(self) -> str:
        """What the folder is, one of ``manifest.FORMS``."""
        return self._state.manifest.form

    @property
    def version(self) -> int:
        """Of the format."""
        return self._state.manifest.version

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
    def change(self, *, timeout: float = TIMEOUT) -> Iterator[Change]:
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
        with lockfile.lock(self.path, timeout) as lock:
            self._state = state = self._newest()
            lockfile.settle(self.path, lock)
            lockfile.sweep(self.path, state)
            change = Change(self, state, lock)
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
        state = self._newest()
        changed = state is not self._state
        self._state = state
        return changed

    def verify(self, *, verbose: bool = False) -> None:
        """Check every byte on the disk: :func:`verify` of the folder."""
        verify(self.path, verbose=verbose)

    def found_there(self) -> Literal["same", "changed", "other", "nothing"]:
        """What the folder holds by now.

        Returns
        -------
        "same", this very state; "changed", a later one, with some of its files; "other", what has
        nothing to do with it; or "nothing"

        Raises
        ------
        FileError : if the disk cannot tell, or there is a manifest that cannot be read
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
