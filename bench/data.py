"""Real vectors for benchmarks: the folder named by DENSEHASH_DATA, or ../shared/data beside the
checkout."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt


def data_folder() -> Path | None:
    """The folder of real vectors, if there is one."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("DENSEHASH_DATA") or beside)
    return folder if (folder / "sift.npy").exists() else None


def noisy_blocks(vectors: npt.NDArray[np.uint8], n: int) -> Iterator[npt.NDArray[np.uint8]]:
    """n rows in blocks: first the vectors, then the same again with noise, sd 4, as needed."""
    rng = np.random.default_rng(2)
    for start in range(0, n, len(vectors)):
        part = vectors[: n - start]
        if start:
            noise = 4 * rng.standard_normal(part.shape, dtype=np.float32)
            part = np.clip(np.rint(part + noise), 0, 255).astype(np.uint8)
        yield part


def noisy_rows(vectors: npt.NDArray[np.uint8], n: int) -> npt.NDArray[np.uint8]:
    """The first n rows; if there are fewer, they are repeated with noise, sd 4."""
    return np.concatenate(list(noisy_blocks(vectors, n)))


def noisy_file(path: Path, n: int) -> Path:
    """A .npy file of n SIFT rows, uint8 (n, 128), repeated with noise; made if it is missing."""
    folder = data_folder()
    if path.exists():
        return path
    if folder is None:
        raise FileNotFoundError("sift.npy is not there: name its folder by DENSEHASH_DATA")
    vectors = np.load(folder / "sift.npy", mmap_mode="r")
    part = path.with_suffix(".part")
    rows = np.lib.format.open_memmap(part, mode="w+", dtype=np.uint8, shape=(n, vectors.shape[1]))
    start = 0
    for block in noisy_blocks(vectors, n):
        rows[start : start + len(block)] = block
        start += len(block)
    rows.flush()
    part.rename(path)
    return path
