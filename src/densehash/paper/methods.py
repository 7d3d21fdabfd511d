"""The methods that are compared, by the names that figures and tables give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from densehash.errors import InputError
from densehash.hashers import Hasher
from densehash.hashers.registry import hasher_named

__all__ = ["BEYOND", "COSTS", "METHODS", "PAPER", "PEERS", "SIGNS", "check_methods", "make_hasher"]

PAPER = ("LSH", "KLSH", "SIKH", "PCAH", "SpH", "AGH", "DSH")
"""The seven that the paper compares, in its order."""

BEYOND = ("DSH contrast", "ITQ", "Refined(DSH)", "Refined(ITQ)")
"""What the paper did not have."""

METHODS = PAPER + BEYOND

PEERS = ("faiss LSH", "faiss PQ", "faiss OPQ", "faiss RaBitQ")
"""Codes of another library, at the same bytes a row: see :mod:`densehash.paper.peers`."""

SIGNS = "signs"
"""The sketch of an index, with factors at the same bytes a row: it is no hasher, see
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
"""How long a run takes, roughly, beside one of LSH: for the time left only."""


def make_hasher(
    method: str, n_bits: int, *, seed: int = 0, parameters: Mapping[str, Any] | None = None
) -> Hasher:
    """Make a hasher that has not learnt yet.

    Parameters
    ----------
    method : one of METHODS
    n_bits : length of its codes
    seed : becomes its ``random_state``, and that of a hasher inside it
    parameters : others than its defaults

    Examples
    --------
    >>> make_hasher("Refined(DSH)", 32, seed=1, parameters={"n_steps": 300})
    Refined(hasher=DSH(n_bits=32, random_state=1), n_steps=300, random_state=1)
    """
    return hasher_named(method, n_bits, random_state=seed, **(parameters or {}))


def check_methods(names: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Names of methods as this room spells them, without doubles; upper and lower case are one.

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
