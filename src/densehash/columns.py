"""Vectors as other libraries hold them: tensors, columns of vectors, data frames, Arrow.

They become arrays of numpy. No library is imported for that: whoever has a value of a library has
imported it, and the names of its class and package say what it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from densehash.errors import InputError

__all__ = ["as_plain", "column_of", "is_frame", "is_tensor", "on_gpu", "parts_of_frame"]

_MOST_LISTED = 20
_FRAMES = (
    ("pandas", "DataFrame"),
    ("polars", "DataFrame"),
    ("pyarrow", "Table"),
    ("pyarrow", "RecordBatch"),
)
_DASK = (("dask", "DataFrame"), ("dask_expr", "DataFrame"))  # workers read their columns


def as_plain(X: Any, name: str = "X") -> Any:
    """Values that numpy alone does not read well, as an array of numpy; others unchanged.

    Parameters
    ----------
    X : a tensor of torch, on any device and of any type; a column of pandas or polars, or an array
        of Arrow, of numbers or of vectors of one length; an array of objects, or a list, of such
        vectors; an Arrow table of numbers; or anything else
    name : what errors call it

    Examples
    --------
    >>> column = np.empty(2, object)
    >>> column[:] = [[1.0, 2.0], [3.0, 4.0]]
    >>> as_plain(column)
    array([[1., 2.],
           [3., 4.]])
    """
    if type(X) is not np.ndarray:  # a search of few queries would notice the time
        for package, kind, convert in _KNOWN:
            if _is_a(X, package, kind):
                X = convert(X, name)
                break
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1 and len(X):
        return _stacked(X, name)
    if isinstance(X, (list, tuple)) and X and _length(X[0]) >= 0:
        if _is_a(X[0], "torch", "Tensor"):
            return _stacked(X, name)
        _check_lengths(np.array([_length(row) for row in X]), name)
    return X


def is_tensor(X: Any) -> bool:
    """Whether this is a tensor of torch.

    Examples
    --------
    >>> is_tensor([[1.0]])
    False
    """
    torch = sys.modules.get("torch")  # whoever has a tensor has imported it
    return torch is not None and isinstance(X, torch.Tensor)


def on_gpu(X: Any) -> bool:
    """Whether this is a tensor on a CUDA device.

    Examples
    --------
    >>> on_gpu([1.0])
    False
    """
    return is_tensor(X) and X.device.type == "cuda"


def is_frame(X: Any) -> bool:
    """Whether this is a data frame of pandas or polars, or a table or record batch of Arrow.

    Examples
    --------
    >>> is_frame([[1.0]])
    False
    """
    return any(_is_a(X, package, kind) for package, kind in _FRAMES)


def column_of(frame: Any, column: str, name: str = "column") -> Any:
    """A column of a frame, in its own type; if it is missing, the error lists the columns.

    Parameters
    ----------
    frame : a frame for which :func:`is_frame` is true, or a data frame of Dask
    column : name of the column
    name : name of this argument in errors

    Examples
    --------
    >>> column_of([[1.0]], "embedding")
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: column is 'embedding', but there is no data frame or Arrow table \
that has columns: a list came
    """
    if not _has_columns(frame):
        raise InputError(
            f"{name} is {column!r}, but there is no data frame or Arrow table that has columns: "
            f"a {type(frame).__name__} came"
        )
    names = _names_of(frame)
    if names.count(column) != 1:
        how = "twice" if column in names else "not there"
        raise InputError(f"{name} {column!r} is {how}; the columns are {_listed(names)}")
    return frame.column(column) if _is_arrow(frame) else frame[column]


def parts_of_frame(X: Any, ids: Any, column: str | None) -> tuple[Any, Any]:
    """Vectors and ids, which may be named columns of a frame.

    Parameters
    ----------
    X : rows; a frame, or anything else if no column is named
    ids : name of a column, or anything else, which is returned unchanged
    column : name of the column of vectors; default all except that of the ids

    Returns
    -------
    the rows, or their column, and the ids

    Examples
    --------
    >>> parts_of_frame([[1.0]], [7], None)
    ([[1.0]], [7])
    """
    frame = X
    if column is not None:
        X = column_of(frame, column)
    if isinstance(ids, str) and _has_columns(frame):
        name, ids = ids, column_of(frame, ids, "ids")
        if column is None:
            others = [other for other in _names_of(frame) if other != name]
            X = frame.select(others) if _is_arrow(frame) else frame[others]
    return X, ids


def _is_a(X: Any, package: str, kind: str) -> bool:
    """Whether a value is an instance of a class of a package, or of a derived class."""
    return any(
        base.__name__ == kind and str(base.__module__).partition(".")[0] == package
        for base in type(X).__mro__
    )


def _has_columns(X: Any) -> bool:
    return any(_is_a(X, package, kind) for package, kind in (*_FRAMES, *_DASK))


def _is_arrow(frame: Any) -> bool:
    return _is_a(frame, "pyarrow", "Table") or _is_a(frame, "pyarrow", "RecordBatch")


def _names_of(frame: Any) -> list[Any]:
    return list(frame.schema.names if _is_arrow(frame) else frame.columns)


def _listed(names: Sequence[Any]) -> str:
    more = [f"{len(names) - _MOST_LISTED} more"] if len(names) > _MOST_LISTED else []
    return ", ".join([*map(repr, names[:_MOST_LISTED]), *more]) or "none"


def _of_tensor(X: Any, name: str) -> NDArray[Any]:
    if str(getattr(X, "layout", "torch.strided")) != "torch.strided":
        raise InputError(f"{name} must be dense, got a sparse tensor: use {name}.to_dense()")
    here = X.detach().cpu()
    try:
        found: NDArray[Any] = here.numpy()
    except TypeError:  # bfloat16 and other types that numpy does not have
        found = here.float().numpy()
    return found


def _of_frame(frame: Any, name: str) -> Any:
    """A frame of numbers, which scikit-learn turns into an array; refuses other frames."""
    names = _names_of(frame)
    columns = [
        frame.column(at) if _is_arrow(frame) else _column_at(frame, at) for at in range(len(names))
    ]
    vectors = [one for one, column in zip(names, columns, strict=True) if _holds_vectors(column)]
    if vectors:
        raise InputError(
            f"{name} is a {type(frame).__name__} with vectors in {_listed(vectors)}: pass that "
            f"column, {name}[{vectors[0]!r}], or name it, column={vectors[0]!r}, where an index is "
            "built, changed or searched"
        )
    if not _is_arrow(frame):
        return frame
    arrays = [_of_arrow(column, name) for column in columns]
    return np.column_stack(arrays) if arrays else np.empty((0, 0))


def _column_at(frame: Any, at: int) -> Any:
    return frame.iloc[:, at] if hasattr(frame, "iloc") else frame.to_series(at)


def _holds_vectors(column: Any) -> bool:
    """Whether a column of a frame holds lists of numbers; for objects, the first decides."""
    if hasattr(column, "to_pylist"):
        return _is_list(getattr(column.type, "storage_type", column.type))
    if _is_a(column, "polars", "Series"):
        return _is_polars_list(column) and bool(column.dtype.inner.is_numeric())
    if hasattr(column.dtype, "pyarrow_dtype"):
        return _is_list(column.dtype.pyarrow_dtype)
    if column.dtype != object:
        return False
    some = column.dropna().iloc[:1]
    return any(_length(value) > 0 and _is_number(next(iter(value))) for value in some)


def _is_list(kind: Any) -> bool:
    """Whether a type of Arrow is lists of numbers."""
    value = str(getattr(kind, "value_type", ""))
    numbers = ("float", "double", "halffloat", "int", "uint", "bool")
    return _is_any_list(kind) and value.startswith(numbers)


def _is_any_list(kind: Any) -> bool:
    return "list" in str(kind).partition("<")[0]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) or hasattr(value, "detach")  # of a tensor


def _is_polars_list(column: Any) -> bool:
    return type(column.dtype).__name__ in ("List", "Array")


def _of_pandas(column: Any, name: str) -> NDArray[Any]:
    if hasattr(column.dtype, "pyarrow_dtype"):
        return _of_arrow(column.array.__arrow_array__(), name)
    found: NDArray[Any] = column.to_numpy()
    return found


def _of_cupy(_: Any, name: str) -> NDArray[Any]:
    raise InputError(f"{name} is an array of cupy, on a GPU: pass cupy.asnumpy({name})")


def _of_polars(column: Any, name: str) -> NDArray[Any]:
    if not _is_polars_list(column):
        found: NDArray[Any] = column.to_numpy()
        return found
    if column.null_count():
        _refuse(name, int(column.is_null().arg_max() or 0), "null")
    n = len(column)
    if type(column.dtype).__name__ == "List":
        _check_lengths(column.list.len().to_numpy(), name)
    values = column.explode()
    if values.null_count():
        _refuse(name, int(values.is_null().arg_max() or 0) // max(len(values) // n, 1), "a null")
    return values.to_numpy().reshape(n, -1) if n else np.empty((0, 0))


def _of_arrow(array: Any, name: str) -> NDArray[Any]:
    """Lists become rows of numbers, binary becomes rows of bytes, numbers an array (n,)."""
    chunks = array.chunks if _is_a(array, "pyarrow", "ChunkedArray") else [array]
    filled = [chunk for chunk in chunks if len(chunk)]
    parts: list[NDArray[Any]] = []
    row = 0
    for chunk in filled:
        part = _of_chunk(getattr(chunk, "storage", chunk), name, row)
        if parts and part.shape[1:] != parts[0].shape[1:]:
            _refuse_length(name, parts[0].shape[1], row, part.shape[1])
        parts.append(part)
        row += len(chunk)
    if not parts:
        return np.empty((0, 0))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _of_chunk(lists: Any, name: str, row: int) -> NDArray[Any]:
    """The rows of an array of Arrow; its first row is ``row``."""
    kind, n = lists.type, len(lists)
    is_binary = str(kind).startswith("fixed_size_binary")
    if not is_binary and not _is_any_list(kind):
        found: NDArray[Any] = lists.to_numpy(zero_copy_only=False)
        return found
    if lists.null_count:
        _refuse(name, row + _first_null(lists), "null")
    if is_binary:  # packed codes, as other systems keep them
        buffer, width = lists.buffers()[1], kind.byte_width
        return np.frombuffer(buffer, np.uint8, n * width, lists.offset * width).reshape(n, width)
    if not hasattr(kind, "list_size"):
        _check_lengths(np.diff(lists.offsets.to_numpy()), name, row)
    values = lists.flatten()
    if values.null_count:
        _refuse(name, row + _first_null(values) // (len(values) // n), "a null")
    numbers: NDArray[Any] = values.to_numpy(zero_copy_only=False).reshape(n, -1)
    return numbers


def _first_null(array: Any) -> int:
    return int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])


def _stacked(values: Any, name: str) -> Any:
    """Vectors of one length as rows of an array; plain numbers unchanged."""
    lengths = np.array([_length(value) for value in values])
    if (lengths < 0).all() and not isinstance(values[0], (str, bytes)):
        return values
    texts = [at for at in np.flatnonzero(lengths < 0) if isinstance(values[at], (str, bytes))]
    if texts:
        raise InputError(
            f"row {texts[0]} of {name} is the text {values[texts[0]][:20]!r}: make numbers of it "
            "first, as json.loads does of '[0.5, 1.0]'"
        )
    missing = np.flatnonzero(lengths < 0)
    if missing.size:
        _refuse(name, int(missing[0]), repr(values[missing[0]]))
    _check_lengths(lengths, name)
    return np.array([np.asarray(as_plain(value, name)) for value in values])


def _length(value: Any) -> int:
    """How many numbers a vector has; -1 if it is not a vector."""
    if isinstance(value, (str, bytes, dict, set)):
        return -1
    try:
        return len(value)
    except TypeError:
        return -1


def _check_lengths(lengths: NDArray[Any], name: str, row: int = 0) -> None:
    """Refuse rows of different lengths; the first length is that of ``row``."""
    other = np.flatnonzero(lengths != lengths[:1])
    if other.size:
        _refuse_length(name, lengths[0], row + int(other[0]), lengths[other[0]], row)


def _refuse_length(name: str, length: int, row: int, found: int, first: int = 0) -> NoReturn:
    raise InputError(
        f"{name} must be vectors of one length: row {first} has {length} numbers, row {row} "
        + ("is no vector" if found < 0 else f"has {found}")
    )


def _refuse(name: str, row: int, came: str) -> NoReturn:
    raise InputError(
        f"row {row} of {name} has {came} in place of a vector's numbers: leave such rows out first"
    )


# Values that become arrays: package, class, and the function that converts them.
_KNOWN: tuple[tuple[str, str, Callable[[Any, str], Any]], ...] = (
    ("torch", "Tensor", _of_tensor),
    ("pandas", "Series", _of_pandas),
    ("pandas", "Index", _of_pandas),
    ("polars", "Series", _of_polars),
    ("pyarrow", "Array", _of_arrow),
    ("pyarrow", "ChunkedArray", _of_arrow),
    ("cupy", "ndarray", _of_cupy),
    *((package, kind, _of_frame) for package, kind in _FRAMES),
)
