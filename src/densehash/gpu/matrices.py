# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Products of rows with a few vectors, on matrix cores: margins, nearest centres, sums.

A float32 is the sum of three bfloat16. A product of two float32 is the sum of six products of
those, up to the rounding of float32; three of them keep 16 bits. All sums have the same order,
whatever the number of rows, so a row has the same margins alone and among others.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

__all__ = ["margins", "nearest_centers", "sums_by_label"]

_ROWS = 128
# For wider rows, the nearest centre is found with 16 bits of each number: in such long sums, the
# rounding error of that is as small as that of float32.
_FEW_FEATURES = 256
_FEWEST_COLUMNS, _MOST_COLUMNS = 16, 128
_CHUNK, _SUM_ROWS, _SUM_FEATURES = 256, 8, 256
_SPLIT_FEATURES = 1024


# Triton compiles a kernel again if an integer argument is 1 or a multiple of 16. For these
# arguments that gains nothing, and for groups of many sizes it took ten seconds.
_counts = triton.jit(do_not_specialize=["n", "k"])


@triton.jit
def _split(numbers):
    """Three bfloat16 whose sum is the float32."""
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
        # Matrix cores lose low bits when they add to a large sum, so small sums are made first.
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
    order,
    labels,
    limits,
    sums,
    n,
    d,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    FEATURES: tl.constexpr,
):
    """Sums of a chunk of rows, sorted by label: one for each label in the chunk."""
    chunk = tl.program_id(0).to(tl.int64)
    feature = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    begin = chunk * CHUNK
    end = tl.minimum(begin + CHUNK, n)
    last = tl.load(labels + end - 1).to(tl.int64)
    for label in range(tl.load(labels + begin).to(tl.int64), last + 1):
        start = tl.maximum(begin, tl.load(limits + label))
        stop = tl.minimum(end, tl.load(limits + label + 1))
        found = tl.zeros((ROWS, FEATURES), tl.float32)
        for at in range(start, stop, ROWS):
            place = at + tl.arange(0, ROWS)
            row = tl.load(order + place, mask=place < stop, other=0)
            found += tl.load(
                rows + row[:, None] * d + feature[None, :],
                mask=(place[:, None] < stop) & (feature[None, :] < d),
                other=0.0,
            )
        # Labels ascend, so no other chunk and label write to this place.
        tl.store(sums + (chunk + label) * d + feature, tl.sum(found, 0), mask=feature < d)


@_counts
def _whole_sums(
    sums, limits, whole, d, CHUNK: tl.constexpr, CHUNKS: tl.constexpr, FEATURES: tl.constexpr
):
    """The sum of all sums of a label, in float64."""
    label = tl.program_id(0).to(tl.int64)
    feature = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    start = tl.load(limits + label)
    stop = tl.load(limits + label + 1)
    found = tl.zeros((CHUNKS, FEATURES), tl.float64)
    if start < stop:
        after = (stop - 1) // CHUNK + 1
        for first in range(start // CHUNK, after, CHUNKS):
            chunk = first + tl.arange(0, CHUNKS)
            some = tl.load(
                sums + (chunk[:, None] + label) * d + feature[None, :],
                mask=(chunk[:, None] < after) & (feature[None, :] < d),
                other=0.0,
            )
            found += some.to(tl.float64)
    tl.store(whole + label * d + feature, tl.sum(found, 0), mask=feature < d)


@_counts
def _split_all(others, parts, halves, k, d, width, part, FEATURES: tl.constexpr):
    """A vector as three bfloat16 for each number, padded with zeros, and half of its square."""
    row = tl.program_id(0).to(tl.int64)
    filled = tl.where(row < k, d, 0)
    squares = tl.zeros((FEATURES,), tl.float32)
    for start in range(0, width, FEATURES):
        feature = start + tl.arange(0, FEATURES)
        some = tl.load(others + row * d + feature, mask=feature < filled, other=0.0)
        squares += some * some
        high, middle, low = _split(some)
        at = parts + row * width + feature
        tl.store(at, high, mask=feature < width)
        tl.store(at + part, middle, mask=feature < width)
        tl.store(at + 2 * part, low, mask=feature < width)
    tl.store(halves + row, 0.5 * tl.sum(squares, 0))


class _Parts:
    """Vectors (m, d) as three bfloat16 for each number, padded to whole tiles, and sizes of steps.

    One kernel makes them, because starting several takes longer than they run.
    """

    def __init__(self, others: Any, features: int, warps: int) -> None:
        m, d = others.shape
        self.features, self.warps = features, warps
        self.columns = min(max(triton.next_power_of_2(m), _FEWEST_COLUMNS), _MOST_COLUMNS)
        self.width = triton.cdiv(d, features) * features
        shape = (3, triton.cdiv(m, self.columns) * self.columns, self.width)
        self.size = shape[1] * shape[2]
        self.numbers = torch.empty(shape, dtype=torch.bfloat16, device=others.device)
        self.halves = torch.empty(shape[1], dtype=torch.float32, device=others.device)
        with torch.cuda.device(others.device):
            _split_all[(shape[1],)](
                others,
                self.numbers,
                self.halves,
                m,
                d,
                self.width,
                self.size,
                FEATURES=_SPLIT_FEATURES,
            )

    def tiles(self) -> dict[str, int]:
        sizes = {"ROWS": _ROWS, "COLUMNS": self.columns, "FEATURES": self.features}
        return {**sizes, "num_warps": self.warps if self.columns == _MOST_COLUMNS else 4}


def margins(rows: Any, planes: Any, thresholds: Any) -> Any:
    """Products of rows with planes, minus thresholds.

    Parameters
    ----------
    rows : float32 tensor (n, d) of CUDA, contiguous
    planes, thresholds : float32 tensors (m, d) and (m,) on the same device

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
    """The nearest centre of every row; the first if several are equally near.

    Parameters
    ----------
    rows : float32 tensor (n, d) of CUDA, contiguous
    centers : float32 tensor (k, d) on the same device

    Returns
    -------
    labels : int64 tensor (n,)
    scores : float32 tensor (n,), the product of each row with its centre minus half of the centre's
        square
    """
    (n, d), k, parts = rows.shape, len(centers), _Parts(centers, 64, 8)
    labels = torch.empty(n, dtype=torch.int64, device=rows.device)
    scores = torch.empty(n, dtype=torch.float32, device=rows.device)
    with torch.cuda.device(rows.device):
        _nearest[(triton.cdiv(n, _ROWS),)](
            rows,
            parts.numbers,
            parts.halves,
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


def sums_by_label(rows: Any, labels: Any, k: int) -> tuple[Any, Any]:
    """Sums of the rows with each label from 0 to k - 1, and how many rows each has.

    Rows are added in the order of their labels, and each is read once.

    Parameters
    ----------
    rows : float32 tensor (n, d) of CUDA, contiguous
    labels : int64 tensor (n,) on the same device

    Returns
    -------
    float64 tensor (k, d), int64 tensor (k,)
    """
    n, d = rows.shape
    types = torch.uint8, torch.int16, torch.int32
    small = next(one for one in types if k <= torch.iinfo(one).max)  # sorting is faster
    rising, order = labels.to(small).sort(stable=True)
    limits = torch.searchsorted(rising, torch.arange(k + 1, dtype=small, device=rows.device))
    n_chunks = triton.cdiv(n, _CHUNK)
    sums = torch.empty((n_chunks + k, d), dtype=torch.float32, device=rows.device)
    whole = torch.empty((k, d), dtype=torch.float64, device=rows.device)
    with torch.cuda.device(rows.device):
        _sums[n_chunks, triton.cdiv(d, _SUM_FEATURES)](
            rows,
            order,
            rising,
            limits,
            sums,
            n,
            d,
            CHUNK=_CHUNK,
            ROWS=_SUM_ROWS,
            FEATURES=_SUM_FEATURES,
        )
        _whole_sums[k, triton.cdiv(d, _SUM_FEATURES)](
            sums, limits, whole, d, CHUNK=_CHUNK, CHUNKS=_SUM_ROWS, FEATURES=_SUM_FEATURES
        )
    return whole, limits.diff()
