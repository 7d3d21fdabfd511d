"""Refined: planes of another hasher, moved so that near rows rank first by Hamming distance.

The method is our own; ``docs/refined.md`` is its paper. In short: among rows drawn at random, the
few rows nearest to an anchor should come before all others. The loss measures how far the order is
from this. The loss and its derivative depend only on counts: how many near and how many far rows
lie at each Hamming distance. The sign of a margin has no useful slope, so the gradient uses a
smooth slope instead.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from copy import deepcopy
from functools import partial
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.linalg
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.base import clone

from densehash.checks import check_integer, check_positive
from densehash.columns import is_tensor, on_gpu
from densehash.errors import InputError
from densehash.hashers.base import LinearHasher
from densehash.hashers.moments import principal_directions
from densehash.parallel import map_in_order, n_threads
from densehash.progress import bar
from densehash.rows import Floats, Rows, rows_of
from densehash.rows.numerics import (
    as_type,
    column_stds,
    column_sums,
    correlate,
    count,
    like,
    module_of,
    nth_smallest,
    recorded,
    take_rows,
    to_host,
)

__all__ = ["Refined", "ranking_loss", "sign_slope"]

# All of these were chosen by ablation on ten sets; docs/refined.md has the figures.
_STEP = 0.15  # size of a step at full rate, relative to the size of a plane
_WIDTH = 0.2  # of the smooth slope that replaces the slope of the sign, in standard deviations
_SMOOTHING = 1.0  # standard deviation of the kernel over distances, in bits
_N_ANCHORS = 128
_N_RANKED = 1024  # rows that anchors rank in one step

# A coordinate of a plane is worth learning if there are this many rows to learn it from.
_ROWS_A_COORDINATE = 32
_FEWEST_COORDINATES = 32
_MOST_COORDINATES = 512
_MOST_NUMBERS = 1 << 24  # in the sample: 64 MB

_DRAWS_AT_ONCE = 64  # on a device: a single draw is too small to keep it busy

_N_HELD_OUT = 256  # anchors that are never used for learning
_N_HELD_OUT_RANKED = 4096
_N_CHECKS = 20  # of the held-out loss, in a full run
_PATIENCE = 6  # checks without a new minimum

# Parameters of Adam; the last keeps its quotient finite.
_MOMENTUM, _MEMORY, _TINY = 0.9, 0.99, 1e-20

_REACH = 4  # bits
_OFFSETS = np.arange(-_REACH, _REACH + 1)
_KERNEL = np.exp(-0.5 * (_OFFSETS / _SMOOTHING) ** 2)
_KERNEL /= _KERNEL.sum()
# How the value of the kernel at each distance changes as its middle moves up.
_KERNEL_SLOPE = _KERNEL * _OFFSETS / _SMOOTHING**2
_EMPTY = 1e-3  # added to both counts of a precision, so that it is 1 if there are no rows


class Refined(LinearHasher):
    """The planes of a linear hasher, refined by gradient steps.

    First the linear hasher is fitted. Then its planes and thresholds move so that, for rows drawn
    at random, the nearest other rows come first by Hamming distance. Labels are not used. The
    result is the planes that rank best for held-out rows, which are never used for learning. These
    can be the planes of the linear hasher itself.

    Parameters
    ----------
    hasher : a linear hasher: DSH, ITQ, LSH or PCAH. It is cloned and does not change.
    n_steps : the most gradient steps to take, default 3000; 0 keeps the planes of the hasher
    near : which share of the rows counts as near to a row, more than 0 and less than 1, default
        0.02
    n_rows : the most rows to learn from, default 65,536; fewer if d is large, to save memory
    random_state : seed or generator that draws the rows; also used by ``hasher`` if that has no
        ``random_state``
    verbose : 1 shows a progress bar during a long fit

    Attributes
    ----------
    planes_ : float64 array of shape (n_bits, d)
    thresholds_ : float64 array of shape (n_bits,)
    hasher_ : the fitted linear hasher, with its planes before they were refined
    losses_ : float64 array of shape (1 + checks,): ``ranking_loss`` for held-out rows, at the
        beginning and after each twentieth of the steps; empty if there are too few rows
    n_steps_ : how many steps were taken; fewer than ``n_steps`` if the loss stopped falling

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

    learnt: ClassVar[dict[str, str]] = {
        **LinearHasher.learnt,
        "hasher_": "hasher",
        "losses_": "n*",
        "n_steps_": "int",
    }
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
            # A generator of its own: rows are drawn ahead, and the number of threads decides how
            # many.
            chance=RandomState(random_state.randint(1 << 31)),
            shown=self.verbose > 0,
        )
        self.n_steps_, self.losses_ = found.n_steps, found.losses
        if found.losses.argmin() > 0:  # otherwise the first planes stay, without rounding errors
            self.planes_, self.thresholds_ = frame.leave(found.planes)

    def _fit_hasher(self, rows: Rows, random_state: RandomState) -> LinearHasher:
        hasher: LinearHasher = clone(self.hasher)
        # `fit` has set these before it learns: they are the same for both hashers.
        hasher.__dict__ |= {name: known for name, known in vars(self).items() if name[-1] == "_"}
        own = hasher.random_state is not None
        hasher._learn(rows, hasher._check_random_state() if own else random_state)
        return hasher


class _Frame(NamedTuple):
    """Coordinates for learning: rows have mean 0, total variance 1, and a last coordinate of −1.

    Because of the −1, a threshold is one more coordinate of its plane.
    """

    center: NDArray[np.float64]  # (d,)
    axes: NDArray[np.float64]  # (c, d), orthonormal
    scale: float

    def place(self, block: Floats) -> NDArray[np.float32]:
        """Rows (b, d) as rows (b, c + 1)."""
        axes = like((self.axes / self.scale).T, block)
        placed = as_type((block - like(self.center, block)) @ axes, np.float32)
        xp = module_of(block)
        whole: NDArray[np.float32] = xp.concatenate([placed, xp.full_like(placed[:, :1], -1)], 1)
        return whole

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
    """As many principal directions as the rows can teach, and the directions the planes need."""
    d = rows.n_features
    most = min(max(n_rows // _ROWS_A_COORDINATE, _FEWEST_COORDINATES), _MOST_COORDINATES, d)
    some = rows.sample(min(n_rows, max(_MOST_NUMBERS // (2 * d), 2)), random_state)
    center = column_sums(some) / len(some)
    axes, _ = principal_directions(rows_of(some), center, most)
    away = as_type(some, np.float64) - like(center, as_type(some, np.float64))
    scale = float(np.sqrt((column_sums(away * away) / len(some)).sum()))
    if most < d:
        # The coordinates must hold the planes fully, or learning would begin with worse planes.
        rest = planes - (planes @ axes.T) @ axes
        _, sizes, others = scipy.linalg.svd(rest, full_matrices=False)
        others = others[sizes > 1e-6 * np.linalg.norm(planes, axis=1).max()]
        axes = scipy.linalg.qr(np.vstack([axes, others]).T, mode="economic")[0].T
    return _Frame(center, axes, scale)


class _Refinement(NamedTuple):
    planes: NDArray[np.float32]  # (L, c + 1), the planes of the lowest loss
    losses: NDArray[np.float64]  # of held-out rows: at the beginning, then at each check
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
    """Gradient steps by Adam: half of them at full rate, the others at a rate that falls to zero.

    If the held-out loss has no new minimum for some checks, the rate begins to fall earlier, over
    as many steps as were taken before. If the loss then has no new minimum for some checks,
    learning ends.
    """
    n_bits, width = planes.shape
    order = chance.permutation(len(sample))
    held_out, learnt = order[:n_held_out], order[n_held_out:]
    n_ranked = min(len(learnt), _N_HELD_OUT_RANKED, max((1 << 22) // n_bits, _N_RANKED))
    exam = _draw(sample, np.concatenate([held_out, learnt[:n_ranked]]), n_held_out, share, n_bits)

    learner = _Adam(like(planes, sample))
    planes = learner.planes
    best, losses, best_at = deepcopy(planes), [_loss(exam, planes)], 0
    n_full = (n_steps + 1) // 2
    every = max(n_steps // _N_CHECKS, 1)
    step = 0
    lots = _lots(learnt, chance)
    n_anchors = min(_N_ANCHORS, max(len(learnt) // 9, 1))
    draws = _draws(sample, lots, n_anchors, share, n_bits)
    with closing(draws), bar("refining", n_steps, shown=shown) as advance:
        for draw in draws:
            slowness = max(step / n_full - 1, 0)
            rate = _STEP / np.sqrt(width) * 0.5 * (1 + np.cos(np.pi * slowness))
            step += 1
            learner.learn(draw, rate / (1 - _MOMENTUM**step), 1 - _MEMORY**step)
            advance(1)
            ended = step >= min(2 * n_full, n_steps)
            if step % every and not ended:
                continue
            losses.append(_loss(exam, planes))
            if losses[-1] < min(losses[:-1]):
                best, best_at = deepcopy(planes), step
            if step < n_full and step - best_at >= _PATIENCE * every:
                n_full = step
            if ended or step - max(best_at, n_full) >= _PATIENCE * every:
                break
    return _Refinement(to_host(best), np.array(losses), step)


class _Adam:
    """Planes (L, c + 1) that learn, in place, and the moments of their gradients."""

    def __init__(self, planes: NDArray[np.float32]) -> None:
        self.planes = deepcopy(planes)
        self._moments = [module_of(planes).zeros_like(planes) for _ in range(2)]
        self._replay: Callable[..., None] | None = None

    def learn(self, draw: _Draw, rate: float, memory: float) -> None:
        """One step at this rate; divide the mean square by ``memory``, as it began with zero."""
        rows: Any = draw.rows
        mean, square = self._moments
        # Rounded here: torch would round numbers of Python, but older versions of numpy would not.
        scalars = float(np.float32(rate)), float(np.float32(memory))
        step = partial(_step, n_cells=draw.n_cells)
        if not on_gpu(rows):
            step(self.planes, mean, square, rows, draw.cells, *scalars)
            return
        if self._replay is None:
            places = deepcopy(rows), deepcopy(draw.cells), rows.new_ones(()), rows.new_ones(())
            self._replay = recorded(step, self.planes, mean, square, *places)
        self._replay(None, None, None, rows, draw.cells, *scalars)


def _step(
    planes: NDArray[np.float32],
    mean: NDArray[np.float32],
    square: NDArray[np.float32],
    rows: NDArray[np.float32],
    cells: NDArray[np.float32],
    rate: float,
    memory: float,
    *,
    n_cells: tuple[int, int, int],
) -> None:
    gradient = _gradient(_Draw(rows, cells, n_cells), planes)
    mean += (1 - _MOMENTUM) * (gradient - mean)
    square += (1 - _MEMORY) * (gradient * gradient - square)
    size = (square / memory) ** 0.5 + _TINY
    planes -= mean * rate / size


def _lots(positions: NDArray[np.int64], chance: RandomState) -> Iterator[NDArray[np.int64]]:
    """Positions for one step after another, all different within a step.

    They follow a random order; when it is used up, a new one begins.
    """
    size = min(_N_ANCHORS + _N_RANKED, len(positions))
    while True:
        order = chance.permutation(positions)
        for start in range(0, len(order) - size + 1, size):
            yield order[start : start + size]


class _Draw(NamedTuple):
    """Rows of which the first are anchors, which rank the others, and which pairs are near.

    If s is the dot product of the signs of a pair, ``cells − s / 2`` is the number of its cell.
    Cells are numbered by anchor, then by far and near, then by distance from 0 to L.
    """

    rows: NDArray[np.float32]  # (A + B, c + 1)
    cells: NDArray[np.float32]  # (A, B)
    n_cells: tuple[int, int, int]  # (A, 2, L + 1)


def _draws(
    sample: NDArray[np.float32],
    lots: Iterator[NDArray[np.int64]],
    n_anchors: int,
    share: float,
    n_bits: int,
) -> Generator[_Draw, None, None]:
    """A draw for each step: threads make them ahead; on a tensor, many are made at a time."""
    if not is_tensor(sample):
        yield from map_in_order(
            lambda lot: _draw(sample, lot, n_anchors, share, n_bits), lots, min(n_threads(), 2)
        )
        return
    while True:
        many = _draw(sample, np.stack([*islice(lots, _DRAWS_AT_ONCE)]), n_anchors, share, n_bits)
        for rows, cells in zip(many.rows, many.cells, strict=True):
            yield _Draw(rows, cells, many.n_cells)


def _draw(
    sample: NDArray[np.float32],
    positions: NDArray[np.int64],
    n_anchors: int,
    share: float,
    n_bits: int,
) -> _Draw:
    """The draw of the rows at positions (A + B,); or many draws, from positions (m, A + B)."""
    rows = take_rows(sample, positions)
    ranked = rows[..., n_anchors:, :]
    # Squared distances, without the square of the anchor, which is the same for all rows.
    distances = rows[..., :n_anchors, :] @ (-2 * ranked).swapaxes(-1, -2)
    squares = module_of(sample).einsum("...ij,...ij->...i", ranked, ranked)
    distances += squares[..., None, :]
    n_ranked = ranked.shape[-2]
    n_near = min(max(round(share * n_ranked), 1), n_ranked)
    near = like(distances <= nth_smallest(distances, n_near), distances)
    anchors = like(np.arange(n_anchors)[:, np.newaxis], distances)
    cells = (2 * anchors + near) * (n_bits + 1) + n_bits / 2
    return _Draw(rows, as_type(cells, np.float32), (n_anchors, 2, n_bits + 1))


def _cells(draw: _Draw, signs: NDArray[np.float32]) -> NDArray[np.intp]:
    """The cell (A, B) of every pair, from signs (A + B, L)."""
    n_anchors = draw.n_cells[0]
    halves = (0.5 * signs[:n_anchors]) @ signs[n_anchors:].T
    return as_type(module_of(halves).subtract(draw.cells, halves, out=halves), np.intp)


def _counts(draw: _Draw, cells: NDArray[np.intp]) -> NDArray[np.intp]:
    found: NDArray[np.intp] = count(cells.ravel(), int(np.prod(draw.n_cells)))
    return found.reshape(draw.n_cells)


def _loss(draw: _Draw, planes: NDArray[np.float32]) -> float:
    signs = _signs(draw.rows @ planes.T)
    return float(ranking_loss(_counts(draw, _cells(draw, signs)))[0].mean())


def _gradient(draw: _Draw, planes: NDArray[np.float32]) -> NDArray[np.float32]:
    """The derivative of the mean loss by planes (L, c + 1), with :func:`sign_slope` for signs."""
    n_anchors = draw.n_cells[0]
    margins = draw.rows @ planes.T
    signs, xp = _signs(margins), module_of(margins)
    cells = _cells(draw, signs)
    _, slopes = ranking_loss(_counts(draw, cells))
    # A distance is (L − s) / 2 for the dot product s of two rows' signs.
    by_product = as_type(slopes * (-0.5 / n_anchors), np.float32).ravel().take(cells)
    by_sign = xp.empty_like(signs)
    xp.matmul(by_product, signs[n_anchors:], out=by_sign[:n_anchors])
    xp.matmul(by_product.T, signs[:n_anchors], out=by_sign[n_anchors:])
    by_sign *= sign_slope(margins)
    gradient: NDArray[np.float32] = by_sign.T @ draw.rows
    return gradient


def _signs(margins: NDArray[np.float32]) -> NDArray[np.float32]:
    xp = module_of(margins)
    signs: NDArray[np.float32] = xp.copysign(xp.ones_like(margins), margins)
    return signs


def sign_slope(margins: Floats) -> Floats:
    """The smooth slope that replaces the slope of the sign.

    It is 1 / (1 + abs(z))², where z is a margin divided by 0.2 standard deviations of its column.
    This is the derivative of z / (1 + abs(z)), except for a factor for each column.

    Parameters
    ----------
    margins : float array or tensor of shape (n, L)

    Returns
    -------
    an array or tensor of the same shape (n, L) and type, from 0 to 1

    Examples
    --------
    >>> sign_slope(np.array([[-1.0], [0.0], [1.0]])).round(3).ravel()
    array([0.02, 1.  , 0.02])
    """
    width = _WIDTH * column_stds(margins)
    slope = abs(margins)
    slope /= width.clip(1e-12)
    slope += 1
    slope *= slope
    return 1 / slope


def ranking_loss(
    counts: NDArray[np.integer] | NDArray[np.floating],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The loss, which says how late near rows come in a ranking by distance, and its slopes.

    The loss of an anchor is the mean of −log(precision) over its near rows. The precision at a row
    is the share of near rows among all rows before it and half of the rows at its distance. The
    loss is 0 if all near rows come first. A Gaussian kernel spreads the counts over neighbouring
    distances, so that the loss is a smooth function of distances.

    Parameters
    ----------
    counts : array of shape (A, 2, L + 1): for each anchor, how many far rows, and how many near
        rows, lie at each distance

    Returns
    -------
    losses : float64 array of shape (A,)
    slopes : float64 array of shape (A, 2, L + 1): how the loss of an anchor changes if one far
        row, or one near row, at each distance moves away

    Examples
    --------
    For the first anchor, three near rows come before nine far ones. For the second, they come after
    them: its loss falls if near rows come nearer and far rows go farther.

    >>> at_0, at_8 = np.eye(9, dtype=int)[[0, 8]]
    >>> losses, slopes = ranking_loss(np.array([[9 * at_8, 3 * at_0], [9 * at_0, 3 * at_8]]))
    >>> losses.round(2)
    array([0. , 2.2])
    >>> bool(slopes[1, 1, 8] > 0 > slopes[1, 0, 0])
    True
    """
    xp = module_of(counts)
    n_near = counts[:, 1].sum(axis=1, keepdims=True).clip(1)
    soft = correlate(_with_room(as_type(counts, np.float64)), _KERNEL)
    near = soft[:, 1] / n_near
    near_before = _up_to(soft[:, 1]) + _EMPTY
    before = _up_to(soft.sum(axis=1)) + _EMPTY
    logs = xp.log(near_before / before)
    losses = -(near * logs).sum(axis=1)
    by_soft = xp.empty_like(soft)
    by_soft[:, 0] = _from(near / before)
    by_soft[:, 1] = by_soft[:, 0] - _from(near / near_before) - logs / n_near
    slopes = correlate(by_soft, _KERNEL_SLOPE)
    return losses, slopes[:, :, _REACH:-_REACH]


def _with_room(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The counts with zeros before and after them, as many as the kernel reaches."""
    none = [module_of(counts).zeros_like(counts[..., :1])] * _REACH
    wider: NDArray[np.float64] = module_of(counts).concatenate([*none, counts, *none], -1)
    return wider


def _up_to(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many lie before each place, plus half of those at the place."""
    return counts.cumsum(-1) - 0.5 * counts


def _from(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The transpose of `_up_to`."""
    xp = module_of(values)
    whole: NDArray[np.float64] = xp.flip(xp.flip(values, (-1,)).cumsum(-1), (-1,)) - 0.5 * values
    return whole


def _check_share(value: float, name: str) -> float:
    if check_positive(value, name) >= 1:
        raise InputError(f"{name} must be less than 1, got {value!r}")
    return float(value)
