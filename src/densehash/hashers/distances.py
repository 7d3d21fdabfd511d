"""Distances between a block of rows and a few others: landmarks, anchors."""

from __future__ import annotations

import numpy as np

from densehash.rows import Floats
from densehash.rows.numerics import like, module_of, numpy_type

__all__ = ["squared_distances"]


def squared_distances(block: Floats, others: Floats) -> Floats:
    """Squared Euclidean distances.

    Parameters
    ----------
    block : float array or tensor of shape (m, d)
    others : float array of shape (k, d)

    Returns
    -------
    array of shape (m, k) in the block's type

    Examples
    --------
    >>> squared_distances(np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[0.0, 0.0]])).ravel()
    array([ 0., 25.])
    """
    # Subtracts the mean of the others from both: rows far from zero would lose their differences.
    # The mean is rounded first, so that both subtract the same numbers.
    xp = module_of(block)
    middle = others.mean(axis=0, dtype=np.float64).astype(numpy_type(block))
    others = like(others - middle.astype(np.float64), block)
    block = block - like(middle, block)
    distances = block @ others.T
    distances *= -2
    distances += xp.einsum("ij,ij->i", block, block)[:, None]
    distances += xp.einsum("ij,ij->i", others, others)
    clipped: Floats = xp.clip(distances, 0, None, out=distances)
    return clipped
