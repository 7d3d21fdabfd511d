"""Ids of rows: int64 numbers, or strings.

Strings are kept as numpy's bytes of one width, in UTF-8. They sort like Python's strings, numpy
searches them fast, and a file of them is a plain ``.npy``.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densehash.checks import as_array
from densehash.errors import FileError, InputError

__all__ = [
    "LONGEST",
    "check_ids",
    "find",
    "first_double",
    "keys_of",
    "native_ids",
    "no_ids",
    "public_ids",
    "shown",
    "type_of",
]

IdType = Literal["int64", "string"]
Ids = NDArray[Any]

LONGEST = 1024
"""Bytes of the longest string, in UTF-8."""


def check_ids(ids: ArrayLike, name: str = "ids") -> Ids:
    r"""Ids as they are kept.

    Parameters
    ----------
    ids : integers from 0 on, or strings, of shape (n,)
    name : their name in errors

    Returns
    -------
    int64 array, or bytes array (``S``), of shape (n,)

    Examples
    --------
    >>> check_ids([3, 1])
    array([3, 1])
    >>> check_ids(["b", "ä"])
    array([b'b', b'\xc3\xa4'], dtype='|S2')
    """
    if isinstance(ids, (str, bytes)):
        raise InputError(f"{name} must be an array of ids, got {ids!r}")
    # numpy drops NUL at the end of a string, so a list is not turned into an array of strings.
    array = ids if isinstance(ids, np.ndarray) else _as_objects(ids, name)
    if array.ndim != 1:
        raise InputError(f"{name} must have one dimension, got shape {array.shape}")
    if array.dtype.kind in "iu":
        return _check_integers(array, name)
    if array.dtype.kind == "U":
        return _encode(array.tolist(), name)
    if array.dtype.kind in "OT":
        values = array.tolist()
        if all(isinstance(value, str) for value in values):
            return _encode(values, name)
        if all(isinstance(value, (int, np.integer)) for value in values) and not any(
            isinstance(value, (bool, np.bool_)) for value in values
        ):
            return _check_integers(np.asarray(values), name)
    raise InputError(
        f"{name} must be all integers or all strings, got {_what(array)}; "
        "convert numbers to int64 and others to strings"
    )


def type_of(ids: Ids) -> IdType:
    """The type of ids, one of two.

    Examples
    --------
    >>> type_of(check_ids(["a"]))
    'string'
    """
    return "string" if ids.dtype.kind == "S" else "int64"


def public_ids(ids: Ids) -> NDArray[Any]:
    """Ids as users see them: int64, or strings in an array of objects.

    Examples
    --------
    >>> public_ids(check_ids(["b", "ä"]))
    array(['b', 'ä'], dtype=object)
    """
    if ids.dtype.kind != "S":
        return ids
    found = np.empty(ids.shape, dtype=object)
    try:
        found.reshape(-1)[:] = [value.decode() for value in ids.reshape(-1).tolist()]
    except UnicodeDecodeError as error:
        raise FileError(f"the index is damaged: an id is not UTF-8: {error}") from None
    return found


def native_ids(ids: Ids) -> NDArray[np.int64] | NDArray[np.uint8]:
    """Ids as native code reads them: int64 (n,), or the bytes of strings, uint8 (n, width).

    Examples
    --------
    >>> native_ids(check_ids(["b", "aa"]))
    array([[98,  0],
           [97, 97]], dtype=uint8)
    """
    if ids.dtype.kind != "S":
        return ids
    return np.ascontiguousarray(ids).view(np.uint8).reshape(len(ids), ids.itemsize)


def find(ids: Ids, wanted: Ids) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Where ids are in a rising array of ids.

    Parameters
    ----------
    ids : int64 or bytes array (n,), rising
    wanted : array (m,) of the same type

    Returns
    -------
    ranks : intp (m,), the place of each id, or the place where it would be
    there : bool (m,), whether it is there

    Examples
    --------
    >>> find(np.array([2, 5, 9]), np.array([9, 4]))
    (array([2, 1]), array([ True, False]))
    """
    if len(ids) == 0:
        return np.zeros(len(wanted), np.intp), np.zeros(len(wanted), np.bool_)
    fits = np.ones(len(wanted), np.bool_)
    if ids.dtype.kind == "S" and wanted.dtype.itemsize > ids.dtype.itemsize:
        # Both get one width: otherwise numpy would copy all ids to widen them.
        fits = np.char.str_len(wanted) <= ids.dtype.itemsize
        wanted = wanted.astype(ids.dtype)
    ranks = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return ranks, (ids[ranks] == wanted) & fits


def first_double(ids: Ids) -> Any | None:
    """The smallest id that is there twice; None if all differ.

    Examples
    --------
    >>> first_double(np.array([3, 1, 3])), first_double(np.array([3, 1]))
    (3, None)
    """
    if len(ids) < 2 or bool((ids[:-1] < ids[1:]).all()):
        return None
    ordered = np.sort(ids)
    doubles = ordered[1:][ordered[1:] == ordered[:-1]]
    return shown(doubles[0]) if len(doubles) else None


def no_ids(id_type: str) -> NDArray[Any]:
    """An empty array of ids of a type.

    Examples
    --------
    >>> no_ids("int64")
    array([], dtype=int64)
    """
    return np.empty(0, np.int64 if id_type == "int64" else "S1")


def keys_of(ids: Ids) -> NDArray[np.int64]:
    """Integers in the same order as ids of any shape.

    Examples
    --------
    >>> keys_of(check_ids(["b", "a", "b"]))
    array([1, 0, 1])
    """
    if ids.dtype.kind != "S":
        return ids
    return np.unique(ids, return_inverse=True)[1].reshape(ids.shape).astype(np.int64, copy=False)


def shown(value: Any) -> Any:
    """One id as users see it.

    Examples
    --------
    >>> shown(check_ids(["ä"])[0]), shown(np.int64(3))
    ('ä', 3)
    """
    return value.decode() if isinstance(value, bytes) else int(value)


def _as_objects(ids: ArrayLike, name: str) -> NDArray[Any]:
    if isinstance(ids, (list, tuple)) and any(isinstance(value, str) for value in ids):
        found = np.empty(len(ids), dtype=object)
        found[:] = ids
        return found
    return as_array(ids, name)


def _check_integers(array: NDArray[Any], name: str) -> NDArray[np.int64]:
    if array.size:
        low, high = int(array.min()), int(array.max())
        if low < 0 or high > np.iinfo(np.int64).max:
            raise InputError(
                f"{name} must be from 0 to 2**63 - 1, got {low if low < 0 else high}; "
                "-1 stands for no row"
            )
    return np.array(array, dtype=np.int64)  # a copy: users may change their array


def _encode(values: list[Any], name: str) -> Ids:
    try:
        encoded = [value.encode() for value in values]
    except UnicodeEncodeError as error:
        raise InputError(f"{name} cannot be written as UTF-8: {error}") from None
    for value, text in zip(encoded, values, strict=True):
        if b"\0" in value or len(value) > LONGEST:
            raise InputError(
                f"{name} must be strings of at most {LONGEST} bytes without the character NUL, "
                f"got {text[:40]!r} of {len(value)} bytes"
            )
    return np.array(encoded, dtype=f"S{max(map(len, encoded), default=1) or 1}")


def _what(array: NDArray[Any]) -> str:
    if array.dtype.kind != "O":
        return f"dtype {array.dtype}"
    return f"objects of types {', '.join(sorted({type(v).__name__ for v in array.tolist()}))}"
