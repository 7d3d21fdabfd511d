"""The devices of torch on which tests run: the CPU everywhere, and a GPU if there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest

from densehash.errors import DeviceMemoryError

needs_torch = pytest.mark.skipif(not find_spec("torch"), reason="needs torch")


def has_gpu() -> bool:
    """Whether torch is installed and sees a GPU."""
    if not find_spec("torch"):
        return False
    import torch

    return bool(torch.cuda.is_available())


needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(not has_gpu(), reason="needs a CUDA GPU")]
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


def tensor(array: Any, device: str = "cpu") -> Any:
    """An array as a tensor on a device."""
    import torch

    return torch.from_numpy(array).to(device)


def too_little_memory(told: str) -> Any:
    """A ``with`` block that must end with an error about memory that has this text."""
    return pytest.raises(DeviceMemoryError, match=told)


@contextmanager
def filled_memory(left: int) -> Iterator[None]:
    """Fill a GPU until it has only this many bytes left."""
    import torch

    torch.cuda.empty_cache()
    taken = torch.empty(torch.cuda.mem_get_info()[0] - left, dtype=torch.uint8, device="cuda")
    try:
        yield
    finally:
        del taken
        torch.cuda.empty_cache()
