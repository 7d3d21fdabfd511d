"""Rows in blocks: all that learning sees of its data, wherever it lies."""

from densehash.rows.local import Rows, tree_reduce
from densehash.rows.numerics import Floats
from densehash.rows.places import DaskCollection, is_dask, rows_of

__all__ = ["DaskCollection", "Floats", "Rows", "is_dask", "rows_of", "tree_reduce"]
