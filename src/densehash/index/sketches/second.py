"""The second sketch: a longer code of what the first leaves over, if no vectors are kept.

The first sketch estimates a squared distance by |q − c|² + |r|² − 2 ⟨q − c, f y⟩: see the decoder.
It leaves e = r − f y, and the error of the estimate is −2 ⟨q − c, e⟩. So e is kept, too: its
products with the principal directions of residuals, each in as many bits as it is worth. An error
in a direction matters as much as queries differ from centres in this direction, so its weight is
the variance of residuals there.

A product is one of 2^b values, evenly spaced around 0. Its bits are signs of 1/2, 1, 2, ... steps,
so that ⟨q, e⟩ ≈ f₂ ⟨s, H q⟩ for signs s and a decoder H, as in the first sketch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash import _native
from densehash.errors import FileError
from densehash.index.stored import check_stored
from densehash.locks import cached_property
from densehash.parallel import one_blas_thread

__all__ = ["SecondDecoder", "n_second_bits", "packed", "rounded", "unpacked"]

Floats = NDArray[np.float32]

# Steps of the best uniform quantisers of normal numbers with 1 to 8 bits, and the share of the
# variance that 0 to 8 bits leave (J. Max, Quantizing for minimum distortion, 1960).
_STEPS = (1.5958, 0.9957, 0.5860, 0.3352, 0.1881, 0.1041, 0.0569, 0.0308)
_LEFT = (1.0, 0.3634, 0.1188, 0.03744, 0.01154, 0.00349, 0.00104, 0.0003, 0.00009)
_MOST = len(_STEPS)  # bits of a product

_BYTES = 128  # of a row
_OTHERS = 21  # bytes of an id, the number of a row, two times two factors, and 1 for the groups
_A_FEATURE = 4  # bits for a feature: more find hardly more neighbours
_FEWEST = 64
_TINY = float(np.finfo(np.float32).tiny)


def n_second_bits(n_bits: int, n_features: int) -> int:
    """How many bits a second sketch has: they fill a row up to 128 bytes, or fewer are enough.

    Examples
    --------
    >>> n_second_bits(256, 960), n_second_bits(128, 100)
    (600, 400)
    """
    room = max(8 * (_BYTES - _OTHERS) - n_bits, _FEWEST)
    return min(room, -(-_A_FEATURE * n_features // 8) * 8)


def rounded(numbers: Floats) -> Floats:
    """The nearest numbers whose lower 16 bits are zero: a factor is kept in 16 bits.

    Examples
    --------
    >>> rounded(np.array([1.0, 3.14159], np.float32))
    array([1.      , 3.140625], dtype=float32)
    """
    bits = numbers.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32)


def packed(one: Floats, two: Floats) -> NDArray[np.uint32]:
    """Two rounded numbers in 32 bits, the first one in the upper half.

    Examples
    --------
    >>> unpacked(packed(np.array([-2.0], np.float32), np.array([0.5], np.float32)))
    (array([-2.], dtype=float32), array([0.5], dtype=float32))
    """
    return one.view(np.uint32) | two.view(np.uint32) >> np.uint32(16)


def unpacked(factors: NDArray[np.uint32]) -> tuple[Floats, Floats]:
    """The two numbers in 32 bits.

    Examples
    --------
    >>> unpacked(np.array([0x3F800000], np.uint32))
    (array([1.], dtype=float32), array([0.], dtype=float32))
    """
    above = factors & np.uint32(0xFFFF0000)
    return above.view(np.float32), (factors << np.uint32(16)).view(np.float32)


@dataclass(frozen=True)
class SecondDecoder:
    """Encodes and decodes what the first sketch leaves of a residual.

    Attributes
    ----------
    directions : float32 (m, d), orthonormal
    bits : uint8 (m,), 1 to 8 bits of the product with each direction; their sum is a multiple of 8
    steps : float32 (m,), the step between values of a product, if the rest has length one
    weights : float32 (m,), how much the square of an error counts

    Examples
    --------
    >>> rows = np.random.RandomState(0).standard_normal((100, 4)).astype(np.float32)
    >>> decoder = SecondDecoder.learn(rows, rows, 16)
    >>> codes, factors, _ = decoder.encode(rows)
    >>> codes.shape, bool(np.abs(decoder.decode(codes, factors) - rows).mean() < 0.1)
    ((100, 2), True)
    """

    directions: Floats
    bits: NDArray[np.uint8]
    steps: Floats
    weights: Floats

    @classmethod
    def learn(cls, residuals: Floats, left: Floats, n_bits: int) -> SecondDecoder:
        """Learn from a sample.

        Parameters
        ----------
        residuals : float32 (n, d)
        left : float32 (n, d), what the first sketch leaves of them
        n_bits : bits of a row, a multiple of 8, at most 8 d
        """
        import scipy.linalg  # noqa: PLC0415  only learning needs it

        d = residuals.shape[1]
        with one_blas_thread():
            squares = (residuals.T @ residuals).astype(np.float64)
            least = d - min(d, n_bits)
            variances, columns = scipy.linalg.eigh(squares, subset_by_index=(least, d - 1))
            directions = np.ascontiguousarray(columns.T[::-1], np.float32)
            products = left @ directions.T
        largest = max(float(variances[-1]), _TINY)
        weights = np.maximum(variances[::-1] / largest, 1e-9).astype(np.float32)
        bits = _bits_for(weights * _variances(products, weights), n_bits)
        kept = np.flatnonzero(bits)
        directions, bits, weights = directions[kept], bits[kept], weights[kept]
        spreads = np.sqrt(_variances(products[:, kept], weights))
        steps = np.maximum(np.array(_STEPS)[bits - 1] * spreads, _TINY)
        return cls(directions, bits.astype(np.uint8), steps.astype(np.float32), weights)

    @property
    def n_bits(self) -> int:
        """Bits of a row."""
        return len(self.numbers)

    @cached_property
    def numbers(self) -> NDArray[np.uint32]:
        """The direction that each bit belongs to, uint32 (n_bits,)."""
        return np.repeat(np.arange(len(self.bits), dtype=np.uint32), self.bits)

    @cached_property
    def places(self) -> NDArray[np.uint8]:
        """The place of each bit in its product, from 0 for the lowest: uint8 (n_bits,)."""
        return np.concatenate([np.arange(b, dtype=np.uint8) for b in self.bits])

    @cached_property
    def halves(self) -> Floats:
        """The value of each sign, (n_bits,): row l of H is halves[l] directions[numbers[l]]."""
        return np.ldexp(self.steps[self.numbers], self.places.astype(np.int32) - 1)

    @cached_property
    def panels(self) -> Floats:
        """Directions as native code needs them: (d, m rounded up to a multiple of 8)."""
        m, d = self.directions.shape
        panels = np.zeros((d, -(-m // 8) * 8), np.float32)
        panels[:, :m] = self.directions.T
        return panels

    def products(self, rows: Floats) -> Floats:
        """Products of rows (n, d) with the directions, (n, m); each row is computed by itself."""
        return _native.multiply(rows, self.panels)[:, : len(self.bits)]

    def encode(self, left: Floats) -> tuple[NDArray[np.uint8], Floats, Floats]:
        """Codes (n, n_bits / 8), f₂ (n,), and ⟨s, H⟩ by direction (n, m), of the rest (n, d)."""
        return self.encode_products(self.products(left))

    def encode_products(self, products: Floats) -> tuple[NDArray[np.uint8], Floats, Floats]:
        """The same from products (n, m)."""
        lengths = _lengths(products, self.weights)[:, np.newaxis]
        half = np.ldexp(np.float32(1), self.bits.astype(np.int32) - 1)
        with np.errstate(over="ignore"):  # a step may be nearly zero
            levels = np.clip(np.floor(products / lengths / self.steps), -half, half - 1)
        values = (levels + np.float32(0.5)) * self.steps
        whole = (levels + half).astype(np.uint8)
        signs = whole[:, self.numbers] >> self.places & 1
        codes: NDArray[np.uint8] = np.packbits(signs, axis=1, bitorder="little")
        # The factor that leaves the smallest error.
        weighted = values * self.weights
        above = np.einsum("ij,ij->i", weighted, products)
        below = np.einsum("ij,ij->i", weighted, values)
        return codes, above / np.maximum(below, np.float32(_TINY)), values

    def decode(self, codes: NDArray[np.uint8], factors: Floats) -> Floats:
        """The rest, approximately: float32 (n, d)."""
        signs = np.unpackbits(codes, axis=1, bitorder="little").astype(np.float32) * 2 - 1
        matrix = self.halves[:, np.newaxis] * self.directions[self.numbers]
        decoded: Floats = factors[:, np.newaxis] * (signs @ matrix)
        return decoded

    # --- in a file ------------------------------------------------------------------------------

    def content(self) -> dict[str, NDArray[Any]]:
        """What a file keeps of the decoder."""
        return {
            "directions": self.directions,
            "bits": self.bits,
            "steps": self.steps,
            "weights": self.weights,
        }

    @classmethod
    def from_content(cls, stored: Mapping[str, Any], n_features: int) -> SecondDecoder:
        """The decoder from a file; an error if its parts do not fit together."""
        directions, bits, steps, weights = (
            stored[name] for name in ("directions", "bits", "steps", "weights")
        )
        check_stored(bits, "bits", np.uint8, (None,))
        check_stored(directions, "directions", np.float32, (len(bits), n_features))
        check_stored(steps, "steps", np.float32, (len(bits),))
        check_stored(weights, "weights", np.float32, (len(bits),))
        if not bool(((bits >= 1) & (bits <= _MOST)).all()):
            raise FileError(f"the bits of a direction must be 1 to {_MOST}")
        if len(bits) == 0 or int(bits.sum()) % 8:
            raise FileError("the bits of a second sketch must be a multiple of 8")
        if not bool(np.isfinite(directions).all()):
            raise FileError("the directions of a second sketch are not finite")
        if not all(bool((np.isfinite(a) & (a > 0)).all()) for a in (steps, weights)):
            raise FileError("steps and weights of a second sketch must be finite and above 0")
        return cls(directions, bits, steps, weights)


def _lengths(products: Floats, weights: Floats) -> Floats:
    """Weighted lengths of rows; 1 for a row of zeros."""
    squares = np.einsum("ij,ij->i", products * weights, products)
    return np.where(squares > 0, np.sqrt(squares), np.float32(1))


def _variances(products: Floats, weights: Floats) -> Floats:
    """Variances of products, if all rows have length one."""
    units = products / _lengths(products, weights)[:, np.newaxis]
    found: Floats = np.einsum("ij,ij->j", units, units) / np.float32(len(units))
    return found


def _bits_for(worth: Floats, n_bits: int) -> NDArray[np.int64]:
    """Bits of each product: each bit goes to the product whose error it reduces most."""
    bits = np.zeros(len(worth), np.int64)
    gains = [before - after for before, after in pairwise(_LEFT)] + [-1.0]
    now = np.maximum(worth.astype(np.float64), _TINY) * gains[0]
    for _ in range(n_bits):
        at = int(now.argmax())
        bits[at] += 1
        now[at] = max(float(worth[at]), _TINY) * gains[bits[at]]
    return bits
