"""The only list of hashers by name: every hasher that is made from a name is made here."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from numpy.random import RandomState

from densehash.errors import InputError
from densehash.hashers.agh import AGH
from densehash.hashers.base import Hasher, LinearHasher
from densehash.hashers.dsh import DSH
from densehash.hashers.itq import ITQ
from densehash.hashers.klsh import KLSH
from densehash.hashers.lsh import LSH
from densehash.hashers.models import read_hasher
from densehash.hashers.pcah import PCAH
from densehash.hashers.refined import Refined
from densehash.hashers.sikh import SIKH
from densehash.hashers.sph import SpH

__all__ = [
    "AGH",
    "DSH",
    "HASHERS",
    "ITQ",
    "KLSH",
    "LSH",
    "NAMES",
    "PCAH",
    "SIKH",
    "Refined",
    "SpH",
    "hasher_named",
    "load_hasher",
]

HASHERS: dict[str, type[Hasher]] = {
    kind.__name__: kind for kind in (LSH, KLSH, SIKH, PCAH, SpH, AGH, DSH, ITQ, Refined)
}
"""The classes, by their names in files."""

# Each makes a hasher, given the bits of its code.
_MAKERS: dict[str, Callable[[int], Hasher]] = {}
for _name, _kind in HASHERS.items():
    if _kind is not Refined:
        _MAKERS[_name] = _kind
    if _kind is DSH:
        _MAKERS["DSH contrast"] = partial(DSH, select="contrast")
_LINEAR = [name for name in _MAKERS if issubclass(HASHERS[name.split()[0]], LinearHasher)]
_MAKERS |= {
    "Refined": lambda n_bits: Refined(DSH(n_bits)),
    **{
        f"Refined({name})": lambda n_bits, make=_MAKERS[name]: Refined(make(n_bits))  # type: ignore[misc]
        for name in _LINEAR
    },
}

NAMES = tuple(_MAKERS)
"""The names that :func:`hasher_named` knows, in upper or lower case."""


def hasher_named(
    name: str,
    n_bits: int = 64,
    *,
    random_state: int | RandomState | None = None,
    **parameters: Any,
) -> Hasher:
    """Make a hasher that has not learnt yet.

    Parameters
    ----------
    name : one of NAMES, in upper or lower case; "refined" refines DSH
    n_bits : bits of a code, default 64
    random_state : seed or generator of the hasher, and of a hasher inside it; hashers that draw
        nothing ignore it
    parameters : parameters of the hasher that differ from their defaults. ``hasher__alpha``, for
        instance, is the ``alpha`` of the hasher inside.

    Raises
    ------
    InputError : if there is no such name, or no such parameter

    Examples
    --------
    >>> hasher_named("dsh", 32, random_state=1)
    DSH(n_bits=32, random_state=1)
    >>> hasher_named("refined", 32, random_state=1, n_steps=300)
    Refined(hasher=DSH(n_bits=32, random_state=1), n_steps=300, random_state=1)
    >>> hasher_named("DHS")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: there is no hasher 'DHS'; the hashers are LSH, KLSH, SIKH, ...
    """
    known = {one.lower(): one for one in NAMES}
    kind = known.get(str(name).strip().lower())
    if kind is None:
        raise InputError(f"there is no hasher {name!r}; the hashers are {', '.join(NAMES)}")
    hasher = _MAKERS[kind](n_bits)
    every = hasher.get_params()
    if random_state is not None:
        seeds = [one for one in every if one.rpartition("__")[2] == "random_state"]
        hasher.set_params(**dict.fromkeys(seeds, random_state))
    if unknown := sorted(set(parameters) - set(every)):
        raise InputError(
            f"{kind} has no parameter {unknown[0]!r}; its parameters are {', '.join(every)}"
        )
    hasher.set_params(**parameters)
    return hasher


def load_hasher(path: str | os.PathLike[str]) -> Hasher:
    """Load the hasher that was saved in a folder.

    Its codes and margins are the same as before, byte for byte.

    Nothing in the folder is run or trusted: there is no pickle, the class must be one of this
    package, and each attribute must have the type and shape that the class says.

    Parameters
    ----------
    path : a folder that ``Hasher.save`` wrote, or the folder of an index, to get the hasher of the
        index. An index with the metric "cosine" scales rows to length one before it hashes them;
        its hasher alone does not scale them.

    Returns
    -------
    A fitted hasher, in memory. A ``random_state`` that was a generator is now None.

    Raises
    ------
    FileError : if the folder holds no hasher, is damaged, or was written by a newer version

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from sklearn.datasets import load_digits
    >>> from densehash import DSH, load_hasher
    >>> X = load_digits().data
    >>> hasher = DSH(32, random_state=0).fit(X)
    >>> with TemporaryDirectory() as folder:
    ...     hasher.save(Path(folder, "digits.dh"))
    ...     again = load_hasher(Path(folder, "digits.dh"))
    >>> again, bool((again.transform(X) == hasher.transform(X)).all())
    (DSH(n_bits=32, random_state=0), True)
    """
    hasher: Hasher = read_hasher(path, HASHERS)
    return hasher
