"""A fitted hasher on disk, in a folder of its own, which has the same format as an index."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from densehash.errors import FileError
from densehash.hashers.plain import built, described
from densehash.store import Store
from densehash.store.manifest import HASHER, INDEX

__all__ = ["read_hasher", "save_hasher"]

_KEY = "hasher"  # an index keeps its hasher under the same key
_PARTS = {"description", "arrays"}


def save_hasher(hasher: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted hasher to a folder: this is :meth:`densehash.hashers.Hasher.save`."""
    description, arrays = described(hasher)
    content = {_KEY: {"description": description, "arrays": arrays}}
    Store.create(path, content, form=HASHER, checked=(_KEY,))


def read_hasher(path: str | os.PathLike[str], kinds: Mapping[str, type[Any]]) -> Any:
    """Read the hasher in a folder; :func:`densehash.load_hasher` calls this with all classes.

    Parameters
    ----------
    path : a folder that :func:`save_hasher` wrote, or the folder of an index
    kinds : the classes that the folder may name
    """
    store = Store.open(path, form=(HASHER, INDEX))
    content = store.content
    if "sketch" in content and _KEY not in content:  # an index of codes names no sketch
        raise FileError(f"{store.path} is an index that keeps {content['sketch']}, not codes")
    found = content.get(_KEY)
    if not isinstance(found, dict) or set(found) != _PARTS:
        raise FileError(f"{store.path}: {_KEY} must be an object of {', '.join(sorted(_PARTS))}")
    if store.form == HASHER:
        if set(content) != {_KEY}:
            raise FileError(f"{store.path} holds a hasher, and more: {', '.join(sorted(content))}")
        store.verify()  # opening maps large arrays unchecked; all are read now anyway
    try:
        return built(found["description"], found["arrays"], kinds)
    except FileError as error:
        raise FileError(f"{store.path}: {error}") from None
