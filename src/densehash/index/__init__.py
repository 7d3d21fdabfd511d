"""The index: vectors with ids in, neighbours out, in memory or on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from densehash.index.changes import Upserted
from densehash.index.hits import Hits, Ranges
from densehash.index.index import Index
from densehash.index.pairs import Pairs
from densehash.index.state import Settings
from densehash.index.tuning import Setting, Tuning

__all__ = [
    "HashingNeighbors",
    "Hits",
    "Index",
    "Pairs",
    "Ranges",
    "Setting",
    "Settings",
    "Tuning",
    "Upserted",
]

if TYPE_CHECKING:
    from densehash.index.neighbors import HashingNeighbors
else:  # or a type checker would take any name for one of the package

    def __getattr__(name: str) -> Any:
        if name != "HashingNeighbors":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # An estimator of scikit-learn, which takes longer to load than all the rest.
        from densehash.index.neighbors import HashingNeighbors  # noqa: PLC0415

        return HashingNeighbors


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
