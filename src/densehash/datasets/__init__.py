"""Vectors to work on: the field's file formats, the paper's sets, and sets inside dependencies."""

from densehash.datasets.catalog import NAMES, DataSet, fetch, load
from densehash.datasets.files import SUFFIXES, open_vectors, write_vectors
from densehash.stream import Blocks

__all__ = [
    "NAMES",
    "SUFFIXES",
    "Blocks",
    "DataSet",
    "fetch",
    "load",
    "open_vectors",
    "write_vectors",
]
