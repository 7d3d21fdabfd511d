"""Tensors of torch at the public edge: their devices, and answers as tensors there.

Torch is never imported for that: whoever has a tensor has imported it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from densehash.columns import is_tensor
from densehash.errors import DeviceMemoryError, InputError

__all__ = ["as_tensor", "common_device", "dtype_name", "memory_named", "plain_tensor"]


def common_device(**tensors: Any) -> Any:
    """The common device of tensors, given by their names in errors; None if not all are tensors.

    Tensors on two devices are an error, and so is an array beside a tensor on a GPU.

    Examples
    --------
    >>> common_device(queries=[1.0], codes=[2.0]) is None
    True
    """
    devices = {name: X.device for name, X in tensors.items() if is_tensor(X)}
    if len(devices) == len(tensors) and len({*devices.values()}) == 1:
        return next(iter(devices.values()))
    if any(device.type != "cpu" for device in devices.values()):
        where = " and ".join(
            f"{name} on {devices[name]}" if name in devices else f"{name} in a {type(X).__name__}"
            for name, X in tensors.items()
        )
        raise InputError(f"all must be tensors on one device, got {where}: use tensor.to(device)")
    return None


def as_tensor(array: Any, device: Any) -> Any:
    """An array of numpy as a tensor on a device; unchanged if the device is None.

    Examples
    --------
    >>> as_tensor([1, 2], None)
    [1, 2]
    """
    return array if device is None else sys.modules["torch"].from_numpy(array).to(device)


def plain_tensor(tensor: Any, name: str) -> Any:
    """A tensor without gradients; a sparse one is an error.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> plain_tensor(torch.ones(2, requires_grad=True), "X")  # doctest: +SKIP
    tensor([1., 1.])
    """
    if str(tensor.layout) != "torch.strided":
        raise InputError(f"{name} must be dense, got a sparse tensor: use {name}.to_dense()")
    return tensor.detach()


def dtype_name(tensor: Any) -> str:
    """The name in numpy of a tensor's type, such as "float32" or "uint8".

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> dtype_name(torch.ones(2))  # doctest: +SKIP
    'float32'
    """
    return str(tensor.dtype).removeprefix("torch.")


@contextmanager
def memory_named() -> Iterator[None]:
    """Turn errors about GPU memory into DeviceMemoryError. It can also decorate functions.

    Examples
    --------
    >>> with memory_named():
    ...     pass
    """
    try:
        yield
    except RuntimeError as error:
        torch = sys.modules.get("torch")
        if torch is None or not (
            isinstance(error, torch.cuda.OutOfMemoryError)
            or "CUDA error: out of memory" in str(error)  # not from torch's own allocator
        ):
            raise
        raise DeviceMemoryError(_memory_in_words(str(error), torch.cuda)) from error


def _memory_in_words(told: str, cuda: Any) -> str:
    """The error of torch in words: the GPU, the memory that was needed, and the memory there is."""
    asked = re.search(r"Tried to allocate ([\d.]+ \w+)", told)
    number = re.search(r"GPU (\d+)", told)
    device = int(number[1]) if number else cuda.current_device()
    free, total = (f"{size / 2**30:.2f} GiB" for size in cuda.mem_get_info(device))
    return (
        f"cuda:{device} has too little memory: {asked[1] if asked else 'more'} was asked for, "
        f"{free} of {total} is free. Free what else lies there (torch.cuda.empty_cache() gives "
        "back what torch keeps), pass fewer rows at a time, or pass rows as an array inside "
        f"densehash.device('cuda:{device}'), which sends blocks of them"
    )
