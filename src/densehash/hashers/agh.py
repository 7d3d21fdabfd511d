"""AGH: anchor graph hashing.

W. Liu, J. Wang, S. Kumar, S.-F. Chang, Hashing with graphs, ICML 2011.
"""

from __future__ import annotations

import operator
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.bits import MAX_BITS
from densehash.checks import check_integer
from densehash.columns import is_tensor
from densehash.errors import InputError
from densehash.hashers.base import Hasher
from densehash.hashers.distances import squared_distances
from densehash.hashers.moments import fix_signs
from densehash.kmeans import lloyd, random_centers
from densehash.rows import Floats, Rows
from densehash.rows.numerics import (
    column_sums,
    like,
    module_of,
    smallest,
    to_float64,
)

__all__ = ["AGH", "Sides", "anchor_affinities", "anchor_projection", "second_thresholds"]

_ANCHOR_PASSES = 5

# Eigenvalues above this belong to the constant vector, or to parts of the graph that do not touch;
# the authors' code uses the same limit.
_TRIVIAL = 1 - 1e-3

# If the graph falls into parts, an eigenvector is zero outside its own part. A smaller number than
# this is a rounding error, whose sign would be a random bit.
_ROUNDING = 1e-10


class AGH(Hasher):
    """Eigenvectors of a graph that joins rows through their nearest anchors.

    With two layers, every eigenvector gives two bits. The first is the sign of the row's number.
    The second says whether this number lies beyond a threshold; positive and negative numbers have
    thresholds of their own.

    Parameters
    ----------
    n_bits : bits of a code, 1 to 4096, default 64; it must be even if there are two layers
    n_layers : 1 or 2 (default)
    n_anchors : how many anchors, default 300: the centres of groups, found by 5 passes of k-means
    n_nearest : how many anchors a row is joined to, default 2, and at least 2: with a single one,
        no row would join two anchors
    random_state : seed or generator that draws the first centres
    verbose : 1 shows a progress bar during a long fit

    Attributes
    ----------
    anchors_ : float64 array of shape (n_anchors, d)
    n_nearest_ : how many anchors a row is joined to
    sigma_ : float, the mean distance between a row and the farthest anchor that it is joined to
    eigenvalues_ : float64 array of shape (e,); e = n_bits / n_layers
    projection_ : float64 array of shape (n_anchors, e), which turns affinities into eigenvectors
    second_thresholds_ : float64 array of shape (2, e): the thresholds for positive numbers, then
        those for negative ones; only with two layers

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data
    >>> AGH(32, random_state=0).fit_transform(X).shape
    (1797, 4)
    """

    learnt: ClassVar[dict[str, str]] = {
        "sigma_": "float",
        "anchors_": "k d",
        "n_nearest_": "int k",
        "eigenvalues_": "e",
        "projection_": "k e",
        "second_thresholds_": "? 2 e",
    }
    anchors_: NDArray[np.float64]
    n_nearest_: int
    sigma_: float
    eigenvalues_: NDArray[np.float64]
    projection_: NDArray[np.float64]
    second_thresholds_: NDArray[np.float64]

    def __init__(
        self,
        n_bits: int = 64,
        *,
        n_layers: int = 2,
        n_anchors: int = 300,
        n_nearest: int = 2,
        random_state: int | RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_bits = n_bits
        self.n_layers = n_layers
        self.n_anchors = n_anchors
        self.n_nearest = n_nearest
        self.random_state = random_state
        self.verbose = verbose

    def _check_n_bits(self) -> int:
        n_layers = check_integer(self.n_layers, "n_layers", 1, 2)
        n_bits = check_integer(self.n_bits, "n_bits", n_layers, MAX_BITS)
        if n_bits % n_layers:
            raise InputError(f"two layers need an even n_bits, got {n_bits}: or use n_layers=1")
        return n_bits

    def _learn(self, rows: Rows, random_state: RandomState) -> None:
        n_anchors = check_integer(self.n_anchors, "n_anchors", 2)
        n_nearest = check_integer(self.n_nearest, "n_nearest", 2, n_anchors)
        first = random_centers(rows, n_anchors, random_state, "anchors")
        anchors = lloyd(rows, first, _ANCHOR_PASSES).centers
        if len(anchors) < n_nearest:
            raise InputError(
                f"rows have only {len(anchors)} different value(s): there is no graph to learn from"
            )
        self.anchors_ = anchors
        self.n_nearest_ = n_nearest
        self.sigma_ = _mean_reach(rows, anchors, n_nearest)
        n_vectors = self.n_bits_ // self.n_layers
        links = self._links(rows)
        self.eigenvalues_, self.projection_ = anchor_projection(links, rows.n_rows, n_vectors)
        if self.n_layers == 2:
            self.second_thresholds_ = self._learn_second_thresholds(rows, links.sum(axis=0))

    def _affinities(self, block: Floats) -> Any:
        return anchor_affinities(block, self.anchors_, self.n_nearest_, self.sigma_)

    def _links(self, rows: Rows) -> NDArray[np.float64]:
        """How strongly rows join each pair of anchors: Z'Z, of shape (n_anchors, n_anchors)."""

        def links_of(block: Floats, _: int) -> NDArray[np.float64]:
            affinities = self._affinities(block)
            links = affinities.T @ affinities
            return to_float64(links if is_tensor(block) else links.toarray())

        return rows.map_reduce(links_of, np.add, width=self._width(), label="anchor graph")

    def _learn_second_thresholds(
        self, rows: Rows, degrees: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        def sides_of(block: Floats, _: int) -> Sides:
            affinities = self._affinities(block)
            values = affinities @ like(self.projection_, block)
            return Sides.of(affinities, values)

        sides = rows.map_reduce(sides_of, Sides.add, width=self._width(), label="thresholds")
        return second_thresholds(sides, degrees)

    def _margins(self, block: Floats) -> Floats:
        values: Floats = self._affinities(block) @ like(self.projection_, block)
        if values.shape[1] == self.n_bits_:  # one layer
            return values
        positive, negative = like(self.second_thresholds_, block)
        xp = module_of(block)
        second = xp.where(values >= 0, values - positive, negative - values)
        margins: Floats = xp.concatenate([values, second], axis=1)
        return margins

    def _width(self) -> int:
        return 2 * len(self.anchors_) + 2 * self.n_bits_


class Sides(NamedTuple):
    """Sums over rows for the second layer.

    e⁺ is 1 for a row whose number in the eigenvector y is not negative, and 0 for the others.

    Attributes
    ----------
    linked_positive : Z'e⁺, float64 array of shape (n_anchors, e)
    linked_sizes : Z'|y|, float64 array of shape (n_anchors, e)
    n_rows : n
    n_positive : float64 array of shape (e,)
    positive_sizes, sizes : sums of |y| over the positive rows, and over all; shape (e,)
    """

    linked_positive: NDArray[np.float64]
    linked_sizes: NDArray[np.float64]
    n_rows: int
    n_positive: NDArray[np.float64]
    positive_sizes: NDArray[np.float64]
    sizes: NDArray[np.float64]

    @classmethod
    def of(cls, affinities: Any, values: Floats) -> Sides:
        """Sums over a block: affinities of shape (m, n_anchors), eigenvectors (m, e)."""
        positive, sizes = like(values >= 0, values), abs(values)
        return cls(
            to_float64(affinities.T @ positive),
            to_float64(affinities.T @ sizes),
            len(values),
            column_sums(positive),
            column_sums(positive * sizes),
            column_sums(sizes),
        )

    @staticmethod
    def add(one: Sides, two: Sides) -> Sides:
        """The sums over two parts."""
        return Sides(
            one.linked_positive + two.linked_positive,
            one.linked_sizes + two.linked_sizes,
            one.n_rows + two.n_rows,
            one.n_positive + two.n_positive,
            one.positive_sizes + two.positive_sizes,
            one.sizes + two.sizes,
        )


def anchor_affinities(
    block: Floats, anchors: NDArray[np.float64], n_nearest: int, sigma: float
) -> Any:
    """Z: how near a row is to its nearest anchors.

    The affinity is ``exp(−|x − a|² / sigma²)``, scaled so that the affinities of a row sum to 1.

    Parameters
    ----------
    block : float array or tensor of shape (m, d)
    anchors : float64 array of shape (k, d)

    Returns
    -------
    sparse array of shape (m, k) in the block's type, with n_nearest numbers in each row; if the
    block is a tensor, a dense tensor

    Examples
    --------
    >>> affinities = anchor_affinities(np.array([[0.0]]), np.array([[0.0], [1.0], [9.0]]), 2, 1.0)
    >>> affinities.toarray().round(3)
    array([[0.731, 0.269, 0.   ]])
    """
    distances, nearest = _nearest_anchors(block, anchors, n_nearest)
    # The nearest distance is subtracted: otherwise a row far from all anchors would divide by zero.
    kernels = module_of(block).exp((distances[:, :1] - distances) / sigma**2)
    kernels /= kernels.sum(axis=1, keepdims=True)
    if is_tensor(block):
        empty: Any = like(np.zeros(1), block).repeat(len(block), len(anchors))
        return empty.scatter_(1, nearest, kernels)
    limits = np.arange(0, nearest.size + 1, n_nearest)
    return scipy.sparse.csr_array(
        (kernels.reshape(-1), nearest.reshape(-1), limits), shape=(len(block), len(anchors))
    )


def anchor_projection(
    links: NDArray[np.float64], n_rows: int, n_vectors: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvectors of the anchor graph, as a projection of affinities.

    Parameters
    ----------
    links : Z'Z, float64 array of shape (k, k)
    n_rows : n
    n_vectors : how many eigenvectors, without the trivial one

    Returns
    -------
    eigenvalues : float64 array of shape (n_vectors,), falling
    projection : float64 array of shape (k, n_vectors), scaled so that the columns of Z times
        projection have length sqrt(n)

    Examples
    --------
    >>> values, projection = anchor_projection(np.array([[3.0, 1.0], [1.0, 3.0]]), 8, 1)
    >>> values.round(6), projection.round(6).ravel()
    (array([0.5]), array([ 1.414214, -1.414214]))
    """
    degrees = links.sum(axis=0)
    # An anchor that no row is joined to is left out of the graph.
    scale = np.divide(1, np.sqrt(degrees), out=np.zeros_like(degrees), where=degrees > 0)
    values, vectors = scipy.linalg.eigh(scale[:, np.newaxis] * links * scale)
    values, vectors = values[::-1], vectors[:, ::-1]
    useful = np.flatnonzero((values > 1e-9) & (values < _TRIVIAL))
    if len(useful) < n_vectors:
        raise InputError(
            f"the graph has {len(useful)} useful eigenvectors, fewer than the {n_vectors} that "
            "are needed: raise n_anchors, or lower n_bits"
        )
    useful = useful[:n_vectors]
    signed = fix_signs(vectors[:, useful].T).T
    signed[np.abs(signed) < _ROUNDING] = 0
    projection = np.sqrt(n_rows) * scale[:, np.newaxis] * signed / np.sqrt(values[useful])
    return values[useful].copy(), projection


def second_thresholds(sides: Sides, degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    """Thresholds of the second layer: of all balanced second bits, the smoothest on the graph.

    Section 4.2 of the paper: minimise v'Lv over b⁺ and b⁻, where v is y − b⁺ on the positive rows
    and b⁻ − y on the others, subject to sum(v) = 0; L = I − Z diag(degrees)⁻¹ Z'.

    Parameters
    ----------
    sides : sums over all rows
    degrees : float64 array of shape (k,), sums of the affinities to each anchor

    Returns
    -------
    float64 array of shape (2, e): b⁺ and b⁻

    Examples
    --------
    >>> affinities = scipy.sparse.csr_array(np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]]))
    >>> sides = Sides.of(affinities, np.array([[2.0], [0.5], [-2.0]]))
    >>> second_thresholds(sides, affinities.sum(axis=0)).shape
    (2, 1)
    """
    inverse = np.divide(1, degrees, out=np.zeros_like(degrees), where=degrees > 0)
    smoothed = sides.linked_positive * inverse[:, np.newaxis]
    # L times the vector of ones is zero, so v'Lv depends on s = b⁺ + b⁻ alone.
    roughness = sides.n_positive - (smoothed * sides.linked_positive).sum(axis=0)
    along = sides.positive_sizes - (smoothed * sides.linked_sizes).sum(axis=0)
    # If the positive rows are not joined to the others, v'Lv does not depend on s at all.
    total = np.divide(along, roughness, out=np.zeros_like(along), where=roughness > 1e-12)
    n_negative = sides.n_rows - sides.n_positive
    positive = (sides.sizes + n_negative * total) / sides.n_rows
    return np.stack([positive, total - positive])


def _nearest_anchors(
    block: Floats, anchors: NDArray[np.float64], n_nearest: int
) -> tuple[Floats, NDArray[np.intp]]:
    """The nearest anchors: squared distances (m, n_nearest), nearest first, and positions."""
    return smallest(squared_distances(block, anchors), n_nearest)


def _mean_reach(rows: Rows, anchors: NDArray[np.float64], n_nearest: int) -> float:
    def reach_of(block: Floats, _: int) -> float:
        distances = _nearest_anchors(block, anchors, n_nearest)[0]
        return float(column_sums(distances[:, -1] ** 0.5))

    total: float = rows.map_reduce(
        reach_of, operator.add, width=2 * len(anchors), label="anchor distances"
    )
    if total == 0:
        raise InputError("every row equals all of its nearest anchors: lower n_anchors")
    return total / rows.n_rows
