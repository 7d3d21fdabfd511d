"""Every hasher of the registry, in small settings, and rows to learn from."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from densehash.bits import unpack
from densehash.hashers import ITQ, LSH, Hasher
from densehash.hashers.registry import HASHERS
from densehash.rows import local

Make = Callable[..., Hasher]

# Settings for hashers whose defaults take more rows or time than tests have.
SMALL: dict[str, dict[str, Any]] = {
    "KLSH": {"n_landmarks": 40, "n_subset": 8},
    "AGH": {"n_anchors": 40},
    "ITQ": {"n_iter": 5},
    "Refined": {"n_steps": 8, "n_rows": 400},
}

# Variants of a method, which are tested like separate hashers.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "DSH-rows": ("DSH", {"entropy": "rows"}),
    "DSH-contrast": ("DSH", {"select": "contrast"}),
    "AGH-one-layer": ("AGH", {"n_layers": 1}),
}


def parameters_of(name: str) -> set[str]:
    return set(inspect.signature(HASHERS[name]).parameters)


def _maker(name: str, settings: dict[str, Any]) -> Make:
    known = parameters_of(name)

    def make(n_bits: Any = 12, seed: Any = 0, **options: Any) -> Hasher:
        first = LSH(n_bits, random_state=seed) if "hasher" in known else n_bits
        chance = {"random_state": seed} if "random_state" in known else {}
        return HASHERS[name](first, **{**SMALL.get(name, {}), **chance, **settings, **options})

    return make


MAKERS: dict[str, Make] = {
    **{name: _maker(name, {}) for name in HASHERS},
    **{variant: _maker(*what) for variant, what in VARIANTS.items()},
}

WITHOUT_CHANCE = {name for name in HASHERS if "random_state" not in parameters_of(name)}

every_hasher = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@cache
def mixture(n: int = 3000, d: int = 24, dtype: Any = np.float64) -> NDArray[Any]:
    """Rows around eight centres; read-only, because all tests share them."""
    rng = np.random.default_rng(0)
    centers = 2 * rng.standard_normal((8, d))
    rows = centers[rng.integers(0, 8, n)] + rng.standard_normal((n, d)) * np.linspace(1, 0.3, d)
    rows = rows.astype(dtype)
    rows.flags.writeable = False
    return rows


# A value that differs from the default, for each parameter that only some hashers have.
OPTIONS: dict[str, dict[str, Any]] = {
    "DSH": {
        "alpha": 2.5,
        "p": 1,
        "r": 6,
        "init": mixture()[100:120],
        "entropy": "rows",
        "select": "contrast",
    },
    "KLSH": {"n_landmarks": 50, "n_subset": 9, "bandwidth": 0.5},
    "SIKH": {"gamma": 0.5},
    "AGH": {"n_layers": 1, "n_anchors": 50, "n_nearest": 3},
    "ITQ": {"n_iter": 2},
    "Refined": {
        "hasher": ITQ(12, random_state=0),
        "n_steps": 5,
        "near": 0.2,
        "n_rows": 300,
    },
}


def small(hasher: Hasher) -> dict[str, Any]:
    """The settings of SMALL that a hasher has."""
    every = {name: value for some in SMALL.values() for name, value in some.items()}
    return {name: value for name, value in every.items() if name in hasher.get_params()}


def fitted(make: Make, dtype: Any = np.float64) -> Hasher:
    """A hasher that has learnt from the mixture; tests must not change it."""
    # In smaller blocks, which some tests want, sums have other last bits.
    return _fitted_in_blocks(make, dtype, local._MOST_BLOCK_ROWS)


@cache
def _fitted_in_blocks(make: Make, dtype: Any, _: int) -> Hasher:
    return make().fit(mixture(dtype=dtype))


def bits_of(hasher: Hasher, X: Any) -> NDArray[np.bool_]:
    return unpack(hasher.transform(X), hasher.n_bits_)


def learnt(hasher: Hasher) -> dict[str, bytes]:
    """The attributes that a fit has set, as bytes."""
    found: dict[str, bytes] = {}
    for name, value in sorted(vars(hasher).items()):
        if name.endswith("_"):
            is_hasher = isinstance(value, Hasher)
            inner = learnt(value) if is_hasher else {"": np.asarray(value).tobytes()}
            found |= {f"{name}.{key}": content for key, content in inner.items()}
    return found


def assert_same_bits(
    found: NDArray[np.bool_], expected: NDArray[np.bool_], margins: NDArray[Any], share: float
) -> None:
    """Bits may differ only if a row is on a plane, up to rounding."""
    size = np.abs(margins).mean(axis=0)
    wrong = found != expected
    far = np.abs(margins) > share * size
    assert not (wrong & far).any(), f"{(wrong & far).sum()} wrong bits"
