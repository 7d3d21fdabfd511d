"""DSH: density sensitive hashing.

Y. Lin, D. Cai, C. Li, Density sensitive hashing, arXiv 1205.2930; Z. Jin, C. Li, Y. Lin, D. Cai,
IEEE Transactions on Cybernetics 44(8), 2014. Equations and steps are those of the former.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray

from densehash.checks import check_choice, check_integer, check_positive
from densehash.errors import InputError
from densehash.hashers.base import LinearHasher
from densehash.hashers.contrast import greedy_contrast, sample_pairs
from densehash.kmeans import Groups, lloyd, random_centers
from densehash.rows import Floats, Rows
from densehash.rows.numerics import like, to_host

__all__ = ["DSH", "Planes", "adjacent_pairs", "binary_entropy", "median_planes"]

_GROUPS_AT_ONCE = 512
_PAIR_NUMBERS = 1 << 16


class DSH(LinearHasher):
    """The most balanced planes midway between neighbouring groups of rows (Algorithm 1).

    K-means finds groups of rows. Each pair of adjacent groups gives a plane, midway between the
    two centres. The hasher keeps the planes that split the data most evenly.

    Parameters
    ----------
    n_bits : L, bits of a code, 1 to 4096, default 64
    alpha : groups for each bit, default 1.5; there are round(alpha L) groups, at least 2
    p : passes of k-means, default 3
    r : two groups are adjacent if one is among the r nearest of the other; default 3, and at most
        the number of groups minus one
    init : "random" (default) starts k-means from random rows; or an array of shape (k, d) of first
        centres
    entropy : "centers" (default) puts a whole group on the side of the plane on which its centre
        lies (eq. 13, 14); "rows" counts the rows on each side, in one more pass (eq. 12)
    select : "entropy" (default) keeps the planes of the highest entropy, as the paper does;
        "contrast" adds planes one by one so that near rows agree and random ones do not, and so
        leaves out planes that repeat others
    random_state : seed or generator that draws the first centres, and the pairs of
        ``select="contrast"``
    verbose : 1 shows a progress bar during a long fit

    Attributes
    ----------
    planes_ : float64 array of shape (L, d), the differences of two centres (eq. 9, 10)
    thresholds_ : float64 array of shape (L,)
    centers_ : float64 array of shape (k, d); k is less than alpha L if fewer rows are different
    weights_ : float64 array of shape (k,), each group's share of the rows (eq. 13)
    inertia_ : float64 array of shape (p,), the sum of squared errors after each pass (eq. 1)
    n_candidates_ : how many pairs of groups are adjacent
    pairs_ : int64 array of shape (L, 2), the two groups of each plane, the lower number first
    entropies_ : float64 array of shape (L,), in bits, falling (eq. 11)

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data
    >>> hasher = DSH(64, random_state=0).fit(X)
    >>> hasher.transform(X).shape, hasher.centers_.shape
    ((1797, 8), (96, 64))
    """

    learnt: ClassVar[dict[str, str]] = {
        **LinearHasher.learnt,
        "centers_": "k d",
        "weights_": "k",
        "inertia_": "p",
        "n_candidates_": "int",
        "pairs_": "<k L 2",
        "entropies_": "L",
    }
    centers_: NDArray[np.float64]
    weights_: NDArray[np.float64]
    inertia_: NDArray[np.float64]
    n_candidates_: int
    pairs_: NDArray[np.int64]
    entropies_: NDArray[np.float64]

    def __init__(
        self,
        n_bits: int = 64,
        *,
        alpha: float = 1.5,
        p: int = 3,
        r: int = 3,
        init: str | ArrayLike = "random",
        entropy: str = "centers",
        select: str = "entropy",
        random_state: int | RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_bits = n_bits
        self.alpha = alpha
        self.p = p
        self.r = r
        self.init = init
        self.entropy = entropy
        self.select = select
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, rows: Rows, random_state: RandomState) -> None:
        p = check_integer(self.p, "p", 1)
        r = check_integer(self.r, "r", 1)
        check_choice(self.entropy, "entropy", ("centers", "rows"))
        check_choice(self.select, "select", ("entropy", "contrast"))

        groups = lloyd(rows, self._first_centers(rows, random_state), p)
        candidates = median_planes(groups.centers, adjacent_pairs(groups.centers, r))
        self._check_candidates(groups, len(candidates.pairs))
        sizes = self._sizes(rows, groups, candidates)
        # The most balanced plane first; of equal ones, the pair whose centres are nearer; then by
        # the numbers of the groups.
        i, j = candidates.pairs.T
        smaller = np.minimum(sizes, rows.n_rows - sizes)
        order = np.lexsort((j, i, candidates.distances, -smaller))
        if self.select == "entropy":
            chosen = order[: self.n_bits_]
        else:
            pairs = sample_pairs(rows, len(order), random_state)
            sides = _sides(pairs.rows, candidates)
            near = sides[pairs.first] != sides[pairs.near]
            far = sides[pairs.first] != sides[pairs.far]
            kept = greedy_contrast(near, far, self.n_bits_)
            chosen = order[np.isin(order, kept)]

        self.centers_ = groups.centers
        self.weights_ = groups.counts / rows.n_rows
        self.inertia_ = groups.inertia
        self.n_candidates_ = len(order)
        self.pairs_ = candidates.pairs[chosen]
        self.entropies_ = binary_entropy(smaller[chosen] / rows.n_rows)
        self.planes_ = candidates.planes[chosen]
        self.thresholds_ = candidates.thresholds[chosen]

    def _first_centers(self, rows: Rows, random_state: RandomState) -> Floats:
        alpha = check_positive(self.alpha, "alpha")
        if isinstance(self.init, str):
            check_choice(self.init, "init", ("random",))
            # Rounds half up. The limit keeps a huge alpha an integer; it then asks for more rows
            # than there are.
            k = max(int(min(alpha * self.n_bits_ + 0.5, 1e18)), 2)
            return random_centers(rows, k, random_state, "groups")
        centers = Rows(self.init, name="init")
        if centers.n_features != rows.n_features:
            raise InputError(
                f"init has {centers.n_features} features but X has {rows.n_features} features"
            )
        if centers.n_rows < 2:
            raise InputError("init must have at least 2 rows, got 1")
        return centers.sample(centers.n_rows, random_state)

    def _check_candidates(self, groups: Groups, n_candidates: int) -> None:
        if len(groups.centers) < 2:
            raise InputError("all rows are equal: there is nothing to learn from them")
        if n_candidates < self.n_bits_:
            raise InputError(
                f"{len(groups.centers)} groups have {n_candidates} candidate planes, fewer than "
                f"n_bits = {self.n_bits_}: raise alpha ({self.alpha:g}) for more groups, or r "
                f"({self.r}) for more planes between them"
            )

    def _sizes(self, rows: Rows, groups: Groups, candidates: Planes) -> NDArray[np.int64]:
        """How many rows have bit 1, for each candidate."""
        if self.entropy == "centers":
            # A few groups at a time: there may be thousands of groups and thousands of candidates.
            sizes = np.zeros(len(candidates.pairs), dtype=np.int64)
            for start in range(0, len(groups.centers), _GROUPS_AT_ONCE):
                some = slice(start, start + _GROUPS_AT_ONCE)
                sizes += groups.counts[some] @ _sides(groups.centers[some], candidates)
            return sizes

        def ones_of(block: Floats, _: int) -> NDArray[np.int64]:
            return to_host(_sides(block, candidates).sum(axis=0))

        return rows.map_reduce(ones_of, np.add, width=len(candidates.pairs), label="entropy")


class Planes(NamedTuple):
    """Candidate planes.

    Attributes
    ----------
    pairs : int64 array of shape (m, 2), the groups that each plane separates
    planes : float64 array of shape (m, d)
    thresholds : float64 array of shape (m,)
    distances : float64 array of shape (m,), squared, between the two centres
    """

    pairs: NDArray[np.int64]
    planes: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    distances: NDArray[np.float64]


def adjacent_pairs(centers: NDArray[np.float64], r: int) -> NDArray[np.int64]:
    """Pairs of groups where one is among the r nearest of the other (Definitions 1 and 2).

    Parameters
    ----------
    centers : float64 array of shape (k, d)
    r : how many nearest groups; a value above k − 1 counts as k − 1

    Returns
    -------
    int64 array of shape (m, 2): i < j, in rising order. Two groups with equal centres are not a
    pair, because no plane lies between them.

    Examples
    --------
    >>> adjacent_pairs(np.array([[0.0], [1.0], [10.0]]), r=1)
    array([[0, 1],
           [1, 2]])
    """
    k, d = centers.shape
    adjacent = np.zeros((k, k), dtype=bool)
    middle = centers - centers.mean(axis=0)
    squares = np.einsum("ij,ij->i", middle, middle)
    rounding = 16 * (d + 16) * np.finfo(np.float64).eps * squares.max()
    for start in range(0, k, _GROUPS_AT_ONCE):
        # Distances by products are fast but rounded: they choose the few groups that may be the r
        # nearest, and those that may be equal.
        about = -2 * (middle[start : start + _GROUPS_AT_ONCE] @ middle.T) + squares
        about += squares[start : start + _GROUPS_AT_ONCE, np.newaxis]
        last = np.minimum((about <= rounding).sum(axis=1) + r, k) - 1
        limits = np.take_along_axis(np.sort(about, axis=1), last[:, np.newaxis], axis=1)
        own, others = np.nonzero(about <= limits + 2 * rounding)
        own += start
        # Exact distances, by differences: equal distances must come out equal.
        distances = np.concatenate(
            [
                _squared_lengths(centers[others[at]] - centers[own[at]])
                for at in np.array_split(np.arange(len(own)), 1 + len(own) * d // _PAIR_NUMBERS)
            ]
        )
        different = distances > 0
        own, others, distances = own[different], others[different], distances[different]
        order = np.lexsort((others, distances, own))
        own, others = own[order], others[order]
        rank = np.arange(len(own)) - np.searchsorted(own, own)
        adjacent[own[rank < r], others[rank < r]] = True
    return np.argwhere(np.triu(adjacent | adjacent.T))


def _squared_lengths(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths: NDArray[np.float64] = np.einsum("ij,ij->i", vectors, vectors)
    return lengths


def median_planes(centers: NDArray[np.float64], pairs: NDArray[np.int64]) -> Planes:
    """The planes midway between two centres (section 3.2, eq. 9 and 10).

    Parameters
    ----------
    centers : float64 array of shape (k, d)
    pairs : int64 array of shape (m, 2)

    Examples
    --------
    >>> planes = median_planes(np.array([[0.0, 0.0], [2.0, 0.0]]), np.array([[0, 1]]))
    >>> planes.planes, planes.thresholds
    (array([[-2.,  0.]]), array([-2.]))
    """
    first, second = centers[pairs[:, 0]], centers[pairs[:, 1]]
    planes = first - second
    first += second
    thresholds = 0.5 * np.einsum("ij,ij->i", first, planes)
    return Planes(pairs, planes, thresholds, np.einsum("ij,ij->i", planes, planes))


def binary_entropy(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Entropy in bits of a bit that is 1 with the given probability (eq. 11).

    Parameters
    ----------
    shares : float64 array, from 0 to 1

    Examples
    --------
    >>> binary_entropy(np.array([0.5, 0.25, 0.0])).round(4)
    array([1.    , 0.8113, 0.    ])
    """
    both = np.stack([shares, 1 - shares])
    logs = np.log2(both, out=np.zeros_like(both), where=both > 0)
    entropies: NDArray[np.float64] = np.clip(0.0 - (both * logs).sum(axis=0), 0.0, 1.0)
    return entropies


def _sides(rows: Floats, candidates: Planes) -> NDArray[np.bool_]:
    """The bits that all candidates give to rows (n, d): bool (n, m)."""
    products = rows @ like(candidates.planes.T, rows)
    sides: NDArray[np.bool_] = products >= like(candidates.thresholds, rows)
    return sides
