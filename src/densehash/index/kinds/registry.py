"""All kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from densehash.errors import FileError
from densehash.index.kinds.flat import Flat
from densehash.index.kinds.grouped import Grouped
from densehash.index.kinds.kind import Kind
from densehash.index.kinds.multi import Multi

__all__ = ["KINDS", "kind_from"]

KINDS: dict[str, type[Kind]] = {kind.name: kind for kind in (Flat, Grouped, Multi)}
"""Kinds by name."""


def kind_from(name: Any, settings: Mapping[str, Any], *, n_bits: int, n_features: int) -> Kind:
    """The kind from a file.

    Examples
    --------
    >>> kind_from("cloudy", {}, n_bits=8, n_features=2)
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: there is no kind 'cloudy' of index
    """
    if not isinstance(name, str) or name not in KINDS:
        raise FileError(f"there is no kind {name!r} of index")
    return KINDS[name].from_settings(settings, n_bits=n_bits, n_features=n_features)
