"""LSH: random planes.

M. S. Charikar, Similarity estimation techniques from rounding algorithms, STOC 2002; A. Andoni,
P. Indyk, Near-optimal hashing algorithms for approximate nearest neighbor in high dimensions,
FOCS 2006.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.hashers.base import LinearHasher
from densehash.hashers.moments import mean
from densehash.rows import Rows

__all__ = ["LSH"]


class LSH(LinearHasher):
    """Gaussian random planes through the mean.

    Parameters
    ----------
    n_bits : bits of a code, 1 to 4096, default 64
    random_state : seed or generator that draws the planes
    verbose : 1 shows a progress bar during a long fit

    Attributes
    ----------
    planes_ : float64 array of shape (n_bits, d), standard normal numbers
    thresholds_ : float64 array of shape (n_bits,), the planes' products with the mean
    mean_ : float64 array of shape (d,)

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data
    >>> LSH(64, random_state=0).fit_transform(X).shape
    (1797, 8)
    """

    learnt: ClassVar[dict[str, str]] = {**LinearHasher.learnt, "mean_": "d"}
    mean_: NDArray[np.float64]

    def __init__(
        self,
        n_bits: int = 64,
        *,
        random_state: int | RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_bits = n_bits
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, rows: Rows, random_state: RandomState) -> None:
        self.mean_ = mean(rows)
        self.planes_ = random_state.standard_normal((self.n_bits_, rows.n_features))
        self.thresholds_ = self.planes_ @ self.mean_
