"""Codes that are hard for the kernels, and a call in every way that this machine supports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from reference import Codes

from densehash import hamming

WIDTHS = (1, 7, 8, 16, 31, 32, 48, 64, 65, 96, 128, 200, 255, 256, 257, 512, 1000, 4096)
THREADS = (1, 2, 8)
SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")  # sanitizers change memory and limits
SHAPES = ("random", "pool", "equal", "near", "far", "ramp", "falling", "rising")


def clean(rows: Codes, n_bits: int) -> Codes:
    """Set the padding bits of rows to zero, in place."""
    if n_bits % 8:
        rows[:, -1] &= (1 << n_bits % 8) - 1
    return rows


def flipped(
    rng: np.random.Generator, code: Codes, n: int, n_bits: int, counts: npt.NDArray[np.int64]
) -> Codes:
    """n copies of one code; bits drawn with repetition are flipped, counts[i] draws in copy i."""
    bits = np.zeros((n, 8 * len(code)), dtype=np.uint8)
    rows = np.repeat(np.arange(n), counts)
    bits[rows, rng.integers(0, n_bits, size=len(rows))] = 1
    return np.packbits(bits, axis=1, bitorder="little") ^ code


def make(shape: str, q: int, n: int, n_bits: int, seed: int) -> tuple[Codes, Codes]:
    """Queries (q, B) and codes (n, B) with clean padding, of one of the SHAPES.

    random: the easy case. pool, equal: duplicates and ties. near: all distances small. far: all
    close to n_bits. ramp: all distances from 0 to n_bits. falling, rising: a ramp in the worst
    and the best order for a running threshold, the same for all queries, which are near one
    another.
    """
    rng = np.random.default_rng(seed)
    width = -(-n_bits // 8)
    queries = clean(rng.integers(0, 256, (q, width), dtype=np.uint8), n_bits)
    centre = clean(rng.integers(0, 256, (1, width), dtype=np.uint8), n_bits)[0]
    if shape in ("random", "pool", "equal"):
        pool = {"random": n, "pool": 5, "equal": 1}[shape]
        codes = clean(rng.integers(0, 256, (pool, width), dtype=np.uint8), n_bits)
        return queries, codes if shape == "random" else codes[rng.integers(0, pool, n)]
    queries = flipped(rng, centre, q, n_bits, rng.integers(0, 3, q))
    if shape in ("near", "far"):
        codes = flipped(rng, centre, n, n_bits, rng.integers(0, 6, n))
        return queries, codes if shape == "near" else clean(~codes, n_bits)
    # A prefix of ones: distances to the centre run evenly over 0 .. n_bits.
    lengths = rng.integers(0, n_bits + 1, n)
    if shape != "ramp":
        lengths = np.sort(lengths)[:: -1 if shape == "falling" else 1]
    bits = np.arange(8 * width) < lengths[:, None]
    return queries, np.packbits(bits, axis=1, bitorder="little") ^ centre


@contextmanager
def forced(name: str) -> Iterator[None]:
    """Run the calls inside on one instruction set, chosen by the environment, as users do."""
    before = os.environ.get("DENSEHASH_SIMD")
    os.environ["DENSEHASH_SIMD"] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ["DENSEHASH_SIMD"]
        else:
            os.environ["DENSEHASH_SIMD"] = before


def same(left: Any, right: Any) -> bool:
    """Whether two answers (arrays, or tuples of arrays) are the same bytes, types and shapes."""
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left.dtype == right.dtype and left.shape == right.shape and bool(np.all(left == right))


def everywhere(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The answer of one call, after checking that its bytes are the same for every instruction set
    of this machine and for 1, 2 and 8 threads."""
    answers = {}
    for name in hamming.instruction_sets():
        with forced(name):
            for n_threads in THREADS:
                answers[name, n_threads] = function(*args, **kwargs, n_threads=n_threads)
    first, *others = answers
    for other in others:
        assert same(answers[first], answers[other]), f"{other} differs from {first}"
    return answers[first]


def check(function: Callable[..., Any], expected: Any, *args: Any, **kwargs: Any) -> None:
    """Compare one call, run everywhere, with what is expected, to the byte."""
    found = everywhere(function, *args, **kwargs)
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for got, want in pairs:
        assert got.dtype == want.dtype
        assert got.flags.c_contiguous
        assert got.flags.writeable
        np.testing.assert_array_equal(got, want, strict=True)
