"""The index: vectors with ids in, neighbours out, in memory or on disk."""

from densehash.index.answers import Hits, Ranges
from densehash.index.index import Index
from densehash.index.neighbors import HashingNeighbors
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
]
