"""The exceptions of densehash.

::

    Exception
    └── DensehashError                 everything that densehash raises on purpose
        └── InputError (ValueError)    an argument is not what was asked for
"""

__all__ = ["DensehashError", "InputError"]


class DensehashError(Exception):
    """The root of every exception that densehash raises on purpose."""


class InputError(DensehashError, ValueError):
    """An argument has the wrong type, shape or value; the message says what was expected.

    Examples
    --------
    >>> import numpy as np
    >>> from densehash import pack
    >>> pack(np.zeros(8, dtype=bool))
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: bits must have 2 dimensions (n, n_bits), got shape (8,)
    """
