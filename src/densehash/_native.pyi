"""Types of the native module; its sources are in native/."""

import numpy as np
from numpy.typing import NDArray

def top_k(
    queries: NDArray[np.uint8], codes: NDArray[np.uint8], k: int, n_threads: int, simd: str
) -> tuple[NDArray[np.int32], NDArray[np.int64]]: ...
def within(
    queries: NDArray[np.uint8], codes: NDArray[np.uint8], radius: int, n_threads: int, simd: str
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]: ...
def distances(
    queries: NDArray[np.uint8], codes: NDArray[np.uint8], n_threads: int, simd: str
) -> NDArray[np.uint16]: ...
def histogram(
    queries: NDArray[np.uint8], codes: NDArray[np.uint8], n_threads: int, simd: str
) -> NDArray[np.int64]: ...
def histograms(
    queries: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    limits: NDArray[np.int64],
    positions: NDArray[np.int64],
    n_threads: int,
    simd: str,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
def table_histogram(
    tables: NDArray[np.uint16],
    codes: NDArray[np.uint8],
    n_levels: int,
    shift: int,
    n_threads: int,
) -> NDArray[np.int64]: ...
def table_histograms(
    tables: NDArray[np.uint16],
    codes: NDArray[np.uint8],
    limits: NDArray[np.int64],
    positions: NDArray[np.int64],
    n_levels: int,
    shift: int,
    n_threads: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
def instruction_sets() -> tuple[str, ...]: ...
