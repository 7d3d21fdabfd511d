"""A fitted hasher as plain data, and a hasher of plain data through the registry.

Indexes and clusters keep hashers so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from densehash.hashers.base import Hasher
from densehash.hashers.plain import built, described
from densehash.hashers.registry import HASHERS

__all__ = ["HasherState", "hasher_of", "state_of"]


class HasherState(NamedTuple):
    """All that a fitted hasher is.

    Attributes
    ----------
    description : class, parameters and learnt numbers; plain values that JSON can hold
    arrays : learnt arrays by name; those of a hasher inside are ``"hasher_.planes_"`` and so on
    """

    description: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def state_of(hasher: Hasher) -> HasherState:
    """A fitted hasher as plain data.

    Parameters
    ----------
    hasher : fitted, of a class in the registry. A ``random_state`` that is a generator is not
        kept: it has been used already.

    Returns
    -------
    HasherState: C-contiguous arrays, not copied where they need not be

    Raises
    ------
    InputError : if it has not learnt yet, or could not be rebuilt

    Examples
    --------
    >>> from densehash.hashers import LSH
    >>> state = state_of(LSH(2, random_state=0).fit([[0.0, 1.0], [1.0, 0.0]]))
    >>> state.description["parameters"], list(state.arrays)
    ({'n_bits': 2, 'random_state': 0, 'verbose': 0}, ['mean_', 'planes_', 'thresholds_'])
    """
    return HasherState(*described(hasher))


def hasher_of(description: Any, arrays: Any) -> Hasher:
    """The hasher that :func:`state_of` has described; its codes are the same, byte for byte.

    Parameters
    ----------
    description, arrays : from a file, for instance; anything may be wrong with them

    Returns
    -------
    A fitted hasher, with arrays of its own

    Raises
    ------
    FileError : if anything is unknown, missing, or of a wrong type or shape
    """
    hasher: Hasher = built(description, arrays, HASHERS)
    return hasher
