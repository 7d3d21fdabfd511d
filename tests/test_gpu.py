"""Search of tensors: what runs on a GPU, here on torch's CPU device and on a GPU where one is.

Answers of numpy arrays are the oracle: test_hamming.py and test_truth.py compare those with plain
loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gpu_cases import DEVICES, filled_memory, needs_torch, tensor, too_little_memory
from hamming_cases import make

from densehash import hamming
from densehash.choices import MetricName
from densehash.errors import InputError
from densehash.index import Index
from densehash.truth import METRICS, nearest

pytestmark = needs_torch


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Torch's threads would wait for those of tests that run beside."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries and rows in many blocks, and a sample of few rows."""
    from densehash.gpu import candidates
    from densehash.gpu import hamming as on_gpu

    monkeypatch.setattr(candidates, "_MOST_QUERIES", 128)
    monkeypatch.setattr(candidates, "_BLOCK", 2**15)
    monkeypatch.setattr(candidates, "_SMALLEST_SAMPLE", 64)
    monkeypatch.setattr(candidates, "_SAMPLE_BLOCK", 2**12)
    monkeypatch.setattr(on_gpu, "_QUERIES", 128)
    monkeypatch.setattr(on_gpu, "_BLOCK", 2**12)


def same(found: Any, expected: Any) -> None:
    """Tensors with the numbers and types of arrays."""
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.cpu().numpy(), two)
        assert one.cpu().numpy().dtype == two.dtype


# --- Hamming distances ------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", ["random", "pool", "equal", "near", "far", "falling"])
@pytest.mark.parametrize("n_bits", [31, 257])
def test_the_nearest_codes(device: str, shape: str, n_bits: int, small_blocks: None) -> None:
    from densehash.gpu import hamming as on_gpu

    queries, codes = make(shape, 130, 400, n_bits, seed=n_bits)
    for k in (1, 10, 400, 402):
        expected = hamming.top_k(queries, codes, k)
        same(on_gpu.top_k(tensor(queries, device), tensor(codes, device), k), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_short_and_long_codes(device: str) -> None:
    from densehash.gpu import hamming as on_gpu

    for n_bits in (8, 64, 512, 4096):
        queries, codes = make("ramp", 3, 300, n_bits, seed=n_bits)
        expected = hamming.top_k(queries, codes, 20)
        same(on_gpu.top_k(tensor(queries, device), tensor(codes, device), 20), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_limits_of_a_sample_leave_few_candidates(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from densehash.gpu import candidates
    from densehash.gpu import hamming as on_gpu

    monkeypatch.setattr(candidates, "_SMALLEST_SAMPLE", 512)
    for shape in ("random", "equal"):
        queries, codes = make(shape, 20, 20_000, 64, seed=0)
        problem = on_gpu._Codes(tensor(queries, device), tensor(codes, device))
        assert problem.stride == 32
        asked = tensor(np.arange(20), device)
        found = candidates.candidates(problem, asked, 10)
        assert bool(found.enough.all())
        assert found.values.shape[1] < 1500
        expected = hamming.top_k(queries, codes, 10)
        same(on_gpu.top_k(tensor(queries, device), tensor(codes, device), 10), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("how", ["too few", "too many"])
def test_a_limit_that_was_wrong(device: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from densehash.gpu import candidates
    from densehash.gpu import hamming as on_gpu

    queries, codes = make("random", 9, 5000, 32, seed=1)
    expected = hamming.top_k(queries, codes, 20)
    method = "rank" if how == "too few" else "capacity"
    monkeypatch.setattr(candidates.Problem, method, lambda *_: 1 if how == "too few" else 21)
    same(on_gpu.top_k(tensor(queries, device), tensor(codes, device), 20), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", ["random", "pool", "near"])
@pytest.mark.parametrize("n_bits", [8, 100])
def test_codes_within_a_distance(device: str, shape: str, n_bits: int, small_blocks: None) -> None:
    from densehash.gpu import hamming as on_gpu

    queries, codes = make(shape, 130, 300, n_bits, seed=2)
    for radius in (0, 3, n_bits // 2, n_bits, 4096):
        expected = hamming.within(queries, codes, radius)
        same(on_gpu.within(tensor(queries, device), tensor(codes, device), radius), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n_bits", [8, 100, 513])
def test_counts_of_distances(device: str, n_bits: int, small_blocks: None) -> None:
    from densehash.gpu import hamming as on_gpu

    queries, codes = make("ramp", 130, 300, n_bits, seed=3)
    there = tensor(queries, device), tensor(codes, device)
    relevant = [np.arange(i % 5) * 7 for i in range(130)]
    relevant[3] = np.array([5, 5, 5])
    counts, of_relevant = hamming.histogram(queries, codes, relevant)
    limits = np.cumsum([0, *map(len, relevant)])
    positions = np.concatenate(relevant)
    same([on_gpu.histogram(*there)], [counts])
    same([on_gpu.histogram_of_pairs(*there, limits, positions)], [of_relevant])


@pytest.mark.parametrize("device", DEVICES)
def test_codes_in_answers_out(device: str) -> None:
    queries, codes = make("random", 5, 300, 20, seed=4)
    asked, rows = tensor(queries, device), tensor(codes, device)
    for found, expected in (
        (hamming.top_k(asked, rows, 7), hamming.top_k(queries, codes, 7)),
        (hamming.within(asked, rows, 9), hamming.within(queries, codes, 9)),
        (
            [hamming.histogram(asked, rows, n_bits=20)],
            [hamming.histogram(queries, codes, n_bits=20)],
        ),
        (
            hamming.histogram(asked, rows, tensor(np.ones((5, 2), np.int64), device)),
            hamming.histogram(queries, codes, np.ones((5, 2), np.int64)),
        ),
        # In another order of memory.
        (
            hamming.top_k(asked.T.contiguous().T, rows[::2], 7),
            hamming.top_k(queries, codes[::2], 7),
        ),
        (hamming.top_k(asked[:0], rows, 7), hamming.top_k(queries[:0], codes, 7)),
        (hamming.top_k(asked, rows[:0], 2), hamming.top_k(queries, codes[:0], 2)),
        (hamming.within(asked, rows[:0], 2), hamming.within(queries, codes[:0], 2)),
        ([hamming.histogram(asked, rows[:0])], [hamming.histogram(queries, codes[:0])]),
    ):
        same(found, expected)
        answers: Any = found
        assert all(one.device.type == device for one in answers)


@pytest.mark.parametrize("device", DEVICES)
def test_codes_that_are_none(device: str) -> None:
    import torch

    codes = torch.zeros((3, 4), dtype=torch.uint8, device=device)
    for bad, message in (
        (codes.int(), "codes must be a uint8 array of packed bits, got dtype int32; pass dtype="),
        (codes.float(), "got dtype float32"),
        (codes[0], r"2 dimensions \(n, width\), got shape \(4,\)"),
        (codes[:, :0], "1 to 512 bytes wide, got 0"),
        (codes[:, :3], "queries are 4 bytes wide but codes are 3"),
        (codes.to_sparse(), r"use codes\.to_dense\(\)"),
    ):
        with pytest.raises(InputError, match=message):
            hamming.top_k(codes, bad, 1)
    with pytest.raises(InputError, match="k must be from 1 to"):
        hamming.top_k(codes, codes, 0)
    with pytest.raises(InputError, match="radius must be at least 0"):
        hamming.within(codes, codes, -1)
    with pytest.raises(InputError, match="2 zero padding bits in the last byte, got 0b01000000 in"):
        hamming.histogram(codes, codes + 64, n_bits=30)
    with pytest.raises(InputError, match=r"relevant positions must lie in 0\.\.2"):
        hamming.histogram(codes, codes, [[3], [], []])


def test_two_devices() -> None:
    import torch

    codes = torch.zeros((3, 4), dtype=torch.uint8)
    with pytest.raises(InputError, match="one device, got queries on cpu and codes on meta: use"):
        hamming.top_k(codes, codes.to("meta"), 1)
    with pytest.raises(InputError, match="got queries on meta and X in a ndarray"):
        nearest(codes.to("meta"), codes.numpy(), k=1)
    # As before there were tensors: arrays are what most have.
    assert isinstance(hamming.top_k(codes.numpy(), codes, 1)[0], np.ndarray)


# --- exact neighbours -------------------------------------------------------------------------


def near_rows(
    X: Any, Q: Any, k: int, metric: MetricName, device: str, *, left_over: bool = False
) -> None:
    """Compare what a device finds with what arrays give; it may leave some to the host, or not."""
    from densehash.gpu import truth as on_gpu

    asked, rows = tensor(Q, device), tensor(X, device)
    for ordered in (False, True):
        expected = nearest(Q, X, k=k, metric=metric, ordered=ordered)
        found, left = on_gpu.nearest(asked, rows, k, metric, ordered=ordered)
        assert left_over or len(left) == 0
        there = np.setdiff1d(np.arange(len(Q)), left.cpu().numpy())
        same([found[there]], [expected[there]])
        same([nearest(asked, rows, k=k, metric=metric, ordered=ordered)], [expected])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int16", "float16", "bool"])
def test_the_nearest_rows(device: str, metric: MetricName, dtype: str, small_blocks: None) -> None:
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((400, 20)) * 40 + 100).clip(0, 255).astype(dtype)
    Q = (rng.standard_normal((130, 20)) * 40 + 100).clip(0, 255).astype(dtype)
    if dtype == "bool":
        X[:, 1:], Q[:, 1:] = rng.random((400, 19)) < 0.5, rng.random((130, 19)) < 0.5
    for k in (1, 30, 400):
        near_rows(X, Q, k, metric, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("case", ["far from zero", "clusters", "lengths", "one feature", "wide"])
def test_rows_that_are_hard_to_tell_apart(device: str, metric: MetricName, case: str) -> None:
    rng = np.random.default_rng(1)
    n, d = 1500, {"one feature": 1, "wide": 700}.get(case, 16)
    X = rng.standard_normal((n, d))
    if case == "far from zero":
        X += 1e4
    elif case == "clusters":  # float16 takes all rows of one for the same
        X = 100 * rng.standard_normal((5, d))[rng.integers(0, 5, n)] + 1e-4 * X
    elif case == "lengths":
        X *= 10.0 ** rng.uniform(-6, 6, (n, 1))
    near_rows(X, X[::70] + 1e-6, 10, metric, device, left_over=case in ("lengths", "one feature"))


@pytest.mark.parametrize("device", DEVICES)
def test_equal_rows_go_by_position(device: str) -> None:
    rng = np.random.default_rng(2)
    X = rng.integers(0, 3, (2000, 3)).astype(np.float32)
    asked, rows = tensor(X[:40], device), tensor(X, device)
    for metric in ("l2", "ip"):
        expected = nearest(X[:40], X, k=20, metric=metric, ordered=True)
        same([nearest(asked, rows, k=20, metric=metric, ordered=True)], [expected])
    assert nearest(asked * 0, rows, k=3, metric="ip").tolist() == [[0, 1, 2]] * 40


@pytest.mark.parametrize("device", DEVICES)
def test_what_no_product_tells_is_left_to_the_host(device: str) -> None:
    from densehash.gpu import truth as on_gpu

    X = np.ones((3000, 4), np.float32)
    metric: Any
    for rows, metric in ((X, "l2"), (X.astype(float) * 1e120, "ip"), (X * 1e-30, "cosine")):
        there = tensor(rows, device)
        assert len(on_gpu.nearest(there[:2], there, 3, metric, ordered=False)[1]) == 2
        assert nearest(there[:2], there, k=3, metric=metric).tolist() == [[0, 1, 2]] * 2


@pytest.mark.parametrize("device", DEVICES)
def test_rows_that_are_none(device: str) -> None:
    import torch

    X = torch.randn(20, 3, device=device)
    bad = X.clone()
    bad[7, 1] = torch.nan
    with pytest.raises(InputError, match=r"X must hold finite rows .* got length nan in row 7"):
        nearest(X, bad, k=1)
    bad[7, 1] = -torch.inf
    with pytest.raises(InputError, match=r"queries must hold finite .* got length inf in row 7"):
        nearest(bad, X, k=1)
    bad[7] = 0
    with pytest.raises(InputError, match="X must hold no zero rows for the cosine, got one in row"):
        nearest(X, bad, k=1, metric="cosine")
    for rows, message in (
        (X[:, :2], "queries have 3 features but X has 2"),
        (X[0], "2 dimensions"),
        (X[:0], "empty"),
        (X.to(torch.complex64), "(?i)real numbers|complex data"),
        (X.to_sparse(), r"use X\.to_dense\(\)"),
    ):
        with pytest.raises(InputError, match=message):
            nearest(X, rows, k=1)
    with pytest.raises(InputError, match="k must be from 1 to 20, got 21"):
        nearest(X, X, k=21)
    strided = torch.randn(3, 40, device=device, requires_grad=True).T[::2]
    own = nearest(strided, strided, k=1)
    assert own[:, 0].tolist() == list(range(20))
    assert nearest(X.bfloat16(), X.bfloat16(), k=1)[:, 0].tolist() == list(range(20))


# --- on a GPU alone ---------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES[1:])
def test_without_triton(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from densehash.gpu import hamming as on_gpu
    from densehash.gpu import products, truth

    for module in (products, truth):
        monkeypatch.setattr(module, "has_kernels", lambda _: False)
    queries, codes = make("random", 300, 20_000, 128, seed=5)
    asked, rows = tensor(queries, device), tensor(codes, device)
    same(on_gpu.top_k(asked, rows, 30), hamming.top_k(queries, codes, 30))
    same(on_gpu.within(asked, rows, 50), hamming.within(queries, codes, 50))
    same([on_gpu.histogram(asked, rows)], [hamming.histogram(queries, codes)])
    X = np.random.default_rng(0).standard_normal((20_000, 50))
    near_rows(X, X[:200] + 0.1, 10, "l2", device)


@pytest.mark.parametrize("device", DEVICES[1:])
def test_products_are_never_held_all(device: str) -> None:
    import torch

    codes = torch.randint(0, 256, (500_000, 8), dtype=torch.uint8, device=device)
    X = torch.randn(500_000, 32, device=device)
    for search in (
        lambda: hamming.top_k(codes[:20_000], codes, 10),
        lambda: hamming.histogram(codes[:20_000], codes),
        lambda: nearest(X[:20_000], X, k=10),
    ):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        search()
        assert torch.cuda.max_memory_allocated() - before < 4e9  # all would be 1e10 numbers


@pytest.mark.parametrize("device", DEVICES[1:])
def test_too_little_memory_says_how_much(device: str) -> None:
    import torch

    X = torch.randn(200_000, 512, device=device)
    codes = torch.zeros((20_000_000, 8), dtype=torch.uint8, device=device)
    for search in (
        lambda: nearest(X[:100], X, k=10),
        lambda: hamming.top_k(codes[:10], codes, 10),
        lambda: hamming.within(codes[:10], codes, 1),
        lambda: hamming.histogram(codes[:10], codes),
        lambda: Index.build(X),
    ):
        with (
            filled_memory(20 << 20),
            too_little_memory(r"cuda:0 .* asked for, 0\.\d\d GiB of .* is free"),
        ):
            search()
    assert nearest(X[:3], X, k=1).tolist() == [[0], [1], [2]]
