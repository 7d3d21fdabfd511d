"""Hashers: vectors in, packed binary codes out. One file a method, one paper each."""

from densehash.hashers.agh import AGH
from densehash.hashers.base import Hasher, LinearHasher
from densehash.hashers.dsh import DSH
from densehash.hashers.itq import ITQ
from densehash.hashers.klsh import KLSH
from densehash.hashers.lsh import LSH
from densehash.hashers.models import load_hasher
from densehash.hashers.pcah import PCAH
from densehash.hashers.refined import Refined
from densehash.hashers.sikh import SIKH
from densehash.hashers.sph import SpH

__all__ = [
    "AGH",
    "DSH",
    "ITQ",
    "KLSH",
    "LSH",
    "PCAH",
    "SIKH",
    "Hasher",
    "LinearHasher",
    "Refined",
    "SpH",
    "load_hasher",
]
