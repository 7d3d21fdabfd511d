"""The exceptions of densehash.

::

    Exception
    └── DensehashError                      everything that densehash raises on purpose
        ├── InputError (ValueError)         an argument is not what was asked for
        ├── FileError (OSError)             a file is missing, cut, or says what cannot be
        ├── MissingExtraError (ImportError) an optional package is not installed
        └── DeviceMemoryError (MemoryError) a GPU has too little memory
"""

__all__ = ["DensehashError", "DeviceMemoryError", "FileError", "InputError", "MissingExtraError"]


class DensehashError(Exception):
    """The root of every exception that densehash raises on purpose."""


class InputError(DensehashError, ValueError):
    """An argument has the wrong type, shape or value; the message says what was expected.

    Examples
    --------
    >>> import numpy as np
    >>> from densehash.bits import pack
    >>> pack(np.zeros(8, dtype=bool))
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: bits must have 2 dimensions (n, n_bits), got shape (8,)
    """


class FileError(DensehashError, OSError):
    """A file cannot be read or written; the message names the file and what is wrong with it."""


class MissingExtraError(DensehashError, ImportError):
    """An optional package is needed; the message says which extra of densehash installs it."""


class DeviceMemoryError(DensehashError, MemoryError):
    """A GPU has too little memory; the message says how much was asked for, and is free.

    Torch's own error is its cause.
    """
