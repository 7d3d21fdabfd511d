"""Rows in blocks: all that learning sees of its data.

A hasher asks for four things: how many rows and features there are, a random sample, and a pass
over all rows, each block mapped to a partial answer and the answers combined. Arrays and memory
maps of any real type are read here; a block is always C-contiguous, of floats, and finite.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from typing import NoReturn, TypeVar

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.random import sample_without_replacement

from densehash.checks import check_integer, check_vectors
from densehash.errors import InputError
from densehash.parallel import map_in_order, n_threads, one_blas_thread
from densehash.progress import bar
from densehash.source import Source

__all__ = ["Rows", "tree_reduce"]

Answer = TypeVar("Answer")
Floats = NDArray[np.floating]

# Blocks of about a million numbers: large enough for matrix products at full speed, small enough
# that a few of them, with what is made from them, stay in the cache.
_BLOCK_NUMBERS = 1 << 20
_MOST_BLOCK_ROWS = 8192
_FEWEST_BLOCK_ROWS = 64
_FAN_IN = 16

# Rows whose mean is so many times as long as they differ, or that differ by less than so much, are
# computed with in float64; squares of what differs by even less would vanish there, too.
_FAR = 100
_SMALL = 1e-15
_SMALLEST = 1e-140
_N_LOOKED_AT = 256

# Sums of squares of a block stay below this: margins are float32, and products of two rows, or of
# a row and a difference of rows, must fit into one.
_MOST_SQUARES = 1e36


class Rows:
    """Rows of an array or a memory map, in blocks.

    Blocks are float64 where the rows are float64 or wide integers, and float32 otherwise. Every
    block that is read has been checked: the first row with a NaN or an infinity is an error.

    Parameters
    ----------
    X : real array of shape (n_rows, n_features), a Source, or what numpy makes an array of
    verbose : whether passes that take long show a bar
    name : what errors call it

    Attributes
    ----------
    n_rows, n_features : the shape
    dtype : float32 or float64, that of every block; may be set

    Examples
    --------
    >>> rows = Rows(np.arange(20).reshape(10, 2))
    >>> rows.n_rows, rows.n_features
    (10, 2)
    >>> rows.map_reduce(lambda block, start: block.sum(axis=0), np.add)
    array([ 90., 100.])
    """

    def __init__(self, X: ArrayLike | Source, *, verbose: bool = False, name: str = "X") -> None:
        self._array = check_vectors(X, name)
        self._name = name
        self._verbose = verbose
        self._checked: set[tuple[int, int]] = set()
        self.n_rows: int = self._array.shape[0]
        self.n_features: int = self._array.shape[1]
        self.dtype: type[np.floating] = _float_type(self._array.dtype)

    def needs_float64(self) -> bool:
        """Whether float32 would blur the differences between rows.

        So it is where rows lie far from zero and near to each other, or where they are so small
        that their squares vanish. This is judged by at most 256 of them, evenly spaced.

        Examples
        --------
        >>> Rows([[1.0], [2.0]]).needs_float64(), Rows([[1e6], [1e6 + 1]]).needs_float64()
        (False, True)
        """
        positions = np.linspace(0, self.n_rows - 1, min(self.n_rows, _N_LOOKED_AT)).astype(int)
        with np.errstate(over="ignore"):
            some = self._array[positions].astype(np.float64)
        size = float(np.abs(some).max())
        if not np.isfinite(size) or size == 0:
            return False  # a pass will name what is not finite
        some /= size
        center = some.mean(axis=0)
        spread = float(np.sqrt(np.square(some - center).sum(axis=1).mean()))
        if 0 < spread * size < _SMALLEST:
            raise InputError(
                f"{self._name} has rows that differ by some {spread * size:.3g}, too small for "
                "their squares to be told from zero: scale them up"
            )
        return bool(np.linalg.norm(center) > _FAR * spread) or spread * size < _SMALL

    def sample(
        self,
        m: int,
        random_state: RandomState,
        function: Callable[[Floats], Floats] | None = None,
    ) -> Floats:
        """Rows drawn without replacement, in the order of their positions.

        Parameters
        ----------
        m : how many; at most n_rows
        random_state : draws them
        function : what to keep of rows (b, d): called for some of them at a time, so that a
            large sample of something small needs little memory; None keeps the rows

        Returns
        -------
        float array of shape (m, n_features), or what ``function`` returned, one below the other

        Examples
        --------
        >>> rows = Rows([[0.0], [1.0], [2.0]])
        >>> rows.sample(3, np.random.RandomState(0)).ravel()
        array([0., 1., 2.])
        """
        check_integer(m, "m", 1, self.n_rows)
        positions = np.sort(sample_without_replacement(self.n_rows, m, random_state=random_state))
        step = m if function is None else self._block_rows(1)
        parts = []
        for start in range(0, m, step):
            some = positions[start : start + step]
            block = self._as_block(self._array[some])
            if not _is_fine(block):
                self.for_each(lambda *_: None, label="looking for the first bad row")
            parts.append(block if function is None else function(block))
        return np.concatenate(parts)

    def map_reduce(
        self,
        function: Callable[[Floats, int], Answer],
        combine: Callable[[Answer, Answer], Answer],
        *,
        width: int = 1,
        label: str = "reading rows",
    ) -> Answer:
        """One pass over all rows, by several threads; the answer does not depend on how many.

        Parameters
        ----------
        function : called with a block (b, n_features) and the position of its first row;
            returns a partial answer
        combine : makes one partial answer of two neighbouring ones; it may change the first. The
            order is that of :func:`tree_reduce`
        width : how many numbers ``function`` makes of a row; wide ones make blocks shorter
        label : what the bar says

        Examples
        --------
        >>> rows = Rows(np.ones((100_000, 3), dtype=np.float32))
        >>> rows.map_reduce(lambda block, start: len(block), lambda one, two: one + two)
        100000
        """
        with closing(self._map(function, width, label)) as answers:
            return tree_reduce(answers, combine)

    def for_each(
        self, function: Callable[[Floats, int], object], *, width: int = 1, label: str = "reading"
    ) -> None:
        """One pass over all rows for what ``function`` does, not for what it returns.

        Examples
        --------
        >>> squares = np.empty((4, 2))
        >>> def square(block, start):
        ...     squares[start : start + len(block)] = block**2
        >>> Rows(np.arange(8).reshape(4, 2)).for_each(square)
        >>> squares[3]
        array([36., 49.])
        """
        with closing(self._map(function, width, label)) as answers:
            for _ in answers:
                pass

    def _map(
        self, function: Callable[[Floats, int], Answer], width: int, label: str
    ) -> Generator[Answer, None, None]:
        step = self._block_rows(width)
        limits = [(start, min(start + step, self.n_rows)) for start in range(0, self.n_rows, step)]
        threads = min(n_threads(), len(limits))
        work = map_in_order(partial(self._apply, function), limits, threads)
        with (
            one_blas_thread(),
            bar(label, self.n_rows, shown=self._verbose) as advance,
            closing(work) as answers,  # or threads could outlive an error in `combine`
        ):
            for (start, stop), answer in zip(limits, answers, strict=True):
                advance(stop - start)
                yield answer

    def _block_rows(self, width: int) -> int:
        fitting = _BLOCK_NUMBERS // max(self.n_features, width)
        return min(max(fitting, _FEWEST_BLOCK_ROWS), _MOST_BLOCK_ROWS)

    def _apply(self, function: Callable[[Floats, int], Answer], limits: tuple[int, int]) -> Answer:
        start, stop = limits
        block = self._as_block(self._array[start:stop])
        # Once is enough: rows do not change during a fit.
        if limits not in self._checked:
            if not _is_fine(block):
                self._refuse(block, start)
            self._checked.add(limits)
        return function(block, start)

    def _as_block(self, part: NDArray[np.generic]) -> Floats:
        with np.errstate(over="ignore"):  # a float128 too large is infinite, and then refused
            return np.ascontiguousarray(part, dtype=self.dtype)

    def _refuse(self, block: Floats, start: int) -> NoReturn:
        bad = ~np.isfinite(block)
        if not bad.any():
            raise InputError(
                f"{self._name} has numbers up to {np.abs(block).max():.3g}, too large for their "
                "squares to be summed: scale them down"
            )
        row = int(bad.any(axis=1).argmax())
        column = int(bad[row].argmax())
        raise InputError(
            f"{self._name} must be finite, got "
            f"{'NaN' if np.isnan(block[row, column]) else 'infinity'} "
            f"in row {start + row}, column {column}"
        )


def tree_reduce(answers: Iterator[Answer], combine: Callable[[Answer, Answer], Answer]) -> Answer:
    """Combine answers in a fixed tree: sixteen neighbours into one, then sixteen of those, and on.

    Only the order of the answers decides the tree, so that a cluster whose workers combine their
    own blocks gets the same bytes as one machine. Sums over a tree also round less.

    Examples
    --------
    >>> tree_reduce(iter(range(100)), lambda one, two: one + two)
    4950
    """
    # At each depth: how many of its trees were combined so far, and into what.
    levels: list[tuple[int, Answer] | None] = []
    for answer in answers:
        tree = answer
        for depth in itertools.count():
            if depth == len(levels):
                levels.append(None)
            begun = levels[depth]
            count, tree = (1, tree) if begun is None else (begun[0] + 1, combine(begun[1], tree))
            if count < _FAN_IN:
                levels[depth] = count, tree
                break
            levels[depth] = None  # full: the tree is one of the depth above
    # What is left over: each is the last of the depth above.
    left = [level[1] for level in levels if level is not None]
    whole = left[0]
    for earlier in left[1:]:
        whole = combine(earlier, whole)
    return whole


def _is_fine(block: Floats) -> bool:
    """Whether all numbers are finite, and no sum of squares or products will overflow."""
    flat = block.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        # One sum at the speed of memory. NaN is not below anything.
        return bool(np.dot(flat, flat) < _MOST_SQUARES)


def _float_type(dtype: np.dtype[np.generic]) -> type[np.floating]:
    """float32 where it holds every value of the type, or the type is float32."""
    small = dtype.itemsize <= 2 or (dtype.kind == "f" and dtype.itemsize == 4)
    return np.float32 if small else np.float64
