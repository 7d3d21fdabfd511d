"""Raw measurements in a file of JSON lines, each with its full specification as key.

Lines are only added, never changed. So an interrupted run continues where it stopped, a second run
measures nothing again, and figures are made only from this file. It keeps nothing that can be
computed: histograms of distances, for example, but not the mean average precision.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.errors import FileError

__all__ = ["Records", "pack_array", "unpack_array"]

Record = dict[str, Any]


class Records:
    """Measurements by key, in a file or only in memory.

    Parameters
    ----------
    path : a file of JSON lines, which need not exist; None keeps measurements only in memory

    Attributes
    ----------
    passed_over : how many lines of the file could not be read, for example because the process was
        stopped while it wrote; their measurements are made again

    Examples
    --------
    >>> records = Records(None)
    >>> records.add({"method": "DSH", "bits": 64}, {"seconds": 1.5})
    >>> records.get({"bits": 64, "method": "DSH"})
    {'seconds': 1.5}
    >>> records.get({"bits": 32, "method": "DSH"}) is None
    True
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._by_key: dict[str, Record] = {}
        self.passed_over = 0
        if path is not None:
            self._read(path)

    def __len__(self) -> int:
        return len(self._by_key)

    def _read(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                last = b"\n"
                for line in file:
                    last = line
                    if line == b"\n":  # of a process that read while another one wrote
                        continue
                    try:
                        found = json.loads(line)
                        self._by_key[_name(found["key"])] = found["measured"]
                    except (ValueError, KeyError, TypeError):
                        self.passed_over += 1
        except FileNotFoundError:
            return
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror}") from None
        if not last.endswith(b"\n"):  # the last write was cut off: begin a new line
            self._append(path, b"\n")

    @staticmethod
    def _append(path: Path, line: bytes) -> None:
        try:
            # One write in append mode, so that lines of two processes do not mix.
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                while line:
                    line = line[os.write(descriptor, line) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise FileError(f"{path} cannot be written: {error.strerror}") from None

    def add(self, key: Mapping[str, Any], measured: Record) -> None:
        """Keep a measurement; it is on disk when this returns."""
        if self._path is not None:
            line = json.dumps({"key": key, "measured": measured}, allow_nan=False)
            self._append(self._path, line.encode() + b"\n")
        self._by_key[_name(key)] = measured

    def get(self, key: Mapping[str, Any]) -> Record | None:
        """The measurement of this key, or None."""
        return self._by_key.get(_name(key))


def _name(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)


def pack_array(array: NDArray[Any]) -> Record:
    """An array in JSON, compressed: integers in the smallest type that holds them.

    Examples
    --------
    >>> packed = pack_array(np.array([[1, 2], [3, 400]]))
    >>> packed["dtype"], packed["shape"]
    ('<u2', [2, 2])
    >>> unpack_array(packed)
    array([[  1,   2],
           [  3, 400]], dtype=uint16)
    """
    if array.dtype.kind in "iu" and array.size and array.min() >= 0:
        array = array.astype(np.min_scalar_type(int(array.max())))
    array = array.astype(array.dtype.newbyteorder("<"))
    return {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "zlib": base64.b64encode(zlib.compress(array.tobytes(), 6)).decode(),
    }


def unpack_array(packed: Record) -> NDArray[Any]:
    """The array that :func:`pack_array` packed, read-only.

    Examples
    --------
    >>> unpack_array(pack_array(np.arange(3.0)))
    array([0., 1., 2.])
    """
    data = zlib.decompress(base64.b64decode(packed["zlib"]))
    return np.frombuffer(data, np.dtype(packed["dtype"])).reshape(packed["shape"])
