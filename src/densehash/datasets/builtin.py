"""Real vectors that need no download: made from the pictures inside scikit-learn."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from densehash.errors import MissingExtraError

__all__ = ["digits", "patches"]

_SIDE = 12
_STEP = 2
_N_SCALES = 3
_LEAST_CONTRAST = 2


def digits() -> NDArray[np.uint8]:
    """Handwritten digits: 1,797 pictures of 8 x 8 pixels, from 0 to 16.

    Returns
    -------
    uint8 array of shape (1797, 64), in the order of scikit-learn's ``load_digits``

    Examples
    --------
    >>> digits().shape
    (1797, 64)
    """
    from sklearn.datasets import load_digits  # noqa: PLC0415  most sets are files

    return np.asarray(load_digits().data).astype(np.uint8)


def patches() -> NDArray[np.uint8]:
    """Some 110,000 patches of 12 x 12 pixels, cut from two photographs.

    The photographs are those of scikit-learn, a pagoda and a flower, in grey, at full, half and
    quarter size. A window is cut at every second pixel of every second line. Its mean brightness is
    subtracted, so that rows do not depend on how much light there was. Windows that show nothing (a
    standard deviation below 2 grey levels, as in sky or blur) are left out. ``docs/datasets.md``
    compares the rows with image descriptors.

    Returns
    -------
    uint8 array of shape (n, 144), n about 110,000: half the difference of a pixel and the
    window's mean, plus 128. The rows are shuffled with a fixed seed, so that the first rows are a
    fair sample of all

    Examples
    --------
    >>> patches().shape[1]  # doctest: +SKIP
    144
    """
    from sklearn.datasets import load_sample_images  # noqa: PLC0415  most sets are files

    try:
        photographs = load_sample_images().images
    except ImportError:
        raise MissingExtraError(
            "the photographs of the set 'patches' are JPEG files, which need Pillow: "
            "pip install densehash[images]"
        ) from None
    rows = []
    for photograph in photographs:
        picture = _grey(photograph)
        for _ in range(_N_SCALES):
            rows.append(_windows(picture))
            picture = _half(picture)
    together = np.concatenate(rows)
    # RandomState draws the same numbers in every version of numpy.
    return together[np.random.RandomState(0).permutation(len(together))]


# All of it uses only integers, so that a set is the same on every machine.


def _grey(photograph: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Brightness of a photograph (height, width, 3): the luma of JPEG, rounded."""
    weights = np.array([299, 587, 114], dtype=np.int32)
    brightness: NDArray[np.int32] = (photograph.astype(np.int32) @ weights + 500) // 1000
    return brightness


def _half(picture: NDArray[np.int32]) -> NDArray[np.int32]:
    """Half as high and half as wide: rounded means of 2 x 2 pixels, without an odd last line."""
    height, width = picture.shape[0] // 2, picture.shape[1] // 2
    squares = picture[: 2 * height, : 2 * width].reshape(height, 2, width, 2)
    means: NDArray[np.int32] = (squares.sum(axis=(1, 3), dtype=np.int32) + 2) // 4
    return means


def _windows(picture: NDArray[np.int32]) -> NDArray[np.uint8]:
    """The windows of a picture, uint8 (m, 144), without those that show nothing."""
    size = _SIDE * _SIDE
    windows = sliding_window_view(picture, (_SIDE, _SIDE))[::_STEP, ::_STEP].reshape(-1, size)
    sums = windows.sum(axis=1, dtype=np.int32)
    squares = np.square(windows).sum(axis=1, dtype=np.int32)
    # size² times the variance
    shown = size * squares.astype(np.int64) - np.square(sums, dtype=np.int64) >= (
        (_LEAST_CONTRAST * size) ** 2
    )
    differences = size * windows[shown] - sums[shown, np.newaxis]
    # Half of a difference is strictly between -127.5 and 127.5, so nothing is clipped.
    halves: NDArray[np.int32] = (differences + size) // (2 * size) + 128
    return halves.astype(np.uint8)
