"""Rows of a Dask collection: a pass maps its chunks and combines the answers, on the workers.

Dask chooses the scheduler: that of the current ``distributed.Client`` if there is one, otherwise
threads of this process. Only answers are sent, and no rows except those of a sample.
"""

from __future__ import annotations

import copy
import itertools
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed, delayed
from numpy.typing import NDArray

from densehash.errors import InputError
from densehash.locks import cached_property
from densehash.rows.local import Rows, float_type, tree_reduce
from densehash.rows.numerics import Floats

__all__ = ["DaskRows", "Part", "compute", "current_client"]

Answer = TypeVar("Answer")


class Part(NamedTuple):
    """What a chunk is expected to be.

    Attributes
    ----------
    number : its position among the chunks
    start : the position of its first row; -1 if it is unknown
    n_rows : how many rows it has; -1 if that is unknown
    n_features : how many features a row has
    dtype : type of its numbers
    name : name of the collection in errors
    """

    number: int
    start: int
    n_rows: int
    n_features: int
    dtype: np.dtype[Any]
    name: str

    def check(self, values: Any) -> NDArray[np.generic]:
        """The rows of a chunk; an error if it is not as expected."""
        where = f"chunk {self.number} of {self.name}"
        if self.start >= 0:
            where += f", which begins at row {self.start},"
        try:
            array = _as_array(values)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        if len(array) == 0:
            return np.empty((0, self.n_features), self.dtype)
        if array.dtype.kind not in "fiub":
            raise InputError(f"{where} must hold real numbers, got {array.dtype}")
        if array.ndim != 2 or array.shape[1] != self.n_features:
            came = f"{array.shape[1]} features" if array.ndim == 2 else f"shape {array.shape}"
            raise InputError(f"{where} must have {self.n_features} features, got {came}")
        if self.n_rows not in (-1, len(array)):
            raise InputError(f"{where} must have {self.n_rows} rows, got {len(array)}")
        if array.dtype != self.dtype:
            raise InputError(f"{where} must be {self.dtype}, got {array.dtype}")
        return array


class DaskRows(Rows):
    """Rows of a dask array, a dask data frame of numbers, or a column of one that holds vectors.

    Parameters
    ----------
    X : dask.array.Array (n, d) of a real type, dask.dataframe.DataFrame, or a Series of lists or
        arrays of equal length. Unknown lengths of chunks are counted when they are needed.
    verbose : whether passes show Dask's progress bar
    name : name of the collection in errors
    device : name in torch of the device on which each worker computes; None computes without torch

    Attributes
    ----------
    n_rows, n_features : the shape
    dtype : float32 or float64, the type of every block; may be set

    Examples
    --------
    >>> import dask.array as da
    >>> rows = DaskRows(da.ones((1000, 3), chunks=(300, 3)))
    >>> float(rows.map_reduce(lambda block, start: block.sum(), np.add))
    3000.0
    """

    def __init__(
        self, X: Any, *, verbose: bool = False, name: str = "X", device: str | None = None
    ) -> None:
        self._name, self._verbose, self._device = name, verbose, device
        self._chunks, lengths, self.n_features, self._stored = _chunks_of(X, name)
        self._is_placed = _holds_futures(X)
        if lengths is not None:
            self.__dict__["lengths"] = lengths
            self.check_not_empty()
        self.dtype = float_type(self._stored)

    @cached_property
    def lengths(self) -> list[int]:
        """Lengths of the chunks; if the collection does not know them, a pass counts them."""
        found: list[int] = compute([delayed(len, pure=False)(chunk) for chunk in self._chunks])
        return found

    def check_not_empty(self) -> None:
        """Refuse a collection without rows."""
        if sum(self.lengths) == 0:
            raise InputError(
                f"{self._name} is empty: 0 sample(s) while a minimum of 1 is required."
            )

    @cached_property
    def n_rows(self) -> int:
        """How many rows all chunks have."""
        self.check_not_empty()
        return sum(self.lengths)

    @cached_property
    def filled(self) -> list[tuple[Any, Part]]:
        """The chunks that have rows, and what each is expected to be."""
        return [(chunk, part) for chunk, part in self._every(self.lengths) if part.n_rows > 0]

    def _every(self, lengths: list[int] | None) -> Iterator[tuple[Any, Part]]:
        """All chunks, and what each is expected to be; their lengths may be unknown."""
        starts = [-1] * len(self._chunks)
        if lengths is not None:
            starts = list(itertools.accumulate(lengths, initial=0))[:-1]
        counts = [-1] * len(self._chunks) if lengths is None else lengths
        for number, found in enumerate(zip(self._chunks, starts, counts, strict=True)):
            chunk, start, n_rows = found
            yield (
                chunk,
                Part(number, start, n_rows, self.n_features, self._stored, self._name),
            )

    def map_reduce(
        self,
        function: Callable[[Floats, int], Answer],
        combine: Callable[[Answer, Answer], Answer],
        *,
        width: int = 1,
        label: str = "reading rows",  # noqa: ARG002  Dask's bar has no label
    ) -> Answer:
        """One pass over all rows, on the workers; parameters as in :meth:`Rows.map_reduce`."""
        self.check_not_empty()
        # One object in the graph: it is sent to each worker once, not with each chunk.
        work = _shared(_Pass(function, combine, width, self.dtype, self._device))
        answers = [_answer_of(work, part, chunk) for chunk, part in self.filled]
        client = None if self._is_placed else current_client()
        if client is not None and client.nthreads():  # there may be no workers yet
            return _in_runs(client, answers, combine, verbose=self._verbose)  # type: ignore[no-any-return]
        whole = tree_reduce(iter(answers), partial(delayed(_combined, pure=False), combine))
        return compute(whole, verbose=self._verbose)  # type: ignore[no-any-return]

    def for_each(
        self, function: Callable[[Floats, int], object], *, width: int = 1, label: str = "reading"
    ) -> None:
        """One pass over all rows, for the effects of ``function`` on the workers."""
        self.map_reduce(partial(_done, function), _nothing, width=width, label=label)

    is_lazy = True

    def lazily(
        self,
        function: Callable[[Floats], NDArray[Any]],
        n_columns: int,
        dtype: type[np.generic],
        *,
        width: int,
    ) -> da.Array:
        """The results of a function of blocks of rows, as a dask array that computes them later.

        Parameters
        ----------
        function : takes a block (b, d), returns (b, n_columns)
        n_columns, dtype : columns and type of what it returns
        width : how many numbers it computes for a row
        """
        lengths = self.__dict__.get("lengths")  # None if unknown: counting them would take a pass
        work = _shared(
            _Rowwise(function, n_columns, np.dtype(dtype), width, self.dtype, self._device)
        )
        made = []
        for chunk, part in self._every(lengths):
            shape = (np.nan if lengths is None else part.n_rows, n_columns)
            made.append(da.from_delayed(_mapped(work, part, chunk), shape, dtype))
        return da.concatenate(made, allow_unknown_chunksizes=True)

    def _pick(self, positions: NDArray[np.integer]) -> NDArray[np.generic]:
        pieces = []
        for chunk, part in self.filled:
            first, last = np.searchsorted(positions, [part.start, part.start + part.n_rows])
            if first < last:
                pieces.append(_rows_at(part, chunk, positions[first:last] - part.start))
        found: NDArray[np.generic] = np.concatenate(compute(pieces))
        return found


class _Pass(NamedTuple):
    """The work of a pass on each chunk."""

    function: Callable[[Floats, int], Any]
    combine: Callable[[Any, Any], Any]
    width: int
    dtype: type[np.floating]
    device: str | None


class _Rowwise(NamedTuple):
    """A function of rows, and what it returns."""

    function: Callable[[Floats], NDArray[Any]]
    n_columns: int
    made_type: np.dtype[Any]
    width: int
    dtype: type[np.floating]
    device: str | None


@delayed(pure=False)  # type: ignore[untyped-decorator]
def _answer_of(work: _Pass, part: Part, values: Any) -> Any:
    rows = _rows_on(work.device, part.check(values), part.name, part.start)
    rows.dtype = work.dtype
    return rows.reduced(work.function, work.combine, work.width, threads=1)


def _rows_on(device: str | None, array: NDArray[np.generic], name: str, first: int) -> Rows:
    if device is None:
        return Rows(array, name=name, first=first)
    from densehash.rows.devices import StreamedRows  # noqa: PLC0415  few have a GPU

    return StreamedRows(array, device, name=name, first=first)


def _combined(combine: Callable[[Any, Any], Any], one: Any, two: Any) -> Any:
    # A copy, because `combine` may change its first argument, and Dask may run a task again.
    return combine(copy.deepcopy(one), two)


def _in_runs(
    client: Any, answers: list[Any], combine: Callable[[Any, Any], Any], *, verbose: bool
) -> Any:
    """Combine the answers in a tree; each worker gets a run of neighbouring chunks.

    A worker combines its own run, so that the amount of data sent does not grow with the rows. By
    default Dask hands out chunks one by one: neighbours would be on different workers, and every
    answer would be sent. Other workers take over from one that is slow or dies.
    """
    workers = client.nthreads()
    threads = np.cumsum([0, *workers.values()])
    limits = np.rint(threads / threads[-1] * len(answers)).astype(int).tolist()
    futures = []
    for worker, (first, last) in zip(workers, itertools.pairwise(limits), strict=True):
        run = answers[first:last]
        futures += client.compute(run, workers=[worker], allow_other_workers=True)
    join = partial(client.submit, _combined, combine, pure=False)
    whole = tree_reduce(iter(futures), join)
    if verbose:
        from distributed import progress  # noqa: PLC0415  most calls show nothing

        progress(whole)
    return whole.result()


def _holds_futures(X: Any) -> bool:
    """Whether workers already hold the rows; then each computes with its own."""
    if current_client() is None:
        return False
    from distributed import futures_of  # noqa: PLC0415  Dask does without

    return bool(futures_of(X))


@delayed(pure=False)  # type: ignore[untyped-decorator]
def _mapped(work: _Rowwise, part: Part, values: Any) -> NDArray[Any]:
    array = part.check(values)
    if len(array) == 0:
        return np.empty((0, work.n_columns), work.made_type)
    rows = _rows_on(work.device, array, part.name, max(part.start, 0))
    rows.dtype = work.dtype
    made = rows.map(
        lambda block, _: rows.returned(work.function(block)), width=work.width, threads=1
    )
    return np.concatenate(list(made))


@delayed(pure=False)  # type: ignore[untyped-decorator]
def _rows_at(part: Part, values: Any, positions: NDArray[np.integer]) -> NDArray[np.generic]:
    found: NDArray[np.generic] = part.check(values)[positions]
    return found


def _done(function: Callable[[Floats, int], object], block: Floats, start: int) -> None:
    function(block, start)


def _nothing(_: None, __: None) -> None:
    return None


def _shared(work: Any) -> Delayed:
    return delayed(work, name=f"densehash-{uuid.uuid4().hex}", pure=False)


def compute(work: Any, *, verbose: bool = False) -> Any:
    """The result of delayed work, or of a list of it.

    Parameters
    ----------
    work : Delayed, or a list of them
    verbose : whether Dask shows its progress bar

    Examples
    --------
    >>> compute([delayed(len)([1, 2])])
    [2]
    """
    if not verbose:
        return dask.compute(work)[0]
    client = current_client()
    if client is None:
        from dask.diagnostics import ProgressBar  # noqa: PLC0415  most calls show nothing

        with ProgressBar():
            return dask.compute(work)[0]
    from distributed import progress  # noqa: PLC0415

    futures = client.compute(work)
    progress(futures)
    return client.gather(futures)


def current_client() -> Any:
    """The current client of a cluster, or None.

    Examples
    --------
    >>> current_client() is None
    True
    """
    if dask.config.get("scheduler", None) not in (None, "distributed", "dask.distributed"):
        return None  # the user has chosen to compute here
    try:
        from distributed import get_client  # noqa: PLC0415  Dask does without

        return get_client()
    except (ImportError, ValueError):  # there is no client
        return None


def _chunks_of(X: Any, name: str) -> tuple[list[Any], list[int] | None, int, np.dtype[Any]]:
    """The chunks of a collection, their lengths (None if unknown), its features and its type."""
    if isinstance(X, da.Array):
        if X.ndim != 2:
            raise InputError(f"{name} must have 2 dimensions (n, d), got shape {X.shape}")
        if X.dtype.kind not in "fiub":
            raise InputError(f"{name} must hold real numbers, got {X.dtype}")
        if X.shape[1] == 0 or np.isnan(X.shape[1]):
            raise InputError(f"{name} must have at least 1 feature, got shape {X.shape}")
        whole = X if len(X.chunks[1]) == 1 else X.rechunk({1: -1})
        lengths = whole.chunks[0]
        known = not any(np.isnan(length) for length in lengths)
        chunks = list(whole.to_delayed().ravel())
        return chunks, [int(n) for n in lengths] if known else None, int(X.shape[1]), X.dtype
    if not hasattr(X, "to_delayed") or not hasattr(X, "_meta"):
        raise InputError(f"{name} must be a dask array or data frame, got a {type(X).__name__}")
    chunks = list(X.to_delayed())
    if X.ndim == 2:
        n_features, dtype = len(X.columns), X._meta.to_numpy().dtype
        if dtype.kind not in "fiub" or n_features == 0:
            raise InputError(
                f"{name} must have columns of real numbers, or be one column of vectors, got "
                f"columns {', '.join(map(str, X.columns))}"
            )
        return chunks, None, n_features, dtype
    for chunk in chunks:  # the first vector shows the width and the type
        shape, dtype = compute(_look(chunk))
        if shape[0]:
            if len(shape) != 2 or shape[1] == 0:
                raise InputError(f"{name} must be a column of vectors, got numbers")
            return chunks, None, shape[1], dtype
    raise InputError(f"{name} is empty: 0 sample(s) while a minimum of 1 is required.")


@delayed(pure=False)  # type: ignore[untyped-decorator]
def _look(values: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    array = _as_array(values)
    return array.shape, array.dtype


def _as_array(values: Any) -> NDArray[np.generic]:
    """A chunk as an array; it may be an array, a pandas frame, or a column of lists or arrays."""
    array: NDArray[Any] = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
    if array.dtype != object or array.ndim != 1 or len(array) == 0:
        return array
    if isinstance(array[0], str):
        raise InputError(
            "a column must hold vectors, got text: Dask turns objects into text, unless you first "
            "call dask.config.set({'dataframe.convert-string': False})"
        )
    lengths = np.array([len(row) if hasattr(row, "__len__") else -1 for row in array])
    wrong = np.flatnonzero((lengths < 0) | (lengths != lengths[0]))
    if wrong.size:
        first = int(wrong[0])
        came = "no vector" if lengths[first] < 0 else f"{lengths[first]} numbers"
        raise InputError(
            f"a column must hold vectors of one length, got {lengths[0]} numbers in the first row "
            f"of a chunk and {came} in its row {first}"
        )
    return np.array([np.asarray(row) for row in array])
