"""KLSH: kernelized locality-sensitive hashing.

B. Kulis, K. Grauman, Kernelized locality-sensitive hashing for scalable image search, ICCV 2009.
"""

from __future__ import annotations

import operator
from typing import ClassVar

import numpy as np
import scipy.linalg
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.checks import check_integer, check_positive
from densehash.errors import InputError
from densehash.hashers.base import Hasher
from densehash.hashers.distances import squared_distances
from densehash.hashers.moments import mean
from densehash.rows import Floats, Rows
from densehash.rows.numerics import like, module_of, to_float64

__all__ = ["KLSH", "gaussian_kernel", "landmark_weights"]

# Eigenvalues of the landmarks' kernel below this count as zero, as in the authors' code.
_LEAST_EIGENVALUE = 1e-8


class KLSH(Hasher):
    """Random planes in the space of a Gaussian kernel, written as sums over landmarks.

    The kernel is ``exp(−|x − y|² / 2t²)``. A plane is the mean of a few random landmarks, which is
    nearly Gaussian, whitened by the kernel matrix of all landmarks.

    Parameters
    ----------
    n_bits : bits of a code, 1 to 4096, default 64
    n_landmarks : how many random rows represent the data, default 300; at most the number of rows
    n_subset : from how many landmarks each plane is made, default 30; less than ``n_landmarks``
    bandwidth : t as a multiple of the mean norm of the rows, which are not centred; default 0.3
    random_state : seed or generator that draws landmarks and subsets
    verbose : 1 shows a progress bar during a long fit

    Attributes
    ----------
    landmarks_ : float64 array of shape (n_landmarks, d)
    t_ : float, the kernel's width
    subsets_ : int64 array of shape (n_bits, n_subset), the landmarks of each plane
    weights_ : float64 array of shape (n_landmarks, n_bits); margins are kernels times weights

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data
    >>> KLSH(64, random_state=0).fit_transform(X).shape
    (1797, 8)
    """

    learnt: ClassVar[dict[str, str]] = {
        "t_": "float",
        "landmarks_": "p d",
        "subsets_": "<p L s",
        "weights_": "p L",
    }
    landmarks_: NDArray[np.float64]
    t_: float
    subsets_: NDArray[np.int64]
    weights_: NDArray[np.float64]

    def __init__(
        self,
        n_bits: int = 64,
        *,
        n_landmarks: int = 300,
        n_subset: int = 30,
        bandwidth: float = 0.3,
        random_state: int | RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_bits = n_bits
        self.n_landmarks = n_landmarks
        self.n_subset = n_subset
        self.bandwidth = bandwidth
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, rows: Rows, random_state: RandomState) -> None:
        n_landmarks = check_integer(self.n_landmarks, "n_landmarks", 2)
        n_subset = check_integer(self.n_subset, "n_subset", 1, n_landmarks - 1)
        bandwidth = check_positive(self.bandwidth, "bandwidth")
        if rows.n_rows < n_landmarks:
            raise InputError(
                f"{n_landmarks} landmarks need at least {n_landmarks} rows, "
                f"got n_samples = {rows.n_rows}: lower n_landmarks"
            )
        mean(rows)  # refuses rows that are all equal
        norms = rows.map_reduce(_norms_of, operator.add, label="norms")
        self.t_ = bandwidth * norms / rows.n_rows
        self.landmarks_ = to_float64(rows.sample(n_landmarks, random_state))
        self.subsets_ = np.array(
            [random_state.permutation(n_landmarks)[:n_subset] for _ in range(self.n_bits_)]
        )
        kernel = gaussian_kernel(self.landmarks_, self.landmarks_, self.t_)
        self.weights_ = landmark_weights(kernel, self.subsets_)

    def _margins(self, block: Floats) -> Floats:
        kernel = gaussian_kernel(block, self.landmarks_, self.t_)
        return kernel @ like(self.weights_, block)

    def _width(self) -> int:
        return self.n_bits_ + len(self.landmarks_)


def _norms_of(block: Floats, _: int) -> float:
    return float((module_of(block).einsum("ij,ij->i", block, block) ** 0.5).sum())


def gaussian_kernel(block: Floats, landmarks: NDArray[np.float64], t: float) -> Floats:
    """Kernels ``exp(−|x − y|² / 2t²)`` between rows (m, d) and landmarks (p, d).

    Returns
    -------
    array of shape (m, p) in the block's type

    Examples
    --------
    >>> gaussian_kernel(np.array([[0.0]]), np.array([[0.0], [1.0]]), t=1.0).round(3)
    array([[1.   , 0.607]])
    """
    kernel = squared_distances(block, landmarks)
    kernel *= -0.5 / t**2
    module_of(block).exp(kernel, out=kernel)
    return kernel


def landmark_weights(kernel: Floats, subsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """The weight of each landmark in each plane: K^(−1/2) times the indicator of the subset.

    Parameters
    ----------
    kernel : float array of shape (p, p), kernels between landmarks; this function centres them
    subsets : int64 array of shape (n_bits, t), positions of landmarks

    Returns
    -------
    float64 array of shape (p, n_bits)

    Examples
    --------
    >>> landmark_weights(np.eye(3), np.array([[0, 1]])).round(3).ravel()
    array([ 0.333,  0.333, -0.667])
    """
    p, t = len(kernel), subsets.shape[1]
    centered = kernel - kernel.mean(axis=0) - kernel.mean(axis=1)[:, np.newaxis] + kernel.mean()
    values, vectors = scipy.linalg.eigh(centered)
    scale = np.zeros(p)
    kept = values > _LEAST_EIGENVALUE
    if not kept.any():
        raise InputError(
            "the kernel tells no landmarks apart: lower bandwidth, or raise n_landmarks"
        )
    scale[kept] = values[kept] ** -0.5
    chosen = np.zeros((p, len(subsets)))
    np.put_along_axis(chosen, subsets.T, 1.0, axis=0)
    weights: NDArray[np.float64] = np.sqrt((p - 1) / t) * (
        vectors @ (scale[:, np.newaxis] * (vectors.T @ chosen))
    )
    return weights
