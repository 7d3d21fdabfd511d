"""The few operations on blocks that numpy and torch spell differently.

A block is an array of numpy, or a tensor of torch on any device. Functions of blocks are written
once, with the operators and methods that both have; what they need besides is here, or in the
module of the block (:func:`module_of`). What a pass brings home is small, and an array of numpy.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.columns import is_tensor

__all__ = [
    "add_by_label",
    "as_float32",
    "as_float64",
    "column_sums",
    "count",
    "like",
    "module_of",
    "numpy_type",
    "smallest",
    "square_sum",
    "to_float64",
    "to_host",
    "torch_type",
]


def module_of(block: Any) -> ModuleType:
    """numpy or torch, whichever has made the block.

    Examples
    --------
    >>> module_of(np.zeros(3)).__name__
    'numpy'
    """
    return sys.modules["torch"] if is_tensor(block) else np


def torch_type(dtype: Any) -> Any:
    """The type of torch for one of numpy.

    Examples
    --------
    >>> torch_type(np.float32)  # doctest: +SKIP
    torch.float32
    """
    return getattr(sys.modules["torch"], np.dtype(dtype).name)


def numpy_type(block: Any) -> np.dtype[Any]:
    """The type of numpy for that of a block.

    Examples
    --------
    >>> numpy_type(np.zeros(1, np.float32))
    dtype('float32')
    """
    return np.dtype(str(block.dtype).removeprefix("torch."))


def like(values: Any, block: Any) -> Any:
    """Values in the type of a block, where the block is; nothing is copied that need not be.

    Parameters
    ----------
    values : an array of numpy, or an array or tensor of the block's own kind
    block : an array or a tensor

    Examples
    --------
    >>> like(np.arange(2), np.zeros(1, np.float32))
    array([0., 1.], dtype=float32)
    """
    if not is_tensor(block):
        return values.astype(block.dtype, copy=False)
    if not is_tensor(values):
        # Made the type here: half as many bytes travel.
        values = sys.modules["torch"].from_numpy(np.asarray(values, dtype=numpy_type(block)))
    return values.to(device=block.device, dtype=block.dtype)


def to_host(values: Any) -> NDArray[Any]:
    """An array or a tensor as an array of numpy, in its own type.

    Examples
    --------
    >>> to_host(np.arange(2))
    array([0, 1])
    """
    found: NDArray[Any] = values.cpu().numpy() if is_tensor(values) else values
    return found


def as_float32(values: Any) -> Any:
    """An array or a tensor in float32; the same one where it is.

    Examples
    --------
    >>> as_float32(np.arange(2.0))
    array([0., 1.], dtype=float32)
    """
    return _as_type(values, np.float32)


def as_float64(values: Any) -> Any:
    """Likewise in float64.

    Examples
    --------
    >>> as_float64(np.arange(2))
    array([0., 1.])
    """
    return _as_type(values, np.float64)


def _as_type(values: Any, dtype: type[np.floating]) -> Any:
    if is_tensor(values):
        return values.to(torch_type(dtype))
    return values.astype(dtype, copy=False)


def to_float64(values: Any) -> NDArray[np.float64]:
    """An array or a tensor as an array of numpy, in float64.

    Examples
    --------
    >>> to_float64(np.arange(2))
    array([0., 1.])
    """
    return to_host(values).astype(np.float64)


def column_sums(block: Any) -> NDArray[np.float64]:
    """Sums over rows, added up in float64: of shape (d,).

    Examples
    --------
    >>> column_sums(np.ones((3, 2), np.float32))
    array([3., 3.])
    """
    if is_tensor(block):
        return to_host(block.sum(0, dtype=torch_type(np.float64)))
    found: NDArray[np.float64] = block.sum(axis=0, dtype=np.float64)
    return found


def square_sum(block: Any) -> float:
    """The sum of the squares of all numbers; NaN or infinity where there is one, or it overflows.

    Examples
    --------
    >>> square_sum(np.array([[1.0, 2.0]]))
    5.0
    """
    flat = block.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        return float(module_of(block).dot(flat, flat))


def add_by_label(block: Any, labels: Any, k: int) -> NDArray[np.float64]:
    """Sums of the rows (m, d) of each label from 0 to k - 1: of shape (k, d).

    Examples
    --------
    >>> add_by_label(np.array([[1.0], [2.0], [3.0]]), np.array([0, 2, 0]), 3).ravel()
    array([4., 0., 2.])
    """
    if is_tensor(block):
        members = block.new_zeros((k, len(block)))
        members.scatter_(0, labels.reshape(1, -1), 1)
        # A product, since its sums have one order; those of index_add_ on a GPU do not.
        return to_float64(members @ block)
    import scipy.sparse  # noqa: PLC0415  only learning needs it

    # Ten times as fast as numpy.add.at or sorting by label.
    members = scipy.sparse.csc_array(
        (np.ones(len(block), block.dtype), labels, np.arange(len(block) + 1)),
        shape=(k, len(block)),
    )
    return to_float64(members @ block)


def count(numbers: Any, k: int) -> Any:
    """How often each number from 0 to k - 1 is there: integers of shape (k,), where the numbers are.

    Examples
    --------
    >>> count(np.array([0, 2, 0]), 3)
    array([2, 0, 1])
    """
    if not is_tensor(numbers):
        return np.bincount(numbers, minlength=k)
    counts = numbers.new_zeros(k)  # bincount of torch would wait for the device to say how many
    return counts.scatter_add_(0, numbers, numbers.new_ones(()).expand(len(numbers)))


def smallest(values: Any, n: int) -> tuple[Any, Any]:
    """The smallest n of each row, in rising order, and their positions; ``values`` may change.

    Parameters
    ----------
    values : array or tensor of shape (m, k)
    n : few, at most k

    Returns
    -------
    (m, n) in the type of the values, and (m, n) of integers

    Examples
    --------
    >>> smallest(np.array([[3.0, 1.0, 2.0]]), 2)
    (array([[1., 2.]]), array([[1, 2]]))
    """
    if is_tensor(values):
        found, positions = values.topk(n, dim=1, largest=False)
        return found, positions
    every = np.arange(len(values))
    positions = np.empty((len(values), n), dtype=np.intp)
    found = np.empty((len(values), n), dtype=values.dtype)
    for rank in range(n):
        positions[:, rank] = values.argmin(axis=1)
        found[:, rank] = values[every, positions[:, rank]]
        values[every, positions[:, rank]] = np.inf
    return found, positions
