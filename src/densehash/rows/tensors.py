"""Rows of a torch tensor: blocks and what is computed from them stay on its device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from densehash.columns import on_gpu
from densehash.errors import InputError
from densehash.progress import bar
from densehash.rows.local import Rows, float_type
from densehash.rows.numerics import Floats, square_sum_there, take_rows, torch_type

__all__ = ["TensorRows", "check_tensor"]

Answer = TypeVar("Answer")

# How many numbers a device computes with at once: the more, the less often it waits for the next
# call; but at most this part of its memory, because results may be as large as a block.
_BLOCK_NUMBERS = 1 << 30
_PART_OF_MEMORY = 16


class TensorRows(Rows):
    """Rows of a tensor, in large blocks that are tensors on its device.

    Parameters
    ----------
    X : torch.Tensor of shape (n, d), dense, of real numbers, on any device
    verbose : whether to show a progress bar for long passes
    name : its name in errors

    Attributes
    ----------
    n_rows, n_features : the shape
    dtype : numpy.float32 or numpy.float64, the type of every block; may be set

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> TensorRows(torch.ones(10, 3)).map_reduce(  # doctest: +SKIP
    ...     lambda block, start: float(block.sum()), lambda one, two: one + two
    ... )
    30.0
    """

    def __init__(self, X: Any, *, verbose: bool = False, name: str = "X") -> None:
        self._array = check_tensor(X, name)
        self._name, self._verbose, self._first = name, verbose, 0
        self._checked = {}
        self.n_rows, self.n_features = X.shape
        self.dtype = float_type(_numpy_type(X.dtype))

    def _pick(self, positions: NDArray[np.integer]) -> Any:
        return take_rows(self._array, positions)

    def _as_block(self, part: Any) -> Floats:
        block: Floats = part.to(torch_type(self.dtype)).contiguous()
        return block

    def empty(self, shape: tuple[int, int], dtype: type[np.generic]) -> Any:
        """An empty tensor for results, on the device of the rows."""
        return self._array.new_empty(shape, dtype=torch_type(dtype))

    def check_out(self, out: Any, shape: tuple[int, int]) -> None:
        """Refuse an ``out`` that cannot hold codes of these rows, of this shape."""
        torch = sys.modules["torch"]
        device = self._array.device
        expected = f"out must be a uint8 tensor of shape {shape} on {device}, where X is, got "
        if not isinstance(out, torch.Tensor):
            raise InputError(f"{expected}a {type(out).__name__}")
        if (out.dtype, tuple(out.shape), out.device) != (torch.uint8, shape, device):
            raise InputError(f"{expected}{out.dtype} and shape {tuple(out.shape)} on {out.device}")

    def _map(
        self,
        function: Callable[[Floats, int], Answer],
        limits: Sequence[tuple[int, int]],
        threads: int,  # noqa: ARG002  the device has its own threads
        label: str,
    ) -> Generator[Answer, None, None]:
        with bar(label, self.n_rows, shown=self._verbose) as advance:
            for start, stop in limits:
                yield self._apply(function, (start, stop), self._array[start:stop])
                advance(stop - start)

    def _apply(
        self,
        function: Callable[[Floats, int], Answer],
        limits: tuple[int, int],
        part: Any,
    ) -> Answer:
        if limits in self._checked or not on_gpu(part):
            return super()._apply(function, limits, part)
        start, block = self._first + limits[0], self._as_block(part)
        # The device sums squares while the next calls are prepared. So a function may see rows
        # that are refused afterwards: its results are then discarded.
        self._checked[limits] = square_sum_there(block)
        try:
            return function(block, start)
        finally:
            squares = float(self._checked.pop(limits))
            self._checked[limits] = self._check(squares, block, start)

    def _block_rows(self, width: int) -> int:
        most = _BLOCK_NUMBERS
        if on_gpu(self._array):
            device = sys.modules["torch"].cuda.get_device_properties(self._array.device)
            bytes_each = np.dtype(self.dtype).itemsize
            most = min(most, device.total_memory // _PART_OF_MEMORY // bytes_each)
        return max(most // max(self.n_features, width), 1)


def check_tensor(X: Any, name: str = "X") -> Any:
    """A tensor of rows without its gradients; an error if it is not dense, real and (n, d).

    Parameters
    ----------
    X : torch.Tensor
    name : its name in errors

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> check_tensor(torch.ones(2, 3, requires_grad=True)).requires_grad  # doctest: +SKIP
    False
    """
    torch = sys.modules["torch"]
    if X.layout is not torch.strided:
        raise InputError(f"{name} must be dense, got a sparse tensor: use {name}.to_dense()")
    if X.device.type == "meta":
        raise InputError(f"{name} is on the device meta, which holds no numbers: fill it first")
    if X.dtype not in _types():
        raise InputError(f"{name} must be real numbers, got {X.dtype}: use {name}.float()")
    if X.ndim != 2:
        raise InputError(
            f"{name} must have 2 dimensions (n, d), got shape {tuple(X.shape)}. Reshape your data: "
            f"{name}.reshape(1, -1) is one row, {name}.reshape(-1, 1) is one feature"
        )
    if 0 in X.shape:
        missing = "feature" if X.shape[0] else "sample"
        raise InputError(
            f"{name} is empty: 0 {missing}(s) (shape={tuple(X.shape)}) "
            "while a minimum of 1 is required."
        )
    return X.detach()


def _types() -> dict[Any, str]:
    """The real types of torch, and for each a type of numpy of the same width."""
    torch = sys.modules["torch"]
    names = ("float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool")
    return {torch.bfloat16: "float16", **{getattr(torch, name): name for name in names}}


def _numpy_type(dtype: Any) -> np.dtype[Any]:
    return np.dtype(_types()[dtype])
