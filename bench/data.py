"""Real vectors for benchmarks: the folder named by DENSEHASH_DATA, or ../shared/data beside the
checkout."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt


def data_folder() -> Path | None:
    """The folder of real vectors, if there is one."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("DENSEHASH_DATA") or beside)
    return folder if (folder / "sift.npy").exists() else None


def noisy_rows(vectors: npt.NDArray[np.uint8], n: int) -> npt.NDArray[np.uint8]:
    """The first n rows; where there are fewer, they are repeated with noise, sd 4."""
    rng = np.random.default_rng(2)
    rows = np.empty((n, vectors.shape[1]), dtype=np.uint8)
    for start in range(0, n, len(vectors)):
        part = vectors[: n - start]
        if start:
            noise = 4 * rng.standard_normal(part.shape, dtype=np.float32)
            part = np.clip(np.rint(part + noise), 0, 255)
        rows[start : start + len(part)] = part
    return rows
