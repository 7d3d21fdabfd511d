"""densehash: learned binary codes for nearest-neighbour search."""

from importlib.metadata import version

from densehash import bits, hamming
from densehash.bits import pack, unpack
from densehash.errors import DensehashError, FileError, InputError, MissingExtraError
from densehash.hashers import AGH, DSH, ITQ, KLSH, LSH, PCAH, SIKH, Refined, SpH, load_hasher
from densehash.index import HashingNeighbors, Index

__all__ = [
    "AGH",
    "DSH",
    "ITQ",
    "KLSH",
    "LSH",
    "PCAH",
    "SIKH",
    "DensehashError",
    "FileError",
    "HashingNeighbors",
    "Index",
    "InputError",
    "MissingExtraError",
    "Refined",
    "SpH",
    "__version__",
    "bits",
    "hamming",
    "load_hasher",
    "pack",
    "unpack",
]

__version__ = version("densehash")
