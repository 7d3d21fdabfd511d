"""What commands open: an index, an index in shards, or a hasher."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from densehash import distributed
from densehash.hashers import Hasher, load_hasher
from densehash.index import Index
from densehash.store import Store
from densehash.store.manifest import FORMS, HASHER, INDEX, SHARDS

if TYPE_CHECKING:
    from densehash.distributed import ShardedIndex

__all__ = ["open_any", "open_index"]


def open_any(path: Path) -> Index | ShardedIndex | Hasher:
    """What a folder holds."""
    form = Store.open(path, form=tuple(FORMS)).form
    return load_hasher(path) if form == HASHER else open_index(path)


def open_index(path: Path) -> Index | ShardedIndex:
    """An index, in shards or not."""
    if Store.open(path, form=(INDEX, SHARDS)).form == SHARDS:
        return distributed.ShardedIndex.open(path)
    return Index.open(path)
