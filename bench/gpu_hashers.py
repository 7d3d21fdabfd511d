"""Hashers on a GPU: cases for ``bench/gpu.py``."""

from __future__ import annotations

from typing import Any

import torch
from gpu_timing import Case, milliseconds, seconds

from densehash import DSH, Refined, device

__all__ = ["CASES"]

DEVICE = "cuda"


def rows(n: int, d: int) -> Any:
    """Rows like embeddings: near a subspace of 48 dimensions, with noise."""
    chance = torch.Generator(DEVICE).manual_seed(0)
    directions = torch.randn(48, d, device=DEVICE, generator=chance)
    X = torch.randn(n, 48, device=DEVICE, generator=chance) @ directions
    return X.add_(torch.randn(X.shape, device=DEVICE, generator=chance))


def fit() -> float:
    X = rows(1_000_000, 960)
    return milliseconds(lambda: DSH(64, random_state=0).fit(X))


def transform() -> float:
    X = rows(1_000_000, 960)
    hasher = DSH(64, random_state=0).fit(X)
    return milliseconds(lambda: hasher.transform(X))


def refined() -> float:
    X = rows(1_000_000, 128)
    return seconds(lambda: Refined(DSH(64), random_state=0).fit(X))


def copy_rate() -> float:
    """Bytes a second from pinned memory: the fastest possible copy."""
    pinned = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
    there = torch.empty_like(pinned, device=DEVICE)
    taken = milliseconds(lambda: there.copy_(pinned, non_blocking=True))
    return float(1e3 * pinned.nbytes / taken)


def streamed_fit() -> float:
    """Rows that are kept on the device after the first of three passes."""
    X = rows(1_000_000, 960).cpu().numpy()
    torch.cuda.empty_cache()
    hasher = DSH(64, random_state=0)
    with device(DEVICE):
        taken = seconds(lambda: hasher.fit(X))
    return float(100 * hasher.p * X.nbytes / taken / copy_rate())


def streamed_passes() -> float:
    """Rows that are not kept, as if the device were full: all are copied in each pass."""
    from densehash.rows import devices

    X = rows(1_000_000, 960).cpu().numpy()
    torch.cuda.empty_cache()
    kept, devices._MOST_KEPT = devices._MOST_KEPT, 0.0
    hasher = DSH(64, random_state=0, p=10)
    try:
        with device(DEVICE):
            taken = seconds(lambda: hasher.fit(X))
    finally:
        devices._MOST_KEPT = kept
    return float(100 * hasher.p * X.nbytes / taken / copy_rate())


CASES = [
    Case("DSH(64).fit, 1M × 960 float32", 25, "ms", fit),
    Case("DSH(64).transform, 1M × 960 float32", 4, "ms", transform),
    Case("Refined(DSH(64)).fit, 1M × 128", 2.5, "s", refined),
    Case("streamed fit of 1M × 960, of the fastest copy's rate", 80, "%", streamed_passes),
    Case("the same in 3 passes, rows kept on the device", 80, "%", streamed_fit),
]
