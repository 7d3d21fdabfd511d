"""Vectors to work on: the field's file formats, the paper's sets, and sets inside dependencies."""

from densehash.datasets.catalog import NAMES, DataSet, fetch, load
from densehash.datasets.files import (
    SUFFIXES,
    column_names,
    open_vectors,
    read_columns,
    write_vectors,
)
from densehash.stream import Blocks

__all__ = [
    "NAMES",
    "SUFFIXES",
    "Blocks",
    "DataSet",
    "column_names",
    "fetch",
    "load",
    "open_vectors",
    "read_columns",
    "write_vectors",
]
