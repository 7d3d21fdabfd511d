"""The sketch of bits: rows are codes that were made elsewhere, and are ranked as codes are.

Sentence-transformers, Cohere or a hasher of your own may have made them. Queries are such codes,
too, or vectors if the hasher is known: uint8 numbers and bools are codes, floats are vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from densehash.bits import MAX_BITS, bytes_for, check_padding, pack
from densehash.checks import as_array, check_codes, check_integer
from densehash.columns import as_plain
from densehash.errors import FileError, InputError
from densehash.index.kinds import Kind
from densehash.index.sketches.codes import CodeQueries, Codes
from densehash.source import Source

if TYPE_CHECKING:
    from densehash.hashers import Hasher

__all__ = ["HAMMING", "Bits", "Unpacked", "packed", "plain_codes"]

HAMMING = "hamming"
"""The metric of an index of bits."""


class Bits(Codes):
    """Codes that were made elsewhere.

    Parameters
    ----------
    n_bits : bits of a code
    hasher : the fitted hasher that made them; None if it is not known

    Examples
    --------
    >>> Bits(12).row_width
    2
    """

    name: ClassVar[str] = "bits"
    format_version: ClassVar[int] = 2

    def __init__(self, n_bits: int, hasher: Hasher | None = None) -> None:
        super().__init__(hasher)
        self._n_bits = n_bits
        if hasher is None:  # there are no margins
            self.reranks = ()

    @property
    def n_bits(self) -> int:
        """Bits of a code."""
        return self._n_bits

    @property
    def n_features(self) -> int:
        """Features of a vector; without a hasher, bits of a code."""
        return self._n_bits if self._hasher is None else super().n_features

    @property
    def row_width(self) -> int:
        """Bytes of a code."""
        return bytes_for(self._n_bits)

    @property
    def in_words(self) -> str:
        """How many bits."""
        known = "" if self._hasher is None else f" of {type(self._hasher).__name__}"
        return f"{self._n_bits} ready-made bits{known}"

    @property
    def about(self) -> Mapping[str, Any]:
        """The length of codes, and the hasher if it is known."""
        known = {} if self._hasher is None else {"hasher": type(self._hasher).__name__}
        return {**known, "bits": self._n_bits}

    def settings(self) -> Mapping[str, Any]:
        """The hasher, if it is known."""
        known = {} if self._hasher is None else super().settings()
        return {**known, "sketch": self.name, "sketch_settings": {}}

    @classmethod
    def from_settings(cls, content: Mapping[str, Any], kind: Kind) -> Bits:
        """The sketch from a file."""
        if content["metric"] != HAMMING or content["vectors"] is not None:
            raise FileError(f"{cls.name} are compared by {HAMMING} distance, without vectors")
        if content["sketch_settings"] != {}:
            raise FileError(f"sketch_settings of {cls.name} must be empty")
        if "hasher" in content:
            return cls(content["n_bits"], Codes.from_settings(content, kind).hasher)
        if content["n_features"] != content["n_bits"]:
            raise FileError(f"n_features must be n_bits, {content['n_bits']}, without a hasher")
        return cls(content["n_bits"])

    def codes_of(self, X: Any, name: str) -> NDArray[np.uint8] | None:
        """Codes, packed; None if X are vectors, which the hasher must turn into codes.

        Parameters
        ----------
        X : uint8 (n, width), bools or numbers 0 and 1 (n, n_bits); or floats (n, d)
        name : their name in errors
        """
        array = plain_codes(X, name)
        if array.dtype.kind != "f":
            return packed(array, self._n_bits, name)[0]
        if self._hasher is None:
            raise InputError(
                f"{name} must be codes, uint8 of {self.row_width} bytes or bools of {self._n_bits} "
                f"bits, got {array.dtype} of shape {array.shape}: this index was made from codes "
                "and has no hasher for vectors; give one to from_codes(..., hasher=...)"
            )
        return None

    def prepare(self, queries: NDArray[Any], n_bits: int | None = None) -> CodeQueries:  # noqa: ARG002
        """Codes and margins of vectors; groups are chosen by the codes."""
        return super().prepare(queries, self._n_bits)

    def rows_of(self, X: Any, name: str) -> NDArray[np.uint8]:
        """Codes of rows, which are given as codes or as vectors."""
        codes = self.codes_of(X, name)
        return self.hasher.transform(X) if codes is None else codes


class Unpacked(Source):
    """Codes as rows of numbers 0 and 1, so that near codes can be grouped.

    Parameters
    ----------
    codes : uint8 (n, width)
    n_bits : bits of a code

    Examples
    --------
    >>> Unpacked(np.array([[5]], np.uint8), 3)[0:1]
    array([[1, 0, 1]], dtype=uint8)
    """

    def __init__(self, codes: NDArray[np.uint8], n_bits: int) -> None:
        self._codes = codes
        self.shape, self.dtype = (len(codes), n_bits), np.dtype(np.uint8)

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[np.uint8]:
        return np.unpackbits(self._codes[rows], axis=1, count=self.shape[1], bitorder="little")


def plain_codes(X: Any, name: str) -> NDArray[Any]:
    """Codes or vectors as an array in memory.

    Examples
    --------
    >>> plain_codes([[True, False]], "codes").dtype
    dtype('bool')
    """
    plain = as_plain(X, name)
    return plain[:] if isinstance(plain, Source) else as_array(plain, name)


def packed(codes: NDArray[Any], n_bits: int | None, name: str) -> tuple[NDArray[np.uint8], int]:
    """Codes as they are kept, and how many bits they have.

    Parameters
    ----------
    codes : uint8 (n, width), packed bits; or bools, or other integers 0 and 1, (n, n_bits)
    n_bits : bits of a code; None: all bits
    name : their name in errors

    Examples
    --------
    >>> packed(np.array([[1, 0, 1], [0, 0, 1]]), None, "codes")
    (array([[5],
           [4]], dtype=uint8), 3)
    """
    if codes.dtype == np.int8:
        raise InputError(
            f"{name} are int8, as some libraries make 'binary' codes: use 'ubinary' codes, or pass "
            f"{name}.view('uint8') ^ 128; pass numbers 0 and 1 as {name}.astype(bool)"
        )
    if codes.dtype != np.uint8:
        if codes.dtype.kind not in "biu":
            raise InputError(
                f"{name} must be uint8 (packed bits), bools, or integers 0 and 1, got {codes.dtype}"
            )
        if n_bits is not None and codes.ndim == 2 and codes.shape[1] != n_bits:
            raise InputError(f"{name} have {codes.shape[1]} bits, expected {n_bits}")
        return pack(codes), codes.shape[1]
    found = check_codes(codes, name)
    bits = 8 * found.shape[1] if n_bits is None else check_integer(n_bits, "n_bits", 1, MAX_BITS)
    if found.shape[1] != bytes_for(bits):
        hint = f": pass bits that are not packed as {name}.astype(bool)"
        raise InputError(
            f"{name} are {found.shape[1]} bytes wide, expected {bytes_for(bits)} for {bits} bits"
            + (hint if found.shape[1] == bits else "")
        )
    check_padding(found, bits, name)
    return found, bits
