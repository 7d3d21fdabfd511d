"""Every hasher, in small settings, and rows to learn from."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from densehash.bits import unpack
from densehash.hashers import AGH, DSH, ITQ, KLSH, LSH, PCAH, SIKH, Hasher, SpH
from densehash.hashers.refined import Refined

Make = Callable[..., Hasher]

MAKERS: dict[str, Make] = {
    "DSH": lambda n_bits=12, seed=0, **o: DSH(n_bits, random_state=seed, **o),
    "DSH-rows": lambda n_bits=12, seed=0, **o: DSH(n_bits, entropy="rows", random_state=seed, **o),
    "DSH-contrast": lambda n_bits=12, seed=0, **o: DSH(
        n_bits, select="contrast", random_state=seed, **o
    ),
    "LSH": lambda n_bits=12, seed=0, **o: LSH(n_bits, random_state=seed, **o),
    "KLSH": lambda n_bits=12, seed=0, **o: KLSH(
        n_bits, **{"n_landmarks": 40, "n_subset": 8, **o}, random_state=seed
    ),
    "SIKH": lambda n_bits=12, seed=0, **o: SIKH(n_bits, random_state=seed, **o),
    "PCAH": lambda n_bits=12, seed=0, **o: PCAH(n_bits, **o),
    "SpH": lambda n_bits=12, seed=0, **o: SpH(n_bits, **o),
    "AGH": lambda n_bits=12, seed=0, **o: AGH(n_bits, **{"n_anchors": 40, **o}, random_state=seed),
    "AGH-one-layer": lambda n_bits=12, seed=0, **o: AGH(
        n_bits, n_layers=1, **{"n_anchors": 40, **o}, random_state=seed
    ),
    "ITQ": lambda n_bits=12, seed=0, **o: ITQ(n_bits, **{"n_iter": 5, **o}, random_state=seed),
    "Refined": lambda n_bits=12, seed=0, **o: Refined(
        LSH(n_bits, random_state=seed), **{"n_steps": 8, "n_rows": 400, **o}, random_state=seed
    ),
}

WITHOUT_CHANCE = {"PCAH", "SpH"}

every_hasher = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@cache
def mixture(n: int = 3000, d: int = 24, dtype: Any = np.float64) -> NDArray[Any]:
    """Rows around eight centres; read-only, for all tests share them."""
    rng = np.random.default_rng(0)
    centers = 2 * rng.standard_normal((8, d))
    rows = centers[rng.integers(0, 8, n)] + rng.standard_normal((n, d)) * np.linspace(1, 0.3, d)
    rows = rows.astype(dtype)
    rows.flags.writeable = False
    return rows


@cache
def fitted(make: Make, dtype: Any = np.float64) -> Hasher:
    """A hasher that has learnt from the mixture; tests that use it leave it as it is."""
    return make().fit(mixture(dtype=dtype))


def bits_of(hasher: Hasher, X: Any) -> NDArray[np.bool_]:
    return unpack(hasher.transform(X), hasher.n_bits_)


def learnt(hasher: Hasher) -> dict[str, bytes]:
    """What a fit has set, as bytes."""
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
    """Bits may differ only where a row lies on a plane, up to rounding."""
    size = np.abs(margins).mean(axis=0)
    wrong = found != expected
    far = np.abs(margins) > share * size
    assert not (wrong & far).any(), f"{(wrong & far).sum()} wrong bits"
