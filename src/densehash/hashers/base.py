"""What every hasher must do.

A hasher is a scikit-learn transformer. With every method, a bit is the sign of a margin. So a
method defines only two things: how it learns from rows, and the margins of a block of rows.
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

# This many rows always fit into one block of `transform`.
_FEW_ROWS = 64
# BLAS uses one thread for a matrix product of at most this many multiplications, however many
# threads it may use.
_SMALL_PRODUCT = 1 << 18


class Hasher(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """What all hashers share: ``fit``, ``project``, ``transform``.

    To write a method, derive a class from this one: store the arguments in ``__init__``, list in
    ``learnt`` what it learns, and define ``_learn`` and ``_margins``.

    Attributes
    ----------
    n_bits_ : how many bits a code has
    n_features_in_ : how many features rows have
    uses_float64_ : True if the rows lie so far from zero, or are so small, that float32 would
        lose their differences. The hasher then computes in float64, whatever the type of the rows.
    """

    learnt: ClassVar[dict[str, str]]
    """What the hasher learns: the form of each attribute, by name.

    Files of hashers are written, read and checked by these forms:

    - A number has its type; ``int k`` is an integer from 1 to k.
    - An array has its type, float64 by default, then its shape in letters: L bits, d features.
      Other letters are lengths that the arrays decide; the same letter means the same length in all
      arrays.
    - A length is at least 1, unless it has a star. So a file must hold the numbers for every length
      that it names, and a small file cannot ask for a large hasher.
    - ``<k`` is the type of positions: int64, from 0 to k - 1.
    - An attribute whose form begins with ``?`` may be missing.
    - ``hasher`` is another hasher, inside this one.
    """

    n_bits: int
    verbose: int
    random_state: int | RandomState | None = None

    @memory_named()
    def fit(self, X: VectorsLike | DaskCollection, y: object = None) -> Self:  # noqa: ARG002  scikit-learn's y
        """Learn from rows.

        Parameters
        ----------
        X : rows of d features, n of them, all finite. A real array of shape (n, d), a memory map of
            one, a Source, a function that yields blocks, a column of vectors, a data frame of
            numbers; a tensor of torch, which stays on its device; or a dask array or data frame,
            which the workers of its cluster read. :func:`densehash.device` chooses another device.
        y : ignored

        Returns
        -------
        The hasher itself. After an error, the hasher is as it was before the call.
        """
        before = self.__dict__.copy()
        try:
            for name in before:  # forget an earlier fit
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
        """Margins of rows: for every bit, how far a row lies from its threshold, and on which side.

        Parameters
        ----------
        X : real array of shape (n, d), a Source, a tensor, or a dask array or data frame; finite

        Returns
        -------
        float32 array of shape (n, n_bits); bit l is ``margins[:, l] >= 0``. If X is a tensor, a
        tensor on the same device; if X is a dask array or data frame, a dask array that is not
        computed yet
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
        out : uint8 array of shape (n, ceil(n_bits / 8)) to write to, a memory map for instance; if
            X is a tensor, a tensor on the same device. Default: a new array. After an error, some
            rows of ``out`` may already be written.

        Returns
        -------
        uint8 array of shape (n, ceil(n_bits / 8)), in little bit order, with padding bits zero;
        this is ``out`` if you give it. If X is a tensor, a tensor on the same device; if X is a
        dask array or data frame, a dask array that is not computed yet
        """
        rows = self._check_rows(X)
        if rows.is_lazy:
            if out is not None:
                raise InputError("Dask writes the codes of a dask array: out must be None")
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
            if isinstance(mapped, MappedRows):  # its pages may leave memory
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
        """Codes of rows, one block after another, for more rows than fit into memory.

        Several threads hash, and rows of a file are read ahead. Only the blocks that the threads
        work on are in memory. Until you have taken the last block or called ``close``, every matrix
        product of this process uses one thread.

        Parameters
        ----------
        X : real array of shape (n, d), a memory map of one, a Source, or a tensor; finite

        Yields
        ------
        (start, codes): the number of the block's first row, and a uint8 array of shape
        (b, ceil(n_bits / 8)), which is a tensor if X is one. Blocks come in the order of the rows;
        together they are what :meth:`transform` returns

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
                "the workers of Dask make the codes of a dask array: call transform, which returns "
                "a dask array of codes"
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

        :func:`densehash.load_hasher` opens the folder. It has the same format as the folder of an
        index and contains no pickle; ``docs/format.md`` describes every byte.

        Parameters
        ----------
        path : a folder that does not exist yet, or is empty, or holds a hasher, which is replaced

        Raises
        ------
        FileError : if the folder holds anything else, an index for instance, or cannot be written.
            The folder is then as it was before the call.

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
        """The codes that :meth:`transform` returns, for rows that were checked before.

        A few rows take a shorter way, without threads.

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
        # The matrix library computes a single row by another function, which may round differently:
        # a row of the index, as the only query, would then not find itself at distance 0.
        if len(block) == 1:
            return self._margins(module_of(block).concatenate([block, block]))[:1]
        return self._margins(block)

    @abstractmethod
    def _learn(self, rows: Rows, random_state: RandomState) -> None:
        """Learn from rows, and set the attributes that ``learnt`` lists."""

    @abstractmethod
    def _margins(self, block: Floats) -> Floats:
        """Margins (m, n_bits) of a block (m, d), in the block's type."""

    def _width(self) -> int:
        """How many numbers `_margins` computes for a row; this decides the size of blocks."""
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
        # Without names there is nothing to compare, and looking takes longer than hashing a row.
        named = is_frame(X) or hasattr(self, "feature_names_in_")
        if named and not rows.is_lazy and not callable(X):  # scikit-learn does not know blocks
            self._check_names(X, rows, reset=False)
        if self.uses_float64_:
            rows.dtype = np.float64
        return rows

    def _check_names(self, X: Any, rows: Rows, *, reset: bool) -> None:
        """Keep the names of features, or compare them; only data frames have names."""
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
    """A hasher whose bits say on which side of a plane a row lies.

    The margin is ``x · plane − threshold``.

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
