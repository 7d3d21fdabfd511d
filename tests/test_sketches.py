"""Sketches of signs against plain numpy: learning, encoding, layout, estimates and searching."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash import _native
from densehash.index.sketches.decoder import Decoder, learn_decoder
from densehash.index.sketches.entries import Segment, second_groups
from densehash.index.sketches.entries import SignModel as Signs

Array = NDArray[Any]
Floats = NDArray[np.float32]
METRICS = ("l2", "cosine", "ip")
ALL = 1e30  # a spread or a stop that leaves nothing out


# --- the definitions ----------------------------------------------------------------------


def lanes_sum(x: Floats, y: Floats) -> np.float32:
    """The sum of products, in the order that native code adds them."""
    whole = len(x) // 16 * 16
    lanes = np.zeros(16, np.float32)
    for first in range(0, whole, 16):
        lanes += x[first : first + 16] * y[first : first + 16]
    a, b, c, d = lanes.reshape(4, 4)
    four = (a + b) + (c + d)
    total = (four[0] + four[1]) + (four[2] + four[3])
    for i in range(whole, len(x)):
        total += x[i] * y[i]
    return np.float32(total)


def product(row: Floats, matrix: Floats) -> Floats:
    found = np.zeros(matrix.shape[1], np.float32)
    for value, of_value in zip(row, matrix, strict=True):
        found += value * of_value
    return found


def signs_of(residual: Floats, decoder: Decoder, sweeps: int) -> Floats:
    """Descent, bit after bit. residual: (d,)."""
    matrix, one = decoder.matrix, np.float32(1)
    squared, largest = lanes_sum(residual, residual), np.abs(residual).max()
    halves = np.where(residual < 0, np.float32(-0.5), np.float32(0.5))
    whole = np.trunc(residual * (np.float32(127) / largest) + halves) if largest > 0 else residual
    unit = largest / np.float32(127) * (one / np.sqrt(squared) if squared > 0 else np.float32(0))
    sums = decoder.whole.astype(np.int64) @ whole.astype(np.int64)
    gram = np.array([product(row, matrix.T) for row in matrix])
    left = decoder.steps * unit * sums.astype(np.float32)
    signs = np.empty(len(matrix), np.float32)
    for b in range(len(matrix)):
        signs[b] = -1 if left[b] < 0 else 1
        left -= signs[b] * gram[b]
    for _ in range(sweeps):
        for b in range(len(matrix)):
            if signs[b] * left[b] + gram[b, b] < 0:
                signs[b] = -signs[b]
                left -= 2 * signs[b] * gram[b]
    return signs


def unpacked(codes: Array) -> Floats:
    return np.unpackbits(codes, axis=1, bitorder="little").astype(np.float32) * 2 - 1


def estimates_of(signs: Signs, rows: Floats, labels: Array, query: Floats) -> Array:
    """Of the squared distances of one query (relative, as rows are), in float64, by the formula."""
    decoder = signs.decoder
    codes, factors = decoder.encode(rows, labels, signs.centers)
    products = unpacked(codes) @ (decoder.matrix.astype(float) @ query)
    alphas, betas = factors[:, 0] * decoder.alpha, factors[:, 1] * decoder.beta
    to_centers = np.square(query.astype(float) - signs.centers[labels]).sum(axis=1)
    if decoder.metric == "ip":
        to_centers = -2 * (signs.centers[labels].astype(float) @ query + signs.shift @ query)
    found: Array = to_centers + (alphas - products) / betas
    return found


def distances_of(queries: Array, vectors: Array, metric: str) -> Array:
    q, x = queries.astype(float), vectors.astype(float)
    found: Array = np.sqrt(np.square(q[:, None] - x).sum(axis=2))
    if metric == "ip":
        found = -q @ x.T
    if metric == "cosine":
        lengths = np.linalg.norm(q, axis=1)[:, None] * np.linalg.norm(x, axis=1)
        found = 1 - q @ x.T / lengths
    return found


# --- things to search ---------------------------------------------------------------------


def nearest_labels(rows: Floats, centers: Floats) -> NDArray[np.uint32]:
    distances: Array = np.square(rows[:, None] - centers).sum(axis=2)
    found: NDArray[np.uint32] = distances.argmin(axis=1).astype(np.uint32)
    return found


class Made:
    """Rows in groups, with all that belongs to them."""

    def __init__(
        self,
        n: int = 600,
        d: int = 20,
        g: int = 40,
        n_bits: int = 64,
        metric: str = "l2",
        copies: int = 2,
        dtype: type = np.float32,
    ) -> None:
        state = RandomState(n + d)
        base = state.standard_normal((g, d)) * 20
        rows = base[state.randint(g, size=n)] + state.standard_normal((n, d)) * 12
        self.vectors: Array = np.rint(rows).clip(-120, 120).astype(dtype)
        self.queries = np.rint(rows[:25] + state.standard_normal((25, d)) * 6).astype(np.float32)
        self.metric = metric
        vectors = self.vectors.astype(np.float32)
        if metric == "cosine":
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        shift = vectors.mean(axis=0)
        self.rows = vectors - shift
        centers = self.rows[state.permutation(n)[:g]]
        first = nearest_labels(self.rows, centers)
        self.signs = Signs.learn(self.rows, first, centers, shift, n_bits, metric, state)
        columns = [first, second_groups(self.rows, first, centers)][:copies]
        self.labels = np.stack(columns, axis=1)

    def segment(self, begin: int = 0, end: int | None = None, vectors: bool = True) -> Segment:
        end = len(self.rows) if end is None else end
        entries = self.signs.entries(self.rows[begin:end], self.labels[begin:end])
        kept = self.vectors[begin:end] if vectors else None
        return Segment(entries, end - begin, kept, None, begin)

    def relative(self, queries: Floats) -> Floats:
        if self.metric == "ip":
            return queries
        if self.metric == "cosine":
            queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
        return queries - self.signs.shift


# --- learning and encoding ----------------------------------------------------------------


@pytest.mark.parametrize(("n_bits", "d"), [(8, 1), (8, 30), (24, 5), (64, 33), (136, 16)])
def test_signs_and_factors_are_those_of_the_definition(n_bits: int, d: int) -> None:
    state = RandomState(n_bits)
    rows = state.standard_normal((40, d)).astype(np.float32)
    centers = state.standard_normal((3, d)).astype(np.float32)
    labels = state.randint(3, size=40).astype(np.uint32)
    decoder = learn_decoder(rows, labels, centers, n_bits, "l2", state)
    codes, factors = decoder.encode(rows, labels, centers)
    expected = np.array(
        [signs_of(row - centers[at], decoder, 4) for row, at in zip(rows, labels, strict=True)]
    )
    np.testing.assert_array_equal(unpacked(codes), expected)
    decoded = expected.astype(float) @ decoder.matrix
    residuals = rows.astype(float) - centers[labels]
    lengths = np.linalg.norm(residuals, axis=1)
    betas = np.linalg.norm(decoded, axis=1) / (2 * lengths)
    stored = np.minimum(betas / decoder.beta, 32767)
    np.testing.assert_allclose(factors[:, 1], stored, atol=0.6)
    alphas = lengths**2 * factors[:, 1] * decoder.beta + (decoded * centers[labels]).sum(axis=1)
    np.testing.assert_allclose(factors[:, 0], alphas / decoder.alpha, atol=1)


def test_a_code_does_not_depend_on_the_rows_beside_or_on_threads() -> None:
    made = Made(n=300)
    decoder, centers, labels = made.signs.decoder, made.signs.centers, made.labels[:, 0].copy()
    codes, factors = decoder.encode(made.rows, labels, centers)
    for first, end in ((0, 1), (1, 8), (5, 77), (200, 300)):
        some = decoder.encode(made.rows[first:end], labels[first:end], centers)
        np.testing.assert_array_equal(some[0], codes[first:end])
        np.testing.assert_array_equal(some[1], factors[first:end])
    products = decoder.products(centers)
    for n_threads in (1, 3):
        again, _ = _native.encode_signs(
            made.rows,
            labels,
            centers,
            products,
            decoder.whole,
            decoder.steps,
            decoder.gram,
            4,
            n_threads,
        )
        np.testing.assert_array_equal(again, codes)


def test_learning_is_the_same_for_a_seed_and_nears_the_rows() -> None:
    rows = RandomState(0).standard_normal((2000, 16)).astype(np.float32)
    labels, centers = np.zeros(2000, np.uint32), np.zeros((1, 16), np.float32)
    one, two = (learn_decoder(rows, labels, centers, 64, "l2", RandomState(3)) for _ in range(2))
    np.testing.assert_array_equal(one.whole, two.whole)
    assert (one.alpha, one.beta) == (two.alpha, two.beta)
    codes, _ = one.encode(rows, labels, centers)
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    # Four bits a number: signs of random planes leave a quarter, descent a twentieth.
    assert np.square(units - unpacked(codes) @ one.matrix).sum() < 0.08 * len(rows)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "rows",
    [
        np.ones((50, 6), np.float32),
        np.zeros((2, 1), np.float32),
        np.array([[0.0], [1.0]], np.float32),
        np.tile(np.arange(30, dtype=np.float32)[:, None], (1, 3)) * np.array([1, 0, 0], np.float32),
        np.array([[1e18, 1], [1e-18, 2], [3, -1e18]], np.float32),
    ],
    ids=["all equal", "two zeros", "two rows of one", "constant columns", "huge and tiny"],
)
def test_poor_rows_are_found(rows: Floats, metric: str) -> None:
    rows = rows + np.float32(1) if metric == "cosine" else rows
    made = rows / np.linalg.norm(rows, axis=1, keepdims=True) if metric == "cosine" else rows
    shift, centers = np.zeros(rows.shape[1], np.float32), made[:1].copy()
    labels = np.zeros(len(rows), np.uint32)
    signs = Signs.learn(made, labels, centers, shift, 16, metric, RandomState(0))
    segment = Segment(signs.entries(made, labels[:, None]), len(rows), rows)
    found = signs.searcher([segment]).search(rows[:2], 2, 1, 10.0, ALL, None, 1, "")
    expected = np.sort(distances_of(rows[:2], rows, metric), axis=1)[:, :2]
    np.testing.assert_allclose(found[0], expected, rtol=1e-3, atol=1e-3)


def test_the_second_group_is_the_best_of_the_near_by_definition() -> None:
    state = RandomState(1)
    rows = state.standard_normal((200, 5)).astype(np.float32)
    centers = state.standard_normal((20, 5)).astype(np.float32)
    labels = nearest_labels(rows, centers)
    for row, first, second in zip(rows, labels, second_groups(rows, labels, centers), strict=True):
        residual = row - centers[first]
        away = row - centers
        costs = np.square(away).sum(axis=1) + (away @ residual) ** 2 / (residual @ residual)
        costs[first] = np.inf
        assert second != first
        assert costs[second] == pytest.approx(costs.min(), rel=1e-4)


# --- layout -------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "n_bits"), [(1, 8), (31, 16), (32, 64), (100, 24), (65, 1024)])
def test_blocks_hold_entries_where_the_format_says(count: int, n_bits: int) -> None:
    state = RandomState(count)
    codes = state.randint(256, size=(count, n_bits // 8)).astype(np.uint8)
    factors = state.randint(-32768, 32768, size=(count, 2)).astype(np.int16)
    blocks = _native.pack_signs(codes, factors)
    assert blocks.shape == (-(-count // 32), 4 * n_bits + 128)
    for entry in range(count):
        block, at = blocks[entry // 32], entry % 32
        halves = block[: 4 * n_bits].reshape(n_bits // 4, 16)[:, at % 16]
        fours = halves >> 4 if at >= 16 else halves & 15
        np.testing.assert_array_equal(fours[::2] | fours[1::2] << 4, codes[entry])
        kept = block[4 * n_bits :].view(np.int16).reshape(2, 32)[:, at]
        np.testing.assert_array_equal(kept, factors[entry])
    again = _native.unpack_signs(blocks, count)
    np.testing.assert_array_equal(again[0], codes)
    np.testing.assert_array_equal(again[1], factors)


# --- searching ----------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("n_bits", [8, 24, 64, 200])
def test_estimates_are_those_of_the_formula(n_bits: int, metric: str) -> None:
    made = Made(n=300, n_bits=n_bits, metric=metric, copies=1)
    searcher = made.signs.searcher([made.segment(vectors=False)])
    found, positions, efforts = searcher.search(made.queries, 300, 40, 0.0, ALL, None, 1, "")
    assert (efforts == [40, 300, 300]).all()
    labels = made.labels[:, 0].copy()
    for q, query in enumerate(made.relative(made.queries)):
        expected: Array = estimates_of(made.signs, made.rows, labels, query)[positions[q]]
        is_distance = made.metric == "l2"
        got = found[q].astype(float) ** 2 if is_distance else 2 * found[q].astype(float)
        expected = expected if metric == "ip" else np.maximum(expected, 0)
        # Tables of six bits and queries of eight are all the difference there is.
        scale = np.abs(expected - np.median(expected)).mean()
        assert np.abs(got - expected).mean() < 0.05 * scale
        assert (np.diff(found[q]) >= 0).all()


@pytest.mark.parametrize("metric", METRICS)
def test_all_that_is_visited_and_compared_gives_the_nearest(metric: str) -> None:
    made = Made(metric=metric)
    searcher = made.signs.searcher([made.segment()])
    expected = distances_of(made.queries, made.vectors, metric)
    found, positions, _ = searcher.search(made.queries, 10, 40, ALL, ALL, None, 1, "")
    np.testing.assert_allclose(found, np.sort(expected, axis=1)[:, :10], rtol=1e-5, atol=1e-5)
    for q in range(len(made.queries)):
        assert len(set(positions[q])) == 10  # a row in two groups comes once
        np.testing.assert_allclose(expected[q, positions[q]], found[q], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("probes", [1, 3, 17])
def test_the_nearest_groups_are_visited(probes: int) -> None:
    made = Made(copies=1)
    searcher = made.signs.searcher([made.segment()])
    found, positions, efforts = searcher.search(made.queries, 600, probes, ALL, ALL, None, 1, "")
    relative = made.relative(made.queries).astype(float)
    to_centers = np.square(relative[:, None] - made.signs.centers).sum(axis=2)
    for q in range(len(made.queries)):
        visited = np.isin(made.labels[:, 0], np.argsort(to_centers[q])[:probes])
        there = positions[q][positions[q] >= 0]
        assert set(there) == set(np.flatnonzero(visited))
        assert np.isinf(found[q, len(there) :]).all()
        assert efforts[q].tolist() == [probes, visited.sum(), visited.sum()]


@pytest.mark.parametrize("metric", METRICS)
def test_many_groups_are_found_by_regions(metric: str) -> None:
    made = Made(n=3000, g=700, metric=metric, copies=1)
    n_groups = len(made.signs.centers)
    searcher = made.signs.searcher([made.segment()])
    to_centers = -2 * made.relative(made.queries).astype(float) @ made.signs.centers.T
    if metric != "ip":
        to_centers += np.square(made.signs.centers.astype(float)).sum(axis=1)
    positions = searcher.search(made.queries, 3000, 20, ALL, ALL, None, 1, "")[1]
    shares = [
        np.isin(made.labels[there[there >= 0], 0], near).mean()
        for there, near in zip(positions, np.argsort(to_centers)[:, :20], strict=True)
    ]
    # These groups hardly form regions: it is the hard case. By chance it were 0.03.
    assert np.mean(shares) > 0.8
    # Those in regions far away come at last, each once.
    _, positions, efforts = searcher.search(made.queries, 3000, n_groups, ALL, ALL, None, 1, "")
    assert (np.sort(positions, axis=1) == np.arange(3000)).all()
    assert (efforts == [n_groups, 3000, 3000]).all()
    # And in the same order, whatever queries are beside.
    every = searcher.search(made.queries, 10, 300, 0.1, 900.0, None, 1, "")
    for simd in _native.instruction_sets():
        for q in range(len(made.queries)):
            one = searcher.search(made.queries[q : q + 1], 10, 300, 0.1, 900.0, None, 1, simd)
            for part in range(3):
                np.testing.assert_array_equal(one[part][0], every[part][q])


@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_every_instruction_set_and_any_threads_give_the_same_bytes(spread: float) -> None:
    for n_bits in (8, 40, 128, 264):
        made = Made(n=500, n_bits=n_bits)
        searcher = made.signs.searcher([made.segment()])
        queries = np.tile(made.queries, (8, 1))
        expected = searcher.search(queries, 10, 20, spread, 60.0, None, 1, "scalar")
        for simd in _native.instruction_sets():
            for n_threads in (1, 3):
                found = searcher.search(queries, 10, 20, spread, 60.0, None, n_threads, simd)
                for one, other in zip(found, expected, strict=True):
                    np.testing.assert_array_equal(one, other)


def test_a_query_alone_is_answered_as_among_others() -> None:
    made = Made()
    searcher = made.signs.searcher([made.segment()])
    together = searcher.search(made.queries, 5, 20, 0.05, 60.0, None, 1, "")
    for q in range(len(made.queries)):
        alone = searcher.search(made.queries[q : q + 1], 5, 20, 0.05, 60.0, None, 1, "")
        for part in range(3):
            np.testing.assert_array_equal(alone[part][0], together[part][q])


@pytest.mark.parametrize("dtype", [np.float16, np.int8])
def test_vectors_of_other_types(dtype: type) -> None:
    made = Made(dtype=dtype)
    searcher = made.signs.searcher([made.segment()])
    expected = np.sort(distances_of(made.queries, made.vectors, "l2"), axis=1)[:, :10]
    found = searcher.search(made.queries, 10, 40, ALL, ALL, None, 1, "")
    np.testing.assert_allclose(found[0], expected, rtol=1e-5)
    if dtype is np.int8:
        whole = made.queries.clip(-127, 127).astype(np.int8)
        expected = np.sort(distances_of(whole, made.vectors, "l2"), axis=1)[:, :10]
        found = searcher.search(whole, 10, 40, ALL, ALL, None, 1, "")
        np.testing.assert_allclose(found[0], expected, rtol=1e-6)


def test_segments_together_answer_as_one_and_masks_hide_rows() -> None:
    made = Made()
    one = made.signs.searcher([made.segment()])
    parts = ((0, 1), (1, 250), (250, 250), (250, 600))
    many = made.signs.searcher([made.segment(*part) for part in parts])
    allowed = (RandomState(0).random_sample(600) < 0.3).astype(np.uint8)
    masks = [allowed[begin:end] for begin, end in parts]
    asked: list[tuple[Any, Any]] = [(None, None), ([allowed], masks)]
    for of_one, of_many in asked:
        expected = one.search(made.queries, 10, 40, ALL, ALL, of_one, 1, "")
        found = many.search(made.queries, 10, 40, ALL, ALL, of_many, 1, "")
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
    assert allowed[found[1]].all()


def test_ties_go_by_rank() -> None:
    made = Made(n=64, g=4)
    vectors = np.zeros_like(made.vectors)
    ranks = RandomState(0).permutation(64).astype(np.uint32)
    segment = made.segment()._replace(vectors=vectors, ranks=ranks)
    found = made.signs.searcher([segment]).search(made.queries, 64, 4, ALL, ALL, None, 1, "")
    np.testing.assert_array_equal(found[1], np.tile(np.argsort(ranks), (len(made.queries), 1)))


def test_settings_trade_effort_for_recall() -> None:
    made = Made(n=4000, g=60, n_bits=64)
    searcher = made.signs.searcher([made.segment()])
    truth = np.argsort(distances_of(made.queries, made.vectors, "l2"), axis=1)[:, :10]

    def recall_and_effort(spread: float, stop: float) -> tuple[float, Array]:
        _, found, efforts = searcher.search(made.queries, 10, 60, spread, stop, None, 1, "")
        hits = [np.isin(t, f).mean() for t, f in zip(truth, found, strict=True)]
        return float(np.mean(hits)), efforts.sum(axis=0)

    all_of_it, most = recall_and_effort(0.3, ALL)
    assert all_of_it > 0.99
    some, narrow = recall_and_effort(0.02, ALL)
    assert some <= all_of_it
    assert narrow[2] < most[2]
    _, hasty = recall_and_effort(0.3, 3.0)
    assert hasty[0] < most[0]


@pytest.mark.parametrize("damage", ["limits fall", "limits beyond", "rows", "ranks"])
def test_damaged_arrays_raise(damage: str) -> None:
    made = Made()
    signs, segment = made.signs, made.segment()
    blocks, limits, rows = segment.entries
    if damage == "limits fall":
        limits = limits.copy()
        limits[3] = limits[2] - 1
    if damage == "limits beyond":
        limits = limits + 1
    if damage == "rows":
        rows = np.full_like(rows, 600)
    ranks = np.full(600, 600, np.uint32) if damage == "ranks" else None
    damaged = segment._replace(entries=type(segment.entries)(blocks, limits, rows), ranks=ranks)
    with pytest.raises(RuntimeError, match="limits|beyond"):
        signs.searcher([damaged]).search(made.queries, 5, 9, 1.0, ALL, None, 1, "")


def test_shapes_that_do_not_fit_are_refused() -> None:
    made = Made(n=64, g=4)
    segment = made.segment()
    searcher = made.signs.searcher([segment])
    with pytest.raises(ValueError, match="width"):
        searcher.search(made.queries[:, 1:].copy(), 5, 4, 1.0, ALL, None, 1, "")
    with pytest.raises(ValueError, match="vectors"):
        made.signs.searcher([segment._replace(vectors=made.vectors[1:])])
    with pytest.raises(ValueError, match="blocks"):
        made.signs.searcher(
            [
                segment._replace(
                    entries=segment.entries._replace(blocks=np.zeros((9, 192), np.uint8))
                )
            ]
        )
    decoder = made.signs.decoder
    assert isinstance(decoder, Decoder)
    with pytest.raises(ValueError, match="label"):
        decoder.encode(made.rows, np.full(64, 4, np.uint32), made.signs.centers)
