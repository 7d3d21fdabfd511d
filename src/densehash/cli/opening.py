"""Opens what commands work on: an index, an index in shards, or a hasher."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from densehash import distributed
from densehash.index import Index
from densehash.store import Store
from densehash.store.manifest import FORMS, HASHER, INDEX, SHARDS

if TYPE_CHECKING:
    from densehash.distributed import ShardedIndex
    from densehash.hashers import Hasher

__all__ = ["open_any", "open_index"]


def open_any(path: Path) -> Index | ShardedIndex | Hasher:
    """Open what a folder holds."""
    if Store.open(path, form=tuple(FORMS)).form != HASHER:
        return open_index(path)
    from densehash.hashers import load_hasher  # noqa: PLC0415  loads scikit-learn

    return load_hasher(path)


def open_index(path: Path) -> Index | ShardedIndex:
    """Open an index, in shards or not."""
    if Store.open(path, form=(INDEX, SHARDS)).form == SHARDS:
        return distributed.ShardedIndex.open(path)
    return Index.open(path)
