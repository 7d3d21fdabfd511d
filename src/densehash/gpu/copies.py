"""Copies large tensors from a GPU to memory, with several threads.

Torch copies with one thread, which also has to get every new page of memory from the system. A GPU
could send fifty times as much in that time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import local
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["array_of"]

_PIECE = 1 << 23  # bytes that a thread copies at a time
_MOST_THREADS = 8


def array_of(tensor: torch.Tensor, threads: int) -> NDArray[Any]:
    """An array of numpy with the numbers of a tensor (n, d); bfloat16 becomes float32.

    Parameters
    ----------
    tensor : a tensor of real numbers
    threads : how many threads may copy

    Examples
    --------
    >>> array_of(torch.ones(1, 2), threads=1)
    array([[1., 1.]], dtype=float32)
    """
    if tensor.dtype == torch.bfloat16:  # numpy does not have this type
        tensor = tensor.float()
    if tensor.device.type == "cpu":
        here: NDArray[Any] = tensor.numpy()
        return here
    n, d = tensor.shape
    found = np.empty((n, d), np.dtype(str(tensor.dtype).removeprefix("torch.")))
    step = max(_PIECE // max(d * found.itemsize, 1), 1)
    made = torch.cuda.current_stream(tensor.device).record_event()
    own = local()

    def copy(start: int) -> None:
        if not hasattr(own, "stream"):
            own.stream = torch.cuda.Stream(tensor.device)
            own.pinned = torch.empty((step, d), dtype=tensor.dtype, pin_memory=True)
        some = slice(start, min(start + step, n))
        pinned = own.pinned[: some.stop - start]
        with torch.cuda.stream(own.stream):
            own.stream.wait_event(made)
            pinned.copy_(tensor[some], non_blocking=True)
        own.stream.synchronize()
        found[some] = pinned.numpy()

    with ThreadPoolExecutor(min(threads, _MOST_THREADS)) as pool:
        list(pool.map(copy, range(0, n, step)))
    return found
