"""Rows on this machine: arrays, memory maps and Sources of any real type.

A hasher needs four things: the number of rows, the number of features, a random sample, and a pass
over all rows, which maps each block to a partial answer and combines the answers. A block is always
C-contiguous, of floats, and finite. Rows that are not in memory are read while threads compute with
earlier blocks, and are not held longer than that.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray

from densehash.checks import check_integer, check_vectors
from densehash.errors import InputError
from densehash.mapped import unmapped
from densehash.parallel import map_in_order, n_threads, one_blas_thread
from densehash.progress import bar
from densehash.rows.numerics import Floats, as_type, module_of, square_sum, to_host
from densehash.source import Source

__all__ = ["Rows", "as_block", "float_type", "is_fine", "tree_reduce"]

Answer = TypeVar("Answer")

# Blocks of about a million numbers: large enough for matrix products at full speed, small enough
# that a few of them, with what is computed from them, stay in the cache. Their rows are powers of
# two, so that parts of 8,192 rows, or of 2, 4 ... times as many, are whole trees of whole blocks.
_BLOCK_NUMBERS = 1 << 20
_MOST_BLOCK_ROWS = 8192
_FEWEST_BLOCK_ROWS = 64

# Rows are computed with in float64 if their mean is this many times larger than their differences,
# or if they differ by less than this; squares of even smaller differences vanish in float64, too.
_FAR = 100
_SMALL = 1e-15
_SMALLEST = 1e-140
_N_LOOKED_AT = 256

# The sum of squares of a block must be below this: margins are float32, and products of two rows,
# or of a row and a difference of rows, must not overflow.
_MOST_SQUARES = 1e36


class Rows:
    """Rows of an array, a memory map or a Source, in blocks.

    Blocks are float64 if the rows are float64 or wide integers, and float32 otherwise. Every block
    is checked: the first row with NaN or infinity is an error.

    Parameters
    ----------
    X : real array of shape (n_rows, n_features), a Source, or anything that numpy can turn into an
        array
    verbose : whether to show a progress bar for long passes
    name : its name in errors
    first : the position of the first row, if these rows are part of more

    Attributes
    ----------
    n_rows, n_features : the shape
    dtype : float32 or float64, the type of every block; may be set

    Examples
    --------
    >>> rows = Rows(np.arange(20).reshape(10, 2))
    >>> rows.n_rows, rows.n_features
    (10, 2)
    >>> rows.map_reduce(lambda block, start: block.sum(axis=0), np.add)
    array([ 90., 100.])
    """

    n_rows: int
    n_features: int
    dtype: type[np.floating]
    _array: Any
    _checked: dict[tuple[int, int], Any]  # sums of squares, by the limits of blocks

    def __init__(
        self, X: ArrayLike | Source, *, verbose: bool = False, name: str = "X", first: int = 0
    ) -> None:
        self._array = unmapped(check_vectors(X, name))
        self._name = name
        self._verbose = verbose
        self._first = first
        self._checked = {}
        self.n_rows, self.n_features = self._array.shape
        self.dtype = float_type(self._array.dtype)

    def needs_float64(self) -> bool:
        """Whether float32 is too coarse for the differences between rows.

        It is if rows are far from zero and near to each other, or so small that their squares
        vanish. At most 256 evenly spaced rows decide.

        Examples
        --------
        >>> Rows([[1.0], [2.0]]).needs_float64(), Rows([[1e6], [1e6 + 1]]).needs_float64()
        (False, True)
        """
        positions = np.linspace(0, self.n_rows - 1, min(self.n_rows, _N_LOOKED_AT)).astype(int)
        with np.errstate(over="ignore"):
            some = as_type(self._as_block(self._pick(positions)), np.float64)
        size = float(abs(some).max())
        if not np.isfinite(size) or size == 0:
            return False  # a pass will refuse what is not finite
        xp, some = module_of(some), some / size
        center = some.mean(axis=0)
        spread = float(xp.sqrt(xp.square(some - center).sum(axis=1).mean()))
        if 0 < spread * size < _SMALLEST:
            raise InputError(
                f"{self._name} has rows that differ by some {spread * size:.3g}, too small for "
                "their squares to be told from zero: scale them up"
            )
        return bool(xp.linalg.norm(center) > _FAR * spread) or spread * size < _SMALL

    def sample(
        self,
        m: int,
        random_state: RandomState,
        function: Callable[[Floats], Floats] | None = None,
    ) -> Floats:
        """Rows drawn without replacement, in the order of their positions.

        Parameters
        ----------
        m : how many rows; at most n_rows
        random_state : generator that draws them
        function : what to keep of rows (b, d). It is called for some rows at a time, so that a
            large sample of something small needs little memory; default: the rows themselves

        Returns
        -------
        float array of shape (m, n_features), or the results of ``function``, concatenated

        Examples
        --------
        >>> rows = Rows([[0.0], [1.0], [2.0]])
        >>> rows.sample(3, np.random.RandomState(0)).ravel()
        array([0., 1., 2.])
        """
        from sklearn.utils.random import sample_without_replacement  # noqa: PLC0415  only here

        check_integer(m, "m", 1, self.n_rows)
        positions = np.sort(sample_without_replacement(self.n_rows, m, random_state=random_state))
        step = m if function is None else self._block_rows(1)
        parts = []
        for some in (positions[start : start + step] for start in range(0, m, step)):
            block = self._as_block(self._pick(some))
            if not is_fine(block):
                self.for_each(lambda *_: None, label="looking for the first bad row")
            parts.append(block if function is None else function(block))
        found: Floats = module_of(parts[0]).concatenate(parts)
        return found

    def _pick(self, positions: NDArray[np.integer]) -> NDArray[np.generic]:
        """Rows at ascending positions, as they are stored."""
        found: NDArray[np.generic] = self._array[positions]
        return found

    def _as_block(self, part: Any) -> Floats:
        """Rows as a block, as functions of a pass take it."""
        return as_block(part, self.dtype)

    def empty(self, shape: tuple[int, int], dtype: type[np.generic]) -> Any:
        """An empty array for results, in the same place as the rows.

        Examples
        --------
        >>> Rows([[1.0]]).empty((1, 3), np.uint8).shape
        (1, 3)
        """
        return np.empty(shape, dtype)

    def keep(self) -> None:
        """Announce several passes, so that rows that are slow to read may be kept for them.

        Examples
        --------
        >>> Rows([[1.0]]).keep()
        """

    def returned(self, values: Any) -> Any:
        """The result for a block, in the form that the caller of a hasher gets.

        Examples
        --------
        >>> Rows([[1.0]]).returned(np.ones(2))
        array([1., 1.])
        """
        return values

    def check_out(self, out: Any, shape: tuple[int, int]) -> None:
        """Refuse an ``out`` that cannot hold codes of these rows, of this shape.

        Examples
        --------
        >>> Rows([[1.0]]).check_out(np.empty((1, 8), np.uint8), (1, 8))
        """
        if not isinstance(out, np.ndarray) or out.dtype != np.uint8 or out.shape != shape:
            came = (
                f"dtype {out.dtype} and shape {out.shape}"
                if isinstance(out, np.ndarray)
                else f"a {type(out).__name__}"
            )
            raise InputError(f"out must be a uint8 array of shape {shape}, got {came}")
        if not out.flags.writeable:
            raise InputError("out must be writeable, got a read-only array")

    def map_reduce(
        self,
        function: Callable[[Floats, int], Answer],
        combine: Callable[[Answer, Answer], Answer],
        *,
        width: int = 1,
        label: str = "reading rows",
    ) -> Answer:
        """One pass over all rows by several threads; their number does not change the answer.

        Parameters
        ----------
        function : called with a block (b, n_features) and the position of its first row;
            returns a partial answer
        combine : combines two neighbouring partial answers into one, and may change the first. The
            order is that of :func:`tree_reduce`
        width : how many numbers ``function`` computes for a row; the more, the shorter the blocks
        label : the text of the progress bar

        Examples
        --------
        >>> rows = Rows(np.ones((100_000, 3), dtype=np.float32))
        >>> rows.map_reduce(lambda block, start: len(block), lambda one, two: one + two)
        100000
        """
        return self.reduced(function, combine, width, n_threads(), label)

    def reduced(
        self,
        function: Callable[[Floats, int], Answer],
        combine: Callable[[Answer, Answer], Answer],
        width: int,
        threads: int,
        label: str = "",
    ) -> Answer:
        """What :meth:`map_reduce` returns, computed by this many threads.

        Examples
        --------
        >>> rows = Rows([[1.0], [2.0]])
        >>> float(rows.reduced(lambda block, start: block.sum(), np.add, 1, threads=1))
        3.0
        """
        parts = self._parts(self._block_rows(width))
        limits = list(itertools.chain.from_iterable(parts))
        with closing(self._map(function, limits, threads, label)) as answers:
            # Each part by itself first, as a worker of a cluster combines its own part.
            trees = (tree_reduce(itertools.islice(answers, len(part)), combine) for part in parts)
            return tree_reduce(trees, combine)

    def for_each(
        self, function: Callable[[Floats, int], object], *, width: int = 1, label: str = "reading"
    ) -> None:
        """One pass over all rows, for the effects of ``function``; its results are not kept."""
        for _ in self.map(function, width=width, label=label):
            pass

    def map(
        self,
        function: Callable[[Floats, int], Answer],
        *,
        width: int = 1,
        threads: int | None = None,
        label: str = "reading",
    ) -> Generator[Answer, None, None]:
        """The results of ``function`` for each block, in the order of blocks, as they come.

        Examples
        --------
        >>> list(Rows(np.ones((10_000, 2))).map(lambda block, start: (start, len(block))))
        [(0, 8192), (8192, 1808)]
        """
        limits = list(itertools.chain.from_iterable(self._parts(self._block_rows(width))))
        return self._map(function, limits, threads or n_threads(), label)

    is_lazy: ClassVar[bool] = False
    """Whether rows are elsewhere, and what is computed from them stays there."""

    def lazily(
        self,
        function: Callable[[Floats], NDArray[Any]],  # noqa: ARG002
        n_columns: int,  # noqa: ARG002
        dtype: type[np.generic],  # noqa: ARG002
        *,
        width: int,  # noqa: ARG002
    ) -> Any:
        """Results that are computed later; only for rows that are elsewhere."""
        raise TypeError("rows of this machine are computed with at once")

    def _parts(self, step: int) -> list[list[tuple[int, int]]]:
        """Where blocks begin and end, for each part of the rows; no block crosses two parts."""
        ends = list(itertools.accumulate(getattr(self._array, "chunks", None) or (self.n_rows,)))
        return [
            [(at, min(at + step, end)) for at in range(start, end, step)]
            for start, end in itertools.pairwise([0, *ends])
            if start < end
        ]

    def _map(
        self,
        function: Callable[[Floats, int], Answer],
        limits: Sequence[tuple[int, int]],
        threads: int,
        label: str,
    ) -> Generator[Answer, None, None]:
        # This thread reads blocks in order while others compute with earlier blocks.
        ahead = not isinstance(self._array, np.ndarray) and len(limits) > 1
        raw = ((each, self._read(each)) for each in limits)

        def answer_of(item: tuple[tuple[int, int], Any]) -> tuple[int, Answer]:
            (start, stop), part = item
            return stop - start, self._apply(function, (start, stop), part)

        work = map_in_order(answer_of, raw, min(threads, len(limits)), ahead=ahead)
        with (
            one_blas_thread(),
            bar(label, self.n_rows, shown=self._verbose) as advance,
            closing(work) as answers,  # otherwise threads could outlive an error in `combine`
        ):
            for n_done, answer in answers:
                advance(n_done)
                yield answer

    def _read(self, limits: tuple[int, int]) -> Any:
        """Rows as they are stored."""
        return self._array[slice(*limits)]

    def _block_rows(self, width: int) -> int:
        fitting = max(_BLOCK_NUMBERS // max(self.n_features, width), 1)
        power = 1 << (fitting.bit_length() - 1)
        return min(max(power, _FEWEST_BLOCK_ROWS), _MOST_BLOCK_ROWS)

    def _apply(
        self,
        function: Callable[[Floats, int], Answer],
        limits: tuple[int, int],
        part: Any,
    ) -> Answer:
        start = self._first + limits[0]
        block = self._as_block(part)
        # Once is enough: rows do not change during a fit.
        if limits not in self._checked:
            self._checked[limits] = self._check(square_sum(block), block, start)
        return function(block, start)

    def _check(self, squares: float, block: Floats, start: int) -> float:
        """The sum of squares of a block; an error if it is too large or NaN."""
        if not squares < _MOST_SQUARES:  # also true for NaN
            self._refuse(block, start)
        return squares

    def squares_of(self, block: Floats, start: int) -> float:
        """The sum of all squares of a block during a pass, known from its check.

        Examples
        --------
        >>> rows = Rows([[1.0, 2.0]])
        >>> rows.map_reduce(rows.squares_of, np.add)
        5.0
        """
        begin = start - self._first
        known = self._checked.get((begin, begin + len(block)))
        return square_sum(block) if known is None else float(known)

    def _refuse(self, block: Floats, start: int) -> NoReturn:
        bad_rows = to_host((~module_of(block).isfinite(block)).any(axis=1))
        if not bad_rows.any():
            raise InputError(
                f"{self._name} has numbers up to {float(abs(block).max()):.3g}, too large for "
                "their squares to be summed: scale them down"
            )
        row = int(bad_rows.argmax())
        numbers = to_host(block[row])
        column = int((~np.isfinite(numbers)).argmax())
        raise InputError(
            f"{self._name} must be finite, got "
            f"{'NaN' if np.isnan(numbers[column]) else 'infinity'} "
            f"in row {start + row}, column {column}"
        )


def tree_reduce(answers: Iterator[Answer], combine: Callable[[Answer, Answer], Answer]) -> Answer:
    """Combine answers in a fixed tree: two neighbours into one, then two of those, and so on.

    The tree depends only on the order of the answers, so that a cluster whose workers combine their
    own blocks gets the same bytes as one machine. Sums over a tree also have less rounding error.

    Examples
    --------
    >>> tree_reduce(iter(range(100)), lambda one, two: one + two)
    4950
    """
    levels: list[list[Answer]] = []  # at each depth, the tree that waits for its neighbour
    for answer in answers:
        tree, depth = answer, 0
        while depth < len(levels) and levels[depth]:
            tree, depth = combine(levels[depth].pop(), tree), depth + 1
        if depth == len(levels):
            levels.append([])
        levels[depth].append(tree)
    # The trees that are left over: each is the last neighbour for the depth above.
    left = [level[0] for level in levels if level]
    whole = left[0]
    for earlier in left[1:]:
        whole = combine(earlier, whole)
    return whole


def as_block(part: NDArray[np.generic], dtype: type[np.floating]) -> Floats:
    """Rows in the type and layout for computing.

    Examples
    --------
    >>> as_block(np.array([[1, 2]], np.uint8), np.float32)
    array([[1., 2.]], dtype=float32)
    """
    with np.errstate(over="ignore"):  # a too large float128 becomes infinite, refused later
        return np.ascontiguousarray(part, dtype=dtype)


def is_fine(block: Floats) -> bool:
    """Whether all numbers are finite, and no sum of squares or products will overflow.

    Examples
    --------
    >>> is_fine(np.array([[1.0, np.nan]]))
    False
    """
    # One sum, as fast as memory is read. NaN is not less than any number.
    return square_sum(block) < _MOST_SQUARES


def float_type(dtype: np.dtype[np.generic]) -> type[np.floating]:
    """float32 if it holds every value of the type, otherwise float64.

    Examples
    --------
    >>> float_type(np.dtype(np.uint8)).__name__, float_type(np.dtype(np.int64)).__name__
    ('float32', 'float64')
    """
    small = dtype.itemsize <= 2 or (dtype.kind == "f" and dtype.itemsize == 4)
    return np.float32 if small else np.float64
