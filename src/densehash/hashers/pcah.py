"""PCAH: principal directions.

X.-J. Wang, L. Zhang, F. Jing, W.-Y. Ma, AnnoSearch: image auto-annotation by search, CVPR 2006.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.errors import InputError
from densehash.hashers.base import LinearHasher
from densehash.hashers.moments import mean, principal_directions
from densehash.rows import Rows

__all__ = ["PCAH"]


class PCAH(LinearHasher):
    """The directions of the largest variance, cut at the mean.

    Parameters
    ----------
    n_bits : bits of a code, 1 to the number of features, default 64
    verbose : 1 shows a progress bar during a long fit

    Attributes
    ----------
    planes_ : float64 array of shape (n_bits, d), orthonormal; the largest variance first
    thresholds_ : float64 array of shape (n_bits,), the planes' products with the mean
    mean_ : float64 array of shape (d,)
    variances_ : float64 array of shape (n_bits,), the variance along each direction

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data
    >>> PCAH(32).fit_transform(X).shape
    (1797, 4)
    """

    learnt: ClassVar[dict[str, str]] = {**LinearHasher.learnt, "mean_": "d", "variances_": "L"}
    mean_: NDArray[np.float64]
    variances_: NDArray[np.float64]

    def __init__(self, n_bits: int = 64, *, verbose: int = 0) -> None:
        self.n_bits = n_bits
        self.verbose = verbose

    def _learn(self, rows: Rows, random_state: RandomState) -> None:  # noqa: ARG002  no chance
        if self.n_bits_ > rows.n_features:
            raise InputError(
                f"PCAH has at most one bit a feature: n_bits must be from 1 to "
                f"{rows.n_features} for {rows.n_features} feature(s), got {self.n_bits_}"
            )
        self.mean_ = mean(rows)
        self.planes_, self.variances_ = principal_directions(rows, self.mean_, self.n_bits_)
        self.thresholds_ = self.planes_ @ self.mean_
