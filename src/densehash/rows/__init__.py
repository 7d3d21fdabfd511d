"""Rows in blocks: the only way in which learning reads data, wherever the data is."""

from densehash.rows.local import Rows, tree_reduce
from densehash.rows.numerics import Floats
from densehash.rows.places import DaskCollection, is_dask, rows_of

__all__ = ["DaskCollection", "Floats", "Rows", "is_dask", "rows_of", "tree_reduce"]
