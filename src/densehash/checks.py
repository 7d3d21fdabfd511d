"""Checks of all input from outside.

Each function returns its argument in the form that the rest of the package relies on, or
raises :class:`~densehash.errors.InputError` saying what was expected and what came.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray

from densehash.columns import as_plain
from densehash.errors import InputError
from densehash.source import Source
from densehash.stream import Blocks, DatasetRows, is_dataset, is_stream

__all__ = [
    "MAX_BYTES",
    "as_array",
    "check_chance",
    "check_choice",
    "check_code_form",
    "check_codes",
    "check_integer",
    "check_positions",
    "check_positive",
    "check_recall",
    "check_same_width",
    "check_threads",
    "check_vectors",
]

VectorsLike: TypeAlias = ArrayLike | Source | Callable[[], Iterable[ArrayLike]]

MAX_BYTES = 512
"""The widest code, in bytes: 4096 bits."""

_MOST_THREADS = 1024


def as_array(values: ArrayLike, name: str) -> NDArray[Any]:
    """Values as an array of numpy; if that is not possible, the error names the argument.

    Examples
    --------
    >>> as_array([1, 2], "numbers")
    array([1, 2])
    """
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:  # ragged lists, objects that refuse
        raise InputError(f"{name} cannot be read as an array: {error}") from None


def check_chance(random_state: int | RandomState | None) -> RandomState:
    """The generator of a ``random_state``, as in scikit-learn.

    Examples
    --------
    >>> check_chance(0).randint(10)
    5
    >>> check_chance(-1)
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: random_state cannot be used: Seed must be between 0 and 2**32 - 1
    """
    if isinstance(random_state, RandomState):
        return random_state
    try:
        if isinstance(random_state, (int, np.integer)):
            return RandomState(random_state)
        # Other values are rare, so loading scikit-learn for them is fine.
        from sklearn.utils import check_random_state  # noqa: PLC0415

        state: RandomState = check_random_state(random_state)
    except ValueError as error:
        raise InputError(f"random_state cannot be used: {error}") from None
    return state


def check_codes(codes: ArrayLike, name: str = "codes") -> NDArray[np.uint8]:
    """Packed codes, in C order.

    Parameters
    ----------
    codes : uint8 array of shape (n, width), width from 1 to 512, in any memory order
    name : what the error calls it

    Returns
    -------
    uint8 array of shape (n, width), C-contiguous; not copied if it already is

    Examples
    --------
    >>> import numpy as np
    >>> check_codes(np.zeros((3, 8), dtype=np.uint8)).shape
    (3, 8)
    >>> check_codes(np.zeros((3, 8)))
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: codes must be a uint8 array of packed bits, got dtype float64
    """
    array = as_array(codes, name)
    # The name of a type takes longer to find than a small search.
    dtype = "uint8" if array.dtype == np.uint8 else str(array.dtype)
    check_code_form(dtype, array.shape, name)
    return np.ascontiguousarray(array)


def check_code_form(dtype: str, shape: tuple[int, ...], name: str = "codes") -> None:
    """Refuse a type and shape that packed codes cannot have.

    Examples
    --------
    >>> check_code_form("uint8", (3, 0))
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: codes must be 1 to 512 bytes wide, got 0
    """
    if dtype != "uint8":
        hint = "; pass dtype=uint8 if these are packed bytes" if "int" in dtype else ""
        raise InputError(f"{name} must be a uint8 array of packed bits, got dtype {dtype}{hint}")
    if len(shape) != 2:
        raise InputError(f"{name} must have 2 dimensions (n, width), got shape {shape}")
    if not 1 <= shape[1] <= MAX_BYTES:
        raise InputError(f"{name} must be 1 to {MAX_BYTES} bytes wide, got {shape[1]}")


def check_same_width(queries: NDArray[np.uint8], codes: NDArray[np.uint8]) -> None:
    """Refuse queries and codes of different widths.

    Parameters
    ----------
    queries : uint8 array of shape (q, width)
    codes : uint8 array of shape (n, width)

    Examples
    --------
    >>> import numpy as np
    >>> check_same_width(np.zeros((1, 8), np.uint8), np.zeros((5, 16), np.uint8))
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: queries are 8 bytes wide but codes are 16 bytes wide
    """
    if queries.shape[1] != codes.shape[1]:
        raise InputError(
            f"queries are {queries.shape[1]} bytes wide but codes are {codes.shape[1]} bytes wide"
        )


def check_integer(value: int, name: str, minimum: int, maximum: int | None = None) -> int:
    """Check an integer of Python or numpy against its limits, both included; no bool, no float.

    Examples
    --------
    >>> check_integer(np.int32(7), "k", 1)
    7
    >>> check_integer(0, "k", 1)
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: k must be at least 1, got 0
    """
    # Python counts bool as an int, but here it is probably a mistake.
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InputError(
            f"{name} must be an integer {_between(minimum, maximum)}, got {value!r} of type "
            f"{type(value).__name__}"
        )
    integer = int(value)
    if integer < minimum or (maximum is not None and integer > maximum):
        raise InputError(f"{name} must be {_between(minimum, maximum)}, got {integer}")
    return integer


def _between(minimum: int, maximum: int | None) -> str:
    return f"at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"


def check_positive(value: float, name: str) -> float:
    """Check a finite number greater than zero, of Python or numpy; no bool.

    Examples
    --------
    >>> check_positive(1.5, "alpha")
    1.5
    >>> check_positive(0, "alpha")
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: alpha must be a finite number greater than 0, got 0
    """
    number = not isinstance(value, bool) and isinstance(
        value, (int, float, np.integer, np.floating)
    )
    if not number or not 0 < value < float("inf"):
        raise InputError(f"{name} must be a finite number greater than 0, got {value!r}")
    return float(value)


def check_recall(recall: float) -> float:
    """Check a share of the nearest rows to find: above 0, at most 1.

    Examples
    --------
    >>> check_recall(0.95)
    0.95
    >>> check_recall(1.5)
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: recall must be at most 1, got 1.5
    """
    share = check_positive(recall, "recall")
    if share > 1:
        raise InputError(f"recall must be at most 1, got {recall}")
    return share


def check_choice(value: str, name: str, choices: Sequence[str]) -> str:
    """Check that a word is one of the choices.

    Examples
    --------
    >>> check_choice("rows", "entropy", ["centers", "rows"])
    'rows'
    >>> check_choice("row", "entropy", ["centers", "rows"])
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: entropy must be 'centers' or 'rows', got 'row'
    """
    if value not in choices:
        raise InputError(f"{name} must be {' or '.join(map(repr, choices))}, got {value!r}")
    return value


def check_threads(n_threads: int | None) -> int:
    """How many threads to use; None: one for every CPU that this process may use.

    More than 1,024 are never started: the answers do not depend on it.

    Examples
    --------
    >>> check_threads(2)
    2
    >>> check_threads(None) >= 1
    True
    """
    if n_threads is not None:
        return min(check_integer(n_threads, "n_threads", 1), _MOST_THREADS)
    # Containers and job schedulers often grant fewer CPUs than the machine has.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_vectors(X: VectorsLike, name: str = "X") -> NDArray[np.generic]:
    """Vectors as a real array of two dimensions; not copied if they already are one.

    A :class:`~densehash.source.Source` is sliced like an array and is returned as it is; a callable
    that yields blocks and a dataset of h5py become one.

    Whether every number is finite is checked later, block by block: see ``Rows``.

    Parameters
    ----------
    X : array of shape (n, d) of any real type, a memory map, a Source, an h5py.Dataset, a callable
        as :class:`~densehash.stream.Blocks` takes it, a data frame of numbers, nested lists, or
        what :func:`~densehash.columns.as_plain` makes an array of: tensors, columns of vectors
    name : what the error calls it

    Returns
    -------
    array of shape (n, d), n and d at least 1, of floats, integers or bools, in any memory order

    Examples
    --------
    >>> check_vectors([[1, 2], [3, 4]]).shape
    (2, 2)
    >>> check_vectors(np.zeros(5))
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: X must have 2 dimensions (n, d), got shape (5,). Reshape your \
data: X.reshape(1, -1) is one row, X.reshape(-1, 1) is one feature
    """
    if hasattr(X, "__dask_graph__"):  # numpy would compute all of it here
        raise InputError(
            f"{name} is a collection of Dask: hashers fit and transform it, and "
            f"densehash.distributed.ShardedIndex is built from it; elsewhere, pass {name}.compute()"
        )
    if is_stream(X):
        X = Blocks(cast(Callable[[], Iterable[ArrayLike]], X))
    elif is_dataset(X):
        X = _dataset_rows(X, name)
    if not _is_numbers(X):
        X = as_plain(X, name)
    array = (
        cast("NDArray[np.generic]", X) if _is_numbers(X) else _as_numbers(cast(ArrayLike, X), name)
    )
    if array.ndim != 2:
        raise InputError(
            f"{name} must have 2 dimensions (n, d), got shape {array.shape}. Reshape your data: "
            f"{name}.reshape(1, -1) is one row, {name}.reshape(-1, 1) is one feature"
        )
    if 0 in array.shape:
        missing = "feature" if array.shape[0] else "sample"
        raise InputError(
            f"{name} is empty: 0 {missing}(s) (shape={array.shape}) "
            "while a minimum of 1 is required."
        )
    return array


def check_positions(
    relevant: Sequence[ArrayLike] | NDArray[np.integer], n_queries: int, n_codes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of codes for each query, flattened into the CSR shape.

    Parameters
    ----------
    relevant : q one-dimensional integer arrays of any lengths, or one integer array (q, m)
    n_queries : q
    n_codes : positions must lie in 0 .. n_codes - 1

    Returns
    -------
    limits : int64 array of shape (q + 1,); query i owns positions[limits[i]:limits[i + 1]]
    positions : int64 array of shape (limits[q],)

    Examples
    --------
    >>> limits, positions = check_positions([[4, 0], [], [2]], n_queries=3, n_codes=5)
    >>> limits
    array([0, 2, 2, 3])
    >>> positions
    array([4, 0, 2])
    """
    if isinstance(relevant, np.ndarray) and relevant.dtype != object:
        _check_rows_of_positions(relevant, n_queries)
        rows: Sequence[NDArray[np.integer]] | NDArray[np.integer] = relevant
        limits: NDArray[np.int64] = np.arange(n_queries + 1, dtype=np.int64) * relevant.shape[1]
        in_order = np.ascontiguousarray(relevant)
        positions: NDArray[np.int64] = in_order.astype(np.int64, copy=False).reshape(-1)
    else:
        rows = _list_of_positions(relevant, n_queries)
        limits = np.zeros(n_queries + 1, dtype=np.int64)
        np.cumsum([row.size for row in rows], out=limits[1:])
        positions = np.concatenate([np.empty(0, np.int64), *rows], dtype=np.int64, casting="unsafe")

    # One pass over a possibly large array: viewed as unsigned, negative numbers are beyond every
    # code, and unsigned numbers beyond int64 have their old values.
    if positions.size and positions.view(np.uint64).max() >= n_codes:
        first = int(np.flatnonzero((positions < 0) | (positions >= n_codes))[0])
        query = int(np.searchsorted(limits, first, side="right")) - 1
        position = rows[query][first - int(limits[query])]
        if n_codes == 0:
            raise InputError(
                f"relevant must be empty where there are no codes, got position {position} "
                f"for query {query}"
            )
        raise InputError(
            f"relevant positions must lie in 0..{n_codes - 1} for {n_codes} codes, "
            f"got {position} for query {query}"
        )
    return limits, positions


def _dataset_rows(dataset: Any, name: str) -> DatasetRows:
    if not dataset:
        raise InputError(f"{name} is a dataset of an HDF5 file that was closed: open it again")
    if dataset.shape is None or len(dataset.shape) != 2:
        raise InputError(f"{name} must have 2 dimensions (n, d), got shape {dataset.shape}")
    if dataset.dtype.kind not in "fiub":
        raise InputError(f"{name} must be numbers, got dtype {dataset.dtype}")
    return DatasetRows(dataset)


def _is_numbers(X: object) -> bool:
    return isinstance(X, (np.ndarray, Source)) and X.dtype.kind in "fiub"


def _as_numbers(X: ArrayLike, name: str) -> NDArray[np.generic]:
    """Lists, data frames, objects, sparse matrices, text: accepted or refused by scikit-learn."""
    if isinstance(X, (list, tuple)) and (plain := _plain_numbers(X)) is not None:
        return plain
    # Imported here, because scikit-learn and scipy load slowly and plain numbers do not need them.
    from scipy.sparse import issparse  # noqa: PLC0415
    from sklearn.utils import check_array  # noqa: PLC0415

    if issparse(X):
        raise InputError(f"{name} must be dense, got a sparse matrix: use {name}.toarray()")
    if not hasattr(X, "__len__") and not hasattr(X, "__array__"):
        raise InputError(f"{name} must have 2 dimensions (n, d), got a {type(X).__name__}")
    try:
        array: NDArray[np.generic] = check_array(
            X, ensure_all_finite=False, ensure_2d=False, allow_nd=True, input_name=name
        )
    except ValueError as error:  # objects that are no numbers stay a TypeError, as scikit-learn has
        raise InputError(f"{name} cannot be used: {error}") from None
    if array.dtype.kind not in "fiub":
        hint = f": use {name}.astype('float32')" if array.dtype.kind == "V" else ""  # bfloat16
        raise InputError(f"{name} must be numbers, got dtype {array.dtype}{hint}")
    return array


def _plain_numbers(X: Sequence[Any]) -> NDArray[np.generic] | None:
    """Lists of numbers as an array; None if scikit-learn has to check them more closely."""
    try:
        array: NDArray[np.generic] = np.asarray(X)
    except (TypeError, ValueError):
        return None
    return array if array.size and array.dtype.kind in "fiub" else None


def _check_rows_of_positions(relevant: NDArray[np.generic], n_queries: int) -> None:
    if relevant.ndim != 2 or relevant.dtype.kind not in "iu":
        raise InputError(
            "relevant must be integers of shape (n_queries, m) or one array for each query, "
            f"got dtype {relevant.dtype} and shape {relevant.shape}"
        )
    if relevant.shape[0] != n_queries:
        raise InputError(
            f"relevant has rows for {relevant.shape[0]} queries but there are {n_queries} queries"
        )


def _list_of_positions(relevant: Iterable[ArrayLike], n_queries: int) -> list[NDArray[np.integer]]:
    try:
        rows = [np.asarray(row) for row in relevant]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"relevant must hold one array of positions for each query: {error}"
        ) from None
    if len(rows) != n_queries:
        raise InputError(
            f"relevant has rows for {len(rows)} queries but there are {n_queries} queries"
        )
    for query, row in enumerate(rows):
        # An empty list becomes an empty float array, in which nothing can be wrong.
        if row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
            raise InputError(
                "relevant must hold a one-dimensional integer array for each query, "
                f"got dtype {row.dtype} and shape {row.shape} for query {query}"
            )
    return rows
