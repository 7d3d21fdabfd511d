"""From a fitted hasher to plain data, and back by the names of the registry.

Indexes and clusters keep hashers as plain data.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from densehash.hashers.base import Hasher
from densehash.hashers.plain import built, described
from densehash.hashers.registry import HASHERS

__all__ = ["HasherState", "hasher_of", "state_of"]


class HasherState(NamedTuple):
    """A fitted hasher as plain data: everything that is needed to make it again.

    Attributes
    ----------
    description : class, parameters and learnt numbers, as plain values that JSON can hold
    arrays : learnt arrays by name; the arrays of a hasher inside have names like
        ``"hasher_.planes_"``
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
    HasherState, with C-contiguous arrays, which are copied only if they must be

    Raises
    ------
    InputError : if the hasher has not learnt yet, or could not be made again

    Examples
    --------
    >>> from densehash.hashers import LSH
    >>> state = state_of(LSH(2, random_state=0).fit([[0.0, 1.0], [1.0, 0.0]]))
    >>> state.description["parameters"], list(state.arrays)
    ({'n_bits': 2, 'random_state': 0, 'verbose': 0}, ['mean_', 'planes_', 'thresholds_'])
    """
    return HasherState(*described(hasher))


def hasher_of(description: Any, arrays: Any) -> Hasher:
    """Make the hasher that :func:`state_of` described; its codes are the same, byte for byte.

    Parameters
    ----------
    description, arrays : from a file, for instance; they are not trusted

    Returns
    -------
    A fitted hasher, with arrays of its own

    Raises
    ------
    FileError : if anything is unknown, missing, or of a wrong type or shape
    """
    hasher: Hasher = built(description, arrays, HASHERS)
    return hasher
