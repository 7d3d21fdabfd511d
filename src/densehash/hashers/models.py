"""A fitted hasher on the disk, alone: a folder of the same format as an index."""

from __future__ import annotations

import os

from densehash.errors import FileError
from densehash.hashers.base import Hasher
from densehash.hashers.state import hasher_of, state_of
from densehash.store import Store
from densehash.store.manifest import HASHER, INDEX

__all__ = ["load_hasher", "save_hasher"]

_KEY = "hasher"  # an index has its own under the same name
_PARTS = {"description", "arrays"}


def save_hasher(hasher: Hasher, path: str | os.PathLike[str]) -> None:
    """Write a fitted hasher to a folder: all of it, or nothing. This is :meth:`Hasher.save`.

    Parameters
    ----------
    hasher : fitted, of a class of this package
    path : a folder that is missing, empty, or holds a hasher, which is replaced

    Raises
    ------
    InputError : if it has not learnt yet, or could not be rebuilt
    FileError : if the folder holds anything else, or cannot be written. Then all is as it was.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from densehash.hashers import LSH
    >>> hasher = LSH(8, random_state=0).fit([[0.0, 1.0], [1.0, 0.0]])
    >>> with TemporaryDirectory() as folder:
    ...     save_hasher(hasher, Path(folder, "model.dh"))
    ...     load_hasher(Path(folder, "model.dh"))
    LSH(n_bits=8, random_state=0)
    """
    state = state_of(hasher)
    content = {_KEY: {"description": state.description, "arrays": state.arrays}}
    Store.create(path, content, form=HASHER, checked=(_KEY,))


def load_hasher(path: str | os.PathLike[str]) -> Hasher:
    """The hasher that was saved in a folder; codes and margins are the same, byte for byte.

    Nothing in the folder is run or trusted: there is no pickle, the class must be one of this
    package, and each attribute of the type and shape that the class has.

    Parameters
    ----------
    path : what ``Hasher.save`` wrote, or the folder of an index, whose hasher it is then. An
        index by cosine hashes rows that are scaled to length one; its hasher does not scale them.

    Returns
    -------
    A fitted hasher, in memory. A ``random_state`` that was a generator is None.

    Raises
    ------
    FileError : if there is no hasher, it was damaged, or a newer version wrote it

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from sklearn.datasets import load_digits
    >>> from densehash import DSH, load_hasher
    >>> X = load_digits().data
    >>> hasher = DSH(32, random_state=0).fit(X)
    >>> with TemporaryDirectory() as folder:
    ...     hasher.save(Path(folder, "digits.dh"))
    ...     again = load_hasher(Path(folder, "digits.dh"))
    >>> again, bool((again.transform(X) == hasher.transform(X)).all())
    (DSH(n_bits=32, random_state=0), True)
    """
    store = Store.open(path, form=(HASHER, INDEX))
    content = store.content
    if "sketch" in content and _KEY not in content:  # those of codes name none
        raise FileError(f"{store.path} is an index that keeps {content['sketch']}, not codes")
    found = content.get(_KEY)
    if not isinstance(found, dict) or set(found) != _PARTS:
        raise FileError(f"{store.path}: {_KEY} must be an object of {', '.join(sorted(_PARTS))}")
    if store.form == HASHER:
        if set(content) != {_KEY}:
            raise FileError(f"{store.path} holds a hasher, and more: {', '.join(sorted(content))}")
        store.verify()  # large arrays were mapped, not checked, and all are read now anyway
    try:
        return hasher_of(found["description"], found["arrays"])
    except FileError as error:
        raise FileError(f"{store.path}: {error}") from None
