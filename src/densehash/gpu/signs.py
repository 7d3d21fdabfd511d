"""Signs of residuals by descent, on the device of the rows.

See :mod:`densehash.index.sketches.decoder`. The steps are those of the native code, but products
are of floats, not of integers. A few signs in a hundred differ, and are as good.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from densehash.gpu.products import has_kernels

__all__ = ["descend"]

_ROWS = 2**17  # rows at a time


def descend(
    rows: Tensor,
    labels: NDArray[np.uint32],
    centers: NDArray[np.float32],
    products: NDArray[np.float32],
    matrix: NDArray[np.float32],
    gram: NDArray[np.float32],
    sweeps: int,
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Signs, and the numbers from which factors are computed: see ``Decoder.descend``.

    Parameters
    ----------
    rows : float32 (n, d)
    labels : uint32 (n,)
    centers : float32 (g, d)
    products : float32 (g, n_bits), products of the centres with the decoder
    matrix, gram : float32 (n_bits, d) and (n_bits, n_bits)
    sweeps : how often each sign may flip

    Returns
    -------
    codes : uint8 (n, n_bits / 8)
    lengths : float32 (n, 4): |r|², |y|², ⟨y, c⟩, ⟨y, r⟩

    Examples
    --------
    >>> zeros, eye = np.zeros((1, 8), np.float32), np.eye(8, dtype=np.float32)
    >>> rows = torch.tensor([[1.0, -1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0]])
    >>> codes, lengths = descend(rows, np.zeros(1, np.uint32), zeros, zeros, eye, eye, sweeps=1)
    >>> codes, lengths[0, 0]
    (array([[13]], dtype=uint8), np.float32(8.0))
    """
    here = [torch.from_numpy(array).to(rows.device) for array in (centers, products, matrix, gram)]
    groups = torch.from_numpy(labels.astype(np.int64)).to(rows.device)
    find = _by_torch
    if has_kernels(rows.device):
        from densehash.gpu import kernels  # noqa: PLC0415

        find = kernels.descend
    codes = torch.empty((len(rows), len(gram) // 8), dtype=torch.uint8, device=rows.device)
    lengths = torch.empty((len(rows), 4), dtype=torch.float32, device=rows.device)
    for at in range(0, len(rows), _ROWS):
        some = slice(at, at + _ROWS)
        residuals = rows[some] - here[0][groups[some]]
        squares = residuals.square().sum(1)
        units = residuals / squares.sqrt().clamp_(min=torch.finfo(torch.float32).tiny)[:, None]
        of_rows = units @ here[2].T
        signs, left = find(of_rows, here[3], sweeps)
        lengths[some, 0] = squares
        # s G Gᵀ = G r − left
        lengths[some, 1] = (signs * (of_rows - left)).sum(1)
        lengths[some, 2] = (signs * here[1][groups[some]]).sum(1)
        lengths[some, 3] = squares.sqrt() * (signs * of_rows).sum(1)
        codes[some] = _packed(signs)
    return codes.cpu().numpy(), lengths.cpu().numpy()


def _by_torch(products: Tensor, gram: Tensor, sweeps: int) -> tuple[Tensor, Tensor]:
    """Signs (n, n_bits) of ±1, and the rest of the products that they leave (n, n_bits)."""
    left = products.clone()
    signs = torch.empty_like(left)
    for bit in range(len(gram)):
        signs[:, bit] = torch.where(left[:, bit] < 0, -1.0, 1.0)
        left -= signs[:, bit, None] * gram[bit]
    for _ in range(sweeps):
        for bit in range(len(gram)):
            flips = signs[:, bit] * left[:, bit] + gram[bit, bit] < 0
            left += torch.where(flips, 2 * signs[:, bit], 0.0)[:, None] * gram[bit]
            signs[:, bit] = torch.where(flips, -signs[:, bit], signs[:, bit])
    return signs, left


def _packed(signs: Tensor) -> Tensor:
    n, n_bits = signs.shape
    weights = torch.tensor([1 << bit for bit in range(8)], dtype=torch.uint8, device=signs.device)
    bits = (signs > 0).to(torch.uint8).reshape(n, n_bits // 8, 8)
    return (bits * weights).sum(2, dtype=torch.uint8)
