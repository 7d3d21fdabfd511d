"""Hashers: vectors in, packed binary codes out. One file a method, one paper each."""

from densehash.hashers.base import Hasher, LinearHasher
from densehash.hashers.registry import *  # noqa: F403  every hasher there is
from densehash.hashers.registry import HASHERS, load_hasher

__all__ = ["Hasher", "LinearHasher", "load_hasher"]
__all__ += list(HASHERS)
