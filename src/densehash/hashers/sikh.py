"""SIKH: shift-invariant kernel hashing.

M. Raginsky, S. Lazebnik, Locality-sensitive binary codes from shift-invariant kernels, NIPS 2009.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.checks import check_positive
from densehash.columns import is_tensor
from densehash.errors import InputError
from densehash.hashers.base import Hasher
from densehash.hashers.distances import squared_distances
from densehash.hashers.moments import mean
from densehash.rows import Floats, Rows
from densehash.rows.numerics import (
    as_type,
    like,
    module_of,
    smallest,
    to_float64,
    to_host,
)

__all__ = ["SIKH", "mean_neighbor_distance"]

_N_ASKED = 100
_NEIGHBOR = 50


class SIKH(Hasher):
    """Random Fourier features of a Gaussian kernel, cut at random thresholds.

    Bit l is the sign of ``sqrt(2) cos(x · w_l + b_l) + o_l``, where x is a row minus the mean.

    Parameters
    ----------
    n_bits : bits of a code, 1 to 4096, default 64
    gamma : the gamma of the kernel ``exp(−gamma |x − y|² / 2)``; default 1 / s², where s is the
        mean distance of a row to its 50th neighbour, estimated from 100 rows
    random_state : seed or generator that draws frequencies, phases, thresholds, and the 100 rows
    verbose : 1 shows a progress bar during a long fit

    Attributes
    ----------
    gamma_ : float, the gamma that is used
    mean_ : float64 array of shape (d,)
    frequencies_ : float64 array of shape (n_bits, d), normal of variance gamma
    phases_ : float64 array of shape (n_bits,), uniform from 0 to 2π
    offsets_ : float64 array of shape (n_bits,), uniform from −√2 to √2

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data
    >>> SIKH(64, random_state=0).fit_transform(X).shape
    (1797, 8)
    """

    learnt: ClassVar[dict[str, str]] = {
        "gamma_": "float",
        "mean_": "d",
        "frequencies_": "L d",
        "phases_": "L",
        "offsets_": "L",
    }
    gamma_: float
    mean_: NDArray[np.float64]
    frequencies_: NDArray[np.float64]
    phases_: NDArray[np.float64]
    offsets_: NDArray[np.float64]

    def __init__(
        self,
        n_bits: int = 64,
        *,
        gamma: float | None = None,
        random_state: int | RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_bits = n_bits
        self.gamma = gamma
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, rows: Rows, random_state: RandomState) -> None:
        if self.gamma is not None:
            check_positive(self.gamma, "gamma")
        self.mean_ = mean(rows)
        if self.gamma is None:
            self.gamma_ = 1 / mean_neighbor_distance(rows, random_state) ** 2
        else:
            self.gamma_ = float(self.gamma)
        shape = (self.n_bits_, rows.n_features)
        self.frequencies_ = np.sqrt(self.gamma_) * random_state.standard_normal(shape)
        self.phases_ = random_state.uniform(0, 2 * np.pi, self.n_bits_)
        self.offsets_ = random_state.uniform(-np.sqrt(2), np.sqrt(2), self.n_bits_)

    def _margins(self, block: Floats) -> Floats:
        phases = self.phases_ - self.frequencies_ @ self.mean_
        margins = block @ like(self.frequencies_.T, block)
        margins += like(np.remainder(phases, 2 * np.pi), block)
        module_of(block).cos(margins, out=margins)
        margins *= np.sqrt(2)
        margins += like(self.offsets_, block)
        return margins


def mean_neighbor_distance(rows: Rows, random_state: RandomState) -> float:
    """Mean distance to the 50th nearest row, over 100 random rows; an error if it is zero.

    A row is its own first neighbour. If there are fewer than 50 rows, the farthest row counts.

    Examples
    --------
    >>> mean_neighbor_distance(Rows([[0.0], [1.0]]), RandomState(0))
    1.0
    """
    asked = to_float64(rows.sample(min(_N_ASKED, rows.n_rows), random_state))
    n_near = min(_NEIGHBOR, rows.n_rows)

    def nearest(block: Floats, _: int) -> Floats:
        # In float64: neighbours may be much nearer to each other than to the mean.
        distances = squared_distances(as_type(block, np.float64), asked).T
        if is_tensor(block):
            distances = smallest(distances, min(n_near, len(block)))[0]
        return keep(to_host(distances))

    def keep(distances: Floats) -> Floats:
        n = min(n_near, distances.shape[1])
        return np.partition(distances, n - 1, axis=1)[:, :n]

    def merge(one: Floats, two: Floats) -> Floats:
        return keep(np.concatenate([one, two], axis=1))

    near = rows.map_reduce(nearest, merge, width=2 * _N_ASKED, label="neighbours")
    found = float(np.sqrt(near.max(axis=1)).mean())
    spread = float(np.square(asked - asked.mean(axis=0)).sum(axis=1).mean())
    if found**2 <= 64 * np.finfo(np.float64).eps * spread:  # such a distance is rounding
        raise InputError(
            f"the {n_near} nearest rows of every sampled row are equal to it, which says nothing "
            "of the kernel's width: give gamma"
        )
    return found
