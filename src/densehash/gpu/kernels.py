"""Triton kernels. This module is imported late, because it needs Triton.

Those for products take rows and queries padded to whole tiles, so that no load needs a mask.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

__all__ = ["append", "count", "descend", "plain_sums"]

TILE = 128  # numbers of queries and rows are multiples of it
_TILES = 64  # tiles of rows for each program
_SUMS = 32  # rows that a program compares at once
_WIDTH = 64  # features that it reads at once
_LEAST_SHARED = 99 << 10  # bytes that every GPU from 2020 on has
_SIGNS = 1024  # signs that a program of one warp holds

# Triton compiles a kernel again if an integer argument is 1 or a multiple of 16. For these
# arguments that gains nothing.
_counts = triton.jit(
    do_not_specialize=["first", "n_tiles", "n_counts", "n_queries", "n_rows", "sweeps", "d", "m"]
)

# Stores the few products that are at most the limit. A store of Triton would first move the whole
# tile through shared memory, to write whole lines; this leaves products in their registers.
_KEEP = tl.constexpr("""
{
    .reg .pred out;
    .reg .b32 slot;
    .reg .b64 at, row;
    mov.b32 $0, 0;
    setp.gtu.f32 out, $1, $2;
    @out bra DONE;
    atom.global.relaxed.gpu.add.s32 slot, [$3], 1;
    setp.ge.s32 out, slot, $4;
    @out bra DONE;
    mad.wide.s32 at, slot, 4, $5;
    st.global.f32 [at], $1;
    mad.wide.s32 at, slot, 8, $6;
    cvt.s64.s32 row, $7;
    add.s64 row, row, $8;
    st.global.s64 [at], row;
DONE:
}
""")


@triton.jit
def _products(
    factors,
    rows,
    at_queries,
    at_rows,
    held,
    WIDTH: tl.constexpr,
    STEP: tl.constexpr,
    QUERIES: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Products of a tile of queries with a tile of rows; if queries fit, they are held."""
    if WIDTH == STEP:
        features = tl.arange(0, STEP)
        some = tl.load(rows + at_rows[:, None] * WIDTH + features[None, :])
        found = tl.dot(held, tl.trans(some))
    else:
        found = tl.zeros((QUERIES, ROWS), tl.float32)
        for start in range(0, WIDTH, STEP):
            features = start + tl.arange(0, STEP)
            asked = tl.load(factors + at_queries[:, None] * WIDTH + features[None, :])
            some = tl.load(rows + at_rows[:, None] * WIDTH + features[None, :])
            found = tl.dot(asked, tl.trans(some), found)
    return found


@_counts
def _append(
    factors,  # float16 or float8 (q, WIDTH)
    rows,  # the same (n, WIDTH)
    base,  # float32 (n,)
    limits,  # float32 (q,)
    starts,  # int64 (q + 1,)
    counts,  # int32 (q,)
    values,  # float32 (starts[-1],)
    where,  # int64 (starts[-1],)
    first,
    n_tiles,
    WIDTH: tl.constexpr,
    STEP: tl.constexpr,
    TILES: tl.constexpr,
    QUERIES: tl.constexpr,
    ROWS: tl.constexpr,
):
    at_queries = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    limit = tl.load(limits + at_queries)[:, None]
    start = tl.load(starts + at_queries)
    room = (tl.load(starts + at_queries + 1) - start).to(tl.int32)[:, None]
    counters = (counts + at_queries).to(tl.int64)[:, None]
    own_values = (values + start).to(tl.int64)[:, None]
    own_where = (where + start).to(tl.int64)[:, None]
    held = tl.load(factors + at_queries[:, None] * WIDTH + tl.arange(0, STEP)[None, :])
    before = tl.full((1, 1), 0, tl.int64) + first
    begin = tl.program_id(1) * TILES
    for tile in range(begin, min(begin + TILES, n_tiles)):
        at_rows = tile * ROWS + tl.arange(0, ROWS)
        found = _products(factors, rows, at_queries, at_rows, held, WIDTH, STEP, QUERIES, ROWS)
        found += tl.load(base + at_rows)[None, :]
        tl.inline_asm_elementwise(
            _KEEP,
            "=r,f,f,l,r,l,l,r,l",
            [found, limit, counters, room, own_values, own_where, at_rows[None, :], before],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@_counts
def _count(
    factors,  # float16 or float8 (q, WIDTH)
    rows,  # the same (n, WIDTH)
    counts,  # int32 (q, n_counts)
    half,
    n_counts,
    n_queries,
    n_rows,
    n_tiles,
    WIDTH: tl.constexpr,
    STEP: tl.constexpr,
    TILES: tl.constexpr,
    QUERIES: tl.constexpr,
    ROWS: tl.constexpr,
):
    at_queries = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    held = tl.load(factors + at_queries[:, None] * WIDTH + tl.arange(0, STEP)[None, :])
    own = counts + at_queries[:, None].to(tl.int64) * n_counts
    begin = tl.program_id(1) * TILES
    for tile in range(begin, min(begin + TILES, n_tiles)):
        at_rows = tile * ROWS + tl.arange(0, ROWS)
        found = _products(factors, rows, at_queries, at_rows, held, WIDTH, STEP, QUERIES, ROWS)
        distances = (found + half).to(tl.int32)
        inside = (at_queries < n_queries)[:, None] & (at_rows < n_rows)[None, :]
        tl.atomic_add(own + distances, 1, mask=inside, sem="relaxed")


@_counts
def _plain_sums(
    X,
    queries,  # float64 (q, d)
    where,  # int64 (q, m), -1 for a missing row
    sums,  # float64 (q, m)
    d,
    m,
    row_stride,
    column_stride,
    METRIC: tl.constexpr,
    SUMS: tl.constexpr,
    FEATURES: tl.constexpr,
):
    query = tl.program_id(0).to(tl.int64)
    own = tl.program_id(1) * SUMS + tl.arange(0, SUMS)
    row = tl.load(where + query * m + own, mask=own < m, other=-1)
    is_there = row >= 0
    total = tl.zeros((SUMS,), tl.float64)
    squares = tl.zeros((SUMS,), tl.float64)
    for begin in range(0, d, FEATURES):
        features = begin + tl.arange(0, FEATURES)
        inside = features < d
        asked = tl.load(queries + query * d + features, mask=inside, other=0.0)[None, :]
        at = row[:, None] * row_stride + features[None, :].to(tl.int64) * column_stride
        some = tl.load(X + at, mask=is_there[:, None] & inside[None, :], other=0)
        some = (
            some.to(tl.float32).to(tl.float64) if some.dtype == tl.bfloat16 else some.to(tl.float64)
        )
        if METRIC == "l2":
            away = some - asked
            total += tl.sum(tl.where(inside[None, :], away * away, 0.0), axis=1)
        else:
            total -= tl.sum(some * asked, axis=1)
        if METRIC == "cosine":
            squares += tl.sum(some * some, axis=1)
    if METRIC == "cosine":
        total = total * tl.abs(total) / squares
    total = tl.where(is_there, total, float("inf"))
    tl.store(sums + query * m + own, total, mask=own < m)


@_counts
def _descend(
    products,  # float32 (n, BITS)
    gram,  # float32 (BITS, BITS)
    signs_out,  # float32 (n, BITS)
    left_out,  # float32 (n, BITS)
    n_rows,
    sweeps,
    BITS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Each row is in one warp; a sum over all bits, 0 except for one, reads that bit."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    bits = tl.arange(0, WIDTH)
    inside = (rows < n_rows)[:, None] & (bits < BITS)[None, :]
    at = rows[:, None] * BITS + bits[None, :]
    left = tl.load(products + at, mask=inside, other=0.0)
    signs = tl.zeros((ROWS, WIDTH), tl.float32)
    for bit in range(BITS):
        is_it = (bits == bit)[None, :]
        of_bit = tl.load(gram + bit * BITS + bits, mask=bits < BITS, other=0.0)[None, :]
        own = tl.sum(tl.where(is_it, left, 0.0), axis=1)
        sign = tl.where(own < 0, -1.0, 1.0)[:, None]
        left -= sign * of_bit
        signs = tl.where(is_it, sign, signs)
    for _ in range(sweeps):
        for bit in range(BITS):
            is_it = (bits == bit)[None, :]
            of_bit = tl.load(gram + bit * BITS + bits, mask=bits < BITS, other=0.0)[None, :]
            own = tl.sum(tl.where(is_it, left, 0.0), axis=1)
            sign = tl.sum(tl.where(is_it, signs, 0.0), axis=1)
            flips = sign * own + tl.load(gram + bit * BITS + bit) < 0
            left += tl.where(flips, 2 * sign, 0.0)[:, None] * of_bit
            signs = tl.where(is_it & flips[:, None], -signs, signs)
    tl.store(signs_out + at, signs, mask=inside)
    tl.store(left_out + at, left, mask=inside)


def _launch(kernel: Any, factors: torch.Tensor, rows: torch.Tensor, *arguments: Any) -> None:
    width = rows.shape[1]
    step = width if width <= 256 else 128
    # The queries and rows that a program holds fit twice into the shared memory of a Hopper GPU.
    # On smaller GPUs, a program holds a part of their width at a time.
    tile = 64 if step * rows.itemsize > 256 else TILE
    about = torch.cuda.get_device_properties(rows.device)
    room = getattr(about, "shared_memory_per_block_optin", _LEAST_SHARED)  # torch 2.4 does not say
    while (2 * tile + TILE * (1 if step == width else 2)) * step * rows.itemsize > room:
        step //= 2
    n_tiles = len(rows) // tile
    with torch.cuda.device(rows.device):
        kernel[len(factors) // TILE, -(-n_tiles // _TILES)](
            factors,
            rows,
            *arguments,
            n_tiles,
            WIDTH=width,
            STEP=step,
            TILES=_TILES,
            QUERIES=TILE,
            ROWS=tile,
            num_warps=8,
            num_stages=2,
        )


def append(
    factors: torch.Tensor,
    rows: torch.Tensor,
    base: torch.Tensor,
    limits: torch.Tensor,
    room: Any,
    first: int,
) -> None:
    """See :func:`densehash.gpu.products.append`.

    Examples
    --------
    >>> append(factors, rows, base, limits, room, first=0)  # doctest: +SKIP
    """
    arguments = (base, limits, room.starts, room.counts, room.values, room.where, first)
    _launch(_append, factors, rows, *arguments)


def count(
    factors: torch.Tensor, rows: torch.Tensor, n_rows: int, half: float, counts: torch.Tensor
) -> None:
    """See :func:`densehash.gpu.products.count`.

    Examples
    --------
    >>> count(factors, rows, len(rows), half, counts)  # doctest: +SKIP
    """
    q, m = counts.shape
    _launch(_count, factors, rows, counts, half, m, q, n_rows)


def plain_sums(
    X: torch.Tensor, queries: torch.Tensor, where: torch.Tensor, metric: str
) -> torch.Tensor:
    """See :func:`densehash.gpu.truth.plain_sums`.

    Examples
    --------
    >>> plain_sums(X, queries, where, "l2")  # doctest: +SKIP
    """
    q, m = where.shape
    sums = torch.empty((q, m), dtype=torch.float64, device=X.device)
    with torch.cuda.device(X.device):
        _plain_sums[(q, -(-m // _SUMS))](
            X.view(torch.uint8) if X.dtype == torch.bool else X,
            queries,
            where,
            sums,
            X.shape[1],
            m,
            *X.stride(),
            METRIC=metric,
            SUMS=_SUMS,
            FEATURES=_WIDTH,
        )
    return sums


def descend(
    products: torch.Tensor, gram: torch.Tensor, sweeps: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Signs (n, n_bits) of ±1, and the rest of the products that they leave (n, n_bits).

    Examples
    --------
    >>> signs, left = descend(products, gram, sweeps=4)  # doctest: +SKIP
    """
    signs, left = torch.empty_like(products), torch.empty_like(products)
    n, n_bits = products.shape
    width = triton.next_power_of_2(n_bits)
    rows = _SIGNS // width
    with torch.cuda.device(products.device):
        _descend[(-(-n // rows),)](
            products, gram, signs, left, n, sweeps, BITS=n_bits, WIDTH=width, ROWS=rows, num_warps=1
        )
    return signs, left
