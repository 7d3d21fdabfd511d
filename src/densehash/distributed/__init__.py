"""Work on more than one machine: clusters of Dask, and adapters for other systems.

Names are imported when they are first used, because each needs the packages of its own extra.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from densehash.errors import MissingExtraError

if TYPE_CHECKING:
    from densehash.distributed.cluster import connect, local_cluster
    from densehash.distributed.files import open_dask
    from densehash.distributed.hits import PartialHits, PartialRanges
    from densehash.distributed.sharded import ShardedIndex

__all__ = [
    "PartialHits",
    "PartialRanges",
    "ShardedIndex",
    "connect",
    "local_cluster",
    "open_dask",
]

_WHERE = {
    "PartialHits": "hits",
    "PartialRanges": "hits",
    "ShardedIndex": "sharded",
    "connect": "cluster",
    "local_cluster": "cluster",
    "open_dask": "files",
}
_PACKAGES = ("dask", "distributed", "cloudpickle", "fsspec", "toolz")


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_WHERE[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        raise MissingExtraError(
            f"{name} needs Dask, and {error.name} is not installed: pip install densehash[dask]"
        ) from error
    return getattr(module, name)
