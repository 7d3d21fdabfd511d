"""Computing with torch on a device: the setting, and how rows of this machine get there."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densehash._native import Filling
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

_BLOCK_NUMBERS = 1 << 27
_N_BLOCKS = 2  # in work at a time
_MOST_KEPT = 0.5  # share of the device's free memory
# Threads copy rows into pinned memory, which the device reads without the CPU: it reads a piece
# while they copy the next ones. The smaller this memory, the more of it is in caches.
_PIECE_BYTES = 1 << 25
_N_LANES = 4
_KNOWN_TYPES = ("float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool")


@contextmanager
def device(name: str | None) -> Iterator[None]:
    """Let hashers compute with torch on a device, inside a ``with`` block.

    ``fit``, ``project`` and ``transform`` send rows from this machine's memory or files (arrays,
    memory maps, Sources and others) to the device in blocks. The next block is sent while the
    device computes with the one before, so there may be more rows than the device holds. Answers
    are arrays, as always. With rows of Dask, each worker computes on its own device of that name.
    Tensors stay on the device where they are.

    Parameters
    ----------
    name : "cuda", "cuda:1" and so on, as torch names it; "cpu" lets torch compute on the CPU;
        None computes without torch

    Raises
    ------
    MissingExtraError, InputError : by ``fit`` and the other methods, if torch is not installed or
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


class _Lanes(NamedTuple):
    """Pinned memory (lanes, bytes), and for each lane the event that the device has read it."""

    numbers: Any
    read: list[Any]


_Key: TypeAlias = tuple[int, int, Any]  # limits and type of a block
_Sent: TypeAlias = Future[tuple[Any, Any]]  # a tensor, and the event that it is complete


class StreamedRows(Rows):
    """Rows of this machine in blocks that are tensors on a device.

    The device computes with one block while the next is copied. If several passes will follow
    (:meth:`keep`), as many blocks as fit stay on the device, and at the end of a pass the first of
    the other blocks is sent for the next pass.

    Parameters
    ----------
    X, verbose, name, first : as in :class:`Rows`
    device : name of the device in torch
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
        self._copier = ThreadPoolExecutor(1)
        self._n_copiers = max(n_threads() - _N_BLOCKS, 1)  # leaves CPUs for the threads of blocks
        self._crew = ThreadPoolExecutor(self._n_copiers)
        # Streams to compute on: as many as blocks in work, because each keeps its own memory.
        self._free: SimpleQueue[Any] = SimpleQueue()
        for _ in range(_N_BLOCKS if self._device.type == "cuda" else 0):
            self._free.put(self._torch.cuda.Stream(self._device))
        self._kept: dict[_Key, Floats] = {}
        self._room = 0
        self._n_sent = 0  # in pieces
        self._comes_again = False
        self._ahead: dict[_Key, _Sent] = {}  # at most one block

    def keep(self) -> None:
        """Keep blocks for later passes, as many as fit in half of the device's free memory."""
        self._comes_again = True
        if self._device.type == "cuda":
            self._room = int(_MOST_KEPT * self._torch.cuda.mem_get_info(self._device)[0])

    def returned(self, values: Any) -> NDArray[Any]:
        """Values from the device, as an array."""
        return to_host(values)

    def _as_block(self, part: Any) -> Floats:
        if is_tensor(part):  # a block that was kept
            return part  # type: ignore[no-any-return]
        if self._device.type != "cuda":
            block = self._torch.from_numpy(_readable(as_block(part, self.dtype)))
            return block.to(self._device)  # type: ignore[no-any-return]
        sent = part if isinstance(part, Future) else self._send(part)
        there, is_there = sent.result()
        is_there.synchronize()
        there.record_stream(self._torch.cuda.current_stream(self._device))
        return there.to(torch_type(self.dtype))  # type: ignore[no-any-return]

    def _send(self, part: NDArray[Any]) -> _Sent:
        """Send rows to the device, after all that was sent before."""
        # In their own type, which may be smaller; the device converts them to floats.
        known = part.dtype.name in _KNOWN_TYPES and part.dtype.isnative and part.flags.c_contiguous
        here = _readable(part if known else as_block(part, self.dtype))
        return self._copier.submit(self._copy, here)

    def _copy(self, here: NDArray[Any]) -> tuple[Any, Any]:
        """Copy an array to a tensor on the device; also returns the event that it is complete."""
        lanes, n_lanes = self._lanes, len(self._lanes.read)
        source = here.reshape(-1).view(np.uint8)
        filling = Filling(source, lanes.numbers.numpy(), self._n_sent)
        work: list[Future[None]] = []
        try:
            work.extend(self._crew.submit(filling.work) for _ in range(self._n_copiers))
            with self._torch.cuda.stream(self._stream):
                dtype = torch_type(here.dtype)
                there = self._torch.empty(here.shape, dtype=dtype, device=self._device)
                pieces = there.view(-1).view(self._torch.uint8).split(lanes.numbers.shape[1])
                for number, piece in enumerate(pieces):
                    # The last piece may still be on its way; those before it have arrived, so their
                    # lanes are free.
                    lanes.read[(self._n_sent - 2) % n_lanes].synchronize()
                    filling.allow(number + n_lanes - 1)
                    filling.wait_for(number)
                    lane = self._n_sent % n_lanes
                    piece.copy_(lanes.numbers[lane, : len(piece)], non_blocking=True)
                    lanes.read[lane].record(self._stream)
                    self._n_sent += 1
                is_there = self._event()
                is_there.record(self._stream)
                return there, is_there
        finally:
            filling.stop()
            wait(work)

    def _event(self) -> Any:
        return self._torch.cuda.Event(blocking=True)  # waiting for it uses no CPU

    @cached_property
    def _stream(self) -> Any:
        return self._torch.cuda.Stream(self._device)

    @cached_property
    def _lanes(self) -> _Lanes:
        shape = (_N_LANES, min(_PIECE_BYTES, self.n_rows * self.n_features * 8))
        numbers = self._torch.empty(shape, dtype=self._torch.uint8, pin_memory=True)
        return _Lanes(numbers, [self._event() for _ in range(_N_LANES)])

    def _apply(
        self,
        function: Callable[[Floats, int], Answer],
        limits: tuple[int, int],
        part: Any,
    ) -> Answer:
        if self._device.type != "cuda":
            return super()._apply(function, limits, part)
        stream = self._free.get()  # of its own, so that this block waits for no other
        try:
            return self._apply_on(stream, function, limits, part)
        finally:
            self._free.put(stream)

    def _apply_on(
        self,
        stream: Any,
        function: Callable[[Floats, int], Answer],
        limits: tuple[int, int],
        part: Any,
    ) -> Answer:
        with self._torch.cuda.stream(stream):
            stream.synchronize()  # waits for nothing: it is the first call of CUDA in a thread
            if isinstance(part, np.ndarray):
                part = self._send(part)
            size = (limits[1] - limits[0]) * self.n_features * np.dtype(self.dtype).itemsize
            key = (*limits, self.dtype)
            is_kept = key not in self._kept and size <= self._room
            if is_kept:
                self._room -= size
            elif limits[1] == self.n_rows and self._comes_again:
                self._send_ahead()
            block: Any = self._as_block(part)
            if is_kept:
                self._kept[key] = block
            answer = super()._apply(function, limits, block)
            stream.synchronize()
            return answer

    def _send_ahead(self) -> None:
        """Send the first block of the next pass, which is expected to have the same blocks."""
        keys = ((*limits, self.dtype) for limits in self._limits)
        first = next((key for key in keys if key not in self._kept), None)
        if first is not None and isinstance(self._array, np.ndarray):
            self._ahead = {first: self._send(self._array[slice(*first[:2])])}

    def _read(self, limits: tuple[int, int]) -> Any:
        key = (*limits, self.dtype)
        if key in self._kept:
            return self._kept[key]
        return self._ahead.pop(key) if key in self._ahead else super()._read(limits)

    def _map(
        self,
        function: Callable[[Floats, int], Answer],
        limits: Sequence[tuple[int, int]],
        threads: int,  # noqa: ARG002  one thread computes, one copies
        label: str,
    ) -> Generator[Answer, None, None]:
        self._limits = limits
        return super()._map(function, limits, _N_BLOCKS, label)

    def _block_rows(self, width: int) -> int:
        # Mostly the same for all widths, so that kept blocks are found again.
        return max(_BLOCK_NUMBERS // max(self.n_features, width // 4), 1)


def _readable(array: NDArray[Any]) -> NDArray[Any]:
    """A view of an array for torch, which would warn if the array is read-only."""
    if array.flags.writeable:
        return array
    address, _ = array.__array_interface__["data"]
    writeable = {**array.__array_interface__, "data": (address, False)}
    return np.asarray(SimpleNamespace(__array_interface__=writeable, array=array))


def _usable(name: str) -> tuple[Any, Any]:
    """The module torch, and the device of this name; an error if it cannot be used."""
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
