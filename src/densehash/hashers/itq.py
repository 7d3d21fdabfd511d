"""ITQ: iterative quantization.

Y. Gong, S. Lazebnik, Iterative quantization: a procrustean approach to learning binary codes,
CVPR 2011.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.linalg
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.checks import check_integer
from densehash.hashers.base import LinearHasher
from densehash.hashers.moments import mean, principal_directions
from densehash.progress import bar
from densehash.rows import Floats, Rows, rows_of
from densehash.rows.numerics import like, to_float64

__all__ = ["ITQ", "closest_rotation", "random_rotation", "rotation_step"]

# The rotation learns from this many rows, or from fewer if their projections would take more than
# 64 MB. On SIFT, from 99,000 rows on, more rows change MAP by less than another seed does.
_MOST_ROWS = 100_000
_MOST_NUMBERS = 1 << 24


class ITQ(LinearHasher):
    """Principal directions, rotated so that rows lie near the corners of a cube.

    If there are more bits than features, the rotation becomes a tight frame: a matrix of n_bits
    columns with orthonormal rows. The paper leaves this case undefined.

    Parameters
    ----------
    n_bits : bits of a code, 1 to 4096, default 64
    n_iter : how many iterations, default 50; each finds the nearest corners, then the best rotation
    random_state : seed or generator that draws the first rotation, and the rows to rotate, at most
        100,000
    verbose : 1 shows a progress bar during a long fit

    Attributes
    ----------
    planes_ : float64 array of shape (n_bits, d)
    thresholds_ : float64 array of shape (n_bits,), the planes' products with the mean
    mean_ : float64 array of shape (d,)
    directions_ : float64 array of shape (c, d), principal directions; c = min(n_bits, d)
    rotation_ : float64 array of shape (c, n_bits), orthonormal rows; ``planes_`` are
        ``rotation_.T @ directions_``

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data
    >>> ITQ(32, random_state=0).fit_transform(X).shape
    (1797, 4)
    """

    learnt: ClassVar[dict[str, str]] = {
        **LinearHasher.learnt,
        "mean_": "d",
        "directions_": "c d",
        "rotation_": "c L",
    }
    mean_: NDArray[np.float64]
    directions_: NDArray[np.float64]
    rotation_: NDArray[np.float64]

    def __init__(
        self,
        n_bits: int = 64,
        *,
        n_iter: int = 50,
        random_state: int | RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_bits = n_bits
        self.n_iter = n_iter
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, rows: Rows, random_state: RandomState) -> None:
        n_iter = check_integer(self.n_iter, "n_iter", 0)
        n_directions = min(self.n_bits_, rows.n_features)
        center = mean(rows)
        directions, _ = principal_directions(rows, center, n_directions)

        def projections_of(block: Floats) -> Floats:
            return (block - like(center, block)) @ like(directions.T, block)

        n_rows = min(rows.n_rows, _MOST_ROWS, max(_MOST_NUMBERS // n_directions, 2 * n_directions))
        projections = rows_of(rows.sample(n_rows, random_state, projections_of))
        rotation = random_rotation(n_directions, self.n_bits_, random_state)
        with bar("ITQ, rotating", n_iter, shown=self.verbose > 0) as advance:
            for _ in range(n_iter):
                rotation = rotation_step(projections, rotation)
                advance(1)
        self.mean_, self.directions_, self.rotation_ = center, directions, rotation
        self.planes_ = rotation.T @ directions
        self.thresholds_ = self.planes_ @ center


def random_rotation(c: int, n_bits: int, random_state: RandomState) -> NDArray[np.float64]:
    """A random matrix of shape (c, n_bits), c <= n_bits, with orthonormal rows.

    Examples
    --------
    >>> frame = random_rotation(2, 5, RandomState(0))
    >>> np.allclose(frame @ frame.T, np.eye(2))
    True
    """
    return closest_rotation(random_state.standard_normal((c, n_bits)))


def closest_rotation(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The matrix with orthonormal rows that is closest to a matrix of shape (c, n_bits).

    Examples
    --------
    >>> closest_rotation(np.diag([2.0, 3.0])).round(6)
    array([[1., 0.],
           [0., 1.]])
    """
    left, _, right = scipy.linalg.svd(matrix, full_matrices=False)
    closest: NDArray[np.float64] = left @ right
    return closest


def rotation_step(projections: Rows, rotation: NDArray[np.float64]) -> NDArray[np.float64]:
    """One iteration: the nearest corners of the cube, then the best rotation onto them.

    Parameters
    ----------
    projections : m rows of c features, with mean zero
    rotation : float64 array of shape (c, n_bits), orthonormal rows

    Returns
    -------
    float64 array of shape (c, n_bits), orthonormal rows

    Examples
    --------
    >>> onto_corners = rotation_step(Rows([[0.0, 1.0], [1.0, 0.0]]), np.eye(2))
    >>> np.allclose(onto_corners @ onto_corners.T, np.eye(2))
    True
    """

    def products_of(block: Floats, _: int) -> NDArray[np.float64]:
        corners = 2 * like(block @ like(rotation, block) >= 0, block) - 1
        return to_float64(block.T @ corners)

    products = projections.map_reduce(products_of, np.add, width=2 * rotation.shape[1])
    return closest_rotation(products)
