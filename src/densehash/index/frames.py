"""Checks the frame of an Arrow file, before pyarrow reads it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from densehash.errors import FileError

__all__ = ["check_frame", "damaged_payload"]

_MAGIC = b"ARROW1"
_RECORDS, _WORDS = 3, 2  # kinds of messages


def damaged_payload(what: str) -> FileError:
    """The error for a damaged payload.

    Examples
    --------
    >>> damaged_payload("it is compressed")
    FileError('the payload of a segment is damaged: it is compressed')
    """
    return FileError(f"the payload of a segment is damaged: {what}")


def check_frame(array: NDArray[np.uint8], n_rows: int) -> None:
    """Refuse files that pyarrow would act on before it can validate them.

    These are files with compressed bodies, which densehash never writes and which may unpack to any
    size, and files with another number of rows than the segment. The function reads the footer and
    the head of each message, which are FlatBuffers: a table begins with the distance to a list of
    the places of its fields.

    Parameters
    ----------
    array : uint8 (n_bytes,), not trusted
    n_rows : how many rows it must have

    Raises
    ------
    FileError : if the file is refused
    struct.error : if a place lies beyond the end

    Examples
    --------
    >>> check_frame(np.zeros(20, np.uint8), 3)
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: the payload of a segment is damaged: it does not begin and end as \
an Arrow file
    """
    data = memoryview(array.data)
    if bytes(data[:6]) != _MAGIC or bytes(data[-6:]) != _MAGIC:
        raise damaged_payload("it does not begin and end as an Arrow file")
    length = _number(data, "<i", len(data) - 10)
    end = len(data) - 10
    if not 0 < length <= end:
        raise damaged_payload("its footer is longer than the file")
    footer = _Table.root(data[end - length : end])
    n_found = 0
    for field, kind in ((2, _WORDS), (3, _RECORDS)):
        for offset, head, body in footer.blocks(field):
            if not 0 <= offset <= offset + head <= offset + head + body <= len(data) or head < 8:
                raise damaged_payload("a record batch lies outside of it")
            message = _Table.root(data[offset + 8 : offset + head])
            if message.number(1, "<B") != kind:
                raise damaged_payload("it has a message of an unknown kind")
            records = message.table(2)
            if kind == _WORDS:
                records = records.table(1)
            if records.place(3):
                raise damaged_payload("it is compressed")
            n_found += records.number(0, "<q") if kind == _RECORDS else 0
    if n_found != n_rows:
        raise damaged_payload(f"it has {n_found} rows, its segment {n_rows}")


def _number(data: memoryview, form: str, at: int) -> int:
    if at < 0:
        raise damaged_payload("a place lies outside of it")
    found: int = struct.unpack_from(form, data, at)[0]
    return found


class _Table:
    """A table of FlatBuffers."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - _number(data, "<i", at)

    @classmethod
    def root(cls, data: memoryview) -> _Table:
        """The table with which a buffer begins."""
        return cls(data, _number(data, "<I", 0))

    def place(self, field: int) -> int:
        """Where a field is; 0 if it is missing."""
        if 4 + 2 * field >= _number(self._data, "<H", self._fields):
            return 0
        offset = _number(self._data, "<H", self._fields + 4 + 2 * field)
        return offset and self._at + offset

    def number(self, field: int, form: str) -> int:
        """A number; 0 if it is missing."""
        at = self.place(field)
        return _number(self._data, form, at) if at else 0

    def table(self, field: int) -> _Table:
        """A table inside."""
        at = self.place(field)
        if not at:
            raise damaged_payload("a message has no content")
        return _Table(self._data, at + _number(self._data, "<I", at))

    def blocks(self, field: int) -> Iterator[tuple[int, int, int]]:
        """Messages: where each begins, and how many bytes its head and its body have."""
        at = self.place(field)
        if not at:
            return
        at += _number(self._data, "<I", at)
        for number in range(_number(self._data, "<I", at)):
            yield struct.unpack_from("<qi4xq", self._data, at + 4 + 24 * number)
