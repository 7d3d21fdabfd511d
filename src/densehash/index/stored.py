"""Checks the type and shape of an array from a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from densehash.errors import FileError

__all__ = ["check_stored"]


def check_stored(
    array: Any, name: str, dtype: type[np.generic], shape: tuple[int | None, ...]
) -> None:
    """Refuse an array from a file if its type or shape is wrong; None allows any length.

    Examples
    --------
    >>> check_stored(np.zeros((2, 3)), "centers", np.float64, (None, 3))
    >>> check_stored(np.zeros(2), "shift", np.float64, (3,))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: shift must be float64 of shape (3,), got float64 of shape (2,)
    """
    if (
        isinstance(array, np.ndarray)
        and array.dtype.type is dtype
        and array.ndim == len(shape)
        and all(want in (None, have) for want, have in zip(shape, array.shape, strict=True))
    ):
        return
    came = (
        f"{array.dtype} of shape {array.shape}"
        if isinstance(array, np.ndarray)
        else type(array).__name__
    )
    wanted = str(tuple("n" if size is None else size for size in shape)).replace("'", "")
    raise FileError(f"{name} must be {dtype.__name__} of shape {wanted}, got {came}")
