"""Reads what a folder holds: its manifest, and the arrays that it names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from densehash import disk
from densehash.errors import FileError
from densehash.progress import bar
from densehash.store.arrays import check_file, open_array, open_regular, unreadable
from densehash.store.manifest import (
    FORMS,
    INDEX,
    MANIFEST,
    MOST_BYTES,
    Entry,
    Manifest,
    decode,
    entries_of,
    other_form,
)

__all__ = ["State", "find_manifest", "load", "open_arrays", "peek", "replaced", "verify"]

_TRIES = 100  # how often a reader tries again if writers publish faster than it opens files


class State(NamedTuple):
    """A published state; it stays readable as long as somebody holds it.

    Attributes
    ----------
    data : the bytes of the manifest; empty if nothing was published
    manifest : the manifest, decoded
    arrays : arrays by the name of their file
    """

    data: bytes
    manifest: Manifest
    arrays: Mapping[str, NDArray[Any]]

    @property
    def content(self) -> dict[str, Any]:
        """A new tree with the arrays in their places."""
        content: dict[str, Any] = replaced(
            self.manifest.content, lambda entry: self.arrays[entry.file]
        )
        return content

    @property
    def mark(self) -> str:
        """The checksum of the manifest."""
        return self.data[12:76].decode("ascii")

    @property
    def entries(self) -> dict[str, Entry]:
        """Entries by the name of their file."""
        return {entry.file: entry for entry in entries_of(self.manifest.content)}

    @property
    def held(self) -> dict[str, tuple[Entry, NDArray[Any]]]:
        """The open arrays and their entries, by the name of their file."""
        entries = self.entries
        return {file: (entries[file], array) for file, array in self.arrays.items()}


def find_manifest(folder: Path) -> bytes | None:
    """The manifest of a folder, of which only the size is checked; None if there is no manifest.

    Every reader of a manifest uses this function. It follows no link, waits for no pipe, and reads
    no more bytes than a manifest may have. If the disk fails, it raises an error.

    Raises
    ------
    FileError : if the disk fails, or the manifest is not a regular file, or is too large

    Examples
    --------
    >>> find_manifest(Path("no-such-folder"))
    """
    path = folder / MANIFEST
    try:
        descriptor, size = open_regular(path)
    except FileError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        if isinstance(error.__cause__, NotADirectoryError):
            raise FileError(f"{folder} is no folder") from error
        raise
    try:
        with os.fdopen(descriptor, "rb") as file:
            if size > MOST_BYTES:
                raise FileError(f"{path} has {size:,} bytes, expected at most {MOST_BYTES:,}")
            return file.read(size + 1)
    except OSError as error:
        raise unreadable(path, error) from error


def load(folder: Path, known: State | None, forms: Sequence[str], *, mapped: bool = True) -> State:
    """The newest state.

    Parameters
    ----------
    folder : the folder
    known : an older state; its open arrays are used again, and if nothing has changed, it is
        returned itself
    forms : what the folder may hold
    mapped : as in :func:`densehash.store.arrays.open_array`

    Examples
    --------
    >>> load(Path("/no-such-folder"), None, [INDEX])
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: /no-such-folder is not there
    """
    data = _manifest_of(folder, forms[0])
    for tries in range(_TRIES):
        if known is not None and data == known.data:
            return known
        manifest = decode(data, folder / MANIFEST)
        if manifest.form not in forms:
            opened_by = FORMS[manifest.form].opened_by
            raise FileError(f"{other_form(folder, manifest.form, forms)}: {opened_by} opens it")
        try:
            held = {} if known is None else known.held
            return State(data, manifest, open_arrays(folder, manifest, held, mapped=mapped))
        except FileError:
            # A writer may have published since, and removed files that are no longer named.
            again = _manifest_of(folder)
            if again == data or tries == _TRIES - 1:
                raise
            data = again
    raise AssertionError  # the loop always ends before


def peek(folder: Path, form: str) -> State:
    """The newest state without its arrays, for a writer that replaces them; empty if there is none.

    Examples
    --------
    >>> peek(Path("no-such-folder"), INDEX).data
    b''
    """
    data = find_manifest(folder)
    if data is None:
        return State(b"", Manifest(0, {}, form), {})
    manifest = decode(data, folder / MANIFEST)
    if manifest.form != form:
        raise FileError(f"{other_form(folder, manifest.form, (form,))}: choose another folder")
    return State(data, manifest, {})


def open_arrays(
    folder: Path,
    manifest: Manifest,
    held: Mapping[str, tuple[Entry, NDArray[Any]]],
    *,
    mapped: bool,
) -> dict[str, NDArray[Any]]:
    """All arrays by the name of their file; arrays that are open already are used again.

    Examples
    --------
    >>> open_arrays(Path("."), Manifest(1, {"n": 3}), {}, mapped=True)
    {}
    """
    found = {}
    for entry in entries_of(manifest.content):
        known = held.get(entry.file)
        same = known is not None and known[0] == entry
        found[entry.file] = known[1] if known and same else open_array(folder, entry, mapped=mapped)
    return found


def replaced(tree: Any, change: Callable[[Entry], Any]) -> Any:
    """A copy of a content in which entries are replaced.

    Examples
    --------
    >>> entry = Entry("0123456789abcdef-ids.npy", "<i8", (2,), 144, "0" * 64, True)
    >>> replaced({"segments": [{"ids": entry}]}, lambda entry: entry.shape)
    {'segments': [{'ids': (2,)}]}
    """
    if isinstance(tree, Entry):
        return change(tree)
    if isinstance(tree, dict):
        return {key: replaced(value, change) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [replaced(value, change) for value in tree]
    return tree


def verify(path: str | os.PathLike[str], *, verbose: bool = False) -> None:
    """Check every byte of what a folder holds now, even if it cannot be opened.

    Parameters
    ----------
    path : the folder
    verbose : whether long work shows a progress bar, default False

    Raises
    ------
    FileError : if the manifest or any file that it names is wrong; the error lists all wrong files

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from densehash.store import Store
    >>> with TemporaryDirectory() as folder:
    ...     store = Store.create(Path(folder, "a.dh"), {"ids": np.arange(3)})
    ...     verify(store.path)
    """
    folder = Path(path).absolute()
    data = _manifest_of(folder)
    for _ in range(_TRIES):
        entries = list(entries_of(decode(data, folder / MANIFEST).content))
        wrong = _wrong_files(folder, entries, verbose=verbose)
        if not wrong:
            return
        again = _manifest_of(folder)
        if again == data:
            break
        data = again  # a writer has removed files while they were checked
    raise FileError(f"{len(wrong)} of {len(entries)} files are wrong: " + "; ".join(wrong))


def _wrong_files(folder: Path, entries: Iterable[Entry], *, verbose: bool) -> list[str]:
    entries = list(entries)
    total = sum(entry.n_bytes for entry in entries)
    wrong = []
    with bar(f"checking {folder.name}", total, shown=verbose) as advance:
        for entry in entries:
            try:
                check_file(folder, entry, advance)
            except FileError as error:
                wrong.append(str(error))
    return wrong


def _manifest_of(folder: Path, form: str = INDEX) -> bytes:
    """The manifest of a folder that must have one."""
    data = find_manifest(folder)
    if data is not None:
        return data
    try:
        there = disk.is_there(folder)
    except OSError as error:
        raise unreadable(folder, error) from error
    raise FileError(
        f"{folder} is no {FORMS[form].noun}: it has no manifest.json"
        if there
        else f"{folder} is not there"
    )
