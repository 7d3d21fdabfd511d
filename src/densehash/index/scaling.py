"""Vectors in 8 bits a number, with a scale for each row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["scaled"]

_MOST = 127


def scaled(rows: NDArray[Any]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Rows as whole numbers, and the scale of each row.

    A row of whole numbers from -127 to 127 is kept as it is. Other rows are scaled so that the
    number with the largest absolute value becomes 127 or -127.

    Parameters
    ----------
    rows : real array (n, d); numbers that are not finite become anything

    Returns
    -------
    whole : int8 (n, d)
    scales : float32 (n, 1), finite and above 0: a row is about ``whole * scale``

    Examples
    --------
    >>> whole, scales = scaled(np.array([[0.5, -1.0, 0.0], [3.0, 2.0, 1.0]], np.float32))
    >>> whole
    array([[  64, -127,    0],
           [   3,    2,    1]], dtype=int8)
    >>> scales * whole
    array([[ 0.503937, -1.      ,  0.      ],
           [ 3.      ,  2.      ,  1.      ]], dtype=float32)
    """
    floats = rows.astype(np.float64 if rows.dtype.itemsize > 4 else np.float32, copy=False)
    with np.errstate(all="ignore"):
        largest = np.abs(floats).max(axis=1, keepdims=True)
        scales = (largest / _MOST).astype(np.float32)
        is_whole = (largest <= _MOST) & (floats == np.rint(floats)).all(axis=1, keepdims=True)
        scales[is_whole | (scales == 0) | ~np.isfinite(scales)] = 1
        whole = np.nan_to_num(np.clip(np.rint(floats / scales), -_MOST, _MOST))
    return whole.astype(np.int8), scales
