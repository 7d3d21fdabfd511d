"""Hashers of tensors: on torch's CPU device everywhere, and on a GPU where there is one.

Models and codes of numpy arrays are the oracle. Devices round differently, so bits may differ
where a row lies on a plane.
"""

from __future__ import annotations

import gc
import operator
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_cases import DEVICES, filled_memory, needs_gpu, needs_torch, tensor
from hasher_cases import MAKERS, Make, assert_same_bits, every_hasher, learnt
from numpy.typing import NDArray

import densehash
from densehash import (
    DSH,
    ITQ,
    LSH,
    Index,
    InputError,
    MissingExtraError,
    Refined,
    load_hasher,
)
from densehash.bits import pack, unpack
from densehash.errors import DeviceMemoryError
from densehash.hashers import Hasher
from densehash.hashers.refined import ranking_loss
from densehash.kmeans import lloyd
from densehash.rows import Rows, devices, numerics, rows_of, tensors

pytestmark = needs_torch

on_every_device = pytest.mark.parametrize("device", DEVICES)


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
    monkeypatch.setattr(tensors, "_BLOCK_NUMBERS", 1 << 14)
    monkeypatch.setattr(devices, "_BLOCK_NUMBERS", 1 << 14)


@cache
def cloud(dtype: Any = np.float32) -> NDArray[Any]:
    """Rows of one cloud: where they fall into parts, rounding decides on eigenvectors of AGH."""
    rows = np.random.default_rng(0).standard_normal((3000, 24)) * np.linspace(2, 0.3, 24)
    rows = rows.astype(dtype)
    rows.flags.writeable = False
    return rows


@cache
def model(make: Make) -> Hasher:
    return make().fit(cloud())


def rows_on(device: str, dtype: Any = np.float32) -> Any:
    return tensor(cloud(dtype).copy(), device)


def assert_alike(found: Any, expected: Any, margins: Any, n_bits: int) -> None:
    """Codes with the same bits but where margins are rounding; nearly all of them."""
    assert found.dtype == expected.dtype
    bits, others = unpack(found, n_bits), unpack(expected, n_bits)
    assert_same_bits(bits, others, margins, 1e-3)
    assert (bits == others).mean() >= 0.999


# --- the same models and codes -------------------------------------------------------------


@every_hasher
@on_every_device
@pytest.mark.usefixtures("small_blocks")
def test_tensors_have_the_codes_of_arrays(make: Make, device: str) -> None:
    import torch

    X, T = cloud(), rows_on(device)
    expected = model(make)
    own = make().fit(T)
    for hasher in (expected, own):
        codes, margins = hasher.transform(T), hasher.project(T)
        assert (codes.dtype, codes.device, margins.dtype) == (torch.uint8, T.device, torch.float32)
        assert codes.device == margins.device == T.device
        here = margins.cpu().numpy()
        assert here.shape == (len(X), hasher.n_bits_)
        np.testing.assert_array_equal(codes.cpu().numpy(), pack(here >= 0))
        assert_alike(codes.cpu().numpy(), expected.transform(X), here, hasher.n_bits_)
    for name, value in vars(own).items():
        if name.endswith("_"):
            assert type(value) is type(getattr(expected, name)), name


@on_every_device
@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "int8", "uint8", "bool", "int64", "float64"]
)
def test_types_are_computed_with_as_arrays_are(dtype: str, device: str) -> None:
    import torch

    T = rows_on(device)
    T = T > 0 if dtype == "bool" else (T * 4).to(getattr(torch, dtype))
    wide = T.double().cpu().numpy()
    X = wide if dtype in ("int64", "float64") else wide.astype(np.float32)
    hasher, expected = (DSH(12, random_state=0).fit(rows) for rows in (T, X))
    margins = expected.project(X)
    assert_alike(hasher.transform(T).cpu().numpy(), expected.transform(X), margins, 12)


@on_every_device
def test_strides_and_gradients_do_not_matter(device: str) -> None:
    T = rows_on(device)
    wide = T.repeat(1, 2)[:, ::2].requires_grad_()
    assert not wide.is_contiguous()
    hasher = DSH(12, random_state=0).fit(wide)
    assert learnt(hasher) == learnt(DSH(12, random_state=0).fit(wide.detach().contiguous()))
    codes = hasher.transform(wide)
    assert not codes.requires_grad
    assert not hasher.project(wide).requires_grad
    assert wide.requires_grad


@on_every_device
def test_rows_far_from_zero_are_computed_with_in_float64(device: str) -> None:
    X = cloud(np.float64) + 1e6
    T = tensor(X, device)
    hasher, expected = (DSH(12, random_state=0).fit(rows) for rows in (T, X))
    assert hasher.uses_float64_
    codes = hasher.transform(T).cpu().numpy()
    assert_alike(codes, expected.transform(X), expected.project(X), 12)


@on_every_device
def test_a_model_of_tensors_is_saved_and_used_anywhere(tmp_path: Path, device: str) -> None:
    T = rows_on(device)
    hasher = ITQ(12, random_state=0).fit(T)
    hasher.save(tmp_path / "model")
    same = load_hasher(tmp_path / "model")
    assert learnt(same) == learnt(hasher)
    X = cloud()
    assert_alike(hasher.transform(T).cpu().numpy(), same.transform(X), same.project(X), 12)


@on_every_device
@pytest.mark.usefixtures("small_blocks")
def test_blocks_of_codes_are_tensors_of_the_device(device: str) -> None:
    import torch

    T = rows_on(device)
    hasher = LSH(12, random_state=0).fit(T)
    blocks = list(hasher.transform_blocks(T))
    assert [start for start, _ in blocks] == list(range(0, len(T), (1 << 14) // T.shape[1]))
    assert torch.equal(torch.cat([codes for _, codes in blocks]), hasher.transform(T))


@on_every_device
def test_out_is_written_where_the_rows_are(device: str) -> None:
    import torch

    T = rows_on(device)
    hasher = LSH(12, random_state=0).fit(T)
    out = torch.full((len(T), 2), 255, dtype=torch.uint8, device=device)
    assert hasher.transform(T, out=out) is out
    assert torch.equal(out, hasher.transform(T))
    for wrong, came in (
        (out[:5], "torch.uint8 and shape (5, 2) on"),
        (out.int(), "torch.int32"),
        (out.to("meta"), "on meta"),
        (np.empty((len(T), 2), np.uint8), "a ndarray"),
    ):
        expected = rf"uint8 tensor of shape \({len(T)}, 2\) on {device}.*where X is"
        with pytest.raises(InputError, match=expected) as error:
            hasher.transform(T, out=wrong)
        assert came in str(error.value)
    with pytest.raises(InputError, match="a uint8 array.*got a Tensor"):
        hasher.transform(cloud(), out=out)


@on_every_device
@pytest.mark.usefixtures("small_blocks")
def test_groups_without_rows_are_filled_as_those_of_arrays(device: str) -> None:
    # Few values, most of them many times: only far rows that differ may fill a group.
    rng = np.random.default_rng(0)
    values = rng.integers(-3, 4, (9, 5)).astype(np.float32)
    X = np.concatenate([values[rng.integers(0, 4, 5000)], values])
    centers = values[[0, 0, 0, 1, 1, 2, 2, 2]] * np.float32(1)
    expected, found = (lloyd(rows_of(rows), centers, 3) for rows in (X, tensor(X, device)))
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_allclose(found.centers, expected.centers, rtol=1e-6)
    np.testing.assert_allclose(found.inertia, expected.inertia, rtol=1e-4, atol=1e-3)


@on_every_device
def test_refined_learns_as_well_as_from_arrays(device: str) -> None:
    losses = []
    for rows in (cloud(), rows_on(device)):
        hasher = Refined(LSH(12), n_steps=40, n_rows=1000, random_state=0).fit(rows)
        losses.append(hasher.losses_)
    # Of one seed, the same rows are held out and drawn; steps part only by rounding.
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-3)
    assert losses[0][3] == pytest.approx(losses[1][3], rel=0.02)
    assert losses[1].min() < losses[0].min() * 1.1 < losses[0][0]


# --- what blocks are computed with ---------------------------------------------------------


@on_every_device
@pytest.mark.parametrize("n_bits", [1, 7, 8, 9, 64, 100])
def test_bits_of_a_tensor_are_packed_as_those_of_an_array(n_bits: int, device: str) -> None:
    bits = np.random.default_rng(n_bits).random((50, n_bits)) < 0.5
    T = tensor(bits, device)
    for order in (T, T.T.contiguous().T):
        np.testing.assert_array_equal(pack(order).cpu().numpy(), pack(bits))  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="bool tensor.*torch.uint8"):
        pack(T.byte())
    with pytest.raises(InputError, match="bool tensor.*shape \\(50,\\)"):
        pack(T[:, 0])


@on_every_device
def test_losses_and_their_slopes_are_those_of_arrays(device: str) -> None:
    counts = np.random.default_rng(0).integers(0, 50, (6, 2, 33))
    for one, two in zip(ranking_loss(tensor(counts, device)), ranking_loss(counts), strict=True):
        there: Any = one
        np.testing.assert_allclose(there.cpu().numpy(), two, rtol=1e-9, atol=1e-12)


@on_every_device
def test_the_smallest_of_rows(device: str) -> None:
    values = np.random.default_rng(0).permutation(60).reshape(4, 15).astype(np.float32)
    T = tensor(values, device)
    found, positions = numerics.smallest(T.clone(), 3)
    expected, where = numerics.smallest(values.copy(), 3)
    np.testing.assert_array_equal(found.cpu().numpy(), expected)
    np.testing.assert_array_equal(positions.cpu().numpy(), where)
    third = numerics.nth_smallest(T, 3).cpu().numpy()
    np.testing.assert_array_equal(third, expected[:, 2:])


# --- bad input -----------------------------------------------------------------------------


@on_every_device
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("number", "text"),
    [
        (np.nan, "got NaN in row 2345, column 7"),
        (-np.inf, "got infinity in row 2345, column 7"),
        (1e30, "numbers up to 1e\\+30, too large"),
    ],
)
def test_what_is_not_finite_is_named(number: float, text: str, device: str) -> None:
    T = rows_on(device)
    hasher = LSH(12, random_state=0).fit(T)
    T[2345, 7] = number
    for act in (
        DSH(12).fit,
        hasher.transform,
        hasher.project,
        lambda X: list(hasher.transform_blocks(X)),
    ):
        with pytest.raises(InputError, match=text):
            act(T)


def test_tensors_that_are_no_rows() -> None:
    import torch

    T = rows_on("cpu")
    for wrong, text in (
        (T[0], "2 dimensions"),
        (T[:0], "0 sample"),
        (T[:, :0], "0 feature"),
        (T.to_sparse(), "must be dense"),
        (T.to("meta"), "holds no numbers"),
        (T.to(torch.complex64), "real numbers, got torch.complex64"),
    ):
        with pytest.raises(InputError, match=text):
            DSH(12).fit(wrong)
    with pytest.raises(InputError, match="X has 5 features"):
        LSH(12).fit(T).transform(T[:, :5])


@pytest.fixture
def full_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A GPU that has no memory for the second block of k-means, nor for codes."""
    import torch

    told = "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 3 has a total capacity of 4.00 GiB"
    n_blocks = 0

    def full(*given: Any) -> Any:
        nonlocal n_blocks
        n_blocks += 1
        if n_blocks > 1:
            raise torch.cuda.OutOfMemoryError(told)
        return numerics.add_by_label(*given)

    def no_codes(*_: Any) -> None:
        raise torch.cuda.OutOfMemoryError(told)

    monkeypatch.setattr("densehash.kmeans.add_by_label", full)
    monkeypatch.setattr("densehash.hashers.base.pack", no_codes)
    memory = {3: (1 << 29, 4 << 30)}
    monkeypatch.setattr(torch.cuda, "mem_get_info", memory.__getitem__)
    yield
    assert n_blocks > 1


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("device", [None, "cpu"])
def test_too_little_memory_in_the_middle(
    device: str | None, request: pytest.FixtureRequest
) -> None:
    T: Any = cloud() if device else rows_on("cpu")
    hasher = DSH(12, random_state=0).fit(T)
    before = learnt(hasher)
    request.getfixturevalue("full_device")
    for act in (
        hasher.set_params(n_bits=14).fit,
        hasher.transform,
        lambda X: list(hasher.transform_blocks(X)),
    ):
        with (
            densehash.device(device),
            pytest.raises(DeviceMemoryError, match="cuda:3 has too little memory") as error,
        ):
            act(T)
        assert isinstance(error.value, MemoryError)
        assert "1.50 GiB was asked for, 0.50 GiB of 4.00 GiB is free" in str(error.value)
        assert "device('cuda:3')" in str(error.value)
        assert "Tried to allocate" in str(error.value.__cause__)
    assert learnt(hasher) == before


def test_other_errors_of_torch_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr("densehash.kmeans.add_by_label", wrong)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        DSH(12).fit(rows_on("cpu"))


# --- device() ------------------------------------------------------------------------------


@every_hasher
@on_every_device
@pytest.mark.usefixtures("small_blocks")
def test_arrays_on_a_device_come_back_as_arrays(make: Make, device: str) -> None:
    X = cloud()
    expected = model(make)
    with densehash.device(device):
        hasher = make().fit(X)
        codes, margins = hasher.transform(X), hasher.project(X)
        parts = [part for _, part in hasher.transform_blocks(X)]
    assert {type(found) for found in (codes, margins, *parts)} == {np.ndarray}
    assert margins.dtype == np.float32
    np.testing.assert_array_equal(np.concatenate(parts), codes)
    assert_alike(codes, expected.transform(X), margins, hasher.n_bits_)


@on_every_device
@pytest.mark.usefixtures("small_blocks")
def test_maps_blocks_and_odd_types_on_a_device(tmp_path: Path, device: str) -> None:
    X = cloud()
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    out = np.lib.format.open_memmap(tmp_path / "codes.npy", "w+", np.uint8, (len(X), 2))
    expected = DSH(12, random_state=0).fit(X)
    codes, margins = expected.transform(X), expected.project(X)
    for rows in (
        mapped,
        lambda: iter(np.array_split(X, 7)),
        X.astype(">f4"),
        np.asfortranarray(X),
        X.tolist(),
    ):
        with densehash.device(device):
            hasher = DSH(12, random_state=0).fit(rows)
            found = hasher.transform(rows, out=out)
        assert found is out
        assert_alike(np.array(found), codes, margins, 12)
    wrong = X.copy()
    wrong[2345, 7] = np.nan
    with densehash.device(device), pytest.raises(InputError, match="NaN in row 2345, column 7"):
        DSH(12).fit(wrong)


def test_the_device_of_the_innermost_block_holds() -> None:
    assert devices.current_device() is None
    with densehash.device("cpu"):
        with densehash.device(None):
            assert devices.current_device() is None
            assert type(rows_of([[1.0]], device=devices.current_device())) is Rows
        assert devices.current_device() == "cpu"
    assert devices.current_device() is None
    with pytest.raises(InputError, match="device must be a name, as 'cuda', or None, got 1"):
        densehash.device(1).__enter__()  # type: ignore[arg-type]


def test_tensors_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_usable", None)  # nobody asks for the device
    with densehash.device("cuda"):
        assert LSH(12, random_state=0).fit(rows_on("cpu")).transform(rows_on("cpu")).shape[1] == 2


def test_devices_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    X = cloud()
    hasher = LSH(12, random_state=0).fit(X)
    for name in ("nonsense", "cuda:99"):
        with densehash.device(name), pytest.raises(InputError, match=f"device '{name}' cannot be"):
            hasher.transform(X)
    monkeypatch.setitem(sys.modules, "torch", None)
    with densehash.device("cpu"), pytest.raises(MissingExtraError, match=r"densehash\[torch\]"):
        hasher.fit(X)
    assert hasher.transform(X).shape == (len(X), 2)


@pytest.mark.parametrize(
    "told",
    [
        "Found no NVIDIA driver on your system.",
        "The NVIDIA driver on your system is too old (found version 11040).",
        "Cannot re-initialize CUDA in forked subprocess. You must use the 'spawn' start method",
    ],
)
def test_torch_says_why_a_device_cannot_be_used(
    told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    X = cloud()
    hasher = LSH(12, random_state=0).fit(X)
    before = learnt(hasher)

    def refused(*_: Any, **__: Any) -> None:
        raise RuntimeError(f"{told}\nMore lines of torch.")

    monkeypatch.setattr(torch, "empty", refused)
    for act in (hasher.fit, hasher.transform, lambda X: Index.build(X, path=tmp_path / "a.dh")):
        with (
            densehash.device("cuda"),
            pytest.raises(InputError, match="device 'cuda' cannot be used: ") as error,
        ):
            act(X)
        assert str(error.value).endswith(told)
    assert learnt(hasher) == before
    assert not (tmp_path / "a.dh").exists()


@on_every_device
def test_the_device_goes_with_the_work_to_workers_of_dask(device: str) -> None:
    da = pytest.importorskip("dask.array", reason="needs the extra dask")
    import dask

    X = cloud()
    spread = da.from_array(X, chunks=(700, X.shape[1]))
    expected = DSH(12, random_state=0).fit(X)
    with dask.config.set(scheduler="threads"):
        with densehash.device(device):
            where = rows_of(spread, device=devices.current_device()).map_reduce(
                lambda block, _: [str(block.device)], operator.add
            )
            hasher = DSH(12, random_state=0).fit(spread)
            codes, margins = hasher.transform(spread), hasher.project(spread)
        assert {name.partition(":")[0] for name in where} == {device}
        found = codes.compute()  # later, and still there
        assert type(found) is np.ndarray
        assert_alike(found, expected.transform(X), margins.compute(), 12)


# --- on a GPU only -------------------------------------------------------------------------


def refined_fit(X: Any) -> Refined:
    return Refined(LSH(12), n_steps=2, n_rows=1000, random_state=0).fit(X)


class TestOnlyOnAGpu:
    """Kernels, streams and processes of CUDA."""

    pytestmark = needs_gpu

    @pytest.mark.parametrize("shape", [(1, 1, 1), (1000, 40, 10), (5000, 70, 150), (3000, 960, 96)])
    def test_kernels_round_as_float32_does(self, shape: tuple[int, int, int]) -> None:
        import torch

        n, d, k = shape
        chance = torch.Generator("cuda").manual_seed(0)
        X, C = (torch.randn(m, d, device="cuda", generator=chance) for m in (n, k))
        exact = X.double() @ C.double().T - 0.5
        size = float((X.norm(dim=1).max() * C.norm(dim=1).max()).clamp(min=1))
        found = numerics.margins(X, C.cpu().numpy(), np.full(k, 0.5))
        assert float((found - exact).abs().max()) < 1e-6 * size
        labels, scores = numerics.nearest(X, C.cpu().numpy())
        distances = torch.cdist(X.double(), C.double())
        chosen = distances.gather(1, labels[:, None])
        assert float((chosen - distances.min(1, keepdim=True).values).max()) < 1e-4
        halves = 0.5 * (C.double() ** 2).sum(1)
        ideal = (X.double() @ C.double().T - halves).max(1).values
        assert float((scores - ideal).abs().max()) < 1e-4 * size
        sums, counts = numerics.add_by_label(X, labels, k)
        expected = torch.zeros(k, d, device="cuda", dtype=torch.float64)
        expected.index_add_(0, labels, X.double())
        np.testing.assert_allclose(sums, expected.cpu().numpy(), rtol=1e-5, atol=1e-4)
        np.testing.assert_array_equal(counts, labels.bincount(minlength=k).cpu().numpy())

    def test_a_row_alone_has_its_code_among_others(self) -> None:
        import torch

        T = rows_on("cuda")
        hasher = DSH(12, random_state=0).fit(T)
        alone = torch.cat([hasher.project(T[at : at + 1]) for at in range(100)])
        assert torch.equal(alone, hasher.project(T)[:100])

    @pytest.mark.parametrize("name", MAKERS)
    def test_a_fit_has_one_answer(self, name: str) -> None:
        if name.startswith("AGH"):
            pytest.skip("its sums by torch have no fixed order")
        T = rows_on("cuda")
        assert learnt(MAKERS[name]().fit(T)) == learnt(MAKERS[name]().fit(T))

    @pytest.mark.usefixtures("small_blocks")
    def test_blocks_that_were_kept_change_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import torch

        X, found = cloud(), []
        two_blocks = 2.5 * 4 * (1 << 14) / torch.cuda.mem_get_info()[0]  # of five
        for kept in (0.5, two_blocks, 0.0):
            monkeypatch.setattr(devices, "_MOST_KEPT", kept)
            with densehash.device("cuda"):
                found.append(learnt(DSH(12, p=6, random_state=0).fit(X)))
        assert found[0] == found[1] == found[2]

    def test_threads_of_torch_are_as_many_as_before(self) -> None:
        import torch

        torch.set_num_threads(3)
        with densehash.device("cuda"), ThreadPoolExecutor(1) as others:
            LSH(12, random_state=0).fit(cloud()).transform(cloud())
            assert torch.get_num_threads() == 3
            assert others.submit(torch.get_num_threads).result() == 3

    def test_out_of_memory_leaves_the_hasher_as_it_was(self) -> None:
        import torch

        T = rows_on("cuda")
        hasher = DSH(12, random_state=0).fit(T)
        before, codes = learnt(hasher), hasher.transform(T)
        many = T.half().repeat(2000, 1)
        array = many.cpu().numpy()
        torch.cuda.empty_cache()
        with filled_memory(200 << 20):
            for act in (hasher.fit, hasher.transform, refined_fit):
                for device, rows in ((None, many), ("cuda", array)):
                    with (
                        densehash.device(device),
                        pytest.raises(
                            DeviceMemoryError, match=r"asked for, 0\.\d\d GiB of"
                        ) as error,
                    ):
                        act(rows)
                    del error  # which holds what was made of the rows
                    gc.collect()
                    torch.cuda.empty_cache()
        assert learnt(hasher) == before
        assert torch.equal(hasher.transform(T), codes)

    @every_hasher
    def test_rows_are_refused_after_they_were_computed_with(self, make: Make) -> None:
        T = rows_on("cuda")
        hasher = make().fit(T)
        codes = hasher.transform(T)
        wrong = T.clone()
        wrong[2345, 7] = np.nan
        for act in (make().fit, hasher.transform, hasher.project):
            with pytest.raises(InputError, match="got NaN in row 2345, column 7"):
                act(wrong)
        # The device is well, and what is computed there is the same.
        np.testing.assert_array_equal(hasher.transform(T).cpu().numpy(), codes.cpu().numpy())

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_child_is_told_so(self) -> None:
        X, T = cloud(), rows_on("cuda")
        child = os.fork()
        if child == 0:
            status = 0
            for device, rows in (("cuda", X), (None, T)):
                try:
                    with densehash.device(device):
                        LSH(12).fit(rows)
                    status += 1
                except RuntimeError as error:
                    status += "spawn" not in str(error)
                except InputError as error:
                    status += "spawn" not in str(error)
            os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
