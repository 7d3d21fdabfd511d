"""Packed codes: the one place that knows how bits lie in bytes.

A code of L bits is ``ceil(L / 8)`` bytes in little bit order: bit l is
``code[l // 8] >> (l % 8) & 1``. If L is not a multiple of 8, the high bits of the last byte
are padding, and padding is zero. L is from 1 to 4096.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densehash.checks import MAX_BYTES, as_array, check_codes, check_integer
from densehash.columns import as_plain, is_tensor
from densehash.errors import InputError

__all__ = [
    "MAX_BITS",
    "bytes_for",
    "check_padding",
    "from_big_endian",
    "pack",
    "to_big_endian",
    "unpack",
]

MAX_BITS = 8 * MAX_BYTES
"""The longest code, in bits: 4096."""

# At position b: byte b with its bits reversed.
_REVERSED = np.packbits(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1), axis=1, bitorder="little"
).reshape(256)


def bytes_for(n_bits: int) -> int:
    """How many bytes a code of ``n_bits`` bits takes.

    Parameters
    ----------
    n_bits : from 1 to 4096

    Examples
    --------
    >>> bytes_for(64), bytes_for(65)
    (8, 9)
    """
    return -(-check_integer(n_bits, "n_bits", 1, MAX_BITS) // 8)


def pack(bits: ArrayLike) -> NDArray[np.uint8]:
    """Pack bits into bytes.

    Parameters
    ----------
    bits : bool array, or integer array of zeros and ones, of shape (n, n_bits); or a bool tensor
        of torch

    Returns
    -------
    uint8 array of shape (n, ceil(n_bits / 8)): little bit order, padding bits zero; for a tensor,
    a tensor on the same device

    Examples
    --------
    >>> import numpy as np
    >>> pack(np.array([[1, 0, 0, 0, 0, 0, 0, 0, 0, 1], [1, 1, 0, 0, 0, 0, 0, 0, 0, 0]]))
    array([[1, 2],
           [3, 0]], dtype=uint8)
    """
    if is_tensor(bits):
        packed: NDArray[np.uint8] = _pack_tensor(bits)
        return packed
    array = as_array(bits, "bits")
    if array.dtype.kind not in "biu":
        raise InputError(f"bits must be bool or integers 0 and 1, got dtype {array.dtype}")
    if array.ndim != 2:
        raise InputError(f"bits must have 2 dimensions (n, n_bits), got shape {array.shape}")
    if not 1 <= array.shape[1] <= MAX_BITS:
        raise InputError(f"bits must have 1 to {MAX_BITS} columns, got {array.shape[1]}")
    # Minimum and maximum first: they need no memory, and are nearly always enough.
    if array.dtype.kind != "b" and array.size and (array.min() < 0 or array.max() > 1):
        row, column = np.argwhere((array < 0) | (array > 1))[0]
        raise InputError(
            f"bits must be 0 or 1, got {array[row, column]} in row {row}, column {column}"
        )
    return np.ascontiguousarray(np.packbits(array, axis=1, bitorder="little"))


# The product of this and eight bytes of 0 or 1, as one number, has their bits in its highest byte,
# the lowest first.
_GATHER = 0x0102040810204080


def _pack_tensor(bits: Any) -> Any:
    torch = sys.modules["torch"]
    if bits.dtype != torch.bool or bits.ndim != 2 or not 1 <= bits.shape[1] <= MAX_BITS:
        raise InputError(
            f"bits must be a bool tensor of shape (n, 1 to {MAX_BITS}), got {bits.dtype} and shape "
            f"{tuple(bits.shape)}"
        )
    if bits.shape[1] % 8:
        bits = torch.nn.functional.pad(bits, (0, -bits.shape[1] % 8))
    eights = bits.contiguous().view(torch.uint8).view(torch.int64)
    return ((eights * _GATHER) >> 56).to(torch.uint8)


def unpack(codes: ArrayLike, n_bits: int) -> NDArray[np.bool_]:
    """Unpack bytes into bits; the inverse of :func:`pack`.

    Parameters
    ----------
    codes : uint8 array of shape (n, ceil(n_bits / 8)), padding bits zero
    n_bits : from 1 to 4096

    Returns
    -------
    bool array of shape (n, n_bits)

    Examples
    --------
    >>> import numpy as np
    >>> unpack(np.array([[5, 1]], dtype=np.uint8), 9).astype(int)
    array([[1, 0, 1, 0, 0, 0, 0, 0, 1]])
    """
    packed = check_codes(codes)
    check_padding(packed, n_bits)
    bits = np.unpackbits(packed, axis=1, count=int(n_bits), bitorder="little")
    return np.ascontiguousarray(bits).view(np.bool_)


def check_padding(codes: NDArray[np.uint8], n_bits: int, name: str = "codes") -> None:
    """Raise an error for codes of another width than ``n_bits`` needs, or with padding set.

    Parameters
    ----------
    codes : uint8 array or tensor of shape (n, ceil(n_bits / 8))
    n_bits : from 1 to 4096
    name : what the error calls the codes

    Examples
    --------
    >>> import numpy as np
    >>> check_padding(np.array([[255, 15]], dtype=np.uint8), 12)
    >>> check_padding(np.array([[255, 31]], dtype=np.uint8), 12)
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: codes of 12 bits must have 4 zero padding bits in the last byte, \
got 0b00011111 in row 0
    """
    width = bytes_for(n_bits)
    if codes.shape[1] != width:
        raise InputError(
            f"{name} of {n_bits} bits must be {width} bytes wide, got {codes.shape[1]}"
        )
    n_padding = 8 * width - int(n_bits)
    if n_padding == 0:
        return
    highest = 0xFF >> n_padding  # the largest last byte whose padding is zero
    last = as_plain(codes[:, -1])
    # One byte that holds every bit set anywhere: no memory of size n unless there is an error.
    if np.bitwise_or.reduce(last) > highest:
        row = int(np.argmax(last > highest))
        raise InputError(
            f"{name} of {n_bits} bits must have {n_padding} zero padding bits in the last byte, "
            f"got 0b{last[row]:08b} in row {row}"
        )


def to_big_endian(codes: ArrayLike) -> NDArray[np.uint8]:
    """Reverse the bits inside each byte, for systems that put bit 0 at the high end.

    This is the order of ``numpy.packbits`` by default and of PostgreSQL's ``bit`` type. Padding
    then sits at the low end of the last byte. Hamming distances do not change.

    Parameters
    ----------
    codes : uint8 array of shape (n, width)

    Returns
    -------
    uint8 array of shape (n, width), a new one

    Examples
    --------
    Ten bits, of which the first and the last are set: six bits of padding move to the low end.

    >>> import numpy as np
    >>> little = pack(np.array([[1, 0, 0, 0, 0, 0, 0, 0, 0, 1]]))
    >>> [f"{byte:08b}" for byte in little[0]]
    ['00000001', '00000010']
    >>> [f"{byte:08b}" for byte in to_big_endian(little)[0]]
    ['10000000', '01000000']
    """
    return _REVERSED[check_codes(codes)]


def from_big_endian(codes: ArrayLike) -> NDArray[np.uint8]:
    """Convert codes whose bytes hold bit 0 at the high end; the inverse of :func:`to_big_endian`.

    Parameters
    ----------
    codes : uint8 array of shape (n, width), big bit order, padding at the low end

    Returns
    -------
    uint8 array of shape (n, width), little bit order, a new one

    Examples
    --------
    >>> import numpy as np
    >>> bits = np.array([[1, 0, 0, 0, 0, 0, 0, 0, 0, 1]], dtype=bool)
    >>> bool((from_big_endian(np.packbits(bits, axis=1)) == pack(bits)).all())
    True
    """
    return _REVERSED[check_codes(codes)]
