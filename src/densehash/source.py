"""Vectors that are not in memory: what a reader of a file gives, and what everything accepts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Source"]


class Source(ABC):
    """Rows that are read when they are asked for.

    Wherever an array of vectors is accepted, a Source is, too: hashers learn from it and
    :func:`densehash.truth.nearest` searches it in blocks. Reading is safe from several threads.

    Attributes
    ----------
    shape : (n_rows, n_features)
    dtype : a real type, that of the arrays read
    """

    ndim = 2
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[Any]:
        """Read rows.

        Parameters
        ----------
        rows : a slice of step 1, or rising positions, integer (m,)

        Returns
        -------
        array (m, n_features) of the type ``dtype``
        """
