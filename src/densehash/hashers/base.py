"""The one contract of every hasher.

A hasher is a scikit-learn transformer. A bit is the sign of a margin, whatever the method, so a
method writes two things only: how it learns from rows, and the margins of a block of rows.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from densehash.bits import MAX_BITS, bytes_for, pack
from densehash.checks import VectorsLike, check_chance, check_integer
from densehash.columns import is_frame
from densehash.errors import InputError
from densehash.hashers.models import save_hasher
from densehash.mapped import MappedRows, unmapped
from densehash.parallel import one_blas_thread
from densehash.rows import DaskCollection, Floats, Rows, rows_of
from densehash.rows.devices import current_device
from densehash.rows.local import as_block, float_type
from densehash.rows.numerics import as_type, margins, module_of
from densehash.tensors import memory_named

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11 on

__all__ = ["Hasher", "LinearHasher"]

# So few rows are never more than one block of `transform`.
_FEW_ROWS = 64
# Products of so few pairs of numbers take one thread of BLAS, whatever it may use.
_SMALL_PRODUCT = 1 << 18


class Hasher(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """What all hashers share: ``fit``, ``project``, ``transform``.

    A method derives from this class, stores its arguments in ``__init__``, says in ``learnt`` what
    it learns, and writes ``_learn`` and ``_margins``.

    Attributes
    ----------
    n_bits_ : how many bits a code has
    n_features_in_ : how many features rows have
    uses_float64_ : whether rows lie so far from zero, or are so small, that float32 would blur
        their differences; they are computed with in float64 then, whatever their type
    """

    learnt: ClassVar[dict[str, str]]
    """What is learnt, by which files are written, read and checked.

    Of a number: its type; ``int k`` goes from 1 to k. Of an array: its type, float64 unless said
    otherwise, and its shape in letters: L bits, d features, others as they come but equal in all
    arrays. None is zero, except where it has a star: every length stands in an array with numbers,
    so that a file cannot make a hasher of what it does not hold. ``<k`` are positions, int64, from
    0 to k - 1. What begins with ``?`` may be missing; ``hasher`` is a hasher inside.
    """

    n_bits: int
    verbose: int
    random_state: int | RandomState | None = None

    @memory_named()
    def fit(self, X: VectorsLike | DaskCollection, y: object = None) -> Self:  # noqa: ARG002  scikit-learn's y
        """Learn from rows.

        Parameters
        ----------
        X : real array of shape (n, d), a memory map of one, a Source, a function that yields
            blocks, a column of vectors, a data frame of numbers; a tensor of torch, which is
            computed with on its device; or a dask array or data frame, which the workers of its
            cluster pass over; finite. :func:`densehash.device` computes elsewhere
        y : ignored

        Returns
        -------
        The hasher itself. If anything is wrong, an error is raised and the hasher stays as it was.
        """
        before = self.__dict__.copy()
        try:
            for name in before:  # nothing of an earlier fit may linger
                if name.endswith("_"):
                    delattr(self, name)
            rows = rows_of(X, verbose=self._check_verbose(), device=current_device())
            if not rows.is_lazy:
                self._check_names(X, rows, reset=True)
            self.n_features_in_ = rows.n_features
            self.n_bits_ = self._check_n_bits()
            _check_enough(rows)
            rows.keep()
            self.uses_float64_ = rows.needs_float64()
            if self.uses_float64_:
                rows.dtype = np.float64
            with one_blas_thread():
                self._learn(rows, self._check_random_state())
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    @overload
    def project(self, X: VectorsLike) -> NDArray[np.float32]: ...
    @overload
    def project(self, X: DaskCollection) -> Any: ...
    @memory_named()
    def project(self, X: VectorsLike | DaskCollection) -> Any:
        """Margins of rows: how far, and on which side of its threshold, every bit lies.

        Parameters
        ----------
        X : real array of shape (n, d), a Source, a tensor, or a dask array or data frame; finite

        Returns
        -------
        float32 array of shape (n, n_bits); bit l is ``margins[:, l] >= 0``. It is a tensor on the
        same device where X is a tensor, and a dask array, not computed yet, where X is Dask's
        """
        rows = self._check_rows(X)
        if rows.is_lazy:
            return rows.lazily(
                self._float32_margins_of, self.n_bits_, np.float32, width=self._width()
            )
        margins = rows.empty((rows.n_rows, self.n_bits_), np.float32)

        def write(block: Floats, start: int) -> None:
            margins[start : start + len(block)] = rows.returned(self._float32_margins_of(block))

        rows.for_each(write, width=self._width(), label="projecting")
        return margins

    @overload
    def transform(
        self, X: VectorsLike, *, out: NDArray[np.uint8] | None = None
    ) -> NDArray[np.uint8]: ...
    @overload
    def transform(self, X: DaskCollection, *, out: None = None) -> Any: ...
    @memory_named()
    def transform(
        self, X: VectorsLike | DaskCollection, *, out: NDArray[np.uint8] | None = None
    ) -> Any:
        """Codes of rows.

        Parameters
        ----------
        X : real array of shape (n, d), a Source, a tensor, or a dask array or data frame; finite
        out : uint8 array of shape (n, ceil(n_bits / 8)) to write to, a memory map for instance;
            where X is a tensor, a tensor on the same device. None makes a new one. After an error,
            some of its rows may have been written.

        Returns
        -------
        uint8 array of shape (n, ceil(n_bits / 8)): little bit order, padding bits zero; ``out``
        if it was given. It is a tensor on the same device where X is a tensor, and a dask array,
        not computed yet, where X is Dask's
        """
        rows = self._check_rows(X)
        if rows.is_lazy:
            if out is not None:
                raise InputError("codes of a dask array are written by Dask: out must be None")
            width = bytes_for(self.n_bits_)
            return rows.lazily(self._codes_of, width, np.uint8, width=self._width())
        shape = (rows.n_rows, bytes_for(self.n_bits_))
        if out is None:
            out = rows.empty(shape, np.uint8)
        rows.check_out(out, shape)
        codes = out
        mapped = unmapped(codes)

        def write(block: Floats, start: int) -> None:
            some = codes[start : start + len(block)]
            some[...] = rows.returned(self._codes_of(block))
            if isinstance(mapped, MappedRows):  # the file has them, or will
                mapped.count(some.nbytes)

        rows.for_each(write, width=self._width(), label="hashing")
        return codes

    if TYPE_CHECKING:  # scikit-learn has it, without types

        @overload
        def fit_transform(self, X: VectorsLike, y: object = None) -> NDArray[np.uint8]: ...
        @overload
        def fit_transform(self, X: DaskCollection, y: object = None) -> Any: ...
        def fit_transform(self, X: Any, y: object = None) -> Any: ...  # noqa: D102

    def transform_blocks(
        self, X: VectorsLike
    ) -> Generator[tuple[int, NDArray[np.uint8]], None, None]:
        """Codes of rows, some at a time, for more than memory holds.

        Several threads hash, and rows of a file are read ahead of them; only the blocks under way
        are in memory. Until the last one has come, or ``close`` was called, matrix products of
        this process take one thread each.

        Parameters
        ----------
        X : real array of shape (n, d), a memory map of one, a Source, or a tensor; finite

        Yields
        ------
        (start, codes): the number of the first row, and a uint8 array (b, ceil(n_bits / 8)), or a
        tensor where X is one. Blocks come in the order of the rows; together they are what
        :meth:`transform` returns

        Examples
        --------
        >>> from densehash import LSH
        >>> X = np.random.default_rng(0).standard_normal((20_000, 2))
        >>> hasher = LSH(16, random_state=0).fit(X)
        >>> [(start, codes.shape) for start, codes in hasher.transform_blocks(X)]
        [(0, (8192, 2)), (8192, (8192, 2)), (16384, (3616, 2))]
        """
        rows = self._check_rows(X)
        if rows.is_lazy:
            raise InputError(
                "codes of a dask array are made by its workers: transform returns them in chunks"
            )

        def codes_at(block: Floats, start: int) -> tuple[int, NDArray[np.uint8]]:
            return start, rows.returned(self._codes_of(block))

        def blocks() -> Generator[tuple[int, NDArray[np.uint8]], None, None]:
            with memory_named(), closing(rows.map(codes_at, width=width, label="hashing")) as made:
                yield from made

        width = self._width()
        return blocks()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted hasher to a folder: all of it, or nothing.

        :func:`densehash.load_hasher` opens it. It is a folder of the format of an index, without
        pickle: ``docs/format.md`` has every byte.

        Parameters
        ----------
        path : a folder that is missing, empty, or holds a hasher, which is replaced

        Raises
        ------
        FileError : if the folder holds anything else, an index for instance, or cannot be written.
            Then all is as it was.

        Examples
        --------
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from densehash import LSH, load_hasher
        >>> hasher = LSH(8, random_state=0).fit([[0.0, 1.0], [1.0, 0.0]])
        >>> with TemporaryDirectory() as folder:
        ...     hasher.save(Path(folder, "model.dh"))
        ...     load_hasher(Path(folder, "model.dh"))
        LSH(n_bits=8, random_state=0)
        """
        check_is_fitted(self)
        save_hasher(self, path)

    def _codes_of_checked(self, rows: NDArray[Any]) -> NDArray[np.uint8]:
        """What :meth:`transform` returns, of rows that were checked; a few of them without delay.

        Parameters
        ----------
        rows : real array of shape (n, n_features_in_), finite, whose squares can be summed

        Returns
        -------
        uint8 array of shape (n, ceil(n_bits / 8))
        """
        if len(rows) > _FEW_ROWS:
            return self.transform(rows)
        block = as_block(rows, np.float64 if self.uses_float64_ else float_type(rows.dtype))
        widest = max(self.n_features_in_, self._width())
        small = max(len(rows), 2) * self._width() * widest <= _SMALL_PRODUCT
        with nullcontext() if small else one_blas_thread():
            return self._codes_of(block)

    def _codes_of(self, block: Floats) -> NDArray[np.uint8]:
        return pack(self._margins_of(block) >= 0)

    def _float32_margins_of(self, block: Floats) -> NDArray[np.float32]:
        found = self._margins_of(block)
        margins = as_type(found, np.float32)
        if margins is not found:
            # Rounding to float32 must not move a margin to the other side of zero.
            margins[(found < 0) & (margins == 0)] = -float(np.finfo(np.float32).smallest_subnormal)
        return margins

    def _margins_of(self, block: Floats) -> Floats:
        # A row alone goes another way through the matrix library, and may round differently than
        # among others: asked as a query, a row of the index would not find itself at distance 0.
        if len(block) == 1:
            return self._margins(module_of(block).concatenate([block, block]))[:1]
        return self._margins(block)

    @abstractmethod
    def _learn(self, rows: Rows, random_state: RandomState) -> None:
        """Set what is learnt from rows."""

    @abstractmethod
    def _margins(self, block: Floats) -> Floats:
        """Margins (m, n_bits) of a block (m, d), in the block's type."""

    def _width(self) -> int:
        """How many numbers `_margins` makes of a row; sets the size of blocks."""
        return self.n_bits_

    def _check_n_bits(self) -> int:
        return check_integer(self.n_bits, "n_bits", 1, MAX_BITS)

    def _check_verbose(self) -> bool:
        if isinstance(self.verbose, bool):  # as scikit-learn's own estimators allow
            return self.verbose
        return check_integer(self.verbose, "verbose", 0) > 0

    def _check_random_state(self) -> RandomState:
        return check_chance(self.random_state)

    def _check_rows(self, X: VectorsLike | DaskCollection) -> Rows:
        check_is_fitted(self)
        rows = rows_of(X, device=current_device())
        if rows.n_features != self.n_features_in_:
            raise InputError(
                f"X has {rows.n_features} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        if not rows.is_lazy and not callable(X):  # of blocks, scikit-learn knows nothing
            self._check_names(X, rows, reset=False)
        if self.uses_float64_:
            rows.dtype = np.float64
        return rows

    def _check_names(self, X: Any, rows: Rows, *, reset: bool) -> None:
        """Keep the names of features, or compare them; only frames have any."""
        # Record batches of older versions of Arrow have names, but no shape for scikit-learn.
        named = X if is_frame(X) and hasattr(X, "shape") else np.empty((0, rows.n_features))
        validate_data(self, named, skip_check_array=True, reset=reset)

    @property
    def _n_features_out(self) -> int:
        return bytes_for(self.n_bits_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_bits_")


class LinearHasher(Hasher):
    """A hasher whose bits are sides of planes: the margin is ``x · plane − threshold``.

    Attributes
    ----------
    planes_ : float64 array of shape (n_bits, d)
    thresholds_ : float64 array of shape (n_bits,)
    """

    learnt: ClassVar[dict[str, str]] = {"planes_": "L d", "thresholds_": "L"}

    planes_: NDArray[np.float64]
    thresholds_: NDArray[np.float64]

    def _margins(self, block: Floats) -> Floats:
        return margins(block, self.planes_, self.thresholds_)


def _check_enough(rows: Rows) -> None:
    if rows.n_rows < 2:
        raise InputError("a hasher learns from at least 2 rows, got n_samples = 1")
