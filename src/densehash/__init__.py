"""densehash: learned binary codes for nearest-neighbour search.

Here are the names that most users need first; the others are in their modules, such as
``densehash.bits`` or ``densehash.errors``. A name is loaded when it is first used, with only the
packages that it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = [
    "AGH",
    "DSH",
    "ITQ",
    "KLSH",
    "LSH",
    "PCAH",
    "SIKH",
    "DensehashError",
    "Index",
    "Refined",
    "SpH",
    "__version__",
    "device",
    "hamming",
    "load_hasher",
]

if TYPE_CHECKING:
    from densehash import bits as bits
    from densehash import hamming
    from densehash.bits import pack as pack
    from densehash.bits import unpack as unpack
    from densehash.errors import DensehashError
    from densehash.errors import FileError as FileError
    from densehash.errors import InputError as InputError
    from densehash.errors import MissingExtraError as MissingExtraError
    from densehash.hashers import AGH, DSH, ITQ, KLSH, LSH, PCAH, SIKH, Refined, SpH, load_hasher
    from densehash.index import HashingNeighbors as HashingNeighbors
    from densehash.index import Index
    from densehash.rows.devices import device

    __version__: str
else:  # not for type checkers, which would then accept any name
    # Names that are not in __all__ belong to their modules; they are here for older code.
    _NAMES = {
        "bits": ("pack", "unpack"),
        "errors": ("DensehashError", "FileError", "InputError", "MissingExtraError"),
        "hamming": (),
        "hashers": (
            *("AGH", "DSH", "ITQ", "KLSH", "LSH", "PCAH", "Refined", "SIKH", "SpH"),
            "load_hasher",
        ),
        "index": ("HashingNeighbors", "Index"),
        "rows.devices": ("device",),
    }
    _MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

    def __getattr__(name: str) -> Any:
        if name in _NAMES:
            return importlib.import_module(f"densehash.{name}")
        if name in _MODULE_OF:
            value = getattr(importlib.import_module(f"densehash.{_MODULE_OF[name]}"), name)
        elif name == "__version__":
            from importlib.metadata import version  # noqa: PLC0415  takes as long as the rest

            value = version("densehash")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value  # found there the next time
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
