"""Signs with a decoder: what is kept of a residual, and how a distance is estimated from it.

A row x lies in the group of centre c. Two things are kept of its residual r = x − c: signs
s ∈ {−1, 1}^B, chosen so that y = s G has nearly the direction of r, and two numbers α and β:

    |q − x|² ≈ |q − c|² + (α − ⟨s, G q⟩) / β,    β = |y| / (2 |r|),    α = |r|² β + ⟨y, c⟩

G (B × d) is the decoder, the same for all rows. Each row of G is kept as whole numbers with a step,
so that G q is computed from bytes. Signs and G are learnt in turn: signs by descent (a sign is
flipped as long as that brings s G nearer to r / |r|), G by least squares. The start is a random
rotation of the principal directions. For inner products, −2 ⟨q, x⟩ is estimated in the same way
from −2 ⟨q, c⟩, with α = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash import _native
from densehash.checks import check_positive
from densehash.columns import is_tensor
from densehash.errors import FileError
from densehash.index.stored import check_stored
from densehash.locks import cached_property
from densehash.parallel import n_threads, one_blas_thread

__all__ = ["Decoder", "learn_decoder", "signs_of"]

_ROUNDS = 1  # of descent and least squares: more make no visible difference
_SWEEPS_LEARNING = 2
_SWEEPS = 4
_RIDGE = 1e-3  # of the number of rows
# Factors have 16 bits. There is room for an α and an |r| four times as large as in the sample. The
# smallest |r| that can be told apart is a 64th of the largest.
_MOST = 32767
_ROOM = 4
_LEAST_BETA = 512


@dataclass(frozen=True)
class Decoder:
    """A decoder of signs.

    Attributes
    ----------
    whole : int8 (n_bits, d), G in whole numbers from −127 to 127
    steps : float32 (n_bits,), by which each row of G is multiplied
    alpha, beta : by which the factors of rows are multiplied
    metric : "l2", "cosine" or "ip"

    Examples
    --------
    >>> rows = RandomState(0).standard_normal((100, 4)).astype(np.float32)
    >>> centers, labels = np.zeros((1, 4), np.float32), np.zeros(100, np.uint32)
    >>> decoder = learn_decoder(rows, labels, centers, 16, "l2", RandomState(0))
    >>> codes, factors = decoder.encode(rows, labels, centers)
    >>> codes.shape, codes.dtype, factors.shape, factors.dtype
    ((100, 2), dtype('uint8'), (100, 2), dtype('int16'))
    """

    whole: NDArray[np.int8]
    steps: NDArray[np.float32]
    alpha: float
    beta: float
    metric: str

    def content(self) -> dict[str, Any]:
        """What a file keeps of the decoder."""
        names = ("whole", "steps", "alpha", "beta")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_content(
        cls, stored: Mapping[str, Any], n_bits: int, n_features: int, metric: str
    ) -> Decoder:
        """The decoder from a file; an error if its parts do not fit together."""
        whole, steps = stored["whole"], stored["steps"]
        check_stored(whole, "whole", np.int8, (n_bits, n_features))
        check_stored(steps, "steps", np.float32, (n_bits,))
        if not bool((np.isfinite(steps) & (steps > 0)).all()):
            raise FileError("the steps of a decoder must be finite numbers greater than 0")
        alpha, beta = (check_positive(stored[name], name) for name in ("alpha", "beta"))
        return cls(whole, steps, alpha, beta, metric)

    @property
    def n_bits(self) -> int:
        """Signs of a row."""
        return len(self.whole)

    @property
    def matrix(self) -> NDArray[np.float32]:
        """G: float32 (n_bits, d)."""
        return self.whole * self.steps[:, np.newaxis]

    @cached_property
    def gram(self) -> NDArray[np.float32]:
        """G Gᵀ: float32 (n_bits, n_bits)."""
        matrix = self.matrix
        return _native.multiply(matrix, np.ascontiguousarray(matrix.T))

    def products(self, centers: NDArray[np.float32]) -> NDArray[np.float32]:
        """Products of the centres with G, which :meth:`encode` needs: float32 (g, n_bits)."""
        return _native.multiply(centers, np.ascontiguousarray(self.matrix.T))

    def encode(
        self,
        rows: NDArray[np.float32],
        labels: NDArray[np.uint32],
        centers: NDArray[np.float32],
        products: NDArray[np.float32] | None = None,
        *,
        nearest: bool = False,
    ) -> tuple[NDArray[np.uint8], NDArray[np.int16]]:
        """Signs and factors of rows; those of a row do not depend on the other rows.

        Parameters
        ----------
        rows : float32 (n, d), relative to the same point as the centres; with "cosine", they had
            length 1 before that point was subtracted. If they are a tensor, signs are found on its
            device.
        labels : uint32 (n,), the group of each row
        centers : float32 (g, d)
        products : what :meth:`products` returns, if encode is called more than once
        nearest : whether β is |y|² / (2 ⟨y, r⟩), which brings y nearest to r and leaves the least
            to a second sketch. Without a second sketch, the other β ranks rows better.

        Returns
        -------
        codes : uint8 (n, n_bits / 8), little bit order, 1 for a positive sign
        factors : int16 (n, 2), α and β; α is −32,768 if it does not fit
        """
        if products is None:
            products = self.products(centers)
        codes, lengths = self.descend(rows, labels, centers, products, _SWEEPS)
        return codes, self._factors(lengths, _nearest_betas if nearest else _betas)

    def descend(
        self,
        rows: NDArray[np.float32],
        labels: NDArray[np.uint32],
        centers: NDArray[np.float32],
        products: NDArray[np.float32],
        sweeps: int,
    ) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """Signs, and the numbers from which factors are computed, float32 (n, 4).

        These numbers are |r|², |y|², ⟨y, c⟩ and ⟨y, r⟩. The parameters are those of :meth:`encode`;
        each sign may flip ``sweeps`` times.
        """
        if is_tensor(rows):
            from densehash.gpu import signs  # noqa: PLC0415  imports torch

            return signs.descend(rows, labels, centers, products, self.matrix, self.gram, sweeps)
        return _native.encode_signs(
            rows,
            labels,
            centers,
            products,
            self.whole,
            self.steps,
            self.gram,
            sweeps,
            n_threads(),
        )

    def _factors(
        self,
        lengths: NDArray[np.float32],
        betas_of: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    ) -> NDArray[np.int16]:
        with np.errstate(over="ignore"):  # residuals may be nearly zero
            betas = np.clip(np.rint(betas_of(lengths) / np.float32(self.beta)), 1, _MOST)
        factors = np.zeros((len(lengths), 2), np.int16)
        factors[:, 1] = betas
        if self.metric != "ip":
            alphas = lengths[:, 0] * (betas * np.float32(self.beta)) + lengths[:, 2]
            with np.errstate(over="ignore"):
                alphas = np.rint(alphas / np.float32(self.alpha))
            factors[:, 0] = np.where(np.abs(alphas) <= _MOST, alphas, -_MOST - 1)
        return factors


def learn_decoder(
    rows: NDArray[np.float32],
    labels: NDArray[np.uint32],
    centers: NDArray[np.float32],
    n_bits: int,
    metric: str,
    random_state: RandomState,
) -> Decoder:
    """Learn a decoder from some rows; 8,000 to 32,000 are enough.

    Parameters
    ----------
    rows : float32 (n, d), relative to the same point as the centres
    labels : uint32 (n,), the group of each row
    centers : float32 (g, d)
    n_bits : signs of a row, a multiple of 8
    metric : "l2", "cosine" or "ip"
    random_state : draws the first rotation

    Examples
    --------
    >>> rows = RandomState(0).standard_normal((100, 4)).astype(np.float32)
    >>> centers, labels = np.zeros((1, 4), np.float32), np.zeros(100, np.uint32)
    >>> learn_decoder(rows, labels, centers, 16, "l2", RandomState(0)).matrix.shape
    (16, 4)
    """
    residuals = rows - centers[labels]
    lengths = np.sqrt(np.einsum("ij,ij->i", residuals, residuals))
    residuals /= np.maximum(lengths, np.finfo(np.float32).tiny)[:, np.newaxis]
    with one_blas_thread():
        signs = _first_signs(residuals, n_bits, random_state)
        decoder = _in_whole_numbers(_least_squares(signs, residuals), metric)
        here = np.zeros((1, rows.shape[1]), np.float32)
        products = np.zeros((1, n_bits), np.float32)
        zeros = np.zeros(len(rows), np.uint32)
        for _ in range(_ROUNDS):
            codes, _ = decoder.descend(residuals, zeros, here, products, _SWEEPS_LEARNING)
            decoder = _in_whole_numbers(_least_squares(signs_of(codes), residuals), metric)
    _, of_rows = decoder.descend(rows, labels, centers, decoder.products(centers), _SWEEPS)
    betas = _betas(of_rows)
    beta = float(betas.min()) / _LEAST_BETA if np.isfinite(betas.min()) else 1.0
    stored = np.minimum(betas, np.float32(beta * _MOST))
    alphas = np.abs(of_rows[:, 0] * stored + of_rows[:, 2])
    alpha = _ROOM * float(alphas.max()) / _MOST if metric != "ip" else 0.0
    return replace(decoder, alpha=max(alpha, float(np.finfo(np.float32).tiny)), beta=beta)


def _in_whole_numbers(matrix: NDArray[np.float32], metric: str) -> Decoder:
    """A decoder whose ``alpha`` and ``beta`` are not known yet."""
    steps = np.maximum(np.abs(matrix).max(axis=1) / 127, np.finfo(np.float32).tiny)
    whole = np.rint(matrix / steps[:, np.newaxis]).astype(np.int8)
    return Decoder(whole, steps, 1.0, 1.0, metric)


def _first_signs(
    residuals: NDArray[np.float32], n_bits: int, random_state: RandomState
) -> NDArray[np.float32]:
    import scipy.linalg  # noqa: PLC0415  only learning needs it

    from densehash.hashers.itq import random_rotation  # noqa: PLC0415  brings scikit-learn

    d = residuals.shape[1]
    c = min(n_bits, d)
    squares = (residuals.T @ residuals).astype(np.float64)
    directions = scipy.linalg.eigh(squares, subset_by_index=(d - c, d - 1))[1]
    planes = directions @ random_rotation(c, n_bits, random_state)
    return np.where(residuals @ planes.astype(np.float32) >= 0, 1, -1).astype(np.float32)


def _least_squares(
    signs: NDArray[np.float32], residuals: NDArray[np.float32]
) -> NDArray[np.float32]:
    import scipy.linalg  # noqa: PLC0415  only learning needs it

    squares = (signs.T @ signs).astype(np.float64)
    squares[np.diag_indices_from(squares)] += _RIDGE * len(signs)
    products = (signs.T @ residuals).astype(np.float64)
    matrix: NDArray[np.float32] = scipy.linalg.solve(squares, products, assume_a="pos").astype(
        np.float32
    )
    return matrix


def _betas(lengths: NDArray[np.float32]) -> NDArray[np.float32]:
    """|y| / (2 |r|); infinite if r is zero."""
    decoded = np.sqrt(np.maximum(lengths[:, 1], 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        betas = decoded / (2 * np.sqrt(lengths[:, 0]))
    return np.where(np.isnan(betas) | (betas == 0), np.float32(np.inf), betas)


def _nearest_betas(lengths: NDArray[np.float32]) -> NDArray[np.float32]:
    """|y|² / (2 ⟨y, r⟩); infinite if r is zero, or if y points away from r."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        betas = lengths[:, 1] / (2 * lengths[:, 3])
    return np.where(betas > 0, betas, np.float32(np.inf))


def signs_of(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Signs as numbers.

    Examples
    --------
    >>> signs_of(np.array([[1]], np.uint8))
    array([[ 1., -1., -1., -1., -1., -1., -1., -1.]], dtype=float32)
    """
    signs: NDArray[Any] = np.unpackbits(codes, axis=1, bitorder="little").astype(np.float32)
    return signs * 2 - 1
