"""Rows of one length, which are hashed if the metric is "cosine" or "ip", and lengths of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.columns import is_tensor
from densehash.mapped import unmapped
from densehash.rows import is_dask
from densehash.rows.numerics import as_type, module_of
from densehash.source import Source

__all__ = ["UnitRows", "lengths_of", "of_length", "rows_of_length", "unit"]


_LONGEST = float(np.finfo(np.float32).max)
_SMALL = 1e-25  # smaller squared lengths lose numbers in float32


def unit(rows: Any) -> NDArray[np.floating]:
    """Rows scaled to length one; rows of zeros, and rows that are not finite, stay as they are.

    Parameters
    ----------
    rows : real array (n, d), or a tensor

    Returns
    -------
    array (n, d), float64 if the rows are float64, otherwise float32; if the rows are a tensor, a
    tensor on the same device

    Examples
    --------
    >>> unit(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    if is_tensor(rows):
        double = str(rows.dtype) == "torch.float64"
        return _carefully(as_type(rows, np.float64 if double else np.float32))
    floats = rows.astype(_float_type(rows.dtype), copy=False)
    squares = np.einsum("ij,ij->i", floats, floats)
    is_usual = (squares > _SMALL) & (squares < 1 / _SMALL)
    lengths = np.sqrt(np.where(is_usual, squares, 1))[:, np.newaxis]
    found: NDArray[np.floating] = floats / lengths
    if not is_usual.all():
        found[~is_usual] = _carefully(floats[~is_usual])
    return found


def _carefully(floats: NDArray[np.floating]) -> NDArray[np.floating]:
    """:func:`unit` for rows whose squares may overflow or vanish: first divided by the largest."""
    module = module_of(floats)
    largest = module.amax(abs(floats), 1)[:, np.newaxis]
    largest[(largest == 0) | ~module.isfinite(largest)] = 1
    scaled = floats / largest
    lengths = module.sqrt(module.einsum("ij,ij->i", scaled, scaled))[:, np.newaxis]
    lengths[(lengths == 0) | ~module.isfinite(lengths)] = 1
    found: NDArray[np.floating] = scaled / lengths
    return found


def of_length(rows: Any, length: float) -> NDArray[np.floating]:
    """Rows scaled to this length, as :func:`unit` scales them to length one.

    Examples
    --------
    >>> of_length(np.array([[3.0, 4.0]]), 10)
    array([[6., 8.]])
    """
    return unit(rows) * length


def lengths_of(rows: Any) -> NDArray[np.float32]:
    """Lengths of rows, at most the largest float32 number.

    Parameters
    ----------
    rows : real array (n, d), or a tensor

    Returns
    -------
    float32 array (n,); if the rows are a tensor, a tensor on the same device

    Examples
    --------
    >>> lengths_of(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([5., 0.], dtype=float32)
    """
    doubles = as_type(rows, np.float64)
    module = module_of(doubles)
    squares = module.einsum("ij,ij->i", doubles, doubles)
    found: NDArray[np.float32] = as_type(module.sqrt(squares).clip(0, _LONGEST), np.float32)
    return found


def rows_of_length(X: Any, length: float) -> Any:
    """Many rows, wherever they are, scaled to this length: see :func:`of_length`.

    Parameters
    ----------
    X : real array (n, d), a Source, a tensor, or an array of Dask

    Returns
    -------
    a Source, a tensor on the same device, or an array of Dask

    Examples
    --------
    >>> rows_of_length(np.array([[0.0, 5.0]]), 2)[0:1]
    array([[0., 2.]])
    """
    if is_tensor(X):
        return of_length(X, length)
    if is_dask(X):
        return X.map_blocks(of_length, length, dtype=_float_type(X.dtype))
    return UnitRows(X, length)


class UnitRows(Source):
    """Vectors whose rows are scaled to one length when they are read.

    Parameters
    ----------
    X : real array (n, d), or a Source
    length : default 1

    Examples
    --------
    >>> UnitRows(np.array([[0.0, 5.0]]))[0:1]
    array([[0., 1.]])
    """

    def __init__(self, X: NDArray[Any] | Source, length: float = 1) -> None:
        self._rows, self._length = unmapped(X), length
        self.shape, self.chunks = (X.shape[0], X.shape[1]), getattr(X, "chunks", None)
        self.dtype = np.dtype(_float_type(X.dtype))

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[np.floating]:
        read = self._rows[rows]
        return unit(read) if self._length == 1 else of_length(read, self._length)


def _float_type(dtype: np.dtype[Any]) -> type[np.floating]:
    return np.float64 if dtype.kind == "f" and dtype.itemsize > 4 else np.float32
