"""Distances between a block of rows and a few others: landmarks, anchors."""

from __future__ import annotations

import numpy as np

from densehash.rows import Floats

__all__ = ["squared_distances"]


def squared_distances(block: Floats, others: Floats) -> Floats:
    """Squared Euclidean distances.

    Parameters
    ----------
    block : float array of shape (m, d)
    others : float array of shape (k, d)

    Returns
    -------
    array of shape (m, k) in the block's type

    Examples
    --------
    >>> squared_distances(np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[0.0, 0.0]])).ravel()
    array([ 0., 25.])
    """
    # Measured from the middle of the others: what lies far from zero would lose its differences.
    # Rounded first, or the two would be measured from two places.
    middle = others.mean(axis=0, dtype=np.float64).astype(block.dtype)
    others = (others - middle.astype(np.float64)).astype(block.dtype)
    block = block - middle
    distances = block @ others.T
    distances *= -2
    distances += np.einsum("ij,ij->i", block, block)[:, np.newaxis]
    distances += np.einsum("ij,ij->i", others, others)
    return np.maximum(distances, 0, out=distances)
