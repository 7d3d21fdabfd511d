"""An index of a tensor: groups and signs made on its device, as good as those of the host.

On machines without a GPU, tensors on torch's CPU device go the way of those on a GPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_cases import DEVICES, needs_torch, tensor, too_little_memory
from hasher_cases import mixture
from numpy.random import RandomState

from densehash import Index
from densehash.choices import MetricName
from densehash.errors import InputError
from densehash.index import building
from densehash.index.grouping import Centers
from densehash.index.kinds import Grouped
from densehash.index.sketches import Signs
from densehash.index.sketches.decoder import learn_decoder, signs_of
from densehash.rows import Rows, rows_of
from densehash.rows.numerics import to_host
from densehash.truth import nearest

pytestmark = needs_torch

X = mixture(2350, d=12, dtype=np.float32)[:2200].copy()
Q = mixture(2350, d=12, dtype=np.float32)[2200:].copy()


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A device whose tensors go the way of a GPU."""
    import torch

    if request.param == "cpu":
        monkeypatch.setattr(building, "on_gpu", lambda rows: isinstance(rows, torch.Tensor))
    return str(request.param)


def recall(index: Index, k: int, metric: MetricName) -> float:
    found = index.search(Q, k).ids
    truth = nearest(Q, X, k=k, metric=metric)
    return float(np.mean([np.isin(one, two).mean() for one, two in zip(found, truth, strict=True)]))


@pytest.mark.parametrize(
    "options",
    [
        {"metric": "l2"},
        {"metric": "cosine"},
        {"metric": "ip"},
        {"keep_vectors": False},
        {"keep_vectors": "int8"},
        {"keep_vectors": "float16", "groups_a_row": 2},
        {"kind": "flat"},
        {"sketch": "codes", "n_bits": 48, "kind": "grouped", "n_groups": 8},
        {"hasher": "dsh", "n_bits": 24},
        {"hasher": "itq", "n_bits": 24, "metric": "ip", "kind": "grouped", "n_groups": 8},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_finds_as_many_as_one_of_an_array(device: str, options: dict[str, Any]) -> None:
    metric = options.get("metric", "l2")
    told = {"n_bits": 32, "random_state": 0, **options}
    here, there = Index.build(X, **told), Index.build(tensor(X, device), **told)
    assert repr(there) == repr(here)
    assert recall(there, 10, metric) >= recall(here, 10, metric) - 0.02
    np.testing.assert_array_equal(there.search(tensor(Q, device), 3).ids, there.search(Q, 3).ids)
    if there.recall is not None:
        assert there.recall > 0.95


def test_is_an_index_like_others(device: str, tmp_path: Path) -> None:
    names = [f"row {i}" for i in range(len(X))]
    rows = tensor(X, device).requires_grad_()
    built = Index.build(rows, ids=names, path=tmp_path / "a.dh", random_state=0, n_bits=32)
    opened = Index.open(tmp_path / "a.dh")
    opened.add(tensor(X[:2] + 1, device), ids=["one", "two"])
    opened.remove(["row 0"])
    assert opened.search(X[1:2], 1).ids.tolist() == [["row 1"]]
    assert built.search(X[:1], 1).ids.tolist() == [["row 0"]]


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "uint8"])
def test_types_of_tensors(device: str, dtype: str) -> None:
    import torch

    rows = (tensor(X, device) * 5).clamp(0, 100).to(getattr(torch, dtype))
    index = Index.build(rows[:, ::2], random_state=0, n_bits=16)
    assert index.search(rows[7:8, ::2], 1).distances.tolist() == [[0.0]]


def test_rows_that_are_none(device: str) -> None:
    bad = X.copy()
    bad[2100, 3] = np.nan
    for metric in ("l2", "cosine"):
        with pytest.raises(InputError, match="X must be finite, got NaN in row 2100, column 3"):
            Index.build(tensor(bad, device), metric=metric)
    with pytest.raises(InputError, match="2 dimensions"):
        Index.build(tensor(X[0], device))
    with pytest.raises(InputError, match="empty"):
        Index.build(tensor(X[:0], device))


def test_too_little_memory_leaves_no_folder(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    def full(*_: Any, **__: Any) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0")

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1 << 30, 2 << 30))
    monkeypatch.setattr("densehash.index.sketches.decoder.Decoder.encode", full)
    with too_little_memory(r"2\.00 GiB was asked for, 1\.00 GiB of 2\.00 GiB"):
        Index.build(tensor(X, device), path=tmp_path / "a.dh")
    assert not (tmp_path / "a.dh").exists()


# --- what it is made of -----------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("for_products", [False, True])
def test_groups_are_as_tight(device: str, for_products: bool) -> None:
    """So they are in two levels, where there are many."""
    here, there = (
        Centers.learn(rows_of(rows), 300, RandomState(0), for_products=for_products)
        for rows in (X, tensor(X, device))
    )
    assert there.centers.shape[1] == here.centers.shape[1]
    assert 0.97 * len(here) <= len(there) <= 1.01 * len(here)

    def spread(centers: Centers) -> float:
        relative = centers._relative(X)
        own = relative - centers.centers[centers.labels(Rows(X))]
        return float(np.square(own).sum())

    assert spread(there) < 1.1 * spread(here)
    relative = here._relative(X)
    squares = np.square(relative[:, np.newaxis] - here.centers).sum(axis=2)
    labels = here.nearest(tensor(X, device))
    least = squares[np.arange(len(X)), labels]
    np.testing.assert_allclose(least, squares.min(axis=1), rtol=1e-4, atol=1e-4)
    assert labels.dtype == here.label_type


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n_bits", [8, 40, 128])
def test_signs_are_those_of_native_code(device: str, n_bits: int) -> None:
    rows = RandomState(0).standard_normal((1200, 24)).astype(np.float32)
    rows[5] = rows[0]
    centers = rows[:3].copy()
    labels = (np.arange(1200) % 3).astype(np.uint32)
    decoder = learn_decoder(rows, labels, centers, n_bits, "l2", RandomState(0))
    codes, factors = decoder.encode(rows, labels, centers)
    found, found_factors = decoder.encode(tensor(rows, device), labels, centers)
    assert (found.dtype, found.shape) == (codes.dtype, codes.shape)
    # Native code rounds residuals to whole numbers of a byte.
    equal = signs_of(found) == signs_of(codes)
    assert equal.mean() > 0.93
    same = equal.all(axis=1)
    np.testing.assert_allclose(found_factors[same], factors[same], atol=40)

    def away(codes: Any, factors: Any) -> float:
        """How far what is kept of rows lies from them."""
        scales = 0.5 / (factors[:, 1:] * decoder.beta)
        kept = scales * (signs_of(codes) @ decoder.matrix)
        return float(np.square(rows - centers[labels] - kept).sum())

    assert away(found, found_factors) < 1.01 * away(codes, factors)


@pytest.mark.parametrize("device", DEVICES[1:])
def test_the_kernel_finds_the_signs_of_torch(device: str) -> None:
    import torch

    from densehash.gpu import kernels, signs

    for n_bits in (8, 24, 160, 256, 1024):
        matrix = torch.randn(n_bits, 50, device=device)
        products, gram = torch.randn(333, 50, device=device) @ matrix.T, matrix @ matrix.T
        for one, two in zip(
            kernels.descend(products, gram, 3), signs._by_torch(products, gram, 3), strict=True
        ):
            assert ((one - two).abs() < 1e-2).float().mean() > 0.995


@pytest.mark.parametrize("device", DEVICES)
def test_a_sketch_of_a_tensor(device: str) -> None:
    rows = tensor(X, device)
    kind = Grouped(Centers.learn(rows_of(rows), 16, RandomState(0)))
    sketch = Signs.learn(rows_of(rows), kind, n_bits=32, metric="l2", random_state=RandomState(0))
    of_array, of_tensor = sketch.encode(X, kind.labels(X)), sketch.encode(rows, kind.labels(rows))
    for column in sketch.columns:
        assert to_host(of_tensor[column.name]).dtype == column.dtype
        assert of_tensor[column.name].shape == of_array[column.name].shape
    equal = np.unpackbits(of_tensor["codes"]) == np.unpackbits(of_array["codes"])
    assert equal.mean() > 0.95
