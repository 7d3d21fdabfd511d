"""Refined: planes of another hasher, moved so that near rows rank first by Hamming distance.

The method is our own; ``docs/refined.md`` is its paper. In short: among rows drawn at random, the
nearest few of an anchor should come before all others. How well they do is a function of counts,
how many near and how many far rows lie at each Hamming distance, and so is its derivative. The
signs of margins have no slope; on the way back, a smooth slope stands for theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.random import RandomState
from numpy.typing import NDArray
from scipy.ndimage import correlate1d
from sklearn.base import clone

from densehash.checks import check_integer, check_positive
from densehash.errors import InputError
from densehash.hashers.base import LinearHasher
from densehash.hashers.moments import principal_directions
from densehash.parallel import map_in_order, n_threads
from densehash.progress import bar
from densehash.rows import Floats, Rows

__all__ = ["Refined", "ranking_loss", "sign_slope"]

# All of these were chosen by ablation on ten sets; docs/refined.md has the figures.
_STEP = 0.15  # of a plane's size, while the rate is full
_WIDTH = 0.2  # of the slope that stands for that of the sign, in standard deviations
_SMOOTHING = 1.0  # standard deviation of the kernel over distances, in bits
_N_ANCHORS = 128
_N_RANKED = 1024  # rows that anchors rank in one step

# A coordinate of a plane is worth learning if so many rows are there to learn it from.
_ROWS_A_COORDINATE = 32
_FEWEST_COORDINATES = 32
_MOST_COORDINATES = 512
_MOST_NUMBERS = 1 << 24  # of the sample: 64 MB

_N_HELD_OUT = 256  # anchors that are never learnt from
_N_HELD_OUT_RANKED = 4096
_N_CHECKS = 20  # of the held-out loss, in a full run
_PATIENCE = 6  # checks without a new minimum

# Adam's, and what keeps its quotient finite.
_MOMENTUM, _MEMORY, _TINY = 0.9, 0.99, 1e-20

_REACH = 4  # bits
_OFFSETS = np.arange(-_REACH, _REACH + 1)
_KERNEL = np.exp(-0.5 * (_OFFSETS / _SMOOTHING) ** 2)
_KERNEL /= _KERNEL.sum()
# How the kernel's value at each bin changes as its middle moves up.
_KERNEL_SLOPE = _KERNEL * _OFFSETS / _SMOOTHING**2
_EMPTY = 1e-3  # counts as a row at every distance, so that precision is 1 where there is none


class Refined(LinearHasher):
    """The planes of a linear hasher, refined by gradient steps.

    The hasher is fitted; then its planes and thresholds move so that, for rows drawn at random,
    the nearest others come first by Hamming distance. Labels are not used. What is kept is what
    ranks best for rows that were never learnt from, so it can be the planes it began with.

    Parameters
    ----------
    hasher : a linear hasher: DSH, ITQ, LSH or PCAH; it is cloned, and stays as it is
    n_steps : gradient steps, at most; 0 keeps the hasher's planes
    near : which share of rows is near a row, more than 0 and less than 1
    n_rows : how many rows to learn from, at most; where d is large, memory allows fewer
    random_state : draws the rows, and all that the hasher draws if it has no random_state
    verbose : 1 shows a bar while a long fit goes on

    Attributes
    ----------
    planes_ : float64 array of shape (n_bits, d)
    thresholds_ : float64 array of shape (n_bits,)
    hasher_ : the fitted hasher, whose planes were refined
    losses_ : float64 array of shape (1 + checks,): ``ranking_loss`` for held-out rows at the
        beginning and after each twentieth of the steps; empty where rows are too few
    n_steps_ : how many steps were taken; fewer than ``n_steps`` where the loss fell no more

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from densehash.hashers import DSH
    >>> X = load_digits().data
    >>> hasher = Refined(DSH(32), n_steps=200, random_state=0).fit(X)
    >>> hasher.transform(X).shape
    (1797, 4)
    >>> bool(hasher.losses_.min() < 0.8 * hasher.losses_[0])
    True
    """

    hasher_: LinearHasher
    losses_: NDArray[np.float64]
    n_steps_: int

    def __init__(
        self,
        hasher: LinearHasher,
        *,
        n_steps: int = 3000,
        near: float = 0.02,
        n_rows: int = 65_536,
        random_state: int | RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.hasher = hasher
        self.n_steps = n_steps
        self.near = near
        self.n_rows = n_rows
        self.random_state = random_state
        self.verbose = verbose

    def _check_n_bits(self) -> int:
        if not isinstance(self.hasher, LinearHasher):
            raise InputError(
                f"hasher must be a linear hasher, DSH for instance, got {self.hasher!r}"
            )
        return self.hasher._check_n_bits()

    def _learn(self, rows: Rows, random_state: RandomState) -> None:
        n_steps = check_integer(self.n_steps, "n_steps", 0)
        near = _check_share(self.near, "near")
        n_rows = min(check_integer(self.n_rows, "n_rows", 2), rows.n_rows)
        hasher = self._fit_hasher(rows, random_state)
        self.hasher_, self.n_steps_, self.losses_ = hasher, 0, np.empty(0)
        self.planes_, self.thresholds_ = hasher.planes_.copy(), hasher.thresholds_.copy()
        frame = _frame(rows, n_rows, hasher.planes_, random_state)
        n_rows = min(n_rows, _MOST_NUMBERS // (len(frame.axes) + 1))
        n_held_out = min(_N_HELD_OUT, n_rows // 10)
        if n_steps == 0 or n_held_out == 0 or frame.scale == 0:
            return
        sample = rows.sample(n_rows, random_state, frame.place)
        planes = frame.enter(hasher.planes_, hasher.thresholds_)
        found = _refine(
            sample,
            planes,
            share=near,
            n_steps=n_steps,
            n_held_out=n_held_out,
            # Its own, for rows are drawn ahead: how many depends on the number of threads.
            chance=RandomState(random_state.randint(1 << 31)),
            shown=self.verbose > 0,
        )
        self.n_steps_, self.losses_ = found.n_steps, found.losses
        if found.losses.argmin() > 0:  # or rounding would move the planes it began with
            self.planes_, self.thresholds_ = frame.leave(found.planes)

    def _fit_hasher(self, rows: Rows, random_state: RandomState) -> LinearHasher:
        hasher: LinearHasher = clone(self.hasher)
        # What a fit knows of rows before it learns: it is the same for both.
        hasher.__dict__ |= {name: known for name, known in vars(self).items() if name[-1] == "_"}
        own = hasher.random_state is not None
        hasher._learn(rows, hasher._check_random_state() if own else random_state)
        return hasher


class _Frame(NamedTuple):
    """Coordinates for learning: rows have mean 0, total variance 1, and a last coordinate of −1.

    With that last one, a threshold is one more coordinate of its plane.
    """

    center: NDArray[np.float64]  # (d,)
    axes: NDArray[np.float64]  # (c, d), orthonormal
    scale: float

    def place(self, block: Floats) -> NDArray[np.float32]:
        """Rows (b, d) as rows (b, c + 1)."""
        placed = np.full((len(block), len(self.axes) + 1), -1, dtype=np.float32)
        axes = (self.axes / self.scale).T.astype(block.dtype)
        placed[:, :-1] = (block - self.center.astype(block.dtype)) @ axes
        return placed

    def enter(
        self, planes: NDArray[np.float64], thresholds: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """Planes (L, d) and thresholds (L,) as planes (L, c + 1) of size 1."""
        inside = np.empty((len(planes), len(self.axes) + 1))
        inside[:, :-1] = planes @ self.axes.T
        inside[:, -1] = (thresholds - planes @ self.center) / self.scale
        sizes = np.linalg.norm(inside[:, :-1], axis=1, keepdims=True)
        return (inside / np.where(sizes > 0, sizes, 1)).astype(np.float32)

    def leave(self, inside: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Planes (L, c + 1) as planes (L, d) and thresholds (L,)."""
        wide = inside.astype(np.float64)
        planes = wide[:, :-1] @ self.axes
        return planes, wide[:, -1] * self.scale + planes @ self.center


def _frame(
    rows: Rows, n_rows: int, planes: NDArray[np.float64], random_state: RandomState
) -> _Frame:
    """Principal directions, as many as the rows can teach, and what else the planes need."""
    d = rows.n_features
    most = min(max(n_rows // _ROWS_A_COORDINATE, _FEWEST_COORDINATES), _MOST_COORDINATES, d)
    some = rows.sample(min(n_rows, max(_MOST_NUMBERS // (2 * d), 2)), random_state)
    center = some.mean(axis=0, dtype=np.float64)
    axes, _ = principal_directions(Rows(some), center, most)
    scale = float(np.sqrt(some.var(axis=0, dtype=np.float64).sum()))
    if most < d:
        # The planes must fit in, or they would not begin as good as they are.
        rest = planes - (planes @ axes.T) @ axes
        _, sizes, others = scipy.linalg.svd(rest, full_matrices=False)
        others = others[sizes > 1e-6 * np.linalg.norm(planes, axis=1).max()]
        axes = scipy.linalg.qr(np.vstack([axes, others]).T, mode="economic")[0].T
    return _Frame(center, axes, scale)


class _Refinement(NamedTuple):
    planes: NDArray[np.float32]  # (L, c + 1), those of the lowest loss
    losses: NDArray[np.float64]  # held-out: at the beginning, then after each check
    n_steps: int


def _refine(
    sample: NDArray[np.float32],
    planes: NDArray[np.float32],
    *,
    share: float,
    n_steps: int,
    n_held_out: int,
    chance: RandomState,
    shown: bool,
) -> _Refinement:
    """Gradient steps by Adam: half of them at full rate, then slower and slower to a halt.

    If the held-out loss has no new minimum for some checks, slowing begins, and takes as long as
    the steps before it; if it has none for some checks of slowing, it ends.
    """
    n_bits, width = planes.shape
    order = chance.permutation(len(sample))
    held_out, learnt = order[:n_held_out], order[n_held_out:]
    n_ranked = min(len(learnt), _N_HELD_OUT_RANKED, max((1 << 22) // n_bits, _N_RANKED))
    exam = _draw(sample, np.concatenate([held_out, learnt[:n_ranked]]), n_held_out, share, n_bits)

    planes = planes.copy()
    best, losses, best_at = planes.copy(), [_loss(exam, planes)], 0
    mean, square = np.zeros_like(planes), np.zeros_like(planes)
    n_full = (n_steps + 1) // 2
    every = max(n_steps // _N_CHECKS, 1)
    step = 0
    lots = _lots(learnt, chance)
    n_anchors = min(_N_ANCHORS, max(len(learnt) // 9, 1))
    draws = map_in_order(
        lambda lot: _draw(sample, lot, n_anchors, share, n_bits), lots, min(n_threads(), 2)
    )
    with closing(draws), bar("refining", n_steps, shown=shown) as advance:
        for draw in draws:
            slowness = max(step / n_full - 1, 0)
            rate = _STEP / np.sqrt(width) * 0.5 * (1 + np.cos(np.pi * slowness))
            step += 1
            gradient = _gradient(draw, planes)
            mean += (1 - _MOMENTUM) * (gradient - mean)
            square += (1 - _MEMORY) * (gradient * gradient - square)
            size = np.sqrt(square / (1 - _MEMORY**step)) + _TINY
            planes -= np.float32(rate / (1 - _MOMENTUM**step)) * mean / size
            advance(1)
            ended = step >= min(2 * n_full, n_steps)
            if step % every and not ended:
                continue
            losses.append(_loss(exam, planes))
            if losses[-1] < min(losses[:-1]):
                best, best_at = planes.copy(), step
            if step < n_full and step - best_at >= _PATIENCE * every:
                n_full = step
            if ended or step - max(best_at, n_full) >= _PATIENCE * every:
                break
    return _Refinement(best, np.array(losses), step)


def _lots(positions: NDArray[np.int64], chance: RandomState) -> Iterator[NDArray[np.int64]]:
    """Positions for one step after another, no two equal in a step; every epoch has all."""
    size = min(_N_ANCHORS + _N_RANKED, len(positions))
    while True:
        order = chance.permutation(positions)
        for start in range(0, len(order) - size + 1, size):
            yield order[start : start + size]


class _Draw(NamedTuple):
    """Rows, the first of which are anchors that rank the others, and who is near whom.

    For a pair with the dot product s of its signs, ``cells − s / 2`` counts through the anchors,
    then through far and near, then through the distances from 0 to L.
    """

    rows: NDArray[np.float32]  # (A + B, c + 1)
    cells: NDArray[np.float32]  # (A, B)
    n_cells: tuple[int, int, int]  # (A, 2, L + 1)


def _draw(
    sample: NDArray[np.float32],
    positions: NDArray[np.int64],
    n_anchors: int,
    share: float,
    n_bits: int,
) -> _Draw:
    rows = sample[positions]
    ranked = rows[n_anchors:]
    # Squared distances, but for the anchor's own square.
    distances = rows[:n_anchors] @ (-2 * ranked).T
    distances += np.einsum("ij,ij->i", ranked, ranked)
    last = min(max(round(share * len(ranked)), 1), len(ranked)) - 1
    near = distances <= np.partition(distances, last, axis=1)[:, last : last + 1]
    anchors = np.arange(n_anchors, dtype=np.float32)[:, np.newaxis]
    cells = (2 * anchors + near) * np.float32(n_bits + 1) + np.float32(n_bits / 2)
    return _Draw(rows, cells.astype(np.float32), (n_anchors, 2, n_bits + 1))


def _cells(draw: _Draw, signs: NDArray[np.float32]) -> NDArray[np.intp]:
    """The cell (A, B) of every pair, from signs (A + B, L)."""
    n_anchors = draw.n_cells[0]
    halves = (0.5 * signs[:n_anchors]) @ signs[n_anchors:].T
    return np.subtract(draw.cells, halves, out=halves).astype(np.intp)


def _counts(draw: _Draw, cells: NDArray[np.intp]) -> NDArray[np.intp]:
    found = np.bincount(cells.ravel(), minlength=int(np.prod(draw.n_cells)))
    return found.reshape(draw.n_cells)


def _loss(draw: _Draw, planes: NDArray[np.float32]) -> float:
    signs = np.copysign(np.float32(1), draw.rows @ planes.T)
    return float(ranking_loss(_counts(draw, _cells(draw, signs)))[0].mean())


def _gradient(draw: _Draw, planes: NDArray[np.float32]) -> NDArray[np.float32]:
    """What stands for the derivative of the mean loss by planes (L, c + 1)."""
    n_anchors = draw.n_cells[0]
    margins = draw.rows @ planes.T
    signs = np.copysign(np.float32(1), margins)
    cells = _cells(draw, signs)
    _, slopes = ranking_loss(_counts(draw, cells))
    # A distance is (L − s) / 2 for the dot product s of two rows' signs.
    by_product = (slopes * (-0.5 / n_anchors)).astype(np.float32).ravel().take(cells)
    by_sign = np.empty_like(signs)
    np.matmul(by_product, signs[n_anchors:], out=by_sign[:n_anchors])
    np.matmul(by_product.T, signs[:n_anchors], out=by_sign[n_anchors:])
    by_sign *= sign_slope(margins)
    gradient: NDArray[np.float32] = by_sign.T @ draw.rows
    return gradient


def sign_slope(margins: Floats) -> Floats:
    """The slope that stands for that of the sign.

    With z for a margin in units of 0.2 standard deviations of its column, it is
    1 / (1 + abs(z))²: the derivative of z / (1 + abs(z)), but for a factor for each column.

    Parameters
    ----------
    margins : float array of shape (n, L)

    Returns
    -------
    float array of shape (n, L), of the same type, from 0 to 1

    Examples
    --------
    >>> sign_slope(np.array([[-1.0], [0.0], [1.0]])).round(3).ravel()
    array([0.02, 1.  , 0.02])
    """
    width = _WIDTH * margins.std(axis=0)
    slope = np.abs(margins)
    slope /= np.maximum(width, 1e-12)
    slope += 1
    np.square(slope, out=slope)
    return np.divide(1, slope, out=slope)


def ranking_loss(
    counts: NDArray[np.integer] | NDArray[np.floating],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How late near rows come when rows are ranked by distance, and the loss's slopes.

    The loss of an anchor is the mean, over its near rows, of −log precision: of the share of near
    rows among all up to there, with half of those at the same distance. It is 0 if all near rows
    come first. Counts are spread over neighbouring distances by a Gaussian kernel, which makes
    the loss a smooth function of distances.

    Parameters
    ----------
    counts : array of shape (A, 2, L + 1), of each anchor: how many far rows, and how many near
        ones, lie at each distance

    Returns
    -------
    losses : float64 array of shape (A,)
    slopes : float64 array of shape (A, 2, L + 1), the derivative of an anchor's loss by the
        distance of one far or near row that is there

    Examples
    --------
    Three near rows before nine far ones; then behind them, where the loss falls if near rows
    come nearer and far rows go farther.

    >>> at_0, at_8 = np.eye(9, dtype=int)[[0, 8]]
    >>> losses, slopes = ranking_loss(np.array([[9 * at_8, 3 * at_0], [9 * at_0, 3 * at_8]]))
    >>> losses.round(2)
    array([0. , 2.2])
    >>> bool(slopes[1, 1, 8] > 0 > slopes[1, 0, 0])
    True
    """
    n_near = np.maximum(counts[:, 1].sum(axis=1, keepdims=True), 1)
    soft = np.zeros((*counts.shape[:2], counts.shape[2] + 2 * _REACH))
    soft[:, :, _REACH:-_REACH] = counts
    soft = correlate1d(soft, _KERNEL, mode="constant")
    near = soft[:, 1] / n_near
    near_before = _up_to(soft[:, 1]) + _EMPTY
    before = _up_to(soft.sum(axis=1)) + _EMPTY
    logs = np.log(near_before / before)
    losses = -(near * logs).sum(axis=1)
    by_soft = np.empty_like(soft)
    by_soft[:, 0] = _from(near / before)
    by_soft[:, 1] = by_soft[:, 0] - _from(near / near_before) - logs / n_near
    slopes = correlate1d(by_soft, _KERNEL_SLOPE, mode="constant")
    return losses, slopes[:, :, _REACH:-_REACH]


def _up_to(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many lie before each place, with half of those at it."""
    return np.cumsum(counts, axis=-1) - 0.5 * counts


def _from(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The transpose of `_up_to`."""
    return np.cumsum(values[..., ::-1], axis=-1)[..., ::-1] - 0.5 * values


def _check_share(value: float, name: str) -> float:
    if check_positive(value, name) >= 1:
        raise InputError(f"{name} must be less than 1, got {value!r}")
    return float(value)
