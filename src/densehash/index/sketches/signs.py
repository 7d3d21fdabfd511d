"""The sketch of signs: centres, decoders and entries, and the search through them.

A row lies in one group or in two of them, so an index holds *entries*: signs, factors and the
number of a row. Entries lie by group, in blocks of 32 that run over the limits of groups. The
centres are entries too, of one group around the mean, with a decoder of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash import _native
from densehash.index.sketches.decoder import Decoder, learn_decoder

__all__ = ["Entries", "Segment", "Signs", "second_groups"]

Floats = NDArray[np.float32]

_NEAR = 32  # centres near a row's first one, among which its second one is looked for
_CENTER_BITS = 128


class Entries(NamedTuple):
    """What a segment holds of its rows.

    Attributes
    ----------
    blocks : uint8 (ceil(e / 32), 4 n_bits + 128), see docs of the layout in native/kernels.hpp
    limits : int64 (g + 1,): the entries of group i are limits[i] to limits[i + 1]
    rows : uint32 (e,), the row of each entry
    """

    blocks: NDArray[np.uint8]
    limits: NDArray[np.int64]
    rows: NDArray[np.uint32]


class Segment(NamedTuple):
    """Entries beside what else a search needs of their rows.

    Attributes
    ----------
    entries : of these rows
    n_rows : how many rows there are
    vectors : float32, float16, uint8 or int8 (n_rows, d), or None: then distances are estimates
    ranks : uint32 (n_rows,), the place of each row in the order of ties, or None: its number
    first : added to the numbers of its rows in answers
    """

    entries: Entries
    n_rows: int
    vectors: NDArray[Any] | None
    ranks: NDArray[np.uint32] | None = None
    first: int = 0


@dataclass(frozen=True)
class Signs:
    """What all segments of an index share.

    Attributes
    ----------
    shift : float32 (d,): rows and centres are relative to it
    centers : float32 (g, d)
    of_rows, of_centers : decoders
    center_blocks : uint8 (ceil(g / 32), 4 n_bits + 128), the centres as entries
    center_order : uint32 (g,), the centre of each of these entries, in random order: the first
        few say how near the nearest are

    Examples
    --------
    >>> X = RandomState(0).standard_normal((500, 8)).astype(np.float32)
    >>> shift, centers = np.zeros(8, np.float32), X[:20]
    >>> labels = ((X[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1).astype(np.uint32)
    >>> signs = Signs.learn(X, labels, centers, shift, 32, "l2", RandomState(0))
    >>> segment = Segment(signs.entries(X, labels[:, np.newaxis]), len(X), X)
    >>> searcher = signs.searcher([segment])
    >>> distances, positions, efforts = searcher.search(X[:3], 2, 20, 1.0, 1e9, None, 1, "")
    >>> positions[:, 0]
    array([0, 1, 2])
    """

    shift: Floats
    centers: Floats
    of_rows: Decoder
    of_centers: Decoder
    center_blocks: NDArray[np.uint8]
    center_order: NDArray[np.uint32]

    @classmethod
    def learn(
        cls,
        rows: Floats,
        labels: NDArray[np.uint32],
        centers: Floats,
        shift: Floats,
        n_bits: int,
        metric: str,
        random_state: RandomState,
    ) -> Signs:
        """Learn decoders.

        Parameters
        ----------
        rows : float32 (n, d), a sample of 8,000 to 32,000 rows, relative to the shift
        labels : uint32 (n,), the group of each
        centers : float32 (g, d), relative to the shift
        shift : float32 (d,)
        n_bits : signs of a row, a multiple of 8 from 8 to 1,024
        metric : "l2", "cosine" (rows had length 1 before the shift) or "ip"
        random_state : draws rotations and the order of centres
        """
        of_rows = learn_decoder(rows, labels, centers, n_bits, metric, random_state)
        middle = np.zeros((1, len(shift)), np.float32)
        zeros = np.zeros(len(centers), np.uint32)
        of_centers = learn_decoder(centers, zeros, middle, _CENTER_BITS, metric, random_state)
        order = random_state.permutation(len(centers)).astype(np.uint32)
        blocks = _native.pack_signs(*of_centers.encode(centers[order], zeros, middle))
        return cls(shift, centers, of_rows, of_centers, blocks, order)

    def entries(self, rows: Floats, labels: NDArray[np.uint32]) -> Entries:
        """Entries of rows, by group and then by row.

        Parameters
        ----------
        rows : float32 (n, d), relative to the shift
        labels : uint32 (n, 1) or (n, 2), the groups of each row
        """
        products = self.of_rows.products(self.centers)
        parts = [
            self.of_rows.encode(rows, np.ascontiguousarray(column), self.centers, products)
            for column in labels.T
        ]
        groups = labels.T.reshape(-1)
        numbers = np.tile(np.arange(len(rows), dtype=np.uint32), labels.shape[1])
        order = np.lexsort((numbers, groups))
        codes, factors = (np.concatenate(part)[order] for part in zip(*parts, strict=True))
        limits = np.searchsorted(groups[order], np.arange(len(self.centers) + 1))
        return Entries(_native.pack_signs(codes, factors), limits.astype(np.int64), numbers[order])

    def searcher(self, segments: Sequence[Segment]) -> _native.Signs:
        """What searches segments in one native call; it keeps their arrays alive."""
        searcher = _native.Signs(
            self.of_rows.metric,
            self.shift,
            self.centers,
            np.concatenate([self.of_rows.whole, self.of_centers.whole]),
            np.concatenate([self.of_rows.steps, self.of_centers.steps]),
            self.center_blocks,
            self.center_order,
            self.of_rows.alpha,
            self.of_rows.beta,
            self.of_centers.alpha,
            self.of_centers.beta,
        )
        for segment in segments:
            searcher.add(
                *segment.entries, segment.vectors, segment.ranks, segment.n_rows, segment.first
            )
        return searcher


def second_groups(rows: Floats, labels: NDArray[np.uint32], centers: Floats) -> NDArray[np.uint32]:
    """A second group for every row: near, and in another direction than the first.

    P. Sun, D. Simcha, D. Dopson, R. Guo, S. Kumar, SOAR: improved indexing for approximate nearest
    neighbor search, NeurIPS 2023, with λ = 1: to the squared distance comes the square of the part
    of the new residual that is parallel to the first one. Where there is one group, it is that.

    Parameters
    ----------
    rows : float32 (n, d)
    labels : uint32 (n,), the first group of each row
    centers : float32 (g, d)

    Returns
    -------
    uint32 (n,)

    Examples
    --------
    >>> centers = np.array([[0.0, 0.0], [1.0, 0.0], [0.4, 0.7]], np.float32)
    >>> second_groups(np.array([[0.4, 0.0]], np.float32), np.zeros(1, np.uint32), centers)
    array([2], dtype=uint32)
    """
    n_near = min(_NEAR, len(centers) - 1)
    if n_near == 0:
        return labels.copy()
    squares = np.einsum("ij,ij->i", centers, centers)
    found = np.empty(len(rows), np.uint32)
    order = np.argsort(labels, kind="stable")
    limits = np.searchsorted(labels[order], np.arange(len(centers) + 1))
    for group in np.flatnonzero(np.diff(limits)):
        inside = order[limits[group] : limits[group + 1]]
        away = squares - 2 * (centers @ centers[group])
        away[group] = np.inf
        near = np.sort(np.argpartition(away, n_near - 1)[:n_near])
        here = rows[inside]
        first = here - centers[group]
        lengths = np.maximum(np.einsum("ij,ij->i", first, first), np.finfo(np.float32).tiny)
        parallel = np.einsum("ij,ij->i", first, here)[:, np.newaxis] - first @ centers[near].T
        distances = squares[near] - 2 * (here @ centers[near].T)
        distances += parallel**2 / lengths[:, np.newaxis]
        found[inside] = near[distances.argmin(axis=1)]
    return found
