"""densehash: learned binary codes for nearest-neighbour search."""

from importlib.metadata import version

from densehash import bits, hamming
from densehash.bits import pack, unpack
from densehash.errors import DensehashError, InputError

__all__ = ["DensehashError", "InputError", "__version__", "bits", "hamming", "pack", "unpack"]

__version__ = version("densehash")
