"""The compared methods, by their names in figures and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from densehash.errors import InputError
from densehash.hashers import Hasher
from densehash.hashers.registry import hasher_named

__all__ = ["BEYOND", "COSTS", "METHODS", "PAPER", "PEERS", "SIGNS", "check_methods", "make_hasher"]

PAPER = ("LSH", "KLSH", "SIKH", "PCAH", "SpH", "AGH", "DSH")
"""The seven methods that the paper compares, in its order."""

BEYOND = ("DSH contrast", "ITQ", "Refined(DSH)", "Refined(ITQ)")
"""Methods that the paper does not have."""

METHODS = PAPER + BEYOND

PEERS = ("faiss LSH", "faiss PQ", "faiss OPQ", "faiss RaBitQ")
"""Codes of another library with as many bytes a row: see :mod:`densehash.paper.peers`."""

SIGNS = "signs"
"""A sketch of an index, not a hasher, with as many bytes a row including its factors: see
:mod:`densehash.index.sketches.signs`."""

COSTS = {
    "AGH": 8,
    "ITQ": 6,
    "KLSH": 5,
    "SpH": 2,
    "Refined(DSH)": 30,
    "Refined(ITQ)": 36,
    "faiss OPQ": 30,
    "signs": 3,
}
"""Roughly how long a run takes, compared with LSH: used only to estimate the time left."""


def make_hasher(
    method: str, n_bits: int, *, seed: int = 0, parameters: Mapping[str, Any] | None = None
) -> Hasher:
    """Make a hasher that is not fitted.

    Parameters
    ----------
    method : one of METHODS
    n_bits : length of its codes
    seed : becomes its ``random_state``, and that of a hasher inside it
    parameters : parameters that differ from its defaults

    Examples
    --------
    >>> make_hasher("Refined(DSH)", 32, seed=1, parameters={"n_steps": 300})
    Refined(hasher=DSH(n_bits=32, random_state=1), n_steps=300, random_state=1)
    """
    return hasher_named(method, n_bits, random_state=seed, **(parameters or {}))


def check_methods(names: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Names of methods as METHODS, PEERS and SIGNS spell them, each once; case does not matter.

    Examples
    --------
    >>> check_methods(["dsh", "refined(itq)"])
    ('DSH', 'Refined(ITQ)')
    >>> check_methods(["DHS"])
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: there is no method 'DHS'; the methods are LSH, KLSH, SIKH, PCAH, \
SpH, AGH, DSH, DSH contrast, ITQ, Refined(DSH), Refined(ITQ), faiss LSH, faiss PQ, faiss OPQ, \
faiss RaBitQ, signs
    """
    known = {name.lower(): name for name in (*METHODS, *PEERS, SIGNS)}
    for name in names:
        if name.strip().lower() not in known:
            raise InputError(
                f"there is no method {name!r}; the methods are {', '.join(known.values())}"
            )
    return tuple(dict.fromkeys(known[name.strip().lower()] for name in names))
