# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Products of rows with a few others on the cores for matrices: margins, nearest centres, sums.

A float32 is the sum of three bfloat16, and a product of two float32 that of six products of them,
but for what float32 rounds off; three of them keep 16 bits. All sums have one order, whatever the
number of rows: a row has the same margins alone and among others.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

__all__ = ["margins", "nearest_centers", "sums_by_label"]

_ROWS = 128
# The nearest centre of wider rows is found by 16 bits of each number: what that rounds off is as
# little, in sums so long, as what float32 does.
_FEW_FEATURES = 256
_FEWEST_COLUMNS, _MOST_COLUMNS = 16, 128
_SUM_ROWS, _SUM_FEATURES = 64, 64
_PROGRAMS = 2048


# Triton compiles a kernel anew for whole numbers that are multiples of 16, or 1. Of these nothing
# is gained by that, and groups of many sizes took ten seconds to compile for.
_counts = triton.jit(do_not_specialize=["n", "k", "each"])


@triton.jit
def _split(numbers):
    """Three bfloat16 whose sum a float32 is."""
    high = numbers.to(tl.bfloat16)
    rest = numbers - high.to(tl.float32)
    middle = rest.to(tl.bfloat16)
    low = (rest - middle.to(tl.float32)).to(tl.bfloat16)
    return high, middle, low


@triton.jit
def _products(
    rows,
    parts,
    row,
    column,
    n,
    d,
    width,
    part,
    ALL: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    FEATURES: tl.constexpr,
):
    found = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, width, FEATURES):
        feature = start + tl.arange(0, FEATURES)
        some = tl.load(
            rows + row[:, None] * d + feature[None, :],
            mask=(row[:, None] < n) & (feature[None, :] < d),
            other=0.0,
        )
        at = parts + column[None, :] * width + feature[:, None]
        high, middle, low = _split(some)
        other_high = tl.load(at)
        other_middle = tl.load(at + part)
        # Cores for matrices cut off what they add to a large sum, so each few have their own.
        few = tl.dot(high, other_middle)
        few = tl.dot(middle, other_high, few)
        if ALL:
            few = tl.dot(middle, other_middle, few)
            few = tl.dot(high, tl.load(at + 2 * part), few)
            few = tl.dot(low, other_high, few)
        found += tl.dot(high, other_high, few)
    return found


@_counts
def _margins(
    rows,
    parts,
    limits,
    margins,
    n,
    d,
    m,
    width,
    part,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    FEATURES: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    found = _products(rows, parts, row, column, n, d, width, part, True, ROWS, COLUMNS, FEATURES)
    found -= tl.load(limits + column, mask=column < m, other=0.0)[None, :]
    at = margins + row[:, None] * m + column[None, :]
    tl.store(at, found, mask=(row[:, None] < n) & (column[None, :] < m))


@_counts
def _nearest(
    rows,
    parts,
    halves,
    labels,
    scores,
    n,
    d,
    k,
    width,
    part,
    ALL: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    FEATURES: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    best = tl.full((ROWS,), float("-inf"), tl.float32)
    nearest = tl.zeros((ROWS,), tl.int32)
    for first in range(0, k, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        found = _products(rows, parts, row, column, n, d, width, part, ALL, ROWS, COLUMNS, FEATURES)
        found -= tl.load(halves + column, mask=column < k, other=float("inf"))[None, :]
        highest = tl.max(found, 1)
        nearest = tl.where(highest > best, first + tl.argmax(found, 1), nearest)
        best = tl.maximum(highest, best)
    tl.store(labels + row, nearest.to(tl.int64), mask=row < n)
    tl.store(scores + row, best, mask=row < n)


@_counts
def _sums(
    rows,
    labels,
    sums,
    n,
    d,
    k,
    each,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    FEATURES: tl.constexpr,
):
    feature = tl.program_id(0) * FEATURES + tl.arange(0, FEATURES)
    center = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    found = tl.zeros((COLUMNS, FEATURES), tl.float32)
    begin = tl.program_id(1).to(tl.int64) * each
    for start in range(0, each, ROWS):
        row = begin + start + tl.arange(0, ROWS)
        label = tl.load(labels + row, mask=row < n, other=-1)
        some = tl.load(
            rows + row[:, None] * d + feature[None, :],
            mask=(row[:, None] < n) & (feature[None, :] < d),
            other=0.0,
        )
        members = (center[:, None] == label[None, :].to(tl.int32)).to(tl.bfloat16)
        high, middle, low = _split(some)
        few = tl.dot(members, low)
        few = tl.dot(members, middle, few)
        found += tl.dot(members, high, few)
    at = (tl.program_id(1).to(tl.int64) * k + center[:, None]) * d + feature[None, :]
    tl.store(sums + at, found, mask=(center[:, None] < k) & (feature[None, :] < d))


class _Parts:
    """Others (m, d) as three bfloat16 each, zeros to whole tiles, and how to go through them."""

    def __init__(self, others: Any, features: int, warps: int) -> None:
        m, d = others.shape
        self.features, self.warps = features, warps
        self.columns = min(max(triton.next_power_of_2(m), _FEWEST_COLUMNS), _MOST_COLUMNS)
        self.width = triton.cdiv(d, features) * features
        shape = (3, triton.cdiv(m, self.columns) * self.columns, self.width)
        self.numbers = torch.zeros(shape, dtype=torch.bfloat16, device=others.device)
        rest = others
        for part in self.numbers:
            part[:m, :d] = rest
            rest = rest - part[:m, :d]
        self.size = shape[1] * shape[2]

    def tiles(self) -> dict[str, int]:
        sizes = {"ROWS": _ROWS, "COLUMNS": self.columns, "FEATURES": self.features}
        return {**sizes, "num_warps": self.warps if self.columns == _MOST_COLUMNS else 4}


def margins(rows: Any, planes: Any, thresholds: Any) -> Any:
    """Products of rows with planes, less thresholds.

    Parameters
    ----------
    rows : float32 tensor (n, d) of CUDA, contiguous
    planes, thresholds : float32 tensors (m, d) and (m,) there

    Returns
    -------
    float32 tensor (n, m)
    """
    (n, d), m, parts = rows.shape, len(planes), _Parts(planes, 32, 8)
    found = torch.empty((n, m), dtype=torch.float32, device=rows.device)
    grid = triton.cdiv(n, _ROWS), triton.cdiv(m, parts.columns)
    with torch.cuda.device(rows.device):
        _margins[grid](
            rows,
            parts.numbers,
            thresholds,
            found,
            n,
            d,
            m,
            parts.width,
            parts.size,
            **parts.tiles(),
        )
    return found


def nearest_centers(rows: Any, centers: Any) -> tuple[Any, Any]:
    """The nearest centre of every row; the first of several equally near.

    Parameters
    ----------
    rows : float32 tensor (n, d) of CUDA, contiguous
    centers : float32 tensor (k, d) there

    Returns
    -------
    labels : int64 tensor (n,)
    scores : float32 tensor (n,), the products with the centre less half of its square
    """
    (n, d), k, parts = rows.shape, len(centers), _Parts(centers, 64, 8)
    halves = 0.5 * (centers * centers).sum(1)
    labels = torch.empty(n, dtype=torch.int64, device=rows.device)
    scores = torch.empty(n, dtype=torch.float32, device=rows.device)
    with torch.cuda.device(rows.device):
        _nearest[(triton.cdiv(n, _ROWS),)](
            rows,
            parts.numbers,
            halves,
            labels,
            scores,
            n,
            d,
            k,
            parts.width,
            parts.size,
            ALL=d <= _FEW_FEATURES,
            **parts.tiles(),
        )
    return labels, scores


def sums_by_label(rows: Any, labels: Any, k: int) -> Any:
    """Sums of the rows of each label from 0 to k - 1.

    Parameters
    ----------
    rows : float32 tensor (n, d) of CUDA, contiguous
    labels : int64 tensor (n,) there

    Returns
    -------
    float64 tensor (k, d)
    """
    n, d = rows.shape
    columns = min(max(triton.next_power_of_2(k), _FEWEST_COLUMNS), _MOST_COLUMNS)
    tiles = triton.cdiv(d, _SUM_FEATURES), triton.cdiv(k, columns)
    n_parts = max(min(_PROGRAMS // (tiles[0] * tiles[1]), triton.cdiv(n, 8 * _SUM_ROWS)), 1)
    each = triton.cdiv(triton.cdiv(n, n_parts), _SUM_ROWS) * _SUM_ROWS
    sums = torch.empty((n_parts, k, d), dtype=torch.float32, device=rows.device)
    with torch.cuda.device(rows.device):
        _sums[(tiles[0], n_parts, tiles[1])](
            rows,
            labels,
            sums,
            n,
            d,
            k,
            each,
            ROWS=_SUM_ROWS,
            COLUMNS=columns,
            FEATURES=_SUM_FEATURES,
        )
    return sums.sum(0, dtype=torch.float64)
