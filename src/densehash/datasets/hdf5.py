"""HDF5 in the layout of ann-benchmarks, with h5py.

A file has the datasets ``train`` and ``test`` (vectors), ``neighbors`` and ``distances`` (of the
test vectors), and an attribute ``distance``. Any other dataset with two dimensions can be read too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from densehash.datasets.reading import (
    LazyRows,
    Reader,
    Vectors,
    broken,
    choose,
    import_extra,
    in_words,
    n_bytes,
    reason,
)
from densehash.datasets.writing import blocks, check_key, stored_type
from densehash.disk import replacing
from densehash.errors import DensehashError, FileError, InputError

__all__ = ["Hdf5Rows", "open_hdf5", "write_hdf5"]

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_CHUNK_CACHE = 32 << 20  # bytes; the default of h5py is smaller than many chunks


class Hdf5Rows(LazyRows):
    """Rows of a dataset, read when they are used.

    Parameters
    ----------
    path : the file
    key : name of a dataset; default ``train``, or the only one that can be vectors
    transposed : whether the dataset is (d, n), as MATLAB stores its arrays

    Attributes
    ----------
    shape : (n_rows, n_features)
    dtype : type of the dataset
    distance : the file's attribute of that name, for example ``euclidean``; "" if it has none
    """

    def __init__(self, path: Path, key: str | None = None, *, transposed: bool = False) -> None:
        with Reader(path) as file:
            _check_signature(file)
            size = file.size
        h5py = import_extra("h5py", "hdf5")
        with _reading(path):
            self._file = h5py.File(path, "r", rdcc_nbytes=_CHUNK_CACHE)
            datasets = _datasets(h5py, self._file, top_only=transposed)
            usual = "" if transposed else "train"
            chosen = choose(
                path,
                None if key is None else key.strip("/"),
                list(datasets),
                lambda name: _describe(datasets[name], transposed),
                usual,
            )
            super().__init__(path, chosen)
            self._dataset = datasets[chosen]
            self._transposed = transposed
            n, d = self._dataset.shape[::-1] if transposed else self._dataset.shape
            self.shape = int(n), int(d)
            self.dtype = self._dataset.dtype
            _check_storage(path, chosen, self._dataset, size)
            self.distance = _text(self._file.attrs.get("distance"))

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        rows = slice(start, stop)
        with _reading(self._path):
            found: NDArray[Any]
            found = self._dataset[:, rows].T if self._transposed else self._dataset[rows]
        return found


def open_hdf5(path: Path, key: str | None = None) -> Hdf5Rows:
    """Open a dataset; its rows are read when they are used.

    Parameters
    ----------
    path : the file
    key : name of a dataset; default ``train``, or the only one that can be vectors

    Examples
    --------
    >>> open_hdf5(Path("no-such-file.hdf5"), "neighbors")
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.hdf5 does not exist
    """
    return Hdf5Rows(path, key)


def write_hdf5(path: Path, X: Vectors, key: str | None = None) -> None:
    """Write rows as the only dataset of a file, one block at a time.

    Parameters
    ----------
    path : the file
    X : real array (n, d) or a Source; its type is kept, in little-endian order
    key : name of the dataset; default ``train``

    Examples
    --------
    >>> import numpy as np
    >>> write_hdf5(Path("a.hdf5"), np.zeros((2, 3)), key="a//b")
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: key must be a name of HDF5, parts joined by single /, got 'a//b'
    """
    dtype = stored_type(X.dtype, ".hdf5")
    name = check_key(key, "train")
    if any(part in ("", ".") for part in name.split("/")):
        raise InputError(f"key must be a name of HDF5, parts joined by single /, got {name!r}")
    h5py = import_extra("h5py", "hdf5")
    with replacing(path) as part:
        try:
            with h5py.File(part, "w") as file:
                dataset = file.create_dataset(name, shape=X.shape, dtype=dtype)
                start = 0
                for block in blocks(X, dtype):
                    dataset[start : start + len(block)] = block
                    start += len(block)
        except RuntimeError as error:  # h5py raises this for a full disk
            raise FileError(f"{path} cannot be written: {error}") from error


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn errors of h5py about damaged files into errors that name the file."""
    try:
        yield
    except DensehashError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise FileError(f"{path} cannot be read as HDF5: {reason(error)}") from None


def _check_signature(file: Reader) -> None:
    """Look for the signature where HDF5 does: at 0, or after 512, 1024, 2048 ... bytes."""
    offset = 0
    while offset + len(_SIGNATURE) <= file.size:
        if file.read(offset, len(_SIGNATURE), "a signature") == _SIGNATURE:
            return
        offset = max(512, 2 * offset)
    found = file.read(0, min(len(_SIGNATURE), file.size), "a signature")
    raise broken(file.path, 0, f"the signature {_SIGNATURE!r} of HDF5", repr(found))


def _datasets(h5py: Any, file: Any, *, top_only: bool) -> dict[str, Any]:
    """All datasets by name. Links are not followed: they may lead into other files."""
    found = {}

    def note(name: str, entry: Any) -> None:
        if isinstance(entry, h5py.Dataset) and not (top_only and "/" in name):
            found[name] = entry

    file.visititems(note)
    return found


def _describe(dataset: Any, transposed: bool) -> tuple[str, bool]:
    shape = dataset.shape
    if shape is None:
        return "empty", False
    if transposed:  # written by MATLAB
        shape = shape[::-1]
        kind = _text(dataset.attrs.get("MATLAB_class"))
        if kind in {"char", "cell", "function_handle"}:  # stored as integers or references
            return f"{kind} {shape}", False
        if "MATLAB_empty" in dataset.attrs:  # the dataset has its shape instead of its numbers
            return "empty", False
    fits = dataset.dtype.kind in "fiub" and len(shape) == 2 and min(shape) > 0
    return in_words(dataset.dtype, shape), fits


def _check_storage(path: Path, name: str, dataset: Any, size: int) -> None:
    """Refuse a dataset that claims more numbers than the file holds.

    For numbers that were never written, HDF5 returns zeros, without limit.
    """
    if dataset.is_virtual or dataset.external:
        raise FileError(f"{path}: the numbers of {name!r} lie in other files, which are not read")
    offset = dataset.id.get_offset()
    if dataset.chunks is None:
        expected, found = n_bytes(dataset.dtype, dataset.shape), dataset.id.get_storage_size()
        words = in_words(dataset.dtype, dataset.shape)
        if offset is not None:  # None if it is so small that it is in its header
            found = min(found, size - offset)
        if found < expected:
            raise broken(path, offset or 0, f"{expected} bytes of {name!r}, {words}", found)
        return
    expected = 1
    for length, chunk in zip(dataset.shape, dataset.chunks, strict=True):
        expected *= -(-length // chunk)
    if dataset.id.get_num_chunks() < expected:
        found = dataset.id.get_num_chunks()
        raise broken(path, 0, f"{expected} chunks of {name!r}", f"{found}: not all was written")


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""
