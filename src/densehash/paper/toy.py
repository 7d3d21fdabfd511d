"""Figure 1: four Gaussians in the plane, and how two bits divide them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from densehash.bits import unpack
from densehash.hashers import DSH, LSH, PCAH
from densehash.hashers.base import LinearHasher
from densehash.report import PlaneFigure, Section

__all__ = ["four_gaussians", "hashers", "section"]

_CENTERS = np.array([[-1.0, 0.0], [0.0, -1.0], [1.0, 0.0], [0.0, 1.6]])
_SPREAD = 0.16
_A_GAUSSIAN = 150  # points of each
_N_TRIES = 20


def four_gaussians() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The points, and the Gaussian of each.

    Returns
    -------
    points : float64 (600, 2)
    gaussians : int64 (600,), 0 to 3

    Examples
    --------
    >>> points, gaussians = four_gaussians()
    >>> points.shape, np.bincount(gaussians)
    ((600, 2), array([150, 150, 150, 150]))
    """
    rng = np.random.default_rng(0)
    gaussians = np.repeat(np.arange(len(_CENTERS)), _A_GAUSSIAN)
    return _CENTERS[gaussians] + _SPREAD * rng.standard_normal((len(gaussians), 2)), gaussians


def hashers() -> dict[str, LinearHasher]:
    """LSH, PCAH and DSH with two bits, fitted.

    DSH has four groups here (alpha = 2). Of twenty draws of its first centres, the one with the
    least quantisation error is kept: three passes of k-means do not find the four Gaussians from a
    bad draw.

    Examples
    --------
    >>> {name: hasher.planes_.shape for name, hasher in hashers().items()}
    {'LSH': (2, 2), 'PCAH': (2, 2), 'DSH': (2, 2)}
    """
    points, _ = four_gaussians()
    tries = [DSH(2, alpha=2, random_state=seed).fit(points) for seed in range(_N_TRIES)]
    dsh = min(tries, key=lambda hasher: float(hasher.inertia_[-1]))
    return {"LSH": LSH(2, random_state=0).fit(points), "PCAH": PCAH(2).fit(points), "DSH": dsh}


def section() -> Section:
    """Figure 1 for the report.

    Examples
    --------
    >>> [figure.name for figure in section().items]
    ['figure-1-lsh', 'figure-1-pcah', 'figure-1-dsh']
    """
    points, gaussians = four_gaussians()
    figures = []
    for name, hasher in hashers().items():
        bits = unpack(hasher.transform(points), 2)
        codes = tuple("".join("01"[bit] for bit in row) for row in bits.tolist())
        split = sum(
            len({code for code, one in zip(codes, gaussians, strict=True) if one == each}) > 1
            for each in range(len(_CENTERS))
        )
        figures.append(
            PlaneFigure(
                f"figure-1-{name.lower()}",
                name,
                tuple(points[:, 0].tolist()),
                tuple(points[:, 1].tolist()),
                codes,
                tuple(
                    _line(plane, threshold, points)
                    for plane, threshold in zip(hasher.planes_, hasher.thresholds_, strict=True)
                ),
                caption=f"{split} of 4 Gaussians are split; {len(set(codes))} of 4 codes are used.",
            )
        )
    return Section(
        "Figure 1: two bits for four Gaussians",
        tuple(figures),
        "Each point has the colour of its code; a line is where a bit changes.",
    )


def _line(
    plane: NDArray[np.floating], threshold: float, points: NDArray[np.float64]
) -> tuple[float, float, float, float]:
    """The ends of a plane within the box of the points."""
    low, high = points.min(axis=0) - 0.2, points.max(axis=0) + 0.2
    ends = []
    for axis in (0, 1):
        for edge in (low[axis], high[axis]):
            if plane[1 - axis] != 0:
                other = (threshold - plane[axis] * edge) / plane[1 - axis]
                if low[1 - axis] <= other <= high[1 - axis]:
                    ends.append((edge, other) if axis == 0 else (other, edge))
    (x0, y0), (x1, y1) = min(ends), max(ends)
    return float(x0), float(y0), float(x1), float(y1)
