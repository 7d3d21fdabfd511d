"""Groups of near rows: k-means of a sample, begun in two levels.

First come a few coarse groups, then finer groups inside each, which takes a tenth of the time of
k-means from random rows. Then all centres move together; with this, searches visit a tenth to a
fifth fewer rows for the same recall. Rows are compared with centres in whole numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash import _native
from densehash.columns import is_tensor
from densehash.index.lengths import of_length
from densehash.kmeans import lloyd, nearest_center, random_centers
from densehash.parallel import n_threads
from densehash.rows import Floats, Rows, rows_of
from densehash.rows.numerics import as_type, column_sums, like, module_of, to_host

__all__ = ["Centers", "lengthened", "n_groups_for", "n_small_groups_for"]

_SAMPLE = 50  # rows to learn from, for each group
_PASSES = 2  # of k-means in each level
_ROUNDS = 3  # of k-means with all groups together
_FEWEST_IN_LEVELS = 256  # fewer groups are made in one level
# For products, groups are ordered between the order of products with their centres (0), which comes
# too late to groups of rows that differ much, and of distances to them (1), which comes too early.
_BETWEEN = np.float32(0.5)
_SCORES = 2**28  # pairs of a row and a group that a device compares at a time


def n_groups_for(n_rows: int) -> int:
    """How many groups suit so many rows: a power of two near 1.3 times their square root.

    Examples
    --------
    >>> n_groups_for(600_000), n_groups_for(1000)
    (1024, 32)
    """
    return 1 << round(math.log2(max(1.3 * math.sqrt(n_rows), 1)))


def n_small_groups_for(n_rows: int) -> int:
    """How many groups suit so many rows if it costs little to find the nearest groups.

    Examples
    --------
    >>> n_small_groups_for(600_000), n_small_groups_for(2)
    (1549, 2)
    """
    return min(round(2 * math.sqrt(n_rows)), max(n_rows // 4, 2), n_rows)


class Centers:
    """Centres of groups; finds the nearest group of a row.

    Parameters
    ----------
    centers : float32 (g, d), relative to ``shift``
    shift : float64 (d,), subtracted from rows: rows far from zero would lose their differences in
        float32
    longest : if queries look for large products, the length of all rows after one more feature, the
        last of d, was added. Then the rows with the largest products are the nearest to a query of
        this length: S. Bachrach et al., Speeding up the Xbox recommender system, RecSys 2014.
        None (default): queries look for near rows.
    """

    def __init__(
        self,
        centers: NDArray[np.float32],
        shift: NDArray[np.float64],
        longest: float | None = None,
    ) -> None:
        self.centers, self.shift, self.longest = centers, shift, longest
        self._half_squares = 0.5 * np.einsum("ij,ij->i", centers, centers)
        self._native: _native.Centers | None = None  # made when it is first needed

    def __len__(self) -> int:
        return len(self.centers)

    @classmethod
    def learn(
        cls, rows: Rows, n_groups: int, random_state: RandomState, *, for_products: bool = False
    ) -> Centers:
        """Centres of at most ``n_groups`` groups of rows; see ``longest`` for ``for_products``.

        Examples
        --------
        >>> rows = Rows([[0.0], [1.0], [10.0], [11.0]])
        >>> centers = Centers.learn(rows, 2, RandomState(0))
        >>> np.sort((centers.centers + centers.shift).ravel())
        array([ 0.5, 10.5])
        """
        sample = rows.sample(min(rows.n_rows, _SAMPLE * n_groups), random_state)
        longest = None
        if for_products:
            squares = module_of(sample).einsum("ij,ij->i", sample, sample)
            longest = math.sqrt(float(squares.max())) or 1.0
            sample = lengthened(sample, longest)
        shift = column_sums(sample) / len(sample)
        sample -= like(shift, sample)  # in place: it is large
        vectors = as_type(sample, np.float32)
        del sample
        centers = _start(vectors, n_groups, random_state)
        if is_tensor(vectors):
            centers = lloyd(rows_of(vectors), centers, _ROUNDS).centers.astype(np.float32)
        else:
            for _ in range(_ROUNDS):
                centers = _moved(centers, vectors)
        return cls(centers, shift, longest)

    def __reduce__(self) -> tuple[Any, ...]:
        return Centers, (self.centers, self.shift, self.longest)

    def labels(self, rows: Rows) -> NDArray[np.integer]:
        """The group of every row, nearly always the nearest.

        Returns
        -------
        uint16 or uint32 array (n,)
        """
        blocks = rows.map(lambda block, _: self.nearest(block))
        return np.concatenate(list(blocks))

    def nearest(self, block: Floats) -> NDArray[np.integer]:
        """The group of every row of a block, nearly always the nearest.

        Returns
        -------
        uint16 or uint32 array (b,)
        """
        return self._nearest(self._relative(block)).astype(self.label_type)

    @property
    def label_type(self) -> type[np.unsignedinteger[Any]]:
        """The smallest type for the number of a group: numpy sorts 16 bits fastest."""
        return np.uint16 if len(self) <= 2**16 else np.uint32

    def scores(self, queries: NDArray[Any], metric: str) -> NDArray[np.float32]:
        """How near each group is to each query: the larger, the nearer.

        Parameters
        ----------
        queries : real array (q, d)
        metric : "l2", "cosine" or "ip"

        Returns
        -------
        float32 (q, g)
        """
        if metric == "l2":
            floats = queries if queries.dtype.kind == "f" else queries.astype(np.float32)
            scores = _product(self._relative(floats), self.centers)
            scores -= self._half_squares
            return scores
        if metric == "ip" and self.longest is not None:
            whole = (self.centers + self.shift).astype(np.float32)
            scores = _product(of_length(queries.astype(np.float32), self.longest), whole[:, :-1])
            scores -= _BETWEEN * 0.5 * np.einsum("ij,ij->i", whole, whole)
            return scores
        asked = queries.astype(np.float32)
        if metric == "ip":  # the shift adds the same to all scores of a query
            return _product(asked, self.centers)
        whole = (self.centers + self.shift).astype(np.float32)[:, : asked.shape[1]]
        lengths = np.sqrt(np.einsum("ij,ij->i", whole, whole))
        return _product(asked, whole / np.maximum(lengths, np.finfo(np.float32).tiny)[:, None])

    def _relative(self, block: Floats) -> NDArray[np.float32]:
        if self.longest is not None:
            block = lengthened(block, self.longest)
        relative: NDArray[np.float32] = as_type(block - like(self.shift, block), np.float32)
        return relative

    def _nearest(self, block: NDArray[np.float32]) -> NDArray[np.integer]:
        if is_tensor(block):
            step = max(_SCORES // len(self), 1)
            parts = (block[at : at + step] for at in range(0, len(block), step))
            return np.concatenate([to_host(nearest_center(part, self.centers)) for part in parts])
        if self._native is None:
            self._native = _native.Centers(self.centers)
        return self._native.nearest(np.ascontiguousarray(block), 1)


def lengthened(rows: Floats, longest: float) -> Floats:
    """Rows with one more feature, which gives them the length ``longest``; 0 for longer rows.

    Examples
    --------
    >>> lengthened(np.array([[3.0], [5.0], [6.0]]), 5.0)
    array([[3., 4.],
           [5., 0.],
           [6., 0.]])
    """
    module = module_of(rows)
    squares = module.einsum("ij,ij->i", rows, rows)
    more = like(module.sqrt((longest**2 - squares).clip(0)), rows)
    longer: Floats = module.column_stack([rows, more])
    return longer


def _start(
    vectors: NDArray[np.float32], n_groups: int, random_state: RandomState
) -> NDArray[np.float32]:
    """Centres to begin with: of coarse groups if there are few, or of finer groups inside them."""
    rows = rows_of(vectors)
    n_coarse = n_groups if n_groups < _FEWEST_IN_LEVELS else round(math.sqrt(n_groups))
    start = random_centers(rows, n_coarse, random_state, "groups")
    coarse = lloyd(rows, start, _PASSES).centers.astype(np.float32)
    if n_coarse == n_groups:
        return coarse
    labels: NDArray[np.integer] = (
        nearest_center(vectors, coarse)
        if is_tensor(vectors)
        else _native.Centers(coarse).nearest(vectors, n_threads())
    )
    fine = []
    for group in range(len(coarse)):
        inside = vectors[labels == group]
        k = min(max(round(n_groups * len(inside) / len(vectors)), 1), len(inside))
        if k:
            part = rows_of(inside)
            fine.append(
                lloyd(part, random_centers(part, k, random_state, "groups"), _PASSES).centers
            )
    return np.concatenate(fine).astype(np.float32)


def _moved(centers: NDArray[np.float32], rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each centre moved to the mean of the rows nearest to it; without such rows, it stays."""
    import scipy.sparse  # noqa: PLC0415  only learning needs it

    labels = _native.Centers(centers).nearest(rows, n_threads())
    counts = np.bincount(labels, minlength=len(centers))
    members = scipy.sparse.csc_array(
        (np.ones(len(rows), np.float32), labels, np.arange(len(rows) + 1)),
        shape=(len(centers), len(rows)),
    )
    means = (members @ rows) / np.maximum(counts, 1)[:, np.newaxis]
    return np.where(counts[:, np.newaxis] > 0, means, centers).astype(np.float32)


def _product(queries: NDArray[np.float32], centers: NDArray[np.float32]) -> NDArray[np.float32]:
    if len(queries) == 1:  # BLAS sums a single row in another order, which rounds differently
        return _product(np.repeat(queries, 2, axis=0), centers)[:1]
    scores: NDArray[np.float32] = queries @ centers.T
    return scores
