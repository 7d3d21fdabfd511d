"""The few operations on blocks that numpy and torch name differently.

A block is an array of numpy, or a tensor of torch on any device. Functions of blocks are written
once, with the operators and methods that both have. What else they need is here, or in the module
of the block (:func:`module_of`). The answer of a pass is small, and an array of numpy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from densehash.columns import is_tensor, on_gpu

# A block; it may also be a tensor of torch, which type checkers may not know.
Floats: TypeAlias = NDArray[np.floating]

__all__ = [
    "add_by_label",
    "as_type",
    "column_stds",
    "column_sums",
    "correlate",
    "count",
    "like",
    "margins",
    "module_of",
    "nearest",
    "nth_smallest",
    "numpy_type",
    "recorded",
    "smallest",
    "square_sum",
    "square_sum_there",
    "take_rows",
    "to_float64",
    "to_host",
    "torch_type",
]


def module_of(block: Any) -> ModuleType:
    """The module of a block: numpy or torch.

    Examples
    --------
    >>> module_of(np.zeros(3)).__name__
    'numpy'
    """
    return sys.modules["torch"] if is_tensor(block) else np


def torch_type(dtype: Any) -> Any:
    """The type of torch for a type of numpy.

    Examples
    --------
    >>> torch_type(np.float32)  # doctest: +SKIP
    torch.float32
    """
    return getattr(sys.modules["torch"], np.dtype(dtype).name)


def numpy_type(block: Any) -> np.dtype[Any]:
    """The type of a block as a type of numpy.

    Examples
    --------
    >>> numpy_type(np.zeros(1, np.float32))
    dtype('float32')
    """
    return np.dtype(str(block.dtype).removeprefix("torch."))


def like(values: Any, block: Floats) -> Floats:
    """Values in the type and on the device of a block, copied only if necessary.

    Parameters
    ----------
    values : an array of numpy, or a tensor if the block is one
    block : an array or a tensor

    Examples
    --------
    >>> like(np.arange(2), np.zeros(1, np.float32))
    array([0., 1.], dtype=float32)
    """
    if not is_tensor(block):
        own: Floats = values.astype(block.dtype, copy=False)
        return own
    pinned = False
    if not is_tensor(values):
        # Converted here, so that half as many bytes are sent. A GPU reads pinned memory without
        # the CPU, after its current work; numpy fills it, because torch would use more threads.
        array, pinned = values, on_gpu(block)
        values = sys.modules["torch"].empty(array.shape, dtype=block.dtype, pin_memory=pinned)
        values.numpy()[...] = array
    there: Floats = values.to(device=block.device, dtype=block.dtype, non_blocking=pinned)
    return there


def to_host(values: Any) -> NDArray[Any]:
    """An array or a tensor as an array of numpy of the same type.

    Examples
    --------
    >>> to_host(np.arange(2))
    array([0, 1])
    """
    found: NDArray[Any] = values.cpu().numpy() if is_tensor(values) else values
    return found


def as_type(values: Any, dtype: Any) -> NDArray[Any]:
    """An array or a tensor converted to a type of numpy; unchanged if it has that type.

    Examples
    --------
    >>> as_type(np.arange(2), np.float32)
    array([0., 1.], dtype=float32)
    """
    if is_tensor(values):
        there: NDArray[Any] = values.to(torch_type(dtype))
        return there
    here: NDArray[Any] = values.astype(dtype, copy=False)
    return here


def to_float64(values: Any) -> NDArray[np.float64]:
    """An array or a tensor as an array of numpy in float64; unchanged if it is one.

    Examples
    --------
    >>> to_float64(np.arange(2))
    array([0., 1.])
    """
    return to_host(values).astype(np.float64, copy=False)


def column_sums(block: Any) -> NDArray[np.float64]:
    """Sums over rows, computed in float64: shape (d,).

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
    """The sum of the squares of all numbers; not finite if a number is not, or if it overflows.

    Examples
    --------
    >>> square_sum(np.array([[1.0, 2.0]]))
    5.0
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return float(square_sum_there(block))


def square_sum_there(block: Any) -> Any:
    """What :func:`square_sum` returns; for a tensor, a tensor, without waiting for the device.

    Examples
    --------
    >>> float(square_sum_there(np.array([[1.0, 2.0]])))
    5.0
    """
    flat = block.reshape(-1)
    if is_tensor(block):  # faster than a product with itself
        return sys.modules["torch"].linalg.vector_norm(flat).square()
    return np.dot(flat, flat)


def column_stds(block: Any) -> Any:
    """Standard deviations of the columns, in the block's type: (d,), on its device.

    Examples
    --------
    >>> column_stds(np.array([[1.0], [3.0]]))
    array([1.])
    """
    return block.std(0, correction=0) if is_tensor(block) else block.std(axis=0)


def take_rows(block: Any, positions: NDArray[np.integer]) -> Any:
    """Rows of an array or a tensor at positions of any shape.

    Examples
    --------
    >>> take_rows(np.array([[1.0], [3.0]]), np.array([1]))
    array([[3.]])
    """
    if is_tensor(block):
        where = sys.modules["torch"].from_numpy(positions.astype(np.int64))
        return block[where.to(block.device)]
    return block[positions]


def margins(
    block: Floats, planes: NDArray[np.floating], thresholds: NDArray[np.floating]
) -> Floats:
    """Products of rows (m, d) with planes (L, d), minus thresholds (L,): (m, L).

    Examples
    --------
    >>> margins(np.array([[1.0, 2.0]]), np.array([[1.0, 1.0]]), np.array([2.0]))
    array([[1.]])
    """
    if _has_kernels(block):
        from densehash.gpu import matrices  # noqa: PLC0415  an extra

        found: Floats = matrices.margins(block, like(planes, block), like(thresholds, block))
        return found
    found = block @ like(planes.T, block)
    found -= like(thresholds, block)
    return found


def nearest(block: Floats, centers: NDArray[np.floating]) -> tuple[Any, Any]:
    """The nearest centre (k, d) of every row (m, d); the first if several are equally near.

    Returns
    -------
    labels : integers (m,)
    scores : (m,), the product of each row with its centre, minus half of the centre's square; None
        unless the block is a tensor

    Examples
    --------
    >>> nearest(np.array([[0.0], [0.9], [0.5]]), np.array([[0.0], [1.0]]))
    (array([0, 1, 0]), None)
    """
    centers = like(centers, block)
    if _has_kernels(block):
        from densehash.gpu import matrices  # noqa: PLC0415  an extra

        return matrices.nearest_centers(block, centers)
    # |x - c|² is smallest for the centre with the largest x·c - |c|²/2.
    scores: Any = block @ centers.T
    scores -= 0.5 * module_of(block).einsum("ij,ij->i", centers, centers)
    if is_tensor(block):
        best, labels = scores.max(1)
        return labels, best
    return scores.argmax(axis=1), None


def _has_kernels(block: Any) -> bool:
    """Whether rows are float32 on a GPU that has matrix cores, and Triton is installed."""
    if not on_gpu(block) or numpy_type(block) != np.float32:
        return False
    return _can_compile(block.device.index)


@cache
def _can_compile(device: int) -> bool:
    newer: bool = sys.modules["torch"].cuda.get_device_capability(device) >= (8, 0)
    return newer and find_spec("triton") is not None


def recorded(function: Callable[..., None], *arguments: Any) -> Callable[..., None]:
    """Record a function of CUDA tensors, for kernels that take longer to start than to run.

    Parameters
    ----------
    function : changes some of its arguments; it must not wait for the device or compute on the host
    arguments : tensors like those of later calls; recording does not change them

    Returns
    -------
    a callable with as many arguments, which runs the function on the tensors given here: it first
    copies its arguments, tensors or numbers, into them; None leaves a tensor as it is

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> total = torch.zeros((), device="cuda")  # doctest: +SKIP
    >>> add = recorded(torch.Tensor.add_, total, torch.ones_like(total))  # doctest: +SKIP
    >>> add(None, 3.0), add(None, 4.0), float(total)  # doctest: +SKIP
    (None, None, 7.0)
    """
    torch = sys.modules["torch"]
    device = arguments[0].device
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):  # loading code at the first call cannot be recorded
        function(*(argument.clone() for argument in arguments))
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device), torch.cuda.graph(graph, capture_error_mode="thread_local"):
        function(*arguments)

    def replay(*values: Any) -> None:
        for place, value in zip(arguments, values, strict=True):
            if is_tensor(value):
                place.copy_(value)
            elif value is not None:
                place.fill_(value)
        graph.replay()

    return replay


def add_by_label(block: Any, labels: Any, k: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Sums of the rows (m, d) with each label from 0 to k - 1, (k, d), and their counts, (k,).

    Examples
    --------
    >>> add_by_label(np.array([[1.0], [2.0], [3.0]]), np.array([0, 2, 0]), 3)
    (array([[4.],
           [0.],
           [2.]]), array([2, 0, 1]))
    """
    if _has_kernels(block):
        from densehash.gpu import matrices  # noqa: PLC0415  an extra

        sums, sizes = matrices.sums_by_label(block, labels, k)
        return to_host(sums), to_host(sizes)
    counts = to_host(module_of(block).bincount(labels, minlength=k))
    if is_tensor(block):
        members = block.new_zeros((k, len(block)))
        members.scatter_(0, labels.reshape(1, -1), 1)
        # A product, because it adds in a fixed order; index_add_ on a GPU does not.
        return to_float64(members @ block), counts
    import scipy.sparse  # noqa: PLC0415  only learning needs it

    # Ten times as fast as numpy.add.at or sorting by label.
    members = scipy.sparse.csc_array(
        (np.ones(len(block), block.dtype), labels, np.arange(len(block) + 1)),
        shape=(k, len(block)),
    )
    return to_float64(members @ block), counts


def count(numbers: Any, k: int) -> Any:
    """How often each number from 0 to k - 1 occurs: integers of shape (k,), on the same device.

    Examples
    --------
    >>> count(np.array([0, 2, 0]), 3)
    array([2, 0, 1])
    """
    if not is_tensor(numbers):
        return np.bincount(numbers, minlength=k)
    counts = numbers.new_zeros(k)  # torch's bincount would wait for the device
    return counts.scatter_add_(0, numbers, numbers.new_ones(()).expand(len(numbers)))


def smallest(values: Any, n: int) -> tuple[Any, Any]:
    """The n smallest of each row, ascending, and their positions; ``values`` may be changed.

    Parameters
    ----------
    values : array or tensor of shape (m, k)
    n : a small number, at most k

    Returns
    -------
    (m, n) in the type of the values, and integers (m, n)

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


def nth_smallest(values: Any, n: int) -> Any:
    """The n-th smallest of each row, counted from 1; (..., k) becomes (..., 1).

    Examples
    --------
    >>> nth_smallest(np.array([[3.0, 1.0, 2.0]]), 2)
    array([[2.]])
    """
    if is_tensor(values):
        return values.topk(n, dim=-1, largest=False).values[..., -1:]
    return np.partition(values, n - 1, axis=-1)[..., n - 1 : n]


@cache
def _constant(numbers: bytes, device: Any) -> Any:
    """Float64 numbers on a device, kept so that they exist before kernels are recorded."""
    torch = sys.modules["torch"]
    return torch.from_numpy(np.frombuffer(numbers, np.float64).copy()).to(device)


def correlate(values: Any, kernel: NDArray[np.float64]) -> Any:
    """Correlation along the last axis with a kernel of odd length, with zeros beyond the ends.

    Examples
    --------
    >>> correlate(np.array([[0.0, 1.0, 0.0]]), np.array([1.0, 2.0, 4.0]))
    array([[4., 2., 1.]])
    """
    if is_tensor(values):
        reach = len(kernel) // 2
        padded = sys.modules["torch"].nn.functional.pad(values, (reach, reach))
        return padded.unfold(-1, len(kernel), 1) @ _constant(kernel.tobytes(), values.device)
    from scipy.ndimage import correlate1d  # noqa: PLC0415  only learning needs it

    return correlate1d(values, kernel, mode="constant")
