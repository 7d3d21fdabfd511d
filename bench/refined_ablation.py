"""Measures what each choice inside Refined is worth, by changing one at a time.

    python bench/refined_ablation.py [--sets sift,glove] [--bits 32] [--seeds 1] [--from DSH]
                                     [--rows 20000] [--steps 1000] [--only WORD] [--quick]

The first 1,000 rows of a set are queries, the rest is the database (for SIFT, rows 1,000 to
99,999). Refined learns from the database. The nearest 2% are the true neighbours. Figures are the
tie-aware mean average precision, then the mean over seeds. The last column is the mean change from
the first line, over sets and code lengths.

The sets are those of accuracy.py, in the folder named by DENSEHASH_DATA, or in ../shared/data
beside the checkout. The table is markdown; a line appears once it is measured.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from accuracy import QUICK_ROWS, SETS, problem_of
from scipy.ndimage import correlate1d
from scipy.special import expit

from densehash import hamming
from densehash.hashers import DSH, ITQ, LSH, PCAH, Hasher, Refined, refined
from densehash.metrics import mean_average_precision

STARTS: dict[str, Callable[..., Any]] = {"DSH": DSH, "ITQ": ITQ, "LSH": LSH, "PCAH": PCAH}
QUICK_STEPS = 300

Floats = npt.NDArray[np.float64]


# Other losses, in the form of refined.ranking_loss: counts to losses and slopes


def logistic_loss(counts: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """Half the weight is on near pairs, half on far ones; scale and offset are the best ones."""
    n_bits = counts.shape[2] - 1
    similarity = 1 - 2 * np.arange(n_bits + 1) / n_bits
    far, near = 0.5 * counts.sum(axis=0) / np.maximum(counts.sum(axis=(0, 2)), 1)[:, np.newaxis]
    features = np.stack([similarity, np.ones(n_bits + 1)])
    weights = np.zeros(2)
    for _ in range(30):  # Newton's steps
        chance = expit(weights @ features)
        gradient = features @ ((far + near) * chance - near)
        curvature = (features * ((far + near) * chance * (1 - chance))) @ features.T
        weights -= np.linalg.solve(curvature + 1e-5 * np.eye(2), gradient + 1e-5 * weights)
    chance = expit(weights @ features)
    each = np.stack([-np.log1p(-chance + 1e-12), -np.log(chance + 1e-12)])
    share = len(counts) * 0.5 / np.maximum(counts.sum(axis=(0, 2)), 1)[:, np.newaxis]
    losses = (counts * (share * each)).sum(axis=(1, 2))
    slopes = share * np.stack([chance, chance - 1]) * weights[0] * (-2 / n_bits)
    return losses, np.broadcast_to(slopes, counts.shape).copy()


def average_precision_loss(counts: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """The mean of 1 − precision, instead of −log precision as in refined.ranking_loss."""
    reach = refined._REACH
    n_near = np.maximum(counts[:, 1].sum(axis=1, keepdims=True), 1)
    soft = np.pad(counts.astype(np.float64), ((0, 0), (0, 0), (reach, reach)))
    soft = correlate1d(soft, refined._KERNEL, mode="constant")
    near = soft[:, 1] / n_near
    before = refined._up_to(soft.sum(axis=1)) + refined._EMPTY
    precision = (refined._up_to(soft[:, 1]) + refined._EMPTY) / before
    by_soft = np.empty_like(soft)
    by_soft[:, 0] = refined._from(near * precision / before)
    by_soft[:, 1] = by_soft[:, 0] - refined._from(near / before) - precision / n_near
    slopes = correlate1d(by_soft, refined._KERNEL_SLOPE, mode="constant")
    return 1 - (near * precision).sum(axis=1), slopes[:, :, reach:-reach]


def with_fixed_thresholds(draw: Any, planes: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    gradient = _gradient(draw, planes)
    gradient[:, -1] = 0
    return gradient


_gradient = refined._gradient


def kernel(bits: float) -> dict[str, Any]:
    """The values that depend on the width of smoothing."""
    values = np.exp(-0.5 * (refined._OFFSETS / bits) ** 2)
    values /= values.sum()
    return {"_KERNEL": values, "_KERNEL_SLOPE": values * refined._OFFSETS / bits**2}


# Variants


@dataclass(frozen=True)
class Variant:
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    inside: dict[str, Any] = field(default_factory=dict)


VARIANTS = (
    Variant("as it is"),
    Variant("loss: balanced logistic", inside={"ranking_loss": logistic_loss}),
    Variant("loss: 1 − precision", inside={"ranking_loss": average_precision_loss}),
    Variant("near: 1% of rows", {"near": 0.01}),
    Variant("near: 5% of rows", {"near": 0.05}),
    Variant("width of the slope: 0.5", inside={"_WIDTH": 0.5}),
    Variant("width of the slope: 1", inside={"_WIDTH": 1.0}),
    Variant("thresholds stay", inside={"_gradient": with_fixed_thresholds}),
    Variant("rows: 4,096", {"n_rows": 4096}),
    Variant("rows: 4,096, all coordinates", {"n_rows": 4096}, {"_ROWS_A_COORDINATE": 1}),
    Variant(
        "all of: logistic, near 5%, width 1, step 0.05",
        {"near": 0.05},
        {"ranking_loss": logistic_loss, "_WIDTH": 1.0, "_STEP": 0.05},
    ),
    Variant("smoothing: 0.5 bits", inside=kernel(0.5)),
    Variant("smoothing: 2 bits", inside=kernel(2.0)),
    Variant("step: 0.05", inside={"_STEP": 0.05}),
    Variant("step: 0.4", inside={"_STEP": 0.4}),
    Variant("width of the slope: 0.1", inside={"_WIDTH": 0.1}),
    Variant("never ends early", inside={"_PATIENCE": 1000}),
)


@contextmanager
def changed(values: dict[str, Any]) -> Iterator[None]:
    """Give names inside the module other values during a ``with`` block."""
    before = {name: getattr(refined, name) for name in values}
    try:
        for name, value in values.items():
            setattr(refined, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(refined, name, value)


# Measuring


def mean_precision(hasher: Hasher, name: str, most_rows: int | None) -> float:
    problem = problem_of(name, most_rows)
    asked, codes = hasher.transform(problem.queries), hasher.transform(problem.base)
    both = hamming.histogram(asked, codes, problem.relevant, n_bits=hasher.n_bits_)
    return mean_average_precision(*both)


def measure(variant: Variant, asked: argparse.Namespace, name: str, n_bits: int) -> float:
    most_rows = QUICK_ROWS if asked.quick else asked.rows or SETS[name]
    n_steps = QUICK_STEPS if asked.quick else asked.steps
    found = []
    for seed in range(asked.seeds):
        hasher = Refined(
            STARTS[asked.start](n_bits, random_state=seed),
            random_state=seed,
            **{"n_steps": n_steps, **variant.options},
        )
        with changed(variant.inside):
            hasher.fit(problem_of(name, most_rows).base)
        found.append(mean_precision(hasher, name, most_rows))
    return statistics.mean(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--sets", default="sift,glove,fashion,gist")
    parser.add_argument("--bits", default="32")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--from", dest="start", choices=STARTS, default="DSH")
    parser.add_argument("--rows", type=int, help="rows of a set, at most, queries and all")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--only", default="", help="variants that have this word, and the first")
    parser.add_argument("--quick", action="store_true", help="few rows, few steps: a smoke test")
    asked = parser.parse_args()
    columns = [
        (name, int(bits)) for name in asked.sets.split(",") for bits in asked.bits.split(",")
    ]
    print("| changed |", " | ".join(f"{name} {bits}" for name, bits in columns), "| change |")
    print("| --- |" + " ---: |" * (len(columns) + 1), flush=True)
    usual: list[float] = []
    for variant in VARIANTS:
        if usual and asked.only not in variant.name:
            continue
        found = [measure(variant, asked, *column) for column in columns]
        usual = usual or found
        change = statistics.mean(one / two - 1 for one, two in zip(found, usual, strict=True))
        figures = " | ".join(f"{value:.3f}" for value in found)
        print(f"| {variant.name} | {figures} | {change:+.1%} |", flush=True)


if __name__ == "__main__":
    main()
