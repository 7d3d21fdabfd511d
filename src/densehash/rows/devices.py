"""Rows of this machine, computed with by torch on a device: its setting, and the way there."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densehash.columns import is_tensor
from densehash.errors import InputError, MissingExtraError
from densehash.locks import cached_property
from densehash.parallel import n_threads
from densehash.rows.local import Rows, as_block
from densehash.rows.numerics import Floats, to_host, torch_type
from densehash.source import Source

__all__ = ["StreamedRows", "current_device", "device"]

Answer = TypeVar("Answer")

_device: ContextVar[str | None] = ContextVar("device", default=None)

_BLOCK_NUMBERS = 1 << 26
_MOST_KEPT = 0.5  # of the device's free memory
# Rows go through memory that the device reads by itself. One thread copies into it more slowly
# than the device reads, so several do, each a little at a time, that stays in the cache.
_PIECE_BYTES = 1 << 22
_MOST_LANES = 12
_KNOWN_TYPES = ("float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool")


@contextmanager
def device(name: str | None) -> Iterator[None]:
    """Hashers compute by torch on a device, for the length of a ``with`` block.

    ``fit``, ``project`` and ``transform`` of arrays, memory maps, Sources and what else lies in
    this machine's memory or files send blocks of rows to the device while it computes with those
    before, so that there may be more rows than it holds. Answers are arrays as ever. Rows of Dask
    are computed with on that device of each worker. Tensors are computed with where they are.

    Parameters
    ----------
    name : "cuda", "cuda:1" and so on, as torch has it; "cpu" is torch's own computing on the CPU;
        None does without torch

    Raises
    ------
    MissingExtraError, InputError : from ``fit`` and the others, where there is no torch, or torch
        cannot use the device

    Examples
    --------
    >>> import densehash
    >>> with densehash.device("cuda"):  # doctest: +SKIP
    ...     codes = densehash.DSH(64).fit_transform(X)
    """
    if name is not None and not isinstance(name, str):
        raise InputError(f"device must be a name, as 'cuda', or None, got {name!r}")
    token = _device.set(name)
    try:
        yield
    finally:
        _device.reset(token)


def current_device() -> str | None:
    """The name that :func:`device` was given, or None.

    Examples
    --------
    >>> with device("cuda:1"):
    ...     current_device()
    'cuda:1'
    """
    return _device.get()


class _Lane(NamedTuple):
    """Memory that a device reads by itself, and the stream of what it reads from there."""

    numbers: Any
    stream: Any


class StreamedRows(Rows):
    """Rows of this machine in blocks that are tensors on a device.

    Two blocks are under way: one is computed with while the next is copied. Where several passes
    are to come (:meth:`keep`), as many blocks as fit stay on the device.

    Parameters
    ----------
    X, verbose, name, first : as of :class:`Rows`
    device : what torch calls it
    """

    def __init__(
        self,
        X: ArrayLike | Source,
        device: str,
        *,
        verbose: bool = False,
        name: str = "X",
        first: int = 0,
    ) -> None:
        super().__init__(X, verbose=verbose, name=name, first=first)
        self._torch, self._device = _usable(device)
        self._kept: dict[tuple[int, int, Any], Floats] = {}
        self._room = 0

    def keep(self) -> None:
        """Keep blocks for the passes to come, as many as half of the device's free memory holds."""
        if self._device.type == "cuda":
            self._room = int(_MOST_KEPT * self._torch.cuda.mem_get_info(self._device)[0])

    def returned(self, values: Any) -> NDArray[Any]:
        """What was made on the device, as an array."""
        return to_host(values)

    def _as_block(self, part: Any) -> Floats:
        if is_tensor(part):  # kept
            return part  # type: ignore[no-any-return]
        if self._device.type != "cuda":
            here = as_block(part, self.dtype)
            block: Floats = self._torch.from_numpy(here if here.flags.writeable else here.copy())
            return block.to(self._device)  # type: ignore[attr-defined,no-any-return]
        # As few bytes as there are; the device makes floats of them.
        known = part.dtype.name in _KNOWN_TYPES and part.dtype.isnative
        dtype = part.dtype if known else np.dtype(self.dtype)
        there = self._torch.empty(part.shape, dtype=torch_type(dtype), device=self._device)
        now = self._torch.cuda.current_stream(self._device)
        step = max(_PIECE_BYTES // (self.n_features * dtype.itemsize), 1)

        def copy(start: int) -> Any:
            lane = self._lanes.get()
            try:
                lane.stream.synchronize()  # what was read from here before
                piece = part[start : start + step]
                pinned = lane.numbers[: piece.size * dtype.itemsize].view(there.dtype)
                pinned = pinned.view(piece.shape)
                with np.errstate(over="ignore"):
                    np.copyto(pinned.numpy(), piece, casting="unsafe")
                with self._torch.cuda.stream(lane.stream):
                    lane.stream.wait_stream(now)
                    there[start : start + step].copy_(pinned, non_blocking=True)
                    return lane.stream.record_event()
            finally:
                self._lanes.put(lane)

        for copied in self._pool.map(copy, range(0, len(part), step)):
            now.wait_event(copied)
        return there.to(torch_type(self.dtype))  # type: ignore[no-any-return]

    @cached_property
    def _lanes(self) -> SimpleQueue[_Lane]:
        lanes: SimpleQueue[_Lane] = SimpleQueue()
        size = max(_PIECE_BYTES, self.n_features * 8)
        for _ in range(_n_lanes()):
            numbers = self._torch.empty(size, dtype=self._torch.uint8, pin_memory=True)
            lanes.put(_Lane(numbers, self._torch.cuda.Stream(self._device)))
        return lanes

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_n_lanes())

    def _apply(
        self,
        function: Callable[[Floats, int], Answer],
        limits: tuple[int, int],
        part: Any,
    ) -> Answer:
        if self._device.type != "cuda":
            return super()._apply(function, limits, part)
        stream = self._torch.cuda.Stream(self._device)  # so that this block waits for no other
        with self._torch.cuda.stream(stream):
            block: Any = self._as_block(part)
            size = block.numel() * block.element_size()
            key = (*limits, self.dtype)
            if size <= self._room and key not in self._kept:
                self._room -= size
                self._kept[key] = block
            answer = super()._apply(function, limits, block)
            stream.synchronize()
            return answer

    def _read(self, limits: tuple[int, int]) -> Any:
        kept = self._kept.get((*limits, self.dtype))
        return super()._read(limits) if kept is None else kept

    def _map(
        self,
        function: Callable[[Floats, int], Answer],
        limits: Sequence[tuple[int, int]],
        threads: int,  # noqa: ARG002  one computes, one copies
        label: str,
    ) -> Generator[Answer, None, None]:
        if self._device.type == "cuda":
            _ = self._lanes, self._pool  # made here, or each of two threads would make its own
        return super()._map(function, limits, 2, label)

    def _block_rows(self, width: int) -> int:
        # Mostly the same, whatever is made of rows, so that blocks that were kept are found.
        return max(_BLOCK_NUMBERS // max(self.n_features, width // 4), 1)


def _n_lanes() -> int:
    return min(n_threads(), _MOST_LANES)


def _usable(name: str) -> tuple[Any, Any]:
    """The module torch, and a device of it that can be computed on."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise MissingExtraError(
            f"device {name!r} needs torch: pip install densehash[torch]"
        ) from None
    try:
        found = torch.device(name)
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first = (str(error).strip() or repr(error)).splitlines()[0]
        raise InputError(f"device {name!r} cannot be used: {first}") from error
    return torch, found
