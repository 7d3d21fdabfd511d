"""SpH: spectral hashing.

Y. Weiss, A. Torralba, R. Fergus, Spectral hashing, NIPS 2008.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.hashers.base import Hasher
from densehash.hashers.moments import mean, principal_directions
from densehash.rows import Floats, Rows
from densehash.rows.numerics import like, module_of, to_float64

__all__ = ["SpH", "smoothest_modes"]


class SpH(Hasher):
    """Waves along principal directions: the smoothest ones on a box that holds the data.

    Along a direction whose projections run from a to b, wave m is cos(mπ (z − a) / (b − a)).
    Slow waves along wide directions come first. There may be more bits than features.

    Parameters
    ----------
    n_bits : bits of a code, 1 to 4096, default 64
    verbose : 1 shows a progress bar during a long fit

    Attributes
    ----------
    directions_ : float64 array of shape (c, d), principal directions; c = min(n_bits, d)
    lower_, upper_ : float64 arrays of shape (c,), the range of the projections
    mode_directions_ : int64 array of shape (n_bits,), the direction of each wave
    modes_ : int64 array of shape (n_bits,), how many half-waves each has over the range, at least 1

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data
    >>> SpH(32).fit_transform(X).shape
    (1797, 4)
    """

    learnt: ClassVar[dict[str, str]] = {
        "directions_": "c d",
        "lower_": "c",
        "upper_": "c",
        "mode_directions_": "<c L",
        "modes_": "int64 L",
    }
    directions_: NDArray[np.float64]
    lower_: NDArray[np.float64]
    upper_: NDArray[np.float64]
    mode_directions_: NDArray[np.int64]
    modes_: NDArray[np.int64]

    def __init__(self, n_bits: int = 64, *, verbose: int = 0) -> None:
        self.n_bits = n_bits
        self.verbose = verbose

    def _learn(self, rows: Rows, random_state: RandomState) -> None:  # noqa: ARG002  no chance
        n_directions = min(self.n_bits_, rows.n_features)
        directions, _ = principal_directions(rows, mean(rows), n_directions)

        def range_of(block: Floats, _: int) -> NDArray[np.float64]:
            projections, xp = block @ like(directions.T, block), module_of(block)
            return to_float64(xp.stack([xp.amin(projections, 0), xp.amax(projections, 0)]))

        def widen(one: NDArray[np.float64], two: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.stack([np.minimum(one[0], two[0]), np.maximum(one[1], two[1])])

        lower, upper = rows.map_reduce(range_of, widen, width=n_directions, label="ranges")
        self.mode_directions_, self.modes_ = smoothest_modes(upper - lower, self.n_bits_)
        self.directions_, self.lower_, self.upper_ = directions, lower, upper

    def _margins(self, block: Floats) -> Floats:
        # Projects only on directions that a bit uses, and computes the waves in place.
        used, position = np.unique(self.mode_directions_, return_inverse=True)
        projections = block @ like(self.directions_[used].T, block)
        projections -= like(self.lower_[used], block)
        projections *= like(np.pi / (self.upper_ - self.lower_)[used], block)
        margins = projections[:, position]
        margins *= like(self.modes_, block)
        module_of(block).cos(margins, out=margins)
        return margins

    def _width(self) -> int:
        return 2 * self.n_bits_


def smoothest_modes(
    lengths: NDArray[np.float64], n_bits: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The smoothest waves on a box, in rising order of (mode / length)².

    Parameters
    ----------
    lengths : float64 array of shape (c,), sides of the box; at least one is not zero
    n_bits : how many waves

    Returns
    -------
    directions, modes : int64 arrays of shape (n_bits,); equally smooth waves are ordered by
        direction

    Examples
    --------
    A box twice as long as wide: the second wave of the long side is as smooth as the first of
    the short one.

    >>> smoothest_modes(np.array([2.0, 1.0]), 4)
    (array([0, 0, 1, 0]), array([1, 2, 1, 3]))
    """
    # A side as short as a rounding error has no waves. The longest side alone has enough for all
    # bits.
    sides = np.flatnonzero(lengths > 1e-9 * lengths.max())
    most = np.ceil((n_bits + 1) * lengths[sides] / lengths.max()).astype(np.int64) - 1
    directions = np.repeat(sides, most)
    modes = np.concatenate([np.arange(1, count + 1) for count in most])
    order = np.argsort((modes / lengths[directions]) ** 2, kind="stable")[:n_bits]
    return directions[order], modes[order]
