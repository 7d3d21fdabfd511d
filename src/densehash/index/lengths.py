"""Rows of length one, which are hashed and grouped if the metric is "cosine"."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.columns import is_tensor
from densehash.mapped import unmapped
from densehash.rows.numerics import as_type, module_of
from densehash.source import Source

__all__ = ["UnitRows", "unit"]


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


class UnitRows(Source):
    """Vectors whose rows are scaled to length one when they are read.

    Parameters
    ----------
    X : real array (n, d), or a Source

    Examples
    --------
    >>> UnitRows(np.array([[0.0, 5.0]]))[0:1]
    array([[0., 1.]])
    """

    def __init__(self, X: NDArray[Any] | Source) -> None:
        self._rows = unmapped(X)
        self.shape, self.chunks = (X.shape[0], X.shape[1]), getattr(X, "chunks", None)
        self.dtype = np.dtype(_float_type(X.dtype))

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[np.floating]:
        return unit(self._rows[rows])


def _float_type(dtype: np.dtype[Any]) -> type[np.floating]:
    return np.float64 if dtype.kind == "f" and dtype.itemsize > 4 else np.float32
