"""Measures how long work on a GPU takes, against limits for an NVIDIA H200.

    python bench/gpu.py [--only WORD] [--json FILE]

Data is random, and on the device before the clock starts. A figure is the median of several times,
after some that do not count, because kernels are compiled then. CUDA events measure milliseconds,
the clock measures seconds. On another GPU, the limits are only for comparison.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_hashers import CASES as OF_HASHERS
from gpu_timing import Case, milliseconds, seconds
from numpy.random import RandomState

from densehash import Index, hamming
from densehash.index.grouping import Centers
from densehash.index.kinds import Grouped
from densehash.index.sketches import Signs
from densehash.rows import rows_of
from densehash.truth import nearest

DEVICE = "cuda"


def chance() -> Any:
    return torch.Generator(DEVICE).manual_seed(0)


def top_k() -> float:
    codes, queries = (
        torch.randint(0, 256, (n, 32), dtype=torch.uint8, device=DEVICE, generator=chance())
        for n in (1_000_000, 10_000)
    )
    return milliseconds(lambda: hamming.top_k(queries, codes, 100))


def truth() -> float:
    X = torch.randn(1_010_000, 128, device=DEVICE, generator=chance())
    rows, queries = X[:1_000_000], X[1_000_000:]
    return milliseconds(lambda: nearest(queries, rows, k=100))


def rows_in_groups() -> Any:
    """Rows like embeddings: near a subspace of 24 dimensions."""
    directions = torch.randn(24, 128, device=DEVICE, generator=chance())
    X = torch.randn(1_000_000, 24, device=DEVICE, generator=chance()) @ directions
    return X.add_(torch.randn(X.shape, device=DEVICE, generator=chance()), alpha=0.3)


def sketches() -> float:
    X = rows_in_groups()
    kind = Grouped(Centers.learn(rows_of(X), 2000, RandomState(0)))

    def made() -> None:
        sketch = Signs.learn(rows_of(X), kind, n_bits=128, metric="l2", random_state=RandomState(0))
        sketch.encode(X, kind.labels(X))

    return seconds(made)


def index() -> float:
    X = rows_in_groups()
    folder = Path(tempfile.mkdtemp())

    def built() -> None:
        Index.build(X, path=folder / "rows.dh", random_state=0)

    try:
        return seconds(built)
    finally:
        shutil.rmtree(folder)


CASES = [
    *OF_HASHERS,
    Case("top_k, 10,000 queries, 1M × 256 bits, k = 100", 30, "ms", top_k),
    Case("truth.nearest, 10,000 queries, 1M × 128, k = 100", 60, "ms", truth),
    Case("sketches of 128 bits of 1M × 128, learnt and encoded", 1, "s", sketches),
    Case("Index.build of 1M × 128 from a tensor, written to disk", 3, "s", index),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="cases whose name has this word")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    told = parser.parse_args()
    if not torch.cuda.is_available():
        print("this needs a CUDA GPU, and torch sees none", file=sys.stderr)
        return 1
    about = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    records = []
    for case in CASES:
        if told.only not in case.name:
            continue
        measured = case.measure()
        torch.cuda.empty_cache()
        met = case.is_met(measured)
        records.append(
            {"name": case.name, "limit": case.limit, "measured": measured, "unit": case.unit}
        )
        bound = "at least" if case.unit == "%" else "at most"
        print(
            f"{case.name:60} {bound} {case.limit:g} {case.unit:2} "
            f"measured {measured:8.3g} {case.unit:2} {'ok' if met else 'MISSED'}",
            flush=True,
        )
    if told.json is not None:
        told.json.write_text(json.dumps({"about": about, "cases": records}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
