"""Raw measurements, kept for good: a file of JSON lines, each keyed by its full specification.

A line is only ever added. A run that was cut goes on where it stopped, a second one measures
nothing anew, and figures are made from here alone. Nothing derived is kept: histograms of
distances are, the mean average precision that follows from them is not.
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
    """Measurements by key; in a file, or in memory alone.

    Parameters
    ----------
    path : a file of JSON lines; it need not exist. None keeps nothing

    Attributes
    ----------
    passed_over : how many lines of the file could not be read: a line that was cut while it was
        written is one, and what it measured will be measured again

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
                    try:
                        found = json.loads(line)
                        self._by_key[_name(found["key"])] = found["measured"]
                    except (ValueError, KeyError, TypeError):
                        self.passed_over += 1
        except FileNotFoundError:
            return
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror}") from None
        if not last.endswith(b"\n"):  # cut while it was written: the next line begins a new one
            self._append(path, b"\n")

    @staticmethod
    def _append(path: Path, line: bytes) -> None:
        try:
            # One write at the end of the file, so that two processes do not mix their lines.
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
        """Keep a measurement, on the disk before this returns."""
        if self._path is not None:
            line = json.dumps({"key": key, "measured": measured}, allow_nan=False)
            self._append(self._path, line.encode() + b"\n")
        self._by_key[_name(key)] = measured

    def get(self, key: Mapping[str, Any]) -> Record | None:
        """What was measured, or None."""
        return self._by_key.get(_name(key))


def _name(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)


def pack_array(array: NDArray[Any]) -> Record:
    """An array as JSON has it: integers in the fewest bytes that hold them, compressed.

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
