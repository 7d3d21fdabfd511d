"""Against numbers that the authors' own code printed: see golden/README.md."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from densehash.bits import unpack
from densehash.hashers import AGH, DSH, ITQ, KLSH, LSH, PCAH, SIKH, SpH
from densehash.hashers.agh import anchor_projection
from densehash.hashers.base import Hasher
from densehash.hashers.dsh import adjacent_pairs, binary_entropy, median_planes
from densehash.hashers.itq import rotation_step
from densehash.hashers.klsh import gaussian_kernel, landmark_weights
from densehash.hashers.sikh import mean_neighbor_distance
from densehash.rows import Rows

GOLDEN = Path(__file__).parent / "golden"

Floats = NDArray[np.float64]
Bits = NDArray[np.bool_]
Case = dict[str, NDArray[Any]]


@cache
def rows() -> tuple[Floats, Floats]:
    """The database and the queries."""
    data = np.load(GOLDEN / "data.npz")
    every = (data["raw"] - data["mu"]) / data["scale"]
    return every[data["nq"] :], every[: data["nq"]]


def cases(method: str) -> list[Any]:
    stored = np.load(GOLDEN / f"{method}.npz")
    names = sorted({key.split("/")[0] for key in stored.files if "/" in key})
    fields = {key.split("/")[-1] for key in stored.files}
    found = [{f: stored[f"{c}/{f}"] for f in fields if f"{c}/{f}" in stored} for c in names]
    return [pytest.param(case, id=name) for case, name in zip(found, names, strict=True)]


def golden_bits(case: Case) -> Bits:
    return unpack(np.concatenate([case["codes_db"], case["codes_q"]]), int(case["L"]))


def our_bits(hasher: Hasher) -> Bits:
    return unpack(np.concatenate([hasher.transform(part) for part in rows()]), hasher.n_bits_)


def assert_equal_up_to_complements(ours: Bits, theirs: Bits) -> None:
    wrong = (ours != theirs).sum(axis=0)
    np.testing.assert_array_equal(np.minimum(wrong, len(ours) - wrong), 0)


def up_to_sign(ours: Floats, theirs: Floats) -> Floats:
    """Our columns, turned to point where theirs do."""
    turned: Floats = ours * np.sign((ours * theirs).sum(axis=0))
    return turned


def group_means(labels: NDArray[np.uint8]) -> Floats:
    database = rows()[0]
    return np.array([database[labels == group].mean(axis=0) for group in range(labels.max() + 1)])


@pytest.mark.parametrize("case", cases("dsh"))
def test_dsh(case: Case) -> None:
    database = rows()[0]
    alpha, p, r, L = float(case["alpha"]), int(case["p"]), int(case["r"]), int(case["L"])
    hasher = DSH(L, alpha=alpha, p=p, r=r, init=database[case["init"]]).fit(database)
    assert isinstance(hasher, DSH)
    np.testing.assert_allclose(hasher.centers_, group_means(case["labels"]), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(hasher.weights_, np.bincount(case["labels"]) / len(database))

    assert hasher.n_candidates_ == len(case["cand_ratio"])
    shares = case["cand_ratio"] / (1 + case["cand_ratio"])
    best = np.sort(binary_entropy(shares))[::-1][:L]
    np.testing.assert_allclose(hasher.entropies_, best, rtol=0, atol=1e-12)

    # The order of planes may differ among equal entropies, and so may the side called 1.
    ours = [frozenset(pair) for pair in hasher.pairs_.tolist()]
    theirs = [frozenset(pair) for pair in case["pairs"].tolist()]
    assert len(set(ours)) == L
    assert set(ours) == set(theirs)
    order = [theirs.index(pair) for pair in ours]
    np.testing.assert_array_equal(our_bits(hasher), ~golden_bits(case)[:, order])


def test_dsh_every_candidate_has_the_entropy_of_theirs() -> None:
    for case in (param.values[0] for param in cases("dsh")):
        centers = group_means(case["labels"])
        planes = median_planes(centers, adjacent_pairs(centers, int(case["r"])))
        ones = centers @ planes.planes.T >= planes.thresholds
        shares = np.bincount(case["labels"]) / len(case["labels"]) @ ones
        small = np.minimum(shares, 1 - shares)
        np.testing.assert_allclose(np.sort(small / (1 - small)), np.sort(case["cand_ratio"]))


@pytest.mark.parametrize("case", cases("lsh"))
def test_lsh(case: Case) -> None:
    hasher = LSH(int(case["L"]), random_state=0).fit(rows()[0])
    np.testing.assert_allclose(hasher.mean_, 0, atol=1e-12)
    hasher.planes_, hasher.thresholds_ = case["W"].T, case["W"].T @ hasher.mean_
    np.testing.assert_array_equal(our_bits(hasher), golden_bits(case))


@pytest.mark.parametrize("case", cases("pcah"))
def test_pcah(case: Case) -> None:
    hasher = PCAH(int(case["L"])).fit(rows()[0])
    np.testing.assert_allclose(hasher.mean_, case["mu"], atol=1e-12)
    np.testing.assert_allclose(up_to_sign(hasher.planes_.T, case["W"]), case["W"], atol=1e-10)
    sums_of_squares = hasher.variances_ * (len(rows()[0]) - 1)
    np.testing.assert_allclose(sums_of_squares, case["eigval"], rtol=1e-10)
    assert_equal_up_to_complements(our_bits(hasher), golden_bits(case))


@pytest.mark.parametrize("case", cases("sph"))
def test_sph(case: Case) -> None:
    hasher = SpH(int(case["L"])).fit(rows()[0])
    np.testing.assert_allclose(hasher.upper_ - hasher.lower_, case["mx"] - case["mn"], atol=1e-12)
    np.testing.assert_array_equal(hasher.mode_directions_, case["modes"].argmax(axis=1))
    np.testing.assert_array_equal(hasher.modes_, case["modes"].max(axis=1))
    assert_equal_up_to_complements(our_bits(hasher), golden_bits(case))


@pytest.mark.parametrize("case", cases("sikh"))
def test_sikh(case: Case) -> None:
    hasher = SIKH(int(case["L"]), gamma=float(case["gamma"]), random_state=0).fit(rows()[0])
    hasher.frequencies_, hasher.phases_, hasher.offsets_ = case["R"].T, case["b"], case["T"]
    np.testing.assert_array_equal(our_bits(hasher), golden_bits(case))


def test_sikh_the_width_of_the_kernel_is_theirs() -> None:
    """Theirs asks all rows, ours 100 of them."""
    dball = float(np.load(GOLDEN / "data.npz")["dball"])
    found = [
        mean_neighbor_distance(Rows(rows()[0]), np.random.RandomState(seed)) for seed in range(20)
    ]
    assert abs(np.mean(found) / dball - 1) < 0.01


@pytest.mark.parametrize("case", cases("klsh"))
def test_klsh(case: Case) -> None:
    L, t = int(case["L"]), float(case["t"])
    hasher = KLSH(L, random_state=0).fit(rows()[0])
    landmarks = rows()[0][case["landmark_rows"]]
    kernel = gaussian_kernel(landmarks, landmarks, t)
    # Which 30 landmarks are behind each plane is not printed: W = K^(-1/2) e, so e = K^(1/2) W.
    values, vectors = np.linalg.eigh(
        kernel - kernel.mean(axis=0) - kernel.mean(axis=1)[:, None] + kernel.mean()
    )
    roots = np.sqrt(np.maximum(values, 0))
    chosen = vectors @ (roots[:, None] * (vectors.T @ case["W"]))
    subsets = np.sort(np.argsort(-chosen, axis=0)[:30].T, axis=1)

    weights = landmark_weights(kernel, subsets)
    np.testing.assert_allclose(weights, case["W"], rtol=0, atol=1e-9)
    hasher.landmarks_, hasher.t_, hasher.weights_ = landmarks, t, weights
    np.testing.assert_array_equal(our_bits(hasher), golden_bits(case))


@pytest.mark.parametrize("case", cases("agh"))
def test_agh(case: Case) -> None:
    database, L = rows()[0], int(case["L"])
    hasher = AGH(L, random_state=0).fit(database)
    hasher.anchors_ = np.load(GOLDEN / "agh.npz")["anchors"]
    hasher.sigma_ = float(case["sigma"])
    links = hasher._links(Rows(database))
    hasher.eigenvalues_, projection = anchor_projection(links, len(database), L // 2)
    turned = up_to_sign(projection, case["W"])
    np.testing.assert_allclose(turned, case["W"], rtol=0, atol=1e-10)
    # The sign decides which side is positive, and with it the thresholds.
    hasher.projection_ = turned
    hasher.second_thresholds_ = hasher._learn_second_thresholds(Rows(database), links.sum(axis=0))
    np.testing.assert_allclose(hasher.second_thresholds_, case["thres"], rtol=0, atol=1e-10)
    np.testing.assert_array_equal(our_bits(hasher), golden_bits(case))


def test_agh_sigma_is_the_mean_distance_to_the_second_anchor() -> None:
    from densehash.hashers import agh

    stored = np.load(GOLDEN / "agh.npz")
    found = agh._mean_reach(Rows(rows()[0]), stored["anchors"], int(stored["L32/s"]))
    np.testing.assert_allclose(found, stored["L32/sigma"], rtol=1e-12)


@pytest.mark.parametrize("case", cases("itq"))
def test_itq(case: Case) -> None:
    hasher = ITQ(int(case["L"]), n_iter=0, random_state=0).fit(rows()[0])
    directions = hasher.directions_.T
    np.testing.assert_allclose(up_to_sign(directions, case["pc"]), case["pc"], atol=1e-10)

    projections, rotation = Rows(rows()[0] @ case["pc"]), case["R0"]
    for _ in range(int(case["n_iter"])):
        rotation = rotation_step(projections, rotation)
    np.testing.assert_allclose(rotation, case["R"], rtol=0, atol=1e-10)
    hasher.planes_ = rotation.T @ case["pc"].T
    hasher.thresholds_ = hasher.planes_ @ hasher.mean_
    np.testing.assert_array_equal(our_bits(hasher), golden_bits(case))
